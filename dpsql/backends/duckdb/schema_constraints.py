"""What a DuckDB schema declares beside types: keys, NOT NULL, CHECK and collations, as queries of its catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dpsql.backends.duckdb.columns import emit_column_path
from dpsql.backends.quoting import quote_table_name
from dpsql.policy.engine_types import parse_struct_fields

COLUMNS: Final = """
    SELECT column_name, is_nullable, data_type FROM duckdb_columns()
    WHERE NOT internal AND {} AND table_name = {}
"""
CHECKS: Final = """
    SELECT expression FROM duckdb_constraints()
    WHERE {} AND constraint_type = 'CHECK' AND expression IS NOT NULL AND table_name = {}
"""
KEYS: Final = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')
    ORDER BY constraint_index
"""


def build_collation_probes(table: str, columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the queries whose plans show which columns, of engine types, have a collation; none of a table without texts.

    Claim: the two plans write a comparison in two ways exactly where the collation of a column or field is not the one that
    compares bytes.
    Why: the catalogue does not say what a column's collation is. Binding writes a comparison under a collation as one of
    function calls (`lower(id) = lower('')`), and a view hands the collation of its columns on.
    Source: DuckDB's documentation, "Collations".
    """
    texts = [read for name, kind in columns for read in _iterate_text_paths((name,), kind)]
    return tuple(
        f"EXPLAIN (FORMAT JSON) SELECT {', '.join(form.format(text) for text in texts)} FROM {quote_table_name(table)}"
        for form in ("{} = ''", "({} COLLATE \"binary\") = ''")
        if texts
    )


def find_collated_columns(columns: Sequence[tuple[str, str]], plans: Sequence[str]) -> frozenset[str]:
    """Return the columns that have a collation, or a field that has one, by the plans of `build_collation_probes` as JSON."""
    names = [name for name, kind in columns for _ in _iterate_text_paths((name,), kind)]
    written = [_list_expressions(json.loads(plan)[0]["extra_info"]["Expressions"]) for plan in plans]
    return frozenset(name for name, *forms in zip(names, *written, strict=True) if len(set(forms)) > 1)


def _list_expressions(expressions: Any) -> list[str]:
    return [expressions] if isinstance(expressions, str) else expressions


def _iterate_text_paths(names: tuple[str, ...], kind: str) -> Iterator[str]:
    """Each text that is a column or a field of it, as it is read."""
    if kind == "VARCHAR":
        yield emit_column_path(names)
    for field, of in (parse_struct_fields(kind) or {}).items():
        yield from _iterate_text_paths((*names, field), of)
