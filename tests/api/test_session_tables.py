"""CREATE SYNTHETIC TABLE, CREATE LOCAL TABLE and DROP TABLE: doors to the methods, and tables that a connection keeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from api.test_synthetic import connected, spent
from entropy import SeededEntropy

import dpsql
from dpsql.api.connection import Connection
from dpsql.results.local_table import LocalStatistics, LocalTable
from dpsql.results.result import Receipt

SYNTHETIC = "CREATE SYNTHETIC TABLE s AS SELECT plan, ward FROM visits WHERE cost < 50 WITH (epsilon = 2, workload = '(plan), (ward)')"
LOCAL = "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(plan), RANDOMIZE(ward) AS w, RANDOMIZE(urgent) AS urgent FROM visits WITH (epsilon = 60)"


@pytest.fixture(scope="module")
def asked() -> Iterator[Connection]:
    """A connection with a synthetic table s and a randomised table r, which are the same in each run."""
    with connected(rows=6_000) as con:
        object.__setattr__(con.engine, "entropy", SeededEntropy(1))
        con.execute(SYNTHETIC)
        con.execute(LOCAL)
        yield con


def test_create_equals_the_method(asked: Connection) -> None:
    """The method replays the table of the statement free, and the ledger has the statement's text."""
    entries = asked.engine.ledger.list_entries()
    made = asked.synthetic(
        "SELECT plan, ward FROM visits WHERE cost < 50", epsilon=2, workload=[("plan",), ("ward",)]
    )
    assert not made.receipt.entries
    counted = asked.query("SELECT plan, ward, COUNT(*) AS n FROM s GROUP BY ALL ORDER BY ALL")
    assert {tuple(row) for row in counted.rows} == set(made.cells)
    copy = asked.randomize("SELECT plan, ward AS w, urgent FROM visits", epsilon=60)
    assert not copy.receipt.entries
    assert [entry.query for entry in entries[:2]] == [SYNTHETIC, LOCAL]  # other tests may have asked since
    assert asked.engine.ledger.list_entries() == entries


def test_a_session_table_is_charged_once_and_dropped_by_name() -> None:
    """The same statement gives the same table free; a name is in use until DROP; another loss makes another table."""
    with connected() as con:
        first = con.query(SYNTHETIC)
        assert (first.columns, len(first), len(first.receipt.entries)) == (("table", "rows"), 1, 1)
        before = spent(con)
        with pytest.raises(dpsql.QueryRejected, match="already"):
            con.query(SYNTHETIC)
        again = con.query(SYNTHETIC.replace("CREATE", "CREATE OR REPLACE"))
        assert again.rows == first.rows
        assert again.receipt.replayed == (first.receipt.entries[0]["id"],)
        assert con.query("DROP TABLE S").rows == (("s",),)
        assert con.query("DROP TABLE IF EXISTS s").rows == ((None,),)
        for sql in ("DROP TABLE s", "SELECT * FROM s", "DROP TABLE visits"):
            with pytest.raises(dpsql.QueryRejected):
                con.query(sql, epsilon=1)
        assert spent(con) == before
        assert con.query("CREATE SYNTHETIC TABLE s AS SELECT plan FROM visits", epsilon=1).receipt.entries


def test_a_select_over_synthetic_rows_is_free_with_a_notice(asked: Connection) -> None:
    """It is any SQL, also over several tables, with parameters and common table expressions of the same name."""
    before = spent(asked)
    found = asked.query(
        "WITH x AS (SELECT ward, COUNT(*) AS n FROM S WHERE ward < ? GROUP BY ward) SELECT COUNT(*) AS k FROM x",
        [3],
    )
    assert found.rows == ((3,),)
    assert "synthetic" in found.notices[0]
    assert found.receipt.replayed
    assert found.receipt.loss is None
    shadowed = asked.query(
        "WITH s AS (SELECT COUNT(*) AS n FROM visits) SELECT n > 0 AS any FROM s", epsilon=1
    )
    assert shadowed.receipt.entries
    assert asked.is_free("SELECT 1 FROM s")
    assert not asked.is_free("SELECT 1 FROM visits")
    assert asked.explain("SELECT COUNT(*) FROM s").price is None
    assert asked.query("EXPLAIN SELECT COUNT(*) FROM s").receipt.explained
    assert spent(asked) > before  # of the shadowed one alone


def test_estimates_are_those_of_the_private_rows(asked: Connection) -> None:
    """COUNT, SUM and AVG of groups, conditions and expressions hold the exact values of DuckDB in their intervals."""
    sql = (
        "SELECT plan AS p, COUNT(*) AS n, COUNT(plan) AS known, SUM(w) AS total, AVG(w * 2 + 1) AS mean FROM {} "
        "WHERE NOT urgent GROUP BY p ORDER BY n DESC, p"
    )
    found = asked.query(sql.format("r"))
    database = asked.engine.backend._runner.connection.cursor()  # type: ignore[attr-defined]
    rows = "(SELECT CASE WHEN plan <> 'Z' THEN plan END AS plan, ward AS w, urgent FROM visits)"
    exact = {row[0]: row[1:] for row in database.execute(sql.format(rows)).fetchall()}
    assert found.columns == ("p", "n", "known", "total", "mean")
    assert found.types == ("VARCHAR", "BIGINT", "BIGINT", "DOUBLE", "DOUBLE")
    assert {row[0] for row in found.rows} == set(exact)
    held = [
        ends[0] - 1e-6 <= float(value) <= ends[1] + 1e-6
        for row, intervals in zip(found.rows, found.intervals(0.999), strict=True)
        for value, ends in zip(exact[row[0]], intervals[1:], strict=True)
        if ends is not None
    ]
    assert len(held) >= 15
    assert all(held)
    assert not found.receipt.entries


def test_shares_agree_with_the_method(asked: Connection) -> None:
    """A count by group is the method's share of all rows."""
    copy = asked.randomize("SELECT plan, ward AS w, urgent FROM visits", epsilon=60)
    shares = copy.estimate("plan", "urgent")
    for plan, urgent, n in asked.query("SELECT plan, urgent, COUNT(*) AS n FROM r GROUP BY 1, 2").rows:
        assert n == round(shares[plan, urgent].value * len(copy))
    raw = asked.query("SELECT plan, w FROM r WHERE w = 1")
    assert len(raw) == sum(w == 1 for _, w, _ in copy.rows)
    assert "randomized" in raw.notices[0]


@pytest.mark.parametrize("shape", [(2,), (3, 2), (1, 4), (2, 3, 2)])
def test_an_estimate_has_no_bias(shape: tuple[int, ...]) -> None:
    """For each true row, the mean over all of its answers of what an answer is counted with is the value of the true row."""
    odds = tuple(Fraction(3 + axis, 2) for axis in range(len(shape)))
    domains = tuple(tuple(range(size)) for size in shape)
    values = np.random.default_rng(1).normal(size=shape)
    mean = np.zeros(shape)
    for answer in itertools.product(*domains):
        receipt: Any = Receipt("", "", "", "", "", "", "", (), None, (), {})
        table = LocalTable(
            ("a",) * len(shape),
            ("BIGINT",) * len(shape),
            domains,
            ((*answer, 1),),
            odds,
            receipt,
            lambda _: 0,
        )
        counted, _, _ = LocalStatistics.from_table(table).estimate_sum(values.ravel())
        for truth in itertools.product(*domains):
            chance = 1.0
            for a, t, o, size in zip(answer, truth, odds, shape, strict=True):
                chance *= float(o if a == t else 1) / float(o + size - 1)
            mean[truth] += chance * counted
    assert np.allclose(mean, values)


REFUSED = {
    "SELECT COUNT(DISTINCT plan) FROM r": "local_query",
    "SELECT MAX(w) FROM r": "local_query",
    "SELECT plan, w, COUNT(*) FROM r GROUP BY plan": "local_query",
    "SELECT COUNT(*) FROM r AS a JOIN r AS b ON a.w = b.w": "clause",
    "SELECT COUNT(*) FROM r, s": "local_query",
    "SELECT * FROM r JOIN s ON w = ward": "local_query",
    "SELECT DISTINCT plan FROM r": "clause",
    "SELECT COUNT(*) FROM (SELECT plan FROM r)": "local_query",
    "SELECT plan, COUNT(*) AS n FROM r GROUP BY plan HAVING n > 3": "clause",
    "SELECT ROW_NUMBER() OVER () FROM r": "local_query",
    "SELECT COUNT(*) FROM r WHERE w = ?": "local_query",
    "SELECT AVG(plan) FROM r": "local_query",
    "SELECT SUM(urgent) FROM r": "local_query",
    "SELECT COUNT(*) FROM r WHERE w = (SELECT 1)": "local_query",
    "SELECT COUNT(*) FROM r GROUP BY ROLLUP(plan)": "local_query",
    "SELECT COUNT(*) FROM visits, s": "session_table",
    "SELECT plan FROM s UNION ALL SELECT plan FROM r": "local_query",
    "SELECT * FROM s, read_csv('x')": "table",
    "SELECT COUNT(*) FROM s WHERE EXISTS (SELECT 1 FROM VISITS)": "session_table",
    "CREATE SYNTHETIC TABLE x AS SELECT plan FROM s WITH (epsilon = 1)": "session_table",
    "EXPLAIN SELECT COUNT(*) FROM r": "local_query",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_mixed_tables_and_unestimable_selects_are_refused(asked: Connection, sql: str) -> None:
    """A SELECT over both kinds of tables is refused, and so is one that cannot be estimated from randomized rows."""
    before = len(asked.engine.ledger.list_entries())
    with pytest.raises(dpsql.QueryRejected) as caught:
        asked.query(sql, [1] if "?" in sql else ())
    assert caught.value.code == REFUSED[sql]
    assert len(asked.engine.ledger.list_entries()) == before


def test_explain_create_shows_the_price_and_makes_no_table(asked: Connection) -> None:
    """EXPLAIN CREATE charges nothing, as a statement and as a method, and makes no table."""
    before = len(asked.engine.ledger.list_entries())
    sql = "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(plan) FROM visits WITH (epsilon = 3)"
    assert "randomised response, odds" in str(asked.explain(sql))
    assert asked.explain(sql).price is not None
    assert asked.query(f"EXPLAIN {sql}").receipt.explained
    assert len(asked.engine.ledger.list_entries()) == before
    assert "x" not in asked.list_session_tables()


def test_tables_are_listed_and_offered(asked: Connection) -> None:
    """Beside those of the policy, marked as what they are."""
    described = {table.name: table.kind for table in asked.describe().tables}
    assert described == {"visits": "", "s": "synthetic", "r": "randomized"}
    assert asked.list_session_tables()["r"] == ("plan", "w", "urgent")


def test_tables_of_a_session_are_joined() -> None:
    """Several synthetic tables in one SELECT, whichever were asked before."""
    with connected(rows=200) as con:
        for name in ("a", "b", "c"):
            con.query(f"CREATE SYNTHETIC TABLE {name} AS SELECT plan, urgent FROM visits WITH (epsilon = 5)")
        for sql in (
            "{a}",
            "{b}",
            "{a} JOIN {b} USING (plan)",
            "{c}",
            "{a} JOIN {b} USING (plan) JOIN {c} USING (plan)",
        ):
            tables = sql.format(
                **{name: f"(SELECT DISTINCT plan FROM {name} WHERE plan <> 'x')" for name in "abc"}
            )
            found = con.query(f"SELECT COUNT(*) AS n FROM {tables}")
            assert found.rows == ((3,),)


def test_a_call_and_a_text_agree_or_are_refused(asked: Connection) -> None:
    """A loss that both state must be one; what has no place in a CREATE is refused."""
    sql = "CREATE OR REPLACE SYNTHETIC TABLE x AS SELECT plan FROM visits WITH (epsilon = 2)"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"epsilon": 1}, "ambiguous"),
        ({"dialect": "spark"}, "session_table"),
        ({"target_error": 5}, "ambiguous"),
    )
    for options, code in cases:
        with pytest.raises(dpsql.Error) as caught:
            asked.query(sql, **options)
        assert caught.value.code == code
    asked.query(sql, epsilon=2)
    asked.query("DROP TABLE x")
