"""HISTOGRAM: the release of its rewrite, and the counts that brute force and DuckDB find."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from laws.pairs import Case, pairs_of
from laws.worlds import DEFAULT, Database, I, Row, World, X, change, derived, policy

import dpsql
from dpsql.engine import Asked

BINS = [-1, 0, 1.5, 3]
REWRITTEN = {
    "HISTOGRAM(i, [1, 3, 5])": (
        "SELECT CASE WHEN i <= 1 THEN 1 WHEN i <= 3 THEN 3 ELSE 5 END AS bin, COUNT(*) FROM t "
        "WHERE i IS NOT NULL GROUP BY bin"
    ),
    "HISTOGRAM(i, [2])": (
        f"SELECT CASE WHEN i <= 2 THEN 2 ELSE {2**63 - 1} END AS bin, COUNT(*) FROM t WHERE i IS NOT NULL GROUP BY bin"
    ),
    "HISTOGRAM(k)": "SELECT k, COUNT(*) FROM t WHERE k IS NOT NULL GROUP BY k",
}
"""Each with the query of which it is a map."""


@pytest.mark.parametrize("called", REWRITTEN)
def test_it_is_the_release_of_its_rewrite(called: str) -> None:
    """What is released, analysed and charged is what the grouped counts are: a row lies in one bin."""
    world = World(policy())
    (ours,) = world.prepare(f"SELECT {called} FROM t").releases
    (theirs,) = world.prepare(REWRITTEN[called]).releases
    assert ours.release == theirs.release
    assert ours.plan.event == theirs.plan.event


@pytest.mark.parametrize(
    "rules", [{"unit": "row"}, {"rows": 2}, {"rows": 2, "neighbors": "replace"}], ids=str
)
def test_a_unit_moves_bins_no_further_than_derived(rules: dict[str, Any]) -> None:
    """Over neighbours with values at, between and beyond the ends of bins, special ones too; at the worst, as far."""
    sql = f"SELECT HISTOGRAM(x, {BINS}) FROM t"
    case, world = Case(sql, ("x",), rules), World(policy(**rules))
    prepared = world.prepare(sql)
    (release,) = prepared.releases
    ((l1, _, _),) = derived(release.plan.blocks)
    moved = [
        change(world.statistics(prepared, old), world.statistics(prepared, new), 0)[0]
        for old, new in pairs_of(case, 40)
    ]
    assert max(moved) == l1


def found(values: Sequence[Any], ends: Sequence[float]) -> dict[float, int]:
    """The count of each bin, by brute force."""
    counts = dict.fromkeys(ends, 0)
    for value in values:
        if value is not None and not math.isnan(value):
            counts[ends[bisect.bisect_left(ends, value)]] += 1
    return counts


DATABASES: list[Database] = [
    (),
    tuple(DEFAULT._replace(u=unit, x=x, i=i) for unit, (x, i) in enumerate(zip(X, (*I, *I), strict=False))),
    tuple(Row(unit, "AB"[unit % 2], x=unit / 4 - 1, i=unit % 6) for unit in range(20)),
]


@pytest.fixture(scope="module")
def exact() -> World:
    """A world in which noise is next to nothing."""
    return World({**policy(unit="row"), "budget": {"epsilon": 10**9, "delta": 1e-6}})


@pytest.mark.parametrize("rows", DATABASES, ids=len)
def test_bins_are_counted_as_brute_force_does(exact: World, rows: Database) -> None:
    """Of values within their bounds; above the last end only if a value may lie there; of nobody too, in the same types."""
    exact.hold(rows)
    sql = f"SELECT HISTOGRAM(x, {BINS}), HISTOGRAM(x * 2, [2]), HISTOGRAM(i, [1, 5]), HISTOGRAM(k), COUNT(*) FROM t"
    result = exact.engine.answer(exact.engine.prepare(Asked(sql, epsilon=Fraction(10**6), replay=False)))
    x = [row.x if row.x is None or math.isnan(row.x) else max(-1.0, min(row.x, 4.0)) for row in rows]
    i = [None if row.i is None else max(0, min(row.i, 5)) for row in rows]
    keys = [row.k for row in rows]
    assert result.rows == (
        (
            found(x, [*BINS, math.inf]),
            found([None if value is None else value * 2 for value in x], [2, math.inf]),
            found(i, [1, 5]),
            {key: keys.count(key) for key in ("A", "B")},
            len(rows),
        ),
    )
    kinds = ("DOUBLE", "DOUBLE", "BIGINT", "VARCHAR")
    assert result.types == (*(f"MAP({kind}, BIGINT)" for kind in kinds), "BIGINT")
    assert [ends is None for ends in result.intervals()[0]] == [True] * 4 + [False]


def test_bins_are_as_in_duckdb(exact: World) -> None:
    """Where all values are numbers, but for the bin above, which DuckDB leaves out if it is empty."""
    exact.hold(DATABASES[2])
    sql = f"SELECT HISTOGRAM(x, {BINS}), HISTOGRAM(x, [2.5]), HISTOGRAM(k), HISTOGRAM(i) FROM t"
    result = exact.engine.answer(exact.engine.prepare(Asked(sql, epsilon=Fraction(10**6), replay=False)))
    assert list(result.rows) == exact.connection.execute(sql).fetchall()


def test_people_see_no_count_below_zero(exact: World) -> None:
    """The values are as they were released; what is shown, and what data formats hold, is one map of them."""
    exact.hold(())
    sql = "SELECT HISTOGRAM(x, [1, 2]) AS h FROM t"
    asked = Asked(sql, epsilon=Fraction(1, 10**4), replay=False)
    answers = [exact.engine.answer(exact.engine.prepare(asked)) for _ in range(8)]
    assert any(count < 0 for answer in answers for count in answer.rows[0][0].values())
    for answer in answers:
        ((counts,),), ((shown,),) = answer.rows, answer.displayed
        assert shown == {end: max(count, 0) for end, count in counts.items()}
        assert answer.texts() == [[f"{{1.0: {shown[1]:,}, 2.0: {shown[2]:,}, inf: {shown[math.inf]:,}}}"]]
        assert answer.df()["h"][0] == counts
        assert answer.to_arrow_table()["h"].to_pylist() == [list(counts.items())]


@pytest.mark.parametrize("argument", ["x, [1]", "k"])
def test_bins_are_not_hidden(argument: str) -> None:
    """Where rare groups are hidden it is refused: a map says of each bin how many rows it has."""
    with pytest.raises(dpsql.QueryRejected, match="hidden for being rare"):
        World(policy(min_frequency=3)).prepare(f"SELECT HISTOGRAM({argument}) FROM t")
