"""Totals and parts made to agree: against generalised least squares written out, and which releases are adjusted."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from clinic import POLICY, database
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.engine.postprocess.consistency import Whole, adjust_components, move_units, round_consistently
from dpsql.planning.hierarchy import WEIGHTS, Axes, Hierarchy, Member
from dpsql.privacy.mechanisms import CombinedNoise, DiscreteGaussian, Geometric, LInfinityMechanism, Mechanism

NOISES: list[Mechanism] = [
    Geometric(Fraction(5)),
    DiscreteGaussian(Fraction(900)),
    CombinedNoise(((2, Geometric(Fraction(7))), (3, DiscreteGaussian(Fraction(40))))),
    Geometric(Fraction(1, 2)),
    LInfinityMechanism(Fraction(30), 1),
]
SETS = {
    "a total": [(0,), ()],
    "a rollup": [(0, 1), (0,), ()],
    "a deep rollup": [(2, 0, 1), (2, 0), (2,), ()],
    "a cube": [(1, 0), (1,), (0,), ()],
    "a cube of three": [keys for size in (3, 2, 1, 0) for keys in itertools.combinations((0, 1, 2), size)],
    "two keys alone": [(0,), (1,)],
    "keys apart, and all": [(0,), (1, 2), ()],
    "sets that share a key": [(0, 1), (1, 2), (2,)],
    "sets that share nothing": [(0, 2), (1,)],
    "a ring": [(0, 1), (1, 2), (0, 2)],
    "one set twice": [(0, 1), (1, 0), (1,)],
    "no keys": [(), ()],
}
SIZES = (3, 2, 4)


def agreement(sets: Sequence[tuple[int, ...]], sizes: tuple[int, ...] = SIZES) -> Hierarchy:
    """Members with these keys and noise of each kind in turn."""
    noises = itertools.cycle(NOISES)
    return Hierarchy(tuple(Member(place, 0, axes, next(noises)) for place, axes in enumerate(sets)), sizes)


@pytest.fixture(params=SETS.values(), ids=SETS)
def made(request: pytest.FixtureRequest) -> Hierarchy:
    """Agreements of every kind of grouping sets."""
    return agreement(request.param)


def shape(of: Hierarchy, member: Member) -> tuple[int, ...]:
    """The groups of a member, and its one cell."""
    return (*(of.sizes[axis] for axis in member.axes), 1)


def marginal(of: Hierarchy, member: Member) -> np.ndarray[Any, Any]:
    """The matrix that adds the table by all keys up to a member's groups, in the member's order."""
    whole = np.arange(math.prod(of.sizes)).reshape(of.sizes)
    rows = []
    for cell in np.ndindex(*shape(of, member)[:-1]):
        place: list[Any] = [slice(None)] * len(of.sizes)
        for axis, value in zip(member.axes, cell, strict=True):
            place[axis] = value
        row = np.zeros(whole.size)
        row[whole[tuple(place)].ravel()] = 1
        rows.append(row)
    return np.array(rows)


def test_adjusted_cells_are_the_generalised_least_squares_estimate(made: Hierarchy) -> None:
    """The adjusted cells are those of the table by all keys that fits best, by inverse variance."""
    rng = np.random.default_rng(1)
    design = [marginal(made, member) for member in made.members]
    raw = [rng.integers(-500, 500, size=len(rows)) for rows in design]
    stds = [math.sqrt(made.compute_variance(member)) for member in made.members]
    stacked = np.vstack([rows / std for rows, std in zip(design, stds, strict=True)])
    target = np.concatenate([each / std for each, std in zip(raw, stds, strict=True)])
    best = np.linalg.lstsq(stacked, target, rcond=None)[0]
    columns = [
        np.array([made.common_subdivisions * int(each) for each in values], dtype=object).reshape(
            shape(made, member)
        )
        for values, member in zip(raw, made.members, strict=True)
    ]
    for member, rows, found in zip(made.members, design, adjust_components(made, columns), strict=True):
        # The weights are rounded to a 65,536th part.
        assert (found.ravel() / made.compute_subdivisions(member)).astype(float) == pytest.approx(
            rows @ best, abs=0.1, rel=1e-3
        )


def test_totals_are_the_sums_of_their_parts(made: Hierarchy) -> None:
    """Exactly: sums over keys that one member has and another has not are that one's cells."""
    rng = np.random.default_rng(2)
    columns = [
        np.array(rng.integers(-500, 500, size=shape(made, member)).tolist(), dtype=object)
        for member in made.members
    ]
    found = [
        np.array(
            [Fraction(each, made.compute_subdivisions(member)) for each in column.ravel()], dtype=object
        ).reshape(column.shape)
        for member, column in zip(made.members, adjust_components(made, columns), strict=True)
    ]
    for (ours, mine), (theirs, other) in itertools.permutations(zip(made.members, found, strict=True), 2):
        shared = ours.keys & theirs.keys
        assert (sums(mine, ours, shared) == sums(other, theirs, shared)).all()


def sums(values: np.ndarray[Any, Any], member: Member, kept: Axes) -> np.ndarray[Any, Any]:
    """Sums over the keys that are not kept, the others in order."""
    total = np.sum(values, axis=tuple(place for place, key in enumerate(member.axes) if key not in kept))
    left = [key for key in member.axes if key in kept]
    return np.transpose(total, [*np.argsort(left), len(left)])


def test_law_states_the_weight_of_each_noise(made: Hierarchy) -> None:
    """One unit of noise in one released cell, and the weights with which it comes into an adjusted one."""
    empty = [np.zeros(shape(made, member), dtype=object) for member in made.members]
    weights: list[dict[tuple[int, ...], Counter[tuple[int, Mechanism]]]] = [{} for _ in made.members]
    for number, member in enumerate(made.members):
        for cell in np.ndindex(*shape(made, member)):
            columns = [column.copy() for column in empty]
            columns[number][cell] = made.common_subdivisions // member.noise.subdivisions
            for place, found in enumerate(adjust_components(made, columns)):
                for at in np.ndindex(*found.shape):
                    if found[at]:
                        weights[place].setdefault(at, Counter())[found[at], member.noise] += 1
    for member, found in zip(made.members, weights, strict=True):
        law = made.derive_noise(member)
        told = {(weight, noise): times for weight, times, noise in law.parts}
        assert law.whole == made.compute_subdivisions(member)
        assert all(dict(counted) == told for counted in found.values())


def test_adjusting_increases_no_variance(made: Hierarchy) -> None:
    """No adjusted cell has more variance than the released one; weights add up to the whole."""
    for member in made.members:
        law = made.derive_noise(member)
        assert law.compute_variance() / law.whole**2 <= made.compute_variance(member) * (1 + 1e-6)
    assert {sum(weights) for weights in made.weights.values()} == {WEIGHTS}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(sorted(SETS)),
    st.lists(st.integers(-(10**6), 10**6), min_size=24, max_size=24),
    st.integers(1, 999),
)
def test_whole_numbers_add_up(name: str, values: list[int], divisor: int) -> None:
    """Totals are the sums of their parts; along a rollup no number is off by one, elsewhere by four at most."""
    made = agreement(SETS[name])
    exact = np.array(values, dtype=object).reshape(SIZES)
    estimates = {
        member.keys: (np.asarray(np.sum(exact, axis=tuple({0, 1, 2} - member.keys)), dtype=object), divisor)
        for member in made.members
    }
    found = round_consistently(made, estimates)
    assert found.keys() == estimates.keys()
    chain = all(one <= other or other <= one for one, other in itertools.combinations(found, 2))
    for keys, whole in found.items():
        off = max(
            abs(Fraction(int(each)) - Fraction(int(true), divisor))
            for each, true in pairs(whole, estimates[keys][0])
        )
        assert off < (1 if chain else 4)
        for finer in (finer for finer in found if keys < finer):
            left = tuple(axis for axis, key in enumerate(sorted(finer)) if key not in keys)
            assert (np.sum(found[finer], axis=left) == whole).all()


def pairs(one: Whole, other: Whole) -> Iterator[tuple[Any, Any]]:
    """Two arrays side by side."""
    return zip(np.asarray(one, dtype=object).ravel(), np.asarray(other, dtype=object).ravel(), strict=True)


@pytest.mark.parametrize("sizes", [(3, 1000), (1000, 3)], ids=str)
def test_rounding_does_not_accumulate_in_crossing_totals(sizes: tuple[int, int]) -> None:
    """In a cube of three by a thousand, whole totals by either key stay within three of their estimates."""
    made = agreement(SETS["a cube"], sizes)
    rng = np.random.default_rng(3)
    exact = np.array(rng.integers(0, 10_000, size=sizes).tolist(), dtype=object)
    estimates = {
        member.keys: (np.asarray(np.sum(exact, axis=tuple({0, 1} - member.keys)), dtype=object), 1000)
        for member in made.members
    }
    for keys, whole in round_consistently(made, estimates).items():
        for each, true in pairs(whole, estimates[keys][0]):
            assert abs(each - true / 1000) < 3


def test_parts_do_not_pile_their_rounding_up() -> None:
    """A thousand parts beside three, which share no released total: the three are as near as a total would be."""
    made = agreement([(0, 1), (2,)], (20, 50, 3))
    rng = np.random.default_rng(4)
    exact = np.array(rng.integers(0, 1000, size=(20, 50, 3)).tolist(), dtype=object)
    estimates = {
        frozenset((0, 1)): (np.asarray(exact.sum(axis=2), dtype=object), 7),
        frozenset((2,)): (np.asarray(exact.sum(axis=(0, 1)), dtype=object), 7),
    }
    for keys, whole in round_consistently(made, estimates).items():
        for each, true in pairs(whole, estimates[keys][0]):
            assert abs(each - true / 7) < 1


@pytest.mark.parametrize("sizes", [(5, 7, 3), (2, 2, 2), (2, 9, 2)])
def test_overlapping_sets_agree_on_shared_totals(sizes: tuple[int, ...]) -> None:
    """In a ring each pair of sets has the same whole totals by the key that both have."""
    made = agreement(SETS["a ring"], sizes)
    rng = np.random.default_rng(5)
    for _ in range(20):
        exact = np.array(rng.integers(0, 1000, size=sizes).tolist(), dtype=object)
        estimates = {
            keys: (np.asarray(np.sum(exact, axis=tuple({0, 1, 2} - keys)), dtype=object), 9)
            for keys in made.largest_key_sets
        }
        found = round_consistently(made, estimates)
        for one, other in itertools.combinations(found, 2):
            by = [
                np.sum(
                    found[keys],
                    axis=tuple(at for at, key in enumerate(sorted(keys)) if key not in one & other),
                )
                for keys in (one, other)
            ]
            assert (by[0] == by[1]).all()
        for keys, whole in found.items():
            assert max(abs(each - true / 9) for each, true in pairs(whole, estimates[keys][0])) < 3


@pytest.mark.parametrize("held", [(0,), (0, 2), ()])
def test_units_move_until_totals_are_kept(held: tuple[int, ...]) -> None:
    """Sums by one set of keys become what they shall be, those by the other stay what they were."""
    rng = np.random.default_rng(6)
    top, keys = frozenset((0, 1, 2)), frozenset((1, 2))
    for _ in range(20):
        values, wanted = (np.array(rng.integers(0, 3, size=SIZES).tolist(), dtype=object) for _ in range(2))
        kept = tuple({0, 1, 2} - set(held))
        # What both sets of keys have is the same in both tables.
        common = tuple({0, 1, 2} - (set(held) & keys))
        wanted[0, 0] += np.sum(values - wanted, axis=common) if 2 in held else 0
        wanted[0, 0, 0] += np.sum(values) - np.sum(wanted)
        before, totals = np.sum(values, axis=kept), np.sum(wanted, axis=0)
        move_units(values, (values * 5, 5), top, held=frozenset(held), keys=keys, totals=totals)
        assert (np.sum(values, axis=0) == totals).all()
        assert np.all(np.sum(values, axis=kept) == before)


def test_which_sets_have_whole_numbers_that_agree() -> None:
    """All that share at most two sets of keys with those before them."""
    assert all(agreement(sets).can_round for sets in SETS.values())
    triples = list(itertools.combinations(range(4), 3))
    assert not agreement(triples, (2, 2, 2, 2)).can_round


CLINIC = POLICY | {"budget": {"epsilon": 900, "delta": 1e-6}}
ADJUSTED = {
    "a rollup": "SELECT plan, COUNT(*), SUM(days) FROM visits GROUP BY ROLLUP (plan)",
    "a union": "SELECT plan, COUNT(*) FROM visits GROUP BY plan UNION ALL SELECT 'all', COUNT(*) FROM visits",
    "sets without a whole": "SELECT plan, days, COUNT(*) FROM visits GROUP BY GROUPING SETS (plan, days)",
    "a mean": "SELECT plan, AVG(days) FROM visits GROUP BY ROLLUP (plan)",
    "a condition on a released value": (
        "SELECT plan, COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits) GROUP BY ROLLUP (plan)"
    ),
    "three pairs of three keys": (
        "SELECT COUNT(*) FROM visits GROUP BY GROUPING SETS ((plan, days), (days, day > '2024-03-01'), "
        "(plan, day > '2024-03-01'))"
    ),
    "units in one group each": "SELECT plan, COUNT(DISTINCT patient_id) FROM visits GROUP BY ROLLUP (plan)",
}
LEFT = {
    "units in several groups": "SELECT days, COUNT(DISTINCT patient_id) FROM visits GROUP BY ROLLUP (days)",
    "values that are counted": "SELECT plan, COUNT(DISTINCT days) FROM visits GROUP BY ROLLUP (plan)",
    "values at a rank": "SELECT plan, MEDIAN(days) FROM visits GROUP BY ROLLUP (plan)",
    "keys that are not public": "SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)",
    "other rows": "SELECT COUNT(*) FROM visits WHERE days > 1 UNION ALL SELECT COUNT(*) FROM visits",
    "a total that a query has read": "SELECT plan, COUNT(*) / (SELECT COUNT(*) FROM visits) FROM visits GROUP BY plan",
    "no total": "SELECT plan, COUNT(*) FROM visits GROUP BY plan",
}


def adjusted(sql: str, **changed: Any) -> set[bool]:
    """Which releases of a statement have blocks that are made to agree with those of others."""
    visits = CLINIC["tables"]["visits"] | changed
    visits["columns"] = visits["columns"] | {"plan": visits["columns"]["plan"] | {"nullable": False}}
    policy = CLINIC | {"tables": CLINIC["tables"] | {"visits": visits}}
    with dpsql.connect(database(), policy=policy, ledger=":memory:") as connection:
        prepared = connection.explain(sql, epsilon=1).prepared
    return {
        part.plan.vectors != plan.vectors
        for part, plan in zip(prepared.releases, prepared.shown_plans, strict=True)
    }


@pytest.mark.parametrize("name", ADJUSTED)
def test_totals_and_parts_are_adjusted(name: str) -> None:
    """Wherever a statement has both, and they are sums over the same rows."""
    changed = {"partition": "plan"} if name == "units in one group each" else {}
    assert True in adjusted(ADJUSTED[name], **changed)


@pytest.mark.parametrize("sql", LEFT.values(), ids=LEFT)
def test_totals_that_are_not_additive_are_not_adjusted(sql: str) -> None:
    """What is not additive, or has parts that are not shown, or was read before, stays as it was released."""
    assert adjusted(sql) == {False}


def test_groups_that_are_left_out_of_a_unit() -> None:
    """Where a unit counts in fewer groups than it may be in, the parts have fewer rows than the total."""
    sql = "SELECT days, COUNT(*) FROM visits GROUP BY ROLLUP (days)"
    assert adjusted(sql) == {True}
    assert adjusted(sql, max_groups=2) == {False}


def test_selected_clamps_are_unchanged() -> None:
    """What of a unit counts was chosen for totals and parts apart; counts beside such sums are made to agree."""
    sql = "SELECT plan, SUM(cost) FROM visits GROUP BY ROLLUP (plan)"
    assert adjusted(sql) == {True}
    assert adjusted(sql, rows_per_unit=200) == {False}
