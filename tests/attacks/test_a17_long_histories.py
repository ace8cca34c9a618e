"""A17 in a long history: opening looks at its end, the whole check at all of it.

What was edited between is found by `verify`; a key, in tests/ledger/test_key.py, makes the end prove the totals.
"""

from __future__ import annotations

import contextlib
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from attacks.edits import (
    BUDGETS,
    COPY,
    LENGTH,
    TAMPERED,
    Edit,
    charge,
    edit,
    found,
    refused,
    then,
    with_true_digests,
)

from dpsql.errors import IntegrityError
from dpsql.ledger import journal, open_ledger


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six entries are a long history: those are not all read on opening."""
    monkeypatch.setattr(journal, "_MOST_FOLLOWED", 2)


UP_TO_DATE: dict[str, Edit | str] = {
    "the last removed": "DELETE FROM entries WHERE id = 5",
    "the last of one account edited": "UPDATE entries SET spent_loss = '0' WHERE id = 5",
    "the last edited with its digest": then(
        "UPDATE entries SET spent_loss = '0' WHERE id = 5", with_true_digests("entries")
    ),
    "the one before the last edited with its digest": then(
        "UPDATE entries SET analyst = 'bob' WHERE id = 4", with_true_digests("entries")
    ),
    "all of an account removed": "DELETE FROM entries WHERE table_name = 'patients'",
    "an account removed": "DELETE FROM accounts WHERE table_name = 'patients'",
    "a budget raised": "UPDATE accounts SET limit_loss = limit_loss || '0'",
    "a budget raised with its digest": then(
        "UPDATE accounts SET epsilon = '2/1'", with_true_digests("accounts")
    ),
    "entries of an account moved away": "UPDATE entries SET account_analyst = 'x' WHERE table_name = 'visits'",
    "one put in at the end": COPY.format("UPDATE copy SET id = id + 3", "WHERE id = 7"),
}


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("name", UP_TO_DATE)
def test_entries_behind_a_total_are_checked_on_opening(path: Path, name: str) -> None:
    """Opening checks each account's last entry, its links and its budget, and that none is missing."""
    edit(path, UP_TO_DATE[name])
    assert refused(path).code == "ledger_tampered"


@pytest.mark.usefixtures("long")
def test_last_entry_of_an_idle_account_is_held_by_the_next_entry(tmp_path: Path) -> None:
    """Amid the chain, a last entry with a mended digest does not fit the next entry's link."""
    path = tmp_path / "idle.ledger"
    with closing(open_ledger(path, BUDGETS)) as ledger:
        for table in ("visits", "patients", "visits", "visits", "visits", "visits"):
            charge(ledger, table)
    edit(path, then("UPDATE entries SET spent_loss = '0' WHERE id = 2", with_true_digests("entries")))
    assert "entry 3 of the ledger does not continue the entry before it" in refused(path).message


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("name", [name for name, (_, number) in TAMPERED.items() if number in {1, 2, 3}])
def test_edit_in_a_long_history_is_found_by_verify(path: Path, name: str) -> None:
    """`verify` refuses an edit with its position; a naive ledger only looks at the end."""
    change, number = TAMPERED[name]
    edit(path, change)
    error = found(path)
    assert f"entry {number} of the ledger" in error.message
    with contextlib.suppress(IntegrityError), closing(open_ledger(path, BUDGETS)) as ledger:
        with pytest.raises(IntegrityError) as caught:
            ledger.verify()
        assert caught.value.message == error.message


@pytest.mark.usefixtures("long")
def test_consistent_edit_of_a_last_entry_passes_until_verify(path: Path) -> None:
    """The attack works on a ledger without a key until it is verified; a ledger in use is not deceived."""
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.get_state("visits").remaining_epsilon == Fraction(1, 2)
        edit(path, then("UPDATE entries SET spent_loss = '0' WHERE id = 6", with_true_digests("entries")))
        with pytest.raises(IntegrityError):
            ledger.get_state("visits")
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.get_state("visits").remaining_epsilon == 1
        with pytest.raises(IntegrityError) as caught:
            ledger.verify()
        assert "entry 6 of" in caught.value.message


@pytest.mark.usefixtures("long")
def test_many_new_entries_are_looked_up_from_the_last_ones(path: Path) -> None:
    """A ledger in use that finds more new entries than it follows takes the totals from the last ones."""
    with closing(open_ledger(path, BUDGETS)) as idle, closing(open_ledger(path, BUDGETS)) as busy:
        for _ in range(3):
            charge(busy, "patients", "visits")
        assert idle.list_states() == busy.list_states()
        assert idle.verify() == busy.read_head()
        assert idle.read_head().entries == LENGTH + 6
