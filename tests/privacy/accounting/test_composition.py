"""The composition theorems hold on exact trees, and each is attained or beaten by no more than it says."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.adversaries import Release, leaking_response, response, worst_delta
from scipy import stats
from speeds import examples

from dpsql.errors import LossError
from dpsql.privacy.accounting.composition import (
    Guarantee,
    advanced,
    group,
    parallel,
    post_processed,
    sampled,
    sequential,
)
from dpsql.privacy.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure
from dpsql.privacy.accounting.measurement import measure
from dpsql.privacy.accounting.profiles import ApproximateProfile, GaussianProfile, PureProfile, SampledProfile
from dpsql.privacy.accounting.renyi import fixed_epsilon

EPSILON = st.fractions(min_value=Fraction(1, 50), max_value=2)
CHANCE = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(1, 5))


def releases(kept: list[Guarantee]) -> list[Release]:
    """The most telling release of each guarantee."""
    return [leaking_response(e, d) if d else response(e) for e, d in kept]


def together(menu: list[Release], epsilon: Fraction) -> float:
    """The δ of all of these, one after the other, at that ε."""
    return worst_delta(lambda path: list(path) == menu[: len(path)], menu, epsilon, len(menu))


@settings(max_examples=examples(40))
@given(st.lists(st.builds(Guarantee, EPSILON, CHANCE | st.just(Fraction(0))), min_size=1, max_size=4))
def test_sequential_composition_adds(kept: list[Guarantee]) -> None:
    """The sums of ε and δ are kept by the most telling releases, and a smaller ε is not."""
    epsilon, delta = sequential(kept)
    assert together(releases(kept), epsilon) <= float(delta) * (1 + 1e-9) + 1e-15
    assert together(releases(kept), epsilon * Fraction(9, 10)) > 1 - math.prod(1 - float(d) for _, d in kept)


@settings(max_examples=examples(25))
@given(st.lists(st.builds(Guarantee, EPSILON, CHANCE | st.just(Fraction(0))), min_size=1, max_size=4), CHANCE)
def test_advanced_composition_of_few(kept: list[Guarantee], slack: Fraction) -> None:
    """With unequal losses, the most telling releases keep what is claimed; it is never more ε than the sum."""
    epsilon, delta = advanced(kept, slack)
    assert together(releases(kept), epsilon) <= float(delta) * (1 + 1e-9) + 1e-15
    assert epsilon <= sequential(kept).epsilon


@settings(max_examples=examples(20))
@given(st.lists(st.builds(Guarantee, EPSILON, CHANCE | st.just(Fraction(0))), min_size=1, max_size=4), CHANCE)
def test_a_fixed_list_by_its_curves(kept: list[Guarantee], spare: Fraction) -> None:
    """The most telling releases keep what is claimed of a fixed list, which is never more ε than the sum."""
    events: list[Event] = [Approximate(e, d) if d else Pure(e) for e, d in kept]
    delta = sum((d for _, d in kept), spare) / 5
    if delta <= sum(d for _, d in kept):
        with pytest.raises(LossError):
            fixed_epsilon(events, delta)
        return
    epsilon = fixed_epsilon(events, delta)
    assert together(releases(kept), epsilon) <= float(delta) * (1 + 1e-9)
    assert epsilon <= sequential(kept).epsilon


@settings(max_examples=examples(15))
@given(EPSILON, st.integers(1, 40))
def test_a_choice_is_kept_to_its_range(epsilon: Fraction, count: int) -> None:
    """Choices of bounded range keep no more than as many ε-DP releases, nor more than Gaussian ones of ρ = ε²/8."""
    delta = Fraction(1, 10**6)
    choices, pure, noise = (
        fixed_epsilon([event] * count, delta)
        for event in (BoundedRange(epsilon), Pure(epsilon), Gaussian(epsilon * epsilon / 8))
    )
    assert choices <= pure
    assert choices <= noise * Fraction(1001, 1000)  # orders are looked for with a grid
    assert fixed_epsilon([Composed((BoundedRange(epsilon),) * count)], delta) == choices


@pytest.mark.parametrize(("each", "count"), [("1/100", 2945), ("1/10", 300), ("1/2", 50), ("1", 10)])
def test_advanced_composition_of_many(each: str, count: int) -> None:
    """The exact δ of many randomised responses is below the slack, and that of basic composition is not needed."""
    slack, e = Fraction(1, 10**6), float(Fraction(each))
    epsilon, delta = advanced([Guarantee(Fraction(each))] * count, slack)
    heads = np.arange(count + 1)
    loss = (2 * heads - count) * e
    chance = stats.binom.pmf(heads, count, 1 / (1 + math.exp(-e)))
    exact = float(np.sum(chance * np.maximum(0, -np.expm1(np.minimum(float(epsilon) - loss, 0)))))
    assert exact <= float(delta)
    assert delta in (0, slack)


def test_advanced_composition_at_three_and_one_in_a_million() -> None:
    """At ε = 0.01 each, 2,945 releases stay within 3, and one more does not."""
    for count, within in ((2945, True), (2946, False)):
        assert (advanced([Guarantee(Fraction(1, 100))] * count, Fraction(1, 10**6)).epsilon <= 3) is within


@settings(max_examples=examples(30))
@given(st.lists(EPSILON, min_size=1, max_size=3))
def test_parallel_composition_is_the_largest(epsilons: list[Fraction]) -> None:
    """Each unit answers in its own part: over all databases and outcomes the largest loss is that of the largest ε."""
    claimed = parallel([Guarantee(epsilon) for epsilon in epsilons])
    truths = [1 / (1 + math.exp(-float(epsilon))) for epsilon in epsilons]

    def law(database: tuple[int, ...]) -> np.ndarray:
        return np.array(
            [
                math.prod(t if x == y else 1 - t for t, x, y in zip(truths, database, told, strict=True))
                for told in itertools.product((0, 1), repeat=len(truths))
            ]
        )

    worst = 0.0
    for database in itertools.product((0, 1), repeat=len(truths)):
        for part in range(len(truths)):
            other = (*database[:part], 1 - database[part], *database[part + 1 :])
            worst = max(worst, float(np.log(law(database) / law(other)).max()))
    assert worst == pytest.approx(float(claimed.epsilon))


def test_parallel_composition_of_equal_and_unequal_losses() -> None:
    """Equal losses stay what they are; of unequal ones, of δ too, the largest counts."""
    same = Guarantee(Fraction(1, 2))
    assert parallel([same] * 5) == same
    mixed = [Guarantee(Fraction(1, 2), Fraction(1, 10)), Guarantee(Fraction(1), Fraction(1, 100))]
    assert parallel(mixed) == Guarantee(Fraction(1), Fraction(1, 10))


@settings(max_examples=examples(60))
@given(
    st.integers(2, 4),
    st.lists(st.lists(st.integers(1, 30), min_size=3, max_size=3), min_size=5, max_size=5),
    st.floats(min_value=0, max_value=1),
)
def test_group_privacy(size: int, weights: list[list[int]], epsilon: float) -> None:
    """Of a drawn mechanism over 0 to 4 units, what holds for one unit gives what holds for several."""
    laws = np.array(weights, dtype=float)
    laws /= laws.sum(axis=1, keepdims=True)

    def delta(a: np.ndarray, b: np.ndarray, e: float) -> float:
        return float(np.maximum(a - math.exp(e) * b, 0).sum())

    steps = [(i, j) for i in range(5) for j in range(5) if abs(i - j) == 1]
    one = max(delta(laws[i], laws[j], epsilon) for i, j in steps)
    kept = Guarantee(
        Fraction(max(epsilon, 1e-9)), min(Fraction(one) + Fraction(1, 10**12), Fraction(999, 1000))
    )
    claimed = group(kept, size)
    far = [(i, j) for i in range(5) for j in range(5) if abs(i - j) == size]
    assert max(delta(laws[i], laws[j], size * epsilon) for i, j in far) <= float(claimed.delta) + 1e-9


def test_group_privacy_is_attained_and_capped() -> None:
    """Without δ the ε is multiplied; with it, δ grows by e^ε a unit, and is 1 at most."""
    assert group(Guarantee(Fraction(1, 5)), 3) == Guarantee(Fraction(3, 5))
    epsilon, delta = group(Guarantee(Fraction(1), Fraction(1, 1000)), 3)
    assert epsilon == 3
    assert float(delta) == pytest.approx((1 + math.e + math.e**2) / 1000)
    assert group(Guarantee(Fraction(1), Fraction(1, 1000)), 50).delta == 1
    assert group(Guarantee(Fraction(2000), Fraction(1, 1000)), 2).delta == 1


def test_invalid_guarantees_are_refused() -> None:
    """Losses of nothing, chances of one, groups of nobody and empty lists are errors."""
    good = Guarantee(Fraction(1))
    for wrong in (
        Guarantee(Fraction(0)),
        Guarantee(Fraction(1), Fraction(1)),
        Guarantee(Fraction(1), Fraction(-1)),
    ):
        with pytest.raises(LossError):
            sequential([wrong])
    for slack in (Fraction(0), Fraction(1)):
        with pytest.raises(LossError):
            advanced([good], slack)
    with pytest.raises(LossError):
        parallel([])
    with pytest.raises(LossError):
        group(good, 0)


@settings(max_examples=examples(20))
@given(st.lists(EPSILON, min_size=2, max_size=3))
def test_parallel_composition_of_a_unit_that_moves(epsilons: list[Fraction]) -> None:
    """A unit that leaves one partition and enters another is seen by both: the two largest losses add, and are attained."""
    claimed = parallel([Guarantee(epsilon) for epsilon in epsilons], neighbors="replace")

    def law(where: int, what: int) -> np.ndarray:
        """Each partition answers what its unit says, 1 or 2, or 0 where nobody is, by response among three."""
        truths = [what if part == where else 0 for part in range(len(epsilons))]
        chances = []
        for told in itertools.product(range(3), repeat=len(epsilons)):
            parts = (
                math.exp(float(e)) ** (answer == truth) / (math.exp(float(e)) + 2)
                for e, answer, truth in zip(epsilons, told, truths, strict=True)
            )
            chances.append(math.prod(parts))
        return np.array(chances)

    places = list(itertools.product(range(len(epsilons)), (1, 2)))
    worst = max(float(np.log(law(*here) / law(*there)).max()) for here in places for there in places)
    assert worst == pytest.approx(float(claimed.epsilon))
    assert parallel([Guarantee(epsilons[0])], neighbors="replace") == Guarantee(epsilons[0])
    with pytest.raises(LossError):
        parallel([Guarantee(epsilons[0])], neighbors="swap")  # type: ignore[arg-type]


def test_post_processing_by_any_table_keeps_the_loss() -> None:
    """Random stochastic maps of a leaking release never have a larger δ at any ε, and the function says so."""
    generator = np.random.default_rng(4)
    guarantee = Guarantee(Fraction(1), Fraction(1, 20))
    assert post_processed(guarantee) == guarantee
    e, d = 1.0, 0.05
    truth = (1 - d) / (1 + math.exp(-e))
    here, there = np.array([d, truth, 1 - d - truth, 0]), np.array([0, 1 - d - truth, truth, d])
    assert np.maximum(here - math.exp(e) * there, 0).sum() == pytest.approx(d)
    for _ in range(200):
        table = generator.dirichlet(np.full(3, 0.3), 4)
        for epsilon in (0.0, 0.4, 1.0):
            before, after = (
                np.maximum(p - math.exp(epsilon) * q, 0).sum()
                for p, q in ((here, there), (here @ table, there @ table))
            )
            assert after <= before + 1e-12


def sampled_laws(law: np.ndarray, rate: float, units: int) -> np.ndarray:
    """The law of a release whose law is `law[n]` for a count of n, from a Poisson sample of that many units."""
    return stats.binom.pmf(np.arange(units + 1), units, rate) @ law[: units + 1]


@pytest.mark.parametrize("rate", ["1/100", "1/5", "9/10", "1"])
@pytest.mark.parametrize("each", ["1/10", "1", "3"])
def test_sampling_amplifies_as_stated(each: str, rate: str) -> None:
    """A noisy count of a Poisson sample keeps the smaller loss for a unit more or less, both ways; one unit attains it."""
    epsilon, chance = Fraction(each), Fraction(rate)
    claimed = sampled(Guarantee(epsilon), chance)
    k = np.arange(-300, 320)
    law = np.exp(-float(epsilon) * np.abs(k - np.arange(8)[:, np.newaxis]))
    law /= law.sum(axis=1, keepdims=True)
    worst = 0.0
    for units in range(1, 8):
        here, there = (sampled_laws(law, float(chance), n) for n in (units, units - 1))
        inside = slice(250, 370)
        worst = max(worst, float(np.abs(np.log(here[inside] / there[inside])).max()))
        profile = SampledProfile(PureProfile(epsilon), chance)
        for part in (0.0, 0.3, 0.9):
            at = part * float(claimed.epsilon)
            bound = float(profile.delta(Decimal(at)).high) + 1e-12
            for one, other in ((here, there), (there, here)):
                assert np.maximum(one - math.exp(at) * other, 0).sum() <= bound
            if units == 1:
                assert np.maximum(here - math.exp(at) * there, 0).sum() == pytest.approx(bound, rel=1e-6)
    assert worst == pytest.approx(float(claimed.epsilon), rel=1e-6)
    assert claimed.epsilon <= epsilon


def test_sampling_amplifies_delta_too() -> None:
    """A leaking response of one unit, sampled: δ is the rate times as much, at the smaller ε; the profile agrees."""
    e, d, rate = 1.0, 0.05, 0.2
    claimed = sampled(Guarantee(Fraction(1), Fraction(1, 20)), Fraction(1, 5))
    assert float(claimed.delta) == pytest.approx(rate * d)
    truth = (1 - d) / (1 + math.exp(-e))
    with_unit, without = np.array([d, truth, 1 - d - truth, 0]), np.array([0, 1 - d - truth, truth, d])
    here, there = (1 - rate) * without + rate * with_unit, without
    for one, other in ((here, there), (there, here)):
        assert (
            np.maximum(one - math.exp(float(claimed.epsilon)) * other, 0).sum()
            <= float(claimed.delta) + 1e-12
        )
    assert np.maximum(here - math.exp(float(claimed.epsilon)) * there, 0).sum() == pytest.approx(rate * d)
    profile = SampledProfile(ApproximateProfile(Fraction(1), Fraction(1, 20)), Fraction(1, 5))
    kept = Decimal(claimed.epsilon.numerator) / Decimal(claimed.epsilon.denominator)
    assert float(profile.delta(kept).high) == pytest.approx(rate * d, rel=1e-6)


def test_a_sampled_gaussian_release_is_measured() -> None:
    """The amplified profile of Gaussian noise is Gaussian with a μ between the rate's share and the whole one."""
    whole = GaussianProfile(Decimal(1))
    low, high = measure(SampledProfile(whole, Fraction(1, 2)), Decimal("0.02"))
    assert Decimal("0.5") < low <= high <= Decimal("1.02")
    assert SampledProfile(whole, Fraction(1)).delta(Decimal(1)).high == pytest.approx(
        whole.delta(Decimal(1)).high
    )


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1), Fraction(2)])
def test_no_sample_has_such_a_rate(rate: Fraction) -> None:
    """A chance is above 0, and 1 at most."""
    with pytest.raises(LossError):
        sampled(Guarantee(Fraction(1)), rate)
    with pytest.raises(LossError):
        SampledProfile(PureProfile(Fraction(1)), rate)


def test_sampling_of_enormous_losses_is_bounded() -> None:
    """Where e^ε is beyond all numbers, the loss is ε less ln(1/rate), and no more than ε."""
    huge = sampled(Guarantee(Fraction(10**6)), Fraction(1, 10))
    assert float(huge.epsilon) == pytest.approx(10**6 - math.log(10), abs=1e-6)
    near = sampled(Guarantee(Fraction(999)), Fraction(1, 10))
    assert float(near.epsilon) == pytest.approx(999 - math.log(10), abs=1e-6)
