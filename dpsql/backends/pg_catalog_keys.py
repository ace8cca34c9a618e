"""The keys of emulated tables: constraints, the indexes behind them, and both as PostgreSQL writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.backends.pg_catalog_rows import (
    CLASS_NUMBERS,
    EmulatedColumn,
    EmulatedTable,
    ForeignKey,
    Row,
    build_class_row,
    build_column_row,
)
from dpsql.policy import split_table_name

_FIRST = 100_000
"""The first number of a key or index."""
_INDEX, _CONSTRAINT = CLASS_NUMBERS["pg_class"], CLASS_NUMBERS["pg_constraint"]
_KINDS = {"p": ("pkey", "PRIMARY KEY"), "u": ("key", "UNIQUE"), "f": ("fkey", "FOREIGN KEY")}


@dataclass(frozen=True, slots=True)
class _Place:
    """A table: its database, number, schema, the schema's number, name, and columns by name with their places."""

    database: str
    number: int
    schema: str
    schema_number: int
    name: str
    columns: Mapping[str, tuple[int, EmulatedColumn]]

    @property
    def title(self) -> str:
        """Return the table's name, with its schema unless that is the default."""
        return self.name if self.schema == "public" else f"{self.schema}.{self.name}"

    def describe_table(self) -> dict[str, str]:
        """Return the columns of the information schema that name the table."""
        return {"table_catalog": self.database, "table_schema": self.schema, "table_name": self.name}

    def describe_constraint(self, name: str) -> dict[str, str]:
        """Return the columns of the information schema that name a constraint of the table."""
        return {
            "constraint_catalog": self.database,
            "constraint_schema": self.schema,
            "constraint_name": name,
        }


def iterate_key_rows(
    database: str,
    tables: Mapping[str, EmulatedTable],
    numbers: Mapping[str, int],
    schemas: Mapping[str, tuple[str, int]],
) -> Iterator[Row]:
    """Yield the rows of the keys of all tables, given the number and the schema of each.

    A foreign key to columns that are no key refers to no index: a policy's link may lead to a key of several rows.
    """
    places = {
        title: _Place(
            database,
            numbers[title],
            *schemas[title],
            split_table_name(title)[1],
            {column.name: (at, column) for at, column in enumerate(table.columns, 1)},
        )
        for title, table in tables.items()
    }
    indexes = dict[tuple[str, tuple[str, ...]], tuple[int, str]]()
    number = _FIRST
    for title, table in tables.items():
        own = [("p", table.primary_key)] * bool(table.primary_key) + [("u", key) for key in table.unique_keys]
        for kind, columns in own:
            index, name = number, _name_key(places[title], kind, columns)
            indexes[title, columns] = index, name
            yield from _iterate_index_rows(places[title], index, name, columns, is_primary=kind == "p")
            yield from _iterate_constraint_rows(places[title], number + 1, kind, columns, {"conindid": index})
            yield _build_dependency_row(_INDEX, index, _CONSTRAINT, number + 1, "i")
            number += 2
    for title, table in tables.items():
        for key in table.foreign_keys:
            target = places[key.table]
            text = f"FOREIGN KEY ({', '.join(key.columns)}) REFERENCES {target.title}({', '.join(key.references)})"
            index, referenced = indexes.get((key.table, key.references), (0, None))
            rest = {
                "conindid": index, "confrelid": target.number, "confupdtype": "a", "confdeltype": "a",
                "confmatchtype": "s", "confkey": [target.columns[column][0] for column in key.references],
            }  # fmt: skip
            yield from _iterate_constraint_rows(
                places[title], number, "f", key.columns, rest, definition=text
            )
            yield from _iterate_reference_rows(places[title], key, target, referenced)
            if index:
                yield _build_dependency_row(_CONSTRAINT, number, _INDEX, index, "n")
            number += 1


def _build_dependency_row(catalog: int, number: int, of_catalog: int, of_number: int, kind: str) -> Row:
    """Return the row that says that an object depends on another: as a part of it (i) or on its own (n)."""
    return "pg.pg_depend", {
        "classid": catalog, "objid": number, "refclassid": of_catalog, "refobjid": of_number, "deptype": kind,
    }  # fmt: skip


def _name_key(place: _Place, kind: str, columns: tuple[str, ...]) -> str:
    """Return the name that PostgreSQL gives to a key."""
    return "_".join([place.name, *(() if kind == "p" else columns), _KINDS[kind][0]])


def _iterate_index_rows(
    place: _Place, number: int, name: str, columns: tuple[str, ...], *, is_primary: bool
) -> Iterator[Row]:
    yield build_class_row(number, name, place.schema_number, len(columns), "i")
    for at, column in enumerate(columns, 1):
        yield build_column_row(number, at, place.columns[column][1])
        yield "pg.shown_definitions", {"oid": number, "place": at, "definition": column}
    zeros = [0] * len(columns)
    yield "pg.pg_index", {
        "indexrelid": number, "indrelid": place.number, "indnatts": len(columns), "indnkeyatts": len(columns),
        "indisunique": True, "indisprimary": is_primary, "indimmediate": True, "indisvalid": True, "indisready": True,
        "indislive": True, "indkey": [place.columns[column][0] for column in columns], "indcollation": zeros,
        "indclass": zeros, "indoption": zeros,
    }  # fmt: skip
    text = f"CREATE UNIQUE INDEX {name} ON {place.schema}.{place.name} USING btree ({', '.join(columns)})"
    yield "pg.shown_definitions", {"oid": number, "place": 0, "definition": text}
    yield "pg.pg_indexes", {
        "schemaname": place.schema, "tablename": place.name, "indexname": name, "indexdef": text,
    }  # fmt: skip


def _iterate_constraint_rows(
    place: _Place,
    number: int,
    kind: str,
    columns: tuple[str, ...],
    rest: Mapping[str, Any],
    *,
    definition: str = "",
) -> Iterator[Row]:
    """Yield the rows of a constraint and of its columns."""
    name = _name_key(place, kind, columns)
    yield "pg.pg_constraint", {
        "oid": number, "conname": name, "connamespace": place.schema_number, "contype": kind, "convalidated": True,
        "conrelid": place.number, "confupdtype": " ", "confdeltype": " ", "confmatchtype": " ", "conislocal": True,
        "connoinherit": True, "conkey": [place.columns[column][0] for column in columns], **rest,
    }  # fmt: skip
    text = definition or f"{_KINDS[kind][1]} ({', '.join(columns)})"
    yield "pg.shown_definitions", {"oid": number, "place": 0, "definition": text}
    own, of_table = place.describe_constraint(name), place.describe_table()
    yield "info.table_constraints", {
        **own, **of_table, "constraint_type": _KINDS[kind][1], "is_deferrable": "NO", "initially_deferred": "NO",
        "enforced": "YES",
    }  # fmt: skip
    for at, column in enumerate(columns, 1):
        yield "info.key_column_usage", {
            **own, **of_table, "column_name": column, "ordinal_position": at,
            "position_in_unique_constraint": at if kind == "f" else None,
        }  # fmt: skip
        if kind != "f":
            yield "info.constraint_column_usage", {**own, **of_table, "column_name": column}


def _iterate_reference_rows(
    place: _Place, key: ForeignKey, target: _Place, referenced: str | None
) -> Iterator[Row]:
    """Yield the rows of the information schema that say what a foreign key refers to."""
    own = place.describe_constraint(_name_key(place, "f", key.columns))
    yield "info.referential_constraints", {
        **own, "unique_constraint_catalog": place.database if referenced else None,
        "unique_constraint_schema": target.schema if referenced else None, "unique_constraint_name": referenced,
        "match_option": "NONE", "update_rule": "NO ACTION", "delete_rule": "NO ACTION",
    }  # fmt: skip
    for column in key.references:
        yield "info.constraint_column_usage", {**own, **target.describe_table(), "column_name": column}
