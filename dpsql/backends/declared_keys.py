"""Read the primary, unique and foreign keys of a schema from the rows of an engine's catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dpsql.policy.skeleton import ForeignKey, TableKeys


def build_table_keys(
    rows: Iterable[tuple[Any, ...]], format_name: Callable[[str, str], str]
) -> dict[str, TableKeys]:
    """Return the keys by table name; `format_name` builds the name from a schema and a table.

    A row has the schema, the table, PRIMARY KEY, UNIQUE or FOREIGN KEY, its columns, and the table and columns that it references,
    which are of its own schema.
    """
    primary: dict[str, tuple[str, ...]] = {}
    unique: dict[str, list[tuple[str, ...]]] = {}
    foreign: dict[str, list[ForeignKey]] = {}
    for schema, table, kind, columns, target, references in rows:
        name = format_name(schema, table)
        if kind == "PRIMARY KEY":
            primary[name] = tuple(columns)
        elif kind == "UNIQUE":
            unique.setdefault(name, []).append(tuple(columns))
        else:
            key = ForeignKey(tuple(columns), format_name(schema, target), tuple(references))
            foreign.setdefault(name, []).append(key)
    return {
        name: TableKeys(primary.get(name, ()), tuple(foreign.get(name, ())), tuple(unique.get(name, ())))
        for name in {**primary, **unique, **foreign}
    }
