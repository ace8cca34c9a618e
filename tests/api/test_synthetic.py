"""Synthetic tables and streams, as a user meets them: rows within the policy, one charge, receipts, refusals."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt

PLANS = ["A", "B", "C"]


def connected(ledger: str | Path = ":memory:", rows: int = 2_000, **changed: Any) -> Connection:
    """Patients whose plan follows from their ward, with up to two visits each."""
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        f"""
        CREATE TABLE visits AS SELECT range // 2 AS patient, ['A', 'B', 'C', 'Z'][1 + range % 4] AS plan,
            CAST(range % 4 AS INTEGER) AS ward, range % 3 = 0 AS urgent, CAST(range % 100 AS DOUBLE) AS cost
        FROM range({rows})
        """
    )
    columns = {
        "plan": {"type": "varchar", "values": PLANS},
        "ward": {"type": "integer", "bounds": [0, 4], "nullable": False},
        "urgent": {"type": "boolean", "nullable": False},
        "cost": {"type": "double", "bounds": [0, 100]},
    }
    policy = {
        "version": 1,
        "privacy_unit": "patient",
        "database": "clinic",
        "budget": {"epsilon": 300, "delta": 1e-6},
        "tables": {"visits": {"unit": "patient", "rows_per_unit": 2, "columns": columns}},
    } | changed
    return dpsql.connect(database, policy=policy, ledger=ledger, analyst="ana")


def spent(con: Connection) -> int:
    return con.engine.ledger.get_state("visits").spent.loss


@pytest.mark.parametrize("method", ["mwem", "mst"])
def test_rows_are_those_of_the_policy_and_near_the_private_ones(method: str) -> None:
    """Each value is public, other plans are NULL as in any query, and pairs of columns are nearly those of DuckDB."""
    with connected(rows=20_000) as con:
        made = con.synthetic(
            "SELECT plan, ward, urgent FROM visits WHERE cost < 50", epsilon=15, method=method
        )
        assert made.columns == ("plan", "ward", "urgent")
        assert {plan for plan, _, _ in made.rows} <= {*PLANS, None}
        assert {ward for _, ward, _ in made.rows} <= set(range(5))
        assert len(made.df()) == len(made) == len(made.rows)
        found = Counter((plan, ward) for plan, ward, _ in made.rows)
        exact = Counter({("A", 0): 2_600, ("B", 1): 2_600, ("C", 2): 2_400, (None, 3): 2_400})
        assert sum((found - exact).values()) + sum((exact - found).values()) < 300
        assert made.error is not None
        low, high = made.error.interval()
        assert low <= made.error.mean <= high < 300
        assert "mean distance of 3 marginals" in str(made)


def test_queries_on_a_synthetic_table_are_free() -> None:
    """Queries on the table are exact for its rows, and charge nothing."""
    with connected() as con:
        made = con.synthetic("SELECT plan, urgent FROM visits", epsilon=1)
        before = spent(con)
        asked = made.query("SELECT plan, COUNT(*) AS n FROM synthetic GROUP BY plan ORDER BY plan NULLS LAST")
        counted = Counter(plan for plan, _ in made.rows)
        assert dict(asked.rows) == dict(counted)
        assert asked.receipt.loss is None
        assert spent(con) == before
        with pytest.raises(dpsql.QueryRejected):
            made.query("SELECT * FROM read_csv('x')")


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp", "basic"])
@pytest.mark.parametrize("method", ["mwem", "mst", "blr"])
def test_a_synthetic_table_costs_one_query_and_is_replayed(accountant: str, method: str) -> None:
    """One charge, at most that of a count at the same ε; the same table again is free, another loss is another table."""
    budget = {"epsilon": 20, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant}
    with connected(budget=budget) as con:
        terms: dict[str, Any] = {"epsilon": 0.5, "workload": [("plan", "urgent")], "method": method}
        first = con.synthetic("SELECT plan, urgent FROM visits", **terms)
        charged = spent(con)
        con.query("SELECT COUNT(*) FROM visits", epsilon=0.5)
        assert charged <= spent(con) - charged
        again = con.synthetic("SELECT v.plan, v.urgent FROM visits AS v", **terms)
        assert (again.cells, again.error) == (first.cells, first.error)
        assert again.receipt.replayed == (first.receipt.entries[0]["id"],)
        assert not again.receipt.entries
        other = con.synthetic("SELECT plan, urgent FROM visits", **{**terms, "epsilon": 0.25})
        assert other.receipt.entries
        fresh = con.synthetic("SELECT plan, urgent FROM visits", replay=False, **terms)
        assert fresh.receipt.entries


def test_another_workload_is_another_table() -> None:
    """What is stored answers for the same workload, method, rounds and loss alone; and never a query, nor a query it."""
    with connected() as con:
        sql, seen = "SELECT plan, ward, urgent FROM visits", set()
        asked: list[dict[str, Any]] = [{}, {"method": "mst"}, {"rounds": 1}, {"workload": [("plan", "ward")]}]
        for terms in asked:
            made = con.synthetic(sql, epsilon=0.5, **terms)
            assert made.receipt.entries
            seen.add(made.receipt.entries[0]["id"])
        counted = con.query("SELECT plan, ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL", epsilon=0.5)
        assert counted.receipt.entries
        assert len(seen) == 4
        combined = con.combine("SELECT plan, ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL")
        assert combined.receipt.replayed == (counted.receipt.entries[0]["id"],)


def test_a_stored_table_outlives_its_connection(tmp_path: Path) -> None:
    """Another connection to the same database has it from the ledger, whose check holds, and with its receipt."""
    path = tmp_path / "a.ledger"
    with connected(path) as con:
        first = con.synthetic("SELECT plan, ward FROM visits", epsilon=1)
        stream = con.stream("SELECT plan, ward FROM visits", epsilon=1)
        tree = con.synthetic("SELECT plan, ward, urgent FROM visits", epsilon=1, method="mst")
    with connected(path) as con:
        again = con.synthetic("SELECT plan, ward FROM visits", epsilon=1)
        con.engine.ledger.verify()
    assert again.cells == first.cells
    reader = LedgerReader.open(path)
    for receipt in (first.receipt, again.receipt, stream.receipt, tree.receipt):
        check_receipt(receipt.to_dict(), reader)
    forged = first.receipt.to_dict() | {"mechanisms": []}
    with pytest.raises(dpsql.IntegrityError):
        check_receipt(forged, reader)
    reader.close()
    entry = first.receipt.entries[0]
    assert first.receipt.query.startswith(
        "CREATE SYNTHETIC TABLE AS SELECT plan, ward FROM visits WITH (epsilon = 1"
    )
    assert stream.receipt.query.startswith("CREATE STREAM AS")
    assert entry["table"] == "visits"


REFUSED = {
    "SELECT cost FROM visits": "synthetic_domain",
    "SELECT COUNT(*) FROM visits": "synthetic",
    "SELECT plan FROM visits GROUP BY plan": "synthetic",
    "SELECT 1": "synthetic",
    "SELECT plan, 1 AS one FROM visits LIMIT 3": "private_order",
    "SELECT plan FROM visits) AS x GROUP BY ALL UNION ALL SELECT plan, 1 FROM (SELECT plan FROM visits": "synthetic",
    "EXPLAIN SELECT plan FROM visits": "syntax",
}


@pytest.mark.parametrize("sql", REFUSED)
@pytest.mark.parametrize("kind", ["synthetic", "stream"])
def test_invalid_synthetic_tables_are_refused_before_the_charge(sql: str, kind: str) -> None:
    with connected(rows=4) as con:
        with pytest.raises(dpsql.QueryRejected) as caught:
            getattr(con, kind)(sql, epsilon=1)
        assert caught.value.code == REFUSED[sql]
        assert not con.engine.ledger.list_entries()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"workload": "pairs"}, "workload"),
        ({"workload": [("plan", "cost")]}, "workload"),
        ({"method": "magic"}, "synthetic_method"),
        ({"method": "blr", "rounds": 2}, "synthetic_method"),
        ({"method": "mst", "rounds": 2}, "synthetic_method"),
        ({"rounds": -1}, "synthetic_method"),
        ({"rounds": True}, "synthetic_method"),
    ],
    ids=str,
)
def test_options_are_checked(options: dict[str, Any], code: str) -> None:
    with connected(rows=4) as con:
        with pytest.raises(dpsql.ProgrammingError) as caught:
            con.synthetic("SELECT plan, ward FROM visits", epsilon=1, **options)
        assert caught.value.code == code
        assert not con.engine.ledger.list_entries()


def test_hidden_groups_and_large_domains_are_refused() -> None:
    """A least frequency hides cells, which a table that shows all of them would not; and 901 values by 901 are too many."""
    few = {"ward": {"type": "integer", "bounds": [0, 4]}}
    many = {"ward": {"type": "integer", "bounds": [0, 900]}}
    asks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("ward", {"columns": few, "min_frequency": 5}),
        ("ward, ward + 1 AS next", {"columns": many}),
    )
    for asked, table in asks:
        with connected(rows=4, tables={"visits": {"unit": "patient", "rows_per_unit": 1, **table}}) as con:
            with pytest.raises(dpsql.QueryRejected) as caught:
                con.synthetic(f"SELECT {asked} FROM visits", epsilon=1)
            assert caught.value.code == "synthetic_domain"
            assert not con.engine.ledger.list_entries()


def wide(width: int = 20, **changed: Any) -> Connection:
    """People with many columns of eleven values, NULL among them, of which each follows from that before."""
    database = duckdb.connect(config={"threads": 1})
    listed = ", ".join(
        f"CAST(NULLIF((range // {1 + place // 2}) % 9, {place % 9}) AS INTEGER) AS c{place}"
        for place in range(width)
    )
    database.execute(f"CREATE TABLE people AS SELECT {listed} FROM range(3000)")
    columns = {f"c{place}": {"type": "integer", "bounds": [0, 9]} for place in range(width)}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**9, "delta": 0, "accountant": "pure"},
        "tables": {"people": {"unit": "row", "columns": columns}},
    } | changed
    return dpsql.connect(database, policy=policy, ledger=":memory:")


def test_columns_of_any_number_of_combinations_have_a_tree() -> None:
    """Of 11^20 combinations, which nothing holds: pairs of the tree are those of DuckDB, and the distance is as it says."""
    with wide() as con:
        made = con.synthetic("SELECT * FROM people", epsilon=10**7, workload="marginals(1)")
        assert "method = 'mst'" in made.receipt.query
        assert len(made) == 3_000
        assert made.error is not None
        assert made.error.mean < 3
        # Both columns follow from one number, so that no other pair is as far from independent columns.
        exact = Counter((n % 9 or None, None if n % 9 == 1 else n % 9) for n in range(3_000))
        found = Counter((first, second) for first, second, *_ in made.rows)
        assert all(abs(found[key] - exact[key]) <= 1 for key in found | exact)
        again = con.synthetic("SELECT * FROM people", epsilon=10**7, workload="marginals(1)")
        assert again.cells == made.cells
        assert not again.receipt.entries


@pytest.mark.parametrize(
    ("asked", "options", "code"),
    [
        ("SELECT * FROM people", {"method": "mwem"}, "synthetic_domain"),
        ("SELECT * FROM people", {"method": "blr"}, "synthetic_domain"),
        ("SELECT * FROM people", {"rounds": 3}, "synthetic_domain"),
        (
            "SELECT * FROM people",
            {"workload": [tuple(f"c{place}" for place in range(5))]},
            "synthetic_domain",
        ),
        (
            "SELECT *, c0 * 100 + c1 * 10 + c2 AS a, c3 * 100 + c4 * 10 + c5 AS b FROM people",
            {},
            "synthetic_domain",
        ),
        (f"SELECT *, {', '.join(f'c0 + {n} AS d{n}' for n in range(21))} FROM people", {}, "synthetic"),
    ],
    ids=["mwem", "blr", "rounds", "workload", "pair", "columns"],
)
def test_too_large_domains_are_refused_before_the_charge(
    asked: str, options: dict[str, Any], code: str
) -> None:
    """Too many combinations or columns are refused, with a hint."""
    with wide() as con:
        with pytest.raises(dpsql.QueryRejected) as caught:
            con.synthetic(asked, epsilon=1, **options)
        assert caught.value.code == code
        assert "mst" in str(caught.value) or code == "synthetic"
        assert not con.engine.ledger.list_entries()
        with pytest.raises(dpsql.QueryRejected):
            con.stream(asked, epsilon=1)


def test_a_synthetic_table_needs_remaining_budget() -> None:
    """Caps and budgets hold as for queries, before anything is read."""
    with connected(rows=40, budget={"epsilon": 1, "delta": 0, "accountant": "pure"}, max_epsilon=0.75) as con:
        with pytest.raises(dpsql.Error):
            con.synthetic("SELECT plan FROM visits", epsilon=0.8)
        con.stream("SELECT plan FROM visits", epsilon=0.5)
        with pytest.raises(dpsql.BudgetExhausted):
            con.synthetic("SELECT plan FROM visits", epsilon=0.6)
        assert con.engine.ledger.get_state("visits").spent.loss_fraction == Fraction(1, 2)


def test_a_stream_answers_by_condition_and_by_value() -> None:
    """Both forms are the same query; what is no condition, no column or no value is refused, with no update used up."""
    with connected(rows=20_000) as con:
        stream = con.stream("SELECT plan, ward, urgent FROM visits", epsilon=10, updates=5)
        charged, left = spent(con), stream.left
        answer = stream.count("plan = 'A' AND ward IN (0, 1)")
        assert answer.low <= 5_000 <= answer.high
        assert stream.count(plan="A", ward=[0, 1]).value == answer.value
        nobody = stream.count(plan=None)
        assert nobody.low <= 5_000 <= nobody.high
        assert abs(stream.count().value - 20_000) < 1_000
        for wrong in (
            "xx = 1",
            "ward",
            "random() < 0.5",
            "EXISTS (SELECT 1 FROM visits)",
            "1) UNION ALL SELECT (2",
        ):
            with pytest.raises(dpsql.QueryRejected):
                stream.count(wrong)
        with pytest.raises(dpsql.QueryRejected):
            stream.count("1 = 1) UNION ALL SELECT -5 FROM stream WHERE (1 = 1")
        for name, value in {"cost": 1, "ward": 17}.items():
            with pytest.raises(dpsql.DataError):
                stream.count(**{name: value})
        assert spent(con) == charged
        assert left - stream.left <= 4
        table = stream.table()
        assert table.error is None
        assert table.query("SELECT COUNT(*) FROM synthetic").rows == ((len(table),),)
    with pytest.raises(dpsql.InterfaceError):
        stream.count()


def test_a_reservation_pays_for_both() -> None:
    with connected(rows=40) as con, con.reserve(epsilon=2):
        con.synthetic("SELECT plan FROM visits", epsilon=1)
        stream = con.stream("SELECT plan FROM visits", epsilon=1)
        assert stream.receipt.entries[0]["slice"] == 1
