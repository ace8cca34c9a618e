"""Intervals, domains and nullability against what the engine computes on every tiny row.

The clamp is left out here, so a wrong interval shows instead of being clamped away.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from properties.test_sensitivity import EXPRESSIONS
from properties.worlds import DEFAULT, KEYS, D, I, Row, S, World, X, policy

from dpsql.analysis.domains import derive_domain, derive_listed_values, is_nullable
from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.plan.expressions import Expr
from dpsql.plan.interval import find_position
from dpsql.plan.nodes import Release
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.relations import emit_from_clause

WHERES = (
    "",
    " WHERE x < 2",
    " WHERE i IN (0, 5) AND x >= 1.5",
    " WHERE i < 5 AND 0 < i AND d > DATE '2024-02-01'",
    " WHERE d BETWEEN '2024-02-01' AND '2024-03-01'",
)
LISTS = (
    " WHERE k IN ('A', 'Z') AND i = 5",
    " WHERE 'B' = k OR k = 'A' AND x > 1",
    " WHERE (k = 'A' OR x > 1) AND (i IN (0, 5) OR s = 'a')",
    " WHERE NOT (k = 'A' AND i = 0 AND s = 'a')",
    " WHERE (s = 'a' AND i = 0 OR s IN ('B', '') AND i = 5 OR s = 'zzz') AND s <> 'a'",
    " WHERE (UPPER(s) = 'B' AND d = DATE '2024-02-29' OR UPPER(s) IN ('A', 'ZZZ')) AND d IS NOT NULL",
    " WHERE i = 0 AND i = 5 AND s IN ('a', NULL)",
    " WHERE k IS NOT NULL AND i IS NOT NULL AND x IS NOT NULL AND d IS NOT NULL AND (x > 1) IS NOT NULL",
    " WHERE (k IS NOT NULL OR k = 'A') AND (i IS NOT NULL OR k IS NULL) AND k IS NOT NULL IS NOT NULL",
)
"""Conditions that list values of keys, or leave NULL out, of all rows or of some."""
KEY_EXPRESSIONS = (
    "k",
    "x > 1",
    "x IS NULL",
    "i",
    "i + 1",
    "i // 2 * 2",
    "i * 10 + i",
    "7 - i // 2 * 3",
    "FLOOR(x)",
    "FLOOR(x / 2) * 2",
    "CAST(-FLOOR(x / 2) * 2 AS BIGINT)",
    "ROUND(x * 2)",
    "d",
    "EXTRACT(month FROM d)",
    "EXTRACT(year FROM d)",
    "DATE_TRUNC('month', d)",
    "DATE_TRUNC('week', d)",
    "DATE_TRUNC('quarter', d)",
    "CASE WHEN x > 1 THEN 'high' WHEN x > 0 THEN 'low' END",
    "CASE WHEN i > 2 THEN 1 ELSE 0.5 END",
    "COALESCE(k, 'none')",
    "CASE WHEN x > 1 THEN i ELSE 7 END",
    "CAST(x AS BIGINT)",
)
LISTED_KEYS = (
    ("s", LISTS[4], {"a", "B", "", "zzz"}),
    ("UPPER(s)", LISTS[5], {"A", "B", "ZZZ"}),
    ("k", LISTS[1], {"A", "B"}),
    ("i", LISTS[6], set()),
    ("k", LISTS[7], {"A", "B"}),
    ("k", LISTS[8], {"A", "B"}),
    ("x > 1", LISTS[7], {False, True}),
)


def rows() -> list[Row]:
    """Every combination of two of the values at a time, the others as in the default row."""
    columns: dict[str, tuple[Any, ...]] = {"k": KEYS, "x": X, "i": I, "s": S, "d": D}
    found = {DEFAULT}
    for (a, many), (b, more) in itertools.combinations(columns.items(), 2):
        found |= {DEFAULT._replace(**{a: left, b: right}) for left, right in itertools.product(many, more)}
    return sorted(found, key=repr)


@pytest.fixture(scope="module")
def world() -> World:
    """A world that holds every row at once."""
    world = World(policy())
    world.hold(rows())
    return world


def values(world: World, release: Release, expr: Expr) -> Iterator[Any]:
    """What the engine computes for an expression on the rows of a release, NULLs among it."""
    input_ = release.input
    source, conditions = emit_from_clause(DUCKDB_COMPILER, input_, [expr])
    where = " AND ".join(conditions) or "TRUE"
    exact = world.engine.backend.run_statement(
        f"SELECT {DUCKDB_COMPILER.emit_expression(expr)} FROM {source} WHERE {where}"
    ).reveal()
    return (value for (value,) in exact)


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("sql", EXPRESSIONS.values())
def test_values_lie_in_their_interval(world: World, sql: str, where: str) -> None:
    """No value leaves the interval derived from bounds and conditions, rounding of floats aside."""
    release = world.prepare(f"SELECT {sql} FROM t{where}").outer.release
    argument = release.aggregations[0].argument
    assert argument is not None
    known = derive_interval(argument, derive_known_intervals(release.input))
    for value in values(world, release, argument):
        at = find_position(value)
        if at is None:
            continue
        slack = 1e-9 * (1 + abs(float(at)))
        assert known.low is None or known.low - at <= slack
        assert known.high is None or at - known.high <= slack


@pytest.mark.parametrize("where", WHERES + LISTS)
@pytest.mark.parametrize("key", KEY_EXPRESSIONS)
def test_keys_lie_in_their_domain(world: World, key: str, where: str) -> None:
    """Every key that can occur is in the domain, NULL too where the key may be NULL."""
    release = world.prepare(f"SELECT COUNT(*) FROM t{where} GROUP BY {key}").outer.release
    expr = release.keys[0].expr
    known = derive_domain(expr, derive_known_intervals(release.input), derive_listed_values(release.input))
    assert known is not None
    found = set(values(world, release, expr))
    assert {value for value in found if value is not None} <= set(known)
    assert None not in found or None in known


@pytest.mark.parametrize(("key", "where", "expected"), LISTED_KEYS)
def test_listed_keys_are_public(world: World, key: str, where: str, expected: set[object]) -> None:
    """Values that a condition lists are a domain, which holds every key that can occur."""
    release = world.prepare(f"SELECT COUNT(*) FROM t{where} GROUP BY {key}").outer.release
    expr = release.keys[0].expr
    assert set(derive_domain(expr, {}, derive_listed_values(release.input)) or ()) == expected
    assert set(values(world, release, expr)) <= expected


@pytest.mark.parametrize("sql", EXPRESSIONS.values())
def test_only_nullable_expressions_are_null(world: World, sql: str) -> None:
    """No row gives NULL where `is_nullable` is false."""
    release = world.prepare(f"SELECT {sql} FROM t").outer.release
    argument = release.aggregations[0].argument
    assert argument is not None
    if not is_nullable(argument):
        assert None not in set(values(world, release, argument))


def test_values_reach_both_ends_of_an_interval(world: World) -> None:
    """The values tried reach both ends of the interval of a plain column, and no special remains."""
    release = world.prepare("SELECT SUM(x) FROM t").outer.release
    argument = release.aggregations[0].argument
    assert argument is not None
    found = [value for value in values(world, release, argument) if value is not None]
    assert min(found) == -1
    assert max(found) == 4
    assert all(math.isfinite(value) for value in found)
    assert dt.date(9999, 12, 31) in D
