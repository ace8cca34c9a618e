"""The composition theorems hold on exact trees, and each is attained or beaten by no more than it says."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.adversaries import Release, leaking_response, response, worst_delta
from scipy import stats

from dpsql.accounting.composition import Guarantee, advanced, group, parallel, sequential
from dpsql.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure
from dpsql.accounting.renyi import fixed_epsilon
from dpsql.errors import LossError

EPSILON = st.fractions(min_value=Fraction(1, 50), max_value=2)
CHANCE = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(1, 5))


def releases(kept: list[Guarantee]) -> list[Release]:
    """The most telling release of each guarantee."""
    return [leaking_response(e, d) if d else response(e) for e, d in kept]


def together(menu: list[Release], epsilon: Fraction) -> float:
    """The δ of all of these, one after the other, at that ε."""
    return worst_delta(lambda path: list(path) == menu[: len(path)], menu, epsilon, len(menu))


@settings(max_examples=40)
@given(st.lists(st.builds(Guarantee, EPSILON, CHANCE | st.just(Fraction(0))), min_size=1, max_size=4))
def test_sequential_composition_adds(kept: list[Guarantee]) -> None:
    """The sums of ε and δ are kept by the most telling releases, and a smaller ε is not."""
    epsilon, delta = sequential(kept)
    assert together(releases(kept), epsilon) <= float(delta) * (1 + 1e-9) + 1e-15
    assert together(releases(kept), epsilon * Fraction(9, 10)) > 1 - math.prod(1 - float(d) for _, d in kept)


@settings(max_examples=25)
@given(st.lists(st.builds(Guarantee, EPSILON, CHANCE | st.just(Fraction(0))), min_size=1, max_size=4), CHANCE)
def test_advanced_composition_of_few(kept: list[Guarantee], slack: Fraction) -> None:
    """With unequal losses, the most telling releases keep what is claimed; it is never more ε than the sum."""
    epsilon, delta = advanced(kept, slack)
    assert together(releases(kept), epsilon) <= float(delta) * (1 + 1e-9) + 1e-15
    assert epsilon <= sequential(kept).epsilon


@settings(max_examples=20)
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


@settings(max_examples=15)
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


@settings(max_examples=30)
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


@settings(max_examples=60)
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


def test_what_is_no_guarantee_is_refused() -> None:
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
