"""What a DuckDB schema declares beside types: keys, NOT NULL and CHECK, as queries of its catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dpsql.policy.decisions import ForeignKey, TableKeys

NULLABLE: Final = """
    SELECT column_name, is_nullable FROM duckdb_columns()
    WHERE NOT internal AND {} AND table_name = {}
"""
CHECKS: Final = """
    SELECT expression FROM duckdb_constraints()
    WHERE {} AND constraint_type = 'CHECK' AND expression IS NOT NULL AND table_name = {}
"""
KEYS: Final = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
    ORDER BY constraint_index
"""


def table_keys(rows: Iterable[tuple[Any, ...]], called: Callable[[str, str], str]) -> dict[str, TableKeys]:
    """The keys in the rows of `KEYS`, by the tables' names; `called` makes one of a schema and a table.

    A foreign key leads to a table of its own schema, as DuckDB has none across schemas.
    """
    primary: dict[str, tuple[str, ...]] = {}
    foreign: dict[str, list[ForeignKey]] = {}
    for schema, table, kind, columns, target, references in rows:
        name = called(schema, table)
        if kind == "PRIMARY KEY":
            primary[name] = tuple(columns)
        else:
            key = ForeignKey(tuple(columns), called(schema, target), tuple(references))
            foreign.setdefault(name, []).append(key)
    return {
        name: TableKeys(primary.get(name, ()), tuple(foreign.get(name, ())))
        for name in {**primary, **foreign}
    }
