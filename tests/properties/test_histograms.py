"""HISTOGRAM: the release of its rewrite, and the counts that brute force and DuckDB find."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from properties.pairs import Case, pairs_of
from properties.worlds import DEFAULT, Database, I, Row, World, X, change, derived, policy

import dpsql
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query

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
def test_histogram_equals_its_rewrite(called: str) -> None:
    """A histogram is released, analyzed and charged as the grouped counts: a row lies in one bin."""
    world = World(policy())
    (ours,) = world.prepare(f"SELECT {called} FROM t").releases
    (theirs,) = world.prepare(REWRITTEN[called]).releases
    assert ours.release == theirs.release
    assert ours.plan.event == theirs.plan.event


@pytest.mark.parametrize("called", list(REWRITTEN)[:2])
def test_histogram_of_each_group_equals_its_rewrite(called: str) -> None:
    """The groups are public and free; the bins in all of them are one release."""
    world = World(policy())
    keys, ours = world.prepare(f"SELECT k, {called} FROM t GROUP BY k").releases
    rewritten = REWRITTEN[called].replace("SELECT", "SELECT k,").replace("GROUP BY", "GROUP BY k,")
    (theirs,) = world.prepare(rewritten).releases
    assert ours.release == theirs.release
    assert ours.plan.event == theirs.plan.event
    assert keys.plan.event is None


@pytest.mark.parametrize(
    "rules", [{"unit": "row"}, {"rows": 2}, {"rows": 2, "neighbors": "replace"}], ids=str
)
def test_unit_moves_bins_within_their_sensitivity(rules: dict[str, Any]) -> None:
    """Neighbours with values at, between and beyond the ends stay within the bound, and attain it."""
    sql = f"SELECT HISTOGRAM(x, {BINS}) FROM t"
    case, world = Case(sql, ("x",), rules), World(policy(**rules))
    prepared = world.prepare(sql)
    (release,) = prepared.releases
    ((l1, _, _),) = derived(release.plan.vectors)
    moved = [
        change(world.statistics(prepared, old), world.statistics(prepared, new), 0)[0]
        for old, new in pairs_of(case, 40)
    ]
    assert max(moved) == l1


@pytest.mark.parametrize("rules", [{"unit": "row"}, {"rows": 2, "groups": 2}], ids=str)
def test_unit_moves_bins_of_groups_within_their_sensitivity(rules: dict[str, Any]) -> None:
    """Any rows in groups and bins stay within the bound, and attain it."""
    sql = f"SELECT k, HISTOGRAM(x, {BINS[:2]}) FROM t GROUP BY k"
    case, world = Case(sql, ("k", "x"), rules), World(policy(**rules))
    prepared = world.prepare(sql)
    (bins,) = (release for release in prepared.releases if release.plan.vectors)
    ((l1, _, _),) = derived(bins.plan.vectors)
    alone = replace(prepared, releases=(bins,))
    moved = [
        change(world.statistics(alone, old), world.statistics(alone, new), 0)[0]
        for old, new in pairs_of(case, 40)
    ]
    assert max(moved) == l1


def number(x: float | None) -> float | None:
    """A value as the policy lets it count: within its bounds, NaN as NULL."""
    return None if x is None or math.isnan(x) else max(-1.0, min(x, 4.0))


def seen(row: Row) -> Row:
    """A row as the policy lets it count; a key that is not public as NULL."""
    i = None if row.i is None else max(0, min(row.i, 5))
    return row._replace(k=row.k if row.k in ("A", "B") else None, x=number(row.x), i=i)


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
    (NUMBERS := tuple(Row(unit, "AB"[unit % 2], x=unit / 4 - 1, i=unit % 6) for unit in range(20))),
    (*NUMBERS, *(DEFAULT._replace(u=unit, k=key, x=None) for unit, key in enumerate([None, "Z"], 20))),
]


@pytest.fixture(scope="module")
def exact() -> World:
    """A world in which noise is next to nothing."""
    return World({**policy(unit="row"), "budget": {"epsilon": 10**9, "delta": 1e-6}})


@pytest.mark.parametrize("rows", DATABASES, ids=len)
def test_bins_match_brute_force(exact: World, rows: Database) -> None:
    """Values within bounds, values above the last end and empty tables are counted, in the same types."""
    exact.hold(rows)
    sql = f"SELECT HISTOGRAM(x, {BINS}), HISTOGRAM(x * 2, [2]), HISTOGRAM(i, [1, 5]), HISTOGRAM(k), COUNT(*) FROM t"
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(10**6), replay=False))
    )
    x, i, keys = ([getattr(row, name) for row in map(seen, rows)] for name in "xik")
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


def test_bins_match_duckdb(exact: World) -> None:
    """Only the bin above differs, which DuckDB leaves out if empty, where all values are numbers."""
    exact.hold(DATABASES[2])
    sql = f"SELECT HISTOGRAM(x, {BINS}), HISTOGRAM(x, [2.5]), HISTOGRAM(k), HISTOGRAM(i) FROM t"
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(10**6), replay=False))
    )
    assert list(result.rows) == exact.connection.execute(sql).fetchall()


KEYS: dict[str, Callable[[Row], tuple[Any, ...]]] = {
    "k": lambda row: (row.k,),
    "k, i": lambda row: (row.k, row.i),
    "CASE WHEN x IS NULL THEN 'none' ELSE 'some' END": lambda row: ("none" if row.x is None else "some",),
}
"""What rows are grouped by."""


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("rows", DATABASES, ids=len)
def test_each_group_has_its_own_bins(exact: World, rows: Database, keys: str) -> None:
    """Bins of all groups, empty ones too, match brute force in any order."""
    exact.hold(rows)
    sql = (
        f"SELECT {keys}, COUNT(*) AS n, HISTOGRAM(x, {BINS}), HISTOGRAM(k) FROM t "
        f"GROUP BY {keys} HAVING COUNT(*) > -1 ORDER BY n DESC"
    )
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(10**6), replay=False))
    )
    width = keys.count(", ") + 1
    for *key, n, bins, values in result.rows:
        mine = [row for row in map(seen, rows) if KEYS[keys](row) == tuple(key)]
        assert n == len(mine)
        assert bins == found([row.x for row in mine], [*BINS, math.inf])
        assert values == {value: [row.k for row in mine].count(value) for value in ("A", "B")}
    assert sum(row[width] for row in result.rows) == len(rows)


def test_bins_of_groups_match_duckdb(exact: World) -> None:
    """They match for groups that have rows, which are all that DuckDB shows."""
    exact.hold(DATABASES[2])
    sql = "SELECT k, HISTOGRAM(i, [1, 5]) AS h, COUNT(*) AS n FROM t GROUP BY k HAVING n > 0 ORDER BY k"
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(10**6), replay=False))
    )
    assert list(result.rows) == exact.connection.execute(sql).fetchall()
    assert result.types[1] == "MAP(BIGINT, BIGINT)"
    assert [ends is None for ends in result.intervals()[0]] == [True, True, False]


def test_impossible_groups_have_no_bins(exact: World) -> None:
    """A condition that no public key fulfils leaves no groups, as in DuckDB."""
    exact.hold(DATABASES[2])
    sql = "SELECT k, i, HISTOGRAM(x, [1]) FROM t WHERE k = 'Z' GROUP BY k, i"
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(1), replay=False))
    )
    assert list(result.rows) == exact.connection.execute(sql).fetchall() == []


def test_shown_counts_are_not_negative(exact: World) -> None:
    """The values are as they were released; what is shown, and what data formats hold, is one map of them."""
    exact.hold(())
    sql = "SELECT HISTOGRAM(x, [1, 2]) AS h FROM t"
    user_query = Query(sql, epsilon=Fraction(1, 10**4), replay=False)
    answers = [answer_query(exact.engine, plan_and_match(exact.engine, user_query)) for _ in range(8)]
    assert any(count < 0 for answer in answers for count in answer.rows[0][0].values())
    for answer in answers:
        ((counts,),), ((shown,),) = answer.rows, answer.displayed
        assert shown == {end: max(count, 0) for end, count in counts.items()}
        assert answer.texts() == [[f"{{1.0: {shown[1]:,}, 2.0: {shown[2]:,}, inf: {shown[math.inf]:,}}}"]]
        assert answer.df()["h"][0] == counts
        assert answer.to_arrow_table()["h"].to_pylist() == [list(counts.items())]


@pytest.mark.parametrize("argument", ["x, [1]", "k"])
def test_histogram_is_refused_for_hidden_groups(argument: str) -> None:
    """It is refused where rare groups are hidden: a map states how many rows each bin has."""
    with pytest.raises(dpsql.QueryRejected, match="hidden for being rare"):
        World(policy(min_frequency=3)).prepare(f"SELECT HISTOGRAM({argument}) FROM t")


def test_number_of_bins_of_groups_is_bounded() -> None:
    """Bins of all groups are numbered one by one."""
    with pytest.raises(dpsql.QueryRejected, match="10,000 bins in all groups"):
        World(policy()).prepare("SELECT i, d, HISTOGRAM(x, [0, 1, 2, 3]) FROM t GROUP BY i, d")
