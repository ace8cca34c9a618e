"""The engine's types: their names in a policy, and the value type as which dpsql reads a column of each.

A name of the engine's stands for the type of the policy that reads it: `bigint` is `integer`, `numeric(12,2)` is `double`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from dpsql.policy.domain import ColumnType

_DIGITS = re.compile(r"([A-Z0-9_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.ASCII)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_ENUM = re.compile(r"ENUM\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PolicyType:
    """A type of a policy: `names` are its further names, `engine_types` the engine types that it reads without a declaration.

    `further_engine_types` are engine types that it reads where the policy declares it. `sized_names` are the names that may have a length or a
    precision in parentheses. Both forms are regular expressions over the engine's names. `reading` says how a column is read, `operations` what a query can do with it.
    """

    name: ColumnType
    names: tuple[str, ...]
    engine_types: str
    reading: str
    operations: str
    further_engine_types: str = "(?!)"
    sized_names: tuple[str, ...] = ()


UNLIMITED = "NUMERIC"
"""The engine type of PostgreSQL's NUMERIC without a precision, or with one of more than 38 digits: no DOUBLE, nor a text,
tells its values apart."""
_WHOLE = r"U?(TINYINT|SMALLINT|INTEGER|BIGINT)|HUGEINT"

POLICY_TYPES: tuple[PolicyType, ...] = (
    PolicyType(
        "integer",
        (
            *("tinyint", "int1", "smallint", "int2", "int16", "short", "integer", "int", "int4", "int32"),
            *("signed", "integral", "bigint", "int8", "int64", "long", "oid", "hugeint", "int128"),
            *("utinyint", "uint8", "usmallint", "uint16", "uinteger", "uint32", "ubigint", "uint64"),
        ),
        # Not UHUGEINT, which the engine compares with other integers by a cast that can fail.
        _WHOLE,
        "as a 64-bit integer; a larger value is read as the nearer bound, or as NULL without bounds",
        "everything: group, compare, count, sum, average, quantiles",
        further_engine_types=r"DECIMAL\(\d+, ?0\)",
    ),
    PolicyType(
        "double",
        ("double", "double precision", "float8", "float", "float4", "real", "decimal", "numeric", "dec"),
        r"FLOAT|DOUBLE|DECIMAL\(.*\)",
        "as the nearest 64-bit floating-point number, exact up to 15 decimal digits; NaN is read as NULL",
        "the same as integer; DECIMAL values are computed, compared, grouped, summed and answered as DECIMAL",
        further_engine_types=rf"{_WHOLE}|{UNLIMITED}",
        sized_names=("decimal", "numeric", "dec", "float"),
    ),
    PolicyType(
        "varchar",
        (
            *("varchar", "text", "string", "char", "character", "character varying", "bpchar", "nvarchar"),
            *("enum", "json", "uhugeint", "uint128"),
        ),
        r"VARCHAR|CHAR|JSON|ENUM\(.*\)",
        "as text, compared by its bytes; an ENUM is read as the member's name",
        "group, compare, count; patterns and text functions",
        further_engine_types=r"UBIGINT|HUGEINT|UHUGEINT|UUID|DECIMAL\(.*\)",
        sized_names=(
            "varchar",
            "char",
            "character",
            "character varying",
            "bpchar",
            "nvarchar",
            "text",
            "string",
        ),
    ),
    PolicyType(
        "date",
        ("date",),
        r"DATE",
        "as a day; a day outside the years 1 to 9999 is read as NULL",
        "group, compare, count, parts, differences, quantiles",
    ),
    PolicyType(
        "timestamp",
        (
            *("timestamp", "datetime", "timestamp_us", "timestamp_ms", "timestamp_s", "timestamp_ns"),
            *("timestamp without time zone", "timestamptz", "timestamp with time zone", "timestamptz_ns"),
        ),
        r"TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|TIMESTAMPTZ_NS",
        "as a moment to the microsecond, in UTC if it has a time zone; outside the years 1 to 9999 as NULL",
        "the same as date; AT TIME ZONE 'UTC', TIMESTAMPTZ '…+02:00'",
        sized_names=("timestamp", "datetime"),
    ),
    PolicyType("boolean", ("boolean", "bool", "logical"), r"BOOLEAN", "as it is", "group, compare, count"),
    PolicyType(
        "time",
        ("time", "time without time zone", "time_ns"),
        r"TIME(_NS)?",
        "as a time of day to the microsecond; 24:00:00 is read as NULL",
        "group, compare, count, quantiles; HOUR, MINUTE, SECOND",
        sized_names=("time",),
    ),
    PolicyType("uuid", ("uuid", "guid"), r"UUID", "as it is", "group, compare, count"),
    PolicyType(
        "blob", ("blob", "bytea", "binary", "varbinary"), r"BLOB", "as it is", "group, compare, count"
    ),
)
"""The types of a policy. Where several can read an engine type without a declaration, the first one is used."""

VIEW = "leave the column out, or declare a view that casts it"
_UNREAD: tuple[tuple[str, str], ...] = (
    (
        r"TIMESTAMP WITH TIME ZONE OF A FRAME",
        "pass {name: frame} with the moments in a column of its own, or convert them to UTC without a time zone",
    ),
    (r"INTERVAL", "declare a view with the length as a number: EXTRACT(epoch FROM x)"),
    (r"TIME WITH TIME ZONE|TIMETZ", "declare a view that casts it to TIME"),
    (
        r".*\[\d*\]|LIST.*|ARRAY.*",
        "declare the type of its elements, and max_elements, the maximum number of elements per row",
    ),
    (r"(STRUCT|ROW|TUPLE).*", "declare each field as a column of its own, such as address.city"),
    (r"MAP.*", "declare a view with one row per entry"),
    (r"(BIT|BITSTRING|BIGNUM|VARINT|UNION|VARIANT|GEOMETRY|NULL|TYPE)\b.*", VIEW),
)
"""Engine types that dpsql does not read, each with what to do instead."""


def find_policy_type(text: str) -> PolicyType | None:
    """Return the type that a policy's text names, in any case, with a length or precision where the engine allows one; or None.

    A DECIMAL without digits after the point is a whole number.

    >>> [find_policy_type(text).name for text in ("BigInt", "numeric(12, 2)", "NUMERIC(12,0)", "timestamptz", "text")]
    ['integer', 'double', 'integer', 'timestamp', 'varchar']
    >>> find_policy_type("date(3)") is None, find_policy_type("interval") is None
    (True, True)
    """
    found = _DIGITS.fullmatch(" ".join(text.upper().split()))
    if found is None:
        return None
    name, digits, scale = found[1].lower(), found[2], found[3]
    kind = _index_types_by_name().get(name)
    if kind is None or (digits is not None and name not in kind.sized_names):
        return None
    if name not in _DECIMALS:
        return kind if scale is None else None
    if digits is not None and not (1 <= int(digits) <= 38 and int(scale or 0) <= int(digits)):
        return None
    return _index_types_by_name()["integer"] if digits is not None and not int(scale or 0) else kind


_DECIMALS = frozenset({"decimal", "numeric", "dec"})


@cache
def _index_types_by_name() -> dict[str, PolicyType]:
    return {name: kind for kind in POLICY_TYPES for name in kind.names}


def infer_column_type(name: str) -> ColumnType | None:
    """Return the type as which a column of an engine type is read, or None if dpsql cannot read it.

    >>> infer_column_type("DECIMAL(10,2)"), infer_column_type("UINTEGER"), infer_column_type("INTERVAL")
    ('double', 'integer', None)
    """
    return next(
        (kind.name for kind in POLICY_TYPES if re.fullmatch(kind.engine_types, name, re.DOTALL)), None
    )


def can_declare_type(kind: str, name: str) -> bool:
    """Return whether a column of an engine type can be declared with a type of a policy.

    >>> can_declare_type("varchar", "UHUGEINT"), can_declare_type("date", "VARCHAR")
    (True, False)
    """
    return any(
        entry.name == kind
        and re.fullmatch(f"{entry.engine_types}|{entry.further_engine_types}", name, re.DOTALL)
        for entry in POLICY_TYPES
    )


def describe_unread_type(name: str) -> str:
    """Return the hint for a column whose engine type dpsql does not read.

    >>> describe_unread_type("VARCHAR[]")
    'declare the type of its elements, and max_elements, the maximum number of elements per row'
    """
    text = " ".join(name.upper().split())
    return next((hint for form, hint in _UNREAD if re.fullmatch(form, text, re.DOTALL)), VIEW)


def parse_enum_members(name: str) -> tuple[str, ...] | None:
    """Return the members of an ENUM in their order; None for other engine types.

    >>> parse_enum_members("ENUM('a', 'it''s')"), parse_enum_members("ENUM('a')[]")
    (('a', "it's"), None)
    """
    found = _ENUM.fullmatch(name)
    return None if found is None else tuple(text.replace("''", "'") for text in _MEMBER.findall(found[1]))


def parse_struct_fields(name: str) -> dict[str, str] | None:
    """Return the fields of a STRUCT with their engine types; None for other engine types.

    >>> parse_struct_fields('STRUCT(city VARCHAR, "zip code" DECIMAL(5,0), n STRUCT(a INTEGER))')
    {'city': 'VARCHAR', 'zip code': 'DECIMAL(5,0)', 'n': 'STRUCT(a INTEGER)'}
    >>> parse_struct_fields("STRUCT(a INTEGER)[]") is None
    True
    """
    if not name.startswith("STRUCT(") or not name.endswith(")"):
        return None
    found: dict[str, str] = {}
    for part in _split_at_commas(name[len("STRUCT(") : -1]):
        field = _FIELD.fullmatch(part.strip())
        if field is None:
            return None
        found[field[1].replace('""', '"') if field[1] is not None else field[2]] = field[3]
    return found


def parse_element_type(name: str) -> str | None:
    """Return the engine type of the elements of a list or array; None for other engine types.

    >>> parse_element_type("VARCHAR[]"), parse_element_type("DECIMAL(5,2)[3]"), parse_element_type("DATE")
    ('VARCHAR', 'DECIMAL(5,2)', None)
    """
    found = _LIST.fullmatch(name)
    return None if found is None else found[1]


def rename_types(name: str, names: Mapping[str, str]) -> str:
    """Return an engine type with other names for some types, also in its fields and elements.

    >>> rename_types("STRUCT(a VARCHAR, b JSON[3], c DATE)[]", {"VARCHAR": "TEXT"})
    'STRUCT("a" TEXT, "b" JSON[3], "c" DATE)[]'
    """
    found = _LIST.fullmatch(name)
    if found is not None:
        return rename_types(found[1], names) + name[len(found[1]) :]
    inner = parse_struct_fields(name)
    if inner is None:
        return names.get(name, name)
    parts = (
        f'"{field.replace(chr(34), chr(34) * 2)}" {rename_types(of, names)}' for field, of in inner.items()
    )
    return f"STRUCT({', '.join(parts)})"


_LIST = re.compile(r"(.*)\[\d*\]", re.DOTALL)
_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^\s"]+)) (.*)', re.DOTALL)
_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|.""", re.DOTALL)


def _split_at_commas(text: str) -> list[str]:
    """Split a text at the commas outside of parentheses and quotes."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
