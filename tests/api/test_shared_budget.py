"""One budget for several tables, as an owner and an analyst see it: the charge, the receipt, reservations, failures, resets."""

from __future__ import annotations

import json
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine.budgets import collect_budgets, describe_capacities
from dpsql.errors import OperationalError, PolicyError
from dpsql.ledger import open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt
from dpsql.policy import load
from dpsql.policy.names import SHARED_ACCOUNT

BOTH = "SELECT COUNT(*) AS n, SUM(cost) AS total FROM patients JOIN visits USING (patient_id)"
TABLES: dict[str, Any] = {
    "patients": {
        "unit": "patient_id",
        "rows_per_unit": 1,
        "columns": {"age": {"type": "integer", "bounds": [0, 110]}},
    },
    "visits": {
        "unit": "patient_id",
        "rows_per_unit": 4,
        "columns": {"cost": {"type": "integer", "bounds": [0, 100]}},
    },
}


def open_database(id_type: str = "INTEGER") -> duckdb.DuckDBPyConnection:
    """Two hundred patients, each with three visits, whose ids are of a type."""
    database = duckdb.connect()
    database.execute("CREATE TABLE patients AS SELECT range AS patient_id, range % 90 AS age FROM range(200)")
    database.execute(
        f"CREATE TABLE visits AS SELECT CAST(range % 200 AS {id_type}) AS patient_id, range % 50 AS cost FROM range(600)"
    )
    return database


def make_policy(**changed: Any) -> dict[str, Any]:
    """Return the policy of both tables, which share a budget."""
    budget = {"epsilon": 2, "shared": True}
    return {"version": 1, "privacy_unit": "patient", "budget": budget, "tables": TABLES, **changed}


def open_session(ledger: Path | str = ":memory:", **changed: Any) -> dpsql.Connection:
    """Return a connection of ana's, with new noise in each answer."""
    policy = make_policy(**changed)
    return dpsql.connect(
        open_database(), policy=policy, ledger=ledger, analyst="ana", epsilon=0.25, replay=False
    )


def test_a_query_of_two_tables_is_charged_once(tmp_path: Path) -> None:
    """Its receipt names the shared budget and the tables that it reads, and the ledger vouches for both."""
    path = tmp_path / "a.ledger"
    with open_session(path) as con:
        result = con.query(BOTH)
        (entry,) = result.receipt.entries
        assert (entry["table"], entry["loss"], entry["tables"]) == (
            SHARED_ACCOUNT,
            "1/4",
            ["patients", "visits"],
        )
        con.query("SELECT COUNT(*) FROM visits")
        assert con.budget()[SHARED_ACCOUNT].remaining_epsilon == Fraction(3, 2)
        assert "shared budget: ε = 0.25" in str(con.explain(BOTH))
        told = json.loads(result.receipt.to_json())
    with closing(LedgerReader.open(path)) as history:
        check_receipt(told, history)
        told["entries"][0]["tables"] = ["patients"]
        with pytest.raises(dpsql.Error, match="tables"):
            check_receipt(told, history)


def test_separate_budgets_are_each_charged() -> None:
    """As before, where nothing is shared."""
    with open_session(budget={"epsilon": 2}) as con:
        assert [entry["table"] for entry in con.query(BOTH).receipt.entries] == ["patients", "visits"]
        assert all("tables" not in entry for entry in con.query(BOTH).receipt.entries)


def test_an_analyst_has_one_account_of_the_shared_budget() -> None:
    """It bounds what that analyst spends over all tables."""
    with open_session(per_analyst={"epsilon": 0.5}) as con:
        con.query("SELECT COUNT(*) FROM patients")
        con.query("SELECT COUNT(*) FROM visits")
        with pytest.raises(dpsql.BudgetExhausted, match="of the shared budget for analyst ana"):
            con.query("SELECT SUM(age) FROM patients")
        assert con.budget()[AccountKey(SHARED_ACCOUNT, "ana").name].remaining_epsilon == 0


@pytest.mark.parametrize("tables", [None, ["visits"], ["patients", "visits"]])
def test_a_reservation_of_several_tables_is_charged_once(tables: list[str] | None) -> None:
    """Whichever tables it names, it reserves of the shared budget, and pays for queries of all of them."""
    with open_session() as con:
        with con.reserve(epsilon=1, tables=tables) as held:
            con.query(BOTH)
            con.query("SELECT SUM(age) FROM patients")
            assert held.left() == {SHARED_ACCOUNT: Fraction(1, 2)}
            assert con.budget()[SHARED_ACCOUNT].remaining_epsilon == 1
        assert con.budget()[SHARED_ACCOUNT].remaining_epsilon == Fraction(3, 2)


def test_a_failure_at_one_table_locks_all_tables_that_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least `max_failures` of the tables counts."""
    tables = {name: {**table, "max_failures": 1 + (name == "visits")} for name, table in TABLES.items()}
    with open_session(tables=tables) as con:
        assert load(make_policy(tables=tables)).get_failure_limits() == {SHARED_ACCOUNT: 1}

        def fail(*_: object, **__: object) -> None:
            raise dpsql.BackendError

        with monkeypatch.context() as broken:
            broken.setattr(type(con.engine.backend), "run_statement", fail)
            with pytest.raises(dpsql.BackendError):
                con.query("SELECT COUNT(*) FROM visits")
        with pytest.raises(OperationalError, match="all tables of the shared budget are locked"):
            con.query("SELECT COUNT(*) FROM patients")


def test_the_ledger_of_separate_budgets_is_refused(tmp_path: Path) -> None:
    """What its tables have spent would be missing in the shared budget."""
    path = tmp_path / "a.ledger"
    with open_session(path, budget={"epsilon": 2}) as con:
        con.query(BOTH)
    with pytest.raises(PolicyError) as refused:
        open_session(path)
    assert refused.value.code == "budget_changed"
    with open_session(path, budget={"epsilon": 2, "shared": False}) as con:
        assert {state.remaining_epsilon for state in con.budget().values()} == {Fraction(7, 4)}


def test_ids_of_different_types_are_refused() -> None:
    """A patient with the id 7 in one table and '7' in another would be two units; a view that casts one of them helps."""
    database = open_database("VARCHAR")
    with pytest.raises(PolicyError) as refused:
        dpsql.connect(database, policy=make_policy(), ledger=":memory:")
    assert refused.value.code == "shared_ids"
    assert "cast one of them in a view" in (refused.value.hint or "")
    database.execute("ALTER TABLE visits RENAME TO stored")
    database.execute(
        "CREATE TABLE visits AS SELECT * REPLACE (CAST(patient_id AS BIGINT) AS patient_id) FROM stored"
    )
    dpsql.connect(database, policy=make_policy(), ledger=":memory:").close()


def test_owners_read_what_the_shared_budget_protects() -> None:
    """The sentence says that a unit loses no more over all tables, and what that requires."""
    lines = " ".join(describe_capacities(load(make_policy())))
    assert "the budget that patients and visits share holds 20 questions at ε 0.1" in lines
    assert "protected at this budget: ε 2" in lines
    assert "the same id in each of them" in lines
    separate = " ".join(describe_capacities(load(make_policy(budget={"epsilon": 2}))))
    assert "the sum of their budgets: ε 4" in separate


def test_a_policy_without_sharing_has_the_digest_that_it_had() -> None:
    """`shared: false` is the default, and written nowhere."""
    plain = load(make_policy(budget={"epsilon": 2}))
    assert "shared" not in plain.model_dump()["budget"]
    assert (
        load(make_policy(budget={"epsilon": 2, "shared": False})).compute_digest() == plain.compute_digest()
    )
    assert load(make_policy()).compute_digest() != plain.compute_digest()


def test_the_shared_account_is_reset_as_a_whole() -> None:
    """All its tables begin anew together."""
    rules = load(make_policy())
    with closing(open_ledger(":memory:", collect_budgets(rules, ["ana"]))) as book:
        assert [state.table for state in book.list_states()] == [SHARED_ACCOUNT]
        assert book.reset(SHARED_ACCOUNT, by="owner", reason="a new study").kind == "reset"
