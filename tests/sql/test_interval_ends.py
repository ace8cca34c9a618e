"""DP_INTERVAL_LOW and DP_INTERVAL_HIGH: the ends that the result's own intervals have, at no charge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worlds import COLUMNS, Row, close_all, person, spent, words_drawn, world

import dpsql
from dpsql.engine.intervals.cells import CONFIDENCE

AGGREGATES = {
    "rows": "COUNT(*)",
    "values": "COUNT(word)",
    "units": "COUNT(DISTINCT id)",
    "sum": "SUM(cost)",
    "whole sum": "SUM(age)",
    "mean": "AVG(cost)",
    "chosen": "SUM(age) FILTER (WHERE member)",
}
PEOPLE: list[Row] = [
    person(who, city=("Bonn", "Kiel")[who % 2], age=who % 90, cost=who / 3) for who in range(200)
]
BUDGETS = {
    "zcdp": {"epsilon": 100, "delta": 1e-6},
    "pure": {"epsilon": 100, "accountant": "pure"},
}


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@pytest.mark.parametrize("accountant", BUDGETS)
@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=AGGREGATES)
@pytest.mark.parametrize("keys", ["", "city, ", "word, "])
def test_interval_ends_match_the_result(keys: str, aggregate: str, accountant: str) -> None:
    """For each aggregate, key and accountant they are what `Result.intervals` says of the same cell."""
    if accountant == "pure" and keys == "word, ":
        keys = "member, "
    group = f" GROUP BY {keys.rstrip(', ')}" if keys else ""
    result = world(*PEOPLE, budget=BUDGETS[accountant]).query(
        f"SELECT {keys}{aggregate} AS x, DP_INTERVAL_LOW(x), DP_INTERVAL_HIGH({aggregate}) FROM people{group}"
    )
    assert len(result) > 0
    for row, intervals in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
        assert row[-2:] == intervals[-3]
        assert intervals[-2:] == (None, None)


FACTORS = {
    "a factor": "2 * SUM(cost)",
    "a shift": "COUNT(*) - 100",
    "a sign": "-AVG(cost)",
    "turned round": "100 - AVG(cost) / 4",
    "cast": "CAST(SUM(age) AS DOUBLE) * -3 + 1",
}


@pytest.mark.parametrize("above", [False, True], ids=["beside it", "above it"])
@pytest.mark.parametrize("expression", FACTORS.values(), ids=FACTORS)
def test_factor_and_shift_apply_to_the_ends(expression: str, above: bool) -> None:
    """The ends are those that the result has for the same cell, the low one below the high one."""
    released = f"SELECT city, {expression} AS x FROM people GROUP BY city"
    ends = "DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high"
    sql = (
        f"SELECT x, {ends} FROM ({released}) ORDER BY city"
        if above
        else f"SELECT {expression} AS x, {ends} FROM people GROUP BY city"
    )
    result = world(*PEOPLE).query(sql)
    assert len(result) > 1
    for (value, low, high), (found, *_) in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
        assert (low, high) == pytest.approx(found)
        assert value is None or low < value < high  # type: ignore[operator]


COMPUTED = {
    "a ratio": "SUM(cost) / COUNT(*)",
    "a share": "100.0 * COUNT_IF(member) / COUNT(*)",
    "a difference": "SUM(cost) - 2 * SUM(age)",
    "a deviation": "STDDEV(cost)",
    "beside a key": "SUM(cost) / LENGTH(city)",
    "a choice": "GREATEST(SUM(cost), 30 * COUNT(*))",
}


@pytest.mark.parametrize("above", [False, True], ids=["beside it", "above it"])
@pytest.mark.parametrize("accountant", BUDGETS)
@pytest.mark.parametrize("expression", COMPUTED.values(), ids=COMPUTED)
def test_expressions_over_a_row_have_the_ends_of_the_result(
    expression: str, accountant: str, above: bool
) -> None:
    """The simulated ends are those that the result has for the same cell, at the price of the values alone."""
    released = f"SELECT city, {expression} AS x FROM people GROUP BY city"
    ends = "DP_INTERVAL_LOW(x) AS low, DP_INTERVAL_HIGH(x) AS high"
    sql = (
        f"SELECT x, {ends} FROM ({released}) ORDER BY city"
        if above
        else f"SELECT {expression} AS x, DP_INTERVAL_LOW(x), DP_INTERVAL_HIGH({expression}) FROM people GROUP BY city"
    )
    plain, bounded = (world(*PEOPLE, budget=BUDGETS[accountant]) for _ in range(2))
    result = bounded.query(sql)
    shown = 0
    for (value, *found), (known, *_) in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
        assert tuple(found) == (known or (None, None))
        if known is not None:
            shown += 1
            assert found[0] <= value <= found[1]  # type: ignore[operator]
    assert shown >= 2
    plain.query(released)
    assert words_drawn(plain) == words_drawn(bounded)
    assert spent(plain) == spent(bounded) == 1


def test_values_without_a_noise_law_have_no_interval() -> None:
    """Text, values in order and several rows are refused before a charge; what has no law where it stands is NULL."""
    connection = world(*PEOPLE)
    for asked in (
        "DP_INTERVAL_LOW(MEDIAN(cost) / COUNT(*))",
        "DP_INTERVAL_LOW(CAST(COUNT(*) AS VARCHAR))",
        "DP_INTERVAL_LOW(DP_INTERVAL_LOW(COUNT(*)) + COUNT(*))",
        "DP_INTERVAL_LOW(COUNT(*) > 5)",
        "DP_INTERVAL_LOW(LENGTH(city))",
        "DP_INTERVAL_LOW(1 + 2)",
    ):
        with pytest.raises(dpsql.QueryRejected):
            connection.query(f"SELECT city, {asked} FROM people GROUP BY city")
    assert spent(connection) == 0
    many = "GREATEST(COUNT(*), SUM(age), SUM(cost), AVG(age), AVG(cost))"
    result = connection.query(f"SELECT {many} AS x, DP_INTERVAL_LOW(x) FROM people")
    assert result.rows[0][1] is None
    assert result.intervals()[0] == (None, None)


def test_interval_ends_are_free_and_draw_nothing() -> None:
    """A query with ends charges the same, draws the same words and gives the same values as one without."""
    plain, bounded = world(*PEOPLE), world(*PEOPLE)
    without = plain.query("SELECT city, COUNT(*) AS n, AVG(cost) AS c FROM people GROUP BY city")
    with_ends = bounded.query(
        "SELECT city, COUNT(*) AS n, AVG(cost) AS c, DP_INTERVAL_LOW(n), DP_INTERVAL_HIGH(c) "
        "FROM people GROUP BY city"
    )
    assert [row[:3] for row in with_ends.rows] == list(without.rows)
    assert words_drawn(plain) == words_drawn(bounded)
    assert spent(plain) == spent(bounded) == 1
    assert [entry["loss"] for entry in without.receipt.entries] == [
        entry["loss"] for entry in with_ends.receipt.entries
    ]
    assert without.receipt.mechanisms == with_ends.receipt.mechanisms


def test_ends_are_the_same_above_a_subquery() -> None:
    """Ends above a derived table, or twice, are those within it: one release."""
    connection = world(*PEOPLE)
    result = connection.query(
        "WITH t AS (SELECT city, AVG(cost) AS c, DP_INTERVAL_LOW(c) AS low FROM people GROUP BY city) "
        "SELECT a.low, DP_INTERVAL_LOW(a.c), DP_INTERVAL_LOW(b.c), DP_INTERVAL_HIGH(b.c), b.c "
        "FROM t AS a JOIN t AS b ON a.city = b.city ORDER BY a.city"
    )
    assert spent(connection) == 1
    assert len(result) == 2
    for inner, left, right, high, value in result.rows:
        assert inner == left == right < value < high


def test_ends_may_filter_and_order_released_rows() -> None:
    """HAVING, ORDER BY and arithmetic read them like any released value."""
    query = "SELECT city, DP_INTERVAL_LOW(COUNT(*)) AS low FROM people GROUP BY city HAVING low {} 50 ORDER BY low DESC"
    large, small = (world(*PEOPLE).query(query.format(sign)).rows for sign in (">", "<"))
    assert {city for city, _ in large} == {"Bonn", "Kiel"}
    assert [low for _, low in large] == sorted((low for _, low in large), reverse=True)
    assert small == ()


@pytest.mark.parametrize("accountant", BUDGETS)
def test_without_noise_both_ends_are_the_mean(accountant: str) -> None:
    """Nothing lies between the ends at a loss that leaves no noise."""
    budget = BUDGETS[accountant] | {"epsilon": 10**30}
    result = world(*PEOPLE, budget=budget).query("SELECT AVG(cost) AS c FROM people", epsilon=10**15)
    (((value,),), ((ends,),)) = result.rows, result.intervals()
    assert ends == pytest.approx((value, value))


def test_row_without_a_join_partner_has_no_interval() -> None:
    """The ends are NULL for a public row without a released row."""
    result = world(*PEOPLE).query(
        "SELECT r.city, DP_INTERVAL_LOW(n), DP_INTERVAL_HIGH(n) "
        "FROM (VALUES ('Bonn'), ('Rome')) AS r(city) "
        "LEFT JOIN (SELECT city AS c, COUNT(*) AS n FROM people GROUP BY city) ON c = r.city ORDER BY 1"
    )
    (bonn, low, high), rome = result.rows
    assert bonn == "Bonn"
    assert low < 100 < high
    assert rome == ("Rome", None, None)


def test_star_shows_no_hidden_columns() -> None:
    """`*` means the columns that the subquery names, without their stored ends."""
    result = world(*PEOPLE).query(
        "SELECT *, DP_INTERVAL_LOW(n) AS low FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city) AS t"
    )
    assert result.columns == ("city", "n", "low")


def test_explain_describes_interval_ends() -> None:
    """EXPLAIN shows the interval's end, not the name of a hidden column of the released table."""
    connection = world(*PEOPLE)
    text = str(connection.explain("SELECT AVG(cost) AS c, DP_INTERVAL_HIGH(c) AS high FROM people"))
    assert "DP_INTERVAL_HIGH(AVG(cost)) AS high" in text
    assert spent(connection) == 0


@pytest.mark.parametrize("accountant", BUDGETS)
def test_ends_of_quantiles_are_selected_with_them(accountant: str) -> None:
    """Each is a choice of its own, which takes an equal part of the loss; the result's intervals are from end to end."""
    connection = world(*PEOPLE, budget=BUDGETS[accountant])
    asked = (
        "SELECT city, MEDIAN(cost) AS m, DP_INTERVAL_LOW(m) AS low, DP_INTERVAL_HIGH(MEDIAN(cost)) AS high"
    )
    result = connection.query(f"{asked} FROM people GROUP BY city")
    alone = connection.query("SELECT city, MEDIAN(cost) AS m FROM people GROUP BY city")
    assert spent(connection) == 2
    assert [mechanism["statistic"] for mechanism in result.receipt.mechanisms] == [
        "x0 at rank 0.5",
        "x0 at rank 0.5, the lower end of its interval",
        "x0 at rank 0.5, the upper end of its interval",
    ]
    for (_, value, low, high), (_, interval, *others) in zip(result.rows, result.intervals(), strict=True):
        assert interval == (min(value, low, high), max(value, low, high))
        assert others == [None, None]
    assert all(interval is None for row in (*alone.intervals(), *result.intervals(0.96)) for interval in row)
    assert result.intervals(0.5) == result.intervals()


def test_ends_of_quantiles_follow_linear_functions() -> None:
    """A factor below zero takes the other end, and twice the same end is one choice."""
    connection = world(*PEOPLE)
    result = connection.query(
        "SELECT 10 - 2 * MAX(age) AS y, DP_INTERVAL_LOW(y), 10 - 2 * DP_INTERVAL_HIGH(MAX(age)) FROM people",
        epsilon=2,
    )
    (_, low, same), *_ = result.rows
    assert low == same == 10 - 2 * 110
    assert [mechanism["noise"] for mechanism in result.receipt.mechanisms][1:] == [
        "the bound itself, which is public"
    ]
    alone = connection.query(
        "SELECT DP_INTERVAL_HIGH(MEDIAN(age)), 2 * DP_INTERVAL_HIGH(MEDIAN(age)) FROM people"
    )
    assert [mechanism["statistic"] for mechanism in alone.receipt.mechanisms] == [
        "x0 at rank 0.5, the upper end of its interval"
    ]
    assert alone.rows[0][1] == 2 * alone.rows[0][0]
    with pytest.raises(dpsql.QueryRejected, match="one quantile, or an alias of these"):
        connection.query("SELECT DP_INTERVAL_LOW(m) FROM (SELECT MEDIAN(age) AS m FROM people) AS t")


@pytest.mark.parametrize("bounds", [[0, 1], [0.7, 1], [-3, 0.7]])
def test_interval_of_a_quantile_covers_values_between_lattice_points(bounds: list[float]) -> None:
    """The truth is within the ends with hardly any noise, in SQL as in the result."""
    connection = world(
        *(person(who, cost=0.7) for who in range(50)),
        columns={**COLUMNS, "cost": ("DOUBLE", {"type": "double", "bounds": bounds})},
        budget={"epsilon": 10**9, "accountant": "pure"},
    )
    result = connection.query(
        "SELECT MEDIAN(cost) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM people", epsilon=10**6
    )
    ((_, low, high),), ((ends, *_),) = result.rows, result.intervals()
    assert ends == (low, high)
    assert bounds[0] <= low <= 0.7 <= high <= bounds[1]
    assert high - low < 1e-5
