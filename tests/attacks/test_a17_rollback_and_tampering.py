"""A17: a ledger that was edited is refused; an older one, when it is anchored or in use.

A short ledger is checked as a whole when it is opened; of long ones is test_a17_long_histories.py. The chain alone
shows edits, not a history that ends too early or was rebuilt from the start. Those are refused by whoever holds a
later head: an anchor, or a process that has the ledger open.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attacks.edits import (
    BUDGETS,
    COPY,
    EIGHTH,
    LENGTH,
    RENAMED,
    TAMPERED,
    charge,
    edit,
    found,
    rebuilt,
    refused,
    then,
)

from dpsql.errors import IntegrityError
from dpsql.ledger import AnchorFile, open_ledger
from dpsql.ledger.schema import ACCOUNTS, ENTRIES
from dpsql.privacy.accounting import Charge


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_refused_with_its_position(path: Path, name: str) -> None:
    """Each edit is detected on opening and by the whole check; the error names the entry or the budget, nothing else."""
    change, number = TAMPERED[name]
    edit(path, change)
    for error in (refused(path), found(path)):
        assert error.code == "ledger_tampered"
        assert (
            f"entry {number} of the ledger" if number is not None else "the stored budget of table"
        ) in error.message
        assert "ana" not in str(error)
        assert "SELECT" not in str(error)
    assert refused(path).code == "ledger_tampered"


@pytest.mark.parametrize("column", [column.name for column in ENTRIES.columns])
def test_no_field_of_an_entry_can_be_changed(path: Path, written: bytes, column: str) -> None:
    """A changed value in any column of any entry is detected."""
    for entry in range(1, LENGTH + 1):
        value = (
            "id + 100" if column == "id" else f"{column} + 1" if column in {"charge", "number"} else "'0/1'"
        )
        edit(path, f"UPDATE entries SET {column} = {value} WHERE id = {entry}")
        error = refused(path)
        assert error.code == "ledger_tampered"
        assert f"entry {entry} of" in error.message
        path.write_bytes(written)


@pytest.mark.parametrize("column", [column.name for column in ACCOUNTS.columns])
def test_no_field_of_a_budget_can_be_changed(path: Path, column: str) -> None:
    """A changed value in any column of a budget is detected."""
    edit(path, f"UPDATE accounts SET {column} = '1/2' WHERE table_name = 'visits'")
    assert refused(path).code == "ledger_tampered"


TRAPS = {
    "a trigger that removes": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN"
    " DELETE FROM entries WHERE id = NEW.id; END",
    "a trigger that refunds": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN"
    " UPDATE entries SET spent_loss = '0' WHERE id = NEW.id; END",
    "a trigger that ignores": "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())
def test_undone_charge_is_no_charge(path: Path, trap: str) -> None:
    """A trap in the file that undoes entries as they are written fails the charge before any answer.

    A naive ledger, which does not read back what it wrote, would have charged nothing.
    """
    edit(path, trap)
    naive = path.with_name("naive")
    shutil.copy(path, naive)
    edit(naive, COPY.format("UPDATE copy SET id = id + 1", "WHERE id = 7"))
    with closing(sqlite3.connect(naive)) as file:
        assert file.execute("SELECT id FROM entries WHERE id > 6 AND spent_loss <> '0'").fetchall() == []
    with closing(open_ledger(path, BUDGETS)) as ledger:
        for _ in range(2):
            with pytest.raises(IntegrityError) as caught:
                charge(ledger)
            assert caught.value.code == "ledger_tampered"
            assert "entry 7 of" in caught.value.message
        assert ledger.read_head().entries == LENGTH


def truncated(path: Path, _: Path) -> None:
    """Removes the last charge."""
    edit(path, "DELETE FROM entries WHERE id > 4")


def replaced(path: Path, older: Path) -> None:
    """Moves an older copy to the ledger's path."""
    copy = older.with_name("copy")
    shutil.copy(older, copy)
    restore(copy, path)


def restore(copy: Path, path: Path) -> None:
    """Moves a ledger to a path, and takes away the log of the one that was there."""
    for beside in ("-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    copy.replace(path)


def overwritten(path: Path, older: Path) -> None:
    """Writes an older copy into the ledger's file."""
    path.write_bytes(older.read_bytes())


def begun_anew(path: Path, _: Path) -> None:
    """Puts a new ledger in the place of the old."""
    path.unlink()
    open_ledger(path, BUDGETS).close()


def rewritten(path: Path, _: Path) -> None:
    """Makes one entry cheaper and all that follow true to it."""
    edit(
        path,
        then(
            "UPDATE entries SET loss = '0' WHERE id = 6",
            "UPDATE entries SET spent_loss = (SELECT spent_loss FROM entries WHERE id = 4) WHERE id = 6",
            rebuilt,
        ),
    )


ROLLBACKS = [truncated, replaced, overwritten, begun_anew, rewritten]
rollbacks = pytest.mark.parametrize("roll_back", ROLLBACKS, ids=lambda function: function.__name__)
RollBack = Callable[[Path, Path], None]


@pytest.fixture
def older(path: Path, tmp_path: Path) -> Path:
    """A copy of the ledger when it had four entries."""
    copy = tmp_path / "older"
    shutil.copy(path, copy)
    edit(copy, "DELETE FROM entries WHERE id > 4")
    return copy


@rollbacks
def test_rolled_back_ledger_is_refused_by_its_anchor(
    path: Path, older: Path, tmp_path: Path, roll_back: RollBack
) -> None:
    """A stored head refuses it; without one, the attack works."""
    with closing(open_ledger(path, BUDGETS)) as ledger:
        head = ledger.read_head()
    kept = tmp_path / "kept"
    AnchorFile(kept).replace_head(head)
    roll_back(path, older)
    for anchor in (head, kept):
        error = refused(path, anchor)
        assert error.code == "ledger_rolled_back"
        assert "entry 6 " in error.message
    with closing(open_ledger(path, BUDGETS)) as naive:
        assert naive.get_state("visits").spent.loss < Charge.UNIT // 2


@rollbacks
def test_ledger_in_use_detects_a_rollback(path: Path, older: Path, roll_back: RollBack) -> None:
    """An object that saw later entries refuses every use of an older file, and works again with the newest.

    A naive one, with no memory and no anchor, finds budget to spend again.
    """
    newest = path.with_name("newest")
    shutil.copy(path, newest)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.read_head().entries == LENGTH
        roll_back(path, older)
        with closing(open_ledger(path, BUDGETS)) as naive:
            assert naive.get_state("visits").spent.loss < Charge.UNIT // 2
        uses: list[Callable[[], object]] = [
            lambda: charge(ledger),
            lambda: ledger.dry_run({"visits": EIGHTH}),
            lambda: ledger.get_state("visits"),
            ledger.list_states,
            ledger.list_entries,
            ledger.read_head,
        ]
        for use in uses:
            with pytest.raises(IntegrityError) as caught:
                use()
            assert caught.value.code == "ledger_rolled_back"
        restore(newest, path)
        charge(ledger)
        assert ledger.read_head().entries == LENGTH + 1


def test_ledger_in_use_misses_its_own_last_charge(path: Path) -> None:
    """An object expects to find at least its own charges."""
    with closing(open_ledger(path, BUDGETS)) as ledger, closing(open_ledger(path, BUDGETS)) as naive:
        charge(ledger)
        edit(path, "DELETE FROM entries WHERE id > 6")
        assert naive.read_head().entries == LENGTH
        with pytest.raises(IntegrityError) as caught:
            charge(ledger)
        assert caught.value.code == "ledger_rolled_back"
        assert "entry 7 " in caught.value.message


def test_entry_edited_during_use_is_not_shown(path: Path) -> None:
    """Entries that were checked on opening are checked again when they are listed."""
    with closing(open_ledger(path, BUDGETS)) as ledger:
        edit(path, RENAMED)
        with pytest.raises(IntegrityError) as caught:
            ledger.list_entries()
        assert "entry 3 of" in caught.value.message
        edit(path, "UPDATE entries SET analyst = 'bob' WHERE id = 6")
        with pytest.raises(IntegrityError) as caught:
            charge(ledger)
        assert "entry 6 of" in caught.value.message
    with closing(sqlite3.connect(path)) as naive:
        assert naive.execute("SELECT analyst FROM entries WHERE id = 3").fetchone() == ("bob",)


def test_anchor_detects_missing_charges_of_another_process(path: Path, older: Path, tmp_path: Path) -> None:
    """A ledger that did not see the later entries itself refuses an older file by the anchor's word."""
    anchor = tmp_path / "anchor"
    with closing(open_ledger(older, BUDGETS)) as four:
        AnchorFile(anchor).replace_head(four.read_head())
    shutil.copy(older, path)
    with (
        closing(open_ledger(path, BUDGETS, anchor=anchor)) as idle,
        closing(open_ledger(path, BUDGETS)) as naive,
    ):
        with closing(open_ledger(path, BUDGETS, anchor=anchor)) as busy:
            charge(busy)
        replaced(path, older)
        assert naive.read_head().entries == 4
        with pytest.raises(IntegrityError) as caught:
            charge(idle)
        assert caught.value.code == "ledger_rolled_back"


def test_deleted_ledger_is_not_recreated_with_an_anchor(path: Path, tmp_path: Path) -> None:
    """A missing file is a rollback if the anchor knows of entries, and no file is made."""
    anchor = tmp_path / "anchor"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        AnchorFile(anchor).replace_head(ledger.read_head())
    path.unlink()
    assert refused(path, anchor).code == "ledger_rolled_back"
    assert not path.exists()
    with closing(open_ledger(path, BUDGETS)) as naive:
        assert naive.get_state("visits").queries == 0
