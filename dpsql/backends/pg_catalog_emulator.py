"""The catalog twin: PostgreSQL's catalog of a policy's tables, in an engine of its own that holds no data.

Claim: what the twin answers follows from the policy and the declared columns' types alone.
Why: it is filled with those, nothing is attached to it, and it is locked as the data's engine is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.duckdb import LOCKED, connect_with, lock_down
from dpsql.errors import InternalError, OperationalError, QueryRejected
from dpsql.policy import split_table_name
from dpsql.policy.names import quote_identifier

_MOST_ROWS = 100_000
_MOST_CELLS = 1_000_000
_MOST_CHARACTERS = 20_000_000
_OWNER, _PUBLIC, _CATALOG, _INFORMATION = 10, 2200, 11, 13000
_FIRST = 16384
"""The first number that PostgreSQL gives to a user's table."""
_ZERO = {"BOOLEAN": "false", "UINTEGER": "0", "INTEGER": "0", "SMALLINT": "0", "BIGINT": "0", "DOUBLE": "0"}
_SCHEMAS = {"pg_catalog": "pg", "information_schema": "info"}
# name, length, by value, kind, category, element, array, collation, and how it is shown
_TYPES = {
    16: ("bool", 1, True, "B", 0, 1000, 0, "boolean"),
    18: ("char", 1, True, "Z", 0, 1002, 0, '"char"'),
    19: ("name", 64, False, "S", 18, 1003, 950, "name"),
    20: ("int8", 8, True, "N", 0, 1016, 0, "bigint"),
    21: ("int2", 2, True, "N", 0, 1005, 0, "smallint"),
    23: ("int4", 4, True, "N", 0, 1007, 0, "integer"),
    25: ("text", -1, False, "S", 0, 1009, 100, "text"),
    26: ("oid", 4, True, "N", 0, 1028, 0, "oid"),
    700: ("float4", 4, True, "N", 0, 1021, 0, "real"),
    701: ("float8", 8, True, "N", 0, 1022, 0, "double precision"),
    1042: ("bpchar", -1, False, "S", 0, 1014, 100, "character"),
    1043: ("varchar", -1, False, "S", 0, 1015, 100, "character varying"),
    1082: ("date", 4, True, "D", 0, 1182, 0, "date"),
    1114: ("timestamp", 8, True, "D", 0, 1115, 0, "timestamp without time zone"),
    1184: ("timestamptz", 8, True, "D", 0, 1185, 0, "timestamp with time zone"),
    1700: ("numeric", -1, False, "N", 0, 1231, 0, "numeric"),
}


@dataclass(frozen=True, slots=True)
class EmulatedColumn:
    """A column as clients see it: `oid` is the number of its type, `comment` what the policy says of it."""

    name: str
    oid: int
    required: bool
    comment: str | None


class PgCatalogEmulator:
    """The catalog of tables with their columns; `macros` are its functions, by name, as parameters := meaning.

    It answers one statement at a time.
    """

    def __init__(
        self,
        database: str,
        tables: Mapping[str, tuple[str | None, Sequence[EmulatedColumn]]],
        macros: Mapping[str, Sequence[str]],
        prefix: str,
    ) -> None:
        self._connection = connect_with({**LOCKED, "memory_limit": "256MB", "threads": 1})
        self._columns = dict[str, list[tuple[str, str]]]()
        for schema in _SCHEMAS.values():
            self._connection.execute(f"CREATE SCHEMA {schema}")
        self._create_tables()
        self._fill_tables(database, tables)
        for name, meanings in macros.items():
            found = (meaning.partition(" := ") for meaning in meanings)
            overloads = ", ".join(f"({given.strip()}) AS {value}" for given, _, value in found)
            self._connection.execute(f"CREATE MACRO {prefix}{name} {overloads}")
        lock_down(self._connection)

    def _create_tables(self) -> None:
        """Create every table of the catalog, empty."""
        text = (Path(__file__).parent / "postgres_catalogue.txt").read_text(encoding="utf-8")
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
            self._connection.execute(f"CREATE TABLE {place} ({listed})")
        self._connection.execute("CREATE TABLE pg.shown_types (oid UINTEGER, typname VARCHAR, shown VARCHAR)")

    def _add_row(self, place: str, **values: Any) -> None:
        """Add a row to a table; columns that are not given are zero, false or NULL."""
        names, marks, given = list[str](), list[str](), list[Any]()
        for column, kind in self._columns[place]:
            names.append(quote_identifier(column))
            if column in values:
                marks.append("?")
                given.append(values.pop(column))
            else:
                marks.append(_ZERO.get(kind, "NULL"))
        if values:
            raise InternalError(f"{place} has no columns {', '.join(values)}")
        self._connection.execute(
            f"INSERT INTO {place} ({', '.join(names)}) VALUES ({', '.join(marks)})", given
        )

    def _fill_tables(
        self, database: str, tables: Mapping[str, tuple[str | None, Sequence[EmulatedColumn]]]
    ) -> None:
        own = {"pg_catalog": _CATALOG, "information_schema": _INFORMATION, "public": _PUBLIC}
        for name, number in own.items():
            self._add_schema(database, name, number)
        self._add_row("pg.pg_am", oid=2, amname="heap", amtype="t")
        self._add_row("pg.pg_am", oid=403, amname="btree", amtype="i")
        self._add_row("pg.pg_roles", oid=_OWNER, rolname="owner", rolconnlimit=-1)
        self._add_row(
            "pg.pg_database", oid=5, datname=database, datdba=_OWNER, encoding=6, datcollate="C", datctype="C",
            datallowconn=True, datconnlimit=-1, datlocprovider="c",
        )  # fmt: skip
        self._add_row("info.information_schema_catalog_name", catalog_name=database)
        for number, name in ((100, "default"), (950, "C")):
            self._add_row("pg.pg_collation", oid=number, collname=name, collnamespace=_CATALOG)
        for number, (name, length, by_value, category, element, array, collation, spelling) in _TYPES.items():
            both = (
                (number, name, length, element, array, spelling),
                (array, f"_{name}", -1, number, 0, f"{spelling}[]"),
            )
            for oid, typname, typlen, typelem, typarray, title in both:
                self._add_row(
                    "pg.pg_type", oid=oid, typname=typname, typnamespace=_CATALOG, typowner=_OWNER, typlen=typlen,
                    typbyval=by_value and oid == number, typtype="b", typisdefined=True, typelem=typelem,
                    typcategory=category if oid == number else "A", typarray=typarray, typdelim=",",
                    typcollation=collation, typtypmod=-1, typinput="-", typoutput="-",
                )  # fmt: skip
                self._connection.execute("INSERT INTO pg.shown_types VALUES (?, ?, ?)", [oid, typname, title])
        catalog = [
            (place.partition(".")[2], schema)
            for place in self._columns
            for schema in _iterate_schema_numbers(place)
        ]
        for number, (name, schema) in enumerate(catalog, 1000):
            self._add_class(number, name, schema, 0)
        places = {"": ("public", _PUBLIC)} | {name: (name, number) for name, number in own.items()}
        for title in tables:
            holder, _ = split_table_name(title)
            if holder not in places:
                places[holder] = holder, _FIRST - len(places)
                self._add_schema(database, *places[holder])
        for number, (title, (comment, columns)) in enumerate(tables.items(), _FIRST):
            holder, table = split_table_name(title)
            self._add_table(database, number, (*places[holder], table), comment, columns)

    def _add_schema(self, database: str, name: str, number: int) -> None:
        self._add_row("pg.pg_namespace", oid=number, nspname=name, nspowner=_OWNER)
        self._add_row("info.schemata", catalog_name=database, schema_name=name, schema_owner="owner")

    def _add_class(self, number: int, name: str, schema: int, width: int) -> None:
        self._add_row(
            "pg.pg_class", oid=number, relname=name, relnamespace=schema, relowner=_OWNER, relam=2, reltuples=-1,
            relpersistence="p", relkind="r", relnatts=width, relreplident="d", relispopulated=True,
        )  # fmt: skip

    def _add_table(
        self,
        database: str,
        number: int,
        called: tuple[str, int, str],
        comment: str | None,
        columns: Sequence[EmulatedColumn],
    ) -> None:
        schema, schema_number, name = called
        self._add_class(number, name, schema_number, len(columns))
        self._add_row("pg.pg_tables", schemaname=schema, tablename=name, tableowner="owner")
        self._add_row(
            "info.tables", table_catalog=database, table_schema=schema, table_name=name, table_type="BASE TABLE",
            is_insertable_into="NO", is_typed="NO",
        )  # fmt: skip
        self._add_comment(number, 0, comment)
        for place, column in enumerate(columns, 1):
            typname, length, by_value, _, _, _, collation, spelling = _TYPES[column.oid]
            self._add_row(
                "pg.pg_attribute", attrelid=number, attname=column.name, atttypid=column.oid, attstattarget=-1,
                attlen=length, attnum=place, attcacheoff=-1, atttypmod=-1, attbyval=by_value, attnotnull=column.required,
                attidentity="", attgenerated="", attislocal=True, attcollation=collation, attstorage="p",
                attcompression="", attalign="i",
            )  # fmt: skip
            self._add_row(
                "info.columns", table_catalog=database, table_schema=schema, table_name=name, column_name=column.name,
                ordinal_position=place, is_nullable="NO" if column.required else "YES", data_type=spelling,
                udt_catalog=database, udt_schema="pg_catalog", udt_name=typname, is_updatable="NO", is_identity="NO",
                is_generated="NEVER", dtd_identifier=str(place),
            )  # fmt: skip
            self._add_comment(number, place, column.comment)

    def _add_comment(self, number: int, place: int, comment: str | None) -> None:
        if comment is not None:
            self._add_row(
                "pg.pg_description", objoid=number, classoid=self._get_class_number("pg_class"), objsubid=place,
                description=comment,
            )  # fmt: skip

    def _get_class_number(self, name: str) -> int:
        found = self._connection.execute("SELECT oid FROM pg.pg_class WHERE relname = ?", [name]).fetchone()
        return 0 if found is None else int(found[0])

    def show_activity(self, database: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace the rows of pg_stat_activity."""
        self._connection.execute("DELETE FROM pg.pg_stat_activity")
        for row in rows:
            self._add_row("pg.pg_stat_activity", datid=5, datname=database, usesysid=_OWNER, **row)

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


def _iterate_schema_numbers(place: str) -> Iterable[int]:
    yield _CATALOG if place.startswith("pg.") else _INFORMATION
