"""The preparation of a ledger's database before its first use: tables of a new ledger, checks of an existing one."""

from __future__ import annotations

import time

from sqlalchemy import Connection, insert

from dpsql.errors import OperationalError
from dpsql.ledger.account_book import AccountBook
from dpsql.ledger.database_identity import require_same_database
from dpsql.ledger.group_commit import run_uninterrupted
from dpsql.ledger.journal import Journal
from dpsql.ledger.protocol import LedgerHead
from dpsql.ledger.schema import ACCOUNTS, to_account_row
from dpsql.ledger.stored_budget import require_one_spelling
from dpsql.ledger.tables import (
    make_tables,
    read_accounts,
    read_ledger_meta,
    require_derived_rows,
    require_key,
)


def prepare_ledger(journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None) -> None:
    """Create the tables in an empty database, or check the existing ones; raise what `open_ledger` documents."""
    run_uninterrupted(lambda: _prepare_with_retries(journal, book, expected, database))


def _prepare_with_retries(
    journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None
) -> None:
    deadline = time.monotonic() + journal.store.patience
    while True:
        try:
            return _prepare_once(journal, book, expected, database)
        except OperationalError as error:
            # SQLite does not wait for its lock when it changes the journal mode.
            if error.code != "ledger_busy" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _prepare_once(journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None) -> None:
    store, digests = journal.store, journal.digests
    with store.open_connection() as connection:
        # Before anything is changed, since the database may belong to another program.
        if meta := read_ledger_meta(store, connection):
            require_key(meta, digests, store.where)
        store.configure_database(connection)
    with store.open_transaction(write=True) as connection:
        meta = read_ledger_meta(store, connection)
        if not meta:
            make_tables(connection, digests)
        else:
            require_key(meta, digests, store.where)
        journal.follow_new_entries(connection, expected)
        require_derived_rows(connection, journal.chain.balances)
        require_same_database(store.where, journal.chain.database, database)
        _store_missing_accounts(connection, journal, book)
        journal.create_anchor()


def _store_missing_accounts(connection: Connection, journal: Journal, book: AccountBook) -> None:
    """Store the accounts that the ledger does not have yet, and take over the limits of those that it has."""
    stored = read_accounts(connection, journal.digests)
    require_one_spelling(book.accounts, stored)
    for key in tuple(book.accounts):
        if key in stored:
            book.take_stored_limit(key, stored[key], journal.digests)
        else:
            stored[key] = to_account_row(key, book.accounts[key], journal.digests)
            connection.execute(insert(ACCOUNTS), stored[key])
    journal.expect_budgets(stored, book.accounts)
