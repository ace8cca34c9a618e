"""Migration of a ledger from an older schema, in the transaction that first opens it.

Claim: no digest changes, so that heads, anchors and receipts that were issued before stay valid.
Why: `KeyedDigest` leaves out the columns of later schemas where they have their defaults. An entry that was edited under
schema 2 does not match its digest here either; the whole chain is checked before that migration is committed. From
schema 3 on nothing is moved: new columns are empty in every old entry, and the digests read them so.
Releases that were stored before schema 5 are dropped, with the claims to refine them: nothing states which database
they belong to, and no entry vouches for them. The same queries are then charged again.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, text, update

from dpsql.ledger.schema import META, METADATA, REFINEMENTS, RELEASES, SCHEMA, SLICES

_ENTRIES = (
    "id, charge, at, table_name, number, analyst, query, query_digest, event, loss, delta, spent_loss,"
    " spent_delta, limit_loss, limit_delta, budget, details, previous, digest"
)
_ACCOUNTS = "table_name, accountant, epsilon, delta, selection, limit_loss, limit_delta, digest"


def migrate(connection: Connection, schema: str) -> None:
    """Give the tables of an older schema the present shape; the caller checks the entries and commits.

    A program of an older dpsql that still has the ledger open cannot spend what is reserved: it knows neither the
    new kinds of entries nor, since schema 3, an entry without the columns that may not be empty. Nor can it store a
    release.
    """
    if schema == "2":
        _migrate_schema_2(connection)
    else:
        columns = ["failures BIGINT", "refines TEXT", "claims TEXT", "stored TEXT", "database TEXT"]
        if schema == "3":
            columns = ["slice BIGINT", "slices TEXT", *columns]
            METADATA.create_all(connection, tables=[SLICES], checkfirst=False)
        for column in columns:
            connection.execute(text(f"ALTER TABLE entries ADD COLUMN {column}"))
        METADATA.drop_all(connection, tables=[RELEASES, REFINEMENTS], checkfirst=False)
        METADATA.create_all(connection, tables=[RELEASES, REFINEMENTS], checkfirst=False)
    connection.execute(update(META).where(META.c.key == "schema").values(value=SCHEMA))


def _migrate_schema_2(connection: Connection) -> None:
    for statement in (
        "ALTER TABLE entries RENAME TO entries_2",
        "DROP INDEX entries_of_table",
    ):
        connection.execute(text(statement))
    METADATA.create_all(connection, tables=[table for table in METADATA.sorted_tables if table is not META])
    added = "account_analyst, kind, period"
    for statement in (
        f"INSERT INTO entries ({_ENTRIES}, {added}) SELECT {_ENTRIES}, '', 'charge', '' FROM entries_2",
        f"INSERT INTO accounts ({_ACCOUNTS}, account_analyst) SELECT {_ACCOUNTS}, '' FROM budgets",
        "DROP TABLE entries_2",
        "DROP TABLE budgets",
    ):
        connection.execute(text(statement))
    connection.execute(insert(META).values(key="digests", value="sha256"))
