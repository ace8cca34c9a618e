"""Resolve names with dots: tables in schemas, and fields of STRUCTs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NoReturn, Protocol, Self

from sqlglot import exp

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.plan.expressions import Column
from dpsql.plan.tables import Link, Scan, Unit, UnitKind
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.problem import suggest_choice
from dpsql.sql.parse.rejection import QueryText

# Resolve a name in FROM, with or without schema and database, to a declared table and its scan.


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
    """Return the declared table of a name in a schema, as `resolve_schema` returns it. Raises QueryRejected if it is missing.

    Claim: a name means the table that DuckDB would take, and no other is read.
    Why: only declared tables exist, each with its schema; a name without one is of the default schema, `main`. A word that is the
    name of both a schema and the database is refused, as in DuckDB.
    Source: DuckDB's documentation, "Name qualification".
    """
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
    """Return the scan of a catalog's table, with the way to the unit of its rows."""
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


# Fields of STRUCTs, which the policy declares by their dotted names: `s.field`, `(s).field`, `s['field']`, `struct_extract(s, 'field')`.


class ColumnScope(Protocol):
    """The columns that can be named; `outer` holds those of the query around."""

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""
        ...

    @property
    def outer(self) -> Self | None:
        """Return the rows of the query around it."""
        ...

    def list_column_owners(self, name: str, owner: str | None) -> list[str]:
        """List the tables that have a column of a name: all of them, or only the one of the name `owner`."""
        ...

    def get_column(self, alias: str, name: str) -> Column:
        """Return the column `name` of the table in scope as `alias`."""
        ...

    def list_column_names(self, owner: str | None) -> list[str]:
        """List the names of the columns of the table `owner`, or of all tables; empty if there is no such table."""
        ...


def find_field(rows: ColumnScope, parts: Sequence[object]) -> Column | None:
    """Return the field of a STRUCT that the policy declares by its dotted name; None where a name means something else."""
    names = _take_names(rows, parts)
    scope: ColumnScope | None = rows if len(names) > 1 else None
    while scope is not None:
        owner, rest = names[0], ".".join(names[1:])
        if scope.list_column_owners(rest, owner):
            return scope.get_column(normalize_name(owner), rest) if len(names) > 2 else None
        holders = scope.list_column_owners(".".join(names), None)
        if len(holders) == 1:
            return scope.get_column(holders[0], ".".join(names))
        scope = scope.outer
    return None


def check_field(rows: ColumnScope, node: exp.Expr, parts: Sequence[object]) -> None:
    """Refuse a name that means no field, but begins as those of a STRUCT whose fields are declared."""
    names = _take_names(rows, parts)
    for table, path in ((names[0], names[1:]), (None, names)) if names else ():
        for end in range(len(path) - 1, 0, -1):
            struct, name = ".".join(path[:end]), ".".join(path[end:])
            fields = [
                column
                for column in rows.list_column_names(table)
                if normalize_name(column).startswith(f"{normalize_name(struct)}.")
            ]
            if fields:
                rows.source.refuse(
                    node,
                    "column",
                    f"{struct} has no field {name} that the policy declares",
                    suggest_choice(f"{struct}.{name}", fields) or f"there are: {', '.join(fields)}",
                )


def _take_names(rows: ColumnScope, parts: Sequence[object]) -> list[str]:
    """Return the names in a path with points; empty if a part is no name."""
    identifiers = [part for part in parts if type(part) is exp.Identifier]
    if len(identifiers) < len(parts):
        return []
    return [str(rows.source.take_arguments(part, "this", quoted=(True,))[0]) for part in identifiers]


def resolve_field(rows: ColumnScope, node: exp.Expr) -> Column:
    """Return the field that `(s).field`, `s['field']` and `struct_extract(s, 'field')` mean."""
    names: list[exp.Expr] = []
    at = node
    while type(at) is exp.Paren or is_field_access(at):
        if type(at) is exp.Paren:
            (at,) = rows.source.take_arguments(at, "this")
            continue
        if type(at) is exp.Dot:
            (at, name), more = rows.source.take_arguments(at, "this", "expression"), ()
        elif type(at) is exp.Bracket:
            at, (name, *more) = rows.source.take_arguments(at, "this", "expressions")
        else:
            _, (at, name, *more) = rows.source.take_arguments(at, "this", "expressions")
        if type(name) is exp.Literal and name.args.get("is_string"):
            name = exp.to_identifier(
                str(rows.source.take_arguments(name, "this", is_string=(True,))[0]), quoted=True
            )
        if more or type(name) is not exp.Identifier:
            _refuse_field(rows, node)
        names.insert(0, name)
    if type(at) is not exp.Column:
        _refuse_field(rows, node)
    rows.source.take_arguments(at, "this", "table", "db", "catalog")
    parts = [part for part in at.parts if part is not None]
    found = find_field(rows, [*parts, *names])
    if found is None:
        check_field(rows, node, [*parts, *names])
    return found or _refuse_field(rows, node)


def _refuse_field(rows: ColumnScope, node: exp.Expr) -> NoReturn:
    rows.source.refuse(
        node,
        "column",
        "only fields that the policy declares can be read, and no elements of lists",
        "let the policy declare the field by its dotted name, such as address.city",
    )


def is_field_access(node: exp.Expr) -> bool:
    """Return whether a node reads a field of the expression before it."""
    if type(node) is exp.Dot:
        return type(node.expression) is exp.Identifier
    called = type(node) is exp.Anonymous and normalize_name(str(node.this)) == "struct_extract"
    return type(node) is exp.Bracket or (called and len(node.expressions) > 1)
