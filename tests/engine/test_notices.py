"""Notices say what of a statement or an answer needs attention, and read nothing that is not released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import duckdb
import pytest
from entropy import SeededEntropy

import dpsql
from dpsql.api.connection import Connection
from dpsql.interfaces.shell.answers import AnswerFormat, View, format_answer
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "customer",
    "budget": {"epsilon": 10_000, "delta": 1e-6},
    "tables": {
        "orders": {
            "unit": "customer",
            "rows_per_unit": 2,
            "columns": {
                "country": {"type": "varchar", "values": ["DE", "FR", "United Kingdom"]},
                "city": {"type": "varchar"},
                "hour": {"type": "integer", "bounds": [0, 23]},
                "price": {"type": "double", "bounds": [0, 1000]},
                "day": {"type": "date", "bounds": ["2024-02-01", "2024-12-31"]},
            },
        },
        "cities": {"public": True},
    },
}


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """400 customers with two orders each; each twentieth price is above its bounds."""
    with duckdb.connect() as opened:
        opened.execute(
            """
            CREATE TABLE orders AS SELECT
                i // 2 AS customer, ['DE', 'FR'][1 + i % 2] AS country, 'city ' || i // 2 AS city, i % 24 AS hour,
                CASE WHEN i % 20 = 0 THEN 5000e0 ELSE 10e0 + i % 80 END AS price, DATE '2024-02-01' AS day
            FROM range(800) AS rows(i);
            CREATE TABLE cities AS SELECT 'city ' || i AS name, i AS height FROM range(400) AS rows(i);
            """
        )
        yield opened


@pytest.fixture
def con(database: duckdb.DuckDBPyConnection) -> Iterator[Connection]:
    """A connection with a ledger of its own."""
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=1) as opened:
        yield opened


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            "country = 'UK'",
            ["'UK' is not among the values that the policy lists for country: DE, FR, United"],
        ),
        ("'UK' <> country", ["'UK' is not among the values"]),
        ("country IN ('DE', 'UK', 'IT')", ["'UK' is not among", "'IT' is not among"]),
        ("NOT country IN ('UK')", ["'UK' is not among"]),
        ("country IS DISTINCT FROM 'UK'", ["'UK' is not among"]),
        ("country = 'United Kingdon'", ["Did you mean United Kingdom?"]),
        (
            "hour = 24 OR country = 'DE'",
            ["24 in (hour = 24) is out of reach: hour is in [0, 23], and values beyond"],
        ),
        ("hour > 23", ["23 in (hour > 23)"]),
        ("hour >= 23", []),
        ("hour < 0", ["0 in (hour < 0)"]),
        ("hour <= 0", []),
        ("0 > hour", ["0 in (0 > hour)"]),
        ("23 < hour", ["23 in (23 < hour)"]),
        ("23 <= hour", []),
        ("hour BETWEEN 30 AND 40", ["30 in (hour >= 30)"]),
        ("hour NOT IN (1, 24)", ["24 in (hour IN (1, 24))"]),
        ("price = 1000.5", ["out of reach: price is in [0, 1000]"]),
        ("day > DATE '2024-12-31'", ["out of reach: day is in [2024-02-01, 2024-12-31]"]),
        ("day > DATE '2024-12-30'", []),
        ("country IN ('DE', NULL) AND country IS NOT NULL", []),
        ("city = 'nowhere' AND hour <> 1 AND hour < 100 AND price >= -5", []),
        ("city IN (SELECT name FROM cities WHERE height = -1)", []),
    ],
)
def test_excluded_constant_is_noticed_before_the_charge(
    con: Connection, condition: str, told: list[str]
) -> None:
    """EXPLAIN, a forecast and the answer have a notice for each, from the policy and the statement alone."""
    sql = f"SELECT COUNT(*) FROM orders WHERE {condition}"
    explained = con.explain(sql)
    assert len(explained.notices) == len(told)
    for notice, words in zip(explained.notices, told, strict=True):
        assert words in notice
        assert notice in str(explained)
        assert f"1: {notice}" in str(con.budget([sql]))
    assert con.budget()["orders"].spent.loss == 0
    assert con.query(sql, epsilon=1).notices[: len(told)] == explained.notices


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT country, COUNT(*) FROM orders GROUP BY country HAVING country = 'UK'",
        "SELECT CASE country WHEN 'UK' THEN 1 ELSE 0 END AS here, COUNT(*) FROM orders GROUP BY here",
        "SELECT COUNT(*) FILTER (country = 'UK') FROM orders",
        "SELECT SUM(CASE WHEN country = 'UK' THEN price ELSE 0 END) FROM orders",
        "SELECT COUNT(*) FROM (SELECT country AS c FROM orders) WHERE c = 'UK'",
        "SELECT COUNT(*) FROM orders WHERE hour > (SELECT AVG(hour) FROM orders WHERE country = 'UK')",
        "SELECT COUNT(*) FROM orders WHERE country = ?",
    ],
)
def test_excluded_constant_is_noticed_in_every_clause(con: Connection, sql: str) -> None:
    """Once, however often it stands there."""
    explained = con.explain(sql, ["UK"] if "?" in sql else [])
    (notice,) = explained.notices
    assert "'UK' is not among the values" in notice


def test_answer_without_groups_explains_why(con: Connection) -> None:
    """With the threshold that EXPLAIN states, and what helps."""
    sql = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
    answer = con.query(sql, epsilon="0.1", delta="1e-12")
    (notice,) = answer.notices
    assert answer.rows == ()
    threshold = notice.split(", so ")[1].split(". A larger")[0]
    assert threshold.startswith("a group is released if its noisy count is at least ")
    assert f"not public; {threshold}" in str(con.explain(sql, epsilon="0.1", delta="1e-12", replay=False))
    assert notice in str(answer)
    assert notice in answer._repr_html_()
    shown = con.query("SELECT country, COUNT(*) AS n FROM orders GROUP BY country HAVING n < 0", epsilon=100)
    assert (shown.rows, shown.notices) == ((), ())


def test_withheld_groups_are_noticed() -> None:
    """By the threshold, by shown groups near it, by the number of listed keys, and by the share of rows where all are counted."""
    data = duckdb.connect()
    data.execute(
        "CREATE TABLE t AS SELECT g * 1000 + i AS id, 'group ' || g AS k, g AS j FROM range(40) a(g), range(2 + g * g // 8) b(i)"
    )
    columns = {"k": {"type": "varchar"}, "j": {"type": "integer", "values": [*range(40)], "nullable": False}}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 100, "delta": 1e-5},
        "tables": {"t": {"unit": "id", "rows_per_unit": 1, "min_frequency": 20, "columns": columns}},
    }
    with dpsql.connect(data, policy=policy, ledger=":memory:", epsilon=4) as con:
        plain = con.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        (notice,) = (notice for notice in plain.notices if notice.startswith("Groups may be missing"))
        assert "a group is released if its noisy count is at least" in notice
        assert f" of the {len(plain)} shown have a count below twice that" in notice
        assert "of the rows" not in notice
        rolled = con.query("SELECT k, COUNT(*) AS n FROM t GROUP BY ROLLUP (k)")
        (notice,) = (notice for notice in rolled.notices if notice.startswith("Groups may be missing"))
        missing = sum(
            2 + g * g // 8 for g in range(40) if f"group {g}" not in {row[0] for row in rolled.rows}
        )
        share = missing / sum(2 + g * g // 8 for g in range(40))
        said = notice.split("About ")[1].split("%")[0]
        assert abs(int(said) / 100 - share) < 0.03
        listed = con.query("SELECT j, COUNT(*) AS n FROM t GROUP BY j")
        hidden = 40 - len(listed)
        assert any(f"{hidden} of 40 listed groups ({hidden / 40:.0%})" in one for one in listed.notices)


def test_withheld_keys_are_noticed_without_aggregates(database: duckdb.DuckDBPyConnection) -> None:
    """Under `pure` they are selected by a mechanism of their own."""
    policy = {**POLICY, "budget": {"epsilon": 100, "delta": 1e-6, "accountant": "pure"}}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon="0.1") as con:
        answer = con.query("SELECT DISTINCT city FROM orders", delta="1e-12", max_groups=1)
    assert answer.rows == ()
    assert "is released with probability 1/2" in answer.notices[0]


def test_clamped_units_are_noticed_if_they_matter(
    database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many units may be beyond it, of how many if these are counted; nothing where little is or can be cut off.

    With the same draws in each run, as a clamp is so high by chance that more or less is cut off in one choice of a thousand.
    """
    policy: dict[str, Any] = {
        **POLICY,
        "tables": {"orders": {**POLICY["tables"]["orders"], "rows_per_unit": 500}},
    }
    with dpsql.connect(database, policy=policy, ledger=":memory:", replay=False) as con:
        monkeypatch.setitem(vars(con.engine), "entropy", SeededEntropy(1))
        counted = con.query("SELECT COUNT(DISTINCT customer), SUM(price) FROM orders", epsilon=8)
        alone = con.query("SELECT SUM(price) FROM orders", epsilon=8)
        sharp = con.query("SELECT SUM(price) FROM orders", epsilon=5_000)
        mean = con.query("SELECT AVG(price) FROM orders", epsilon=8)
    (beyond,) = (each["clamp"]["beyond"] for each in counted.receipt.mechanisms if "clamp" in each)
    ((customers, total),), (_, ends) = counted.rows, counted.intervals()[0]
    about = f"Up to {min(beyond, max(1, customers)):,} of about {max(1, customers):,} units"
    assert any(each.startswith(f"{about} contribute more to SUM(price) than ") for each in counted.notices)
    assert ends
    assert ends[1] - total > total - ends[0]
    assert any(" units contribute more to SUM(price) than " in each for each in alone.notices)
    assert not any("contribute" in each for each in (*sharp.notices, *mean.notices))


def test_mostly_noisy_values_are_noticed(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one value what its interval is, of several in how many rows; nothing where noise is small.

    With the same draws in each run, as more than 3 of 24 cells of noise miss their 95% intervals in 1 of 30 runs.
    """
    monkeypatch.setitem(vars(con.engine), "entropy", SeededEntropy(1))
    one = con.query("SELECT COUNT(*) AS n FROM orders WHERE hour = 5 AND price > 70", epsilon="0.001")
    half = (one.intervals()[0][0][1] - one.intervals()[0][0][0]) / 2
    assert half > 100 * 5
    if abs(one.rows[0][0]) < half:
        assert one.notices[-1].startswith("Most of n is noise: its 95% interval is ")
    many = con.query(
        "SELECT hour, COUNT(*) AS n, AVG(price) AS mean FROM orders GROUP BY hour", epsilon="0.001"
    )
    poor = sum(
        abs(row[1]) <= (ends[1][1] - ends[1][0]) / 2
        for row, ends in zip(many.rows, many.intervals(), strict=True)
    )
    assert poor > 20
    assert any(f"Most of n is noise: in {poor} of {len(many.rows)} rows" in notice for notice in many.notices)
    for sql in (
        "SELECT COUNT(*) FROM orders",
        "SELECT country, AVG(price) FROM orders WHERE country <> 'United Kingdom' GROUP BY country",
    ):
        assert con.query(sql, epsilon=100).notices == ()


@pytest.mark.parametrize(
    "sql", ["SELECT SUM(LENGTH(country)) FROM orders", "SELECT AVG(LENGTH(country)) FROM orders"]
)
def test_default_bounds_are_noticed_if_noise_is_large(
    con: Connection, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is computed, with the way out; not of what has bounds. With the same draws in each run."""
    monkeypatch.setitem(vars(con.engine), "entropy", SeededEntropy(1))
    far = [notice for notice in con.query(sql, epsilon="0.1").notices if " has the bounds " in notice]
    anything = "LENGTH(country) has the bounds [0, 4294967296], and the noise grows with them"
    assert far == [f"{anything}: narrower bounds help, as in LEAST(LENGTH(country), 100)."]
    bounded = sql.replace("LENGTH(country)", "LEAST(LENGTH(country), 100)")
    for near in (bounded, "SELECT SUM(price) FROM orders"):
        assert not any("has the bounds" in notice for notice in con.query(near, epsilon="0.0001").notices)


def test_noise_in_values_without_intervals_is_noticed(con: Connection) -> None:
    """Truth values, texts and lists of noisy counts have no interval; group keys and quantiles have no such notice."""
    told = "has noise, and no interval is known"
    for sql in (
        "SELECT COUNT(*) > 100 AS y FROM orders",
        "SELECT hour, CASE WHEN COUNT(*) > 100 THEN 'many' ELSE 'few' END AS y FROM orders GROUP BY hour",
        "SELECT CAST(COUNT(*) AS VARCHAR) AS y FROM orders",
        "SELECT HISTOGRAM(hour) AS y FROM orders",
    ):
        assert any(notice.startswith(f"y {told}") for notice in con.query(sql).notices), sql
    for sql in (
        "SELECT country, MIN(day), MEDIAN(price), COUNT(*) FROM orders GROUP BY country",
        "SELECT country || '!' AS c, COUNT(*) AS n FROM orders GROUP BY country",
        "SELECT QUANTILE_DISC(day, [0.25, 0.75]), COUNT(*) FROM orders",
    ):
        assert not any(told in notice for notice in con.query(sql).notices), sql


def test_regression_terms_are_named_by_their_columns(con: Connection) -> None:
    """The query has no such expression, so that nobody would know what to narrow."""
    notices = con.query("SELECT REGR_SLOPE(price, price * 1000) FROM orders", epsilon="0.0001").notices
    (far, *_) = (notice for notice in notices if " has the bounds " in notice)
    assert far.startswith("The summed expression of price has the bounds [")
    assert far.endswith("as in LEAST(price, 100).")


def test_selection_of_groups_is_not_noticed_as_noise(con: Connection) -> None:
    """It is not measured, so that nothing is known of its noise: what is said is how far from the best a group may be."""
    answer = con.query("SELECT hour FROM orders GROUP BY hour ORDER BY SUM(price) DESC LIMIT 2")
    assert len(answer.rows) == 2
    assert sum("no selected score is more than" in notice for notice in answer.notices) == 1
    assert not any("noise" in notice for notice in answer.notices)


def test_negligible_noise_is_not_noticed(con: Connection) -> None:
    """A zero whose interval is a point is no noise."""
    answer = con.query("SELECT COUNT(*) FROM orders WHERE price > 1 AND price < 2", epsilon=1000)
    assert (answer.rows, answer.notices) == (((0,),), ())


def test_quantile_at_its_bounds_is_noticed(con: Connection) -> None:
    """Values beyond count as the bound; ends of a few whole numbers, of public columns and of the middle are no news."""
    answer = con.query("SELECT MAX(price), MEDIAN(price), MAX(hour) FROM orders", epsilon=300)
    (notice,) = (notice for notice in answer.notices if "is at an end" in notice)
    assert "MAX(price)" in notice
    assert "is at an end of its bounds [0, 1000]" in notice
    (last,) = (
        notice for notice in con.query("SELECT MIN(day) FROM orders", epsilon=300).notices if "end" in notice
    )
    assert "MIN(day) is at an end of its bounds [2024-02-01, 2024-12-31]: values beyond" in last
    groups = con.query("SELECT country, MAX(price) FROM orders GROUP BY country", epsilon=300)
    assert any(" in 1 of 4 groups" in notice or " in 2 of 4 groups" in notice for notice in groups.notices)
    public = con.query("SELECT MAX(height) FROM orders JOIN cities ON city = name", epsilon=300)
    assert not any("is at an end" in notice for notice in public.notices)


def test_quantile_without_interval_names_its_rank_error(con: Connection) -> None:
    """As `explain` does; not where its ends stand beside it, or where no value is in between."""
    beside = "SELECT {0} AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM orders"
    for call in ("MEDIAN(price)", "MIN(price)", "MAX(price)", "QUANTILE_CONT(price, 0.9)", "MAX(day)"):
        alone = con.query(f"SELECT {call} FROM orders", epsilon=1)
        (notice,) = (notice for notice in alone.notices if " between " in notice)
        within = int(notice.removeprefix("At most ").split(" ")[0].replace(",", ""))
        assert f"between {call} and the true one" in notice
        assert 1 <= within <= 500
        for sql, epsilon in ((f"SELECT {call} FROM orders", 500), (beside.format(call), 1)):
            answer = con.query(sql, epsilon=epsilon)
            assert not any(" between " in notice for notice in answer.notices)


def test_noise_notice_has_the_half_width_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an interval ends at a bound, too, the value with it on both sides encloses the interval.

    With the same draws in each run, as by chance one value of 30 is above its half-width.
    """
    data = duckdb.connect()
    data.execute("CREATE TABLE t AS SELECT i AS id, 'x' AS s FROM range(1000) r(i)")
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 100, "accountant": "pure"},
        "tables": {"t": {"unit": "id", "rows_per_unit": 1, "columns": {"s": {"type": "varchar"}}}},
    }
    with dpsql.connect(data, policy=policy, ledger=":memory:") as connection:
        monkeypatch.setitem(vars(connection.engine), "entropy", SeededEntropy(4))
        answer = connection.query("SELECT AVG(LENGTH(s)) AS n FROM t", epsilon=1)
    ((value,),), ((ends,),) = answer.rows, answer.intervals()
    assert ends is not None
    assert ends[0] == 0 < value
    (notice,) = (notice for notice in answer.notices if notice.startswith("Most of n is noise"))
    half = float(notice.split(" ± ")[1].split(" ")[0].removesuffix(".").replace(",", ""))
    assert float(value) - half - 1 <= ends[0] <= ends[1] <= float(value) + half + 1


def test_notices_depend_on_released_values_alone(
    con: Connection, database: duckdb.DuckDBPyConnection
) -> None:
    """What is answered again has the same notices, whatever the data is meanwhile."""
    asked = [
        "SELECT city, COUNT(*) AS n FROM orders GROUP BY city",
        "SELECT hour, COUNT(*) AS n FROM orders GROUP BY hour",
        "SELECT MAX(price) FROM orders WHERE country = 'UK' OR hour > 1",
    ]
    before = [con.query(sql, epsilon="0.01") for sql in asked]
    assert all(answer.notices for answer in before[:2])
    database.execute("DELETE FROM orders WHERE customer > 3")
    after = [con.query(sql, epsilon="0.01") for sql in asked]
    assert all(answer.receipt.replayed for answer in after)
    assert [answer.notices for answer in after] == [answer.notices for answer in before]


def test_shell_and_data_formats_show_notices(con: Connection) -> None:
    """Under a table, and as a list in JSON; a receipt stays what the ledger can be held against."""
    sql = "SELECT COUNT(*) FROM orders WHERE country = 'UK'"
    session = Session(SessionState(con, epsilon=1))  # type: ignore[arg-type]
    (reply,) = session.iterate_replies(f"{sql};")
    assert "'UK' is not among the values" in reply.text
    answer = con.query(sql, epsilon=1)
    data = json.loads(format_answer(answer, AnswerFormat.JSON, View()))
    assert data["notices"] == list(answer.notices) != []
    assert data["receipt"]["notices"] == []


def test_receipts_with_notices_are_verified(database: duckdb.DuckDBPyConnection, tmp_path: Any) -> None:
    """What the answer needs attention for is no part of what the ledger is asked to vouch for."""
    book = tmp_path / "orders.ledger"
    with dpsql.connect(database, policy=POLICY, ledger=str(book), epsilon=1) as con:
        answer = con.query("SELECT COUNT(*) FROM orders WHERE country = 'UK'")
    assert answer.notices
    with closing(LedgerReader.open(str(book), None)) as history:
        check_receipt(answer.receipt.to_dict(), history)


SHOWN = "over the groups that are shown"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT city, SUM(COUNT(*)) OVER (ORDER BY city) FROM orders GROUP BY city",
        "SELECT city, COUNT(*) AS n, n / SUM(n) OVER () FROM orders GROUP BY city",
        "SELECT city FROM orders GROUP BY city QUALIFY RANK() OVER (ORDER BY COUNT(*) DESC) < 4",
        "SELECT MAX(n) FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city)",
        "WITH g AS (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) SELECT n / (SELECT MAX(n) FROM g) FROM g",
    ],
)
def test_totals_over_released_groups_are_noticed(con: Connection, sql: str) -> None:
    """Running sums, shares, ranks and aggregates over groups that partition selection may hide; not of listed keys."""
    assert sum(SHOWN in notice for notice in con.query(sql).notices) == 1
    assert not any(SHOWN in notice for notice in con.query(sql.replace("city", "country")).notices)


def test_released_groups_without_totals_are_noticed_alone(con: Connection) -> None:
    """Rows of groups, ordered and cut, are what they are."""
    for sql in (
        "SELECT city, COUNT(*) FROM orders GROUP BY city",
        "SELECT city, COUNT(*) AS n FROM orders GROUP BY city HAVING n > 1 ORDER BY n LIMIT 3",
        "SELECT COUNT(*), (SELECT MAX(height) FROM cities) FROM orders",
    ):
        assert not any(SHOWN in notice for notice in con.query(sql).notices)


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("isfinite(price)", "is true for every value"),
        ("isnan(price)", "is false for every value"),
        ("NOT isinf(price)", "is false for every value"),
        ("customer IS NULL", "belong to no privacy unit"),
        ("customer IS NOT NULL", "belong to no privacy unit"),
        ("isnan(price * 2)", None),
        ("price IS NULL", None),
    ],
)
def test_conditions_with_one_result_are_noticed(con: Connection, condition: str, told: str | None) -> None:
    """Before a charge, too: they follow from the policy."""
    found = con.query(f"SELECT COUNT(*) FROM orders WHERE {condition}").notices
    asked = [notice for notice in found if "for every value" in notice or "no privacy unit" in notice]
    assert len(asked) == (told is not None)
    assert told is None or told in asked[0]


def test_missing_join_partner_is_not_a_missing_unit(con: Connection) -> None:
    """Behind a LEFT JOIN, IS NULL of an id asks whether there is a row."""
    sql = (
        "SELECT COUNT(*) FROM orders o LEFT JOIN (SELECT * FROM orders WHERE hour > 20) b ON o.customer = b.customer "
        "WHERE b.customer IS NULL"
    )
    assert not any("no privacy unit" in notice for notice in con.query(sql).notices)


WITH_LAG = "(SELECT LAG(hour) OVER (PARTITION BY customer, city, day ORDER BY hour) AS before, hour FROM orders) AS t"


@pytest.mark.parametrize(
    ("sql", "advised"),
    [
        (f"SELECT MIN(before) FROM {WITH_LAG}", True),
        (f"SELECT MIN(b) FROM (SELECT before + 1 AS b FROM {WITH_LAG}) AS u", True),
        (f"SELECT MIN(before), COUNT(before) FROM {WITH_LAG}", False),
        (f"SELECT MIN(hour) FROM {WITH_LAG}", False),
        ("SELECT MAX(NULLIF(hour, 3)) FROM orders", True),
        ("SELECT MAX(CASE WHEN hour > 5 THEN hour END) FROM orders", True),
        ("SELECT MAX(CASE WHEN hour > 5 THEN hour ELSE 5 END) FROM orders", False),
        ("SELECT MAX(h) FROM (SELECT hour AS h FROM orders UNION ALL SELECT NULLIF(hour, 3) FROM orders) AS t", True),
        ("SELECT MAX(h) FROM (SELECT customer, MAX(CASE WHEN hour > 5 THEN hour END) AS h FROM orders GROUP BY customer) AS t", True),
        ("SELECT MAX(h) FROM (SELECT customer, MAX(hour) AS h FROM orders GROUP BY customer) AS t", False),
    ],
)  # fmt: skip
def test_a_count_is_advised_beside_extremes_of_what_may_be_null(
    con: Connection, sql: str, *, advised: bool
) -> None:
    """LAG, NULLIF and CASE may be NULL in each row: an extreme is then over no values, and nothing says so."""
    notices = con.query(sql, epsilon=1).notices
    assert any("has no count of its values" in notice for notice in notices) == advised


def test_notice_says_that_noise_decides_where_an_exact_value_is_null(con: Connection) -> None:
    """A key under a noisy condition has no noise and no interval, and may be NULL by noise; without a condition nothing is said."""
    sql = "SELECT {} AS shown, COUNT(*) FROM orders GROUP BY country"
    result = con.query(sql.format("CASE WHEN COUNT(*) > 3 THEN country END"), epsilon=1)
    assert "shown: values have no noise; noise decides where they are NULL." in result.notices
    assert all(row[0] is None for row in result.intervals())
    assert not any("where they are NULL" in notice for notice in con.query(sql.format("country")).notices)
