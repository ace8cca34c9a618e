"""Count exactly the rows and cells that no answer reads, for `dpsql check`, whose user has the data anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.backends.analyst_schema import AnalystSchema
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import Policy

_WRITTEN = {
    "integer": "whole numbers are written as 1234",
    "double": "numbers are written as 1234.5",
    "date": "dates are written as 2026-01-31",
    "timestamp": "timestamps are written as 2026-01-31 12:00:00",
    "time": "times of day are written as 12:00:00",
    "boolean": "truth values are written as true and false",
    "uuid": "UUIDs are written as 01234567-89ab-cdef-0123-456789abcdef",
}
"""How files must write the values of each type of the policy."""


def describe_unread_rows(
    rules: Policy, declared: AnalystSchema, backend: DuckDBBackend, database: Path | Mapping[str, Path]
) -> Iterator[str]:
    """Yield a line for each kind of cells or rows that no answer reads, or joins to nothing."""
    yield from _describe_unread_texts(rules, database)
    yield from _describe_rows_without_unit(rules, declared, backend)
    yield from _describe_crossing_rows(rules, declared, backend)


def _describe_unread_texts(rules: Policy, database: Path | Mapping[str, Path]) -> Iterator[str]:
    """Yield a line for each column of a file with texts that are not valid for its type."""
    from dpsql.backends.duckdb.files import count_unread_texts, find_file_tables, resolve_file_table
    from dpsql.policy import normalize_name

    types = rules.get_column_types()
    if isinstance(database, Mapping):
        files = {name: resolve_file_table(path) for name, path in database.items()}
    else:
        files = find_file_tables(database)
    for table in (name for name in files if normalize_name(name) in types):
        known = types[normalize_name(table)]
        for column, many in count_unread_texts(table, files[table], known).items():
            kind = known[column]
            found = "1 text is" if many == 1 else f"{many:,} texts are"
            read = "is" if many == 1 else "are"
            yield f"{table}.{column}: {found} not a valid {kind}, and {read} read as NULL: {_WRITTEN[kind]}"


def _describe_rows_without_unit(
    rules: Policy, declared: AnalystSchema, backend: DuckDBBackend
) -> Iterator[str]:
    """Yield a line for each table with rows that belong to no privacy unit."""
    from dpsql.policy import normalize_name
    from dpsql.sql.compile.relations import emit_count_without_unit
    from dpsql.sql.lower.table_names import build_scan

    names = rules.list_private_tables()
    queries = [
        emit_count_without_unit(build_scan(declared, "a", declared.tables[normalize_name(name)]))
        for name in names
    ]
    asked = [(name, sql) for name, sql in zip(names, queries, strict=True) if sql is not None]
    for (name, _), many in zip(asked, backend.read_counts([sql for _, sql in asked]), strict=True):
        link, unit = rules.tables[name].unit_link, rules.get_unit(name).column
        if many and link is None:
            yield f"{name}: {_format_row_count(many)} no {unit}, so they belong to no privacy unit and no answer reads them"
        elif many and link is not None:
            lead = "row references" if many == 1 else "rows reference"
            yield f"{name}: {many:,} {lead} no row of {link.table} with a unit, so no answer reads them"


def _describe_crossing_rows(rules: Policy, declared: AnalystSchema, backend: DuckDBBackend) -> Iterator[str]:
    """Yield a line for each declared link and key that rows of several units violate; no guarantee depends on them."""
    from dpsql.plan.expressions import Column
    from dpsql.policy import normalize_name
    from dpsql.sql.compile.relations import emit_crossings
    from dpsql.sql.lower.table_names import build_scan

    asked = [
        (name, link.names, link.table, link.keys)
        for name, link in rules.iterate_links()
        if link is not rules.tables[name].unit_link
    ]
    asked += [(name, key, name, key) for name, table in rules.tables.items() for key in table.unique]
    queries = []
    for name, names, other, keys in asked:
        ours, theirs = declared.tables[normalize_name(name)], declared.tables[normalize_name(other)]
        on = [
            (
                Column("a", *ours.columns[normalize_name(column)]),
                Column("b", *theirs.columns[normalize_name(key)]),
            )
            for column, key in zip(names, keys, strict=True)
        ]
        queries.append(emit_crossings(build_scan(declared, "a", ours), build_scan(declared, "b", theirs), on))
    for (name, names, other, keys), many in zip(asked, backend.read_counts(queries), strict=True):
        if not many:
            continue
        source, target = f"{name}.{' and '.join(names)}", f"{other}.{' and '.join(keys)}"
        if source == target:
            yield (
                f"{source} is declared unique, but {_format_row_count(many)} a value that a row of another unit also has; each unit "
                "gets a group of its own. Remove it from the policy unless it is unique within a unit"
            )
        else:
            yield (
                f"{source} references {target}, but {_format_row_count(many)} the key of a row of another unit, and such rows are not "
                "joined. Remove the link from the policy unless it stays within a unit"
            )


def _format_row_count(many: int) -> str:
    return "1 row has" if many == 1 else f"{many:,} rows have"
