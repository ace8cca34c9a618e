"""Optimal partition selection has its exact law, is (ε, δ)-DP, and no more than that."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpsql.errors import InternalError, LossError
from dpsql.privacy.mechanisms import Geometric, PartitionSelection
from dpsql.privacy.mechanisms.selection import _compute_threshold, _compute_turning_point
from tests.entropy import ScriptedEntropy, SeededEntropy

PLACES = 60
RULES = [
    PartitionSelection(Fraction(epsilon), Fraction(delta))
    for epsilon, delta in [
        ("1", "1e-6"),
        ("1/10", "1e-9"),
        ("3", "1e-9"),
        ("20", "1e-12"),
        ("1/20", "1/8"),
        ("1/2", "99/100"),
        ("5", "1/2"),
    ]
]


def decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / number.denominator


def recursion(rule: PartitionSelection) -> list[Decimal]:
    """p(0), p(1) and so on up to the first that is 1, step by step."""
    with localcontext(prec=2 * PLACES):
        grow, delta = decimal(rule.epsilon).exp(), decimal(rule.delta)
        law = [Decimal(0)]
        while law[-1] < 1:
            law.append(min(grow * law[-1] + delta, 1 - (1 - law[-1] - delta) / grow, Decimal(1)))
        return law


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_bounds_hold_the_recursion(rule: PartitionSelection) -> None:
    """The closed form is what the three limits give step by step: nothing at 0, δ at 1, never less, then 1."""
    law = recursion(rule)
    assert rule.bound_probability(0, PLACES) == rule.bound_probability(-3, PLACES) == (0, 0)
    assert rule.bound_probability(1, PLACES) == (rule.delta, rule.delta)
    assert law == sorted(law)
    with localcontext(prec=2 * PLACES):
        for units, chance in enumerate([*law, Decimal(1), Decimal(1)]):
            low, high = map(decimal, rule.bound_probability(units, PLACES))
            assert low - Decimal(10) ** -PLACES <= chance <= high + Decimal(10) ** -PLACES
            assert high - low <= Decimal(10) ** -PLACES


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_neighbours_are_within_epsilon_and_delta_and_one_limit_is_met(rule: PartitionSelection) -> None:
    """For each n and n+1, both outcomes and both directions keep to (ε, δ); until 1 one of the four is an equality."""
    with localcontext(prec=2 * PLACES):
        grow, delta, close = decimal(rule.epsilon).exp(), decimal(rule.delta), Decimal(10) ** (2 - PLACES)
        law = [decimal(rule.bound_probability(units, PLACES)[0]) for units in range(len(recursion(rule)) + 2)]
        for fewer, more in itertools.pairwise(law):
            slack = [
                grow * ours + delta - theirs
                for ours, theirs in (
                    (fewer, more),
                    (more, fewer),
                    (1 - fewer, 1 - more),
                    (1 - more, 1 - fewer),
                )
            ]
            assert min(slack) >= -close
            assert more == 1 or min(slack) <= close


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.delta < Fraction(1, 4)], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_groups_of_one_unit_lose_no_more_than_their_sum(rule: PartitionSelection, groups: int) -> None:
    """Whatever the groups hold beside the unit, all their outcomes together keep to (nε, nδ), both ways."""
    law = recursion(rule)
    places = sorted({0, 1, len(law) // 3, len(law) // 2, len(law) - 2})
    with localcontext(prec=PLACES):
        grow, delta = decimal(groups * rule.epsilon).exp(), decimal(groups * rule.delta)
        for sizes in itertools.combinations_with_replacement(places, groups):
            worlds = [[law[size] for size in sizes], [law[size + 1] for size in sizes]]
            for ours, theirs in itertools.permutations(worlds):
                excess = sum(
                    max(Decimal(0), _chance(ours, shown) - grow * _chance(theirs, shown))
                    for shown in itertools.product((True, False), repeat=groups)
                )
                assert excess <= delta + Decimal(10) ** (9 - PLACES)


def _chance(law: list[Decimal], shown: tuple[bool, ...]) -> Decimal:
    return prod(
        (chance if there else 1 - chance for chance, there in zip(law, shown, strict=True)), start=Decimal(1)
    )


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_no_noisy_count_with_a_threshold_shows_more(rule: PartitionSelection) -> None:
    """A geometric count of the same loss, with the threshold that δ allows, shows no group more often."""
    noise = Geometric.calibrate(Fraction(1), rule.epsilon)
    threshold = 1 + noise.compute_sum_threshold(1, rule.delta)
    better = False
    for units in range(1, len(recursion(rule))):
        chance = float(rule.bound_probability(units, 20)[1])
        counted = noise.bound_tail(threshold - units)
        assert counted <= chance * (1 + 1e-9)
        better |= counted < 0.99 * chance
    assert better


@given(
    st.fractions(Fraction(1, 10**6), 30, max_denominator=10**6),
    st.fractions(Fraction(1, 10**12), Fraction(9, 10), max_denominator=10**12),
    st.integers(0, 40),
)
def test_turn_follows_the_formula(epsilon: Fraction, delta: Fraction, near: int) -> None:
    """n₁ = 1 + ⌊ln((e^ε + 2δ - 1)/(δ(e^ε + 1)))/ε⌋; bounds about it are sound and in order."""
    rule = PartitionSelection(epsilon, delta)
    with localcontext(prec=100):
        grow, small = decimal(epsilon).exp(), decimal(delta)
        exact = ((grow + 2 * small - 1) / (small * (grow + 1))).ln() / decimal(epsilon)
        assert _compute_turning_point(rule) == 1 + int(exact)
    units = max(0, _compute_turning_point(rule) - 20 + near)
    (low, high), (_, above) = rule.bound_probability(units, 30), rule.bound_probability(units + 1, 30)
    assert 0 <= low <= high <= 1
    assert high <= above + Fraction(1, 10**30)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_half_is_the_first_that_is_shown_half_of_the_time(rule: PartitionSelection) -> None:
    """One unit fewer is shown less often than that."""
    half = rule.compute_median_units()
    assert (
        rule.bound_probability(half - 1, PLACES)[1]
        < Fraction(1, 2)
        <= rule.bound_probability(half, PLACES)[1]
    )


@pytest.mark.parametrize("units", [0, 1, 12, 13, 14, 15, 20, 40])
def test_tosses_follow_the_law(units: int) -> None:
    """20,000 tosses show a group as often as its law says, and never or always at the ends."""
    rule, entropy = PartitionSelection(Fraction(1), Fraction(1, 10**6)), SeededEntropy(11 + units)
    shown = sum(rule.draw_selection(units, entropy) for _ in range(20_000))
    chance = float(rule.bound_probability(units, 20)[0])
    assert stats.binomtest(shown, 20_000, chance).pvalue > 1e-6
    assert shown == 0 or units > 0
    assert shown == 20_000 or chance < 1


def test_a_tie_reads_on() -> None:
    """Where the first word is that of the chance, the next one decides; one word is read even where nothing can be."""
    rule = RULES[0]
    first, rest = divmod(_compute_threshold(rule, 13, 128), 2**64)
    assert first == _compute_threshold(rule, 13, 64)
    for word, shown in ((rest - 1, True), (rest + 1, False)):
        entropy = ScriptedEntropy([first, word])
        assert rule.draw_selection(13, entropy) is shown
        assert entropy.left == 0
    assert rule.draw_selection(13, ScriptedEntropy([first - 1]))
    assert not rule.draw_selection(13, ScriptedEntropy([first + 1]))
    assert not rule.draw_selection(0, ScriptedEntropy([0]))
    assert not rule.draw_selection(-7, ScriptedEntropy([0]))
    assert rule.draw_selection(100, ScriptedEntropy([2**64 - 1]))


@pytest.mark.parametrize(("epsilon", "delta"), [("1e-12", "1e-30"), ("1000", "1e-100"), ("1e-6", "1e-9")])
def test_odd_losses_are_sampled(epsilon: str, delta: str) -> None:
    """However small or large the loss, the turn is found and chances are told apart."""
    rule = PartitionSelection(Fraction(epsilon), Fraction(delta))
    half = rule.compute_median_units()
    assert rule.bound_probability(half - 1, 40)[1] < Fraction(1, 2) <= rule.bound_probability(half, 40)[1]
    assert rule.draw_selection(3 * half, SeededEntropy(1))


def test_invalid_losses_are_refused() -> None:
    """ε is above 0, and δ a probability that is neither 0 nor 1."""
    with pytest.raises(InternalError):
        PartitionSelection(Fraction(0), Fraction(1, 2))
    for delta in (Fraction(0), Fraction(1), Fraction(2), 0.5):
        with pytest.raises(LossError):
            PartitionSelection(Fraction(1), delta)  # type: ignore[arg-type]
