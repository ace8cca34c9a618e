"""Resolve a name in FROM, with or without schema and database, to a declared table and its scan.

Claim: a name means the table that DuckDB would take, and no other is read.
Why: only declared tables exist, each with its schema; a name without one is of the default schema, `main`. A word that is the
name of both a schema and the database is refused, as in DuckDB.
Source: DuckDB's documentation, "Name qualification".
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import exp

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.plan.expressions import Column
from dpsql.plan.tables import Link, Scan, Unit, UnitKind
from dpsql.policy import normalize_name, split_table_name
from dpsql.sql.parse.rejection import QueryText


def resolve_schema(
    source: QueryText, catalog: AnalystSchema, node: exp.Expr, parts: Sequence[exp.Expr | None]
) -> str | None:
    """Return the folded schema that qualifies a table name, "" for the default one; None without a qualifier.

    `parts` are the schema and the database, each None where it is not said. Raises QueryRejected for another schema.
    """
    if any(isinstance(part, str) for part in parts):  # the parser's word for nothing between two dots
        source.refuse(
            node, "table", "a name is missing between two dots", "write schema.table, or the table alone"
        )
    schema, database = (
        normalize_name(str(source.take_arguments(part, "this", quoted=(True,))[0]))
        if part is not None
        else ""
        for part in parts
    )
    if not schema and not database:
        return None
    own, others = (
        normalize_name(catalog.database_name),
        {normalize_name(split_table_name(table.name)[0]) for table in catalog.tables.values()} - {""},
    )
    if database in ("", own) and schema in others:
        if not database and schema == own:
            source.refuse(
                node,
                "ambiguous",
                f"{schema} names both a schema and the database",
                f"write {own}.{schema} before the table",
            )
        return schema
    if (database, schema) in {("", "main"), (own, "main"), ("", own)}:
        return ""
    listed = "".join(f", or in {each}: {each}.t" for each in sorted(others))
    source.refuse(
        node,
        "table",
        f"there is no schema {'.'.join(filter(None, (database, schema)))}",
        f"the tables of the policy are in the schema main: write main.t, or t alone{listed}",
    )


def resolve_table(
    source: QueryText, catalog: AnalystSchema, node: exp.Expr, name: str, schema: str | None
) -> AnalystTable:
    """Return the declared table of a name in a schema, as `resolve_schema` returns it. Raises QueryRejected if it is missing."""
    found = None if "." in name else catalog.find_table(f"{schema}.{name}" if schema else name)
    if found is not None:
        return found
    known = sorted(item.name for item in catalog.tables.values())
    meant = [item for item in known if normalize_name(split_table_name(item)[1]) == normalize_name(name)]
    close = meant or difflib.get_close_matches(name, known, 1)
    source.refuse(
        node,
        "table",
        f"there is no table {f'{schema}.' if schema else ''}{name}",
        f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known)}",
    )


def build_scan(catalog: AnalystSchema, alias: str, table: AnalystTable) -> Scan:
    """Return the scan of a catalogue's table, with the way to the unit of its rows."""
    unit = Unit(table.unit)
    if table.unit is UnitKind.COLUMN and table.unit_column is not None:
        column = Column(alias, *table.columns[normalize_name(table.unit_column)])
        unit = Unit(table.unit, column)
        if table.link is not None:
            owner = catalog.tables[table.link.table]
            (_, key), *rest = (
                (Column(alias, *table.columns[ours]), Column("#owner", *owner.columns[theirs]))
                for ours, theirs in table.link.pairs
            )
            unit = Unit(table.unit, link=Link(column, build_scan(catalog, "#owner", owner), key, tuple(rest)))
    return Scan(table.name, alias, unit, table.contribution)
