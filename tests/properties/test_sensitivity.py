"""The derived sensitivity against the worst case over all neighbouring tiny databases.

Exact statistics are compared in lattice integers. Never may a neighbour move a block by more than was
derived; and where a query is marked tight, some neighbour moves it by at least half as much.
"""

from __future__ import annotations

import math

import pytest
from properties.pairs import Case, pairs_of
from properties.worlds import DEFAULT, World, X, derived, largest, policy

from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.planning.statistics import ROWS

EXPRESSIONS = {
    "add": "SUM(x + i)",
    "subtract": "SUM(i - 3)",
    "multiply": "SUM(x * i)",
    "divide": "SUM(x / (i + 1))",
    "negate": "SUM(-x)",
    "eq": "SUM(CASE WHEN i = 5 THEN 2 ELSE 0 END)",
    "ne": "COUNT(CASE WHEN i <> 5 THEN 1 END)",
    "lt": "SUM(CASE WHEN x < 2 THEN x END)",
    "le": "SUM(CASE WHEN x <= -1 THEN i END)",
    "gt": "AVG(CASE WHEN x > 0 THEN x END)",
    "ge": "COUNT(CASE WHEN x >= 4 THEN x END)",
    "and": "SUM(CASE WHEN x > 0 AND i > 2 THEN i ELSE -1 END)",
    "or": "SUM(CASE WHEN x > 0 OR i > 2 THEN i END)",
    "not": "COUNT(CASE WHEN NOT x > 0 THEN 1 END)",
    "is_null": "SUM(CASE WHEN x IS NULL THEN 3 ELSE 0 END)",
    "in": "SUM(CASE WHEN i IN (0, 5) THEN i END)",
    "like": "SUM(CASE WHEN s LIKE 'z%' THEN 1 ELSE 0 END)",
    "ilike": "SUM(CASE WHEN s ILIKE 'b' THEN 1 ELSE 0 END)",
    "abs": "SUM(ABS(x))",
    "floor": "SUM(FLOOR(x))",
    "ceil": "SUM(CEIL(x))",
    "round": "SUM(ROUND(x))",
    "round_digits": "SUM(ROUND(x, 1))",
    "least": "SUM(LEAST(x, i, 2))",
    "greatest": "SUM(GREATEST(x, 2))",
    "case": "SUM(CASE i WHEN 0 THEN x WHEN 5 THEN -x END)",
    "coalesce": "SUM(COALESCE(x, 2.5))",
    "nullif": "SUM(NULLIF(i, 5))",
    "lower": "COUNT(CASE WHEN LOWER(s) = 'b' THEN 1 END)",
    "upper": "COUNT(CASE WHEN UPPER(s) = 'A' THEN 1 END)",
    "length": "SUM(LEAST(LENGTH(s), 2))",
    "substring_from": "COUNT(CASE WHEN SUBSTRING(s, 2) = 'zz' THEN 1 END)",
    "substring": "COUNT(CASE WHEN SUBSTRING(s, 1, 1) = 'z' THEN 1 END)",
    "cast_tinyint": "SUM(CAST(x AS TINYINT))",
    "cast_smallint": "SUM(CAST(x AS SMALLINT))",
    "cast_integer": "SUM(CAST(x AS INTEGER))",
    "cast_bigint": "SUM(CAST(x AS BIGINT))",
    "cast_double": "SUM(CAST(i AS DOUBLE))",
    "cast_varchar": "COUNT(CASE WHEN CAST(i AS VARCHAR) = '5' THEN 1 END)",
    "cast_boolean": "SUM(CASE WHEN CAST(i AS BOOLEAN) THEN 1 ELSE 0 END)",
    "cast_date": "COUNT(CAST(s AS DATE))",
    "cast_timestamp": "COUNT(CASE WHEN CAST(d AS TIMESTAMP) > '2024-02-01' THEN 1 END)",
    **{
        part: f"SUM(EXTRACT({part} FROM d))"
        for part in [
            "year",
            "quarter",
            "month",
            "week",
            "day",
            "doy",
            "dow",
            "isodow",
            "hour",
            "minute",
            "second",
        ]
    },
    **{
        f"date_trunc_{unit}": f"COUNT(CASE WHEN DATE_TRUNC('{unit}', d) <= '2024-02-01' THEN 1 END)"
        for unit in ["year", "quarter", "month", "week", "day", "hour"]
    },
}
"""One aggregate over each function of the registry."""

_ROW = {"unit": "row"}
_REPLACE = {"neighbors": "replace"}


def _mentioned(sql: str) -> tuple[str, ...]:
    words = set("".join(c if c.isalnum() else " " for c in sql).split())
    return tuple(name for name in "xisd" if name in words)


CASES = [
    # every aggregate, both units, both neighbouring relations, with and without keys
    *(
        Case(
            f"SELECT {aggregate} FROM t{where}{group}",
            ("k", *columns),
            {**unit, **neighbours},
            # Values of either sign that one who is replaced brings and takes away are not all in one group.
            tight=not (aggregate == "SUM(DISTINCT x)" and group and neighbours),
        )
        for aggregate, columns, where in (
            ("COUNT(*)", (), " WHERE k = 'A'"),
            ("COUNT(x)", ("x",), ""),
            ("SUM(x)", ("x",), ""),
            ("SUM(i)", ("i",), ""),
            ("AVG(x)", ("x",), ""),
            ("COUNT(*), SUM(x), AVG(x)", ("x",), ""),
            ("COUNT(DISTINCT s)", ("s",), ""),
            ("SUM(DISTINCT x)", ("x",), ""),
            ("SUM(DISTINCT i)", ("i",), ""),
        )
        for group in ("", " GROUP BY k")
        for unit in ({}, _ROW)
        for neighbours in ({}, _REPLACE)
    ),
    # several arguments measured together
    *(
        Case(f"SELECT {what} FROM t", ("x", "i"), {**unit, "accountant": "pure"}, tight=False)
        for what in ("COUNT(x), COUNT(i), SUM(-i - 3)", "VAR_POP(x), CORR(x, i)")
        for unit in (_ROW, {"rows": 1, **_REPLACE})
    ),
    Case(
        "SELECT AVG(i), SUM(i - 9), COUNT(*) FROM t GROUP BY k",
        ("k", "i"),
        {"rows": 3, "groups": 2, "accountant": "pure", **_REPLACE},
        tight=False,
    ),
    Case("SELECT AVG(x), AVG(i) FROM t", ("x", "i"), {"accountant": "pure"}),
    Case("SELECT AVG(x), AVG(i + 20) FROM t", ("i",), {"accountant": "pure", **_ROW}, tight=False),
    Case(
        "SELECT k, COUNT(*), SUM(x), COUNT(DISTINCT u) FROM t GROUP BY k", ("k", "x"), {"accountant": "pure"}
    ),
    Case("SELECT COUNT(*), SUM(i), COUNT(DISTINCT u) FROM t", ("k", "i"), {"rows": 3, "accountant": "pure"}),
    Case(
        "SELECT s, AVG(i), AVG(x) FROM t GROUP BY s",
        ("s", "i"),
        {"rows": 3, "groups": 1, "accountant": "pure"},
        tight=False,
    ),
    Case("SELECT AVG(x), AVG(i), COUNT(*) FROM t", ("x", "i")),
    *(Case("SELECT k, AVG(d) FROM t GROUP BY k", ("k", "d"), unit) for unit in ({}, _ROW, _REPLACE)),
    Case("SELECT COUNT(DISTINCT u) FROM t", ("k",)),
    Case("SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k", ("k",)),
    Case("SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k", ("k",), {"neighbors": "replace"}),
    # contribution bounds
    Case("SELECT k, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k", ("k",), {"rows": 1}),
    Case("SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k", ("k",), {"domain": False}),
    Case(
        "SELECT k, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k",
        ("k",),
        {"rows": 3, "groups": 1},
        tight=False,
    ),
    Case(
        "SELECT k, SUM(x), COUNT(DISTINCT u) FROM t GROUP BY k",
        ("k", "x"),
        {"rows": 3, "groups": 2},
        tight=False,
    ),
    Case("SELECT k, COUNT(*) FROM t GROUP BY k", ("k",), {"rows": 3, "groups": 2}, max_groups=1, tight=False),
    Case("SELECT k, SUM(x), COUNT(DISTINCT u) FROM t GROUP BY k", ("k", "x"), {"partition": True}),
    # rows that fill up what units count
    Case("SELECT COUNT(*), COUNT(DISTINCT u) FROM t", ("k",), {"rows": 3, "accountant": "pure"}),
    *(
        Case(
            f"SELECT k, {what} FROM t GROUP BY k",
            ("k", "x"),
            {"rows": 3, "groups": groups, "domain": False, "accountant": "pure", **neighbours},
            tight=groups == 1,
        )
        for what, groups in (("COUNT(*), SUM(x)", 1), ("COUNT(*)", 2))
        for neighbours in ({}, _REPLACE)
    ),
    # a key that is one for a unit, or that data which break the declaration have several of
    Case(
        "SELECT t.k, COUNT(DISTINCT u), COUNT(*) FROM t LEFT JOIN p ON t.k = p.k GROUP BY t.k",
        ("k",),
        {"rows": 1},
        tight=False,
    ),
    *(
        Case(
            f"SELECT n, {what} FROM t JOIN (SELECT u, MAX(i) AS n FROM t GROUP BY u) AS c ON t.u = c.u GROUP BY n",
            ("i", "x"),
            {"rows": 3},
            tight=False,
        )
        for what in ("COUNT(*)", "SUM(x), COUNT(DISTINCT t.u)")
    ),
    # values, beside rows that count otherwise
    Case("SELECT k, COUNT(DISTINCT x), SUM(x) FROM t GROUP BY k", ("k", "x")),
    Case("SELECT k, SUM(DISTINCT x), COUNT(*) FROM t GROUP BY k", ("k", "x")),
    Case("SELECT k, SUM(DISTINCT i), AVG(DISTINCT i), SUM(i) FROM t GROUP BY k", ("k", "i"), tight=False),
    Case("SELECT k, COUNT(DISTINCT s), COUNT(*) FROM t GROUP BY k", ("k", "s"), {"domain": False}),
    Case(
        "SELECT k, COUNT(DISTINCT s), COUNT(*) FROM t GROUP BY k",
        ("k", "s"),
        {"rows": 3, "groups": 1},
        tight=False,
    ),
    # values of which a unit has few, however many rows
    *(
        Case(f"SELECT {what} FROM t{group}", ("k", "i"), {"rows": 3, **neighbours, **pure}, tight=False)
        for what in (
            "COUNT(DISTINCT u) FILTER (WHERE i > 2)",
            "COUNT(DISTINCT CASE WHEN i > 2 THEN u WHEN i < 1 THEN -5 END)",
            "COUNT(DISTINCT k), COUNT(DISTINCT -u)",
            "COUNT(DISTINCT (k, i > 2))",
        )
        for group in ("", " GROUP BY k")
        for neighbours, pure in (({}, {}), (_REPLACE, {"accountant": "pure"}))
    ),
    Case("SELECT COUNT(DISTINCT u) FILTER (WHERE i > 2) FROM t", ("i",), {"rows": 3}),
    Case("SELECT COUNT(DISTINCT COALESCE(k, 'Q')) FROM t GROUP BY s", ("k",), {"rows": 4}, tight=False),
    Case(
        "SELECT k, COUNT(DISTINCT CASE WHEN i > 2 THEN u END) FROM t GROUP BY k",
        ("k", "i"),
        {"rows": 3, "groups": 1},
    ),
    # keys that are not public
    Case("SELECT k, COUNT(*), AVG(x) FROM t GROUP BY k", ("k", "x"), {"domain": False}),
    Case("SELECT k, COUNT(*), AVG(x) FROM t GROUP BY k", ("k", "x"), {"domain": False, "unit": "row"}),
    # joins, which may repeat a row
    *(
        Case(f"SELECT {what} FROM t {join} JOIN p ON t.k = p.k{group}", ("k",), unit)
        for what in ("COUNT(*)", "SUM(w)")
        for join in ("INNER", "LEFT")
        for group in ("", " GROUP BY t.k")
        for unit in ({}, _ROW)
    ),
    Case("SELECT w, COUNT(*) FROM t JOIN p ON t.k = p.k GROUP BY w", ("k",), _ROW, max_groups=1, tight=False),
    Case("SELECT w, SUM(x) FROM t JOIN p ON t.k = p.k GROUP BY w", ("k", "x"), {}, max_groups=1),
    # shares of either sign, which a replacement can turn round
    Case("SELECT SUM(x - 1.5) FROM t GROUP BY k", ("k", "x"), {"neighbors": "replace"}),
    # narrowed bounds
    Case("SELECT SUM(x) FROM t WHERE x BETWEEN 0 AND 2", ("x",)),
    Case("SELECT SUM(i), AVG(x) FROM t WHERE i > 2 AND x < 1", ("x", "i")),
    Case("SELECT SUM(x), AVG(i) FROM t WHERE x >= 3 GROUP BY k ORDER BY 1", ("k", "x")),
    Case("SELECT AVG(x) FROM t WHERE x = 2", ("x",), tight=False),
    # pure accounting takes geometric noise, whose norm is l1
    Case("SELECT k, COUNT(*), AVG(x) FROM t GROUP BY k", ("k", "x"), {"accountant": "pure"}),
    *(
        Case(f"SELECT {sql} FROM t", _mentioned(sql), unit, tight=False)
        for sql in EXPRESSIONS.values()
        for unit in ({}, _ROW)
    ),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_neighbour_moves_a_statistic_beyond_its_sensitivity(case: Case) -> None:
    """Over neighbours: the change of each block is within its l1 and l2 sensitivity."""
    hold_to_the_law(case, most=100)


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_neighbour_in_a_long_search_moves_a_statistic_beyond_its_sensitivity(case: Case) -> None:
    """The same over ten times as many shares of a unit, or twice as many pairs of one unit's shares before and after a replacement.

    All shares of all cases would be tens of millions of pairs, days of the processor.
    """
    hold_to_the_law(case, most=140 if case.rules.get("neighbors") == "replace" else 1_000)


def hold_to_the_law(case: Case, most: int) -> None:
    """Asserts the law for one case over the shares of a unit, `most` of them."""
    world = World(policy(**case.rules))
    prepared = world.prepare(case.sql, case.max_groups)
    worst = largest(world, prepared, pairs_of(case, most))
    for found, bounds in zip(worst, derived(prepared.plan.vectors), strict=True):
        assert all(norm <= known for norm, known in zip(found, bounds, strict=True))
        if case.tight:
            names, twice = ("l1", "l2", "l∞"), (2, 4, 2)
            for norm, known, times, name in zip(found, bounds, twice, names, strict=True):
                assert times * norm >= known, (
                    f"the derived {name} sensitivity is more than twice what can happen"
                )


@pytest.mark.parametrize("unit", ["u", "row"])
def test_choice_of_groups_depends_on_the_unit_only(unit: str) -> None:
    """A unit's counted groups do not change when another unit comes or goes."""
    world = World(policy(unit=unit, domain=False))
    prepared = world.prepare("SELECT w + i AS g, SUM(x) FROM t JOIN p ON t.k = p.k GROUP BY g", max_groups=1)
    # Neighbouring rows differ, so that a choice by row number would show.
    others = tuple(DEFAULT._replace(u=number, x=4.0 if number % 2 else -1.0) for number in range(2, 42))
    worst = largest(world, prepared, [((DEFAULT, *others), others)])
    for (l1, *_), (most_l1, *_) in zip(worst, derived(prepared.plan.vectors), strict=True):
        assert l1 <= most_l1


@pytest.mark.parametrize(
    ("rows", "groups", "expected"), [(2, None, 2), (1, None, 1), (3, 1, 1), (3, 2, 2), (9, None, 4)]
)
def test_allowed_number_of_rows_counts(rows: int, groups: int | None, expected: int) -> None:
    """A unit with rows in more groups than may count still counts as much as it may."""
    world = World(policy(rows=rows, groups=groups, domain=False))
    prepared = world.prepare("SELECT s, COUNT(*) FROM t GROUP BY s")
    found = world.statistics(prepared, tuple(DEFAULT._replace(s=s) for s in ("a", "b", "c", "d")))
    block, weights = prepared.plan.get_estimator(ROWS)
    counted = (
        sum(w * cell for w, cell in zip(weights, cells[block], strict=True)) for cells in found.values()
    )
    assert sum(counted) == expected


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 2), (3, 3), (9, 3)])
@pytest.mark.parametrize("group", ["", " GROUP BY k"])
def test_allowed_number_of_values_counts(rows: int, expected: int, group: str) -> None:
    """As many of a unit's values count as its rows may, though more rows repeat them."""
    world = World(policy(rows=rows))
    prepared = world.prepare(f"SELECT COUNT(DISTINCT s) FROM t{group}")
    one = tuple(DEFAULT._replace(s=s) for s in ("a", "a", "a", "b", "c"))
    found = world.statistics(prepared, one)
    assert sum(cells[0][0] for cells in found.values()) == expected
    others = tuple(row._replace(u=number) for number, row in enumerate((*one, *one), 2))
    assert sum(cells[0][0] for cells in world.statistics(prepared, others).values()) == 3


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), SUM(x) FROM t",
        "SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k",
        "SELECT COUNT(DISTINCT k), COUNT(DISTINCT s) FROM t",
    ],
)
def test_rows_without_a_unit_do_not_count(sql: str) -> None:
    """A row whose unit id is NULL belongs to nobody and changes nothing."""
    world = World(policy())
    prepared = world.prepare(sql)
    rows = (DEFAULT, DEFAULT._replace(u=2, k="B"))
    nobody = DEFAULT._replace(u=None, k=None, s="of nobody")
    assert world.statistics(prepared, (*rows, nobody, nobody)) == world.statistics(prepared, rows)


def test_every_aggregate_is_tried() -> None:
    """The registry and this file name the same aggregates, except order statistics (`test_ranked`)."""
    tried = " ".join(case.sql for case in CASES)
    calls = {
        "count_rows": "COUNT(*)",
        "count": "COUNT(x)",
        "count_units": "COUNT(DISTINCT u)",
        "count_distinct": "COUNT(DISTINCT s)",
        "sum_distinct": "SUM(DISTINCT x)",
        "sum": "SUM(",
        "avg": "AVG(",
    }
    assert set(calls) == {
        name for name, entry in AGGREGATES.items() if Moment.ORDER_STATISTIC not in entry.moments
    }
    assert all(call in tried for call in calls.values())


def test_specials_are_among_the_values() -> None:
    """NaN, infinities, NULL and values beyond both bounds are tried, or the law says little."""
    assert any(value is not None and math.isnan(value) for value in X)
    assert {None, math.inf, -math.inf} <= set(X)
    assert min(value for value in X if value is not None) < -1
