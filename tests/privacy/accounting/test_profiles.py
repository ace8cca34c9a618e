"""Privacy profiles are those of the laws, Theorem 2.1 refines them the right way, and what they prove of μ is tight."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsql.errors import LossError
from dpsql.privacy.accounting.batch import Batch, bound_mu
from dpsql.privacy.accounting.events import Approximate, BoundedRange, Composed, Gaussian, Pure, Selection
from dpsql.privacy.accounting.measurement import compose_mu, is_gaussian, measure, transform
from dpsql.privacy.accounting.numerics import Bounds, gaussian_delta
from dpsql.privacy.accounting.profiles import (
    ApproximateProfile,
    BoundedRangeProfile,
    GaussianProfile,
    GeometricProfile,
    LaplaceProfile,
    Profile,
    PureProfile,
    RefinedProfile,
    ResponseProfile,
    compute_implied_delta,
    compute_profile,
)
from dpsql.privacy.accounting.tradeoffs import (
    bound_geometric_mu,
    bound_laplace_mu,
    bound_lattice_gaussian_mu,
    bound_pure_mu,
    bound_range_mu,
)

ASKED = [0.0, 0.05, 0.3, 0.7, 1.1, 2.5]
WHOLE = [Fraction(1, 10), Fraction(1), Fraction(3)]
EPSILON = st.fractions(min_value=Fraction(1, 20), max_value=8)


def hockey_stick(here: np.ndarray, there: np.ndarray, epsilon: float) -> float:
    """Σ (P - e^ε·Q)₊ of two laws over the same outcomes."""
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


def close(bounds: Bounds, value: float) -> bool:
    """Whether tight bounds hold a value that floats have computed."""
    assert bounds.high - bounds.low <= Decimal("1e-60")
    return float(bounds.high) == pytest.approx(value, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("epsilon", ASKED)
@pytest.mark.parametrize("whole", WHOLE, ids=str)
@pytest.mark.parametrize("choices", [2, 3, 10])
def test_randomised_response(whole: Fraction, choices: int, epsilon: float) -> None:
    """The δ of k answers is that of their chances; of two it is that of ε-DP."""
    lies = np.ones(choices) / (math.exp(whole) + choices - 1)
    here, there = lies.copy(), lies.copy()
    here[0] *= math.exp(whole)
    there[1] *= math.exp(whole)
    asked = Decimal(epsilon)
    assert close(ResponseProfile(whole, choices).delta(asked), hockey_stick(here, there, epsilon))
    if choices == 2:
        assert close(PureProfile(whole).delta(asked), hockey_stick(here, there, epsilon))


@pytest.mark.parametrize("epsilon", ASKED)
@pytest.mark.parametrize(
    ("scale", "shift"), list(itertools.product([Fraction(1, 2), Fraction(3), Fraction(20)], [1, 2, 5]))
)
def test_geometric_noise(scale: Fraction, shift: int, epsilon: float) -> None:
    """The δ is the sum over integers of what is more likely than e^ε times as on the neighbour."""
    k = np.arange(-3000, 3001)
    here = np.exp(-abs(k) / float(scale))
    here /= here.sum()
    there = np.exp(-abs(k - shift) / float(scale))
    there /= there.sum()
    assert close(GeometricProfile(scale, shift).delta(Decimal(epsilon)), hockey_stick(here, there, epsilon))


@pytest.mark.parametrize("epsilon", ASKED)
@pytest.mark.parametrize("whole", WHOLE, ids=str)
def test_laplace_noise(whole: Fraction, epsilon: float) -> None:
    """The δ is F(x) - e^ε·F(x - sensitivity) at the x where the loss is ε, F the distribution function."""
    e = float(whole)
    x = (e - epsilon) / 2
    true = max(0.0, stats.laplace.cdf(x) - math.exp(epsilon) * stats.laplace.cdf(x - e))
    assert close(LaplaceProfile(whole).delta(Decimal(epsilon)), true)


@pytest.mark.parametrize("epsilon", ASKED)
@pytest.mark.parametrize("whole", WHOLE, ids=str)
def test_bounded_range(whole: Fraction, epsilon: float) -> None:
    """No choice of that range has a larger δ, and on a grid of them one comes near it."""
    e = float(whole)
    u = np.linspace(0, e, 20001)[1:-1]
    here = (math.exp(e) - np.exp(u)) / math.expm1(e)
    worst = float(np.maximum(here * -np.expm1(epsilon - u), 0).max())
    bounds = BoundedRangeProfile(whole).delta(Decimal(epsilon))
    assert worst <= float(bounds.high) * (1 + 1e-9)
    assert float(bounds.low) == pytest.approx(worst, rel=1e-3, abs=1e-9)


@given(EPSILON, st.fractions(min_value=0, max_value=Fraction(9, 10)), st.floats(min_value=0, max_value=9))
def test_one_point_implies_the_profile_of_the_leaking_response(
    whole: Fraction, floor: Fraction, epsilon: float
) -> None:
    """Theorem 2.1: the least δ that (ε₀, δ₀)-DP implies is the δ of a response that leaks with chance δ₀."""
    truth, d = 1 / (1 + math.exp(-float(whole))), float(floor)
    here = np.array([d, 0, (1 - d) * truth, (1 - d) * (1 - truth)])
    there = np.array([0, d, (1 - d) * (1 - truth), (1 - d) * truth])
    found = ApproximateProfile(whole, floor).delta(Decimal(epsilon))
    assert float(found.high) == pytest.approx(hockey_stick(here, there, epsilon), rel=1e-9, abs=1e-12)


EVERY: list[Profile] = [
    PureProfile(Fraction(1)),
    ResponseProfile(Fraction(2), 5),
    BoundedRangeProfile(Fraction(2)),
    LaplaceProfile(Fraction(1)),
    GeometricProfile(Fraction(2), 3),
    GaussianProfile(Decimal("0.7")),
    ApproximateProfile(Fraction(1, 2), Fraction(1, 100)),
    ApproximateProfile(Fraction(0), Fraction(1, 100)),
]
every_profile = pytest.mark.parametrize("profile", EVERY, ids=lambda profile: type(profile).__name__)


@every_profile
def test_profiles_fall_and_refine_to_themselves(profile: Profile) -> None:
    """δ falls as ε grows, and is no more than any point of the profile implies: Theorem 2.1 adds nothing to it."""
    points = tuple(Decimal(k) / 8 for k in range(41))
    values = [profile.delta(point) for point in points]
    assert all(a.high >= b.high for a, b in itertools.pairwise(values))
    refined = RefinedProfile(profile, points)
    for point, value in zip(points, values, strict=True):
        found = refined.delta(point)
        assert found.low <= value.high
        assert abs(found.high - value.high) <= Decimal("1e-60")
        assert found.low <= found.high


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (Pure(Fraction(1)), math.tanh(0.5)),
        (BoundedRange(Fraction(1)), math.tanh(0.25)),
        (Selection(Fraction(1, 7)), 1 / 7),
        (Approximate(Fraction(1), Fraction(1, 7)), 1 / 7 + 6 / 7 * math.tanh(0.5)),
        (Gaussian(Fraction(1, 200)), 2 * stats.norm.cdf(0.0500208479) - 1),
    ],
)
def test_events_have_profiles(event: Pure | Selection, delta: float) -> None:
    """At ε = 0 the δ of an event is the total variation distance of its worst pair."""
    assert float(compute_profile(event).delta(Decimal(0)).high) == pytest.approx(delta, rel=1e-6)


def test_a_composition_has_no_single_profile() -> None:
    """It is a batch's, or a filter's business."""
    with pytest.raises(LossError):
        compute_profile(Composed((Pure(Fraction(1)),)))


@pytest.mark.parametrize("whole", [*WHOLE, Fraction(10)], ids=str)
@pytest.mark.parametrize("kind", ["pure", "laplace", "range"])
def test_measured_and_exact_agree(kind: str, whole: Fraction) -> None:
    """The closed forms of μ lie within the bounds that are measured from the profile alone."""
    profile, exact = {
        "pure": (PureProfile(whole), bound_pure_mu(whole)),
        "laplace": (LaplaceProfile(whole), bound_laplace_mu(whole)),
        "range": (BoundedRangeProfile(whole), bound_range_mu(whole)),
    }[kind]
    low, high = measure(profile, Decimal("1e-3"))
    assert low <= exact <= high <= low + Decimal("0.001001")


@settings(max_examples=12, deadline=None)
@given(st.fractions(min_value=Fraction(1, 2), max_value=20), st.integers(1, 6))
def test_measured_geometric_noise(scale: Fraction, shift: int) -> None:
    """The closed form for geometric noise lies within what is measured from its profile."""
    low, high = measure(GeometricProfile(scale, shift), Decimal("1e-2"))
    assert low <= bound_geometric_mu(scale, shift) <= high


@pytest.mark.parametrize(("whole", "choices"), [(Fraction(1), 5), (Fraction(3), 20), (Fraction(1, 2), 3)])
def test_the_best_mu_may_lie_inside(whole: Fraction, choices: int) -> None:
    """Among more than two answers the largest G is not at 0; it is Φ⁻¹(truth) - Φ⁻¹(lie), the one corner's."""
    lie = 1 / (math.exp(whole) + choices - 1)
    exact = stats.norm.ppf(math.exp(whole) * lie) - stats.norm.ppf(lie)
    profile = ResponseProfile(whole, choices)
    low, high = measure(profile, Decimal("1e-4"))
    assert transform(profile, Decimal(0)).high < low
    assert float(low) <= exact * (1 + 1e-12)
    assert exact <= float(high) <= exact + 1.01e-4


def test_laplace_noise_at_two_thousand_nodes() -> None:
    """A grid of 2,000 nodes gives [1.030064, 1.030498] for Laplace noise at ε = 1, and halving lies within that.

    The grid's bounds are computed here with floats and bisection, independently of the measurement.
    """
    nodes = np.linspace(0, 1, 2000)
    deltas = -np.expm1((nodes - 1) / 2)

    def solved(epsilon: np.ndarray, delta: np.ndarray) -> np.ndarray:
        low, high = np.full_like(epsilon, 1e-3), np.full_like(epsilon, 5.0)
        for _ in range(60):
            mu = (low + high) / 2
            found = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(
                -mu / 2 - epsilon / mu
            )
            low, high = np.where(found < delta, mu, low), np.where(found < delta, high, mu)
        return high

    lower, upper = solved(nodes[:-1], deltas[:-1]).max(), solved(nodes[1:], deltas[:-1]).max()
    assert (lower, upper) == (pytest.approx(1.030064, abs=1e-6), pytest.approx(1.030498, abs=1e-6))
    low, high = measure(LaplaceProfile(Fraction(1)), Decimal("1e-4"))
    assert Decimal("1.030063") < low < high < Decimal("1.030498")


def test_any_margin_is_possible() -> None:
    """The bounds are at most as far apart as the requested margin."""
    for margin in (Decimal("0.1"), Decimal("0.01"), Decimal("1e-4")):
        low, high = measure(PureProfile(Fraction(2)), margin)
        assert 0 < high - low <= margin
        assert low <= bound_pure_mu(Fraction(2)) <= high


@every_profile
def test_measured_profiles_lie_below_the_gaussian(profile: Profile) -> None:
    """What the measurement promises: δ(ε) is at most δ_μ(ε) everywhere; where no μ serves, it says so."""
    if not is_gaussian(profile):
        with pytest.raises(LossError) as caught:
            measure(profile)
        assert caught.value.code == "not_gaussian"
        return
    high = measure(profile, Decimal("1e-2")).high
    for k in range(100):
        epsilon = Decimal(k) / 20
        assert profile.delta(epsilon).low <= gaussian_delta(high, epsilon).high


@given(EPSILON)
def test_the_transform_is_the_root(whole: Fraction) -> None:
    """G(0) is 2Φ⁻¹((1+δ)/2), the μ of the total variation distance."""
    bounds = transform(LaplaceProfile(whole), Decimal(0))
    distance = float(LaplaceProfile(whole).delta(Decimal(0)).high)
    assert float(bounds.low) == pytest.approx(2 * stats.norm.ppf((1 + distance) / 2))
    assert bounds.high - bounds.low < Decimal("1e-30")


def test_a_batch_measured_as_one_beats_its_parts() -> None:
    """16 Laplace releases at ε = 0.1: 0.398 as one, 0.489 by composing them; 0.407 for any 16 0.1-DP ones."""
    part = LaplaceProfile(Fraction(1, 10))
    as_one = measure(Batch.from_profiles([(part, 16)])).high
    parts = compose_mu([bound_laplace_mu(Fraction(1, 10))] * 16)
    assert (round(as_one, 3), round(parts, 3)) == (Decimal("0.398"), Decimal("0.489"))
    low, high = bound_mu([Pure(Fraction(1, 10))] * 16)
    assert low < Decimal("0.4065") < high < parts
    assert high <= low + Decimal("0.00101")


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.9, 1.7])
def test_a_batch_of_responses_is_binomial(epsilon: float) -> None:
    """The δ of a batch of randomised responses, of two kinds, is that of their sums of losses."""
    batch = Batch.from_profiles([(PureProfile(Fraction(1, 10)), 7), (PureProfile(Fraction(1, 5)), 5)])
    total = 0.0
    for a, b in itertools.product(range(8), range(6)):
        loss = 0.1 * (2 * a - 7) + 0.2 * (2 * b - 5)
        chance = stats.binom.pmf(a, 7, 1 / (1 + math.exp(-0.1))) * stats.binom.pmf(
            b, 5, 1 / (1 + math.exp(-0.2))
        )
        total += chance * max(0.0, -math.expm1(epsilon - loss))
    bounds = batch.delta(Decimal(epsilon))
    assert float(bounds.low) - 1e-12 <= total <= float(bounds.high) + 1e-12
    assert float(bounds.high) == pytest.approx(total, rel=1e-6, abs=1e-12)


def test_a_batch_of_two_encloses_the_exact_one() -> None:
    """The δ of a pair of Laplace releases, by quadrature, lies within the bounds of the batch."""
    e, n = 0.5, 100
    x = (np.arange(-12 * n, 12 * n) + 0.5) / n
    loss = abs(x - e) - abs(x)
    chance = stats.laplace.cdf(x + 0.5 / n) - stats.laplace.cdf(x - 0.5 / n)
    for epsilon in (0.0, 0.3, 0.8):
        left = np.maximum(-np.expm1(epsilon - loss[:, None] - loss[None, :]), 0)
        true = float(chance @ left @ chance)
        bounds = Batch.from_profiles([(LaplaceProfile(Fraction(1, 2)), 2)]).delta(Decimal(epsilon))
        assert float(bounds.low) - 1e-4 <= true <= float(bounds.high) + 1e-4
        assert float(bounds.high) == pytest.approx(true, abs=1e-4)


def test_a_batch_of_gaussian_parts_adds_squares() -> None:
    """What is Gaussian is composed exactly; a release with a δ of its own has no place in it."""
    events = [Gaussian(Fraction(1, 200)), BoundedRange(Fraction(1)), Composed((Gaussian(Fraction(1, 200)),))]
    expected = compose_mu([*[bound_lattice_gaussian_mu(Fraction(1, 200))] * 2, bound_range_mu(Fraction(1))])
    assert abs(bound_mu(events).high - expected) < Decimal("1e-50")
    with pytest.raises(LossError):
        bound_mu([Selection(Fraction(1, 100))])


def test_composition_of_mu_is_rounded_up() -> None:
    """√Σμ² is never below the exact root."""
    with localcontext(prec=100):
        for count in (2, 3, 7):
            assert compose_mu([Decimal(1)] * count) ** 2 >= count


def test_a_weaker_point_implies_no_smaller_delta() -> None:
    """A weaker condition implies no smaller δ, at any ε."""
    at = Decimal("0.4")
    for delta, epsilon in itertools.product(("0", "0.1", "0.5"), ("0.1", "0.5", "2")):
        here = compute_implied_delta(Decimal(epsilon), Bounds(Decimal(delta), Decimal(delta)), at)
        weaker = compute_implied_delta(Decimal(epsilon) + 1, Bounds(Decimal(delta), Decimal(delta)), at)
        looser = compute_implied_delta(Decimal(epsilon), Bounds(Decimal("0.6"), Decimal("0.6")), at)
        assert here.high <= weaker.high
        assert here.high <= looser.high
