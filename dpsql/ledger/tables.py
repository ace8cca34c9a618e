"""The tables of a ledger in a database: their creation, recognition and queries."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from dpsql.errors import IntegrityError, OperationalError
from dpsql.ledger.balance import (
    AMEND,
    RELEASED,
    RESET,
    AccountReservation,
    Balance,
    Reservations,
    from_charges_by_box,
    to_charges_by_box,
)
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.chain import BudgetHistory, LastEntry
from dpsql.ledger.digest import KeyedDigest, Row, compute_text_digest
from dpsql.ledger.protocol import LedgerHead
from dpsql.ledger.quote import make_rollback_error
from dpsql.ledger.schema import (
    ACCOUNTS,
    ENTRIES,
    FORMAT,
    META,
    METADATA,
    PARTS,
    RELEASES,
    RESTORE,
    SCHEMA,
    SLICES,
    get_account_key,
    parse_budget,
    parse_charge,
    to_charge_columns,
)
from dpsql.ledger.stores.base import Store
from dpsql.privacy.accounting.partitions.boxes import PartitionCharges

NEWEST_FIRST = select(ENTRIES).order_by(ENTRIES.c.id.desc())
OLDEST_FIRST = select(ENTRIES).order_by(ENTRIES.c.id)
_AMENDMENTS = OLDEST_FIRST.where(ENTRIES.c.kind == AMEND)
_FROM = OLDEST_FIRST.where(ENTRIES.c.id >= bindparam("start")).limit(bindparam("most"))
_BEFORE, _AFTER = ENTRIES.alias("before"), ENTRIES.alias("after")
_NEWEST = (
    select(func.max(ENTRIES.c.id))
    .where(
        ENTRIES.c.table_name == ACCOUNTS.c.table_name, ENTRIES.c.account_analyst == ACCOUNTS.c.account_analyst
    )
    .correlate(ACCOUNTS)
    .scalar_subquery()
)
_OF_ACCOUNT = ENTRIES.alias("last")
_LASTS = (
    select(_OF_ACCOUNT, _BEFORE.c.digest, _AFTER.c.previous)
    .select_from(ACCOUNTS)
    .join(_OF_ACCOUNT, _OF_ACCOUNT.c.id == _NEWEST)
    .outerjoin(_BEFORE, _BEFORE.c.id == _OF_ACCOUNT.c.id - 1)
    .outerjoin(_AFTER, _AFTER.c.id == _OF_ACCOUNT.c.id + 1)
    .order_by(_OF_ACCOUNT.c.id)
)
_OF_ONE_CHARGE = 16  # entries that are read together: few charges have more
_PLAIN, _KEYED = "sha256", "hmac-sha256"


def read_ledger_meta(store: Store, connection: Connection) -> dict[str, str]:
    """Return the ledger's own description of itself, {} for an empty database; raises for anything else."""
    if store.is_empty(connection):
        return {}
    meta: dict[str, str] = {}
    if {"key", "value"} <= store.list_columns(connection, META.name):
        meta = {str(row.key): str(row.value) for row in connection.execute(select(META))}
    if meta.get("format") != FORMAT:
        raise OperationalError(
            f"{store.where} is another kind of database, not a ledger",
            code="not_a_ledger",
            hint="give the path of a ledger, or of a new file",
        )
    if meta.get("schema") != SCHEMA:
        raise OperationalError(
            f"the ledger {store.where} has a format that this version of dpsql cannot read",
            code="ledger_version",
            hint="use the version of dpsql that wrote it",
        )
    return meta


def make_tables(connection: Connection, digests: KeyedDigest) -> None:
    """Make the tables in an empty database."""
    METADATA.create_all(connection, checkfirst=False)
    write_ledger_meta(connection, {"format": FORMAT, "schema": SCHEMA, **_make_key_meta(digests)})


def write_ledger_meta(connection: Connection, meta: Mapping[str, str]) -> None:
    """Add to the ledger's description of itself."""
    connection.execute(insert(META), [{"key": key, "value": value} for key, value in meta.items()])


def require_key(meta: Mapping[str, str], digests: KeyedDigest, where: str) -> None:
    """Raise OperationalError (`ledger_key`) unless the given key is the ledger's, or both have none."""
    keyed, given = meta.get("digests", _PLAIN) == _KEYED, digests.key is not None
    if keyed and not given:
        text, hint = "needs its key", "pass it: connect(…, ledger_key=FILE), or --ledger-key FILE"
    elif given and not keyed:
        text = "was made without a key, and a key cannot be added later"
        hint = "leave the key out, or start a new ledger with the key and a budget reduced by what was spent"
    elif given and not hmac.compare_digest(meta.get("key", ""), _make_key_meta(digests)["key"]):
        text, hint = "was made with another key", "pass the key that it was made with"
    else:
        return
    raise OperationalError(f"the ledger {where} {text}", code="ledger_key", hint=hint)


def _make_key_meta(digests: KeyedDigest) -> dict[str, str]:
    if digests.key is None:
        return {"digests": _PLAIN}
    return {"digests": _KEYED, "key": digests.compute_digest({"format": FORMAT})}


def read_accounts(connection: Connection, digests: KeyedDigest) -> dict[AccountKey, dict[str, Any]]:
    """Return the rows of all accounts, each checked against its digest."""
    rows = [dict(row) for row in connection.execute(select(ACCOUNTS)).mappings()]
    for row in rows:
        parse_budget(row, digests)
    return {get_account_key(row): row for row in rows}


def read_budget_history(connection: Connection, digests: KeyedDigest) -> BudgetHistory:
    """Return the budget that each account had at each entry, from the stored accounts and all amendments."""
    rows = list(iterate_entry_rows(connection, _AMENDMENTS))
    return BudgetHistory.from_rows(read_accounts(connection, digests), rows, digests)


def write_amended_account(connection: Connection, row: Row) -> None:
    """Write the amended row of an account."""
    connection.execute(
        update(ACCOUNTS).where(*_match_account(ACCOUNTS, get_account_key(row))).values(dict(row))
    )


def read_partitions(connection: Connection, key: AccountKey) -> PartitionCharges:
    """Return the stored spend of an account's partitions; an entry holds its digest."""
    found = connection.execute(select(PARTS).where(*_match_account(PARTS, key))).mappings()
    return from_charges_by_box({row["box"]: parse_charge(row["loss"], row["delta"]) for row in found})


def write_partitions(connection: Connection, key: AccountKey, before: Balance, after: Balance) -> None:
    """Write the changes in the spend of an account's partitions."""
    old, new = to_charges_by_box(before.parts), to_charges_by_box(after.parts)
    stale = [box for box, own in old.items() if new.get(box) != own]
    if before.period != after.period or 2 * len(stale) > len(old):
        # One statement that deletes all rows is faster than one for each of most boxes.
        connection.execute(delete(PARTS).where(*_match_account(PARTS, key)))
        old = {}
    elif stale:
        wanted = delete(PARTS).where(*_match_account(PARTS, key), PARTS.c.box_digest == bindparam("stale"))
        connection.execute(wanted, [{"stale": compute_text_digest(box)} for box in stale])
    fresh = [row for row in _to_partition_rows(key, after) if old.get(row["box"]) != new[row["box"]]]
    if fresh:
        connection.execute(insert(PARTS), fresh)


def _to_partition_rows(key: AccountKey, balance: Balance) -> list[dict[str, Any]]:
    """Return the rows of an account's partitions."""
    common = {"table_name": key.table, "account_analyst": key.analyst, "period": balance.period}
    return [
        {**common, "box_digest": compute_text_digest(box), "box": box, **to_charge_columns("", own)}
        for box, own in to_charges_by_box(balance.parts).items()
    ]


def read_reservations(connection: Connection, key: AccountKey) -> Reservations:
    """Return the stored open reservations of an account; an entry holds their digest."""
    wanted = (
        select(SLICES.c.number, SLICES.c.body).where(*_match_account(SLICES, key)).order_by(SLICES.c.number)
    )
    return {int(number): AccountReservation.parse(body) for number, body in connection.execute(wanted)}


def write_reservations(connection: Connection, key: AccountKey, before: Balance, after: Balance) -> None:
    """Write the changes in an account's open reservations."""
    stale = [number for number, each in before.reservations.items() if after.reservations.get(number) != each]
    if stale:
        connection.execute(delete(SLICES).where(*_match_account(SLICES, key), SLICES.c.number.in_(stale)))
    fresh = [
        row
        for row in _to_reservation_rows(key, after)
        if before.reservations.get(row["number"]) != after.reservations[row["number"]]
    ]
    if fresh:
        connection.execute(insert(SLICES), fresh)


def _to_reservation_rows(key: AccountKey, balance: Balance) -> list[dict[str, Any]]:
    """Return the rows of an account's open reservations."""
    common = {"table_name": key.table, "account_analyst": key.analyst}
    return [{**common, "number": number, "body": str(each)} for number, each in balance.reservations.items()]


def require_derived_rows(connection: Connection, balances: Mapping[AccountKey, Balance]) -> None:
    """Require that the rows of partitions and reservations are those that follow from the entries, column by column, and no more.

    Claim: these two tables say nothing that the chain of entries does not vouch for.
    Why: each row that follows from the balances is compared with the stored row, all columns of it, and there is no other row.
    Raises IntegrityError (`ledger_tampered`).
    """
    for table, columns, what in (
        (PARTS, _to_partition_rows, "partitions"),
        (SLICES, _to_reservation_rows, "reservations"),
    ):
        expected = {tuple(row.values()) for key, balance in balances.items() for row in columns(key, balance)}
        found = {tuple(row) for row in connection.execute(select(table))}
        for table_name, analyst, *_ in sorted(found ^ expected, key=str):
            raise IntegrityError(
                f"the stored {what} of {AccountKey(table_name, analyst)} in the ledger do not follow from its entries",
                code="ledger_tampered",
                hint=RESTORE,
            )


def require_ledger_head(connection: Connection, expected: LedgerHead, where: str) -> None:
    """Raise IntegrityError (`ledger_rolled_back`) unless the ledger still holds a head that it had."""
    entry = select(ENTRIES.c.digest).where(ENTRIES.c.id == expected.entries)
    if expected.entries and connection.execute(entry).scalar() != expected.digest:
        raise make_rollback_error(where, expected)
    release = select(RELEASES.c.digest).where(RELEASES.c.number == expected.releases)
    if expected.releases and connection.execute(release).scalar() != expected.release_digest:
        raise make_rollback_error(where, expected)


def _match_account(table: Table, key: AccountKey) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return table.c.table_name == key.table, table.c.account_analyst == key.analyst


def iterate_entry_rows(
    connection: Connection, wanted: Select[Any], values: Row | None = None
) -> Iterator[Row]:
    """Yield the rows that a selection of entries finds, read as they are asked for."""
    names = ENTRIES.columns.keys()
    for row in connection.execute(wanted, values).yield_per(1000):
        yield dict(zip(names, row, strict=True))


def read_rows_from(connection: Connection, start: int, most: int) -> list[Row]:
    """Return at most this many entries in order, starting with this number.

    From 1 on they are all, whatever number somebody gave to one that was put in before it.
    """
    if start == 1:
        return list(iterate_entry_rows(connection, OLDEST_FIRST.limit(most)))
    return list(iterate_entry_rows(connection, _FROM, {"start": start, "most": most}))


def iterate_charge_rows(connection: Connection, number: int) -> Iterator[Row]:
    """Yield the entries of one charge that pay for its releases: they follow one another, from that of this number on."""
    start, own = number, True
    while own:
        rows = read_rows_from(connection, start, _OF_ONE_CHARGE)
        for row in rows:
            if row["charge"] != number or row["kind"] not in RELEASED:
                return
            yield row
        own = len(rows) == _OF_ONE_CHARGE
        start = rows[-1]["id"] + 1 if rows else start


def read_last_reset(connection: Connection, key: AccountKey) -> int:
    """Return the number of the last entry that has reset an account, 0 where there is none."""
    newest = select(func.max(ENTRIES.c.id)).where(ENTRIES.c.kind == RESET, *_match_account(ENTRIES, key))
    return int(connection.execute(newest).scalar() or 0)


def find_last_row(connection: Connection) -> Row | None:
    """Return the ledger's last entry."""
    return next(iterate_entry_rows(connection, NEWEST_FIRST.limit(1)), None)


def read_last_entries(connection: Connection) -> list[LastEntry]:
    """Return the last entry of each account that has any, found through the index."""
    names = ENTRIES.columns.keys()
    found = []
    for *values, before, after in connection.execute(_LASTS):
        found.append(LastEntry(dict(zip(names, values, strict=True)), before, after))
    return found
