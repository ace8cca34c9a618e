"""The catalog twin: PostgreSQL's catalog of a policy's tables, in an engine of its own that holds no data.

Claim: what the twin answers follows from the policy and the declared columns' types alone.
Why: it is filled with those, nothing is attached to it, and it is locked as the data's engine is.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.duckdb import LOCKED, connect_with, lock_down
from dpsql.backends.pg_catalog_keys import iterate_key_rows
from dpsql.backends.pg_catalog_rows import (
    BTREE,
    CLASS_NUMBERS,
    MICROSECONDS,
    OWNER,
    PRECISION,
    TYPES,
    EmulatedTable,
    build_class_row,
    build_column_row,
)
from dpsql.errors import InternalError, OperationalError, QueryRejected
from dpsql.policy import split_table_name
from dpsql.policy.names import quote_identifier

_MOST_ROWS = 100_000
_MOST_CELLS = 1_000_000
_MOST_CHARACTERS = 20_000_000
_PUBLIC, _CATALOG, _INFORMATION = 2200, 11, 13000
_FIRST = 16384
"""The first number that PostgreSQL gives to a user's table."""
_ROWS_AT_ONCE = 100
_SESSION_TABLES = {
    "pg.shown_types": "oid UINTEGER, typname VARCHAR, shown VARCHAR",
    "pg.shown_classes": "oid UINTEGER, shown VARCHAR",
    "pg.shown_names": "oid UINTEGER, parts VARCHAR[]",
    "pg.shown_definitions": "oid UINTEGER, place INTEGER, definition VARCHAR",
}
"""Tables that the functions of the catalog read."""
_ZERO = {"BOOLEAN": "false", "UINTEGER": "0", "INTEGER": "0", "SMALLINT": "0", "BIGINT": "0", "DOUBLE": "0"}
_SCHEMAS = {"pg_catalog": "pg", "information_schema": "info"}


class PgCatalogEmulator:
    """The catalog of tables with their columns; `macros` are its functions, by name, as parameters := meaning.

    It answers one statement at a time.
    """

    def __init__(
        self,
        database: str,
        tables: Mapping[str, EmulatedTable],
        macros: Mapping[str, Sequence[str]],
        prefix: str,
    ) -> None:
        self._connection = connect_with({**LOCKED, "memory_limit": "256MB", "threads": 1})
        self._columns = dict[str, list[tuple[str, str]]]()
        for schema in _SCHEMAS.values():
            self._connection.execute(f"CREATE SCHEMA {schema}")
        self._database = database
        self._create_tables()
        self._rows_to_add = dict[str, list[Mapping[str, Any]]]()
        self._fill_tables(tables)
        self._flush_rows()
        self._show_names()
        definitions = list[str]()
        for name, meanings in macros.items():
            found = (meaning.partition(" := ") for meaning in meanings)
            overloads = ", ".join(f"({given.strip()}) AS {value}" for given, _, value in found)
            definitions.append(f"CREATE MACRO {prefix}{name} {overloads}")
        self._connection.execute("; ".join(definitions))
        lock_down(self._connection)

    def _create_tables(self) -> None:
        """Create every table of the catalog, empty."""
        text, statements = (
            (Path(__file__).parent / "postgres_catalogue.txt").read_text(encoding="utf-8"),
            list[str](),
        )
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, _, columns = line.partition(": ")
            schema, _, table = name.partition(".")
            place = f"{_SCHEMAS[schema]}.{table}"
            self._columns[place] = [
                (column, kind) for column, _, kind in (c.partition(" ") for c in columns.split(", "))
            ]
            listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in self._columns[place])
            statements.append(f"CREATE TABLE {place} ({listed})")
        for place, columns in _SESSION_TABLES.items():
            self._columns[place] = [(column.split()[0], column.split()[1]) for column in columns.split(", ")]
            statements.append(f"CREATE TABLE {place} ({columns})")
        statements.append("CREATE TABLE pg.pg_no_partitions (relid UINTEGER, parentrelid UINTEGER)")
        statements.append(
            "CREATE TABLE pg.pg_keywords AS SELECT DISTINCT keyword_name AS word, upper(keyword_category[1]) AS catcode,"
            " keyword_category <> 'reserved' AS barelabel, keyword_category AS catdesc, NULL::VARCHAR AS baredesc"
            " FROM duckdb_keywords()"
        )
        self._connection.execute("; ".join(statements))

    def _keep_row(self, place: str, values: Mapping[str, Any]) -> None:
        """Keep a row for a table until `_flush_rows`: one statement for each row would take seconds."""
        self._rows_to_add.setdefault(place, []).append(values)

    def _flush_rows(self) -> None:
        for place, rows in self._rows_to_add.items():
            self.show_rows(place, rows)
        self._rows_to_add.clear()

    def _add_rows(self, place: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table in one statement.

        Columns that are not given are zero or false, and NULL in the information schema.
        """
        columns, marks, given = self._columns[place], list[str](), list[Any]()
        for values in rows:
            if unknown := values.keys() - {column for column, _ in columns}:
                raise InternalError(f"{place} has no columns {', '.join(sorted(unknown))}")
            row = [
                "?" if column in values else "NULL" if place.startswith("info.") else _ZERO.get(kind, "NULL")
                for column, kind in columns
            ]
            given += [values[column] for column, _ in columns if column in values]
            marks.append(f"({', '.join(row)})")
        if rows:
            names = ", ".join(quote_identifier(column) for column, _ in columns)
            self._connection.execute(f"INSERT INTO {place} ({names}) VALUES {', '.join(marks)}", given)

    def _show_names(self) -> None:
        """Fill the table of the names of relations, which the functions of the catalog look up."""
        classes = "FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = relnamespace"
        visible = f"n.oid IN ({_CATALOG}, {_PUBLIC})"
        for text in (
            f"shown_classes SELECT c.oid, CASE WHEN {visible} THEN relname ELSE nspname || '.' || relname END {classes}",
            f"shown_names SELECT c.oid, [nspname, relname] {classes}",
            f"shown_names SELECT c.oid, [relname] {classes} WHERE {visible}",
        ):
            self._connection.execute(f"INSERT INTO pg.{text}")

    def _fill_tables(self, tables: Mapping[str, EmulatedTable]) -> None:
        database = self._database
        own = {"pg_catalog": _CATALOG, "information_schema": _INFORMATION, "public": _PUBLIC}
        for name, number in own.items():
            self._add_schema(name, number)
        self._keep_row("pg.pg_am", {"oid": 2, "amname": "heap", "amtype": "t"})
        self._keep_row("pg.pg_am", {"oid": BTREE, "amname": "btree", "amtype": "i"})
        self._keep_row("pg.pg_roles", {"oid": OWNER, "rolname": "owner", "rolconnlimit": -1})
        self._keep_row("pg.pg_database", {"oid": 5, "datname": database, "datdba": OWNER, "encoding": 6, "datcollate": "C", "datctype": "C",
            "datallowconn": True, "datconnlimit": -1, "datlocprovider": "c"})  # fmt: skip
        self._keep_row(
            "pg.pg_timezone_names",
            {"name": "UTC", "abbrev": "UTC", "utc_offset": "00:00:00", "is_dst": False},
        )
        self._keep_row("info.information_schema_catalog_name", {"catalog_name": database})
        for number, name in ((100, "default"), (950, "C")):
            self._keep_row("pg.pg_collation", {"oid": number, "collname": name, "collnamespace": _CATALOG})
        for number, (name, length, by_value, category, element, array, collation, spelling) in TYPES.items():
            both = (
                (number, name, length, element, array, spelling),
                (array, f"_{name}", -1, number, 0, f"{spelling}[]"),
            )
            for oid, typname, typlen, typelem, typarray, title in both:
                self._keep_row("pg.pg_type", {"oid": oid, "typname": typname, "typnamespace": _CATALOG, "typowner": OWNER, "typlen": typlen,
                    "typbyval": by_value and oid == number, "typtype": "b", "typisdefined": True, "typelem": typelem,
                    "typcategory": category if oid == number else "A", "typarray": typarray, "typdelim": ",",
                    "typcollation": collation, "typtypmod": -1, "typinput": "-", "typoutput": "-"})  # fmt: skip
                self._keep_row("pg.shown_types", {"oid": oid, "typname": typname, "shown": title})
        catalog = [
            (place.partition(".")[2], schema)
            for place in self._columns
            if place not in _SESSION_TABLES
            for schema in _iterate_schema_numbers(place)
        ]
        for number, (name, schema) in enumerate(catalog, 12_000):
            found = CLASS_NUMBERS.get(name, number) if schema == _CATALOG else number
            self._keep_row(*build_class_row(found, name, schema, 0))
        places = {"": ("public", _PUBLIC)} | {name: (name, number) for name, number in own.items()}
        for title in tables:
            holder, _ = split_table_name(title)
            if holder not in places:
                places[holder] = holder, _FIRST - len(places)
                self._add_schema(*places[holder])
        linked = {title for title, table in tables.items() if table.foreign_keys}
        linked |= {key.table for table in tables.values() for key in table.foreign_keys}
        numbers = {title: number for number, title in enumerate(tables, _FIRST)}
        for title, table in tables.items():
            holder, name = split_table_name(title)
            self._add_table(numbers[title], (*places[holder], name), table, is_linked=title in linked)
        schemas = {title: places[split_table_name(title)[0]] for title in tables}
        for place, values in iterate_key_rows(database, tables, numbers, schemas):
            self._keep_row(place, values)

    def _add_schema(self, name: str, number: int) -> None:
        self._keep_row("pg.pg_namespace", {"oid": number, "nspname": name, "nspowner": OWNER})
        self._keep_row(
            "info.schemata", {"catalog_name": self._database, "schema_name": name, "schema_owner": "owner"}
        )

    def _add_table(
        self, number: int, called: tuple[str, int, str], table: EmulatedTable, *, is_linked: bool
    ) -> None:
        """Add a table; `is_linked` says whether a foreign key begins or ends there, which PostgreSQL keeps by triggers."""
        schema, schema_number, name = called
        place, row = build_class_row(number, name, schema_number, len(table.columns))
        keys = {"relhasindex": bool(table.primary_key or table.unique_keys), "relhastriggers": is_linked}
        self._keep_row(place, row | keys)
        self._keep_row("pg.pg_tables", {"schemaname": schema, "tablename": name, "tableowner": "owner"})
        for place in ("pg.pg_stat_all_tables", "pg.pg_stat_user_tables"):
            self._keep_row(place, {"relid": number, "schemaname": schema, "relname": name})
        self._keep_row("info.tables", {"table_catalog": self._database, "table_schema": schema, "table_name": name, "table_type": "BASE TABLE",
            "is_insertable_into": "NO", "is_typed": "NO"})  # fmt: skip
        self._add_comment(number, 0, table.comment)
        for at, column in enumerate(table.columns, 1):
            self._keep_row(*build_column_row(number, at, column))
            typname, _, _, _, _, _, _, spelling = TYPES[column.oid]
            precision, radix, scale = PRECISION.get(column.oid, (None, None, None))
            self._keep_row("info.columns", {"table_catalog": self._database, "table_schema": schema, "table_name": name,
                "column_name": column.name, "ordinal_position": at, "is_nullable": "NO" if column.required else "YES",
                "data_type": spelling, "udt_catalog": self._database, "udt_schema": "pg_catalog", "udt_name": typname,
                "numeric_precision": precision, "numeric_precision_radix": radix, "numeric_scale": scale,
                "datetime_precision": MICROSECONDS.get(column.oid), "is_updatable": "NO", "is_identity": "NO",
                "is_self_referencing": "NO", "is_generated": "NEVER", "dtd_identifier": str(at)})  # fmt: skip
            self._add_comment(number, at, column.comment)

    def _add_comment(self, number: int, place: int, comment: str | None) -> None:
        if comment is not None:
            self._keep_row("pg.pg_description", {"objoid": number, "classoid": CLASS_NUMBERS["pg_class"], "objsubid": place,
                "description": comment})  # fmt: skip

    def show_rows(self, place: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace the rows of a table that shows the session."""
        self._connection.execute(f"DELETE FROM {place}")
        for part in _iterate_parts(rows):
            self._add_rows(place, part)

    def list_column_types(self) -> dict[str, str]:
        """List the engine types of the catalog's columns by name, without names that have several types."""
        kinds = dict[str, set[str]]()
        for columns in self._columns.values():
            for name, kind in columns:
                kinds.setdefault(name, set()).add(kind)
        return {name: found.pop() for name, found in kinds.items() if len(found) == 1}

    def list_tables(self) -> list[tuple[str, str]]:
        """List the schemas and names of the policy's tables."""
        return self._connection.execute("SELECT schemaname, tablename FROM pg.pg_tables").fetchall()

    def answer_statement(
        self, sql: str, seconds: float
    ) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
        """Return the columns, with engine types, and the rows of a statement that was written for the emulator.

        Raises QueryRejected for one that it cannot answer, OperationalError for one that takes longer than `seconds`.
        """
        failed = late = much = False
        timer = threading.Timer(seconds, self._connection.interrupt)
        timer.start()
        try:
            found = self._connection.execute(sql)
            columns = [(str(each[0]), str(each[1])) for each in found.description or ()]
            rows = _fetch_rows(found, time.monotonic() + seconds)
        except _AnswerTooLarge:
            much = True
        except duckdb.InterruptException:
            late = True
        except Exception:  # noqa: BLE001  (whatever it is, it is an engine's)
            failed = True
        finally:
            timer.cancel()
        if late:
            raise OperationalError(f"a catalog query may take at most {seconds:g} seconds", code="cancelled")
        if much:
            raise QueryRejected(
                f"the answer to a catalog query may have at most {_MOST_CELLS:,} values",
                code="catalogue",
                hint="add a LIMIT",
            )
        if failed:
            raise QueryRejected(
                "this catalog query is not supported",
                code="catalogue",
                hint="use \\d or information_schema.columns",
            )
        return columns, rows

    def close(self) -> None:
        """Close the emulator's engine."""
        self._connection.close()


class _AnswerTooLarge(Exception):  # noqa: N818
    """An answer that is larger than any client needs."""


def _fetch_rows(found: duckdb.DuckDBPyConnection, end: float) -> list[tuple[Any, ...]]:
    """Fetch the rows, each only if those before it are few. Raises _TooMuch for many values or long texts."""
    rows = list[tuple[Any, ...]]()
    cells = characters = 0
    while len(rows) < _MOST_ROWS and (row := found.fetchone()) is not None:
        cells += sum(len(value) if isinstance(value, list) else 1 for value in row)
        characters += sum(len(value) for value in row if isinstance(value, str))
        if cells > _MOST_CELLS or characters > _MOST_CHARACTERS:
            raise _AnswerTooLarge
        if time.monotonic() > end:
            raise duckdb.InterruptException
        rows.append(row)
    return rows


def _iterate_parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows in parts that one statement adds."""
    left = iter(rows)
    while part := list(itertools.islice(left, _ROWS_AT_ONCE)):
        yield part


def _iterate_schema_numbers(place: str) -> Iterable[int]:
    yield _CATALOG if place.startswith("pg.") else _INFORMATION
