"""What a learnt clamp lets count, against all that neighbours and a second computation can say of it.

For every point that may be chosen, neighbours move the clamped statistics by no more than was derived for
it; they move the penalties of all points the same way, by no more than a unit's groups; and the statistics
are those that plain Python computes from the rows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from properties.worlds import DEFAULT, KEYS, Database, I, Row, World, X, policy

from dpsql.engine.query_run import QueryRun
from dpsql.engine.release.exact_rows import read_groups
from dpsql.plan.aggregates import Moment
from dpsql.planning import clamp_histogram as told
from dpsql.planning.build_clamps import BY_GROUP, BY_NORM, BY_SUM, ClampScope
from dpsql.planning.clamp_histogram import ClampHistogram, compute_clamped_moments, list_clamp_targets
from dpsql.planning.clamping import Amount, Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import ROWS, Statistic

Groups = dict[tuple[Any, ...], tuple[ClampHistogram, ...]]
ROWS_OF_A_UNIT = 8


@dataclass(frozen=True)
class Case:
    """A query whose clamps are learnt, of the contributions in one scope; by the plan's own choice if that is None."""

    sql: str
    rules: dict[str, Any] = field(default_factory=dict)
    scope: ClampScope | None = None
    together: bool = False
    """Whether the total of a measure has no clamp but that of its rows."""

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.rules.items())
        return f"{self.sql} [{told}]{SCOPES[self.scope]}{' together' * self.together}"


SCOPES = {None: "", BY_GROUP: " by group", BY_SUM: " by sum", BY_NORM: " by norm"}
_ALL = " WHERE u > 0"
"""A condition that all rows keep to: how many a unit has is then not what is declared."""
_BY_K = f"{_ALL} GROUP BY k"
_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (_BY_K, {}),
    (_ALL, {}),
    (_BY_K, {"groups": 1}),
    (_BY_K, {"groups": 2, "domain": False}),
    (_ALL, {"neighbors": "replace"}),
    (_BY_K, {"neighbors": "replace"}),
)
CASES = [
    *(
        Case(f"SELECT {what} FROM t{group}", rules, scope)
        for what in ("SUM(x)", "COUNT(*)", "COUNT(*), AVG(x)")
        for group, rules in _SETTINGS
        for scope in ((BY_SUM, BY_NORM) if group == _BY_K and rules.get("groups") != 1 else (None,))
    ),
    *(
        Case(f"SELECT {what} FROM t{_BY_K}", scope=scope)
        for what in ("SUM(-i)", "COUNT(x)", "COUNT(*), SUM(i), COUNT(x)", "AVG(x)")
        for scope in (BY_GROUP, BY_SUM, BY_NORM)
    ),
    *(
        Case(f"SELECT {what} FROM t{_BY_K}", rules, BY_GROUP)
        for what in ("SUM(x)", "COUNT(*)", "COUNT(*), AVG(x)")
        for rules in ({}, {"neighbors": "replace"})
    ),
    # units in many groups
    *(
        Case(f"SELECT k, i, {what} FROM t{_BY_K}, i", rules)
        for what in ("COUNT(DISTINCT u)", "COUNT(DISTINCT u), COUNT(*), SUM(x)")
        for rules in ({}, {"neighbors": "replace"}, {"domain": False})
    ),
]


def learning(
    world: World, sql: str, scope: ClampScope | None = None, *, together: bool = False
) -> tuple[QueryRun, MeasurementPlan]:
    """A query, and the plan with clamps of a scope that would answer it with the least error."""
    with pytest.MonkeyPatch.context() as patch:
        if together:
            patch.setattr("dpsql.planning.layouts.favors_separate_totals", lambda _: False)
        if scope is not None:
            patch.setattr("dpsql.planning.choose._list_clamp_scopes", lambda *_: (scope,))
            patch.setattr("dpsql.planning.choose._iterate_unclamped", lambda *_: ())
        prepared = world.prepare(sql)
    clamps = prepared.plan.clamps
    assert clamps, f"no clamp is learnt for {sql}"
    found = {
        ClampScope(clamp.across_groups, clamp.euclidean)
        for clamp in clamps
        if clamp.amount is not Amount.GROUPS
    }
    assert scope is None or found == {scope}
    return prepared, prepared.plan


def rungs(world: World, prepared: QueryRun, rows: Database) -> Groups:
    """What the units of each group have, as the statement gives it."""
    world.hold(rows)
    exact = world.engine.backend.run_statement(prepared.statement.sql)
    return {
        group.keys: group.clamp_histograms for group in read_groups(prepared.plan, prepared.statement, exact)
    }


def points(clamps: Sequence[Clamp]) -> Iterator[tuple[Clamp, ...]]:
    """Choices for all clamps: each point for all sides, and each beside the least of the other side."""
    for at in range(max(len(clamp.grid) for clamp in clamps)):
        for other in (at, 0):
            yield tuple(
                replace(
                    clamp,
                    chosen=tuple(
                        min(place, len(clamp.grid) - 1) for place in (at, other)[: len(clamp.sides)]
                    ),
                )
                for clamp in clamps
            )


def cells(plan: MeasurementPlan, groups: Groups) -> dict[tuple[Any, ...], list[tuple[int, ...]]]:
    """The cells of the blocks that take a clamp, by group."""
    held = [measured.vector for measured in plan.vectors if measured.clamp is not None]
    found = {}
    for keys, parts in groups.items():
        moments: dict[Statistic, int] = defaultdict(int, compute_clamped_moments(plan.clamps, parts))
        found[keys] = [tuple(cell.compute_exact(moments) for cell in block.components) for block in held]
    return found


def penalties(plan: MeasurementPlan, groups: Groups, place: int) -> list[list[int]]:
    """The penalties of each point of a clamp, side by side."""
    clamp = plan.clamps[place]
    sides = [at for at, ladder in enumerate(list_clamp_targets(plan.clamps)) if ladder.clamp == place]
    return [
        clamp.compute_penalties(told.count_units_beyond(clamp, [parts[at] for parts in groups.values()]))
        for at in sides[: len(clamp.sides)]
    ]


@cache
def moves(
    sql: str, rules: tuple[tuple[str, Any], ...], scope: ClampScope | None
) -> tuple[MeasurementPlan, list[tuple[Groups, Groups]]]:
    """The plan of a query, and what its statement gives for neighbours."""
    case = Case(sql, dict(rules), scope)
    world = World(policy(rows=ROWS_OF_A_UNIT, **case.rules))
    prepared, plan = learning(world, sql, scope)
    known: dict[Database, Groups] = {}
    pairs = list(neighbours(case))
    for rows in itertools.chain(*pairs):
        if rows not in known:
            known[rows] = rungs(world, prepared, rows)
    return plan, [(known[before], known[after]) for before, after in pairs]


def neighbours(case: Case) -> Iterator[tuple[Database, Database]]:
    """Databases that differ in one unit: with as many rows as count, more, and fewer, alike or not."""
    dice = random.Random(str(case))
    others = (DEFAULT._replace(u=2), DEFAULT._replace(u=2, k="B", x=4.0, i=5), DEFAULT._replace(u=3, x=-1.0))
    every = [Row(1, k, x, i) for k in KEYS for x in X for i in I]
    shares = [(row,) * (ROWS_OF_A_UNIT + 1) for row in dice.sample(every, 6)]
    ends = [Row(1, k, x, i) for k in ("A", "B") for x, i in ((4.0, 5), (-1.0, 0), (-1.0, 5))]
    shares += [(row,) * ROWS_OF_A_UNIT for row in ends]
    shares += [(*(ends[0],) * 4, *(ends[-1],) * 4), (*(ends[0],) * 4, *(ends[3],) * 4)]
    shares += [tuple(dice.choices(every, k=size)) for size in (1, 2, 5, 8, 9, 12)]
    places = [Row(1, k, 1.0, i) for k, i in itertools.product(KEYS, I)]
    wide = [tuple(places[:ROWS_OF_A_UNIT]), tuple(places[-ROWS_OF_A_UNIT:])]
    if case.rules.get("neighbors") == "replace":
        pairs = [*itertools.combinations(shares[-12:], 2)]
        yield ((*wide[0], *others), (*wide[1], *others))
        yield from (((*before, *others), (*after, *others)) for before, after in dice.sample(pairs, 12))
    else:
        yield from (
            ((*share, *base), base) for share in (*shares, *wide) for base in (others[: dice.randrange(4)],)
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_neighbour_moves_a_clamped_statistic_beyond_its_sensitivity(case: Case) -> None:
    """Whichever point is chosen: each block is within its l1 and l2 sensitivity, and attains half of that of its noise."""
    plan, pairs = moves(case.sql, tuple(case.rules.items()), case.scope)
    worst: dict[tuple[int, int], int] = defaultdict(int)
    norms = [plan.clamps[measured.clamp].euclidean for measured in plan.vectors if measured.clamp is not None]
    for ours, theirs in pairs:
        for place, clamps in enumerate(points(plan.clamps)):
            held = plan.with_clamps(clamps)
            old, new = cells(held, ours), cells(held, theirs)
            taking = [measured for measured in held.vectors if measured.clamp is not None]
            for number, measured in enumerate(taking):
                steps = [
                    a - b
                    for keys in {*old, *new}
                    for a, b in zip(
                        *(known[keys][number] if keys in known else (0,) * 9 for known in (old, new)),
                        strict=False,
                    )
                ]
                l1 = sum(map(abs, steps))
                assert l1 <= measured.sensitivity.l1
                squares = sum(step**2 for step in steps)
                assert squares <= measured.sensitivity.l2_squared
                worst[place, number] = max(worst[place, number], squares if norms[number] else l1)
    last = list(points(plan.clamps))[-2]
    for number, measured in enumerate(
        block for block in plan.with_clamps(last).vectors if block.clamp is not None
    ):
        most = max(count for (_, which), count in worst.items() if which == number)
        derived = measured.sensitivity.l2_squared / 2 if norms[number] else measured.sensitivity.l1
        clamp = plan.clamps[measured.clamp or 0]
        # Both sides have the grid of the larger one, which is far from tight where one unit replaces another.
        if not (norms[number] and plan.analysis.replace and len(clamp.sides) > 1):
            assert 2 * most >= derived, "the derived sensitivity is more than twice what happens"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_neighbour_moves_penalties_beyond_its_groups(case: Case) -> None:
    """Both sides together: as far as a unit has groups, and twice that where it is replaced; one way otherwise.

    How many groups a unit has is one penalty for each unit, and so is each side of what it has in all of them.
    """
    plan, pairs = moves(case.sql, tuple(case.rules.items()), case.scope)
    groups, replaced = plan.analysis.bound.groups, plan.analysis.replace
    for place, clamp in enumerate(plan.clamps):
        most = 1 if clamp.amount is Amount.GROUPS else len(clamp.sides) if clamp.across_groups else groups
        attained = 0
        for (ours, theirs), held in itertools.product(pairs, (plan, asking(plan, 0), asking(plan, 4))):
            apart = 0
            for old, new in zip(penalties(held, ours, place), penalties(held, theirs, place), strict=True):
                steps = [a - b for a, b in zip(old, new, strict=True)]
                assert replaced or min(steps) >= 0
                apart += max(steps) - min(steps)
            assert apart <= most * (2 if replaced else 1)
            attained = max(attained, apart)
        assert attained >= (1 if most == 1 else 2)


def asking(plan: MeasurementPlan, units: int) -> MeasurementPlan:
    """The plan with clamps that are lowered by the evidence of so many units, and of half as many that are tolerated."""
    clamps = (
        replace(clamp, tolerance=Fraction(units**2, 4), released_groups=1, min_support=units)
        for clamp in plan.clamps
    )
    return replace(plan, clamps=tuple(clamps))


def naive(rows: Database, plan: MeasurementPlan) -> dict[str | None, dict[Statistic, int]]:
    """The clamped statistics of SUM(i), COUNT(x), COUNT(*), AVG(x) by k, from rows that all count."""
    units: dict[int, dict[str | None, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.u is not None:
            units[row.u][row.k if row.k in ("A", "B") else None].append(row)
    found: dict[str | None, dict[Statistic, int]] = defaultdict(lambda: defaultdict(int))
    for groups in units.values():
        for (key, share), clamp in itertools.product(groups.items(), plan.clamps):
            told: list[Statistic] = [(Moment.TOTAL, clamp.total)]
            if clamp.total is None:
                told = [ROWS, *((Moment.COUNT, measure) for measure in clamp.measures if measure is not None)]
            for statistic in told:
                each = [_has(rows, told[0]) for rows in groups.values()]
                has = _has(share, statistic)
                if clamp.euclidean:
                    found[key][statistic] += _counts_by_norm(clamp, has, each)
                else:
                    found[key][statistic] += _counts(clamp, has, sum(each) if clamp.across_groups else has)
    return found


def _counts(clamp: Clamp, has: int, most: int) -> int:
    """What counts of so much in a group, of a unit that has so much where the clamp looks."""
    (point,) = clamp.points
    return clamp.subdivisions * has if most <= point else point * (clamp.subdivisions * has // most)


def _counts_by_norm(clamp: Clamp, has: int, each: Sequence[int]) -> int:
    """The same of a unit that has so much in each of its groups, by its l2 norm; rounded down as in the engine."""
    (point,) = clamp.points
    squares = sum(part * part for part in each)
    if squares <= point**2:
        return clamp.subdivisions * has
    norm = math.sqrt(squares) * (1 + 2.0**-50)
    parts = math.floor(min(1.0, has / norm) * clamp.subdivisions)
    assert parts**2 * squares <= (clamp.subdivisions * has) ** 2
    return point * parts


def test_no_count_is_lost_among_many_groups() -> None:
    """For units whose rows are each in a group of its own, all of the point counts except a thousandth."""
    many = 1000
    world = World(policy(rows=many, domain=False, accountant="pure"))
    prepared, plan = learning(world, f"SELECT s, COUNT(*) FROM t{_ALL} GROUP BY s", BY_SUM)
    rows = tuple(DEFAULT._replace(u=unit, s=str(key)) for unit in (1, 2) for key in range(many))
    given = rungs(world, prepared, rows)
    (place,) = (at for at, clamp in enumerate(plan.clamps) if clamp.amount is Amount.ROWS)
    for chosen in range(len(plan.clamps[place].grid) - 1):
        clamps = tuple(replace(clamp, chosen=(min(chosen, len(clamp.grid) - 1),)) for clamp in plan.clamps)
        clamp = clamps[place]
        counted = sum(compute_clamped_moments(clamps, parts)[ROWS] for parts in given.values())
        assert 0.999 * 2 * clamp.points[0] <= counted / clamp.subdivisions <= 2 * clamp.points[0]


def _has(share: Sequence[Row], of: Statistic) -> int:
    """What a unit has in a group: of i its total, of x the rows with a value, of nothing all rows."""
    if of == ROWS:
        return len(share)
    if of[0] is Moment.TOTAL:
        return sum(min(5, max(0, row.i)) for row in share if row.i is not None)
    return sum(row.x is not None and row.x == row.x for row in share)


@pytest.mark.parametrize("scope", [BY_SUM, BY_GROUP, BY_NORM], ids=["sum", "by group", "norm"])
@pytest.mark.parametrize("seed", range(4))
def test_clamped_values_match_plain_python(seed: int, scope: ClampScope) -> None:
    """Group by group, at every point, from the same rungs that the statement gives once."""
    dice = random.Random(seed)
    rows = [
        Row(unit, dice.choice(KEYS), dice.choice(X), dice.choice(I))
        for unit in range(1, 30)
        for _ in range(dice.randrange(1, ROWS_OF_A_UNIT + 1))
    ]
    world = World(policy(rows=ROWS_OF_A_UNIT))
    sql = f"SELECT k, SUM(i), COUNT(x), COUNT(*) FROM t{_BY_K}"
    prepared, plan = learning(world, sql, scope)
    given = rungs(world, prepared, tuple(rows))
    for clamps in points(plan.clamps):
        held = plan.with_clamps(clamps)
        expected = naive(tuple(rows), held)
        for (key,), parts in given.items():
            found = compute_clamped_moments(held.clamps, parts)
            assert {name: found[name] for name in expected[key]} == expected[key]


@pytest.mark.parametrize("group", ["", " GROUP BY k"])
@pytest.mark.parametrize("seed", range(2))
def test_units_with_excess_rows_keep_their_mean(seed: int, group: str) -> None:
    """A unit has as many rows of AVG(x) as the clamp, each with its mean value, in parts of a step.

    In its groups it has as many of these as it has of its rows, in whole parts.
    """
    dice = random.Random(seed)
    world = World(policy(rows=ROWS_OF_A_UNIT))
    prepared, plan = learning(world, f"SELECT AVG(i) FROM t{_ALL}{group}", BY_SUM if group else None)
    shares = [
        {key: [dice.choice((0, 1, 4, 5)) for _ in range(dice.randrange(1, 5))] for key in ("A", "B")}
        for _ in range(20)
    ]
    rows = tuple(
        Row(unit, key, 1.0, value)
        for unit, share in enumerate(shares, 1)
        for key, values in share.items()
        for value in values
    )
    for keys, given in rungs(world, prepared, rows).items():
        if keys == (None,):
            continue
        for clamps in points(plan.clamps):
            (clamp,) = clamps
            (point,) = clamp.points
            count = total = 0
            for share in shares:
                values = share[keys[0]] if keys else [*share["A"], *share["B"]]
                most = len(share["A"]) + len(share["B"])
                parts = clamp.subdivisions if most <= point else clamp.subdivisions * len(values) // most
                count += parts * (len(values) if most <= point else point)
                total += (
                    parts * sum(values) if most <= point else point * (parts * sum(values) // len(values))
                )
            found = compute_clamped_moments(clamps, given)
            assert (found[Moment.COUNT, 0], found[Moment.TOTAL, 0]) == (count, total)


@pytest.mark.parametrize("rules", [{}, {"groups": 10}], ids=str)
def test_units_count_in_the_chosen_number_of_groups(rules: dict[str, Any]) -> None:
    """Each unit counts in that many groups, bounded or not; penalties are units with more."""
    dice = random.Random(7)
    rows = [
        DEFAULT._replace(u=unit, s=str(dice.randrange(20)))
        for unit in range(40)
        for _ in range(dice.randrange(1, 25))
    ]
    world = World(policy(rows=12, **rules))
    prepared, plan = learning(world, "SELECT s, COUNT(DISTINCT u) FROM t GROUP BY s")
    given = rungs(world, prepared, tuple(rows))
    # No point is below what any unit has of the last one.
    everywhere = prepared.plan.with_clamps(
        tuple(replace(clamp, chosen=(len(clamp.grid) - 1,)) for clamp in plan.clamps)
    )
    of_units = [
        sum(found[0][0] for found in cells(everywhere, rungs(world, prepared, tuple(share))).values())
        for share in (tuple(row for row in rows if row.u == unit) for unit in range(40))
    ]
    assert max(of_units) >= 8
    ((above,),) = (penalties(asking(plan, 0), given, place) for place in range(len(plan.clamps)))
    for clamps, passed in zip(list(points(plan.clamps))[::2], above, strict=True):
        (point,) = clamps[0].points
        counted = cells(plan.with_clamps(clamps), given)
        assert sum(found[0][0] for found in counted.values()) == sum(
            min(number, point) for number in of_units
        )
        assert passed == sum(number > point for number in of_units)


def test_no_group_is_preferred() -> None:
    """The choice of groups differs between units: of units in ten groups, each group keeps some."""
    rows = tuple(DEFAULT._replace(u=unit, s=str(key)) for unit in range(200) for key in range(10))
    world = World(policy(rows=10))
    prepared, plan = learning(world, "SELECT s, COUNT(DISTINCT u) FROM t GROUP BY s")
    given = rungs(world, prepared, rows)
    kept = plan.with_clamps(tuple(replace(clamp, chosen=(0,)) for clamp in plan.clamps))
    counts = [found[0][0] for found in cells(kept, given).values()]
    assert sum(counts) == 200
    assert min(counts) >= 5


def test_rungs_depend_on_neither_threads_nor_the_order_of_rows() -> None:
    """The whole answer of the engine is the same for the same rows."""
    dice = random.Random(5)
    rows = [Row(dice.randrange(400), dice.choice(KEYS), dice.choice(X), dice.choice(I)) for _ in range(3000)]
    world = World(policy(rows=ROWS_OF_A_UNIT))
    prepared, _ = learning(world, f"SELECT k, SUM(x), COUNT(*) FROM t{_BY_K}", BY_NORM)
    answers = []
    for threads in (1, 4):
        world.connection.execute(f"SET threads = {threads}")
        dice.shuffle(rows)
        answers.append(rungs(world, prepared, tuple(rows)))
    first, second = (
        {keys: [part.intervals for part in parts] for keys, parts in known.items()} for known in answers
    )
    assert first == second
