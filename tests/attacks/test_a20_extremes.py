"""A20, extremes and members raw: one row's own value is never an aggregate."""

from __future__ import annotations

import math

import pytest
from attacks.naive import Naive
from worlds import Refused, Row, observed, person, world

from dpsql.planning.quantiles import QuantileSelection, RankWindow

CALLS = """
MIN(free) | MAX(free) | MIN(word) | MEDIAN(free) | QUANTILE_DISC(free, 0.5) | FIRST(cost) | LAST(cost) | ANY_VALUE(cost) | ARBITRARY(cost) | MIN(cost, 3)
LIST(cost) | ARRAY_AGG(cost) | STRING_AGG(word, ',') | GROUP_CONCAT(word) | LISTAGG(word) | HISTOGRAM(word)
ARG_MIN(word, cost) | ARG_MAX(word, cost) | MIN_BY(word, cost) | MAX_BY(word, cost) | BIT_AND(age) | BIT_OR(age)
BIT_XOR(age) | BOOL_AND(member) | BOOL_OR(member) | EVERY(member) | PRODUCT(cost) | GEOMEAN(cost) | ENTROPY(word)
APPROX_TOP_K(word, 3)
RESERVOIR_QUANTILE(cost, 0.5)
BITSTRING_AGG(age) | MAP(LIST(id), LIST(cost))
PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY free) | PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY cost, age)
SUM(cost) OVER () | FIRST_VALUE(cost) OVER () | LAG(cost) OVER (ORDER BY id) | RANK() OVER (ORDER BY cost)
SUM(cost ORDER BY id) | MAX(cost ORDER BY id) | FIRST(cost) FILTER (id = 1) | JSON_GROUP_ARRAY(cost)
LIST(people) | STRUCT_PACK(a := MAX(cost)) | MAX(people) | UNNEST(LIST(cost)) | SUM(MAX(cost)) | MAX(SUM(cost))
COLUMNS(*) | * | people.* | * EXCLUDE (id) | MAX(COLUMNS(*)) | cost | DISTINCT ON (city) cost
""".replace("\n", "|").split("|")
CALLS = [call.strip() for call in CALLS if call.strip()]


@pytest.mark.parametrize(
    "extreme", ["MAX(free)", "QUANTILE_DISC(free, 1.0)", "ARG_MAX(free, age)", "LAST(free ORDER BY id)"]
)
def test_careless_engine_reveals_the_richest(extreme: str, rows: list[Row]) -> None:
    """The attack works where an extreme is noised like a count: one person's value is its answer, near enough."""
    sql, fortune = f"SELECT {extreme} FROM people", 5e8
    assert Naive(world(*rows, person(99, free=fortune, age=109))).number(sql) == pytest.approx(
        fortune, abs=50
    )
    assert Naive(world(*rows)).number(sql) < fortune / 2


@pytest.mark.parametrize("call", CALLS)
def test_members_and_extremes_are_refused(call: str, refused: Refused) -> None:
    """Extremes are refused alone, in groups, arithmetic, HAVING and ORDER BY, without a charge."""
    refused(f"SELECT {call} FROM people")
    refused(f"SELECT city, COUNT(*), {call} FROM people GROUP BY city")
    if "DISTINCT" not in call[:9] and "*" not in call:
        refused(f"SELECT COUNT(*) FROM people HAVING {call} IS NOT NULL")
        refused(f"SELECT COUNT(*) FROM people ORDER BY {call}")


def test_limit_and_sort_release_no_rows(refused: Refused) -> None:
    """LIMIT and ORDER BY over rows, set operations and row-wise tricks release no row."""
    for sql in (
        "SELECT cost FROM people ORDER BY cost DESC LIMIT 1",
        "FROM people LIMIT 1",
        "SELECT COUNT(*) FROM people UNION ALL SELECT cost FROM people",
        "SELECT id, COUNT(*) FROM people GROUP BY id",
    ):
        refused(sql)


def test_extreme_is_selected_among_all_points() -> None:
    """The richest person makes no value of MAX more likely than the charge allows, and none impossible."""
    sql = "SELECT MAX(cost) FROM people"
    chances = []
    for rows in ([person(1), person(2)], [person(1), person(2), person(3, cost=100.0)]):
        with world(*rows) as con:
            (release,) = con.explain(sql, epsilon=1).prepared.releases
            (row,) = con.engine.backend.run_statement(release.statement.sql).reveal()
        (ranked,) = release.plan.quantiles
        regions = ranked.list_regions(RankWindow.from_packed(row[-1]))
        rate, lattice = float(ranked.mechanism.rate), ranked.lattice
        at = [
            next(
                math.exp(-rate * penalty) for start, size, penalty in regions if start <= point < start + size
            )
            for point in range(lattice.low, lattice.high + 1, lattice.width // 1000)
        ]
        total = sum(size * math.exp(-rate * penalty) for _, size, penalty in regions)
        chances.append([weight / total for weight in at])
    losses = [abs(math.log(ours / theirs)) for ours, theirs in zip(*chances, strict=True)]
    assert (
        0
        < max(losses)
        <= float(ranked.mechanism.compute_range(QuantileSelection.compute_step_range(ranked.rank)))
    )


def test_clamp_reveals_no_extreme() -> None:
    """Bounds chosen by the analyst are noised like any: a tight clamp around one row shows nothing of it."""
    sql = "SELECT SUM(LEAST(GREATEST(cost, 99.4), 99.6)) FROM people"
    ours = observed(world(person(1), person(2, cost=99.5)), sql)
    theirs = observed(world(person(1)), sql)
    assert ours[0] == theirs[0]
    assert ours[1] != theirs[1]
