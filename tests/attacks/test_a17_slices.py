"""A17: slices that were edited, in a chain whose digests were all mended afterwards, are refused with their place."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from attacks.edits import BUDGETS, edit, rebuilt, then

from dpsql.errors import IntegrityError
from dpsql.ledger import open_ledger
from dpsql.ledger.balance import AccountReservation, compute_reservations_digest
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Charge, Pure
from dpsql.privacy.accounting.partitions.boxes import WHOLE

HALF, QUARTER = Charge(Charge.UNIT // 2, 0), Charge(Charge.UNIT // 4, 0)
HELD = AccountReservation("ana", HALF)
MORE = compute_reservations_digest({1: HELD.with_charge(WHOLE, Charge(3 * Charge.UNIT // 4, 0))})
BOB = compute_reservations_digest({1: AccountReservation("bob", HALF)})
SECOND = """
CREATE TEMP TABLE copy AS SELECT * FROM entries WHERE id = 3;
UPDATE copy SET id = 4, charge = 4, number = 4, spent_loss = '0';
DELETE FROM entries WHERE id = 4; INSERT INTO entries SELECT * FROM copy
"""
FORGERIES = {
    "more is given back than was left": (
        f"UPDATE entries SET loss = '{HALF.loss}', spent_loss = '0' WHERE id = 3", 3,
    ),
    "a slice is given back twice": (SECOND, 4),
    "a draw is free": ("UPDATE entries SET loss = '0' WHERE id = 2", 2),
    "a draw passes its slice": (
        f"UPDATE entries SET loss = '{3 * QUARTER.loss}', slices = '{MORE}' WHERE id = 2", 2,
    ),
    "a draw is another analyst's": ("UPDATE entries SET analyst = 'bob' WHERE id = 2", 2),
    "a draw is of no slice": ("UPDATE entries SET slice = NULL WHERE id = 2", 2),
    "a draw is of a slice that is not there": ("UPDATE entries SET slice = 7 WHERE id = 2", 2),
    "a return is of a slice that is not there": ("UPDATE entries SET slice = 7 WHERE id = 3", 3),
    "a return is of a part": ("""UPDATE entries SET box = '{"day":[[0,9]]}' WHERE id = 3""", 3),
    "a slice is called otherwise": ("UPDATE entries SET slice = 9 WHERE id = 1", 1),
    "a slice is charged less than it is": (
        f"UPDATE entries SET spent_loss = '{QUARTER.loss}' WHERE id = 1", 1,
    ),
    "a slice changes hands": (f"UPDATE entries SET slices = '{BOB}' WHERE id = 1", 1),
    "a charge is called a draw": ("UPDATE entries SET kind = 'draw' WHERE id = 4", 4),
    "a draw is called a charge": ("UPDATE entries SET kind = 'charge' WHERE id = 2", 2),
    "a reserve is called a charge": ("UPDATE entries SET kind = 'charge' WHERE id = 1", 1),
    "a charge has a slice": ("UPDATE entries SET slice = 1 WHERE id = 4", 4),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Half of the budget reserved, a quarter drawn, a quarter given back, a quarter charged."""
    where = tmp_path / "a.ledger"
    with closing(open_ledger(where, BUDGETS)) as ledger:
        number = ledger.reserve({"visits": Pure(Fraction(1, 2))}, analyst="ana")[0].id
        quarter = {"visits": Pure(Fraction(1, 4))}
        ledger.charge(quarter, analyst="ana", query="SELECT 1", reservation=number)
        ledger.close_reservation(number, by="ana")
        ledger.charge(quarter, analyst="ana", query="SELECT 1")
    return where


def mended(file: sqlite3.Connection) -> None:
    """All digests and links as they would be if the entries were true."""
    rebuilt(file, 4)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_slices_are_refused(path: Path, forgery: str) -> None:
    """Both opening the ledger with its policy and `dpsql ledger verify` refuse forged slices."""
    change, place = FORGERIES[forgery]
    edit(path, then(change, mended))
    with pytest.raises(
        IntegrityError, match=f"entry {place} of the ledger does not agree with the entries before it"
    ):
        open_ledger(path, BUDGETS)
    with closing(LedgerReader.open(path)) as history, pytest.raises(IntegrityError, match=f"entry {place} "):
        history.verify()


def test_true_slices_with_the_same_digests_pass(path: Path) -> None:
    """The forgeries fail for their content, not for the way in which their digests are made."""
    edit(path, mended)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        assert ledger.verify().entries == 4
        assert ledger.get_state("visits").spent == HALF


@pytest.mark.parametrize("column", ["slice", "slices", "kind", "loss"])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_single_changed_field_is_refused(path: Path, column: str, place: int) -> None:
    """The digest covers what is new in these entries."""
    edit(path, f"UPDATE entries SET {column} = '99' WHERE id = {place}")
    with pytest.raises(IntegrityError, match=f"entry {place} of the ledger was changed"):
        open_ledger(path, BUDGETS)
