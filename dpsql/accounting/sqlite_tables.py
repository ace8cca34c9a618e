"""A ledger's tables in a database: recognised, made, read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from dpsql.accounting.rows import Row, stored_budget
from dpsql.accounting.schema import BUDGETS, ENTRIES, FORMAT, META, METADATA, SCHEMA
from dpsql.errors import OperationalError


def is_ledger(connection: Connection, where: str) -> bool:
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


def make_tables(connection: Connection) -> None:
    """Makes the tables in an empty database."""
    METADATA.create_all(connection, checkfirst=False)
    meta = {"format": FORMAT, "schema": SCHEMA}
    connection.execute(insert(META), [{"key": key, "value": value} for key, value in meta.items()])


def stored_budgets(connection: Connection) -> dict[str, dict[str, Any]]:
    """The rows of all budgets by their tables, each checked against its digest."""
    rows = [dict(row) for row in connection.execute(select(BUDGETS)).mappings()]
    for row in rows:
        stored_budget(row)
    return {str(row["table_name"]): row for row in rows}


def entry_rows(connection: Connection, wanted: Select[Any], values: Row | None = None) -> Iterator[Row]:
    """The rows that a selection of entries finds, read as they are asked for."""
    names = ENTRIES.columns.keys()
    for row in connection.execute(wanted, values).yield_per(1000):
        yield dict(zip(names, row, strict=True))
