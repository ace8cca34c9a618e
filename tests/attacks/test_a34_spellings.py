"""A34: a table or an analyst under a name that is spelled otherwise, with a budget of its own.

`VISITS` for `visits` in a changed policy; bob, BOB and "bob " where each analyst has a budget: names that differ in
case, spaces or Unicode form have one account, or are refused with the spelling that the ledger has.
"""

from __future__ import annotations

import unicodedata
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import PolicyError
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.policy import load
from dpsql.policy.names import normalize_account_name
from dpsql.privacy.accounting.events import Pure

BUDGET = Budget("pure", Fraction(1), Fraction(0))
NAMES = ("zoé", "Zoé", unicodedata.normalize("NFD", "zoé"), " zoé", "ZOÉ\t", "zo\u200bé", "ｚｏé")
OTHERS = NAMES[1:]


def policy(table: str = "visits", **more: Any) -> dict[str, Any]:
    """A policy over one table."""
    declared = {"unit": "pid", "rows_per_unit": 1}
    return {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {table: declared},
        **more,
    }


@pytest.fixture
def database() -> duckdb.DuckDBPyConnection:
    """Ten visits."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits AS SELECT i AS pid FROM range(10) t(i)")
    return connection


def ask(database: Any, rules: dict[str, Any], ledger: Path, who: str = "ana", table: str = "visits") -> None:
    """Spends the whole budget."""
    with dpsql.connect(database, policy=rules, ledger=ledger, analyst=who) as con:
        con.query(f"SELECT COUNT(*) FROM {table}", epsilon=1, replay=False)


@pytest.mark.parametrize("one", NAMES)
def test_spellings_of_an_analyst_are_one_name(one: str) -> None:
    """Each spelling has the account of one name; another name has another."""
    assert normalize_account_name(one) == normalize_account_name(NAMES[0])
    assert normalize_account_name(one) not in {
        normalize_account_name("zoe"),
        normalize_account_name("zo é"),
        normalize_account_name(""),
    }


def test_table_in_other_letters_is_refused(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The engine takes VISITS for visits, and the ledger must not take it for another."""
    path = tmp_path / "a.ledger"
    ask(database, policy(), path)
    with pytest.raises(PolicyError, match="'VISITS' shares the account of table 'visits'") as caught:
        ask(database, policy("VISITS"), path)
    assert caught.value.code == "account_name"
    with pytest.raises(dpsql.BudgetExhausted):
        ask(database, policy(), path, table="VISITS")


@pytest.mark.parametrize("other", OTHERS)
def test_account_has_one_spelling(other: str, tmp_path: Path) -> None:
    """This holds for tables and analysts, within one opening and in a new one."""
    path = tmp_path / "a.ledger"
    budgets: dict[str | AccountKey, Budget] = {NAMES[0]: BUDGET, AccountKey(NAMES[0], NAMES[0]): BUDGET}
    open_ledger(path, budgets).close()
    for changed in ({other: BUDGET}, {NAMES[0]: BUDGET, AccountKey(NAMES[0], other): BUDGET}):
        with pytest.raises(PolicyError, match="shares the account of"):
            open_ledger(path, changed)
        with pytest.raises(PolicyError, match="shares the account of"):
            open_ledger(":memory:", budgets | changed)


@pytest.mark.parametrize("other", OTHERS)
def test_listed_analyst_has_one_budget(
    other: str, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Every spelling has that budget, also in charges made on the ledger itself."""
    rules, path = policy(analysts={NAMES[0]: {"epsilon": 0.5}}), tmp_path / "a.ledger"
    assert load(rules).resolve_analyst_name(other) == NAMES[0]
    with dpsql.connect(database, policy=rules, ledger=path, analyst=NAMES[0]) as con:
        con.query("SELECT COUNT(*) FROM visits", epsilon=0.5)
    with (
        dpsql.connect(database, policy=rules, ledger=path, analyst=other) as con,
        pytest.raises(dpsql.BudgetExhausted, match="for analyst"),
    ):
        con.query("SELECT COUNT(*) FROM visits", epsilon=0.5, replay=False)
    accounts = {"visits": BUDGET, AccountKey("visits", NAMES[0]): Budget("pure", Fraction(1, 2), Fraction(0))}
    with closing(open_ledger(":memory:", accounts)) as ledger:
        ledger.charge({"visits": Pure(Fraction(1, 2))}, analyst=NAMES[0], query="q")
        with pytest.raises(dpsql.BudgetExhausted, match="for analyst"):
            ledger.charge({"visits": Pure(Fraction(1, 2))}, analyst=other, query="q")


@pytest.mark.parametrize("other", OTHERS)
def test_unlisted_analyst_has_one_budget(
    other: str, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Refused with the spelling that the ledger has."""
    rules, path = policy(per_analyst={"epsilon": 0.5}), tmp_path / "a.ledger"
    dpsql.connect(database, policy=rules, ledger=path, analyst=NAMES[0]).close()
    with pytest.raises(PolicyError, match="shares the account of"):
        dpsql.connect(database, policy=rules, ledger=path, analyst=other)


def test_blank_analyst_has_no_budget(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Spaces are no name."""
    with pytest.raises(PolicyError, match="shares the account of table 'visits'"):
        dpsql.connect(
            database, policy=policy(per_analyst={"epsilon": 0.5}), ledger=tmp_path / "a.ledger", analyst="  "
        )


@pytest.mark.parametrize("other", OTHERS)
def test_policy_declares_each_name_once(other: str) -> None:
    """Two spellings in one policy are refused where they stand."""
    listed = {NAMES[0]: {"epsilon": 0.5}, other: {"epsilon": 0.5}}
    with pytest.raises(PolicyError, match="differ only by case"):
        load(policy(analysts=listed))
    declared = policy(NAMES[0])
    declared["tables"][other] = declared["tables"][NAMES[0]]
    with pytest.raises(PolicyError, match="differ only by case"):
        load(declared)


def test_careless_ledger_gives_each_spelling_a_budget() -> None:
    """The attack works where names are compared as they are written."""
    spent: dict[str, int] = {}
    for name in NAMES:
        assert spent.get(name, 0) == 0
        spent[name] = 1
    assert sum(spent.values()) == len(NAMES)
