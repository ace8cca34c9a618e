"""Draws against their exact laws: a chi-squared test that sound samplers pass and planted defects fail.

The entropy is the operating system's, so every run is a new experiment. A sound sampler fails one test
with probability about 1e-9 (`FALSE_ALARM`); there are fewer than 100, so a false alarm in all of them
has probability below 1e-6. Every cell expects at least 100 draws, so that the limit law applies.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, ndtri
from statistical.chance import FALSE_ALARM

from dpsql.privacy.mechanisms import sampler
from dpsql.privacy.mechanisms.entropy import SystemEntropy
from dpsql.privacy.mechanisms.sampler import (
    Coin,
    Integers,
    sample_discrete_gaussian,
    sample_l_infinity_vectors,
    sample_staircase,
    sample_two_sided_geometric,
)

DRAWS = 10**6
Floats = NDArray[np.float64]
SCALES = [Fraction(3, 10), Fraction(1), Fraction(10), Fraction(1000), Fraction(2**31)]


def geometric_tail(scale: Fraction) -> Callable[[Floats], Floats]:
    """P(Z >= t) of the two-sided geometric law, for an array of t."""
    rate = 1 / float(scale)

    def tail(t: Floats) -> Floats:
        share: Floats = np.exp(-rate * np.where(t >= 1, t, 1 - t)) / (1 + np.exp(-rate))
        return np.where(t >= 1, share, 1 - share)

    return tail


def gaussian_tail(sigma: Fraction) -> Callable[[Floats], Floats]:
    """P(Z >= t) of the discrete Gaussian law, summed, or for wide ones the normal's to 1e-15."""
    if sigma > 10**4:
        return lambda t: ndtr((0.5 - t) / float(sigma))
    reach = int(40 * sigma) + 40
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(sigma) ** 2))
    above = np.append(np.cumsum(weights[::-1])[::-1], 0.0) / weights.sum()
    return lambda t: above[(t + reach).astype(np.int64)]


def p_value(observed: NDArray[np.int64], probabilities: Floats) -> float:
    """Of the chi-squared test of the counts in the cells against their probabilities."""
    expected = probabilities * observed.sum()
    assert expected.min() >= 100
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))


def binned_p_value(draws: Integers, spread: Floats, tail: Callable[[Floats], Floats]) -> float:
    """With cells cut at the integers nearest to `spread`, as far as each then expects 100 draws."""
    least, above, edges = 100 / len(draws), 1.0, []
    for edge, mass in zip(*(values := np.unique(np.round(spread)), tail(values)), strict=True):
        if above - mass >= least and mass >= least:
            edges.append(edge)
            above = mass
    probabilities = -np.diff(np.concatenate([[1.0], tail(np.array(edges)), [0.0]]))
    cells = np.searchsorted(edges, draws, side="right")
    return p_value(np.bincount(cells, minlength=len(probabilities)), probabilities)


def geometric_p_value(scale: Fraction, draws: Integers) -> float:
    """Cells at up to 400 quantiles, or at every integer where those are denser."""
    u = np.linspace(1e-3, 0.999, 400)
    spread = float(scale) * np.sign(u - 0.5) * -np.log1p(-np.abs(2 * u - 1))
    return binned_p_value(draws, spread, geometric_tail(scale))


def gaussian_p_value(sigma: Fraction, draws: Integers) -> float:
    """As for the geometric law."""
    return binned_p_value(draws, float(sigma) * ndtri(np.linspace(1e-3, 0.999, 400)), gaussian_tail(sigma))


def low_digits_p_value(scale: Fraction, draws: Integers) -> float:
    """With a cell for each sign and residue modulo 32 of the magnitude g, a draw being g or -1-g."""
    a = np.exp(-1 / float(scale))
    residues = a ** np.arange(32.0)
    law = np.concatenate([residues, a * residues]) / ((1 + a) * residues.sum())
    cells = np.where(draws < 0, ~draws, draws) % 32 + 32 * (draws < 0)
    return p_value(np.bincount(cells.astype(np.int64), minlength=64), law)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_geometric_samples_follow_the_law(scale: Fraction) -> None:
    """10**6 geometric draws follow the exact law."""
    assert geometric_p_value(scale, sample_two_sided_geometric(scale, DRAWS, SystemEntropy())) > FALSE_ALARM


@pytest.mark.parametrize("scale", SCALES[2:], ids=str)
def test_low_digits_follow_the_law(scale: Fraction) -> None:
    """The sign and last five binary digits of 10**6 geometric draws follow the exact law."""
    assert low_digits_p_value(scale, sample_two_sided_geometric(scale, DRAWS, SystemEntropy())) > FALSE_ALARM


@pytest.mark.parametrize("sigma", SCALES, ids=str)
def test_gaussian_samples_follow_the_law(sigma: Fraction) -> None:
    """10**6 discrete Gaussian draws follow the exact law."""
    assert gaussian_p_value(sigma, sample_discrete_gaussian(sigma**2, DRAWS, SystemEntropy())) > FALSE_ALARM


def cube_p_value(scale: Fraction, dimensions: int, draws: Integers) -> float:
    """With a cell for each vector near zero, and beyond these for each norm, as far as it expects 100 draws."""
    near, reach = 1 if dimensions > 2 else 3, int(40 * scale) + 60
    ratio = np.exp(-1 / float(scale))
    radii = np.arange(reach, dtype=np.float64)
    shells = ((2 * radii + 1) ** dimensions - np.maximum(0, 2 * radii - 1) ** dimensions) * ratio**radii
    shells[0] = 1
    norms, side = np.abs(draws).max(axis=1), 2 * near + 1
    inside = norms <= near
    places = (draws[inside] + near) @ side ** np.arange(dimensions)
    vectors = np.indices((side,) * dimensions).reshape(dimensions, -1).T[:, ::-1] - near
    law = ratio ** np.abs(vectors).max(axis=1) / shells.sum()
    shells /= shells.sum()
    last = near + np.count_nonzero(shells[near + 1 :] * len(draws) >= 100)
    far = np.bincount(np.minimum(norms[~inside], last) - near - 1, minlength=last - near)
    observed = np.concatenate([np.bincount(places, minlength=side**dimensions), far])
    return p_value(observed, np.array([*law, *shells[near + 1 : last], shells[last:].sum()]))


@pytest.mark.parametrize(
    ("scale", "dimensions"), [(Fraction(1, 2), 2), (Fraction(3), 2), (Fraction(4, 3), 3), (Fraction(1), 4)]
)
def test_l_infinity_samples_follow_the_law(scale: Fraction, dimensions: int) -> None:
    """10**6 vectors follow the exact law: each one near zero, and the norms of those beyond."""
    assert (
        cube_p_value(scale, dimensions, sample_l_infinity_vectors(scale, dimensions, DRAWS, SystemEntropy()))
        > FALSE_ALARM
    )


def staircase_p_value(loss: Fraction, width: int, inner: int, draws: Integers) -> float:
    """With a cell for each number near zero, or for each of up to 400 parts of the stairs, signs apart."""
    reach = int(width * (3 + 40 / float(loss)))
    stairs = (np.abs(np.arange(-reach, reach + 1)) + width - inner) // width
    law = np.exp(-float(loss) * stairs)
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0) / law.sum()
    spread = np.arange(-12 * width, 12 * width, max(1, width // 50)) + inner
    return binned_p_value(
        draws,
        spread.astype(np.float64),
        lambda t: above[np.clip(t + reach, 0, 2 * reach + 1).astype(np.int64)],
    )


STAIRCASES = [
    (Fraction(1), 1, 1),
    (Fraction(3), 2, 1),
    (Fraction(1, 2), 5, 3),
    (Fraction(2), 40, 13),
    (Fraction(5, 3), 6, 6),
    (Fraction(6), 1000, 99),
]


@pytest.mark.parametrize(("loss", "width", "inner"), STAIRCASES)
def test_staircase_samples_follow_the_law(loss: Fraction, width: int, inner: int) -> None:
    """10**6 draws follow the exact law; half of what is not zero has a minus sign."""
    draws = sample_staircase(loss, width, inner, DRAWS, SystemEntropy())
    assert staircase_p_value(loss, width, inner, draws) > FALSE_ALARM


@pytest.mark.parametrize(
    ("loss", "width", "inner"), [(Fraction(2), 40, 14), (Fraction(2), 41, 13), (Fraction(41, 20), 40, 13)]
)
def test_another_staircase_is_found(loss: Fraction, width: int, inner: int) -> None:
    """Draws whose first stair, whose width or whose loss is a little another fail the test above."""
    draws = sample_staircase(loss, width, inner, DRAWS, SystemEntropy())
    assert staircase_p_value(Fraction(2), 40, 13, draws) < FALSE_ALARM


@pytest.mark.parametrize("shift", [-1, 1])
def test_vectors_of_another_radius_are_found(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    """Radii with one geometric magnitude more or less than the law's fail the test above."""
    indices = sampler._sample_eulerian_indices

    def wrong(scale: Fraction, power: int, size: int, entropy: SystemEntropy) -> NDArray[np.int64]:
        return np.maximum(0, indices(scale, power, size, entropy) + shift)

    monkeypatch.setattr(sampler, "_sample_eulerian_indices", wrong)
    assert (
        cube_p_value(Fraction(3), 2, sample_l_infinity_vectors(Fraction(3), 2, DRAWS, SystemEntropy()))
        < FALSE_ALARM
    )


def test_draws_are_independent() -> None:
    """Neighbouring draws, and draws a block apart, are uncorrelated, in size as in value."""
    draws = sample_two_sided_geometric(Fraction(2**31), DRAWS, SystemEntropy()).astype(np.float64)
    for values in (draws, np.abs(draws)):
        centred = (values - values.mean()) / values.std()
        for lag in (1, 2, sampler._BLOCK):
            correlation = (centred[lag:] * centred[:-lag]).mean()
            assert abs(correlation) < 7 / DRAWS**0.5


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """Plants a wrong first-word threshold: a coin's probability moves by the share given."""
    coins = sampler._make_coins

    def plant(index: int, share: float) -> None:
        def defective(scale: Fraction) -> tuple[tuple[Coin, ...], NDArray[np.uint16]]:
            right, thresholds = coins(scale)
            wrong = thresholds.copy()
            wrong[index] = wrong[index] * (1 + share)
            return right, wrong

        monkeypatch.setattr(sampler, "_make_coins", defective)

    return plant


@pytest.mark.parametrize("index", [0, 3, 9, -1])
def test_wrong_threshold_is_found(defect: Callable[[int, float], None], index: int) -> None:
    """A coin that is 3% off, be it a low digit, a high one or the sign, fails the tests above."""
    defect(index, 0.03)
    scale = Fraction(1000)
    draws = sample_two_sided_geometric(scale, DRAWS, SystemEntropy())
    assert min(geometric_p_value(scale, draws), low_digits_p_value(scale, draws)) < FALSE_ALARM


@pytest.mark.parametrize("sigma", SCALES, ids=str)
def test_dropped_rejection_is_found(monkeypatch: pytest.MonkeyPatch, sigma: Fraction) -> None:
    """Proposals that are all accepted are not discrete Gaussian, and the test says so."""

    def lax(proposals: Integers, *_: object) -> NDArray[np.bool_]:
        return np.ones(len(proposals), np.bool_)

    monkeypatch.setattr(sampler, "_accept_proposals", lax)
    assert gaussian_p_value(sigma, sample_discrete_gaussian(sigma**2, DRAWS, SystemEntropy())) < FALSE_ALARM


def test_double_zero_is_found() -> None:
    """The classic slip, a sign put before a geometric magnitude so that zero has two ways, fails."""
    scale = Fraction(10)
    draws = sample_two_sided_geometric(scale, DRAWS, SystemEntropy())
    slipped = np.where(draws < 0, draws + 1, draws)
    assert geometric_p_value(scale, slipped) < FALSE_ALARM
