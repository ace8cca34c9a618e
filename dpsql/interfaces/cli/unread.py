"""Count exactly the rows and cells that no answer reads, for `dpsql check`, whose user has the data anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.interfaces.shell.answers import escape_unprintable
from dpsql.policy.names import normalize_name

if TYPE_CHECKING:
    from dpsql.backends.analyst_schema import AnalystSchema
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.duckdb.unread_texts import UnreadTexts
    from dpsql.policy import Policy

FOR_OWNERS = "these are exact figures of the data, for its owner alone: take no bounds, values or limits from them, and show them to nobody"
"""What stands below the figures, since whoever writes a policy by them reveals data by the policy."""
_WRITTEN = {
    "integer": "whole numbers are written as 1234",
    "double": "numbers are written as 1234.5",
    "date": "dates are written as 2026-01-31",
    "timestamp": "timestamps are written as 2026-01-31 12:00:00",
    "time": "times of day are written as 12:00:00",
    "boolean": "truth values are written as true and false",
    "uuid": "UUIDs are written as 01234567-89ab-cdef-0123-456789abcdef",
}
"""How files must write the values of each type of the policy, unless the column says otherwise."""
_LONGEST = 40
"""Letters of a text that are shown."""


def describe_unread_rows(
    rules: Policy, declared: AnalystSchema, backend: DuckDBBackend, database: Path | Mapping[str, Path]
) -> Iterator[str]:
    """Yield a line for each kind of cells or rows that no answer reads, or joins to nothing; and what they must not be used for."""
    found = [
        *_describe_unread_texts(rules, database),
        *_describe_unlisted_values(rules, declared, backend),
        *_describe_rows_without_unit(rules, declared, backend),
        *_describe_further_rows(rules, declared, backend),
        *_describe_crossing_rows(rules, declared, backend),
    ]
    yield from found
    if found:
        yield FOR_OWNERS


def _describe_unread_texts(rules: Policy, database: Path | Mapping[str, Path]) -> Iterator[str]:
    """Yield a line for each column of a file with texts that are not valid for its type."""
    from dpsql.backends.duckdb.files import find_file_tables, resolve_file_table
    from dpsql.backends.duckdb.unread_texts import count_unread_texts

    readings = rules.get_readings()
    if isinstance(database, Mapping):
        files = {name: resolve_file_table(path) for name, path in database.items()}
    else:
        files = find_file_tables(database)
    for table in (name for name in files if normalize_name(name) in readings):
        for found in count_unread_texts(table, files[table], readings[normalize_name(table)]):
            yield f"{table}.{found.column}: {_describe_texts(found)}"


def _describe_texts(found: UnreadTexts) -> str:
    many, cell = found.n_unread, found.reading
    text = escape_unprintable(found.first_text)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    if found.proposed is not None:
        keys = [f'format: "{each}"' for each in found.proposed.formats[:1]]
        keys += [f'decimal: "{found.proposed.decimal}"'] if found.proposed.decimal else []
        remedy = f"write {keys[0]} for the column if all are written so"
    elif cell.formats:
        remedy = f"they do not have the format {' or '.join(cell.formats)}"
    elif cell.decimal:
        remedy = f'they are no numbers with the decimal sign "{cell.decimal}"'
    else:
        remedy = _WRITTEN[cell.kind]
    return (
        f"{many:,} of {found.n_texts:,} texts ({_format_share(many, found.n_texts)}) {'is' if many == 1 else 'are'} not a valid {cell.kind},"
        f" read as NULL, the first in row {found.first_row:,}: {text}; {remedy}"
    )


def _format_share(part: int, whole: int) -> str:
    """Return a share in percent, which is 0% and 100% only where it is none and all.

    >>> _format_share(1, 3000), _format_share(2999, 3000), _format_share(3, 3)
    ('below 1%', '99%', '100%')
    """
    if part in (0, whole):
        return "100%" if part else "0%"
    percent = 100 * part // max(whole, 1)
    return f"{percent}%" if percent else "below 1%"


def _describe_unlisted_values(
    rules: Policy, declared: AnalystSchema, backend: DuckDBBackend
) -> Iterator[str]:
    """Yield a line for each column with values that are none of the listed ones."""
    from dpsql.plan.expressions import Column
    from dpsql.sql.compile.compiler import Compiler

    syntax = Compiler(backend.dialect).dialect
    asked, queries = list[str](), list[str]()
    for name, table in rules.tables.items():
        known = declared.tables.get(normalize_name(name))
        for column, spec in table.columns.items():
            if (
                spec.values is None
                or spec.max_elements is not None
                or known is None
                or normalize_name(column) not in known.columns
            ):
                continue
            stored_as = Column("a", *known.columns[normalize_name(column)])
            stored, listed = (
                syntax.columns.emit_widened_column(stored_as),
                syntax.columns.emit_bounded_column(stored_as),
            )
            source = syntax.queries.quote_table_name(known.name)
            asked.append(f"{name}.{column}")
            queries += [
                f"SELECT COUNT(*) FROM {source} WHERE ({stored}) IS NOT NULL AND ({listed}) IS NULL",
                f"SELECT COUNT({stored}) FROM {source}",
            ]
    counts = backend.read_counts(queries)
    for named, many, whole in zip(asked, counts[::2], counts[1::2], strict=True):
        if many:
            yield (
                f"{named}: {many:,} of {whole:,} values ({_format_share(many, whole)}) {'is' if many == 1 else 'are'} none of the listed ones,"
                " read as NULL"
            )


def _describe_further_rows(rules: Policy, declared: AnalystSchema, backend: DuckDBBackend) -> Iterator[str]:
    """Yield a line for each table in which units have more rows than count."""
    from dpsql.sql.compile.compiler import Compiler
    from dpsql.sql.compile.relations import emit_unit_row_counts
    from dpsql.sql.lower.dotted_names import build_scan

    compiler, asked, queries = Compiler(backend.dialect), list[str](), list[str]()
    for name in rules.list_private_tables():
        counted = emit_unit_row_counts(
            compiler, build_scan(declared, "a", declared.tables[normalize_name(name)])
        )
        if counted is None:
            continue
        limit = rules.tables[name].rows_per_unit
        asked.append(name)
        queries += [
            f"SELECT COUNT(*) FROM ({counted}) AS units WHERE n > {limit}",
            f"SELECT COALESCE(SUM(n - {limit}), 0) FROM ({counted}) AS units WHERE n > {limit}",
            f"SELECT COUNT(*) FROM ({counted}) AS units",
        ]
    counts = backend.read_counts(queries)
    for name, beyond, rows, units in zip(asked, counts[::3], counts[1::3], counts[2::3], strict=True):
        if beyond:
            limit = rules.tables[name].rows_per_unit
            yield (
                f"{name}: {beyond:,} of {units:,} units ({_format_share(beyond, units)}) have more than {limit:,}"
                f" row{'s' * (limit != 1)}, and an answer leaves out {rows:,} of their rows"
            )


def _describe_rows_without_unit(
    rules: Policy, declared: AnalystSchema, backend: DuckDBBackend
) -> Iterator[str]:
    """Yield a line for each table with rows that belong to no privacy unit."""
    from dpsql.sql.compile.compiler import Compiler
    from dpsql.sql.compile.relations import emit_count_without_unit
    from dpsql.sql.lower.dotted_names import build_scan

    names, compiler = rules.list_private_tables(), Compiler(backend.dialect)
    queries = [
        emit_count_without_unit(compiler, build_scan(declared, "a", declared.tables[normalize_name(name)]))
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
    from dpsql.sql.compile.compiler import Compiler
    from dpsql.sql.compile.relations import emit_crossings
    from dpsql.sql.lower.dotted_names import build_scan

    asked = [
        (name, link.names, link.table, link.keys)
        for name, link in rules.iterate_links()
        if link is not rules.tables[name].unit_link
    ]
    asked += [(name, key, name, key) for name, table in rules.tables.items() for key in table.unique]
    queries, compiler = list[str](), Compiler(backend.dialect)
    for name, names, other, keys in asked:
        ours, theirs = declared.tables[normalize_name(name)], declared.tables[normalize_name(other)]
        on = [
            (
                Column("a", *ours.columns[normalize_name(column)]),
                Column("b", *theirs.columns[normalize_name(key)]),
            )
            for column, key in zip(names, keys, strict=True)
        ]
        queries.append(
            emit_crossings(compiler, build_scan(declared, "a", ours), build_scan(declared, "b", theirs), on)
        )
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
