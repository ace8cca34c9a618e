"""The rows of PostgreSQL's catalog for tables, indexes and their columns, and what clients see of a policy's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OWNER = 10
CLASS_NUMBERS = {
    "pg_type": 1247, "pg_attribute": 1249, "pg_proc": 1255, "pg_class": 1259, "pg_authid": 1260, "pg_database": 1262,
    "pg_constraint": 2606, "pg_namespace": 2615, "pg_index": 2610, "pg_description": 2609, "pg_depend": 2608,
    "pg_attrdef": 2604, "pg_trigger": 2620, "pg_rewrite": 2618, "pg_extension": 3079, "pg_enum": 3501,
}  # fmt: skip
"""The numbers of catalog tables that clients write as numbers, from PostgreSQL's src/include/catalog."""
BTREE = 403
_TYPE_OFFSET = 1_000_000
"""The distance between the numbers of a relation and of its row type."""
# name, length, by value, kind, category, element, array, collation, and how it is shown
TYPES = {
    16: ("bool", 1, True, "B", 0, 1000, 0, "boolean"),
    18: ("char", 1, True, "Z", 0, 1002, 0, '"char"'),
    19: ("name", 64, False, "S", 18, 1003, 950, "name"),
    20: ("int8", 8, True, "N", 0, 1016, 0, "bigint"),
    21: ("int2", 2, True, "N", 0, 1005, 0, "smallint"),
    22: ("int2vector", -1, False, "A", 21, 1006, 0, "int2vector"),
    23: ("int4", 4, True, "N", 0, 1007, 0, "integer"),
    25: ("text", -1, False, "S", 0, 1009, 100, "text"),
    26: ("oid", 4, True, "N", 0, 1028, 0, "oid"),
    30: ("oidvector", -1, False, "A", 26, 1013, 0, "oidvector"),
    700: ("float4", 4, True, "N", 0, 1021, 0, "real"),
    701: ("float8", 8, True, "N", 0, 1022, 0, "double precision"),
    1042: ("bpchar", -1, False, "S", 0, 1014, 100, "character"),
    1043: ("varchar", -1, False, "S", 0, 1015, 100, "character varying"),
    1082: ("date", 4, True, "D", 0, 1182, 0, "date"),
    1114: ("timestamp", 8, True, "D", 0, 1115, 0, "timestamp without time zone"),
    1184: ("timestamptz", 8, True, "D", 0, 1185, 0, "timestamp with time zone"),
    1700: ("numeric", -1, False, "N", 0, 1231, 0, "numeric"),
}


PRECISION = {20: (64, 2, 0), 21: (16, 2, 0), 23: (32, 2, 0), 700: (24, 2, None), 701: (53, 2, None)}
"""Precision, radix and scale of numeric types, as the information schema has them."""
MICROSECONDS = {1082: 0, 1114: 6, 1184: 6}


@dataclass(frozen=True, slots=True)
class EmulatedColumn:
    """A column as clients see it: `oid` is the number of its type, `comment` what the policy says of it."""

    name: str
    oid: int
    required: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns of a table that refer to columns of another table, which has its policy's name."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EmulatedTable:
    """A table as clients see it: what the policy says of it, its columns and its keys."""

    comment: str | None
    columns: Sequence[EmulatedColumn]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()


Row = tuple[str, dict[str, Any]]
"""A table of the emulator, and the values of a row of it by column."""


def build_class_row(number: int, name: str, schema: int, width: int, kind: str = "r") -> Row:
    """Return the row of a relation: a table (r) or an index (i)."""
    is_table = kind == "r"
    return "pg.pg_class", {
        "oid": number, "relname": name, "relnamespace": schema, "reltype": number + _TYPE_OFFSET if is_table else 0,
        "relowner": OWNER, "relam": 2 if is_table else BTREE, "reltuples": -1, "relpersistence": "p", "relkind": kind,
        "relnatts": width, "relreplident": "d" if is_table else "n", "relispopulated": True,
    }  # fmt: skip


def build_column_row(number: int, place: int, column: EmulatedColumn) -> Row:
    """Return the row of a relation's column."""
    _, length, by_value, _, _, _, collation, _ = TYPES[column.oid]
    return "pg.pg_attribute", {
        "attrelid": number, "attname": column.name, "atttypid": column.oid, "attstattarget": -1, "attlen": length,
        "attnum": place, "attcacheoff": -1, "atttypmod": -1, "attbyval": by_value, "attnotnull": column.required,
        "attidentity": "", "attgenerated": "", "attislocal": True, "attcollation": collation, "attstorage": "p",
        "attcompression": "", "attalign": "i",
    }  # fmt: skip
