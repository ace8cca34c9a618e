"""The ledger in an SQLite file: write-ahead log, synchronous FULL, one writer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, insert, select

from dpsql.accounting.budget import Budget
from dpsql.accounting.events import Event, to_json
from dpsql.accounting.ledger import Account, BudgetState, Clock, Entry, Quote, utc_now
from dpsql.accounting.refusal import exhausted
from dpsql.accounting.rows import (
    budget_row,
    canonical,
    entry_digest,
    stored_budget,
    stored_entry,
    stored_head,
    stored_spend,
    stored_total,
    text_digest,
)
from dpsql.accounting.schema import BUDGETS, ENTRIES, FORMAT, META, METADATA, SCHEMA
from dpsql.accounting.spend import Spend
from dpsql.accounting.sqlite_file import (
    BUSY_SECONDS,
    connected,
    file_engine,
    make_private,
    memory_engine,
    transaction,
)
from dpsql.errors import IntegrityError, InterfaceError, OperationalError, PolicyError

MEMORY: Final = ":memory:"

_NEWEST_FIRST = select(ENTRIES).order_by(ENTRIES.c.id.desc())


class SqliteLedger:
    """A `Ledger` in one SQLite file, or in memory.

    Any number of these may share a file, across threads and processes: a charge reads the totals and
    writes its entries under SQLite's write lock. Objects survive a fork, except those in memory, which
    belong to the process that made them.
    """

    def __init__(self, engine: Engine, where: str, accounts: Mapping[str, Account], clock: Clock) -> None:
        self._engine = engine
        self._where = where
        self._accounts = dict(sorted(accounts.items()))
        self._clock = clock
        self._owner = os.getpid() if where == MEMORY else None
        self._closed = False

    @classmethod
    def open(
        cls, target: str | Path, budgets: Mapping[str, Budget], *, clock: Clock = utc_now
    ) -> SqliteLedger:
        """The ledger at `target`, made with mode 0600 if missing; errors as `open_ledger` says."""
        accounts = {table: Account.of(budget) for table, budget in budgets.items()}
        if str(target) == MEMORY:
            ledger = cls(memory_engine(), MEMORY, accounts, clock)
        else:
            # Absolute, so that a later chdir cannot lead to another, fresh, ledger.
            path = _real_path(target)
            make_private(path)
            ledger = cls(file_engine(path), str(path), accounts, clock)
        ledger._prepare()
        return ledger

    def charge(
        self,
        charges: Mapping[str, Event],
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
    ) -> tuple[Entry, ...]:
        """As `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        costs = self._costs(charges)
        if not costs:
            return ()
        text_digest(analyst)
        common: dict[str, Any] = {
            "at": self._clock().astimezone(UTC).isoformat(timespec="microseconds"),
            "analyst": analyst,
            "query": query,
            "query_digest": text_digest(query),
            "details": canonical(dict(details or {})),
        }
        rows: list[dict[str, Any]] = []
        with self._transaction("IMMEDIATE") as connection:
            totals = {table: _total(connection, table) for table in costs}
            quotes = self._quotes(costs, totals)
            if all(quote.fits for quote in quotes):
                rows = self._rows(connection, charges, quotes, totals, common)
                connection.execute(insert(ENTRIES), rows)
        for quote in quotes:
            if not quote.fits:
                raise exhausted(self._accounts[quote.table], quote)
        return tuple(stored_entry(row) for row in rows)

    def dry_run(self, charges: Mapping[str, Event]) -> tuple[Quote, ...]:
        """As `Ledger.dry_run`."""
        costs = self._costs(charges)
        with self._transaction("DEFERRED") as connection:
            totals = {table: _total(connection, table) for table in costs}
        return self._quotes(costs, totals)

    def state(self, table: str) -> BudgetState:
        """As `Ledger.state`; PolicyError (`no_budget`) for a table without a budget."""
        account = self._account(table)
        with self._transaction("DEFERRED") as connection:
            total = _total(connection, table)
        return _state(table, account, *total)

    def states(self) -> tuple[BudgetState, ...]:
        """As `Ledger.states`, all at one moment."""
        with self._transaction("DEFERRED") as connection:
            totals = {table: _total(connection, table) for table in self._accounts}
        return tuple(_state(table, self._accounts[table], *total) for table, total in totals.items())

    def entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Ledger.entries`."""
        wanted = _NEWEST_FIRST
        if table is not None:
            wanted = wanted.where(ENTRIES.c.table_name == table)
        if limit is not None:
            wanted = wanted.limit(max(limit, 0))
        with self._transaction("DEFERRED") as connection:
            rows = [dict(row) for row in connection.execute(wanted).mappings()]
        return tuple(stored_entry(row) for row in reversed(rows))

    def close(self) -> None:
        """Ends the use of this object; a ledger in memory is gone."""
        if not self._closed and self._owner in (None, os.getpid()):
            self._engine.dispose()
        self._closed = True

    def _account(self, table: str) -> Account:
        if table not in self._accounts:
            raise PolicyError(f"the ledger has no budget for table {table}", code="no_budget")
        return self._accounts[table]

    def _costs(self, charges: Mapping[str, Event]) -> dict[str, Spend]:
        return {table: self._account(table).accountant.cost(charges[table]) for table in sorted(charges)}

    def _quotes(
        self, costs: Mapping[str, Spend], totals: Mapping[str, tuple[Spend, int]]
    ) -> tuple[Quote, ...]:
        return tuple(
            Quote(table, cost, _left(self._accounts[table].limit, totals[table][0]))
            for table, cost in costs.items()
        )

    def _rows(
        self,
        connection: Connection,
        charges: Mapping[str, Event],
        quotes: tuple[Quote, ...],
        totals: Mapping[str, tuple[Spend, int]],
        common: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        last, previous = stored_head(_last(connection, _NEWEST_FIRST))
        rows: list[dict[str, Any]] = []
        for position, quote in enumerate(quotes, start=1):
            limit = self._accounts[quote.table].limit
            spent, queries = totals[quote.table]
            row = dict(common)
            row |= {"id": last + position, "charge": last + 1, "table_name": quote.table}
            row |= {"number": queries + 1, "event": to_json(charges[quote.table]), "previous": previous}
            row |= _columns("", quote.spend) | _columns("spent_", spent + quote.spend)
            row |= _columns("limit_", limit)
            previous = row["digest"] = entry_digest(row)
            rows.append(row)
        return rows

    @contextmanager
    def _transaction(self, mode: str) -> Iterator[Connection]:
        if self._closed:
            raise InterfaceError("the ledger is closed", code="ledger_closed")
        if self._owner not in (None, os.getpid()):
            # The child's copy would spend the parent's budget a second time.
            raise OperationalError(
                "a ledger in memory belongs to the process that made it",
                code="ledger_forked",
                hint="keep the ledger in a file",
            )
        with transaction(self._engine, self._where, mode) as connection:
            yield connection

    def _prepare(self) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._prepare_once()
            except OperationalError as error:
                # SQLite does not wait for its lock when it changes the journal mode.
                if error.code != "ledger_busy" or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare_once(self) -> None:
        with connected(self._engine, self._where) as connection:
            # Before anything is changed, for the file may be somebody else's database.
            _check_format(connection, self._where)
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
            if mode not in ("wal", "memory"):
                raise OperationalError(
                    f"the ledger {self._where} lies on a file system without shared memory",
                    code="ledger_unavailable",
                    hint="keep the ledger on a local disk",
                )
        with self._transaction("IMMEDIATE") as connection:
            if not _check_format(connection, self._where):
                METADATA.create_all(connection, checkfirst=False)
                meta = {"format": FORMAT, "schema": SCHEMA}
                connection.execute(insert(META), [{"key": k, "value": v} for k, v in meta.items()])
            stored = {row["table_name"]: row for row in connection.execute(select(BUDGETS)).mappings()}
            for table, account in self._accounts.items():
                if table in stored:
                    self._accounts[table] = _settled(table, account, dict(stored[table]))
                else:
                    connection.execute(insert(BUDGETS), budget_row(table, account))


def _real_path(target: str | Path) -> Path:
    try:
        return Path(os.path.realpath(target))
    except (OSError, ValueError):
        raise OperationalError("the ledger's path is no path", code="ledger_unavailable") from None


def _check_format(connection: Connection, where: str) -> bool:
    """True for a ledger, False for an empty database; raises for anything else."""
    if not connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").all():
        return False
    meta: dict[str, str] = {}
    columns = connection.exec_driver_sql("SELECT name FROM pragma_table_info('meta')").scalars()
    if {"key", "value"} <= set(columns):
        known = select(META).where(META.c.key.in_(["format", "schema"]))
        meta = {str(row.key): str(row.value) for row in connection.execute(known)}
    if meta.get("format") != FORMAT:
        raise OperationalError(
            f"{where} is no ledger but some other database", code="not_a_ledger", hint="give another path"
        )
    if meta.get("schema") != SCHEMA:
        raise OperationalError(
            f"the ledger {where} was written by another version of dpsql",
            code="ledger_version",
            hint="use the version that wrote it, or a newer one",
        )
    return True


def _settled(table: str, account: Account, row: Mapping[str, Any]) -> Account:
    """The account with the limit that was fixed when the budget was stored."""
    stored = stored_budget(row)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of table {table} is {account.budget} in the policy, but {stored} in its ledger",
            code="budget_changed",
            hint="a budget is fixed when its ledger is made: restore the policy's, or begin a new ledger",
        )
    limit = stored_spend(row["limit_loss"], row["limit_delta"])
    if not limit.within(account.limit):
        raise IntegrityError(
            f"the ledger allows table {table} more than its budget does", code="ledger_corrupt"
        )
    return replace(account, limit=limit)


def _total(connection: Connection, table: str) -> tuple[Spend, int]:
    """The running totals of the table's last entry, so that the history's length does not matter."""
    return stored_total(_last(connection, _NEWEST_FIRST.where(ENTRIES.c.table_name == table)))


def _last(connection: Connection, newest_first: Select[Any]) -> dict[str, Any] | None:
    row = connection.execute(newest_first.limit(1)).mappings().one_or_none()
    return None if row is None else dict(row)


def _left(limit: Spend, spent: Spend) -> Spend:
    return Spend(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def _columns(prefix: str, spend: Spend) -> dict[str, str]:
    return {f"{prefix}loss": str(spend.loss), f"{prefix}delta": str(spend.delta)}


def _state(table: str, account: Account, spent: Spend, queries: int) -> BudgetState:
    budget, accountant = account.budget, account.accountant
    return BudgetState(
        table=table,
        accountant=budget.accountant,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        limit=account.limit,
        queries=queries,
        remaining_epsilon=accountant.remaining_epsilon(spent, account.limit),
        spent_epsilon=accountant.epsilon_spent(spent, budget.delta, budget.selection),
    )
