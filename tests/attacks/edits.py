"""Edits of a ledger's file, as somebody who can write it makes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import IntegrityError
from dpsql.ledger import Budget, Ledger, LedgerHead, open_ledger
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.journal import verify_chain
from dpsql.ledger.protocol import FIRST_PREVIOUS
from dpsql.ledger.stores.sqlite import SqliteStore
from dpsql.privacy.accounting import Pure

EIGHTH = Pure(Fraction(1, 8))
BUDGETS = {
    "patients": Budget("pure", Fraction(1), Fraction(0)),
    "visits": Budget("pure", Fraction(1), Fraction(0)),
}
LENGTH = 6
Edit = Callable[[sqlite3.Connection], object]


def charge(ledger: Ledger, *tables: str) -> None:
    """Charges an eighth of each table's budget."""
    ledger.charge(dict.fromkeys(tables or ("visits",), EIGHTH), analyst="ana", query="SELECT 1")


def six_entries(where: Path) -> bytes:
    """The file of a ledger of six entries, two of `patients` and four of `visits`."""
    with closing(open_ledger(where, BUDGETS)) as ledger:
        for tables in (("visits",), ("patients", "visits"), ("visits",), ("patients", "visits")):
            charge(ledger, *tables)
    return where.read_bytes()


def edit(path: Path, change: Edit | str) -> None:
    """Changes the file as somebody with SQLite's own shell can."""
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        if isinstance(change, str):
            file.executescript(change)
        else:
            change(file)
        file.commit()


def rebuilt(file: sqlite3.Connection, last: int = LENGTH) -> None:
    """Gives the entries up to `last` the digests and links that they would have if they were true."""
    previous = FIRST_PREVIOUS
    for row in map(dict, file.execute("SELECT * FROM entries WHERE id <= ? ORDER BY id", [last]).fetchall()):
        row["previous"] = previous
        previous = KeyedDigest().compute_digest(row)
        file.execute(
            "UPDATE entries SET previous = ?, digest = ? WHERE id = ?", [row["previous"], previous, row["id"]]
        )


def then(*changes: Edit | str) -> Edit:
    """Changes one after the other."""

    def change(file: sqlite3.Connection) -> None:
        for each in changes:
            if isinstance(each, str):
                file.executescript(each)
            else:
                each(file)

    return change


def with_true_digests(table: str) -> Edit:
    """A change that gives the rows of a table the digests that they would have if they were true."""

    def change(file: sqlite3.Connection) -> None:
        for row in map(dict, file.execute(f"SELECT rowid AS place, * FROM {table}").fetchall()):
            place = row.pop("place")
            file.execute(
                f"UPDATE {table} SET digest = ? WHERE rowid = ?", [KeyedDigest().compute_digest(row), place]
            )

    return change


COPY = "CREATE TEMP TABLE copy AS SELECT * FROM entries; {}; INSERT INTO entries SELECT * FROM copy {}"
RENUMBERED = "UPDATE entries SET id = id - 1 WHERE id > 3"
CHEAPER = "UPDATE entries SET loss = '0' WHERE id = 3"
RENAMED = "UPDATE entries SET analyst = 'bob' WHERE id = 3"
FREE = "UPDATE entries SET loss = '0', spent_loss = '0', number = 1 WHERE table_name = 'visits'"
TAMPERED: dict[str, tuple[Edit | str, int | None]] = {
    "removed from the middle": ("DELETE FROM entries WHERE id = 3", 3),
    "removed from the start": ("DELETE FROM entries WHERE id = 1", 1),
    "removed and closed up": (f"DELETE FROM entries WHERE id = 3; {RENUMBERED}", 3),
    "removed, closed up, one digest mended": (
        then(f"DELETE FROM entries WHERE id = 3; {RENUMBERED}", with_true_digests("entries")),
        3,
    ),
    "two swapped": (
        then(*(f"UPDATE entries SET id = {new} WHERE id = {old}" for old, new in ((3, 99), (4, 3), (99, 4)))),
        3,
    ),
    "one put in at the end": (COPY.format("UPDATE copy SET id = id + 3", "WHERE id = 7"), 7),
    "one put in before all": (COPY.format("UPDATE copy SET id = id - 4", "WHERE id = 0"), 0),
    "one put in before all, counted down": (COPY.format("UPDATE copy SET id = -id", "WHERE id = -2"), -2),
    "edited": (CHEAPER, 3),
    "edited with its digest": (then(CHEAPER, with_true_digests("entries")), 3),
    "renamed with its digest": (then(RENAMED, with_true_digests("entries")), 4),
    "edited with all digests after it": (then(CHEAPER, rebuilt), 3),
    "all free, with all digests": (then(FREE, rebuilt), 3),
    "moved to another table": (
        then("UPDATE entries SET table_name = 'patients' WHERE id = 6", rebuilt),
        6,
    ),
    "a budget raised": ("UPDATE accounts SET limit_loss = limit_loss || '0'", None),
    "a budget lowered": ("UPDATE accounts SET limit_loss = '1' WHERE table_name = 'visits'", None),
    "a budget raised with its digest": (
        then("UPDATE accounts SET epsilon = '2/1'", with_true_digests("accounts")),
        1,
    ),
    "a limit lowered with its digest": (
        then("UPDATE accounts SET limit_loss = '1'", with_true_digests("accounts")),
        1,
    ),
    "a budget removed": ("DELETE FROM accounts WHERE table_name = 'patients'", 2),
}


def refused(path: Path, anchor: LedgerHead | Path | None = None) -> IntegrityError:
    """The error of opening the ledger."""
    with pytest.raises(IntegrityError) as caught:
        open_ledger(path, BUDGETS, anchor=anchor)
    return caught.value


def found(path: Path) -> IntegrityError:
    """What the whole check of the ledger finds, however long it is."""
    with closing(SqliteStore(path)) as store, pytest.raises(IntegrityError) as caught:
        verify_chain(store, KeyedDigest())
    return caught.value
