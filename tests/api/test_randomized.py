"""Randomised tables, as a user meets them: estimates that hold the truth, one charge, one table."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import pytest
from entropy import SeededEntropy

import dpsql
from dpsql.api.connection import Connection
from dpsql.privacy.accounting.events import Pure


def opened(rows: int = 12_000, accountant: str = "zcdp", neighbors: str = "add_remove") -> Connection:
    """People of whom a quarter smoke, all of these with plan A."""
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        f"CREATE TABLE people AS SELECT range AS id, range % 4 = 0 AS smoker, "
        f"CASE WHEN range % 4 = 0 THEN 'A' ELSE ['A', 'B', 'C'][1 + range % 3] END AS plan FROM range({rows})"
    )
    columns = {
        "smoker": {"type": "boolean", "nullable": False},
        "plan": {"type": "varchar", "values": ["A", "B", "C"], "nullable": False},
    }
    policy: dict[str, Any] = {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": neighbors,
        "budget": {"epsilon": 400, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant},
        "tables": {"people": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:")


def seeded(connection: Connection) -> Connection:
    """Return the connection, which draws the same noise in each run: intervals miss the truth as often as they say."""
    object.__setattr__(connection.engine, "entropy", SeededEntropy(1))
    return connection


def test_estimates_hold_the_truth() -> None:
    """Of one column and of both together, in nearly all of ten tables; and shares in the table itself do not."""
    with seeded(opened()) as con:
        held = total = 0
        for _ in range(10):
            table = con.randomize("SELECT smoker, plan FROM people", epsilon=2, replay=False)
            for asked, truth in (
                (("smoker",), {(True,): 1 / 4, (False,): 3 / 4}),
                (("plan", "smoker"), {("A", True): 1 / 4, ("B", True): 0, ("A", False): 1 / 4}),
            ):
                found = table.estimate(*asked)
                held += sum(found[key].low <= share <= found[key].high for key, share in truth.items())
                total += len(truth)
        assert held >= 0.85 * total
        smokers = sum(bool(smoker) for smoker, _ in table.rows) / len(table)
        assert smokers > 0.3
        assert sum(share.value for share in table.estimate("plan").values()) == pytest.approx(1)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_a_randomized_table_is_charged_once_and_verified(accountant: str, neighbors: str) -> None:
    """As a query at that ε; a second one is the same table, and a fresh one is charged again."""
    with opened(300, accountant, neighbors) as con:
        first = con.randomize("SELECT smoker, plan FROM people", epsilon=1)
        spent = con.engine.ledger.get_state("people").spent.loss
        assert spent == con.engine.get_account("people").accountant.compute_charge(Pure(Fraction(1))).loss
        again = con.randomize("SELECT smoker, plan FROM people", epsilon=1)
        assert again.cells == first.cells
        assert again.receipt.replayed == (first.receipt.entries[0]["id"],)
        fresh = con.randomize("SELECT smoker, plan FROM people", epsilon=1, replay=False)
        assert fresh.receipt.entries
        assert first.receipt.query.startswith("CREATE LOCAL TABLE AS SELECT smoker, plan")
        assert {smoker for smoker, _ in first.rows} <= {True, False}


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_bounded_value_has_a_mean(accountant: str) -> None:
    """Values without a list are rounded at random to their bounds, NULL as the middle; the mean's interval holds the truth."""
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        "CREATE TABLE people AS SELECT range AS id, range % 2 = 0 AS odd, "
        "CASE WHEN range % 10 > 0 THEN CAST(range % 100 AS DOUBLE) / 3 - 5 END AS cost FROM range(6000)"
    )
    columns = {
        "odd": {"type": "boolean", "nullable": False},
        "cost": {"type": "double", "bounds": [-5, 45]},
    }
    policy: dict[str, Any] = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 900, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant},
        "tables": {"people": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    with seeded(dpsql.connect(database, policy=policy, ledger=":memory:")) as con:
        exact = dict(
            database.cursor()
            .execute("SELECT odd, AVG(COALESCE(cost, 20)) FROM people GROUP BY odd")
            .fetchall()
        )
        table = con.randomize("SELECT odd, cost FROM people", epsilon=12)
        assert {cost for _, cost in table.rows} == {-5.0, 45.0}
        fresh = [con.randomize("SELECT odd, cost FROM people", epsilon=12, replay=False) for _ in range(5)]
        for mean in (each.mean("cost", confidence=0.999) for each in (table, *fresh)):
            assert mean.low <= sum(exact.values()) / 2 <= mean.high
            assert mean.high - mean.low < 8
        again = con.query(
            "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(odd), RANDOMIZE(cost) FROM people WITH (epsilon = 12)"
        )
        assert not again.receipt.entries
        found = con.query(
            "SELECT odd, AVG(cost) AS cost, SUM(cost) AS total, COUNT(*) AS n FROM r GROUP BY odd"
        )
        for (odd, *_), (_, ends, *_) in zip(found.rows, found.intervals(0.999), strict=True):
            assert ends is not None
            assert ends[0] <= exact[odd] <= ends[1]
        for wrong in ("SELECT COUNT(*) FROM r WHERE cost > 3", "SELECT AVG(cost + 1) FROM r"):
            with pytest.raises(dpsql.QueryRejected, match="rounded to its bounds"):
                con.query(wrong)
        for ask in (lambda: table.estimate("cost"), lambda: table.mean("odd")):
            with pytest.raises(dpsql.DataError):
                ask()


def test_reading_a_randomized_table_twice_reveals_no_more() -> None:
    """Fresh answers average to the true value; the stored table does not change when it is read again."""
    with opened(400) as con:
        tables = {con.randomize("SELECT smoker FROM people", epsilon=0.5).cells for _ in range(20)}
        assert len(tables) == 1
        assert con.engine.ledger.get_state("people").queries == 1


def test_arguments_of_estimates_are_checked() -> None:
    with opened(60) as con:
        table = con.randomize("SELECT smoker, plan FROM people", epsilon=3)
        for wrong in ((), ("age",), ("plan", "plan")):
            with pytest.raises(dpsql.DataError):
                table.estimate(*wrong)
        with pytest.raises(dpsql.DataError):
            table.estimate("plan", confidence=1)
        before = len(con.engine.ledger.list_entries())
        for refused, error in (
            ("SELECT id FROM people", dpsql.QueryRejected),
            ("SELECT COUNT(*) FROM people", dpsql.QueryRejected),
        ):
            with pytest.raises(error):
                con.randomize(refused, epsilon=1)
        with pytest.raises(dpsql.LossError):
            con.randomize("SELECT smoker, plan FROM people", epsilon="0.00001")
        assert len(con.engine.ledger.list_entries()) == before
