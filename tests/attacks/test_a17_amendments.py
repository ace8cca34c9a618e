"""A17: a budget is raised by an entry of the owner's, and by nothing else.

A careless ledger keeps budgets beside its chain, so that one edit, with the digest mended, raises them. Here each entry
holds the digest of the budget of its time, and an amendment both budgets; the edit is refused, and so is every forged
amendment that does not follow from the entries before it. Whoever can write the whole ledger can append an entry as dpsql
would: a key, or an anchor, is what keeps him from it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from attacks.edits import charge, edit, found, rebuilt

from dpsql.errors import IntegrityError, OperationalError, PolicyError
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.protocol import Account
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.schema import to_account_row

VISITS = AccountKey("visits")
ONE, TWO, HALF = (Budget("pure", Fraction(each), Fraction(0)) for each in ("1", "2", "1/2"))
LAST = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that was charged an eighth, amended from one to two, and charged two eighths."""
    path = tmp_path / "a.ledger"
    with closing(open_ledger(path, {"visits": ONE})) as ledger:
        charge(ledger)
        ledger.amend({VISITS: TWO}, by="owner", reason="a second study")
    with closing(open_ledger(path, {"visits": TWO})) as ledger:
        charge(ledger)
        charge(ledger)
    return path


def row_of(budget: Budget) -> dict[str, Any]:
    return to_account_row(VISITS, Account.from_budget(budget), KeyedDigest())


def put(file: sqlite3.Connection, table: str, where: str, row: dict[str, Any]) -> None:
    names = ", ".join(f"{name} = ?" for name in row)
    file.execute(f"UPDATE {table} SET {names} WHERE {where}", list(row.values()))


def raised_beside(file: sqlite3.Connection) -> None:
    """The stored budget alone, with its digest."""
    put(file, "accounts", "1", row_of(Budget("pure", Fraction(8), Fraction(0))))


def lowered_in_the_past(file: sqlite3.Connection) -> None:
    """The amendment is said to have begun with another budget than the entries before it were charged to."""
    details = json.loads(file.execute("SELECT details FROM entries WHERE id = 2").fetchone()[0])
    columns = row_of(HALF)
    details["before"] = {name: columns[name] for name in details["before"]}
    put(file, "entries", "id = 2", {"details": json.dumps(details, sort_keys=True, separators=(",", ":"))})
    rebuilt(file, LAST)


def removed(file: sqlite3.Connection) -> None:
    """The amendment is gone, and its budget stays."""
    file.executescript(
        "DELETE FROM entries WHERE id = 2; UPDATE entries SET id = id - 1, charge = charge - 1, number = number - 1 WHERE id > 2"
    )
    rebuilt(file, LAST)


def below_what_was_spent(file: sqlite3.Connection) -> None:
    """The budget is lowered to half of what the first entry spent, so that charges of before look refused."""
    sixteenth = row_of(Budget("pure", Fraction(1, 16), Fraction(0)))
    details = json.loads(file.execute("SELECT details FROM entries WHERE id = 2").fetchone()[0])
    details["after"] = {name: sixteenth[name] for name in details["after"]}
    changed = {name: sixteenth[name] for name in ("limit_loss", "limit_delta")} | {
        "budget": sixteenth["digest"]
    }
    put(file, "entries", "id > 1", changed)
    put(file, "entries", "id = 2", {"details": json.dumps(details, sort_keys=True, separators=(",", ":"))})
    put(file, "accounts", "1", sixteenth)
    rebuilt(file, LAST)


def with_no_budgets(file: sqlite3.Connection) -> None:
    """An amendment without what it changes."""
    put(file, "entries", "id = 2", {"details": '{"reason":"a second study"}'})
    rebuilt(file, LAST)


def of_another_kind(file: sqlite3.Connection) -> None:
    """The amendment is called a failure, so that nothing explains the other budget."""
    put(file, "entries", "id = 2", {"kind": "failure", "failures": 1})
    put(file, "entries", "id > 2", {"failures": 1})
    rebuilt(file, LAST)


@pytest.mark.parametrize(
    "change",
    [raised_beside, lowered_in_the_past, removed, below_what_was_spent, with_no_budgets, of_another_kind],
    ids=lambda change: change.__name__,
)
def test_forged_amendment_is_refused(path: Path, change: Any) -> None:
    """Both opening, under any budget, and the whole check refuse it."""
    edit(path, change)
    assert found(path).code == "ledger_tampered"
    with closing(LedgerReader.open(path)) as history:
        budgets = history.read_budgets()  # what a careless ledger would go by
    with pytest.raises(IntegrityError) as caught:
        open_ledger(path, dict(budgets.items()))
    assert caught.value.code == "ledger_tampered"


def test_undone_update_amends_nothing(path: Path) -> None:
    """A trap that undoes the new budget fails the amendment as a whole."""
    edit(path, "CREATE TRIGGER t AFTER UPDATE ON accounts BEGIN UPDATE accounts SET epsilon = '2/1'; END")
    with closing(open_ledger(path, {"visits": TWO})) as ledger, pytest.raises(IntegrityError):
        ledger.amend({VISITS: ONE}, by="owner", reason="enough")
    edit(path, "DROP TRIGGER t")
    with closing(open_ledger(path, {"visits": TWO})) as ledger:
        assert ledger.verify().entries == LAST


def test_amending_needs_the_key(tmp_path: Path) -> None:
    """An amendment that is appended without the key, digests and all, is refused."""
    path, key = tmp_path / "k.ledger", b"a key of more than thirty-two bytes, for this test"
    with closing(open_ledger(path, {"visits": ONE}, key=key)) as ledger:
        charge(ledger)
    with pytest.raises(OperationalError):
        open_ledger(path, {"visits": ONE})
    with closing(open_ledger(path, {"visits": ONE}, key=key)) as ledger:
        ledger.amend({VISITS: TWO}, by="owner", reason="a second study")
    edit(path, raised_beside)
    with pytest.raises(IntegrityError):
        open_ledger(path, {"visits": Budget("pure", Fraction(8), Fraction(0))}, key=key)


def test_former_policy_spends_nothing_more(path: Path) -> None:
    """An owner lowers a budget to what is spent; a process that had the ledger open with the larger one is refused."""
    with closing(open_ledger(path, {"visits": TWO})) as former:
        with closing(open_ledger(path, {"visits": TWO})) as ledger:
            ledger.amend({VISITS: HALF}, by="owner", reason="enough")
        for _ in range(3):
            with pytest.raises(PolicyError):
                charge(former)
    with closing(open_ledger(path, {"visits": HALF})) as ledger:
        assert ledger.get_state("visits").spent.loss_fraction == Fraction(3, 8)
