"""What a policy lets analysts spend: budgets of their own, caps of one query, and what is said of them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine.budgets import collect_budgets
from dpsql.errors import BudgetExhausted, ProgrammingError, QueryRejected
from dpsql.ledger.budget_state import AccountKey
from dpsql.policy import load

COUNT = "SELECT COUNT(*) AS n FROM visits"
BOTH = "SELECT COUNT(*) AS n FROM visits JOIN patients USING (id)"


def _policy(**keys: Any) -> dict[str, Any]:
    patients = {"unit": "id", "rows_per_unit": 1, "columns": {"id": {"type": "integer"}}}
    visits = {"unit": "id", "rows_per_unit": 2, "columns": {"day": {"type": "date"}}, "max_epsilon": 0.75}
    tables = {"patients": patients, "visits": visits}
    return {"version": 1, "privacy_unit": "patient", "budget": {"epsilon": 2}, "tables": tables, **keys}


def _asks(who: str, ledger: Any, **keys: Any) -> dpsql.Connection:
    database = duckdb.connect()
    database.execute("CREATE TABLE patients AS SELECT range AS id FROM range(40)")
    database.execute(
        "CREATE TABLE visits AS SELECT range % 40 AS id, DATE '2024-01-01' AS day FROM range(80)"
    )
    return dpsql.connect(database, policy=_policy(**keys), ledger=ledger, analyst=who)


def test_analysts_have_their_listed_or_default_budgets(tmp_path: Path) -> None:
    """Listed analysts have their own budget, in any case of the name; others have the default; the table's budget bounds all."""
    keys = {"per_analyst": {"epsilon": 0.5}, "analysts": {"ana": {"epsilon": 1}}}
    path = tmp_path / "a.ledger"
    with _asks("Ana", path, **keys) as ana:
        ana.query(BOTH, epsilon=0.75)
        with pytest.raises(
            BudgetExhausted,
            match=r"of table visits for analyst ana, but at most epsilon 0.25 is left for one query \(budget: epsilon 1\)",
        ):
            ana.query(COUNT, epsilon=0.5)
        states = ana.budget()
        assert list(states) == ["patients", "patients for ana", "visits", "visits for ana"]
        assert (states["visits for ana"].remaining_epsilon, states["visits"].remaining_epsilon) == (
            Fraction(1, 4), Fraction(5, 4),
        )  # fmt: skip
        text = str(ana.explain(COUNT, epsilon=0.25))
        assert "visits: ε = 0.25" in text
        assert "visits for ana: ε = 0.25 and δ = 0, as for ε = 0.25; left ε = 0.25" in text
    with _asks("bob", path, **keys) as bob:
        result = bob.query(COUNT, epsilon=0.5)
        assert [entry.get("account") for entry in result.receipt.entries] == [None, "bob"]
        with pytest.raises(BudgetExhausted, match="for analyst bob"):
            bob.query(COUNT, epsilon=0.125)
    with _asks("ana", path, **keys) as ana:
        ana.query(COUNT, epsilon=0.25)
        assert ana.budget()["visits"].remaining_epsilon == Fraction(1, 2)


def test_a_charge_that_one_account_cannot_bear_is_no_charge(tmp_path: Path) -> None:
    """A query of two tables is charged to four accounts, or to none."""
    with _asks("ana", tmp_path / "a.ledger", analysts={"ana": {"epsilon": 0.5}}) as ana:
        ana.query("SELECT COUNT(*) FROM patients", epsilon=0.25)
        before = ana.engine.ledger.list_entries()
        with pytest.raises(BudgetExhausted, match="of table patients for analyst ana"):
            ana.query(BOTH, epsilon=0.5)
        assert ana.engine.ledger.list_entries() == before
        ana.query(BOTH, epsilon=0.25)
        after = ana.engine.ledger.list_entries()[len(before) :]
        assert [(entry.table, entry.account_analyst, entry.charge) for entry in after] == [
            (table, who, before[-1].id + 1) for table in ("patients", "visits") for who in ("", "ana")
        ]


def test_a_name_that_no_ledger_can_hold_is_refused() -> None:
    """Before any account is made for it."""
    with pytest.raises(ProgrammingError, match="lone surrogate"):
        _asks("a\ud800", ":memory:", per_analyst={"epsilon": 1})


def test_an_analyst_without_a_budget_has_the_table_s() -> None:
    """Where only others are listed, nobody else has an account."""
    with _asks("bob", ":memory:", analysts={"ana": {"epsilon": 0.5}}) as bob:
        bob.query("SELECT COUNT(*) FROM patients", epsilon=2)
        assert list(bob.budget()) == ["patients", "visits"]


def test_the_least_cap_of_a_query_counts() -> None:
    """A table's cap binds queries that read it, the policy's binds all; an accuracy is searched for below both."""
    with _asks("ana", ":memory:", max_epsilon=1.5) as ana:
        for sql in (COUNT, BOTH):
            with pytest.raises(
                QueryRejected, match=r"epsilon 1 is above the policy's cap of 0.75 for one query"
            ):
                ana.query(sql, epsilon=1)
        ana.query("SELECT COUNT(*) FROM patients", epsilon=1)
        with pytest.raises(QueryRejected, match=r"epsilon 2 is above the policy's cap of 1.5 for one query"):
            ana.query("SELECT COUNT(*) FROM patients", epsilon=2)
        with pytest.raises(QueryRejected, match="cap"):
            ana.query(COUNT, target_error=2)
        assert ana.explain("SELECT COUNT(*) FROM patients", target_error=2).prepared.terms.epsilon > Fraction(
            3, 4
        )


def test_budgets_of_analysts_inherit_from_the_table() -> None:
    """An analyst's δ, accountant and renewal are by default those of the table."""
    keys = {"budget": {"epsilon": 2, "delta": "1e-6", "renew": "weekly"}, "per_analyst": {"epsilon": 1}}
    found = collect_budgets(load(_policy(**keys)), ["ana", "", "ana"])
    assert list(found) == ["patients", AccountKey("patients", "ana"), "visits", AccountKey("visits", "ana")]
    theirs = found[AccountKey("visits", "ana")]
    assert (theirs.accountant, theirs.delta, theirs.renewal) == ("zcdp", Fraction(1, 10**6), "weekly")
    assert collect_budgets(load(_policy(per_analyst={"epsilon": 1, "renew": "daily"})), ["ana"])[
        AccountKey("visits", "ana")
    ].renewal == "daily"  # fmt: skip
