"""Read-only access to a ledger without its policy, for checks and listings."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from dpsql.errors import OperationalError
from dpsql.ledger.balance import FAILURE
from dpsql.ledger.budget import Budget
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.journal import verify_chain
from dpsql.ledger.open import open_existing_store
from dpsql.ledger.protocol import START, Entry, LedgerHead
from dpsql.ledger.releases import read_release_head
from dpsql.ledger.schema import ENTRIES, get_row_head, parse_budget, parse_checked_entry
from dpsql.ledger.stores.base import Store
from dpsql.ledger.tables import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    find_last_row,
    iterate_entry_rows,
    read_accounts,
    read_ledger_meta,
    require_key,
)

_BATCH = 1000


class LedgerReader:
    """The entries of a ledger, read-only; `columns` are the keys of the rows that `iterate_rows` yields. Close it after use."""

    columns: tuple[str, ...] = tuple(ENTRIES.columns.keys())

    def __init__(self, store: Store, digests: KeyedDigest) -> None:
        self._store = store
        self._digests = digests
        weakref.finalize(self, store.abandon)

    @classmethod
    def open(cls, target: str | Path, key: bytes | None = None) -> Self:
        """Return a reader of the ledger at `target`, with its key if it has one.

        Nothing is checked yet but that it is a ledger of the present schema, and the key. Raises OperationalError
        where there is none (`ledger_unavailable`), where it is of another schema (`ledger_version`) and for a wrong
        key (`ledger_key`).
        """
        store, digests = open_existing_store(target), KeyedDigest(key)
        try:
            with store.open_transaction(write=False) as connection:
                _require_ledger(read_ledger_meta(store, connection), digests, store.where)
        except BaseException:
            store.close()
            raise
        return cls(store, digests)

    def verify(self, expected: LedgerHead | None = None) -> Chain:
        """Check every entry, and that the ledger holds the head `expected`; returns the head and each account's balance.

        Raises IntegrityError, `ledger_tampered` with the number of the first entry that is not what dpsql wrote,
        `ledger_rolled_back` where the head is not part of the chain.
        """
        return verify_chain(self._store, self._digests, expected or START)

    def read_head(self) -> LedgerHead:
        """Return the head of the ledger as its last entry states it; `verify` checks it."""
        with self._store.open_transaction(write=False) as connection:
            end = find_last_row(connection)
            chain = Chain() if end is None else Chain(get_row_head(end))
            return chain.compute_full_head(read_release_head(connection, self._digests, START))

    def read_budgets(self) -> dict[AccountKey, Budget]:
        """Return the budget of each account, checked against its digest."""
        with self._store.open_transaction(write=False) as connection:
            rows = read_accounts(connection, self._digests)
        return {key: parse_budget(row, self._digests) for key, row in rows.items()}

    def find_row(self, number: int) -> Row | None:
        """Return the row of the entry of this number, unchecked; None if there is none."""
        with self._store.open_transaction(write=False) as connection:
            return next(
                iter(list(iterate_entry_rows(connection, select(ENTRIES).where(ENTRIES.c.id == number)))),
                None,
            )

    def find_entry(self, number: int) -> Entry | None:
        """Return the entry of this number, checked against its digest; None if there is none."""
        row = self.find_row(number)
        return None if row is None else parse_checked_entry(row, self._digests)

    def list_charge_entries(self, number: int) -> list[Entry]:
        """Return the entries of the charge whose first entry has this number, checked against their digests.

        Not those of its failures.
        """
        with self._store.open_transaction(write=False) as connection:
            wanted = OLDEST_FIRST.where(
                ENTRIES.c.id >= number,
                ENTRIES.c.id < number + _BATCH,
                ENTRIES.c.charge == number,
                ENTRIES.c.kind != FAILURE,
            )
            rows = list(iterate_entry_rows(connection, wanted))
        return [parse_checked_entry(row, self._digests) for row in rows]

    @property
    def where(self) -> str:
        """Return the ledger's place, as errors name it: without a password."""
        return self._store.where

    def iterate_rows(self) -> Iterator[dict[str, Any]]:
        """Return the rows of all entries, oldest first, each checked against its digest; read on demand."""
        return (dict(row) for row, _ in self._iterate_checked_rows())

    def iterate_entries(self) -> Iterator[Entry]:
        """Return all entries, as `iterate_rows`."""
        return (entry for _, entry in self._iterate_checked_rows())

    def _iterate_checked_rows(self) -> Iterator[tuple[Row, Entry]]:
        after = None
        while True:
            wanted = OLDEST_FIRST if after is None else OLDEST_FIRST.where(ENTRIES.c.id > after)
            with self._store.open_transaction(write=False) as connection:
                rows = list(iterate_entry_rows(connection, wanted.limit(_BATCH)))
            if not rows:
                return
            for row in rows:
                yield row, parse_checked_entry(row, self._digests)
            after = rows[-1]["id"]

    def list_last_entries(
        self, limit: int, *, table: str | None = None, analyst: str | None = None, kind: str | None = None
    ) -> list[Entry]:
        """Return the last entries (of a table, an analyst or a kind), oldest first, each checked against its digest."""
        wanted = NEWEST_FIRST.limit(limit)
        if kind is not None:
            wanted = wanted.where(ENTRIES.c.kind == kind)
        if table is not None:
            wanted = wanted.where(ENTRIES.c.table_name == table)
        if analyst is not None:
            wanted = wanted.where(ENTRIES.c.analyst == analyst)
        with self._store.open_transaction(write=False) as connection:
            rows = list(iterate_entry_rows(connection, wanted))
        return [parse_checked_entry(row, self._digests) for row in reversed(rows)]

    def close(self) -> None:
        """End the use of the ledger; it stays."""
        self._store.close()


def _require_ledger(meta: Mapping[str, str], digests: KeyedDigest, where: str) -> None:
    if not meta:
        raise OperationalError(
            f"{where} is empty, so it is not a ledger", code="not_a_ledger", hint="give the path of a ledger"
        )
    require_key(meta, digests, where)
