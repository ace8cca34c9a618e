"""The tables of a ledger, for SQLAlchemy Core. Quantities are text: they pass 64 bits."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, MetaData, Table, Text

FORMAT = "dpsql ledger"
SCHEMA = "2"

METADATA = MetaData()

META = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

BUDGETS = Table(
    "budgets",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("accountant", Text, nullable=False),
    Column("epsilon", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("selection", Text),
    Column("limit_loss", Text, nullable=False),
    Column("limit_delta", Text, nullable=False),
    Column("digest", Text, nullable=False),
)

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("charge", Integer, nullable=False),
    Column("at", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("analyst", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("query_digest", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("loss", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("spent_loss", Text, nullable=False),
    Column("spent_delta", Text, nullable=False),
    Column("limit_loss", Text, nullable=False),
    Column("limit_delta", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("entries_of_table", "table_name", "id"),
)
