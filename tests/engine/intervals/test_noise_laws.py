"""Intervals of a mean whose total and count have noises of their own."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from entropy import SeededEntropy
from speeds import examples
from statistical.chance import least_share

from dpsql.engine.intervals.noise_laws import ScaledNoise, compute_half_width, make_ratio_interval
from dpsql.privacy.mechanisms import ConsistencyNoise, DiscreteGaussian, Geometric, Mechanism

ONE = (Fraction(1),)
RUNS = examples(2000, least=500)
FINE = 1000
"""The steps of a unit."""
GAUSSIAN = DiscreteGaussian.calibrate(Fraction((30 * FINE) ** 2), Fraction(1, 2))
WIDE = DiscreteGaussian.calibrate(Fraction((1000 * FINE) ** 2), Fraction(1, 2))
LAPLACE = Geometric.calibrate(Fraction(30 * FINE), Fraction(1))
NOISES: dict[str, tuple[Mechanism, Mechanism]] = {
    "gaussian": (GAUSSIAN, GAUSSIAN),
    "a wide total": (WIDE, GAUSSIAN),
    "laplace": (LAPLACE, LAPLACE),
    "both": (GAUSSIAN, LAPLACE),
}


def scaled(mechanism: Mechanism) -> ScaledNoise:
    """Its noise in units."""
    return ScaledNoise(mechanism, ONE, 1 / FINE)


@pytest.mark.parametrize("name", NOISES)
def test_ratio_interval_covers_the_ratio(name: str) -> None:
    """As often as is said, whatever its sign and the noise; not always, but where the laws differ in kind or rows are few."""
    total, count = NOISES[name]
    for rows, mean in ((300, 4), (300, -7), (60, 9), (2000, 0)):
        entropy = SeededEntropy(rows)
        explained = make_ratio_interval(scaled(total), scaled(count), (0, 0), 0, 0.9)
        noises = zip(total.draw(RUNS, entropy), count.draw(RUNS, entropy), strict=True)
        ends = [explained(rows * mean + a / FINE, rows + b / FINE, -1000.0, 1000.0) for a, b in noises]
        held = sum(low <= mean <= high for low, high in ends) / RUNS
        assert held >= least_share(RUNS, 0.9)
        assert held <= 0.93 or name == "both" or rows < 300


def test_ratio_interval_covers_what_clamps_cut_off() -> None:
    """A total may lack more than its noise, to either side, and a count too, and each widens the interval by just this."""
    noise = scaled(Geometric.calibrate(Fraction(1), Fraction(10**6)))
    low, high = make_ratio_interval(noise, noise, (50, 200), 0, 0.95)(1000.0, 100.0, -99.0, 99.0)
    assert (low, high) == pytest.approx((9.5, 12), abs=0.02)
    low, high = make_ratio_interval(noise, noise, (0, 0), 25, 0.95)(1000.0, 100.0, -99.0, 99.0)
    assert (low, high) == pytest.approx((8, 10), abs=0.02)
    low, high = make_ratio_interval(noise, noise, (0, 0), 25, 0.95)(-1000.0, 100.0, -99.0, 99.0)
    assert (low, high) == pytest.approx((-10, -8), abs=0.02)


def test_ratio_over_a_possibly_zero_count_is_unbounded() -> None:
    """The ends are those of the argument."""
    noise = scaled(GAUSSIAN)
    for rows in (-5.0, 0.0, 10.0):
        assert make_ratio_interval(noise, noise, (0, 0), 0, 0.95)(3.0, rows, -8.0, 9.0) == (-8.0, 9.0)
    low, high = make_ratio_interval(noise, noise, (0, 0), 0, 0.95)(-30_000.0, 1000.0, -99.0, 9.0)
    assert low < -30 < high
    assert math.isfinite(low)


@pytest.mark.parametrize("variance", [Fraction(1, 20), Fraction(2, 9), Fraction(1, 2), Fraction(3)])
def test_small_lattice_noise_is_not_treated_as_normal(variance: Fraction) -> None:
    """What least squares leaves as it was keeps an interval that holds, though its steps were divided."""
    noise = DiscreteGaussian(variance)
    adjusted = ConsistencyNoise(((1000, 1, noise),), 1000)
    half = compute_half_width(adjusted, (Fraction(1, 1000),), 0.95)
    inside = 1 - 2 * noise.bound_tail(math.floor(half) + 1)
    assert inside >= 0.95
