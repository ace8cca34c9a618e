"""The tables of a ledger, for SQLAlchemy Core. Quantities are text: they pass 64 bits."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

FORMAT = "dpsql ledger"
SCHEMA = "5"

METADATA = MetaData()

META = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("accountant", Text, nullable=False),
    Column("epsilon", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("selection", Text),
    Column("limit_loss", Text, nullable=False),
    Column("limit_delta", Text, nullable=False),
    Column("renewal", Text),
    Column("digest", Text, nullable=False),
)

# SQLite's INTEGER has 64 bits, and as a primary key it is the row's own number.
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("charge", _NUMBER, nullable=False),
    Column("at", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("account_analyst", Text, nullable=False),
    Column("number", _NUMBER, nullable=False),
    Column("kind", Text, nullable=False),
    Column("period", Text, nullable=False),
    Column("box", Text),
    Column("parts", Text),
    Column("slice", _NUMBER),
    Column("slices", Text),
    Column("failures", _NUMBER),
    # The state of the whole ledger, apart from its entries, when the entry was written.
    Column("refines", Text),
    Column("claims", Text),
    Column("stored", Text),
    Column("database", Text),
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
    Index("entries_of_account", "table_name", "account_analyst", "id"),
    Index("entries_of_kind", "kind", "id"),
)
ENTRIES_OF_ANALYST = Index("entries_of_analyst", ENTRIES.c.analyst, ENTRIES.c.kind, ENTRIES.c.id)
"""The index of each analyst's charges; an older ledger gets it when it is opened."""

PARTS = Table(
    "parts",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    # A box may be longer than a key can be.
    Column("box_digest", Text, primary_key=True),
    Column("box", Text, nullable=False),
    Column("loss", Text, nullable=False),
    Column("delta", Text, nullable=False),
)

SLICES = Table(
    "slices",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

RELEASES = Table(
    "releases",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("statistic", Text, nullable=False),
    Column("measurement", Text, nullable=False),
    Column("entry", _NUMBER, nullable=False),
    Column("entry_digest", Text, nullable=False),
    Column("refines", _NUMBER),
    Column("previous", Text, nullable=False),
    Column("body_digest", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("releases_of_statistic", "statistic", "number"),
)

REFINEMENTS = Table(
    "refinements",
    METADATA,
    Column("base", _NUMBER, primary_key=True, autoincrement=False),
    Column("entry", _NUMBER, nullable=False),
)
