"""Spark's types, by the names of the engine types that policies and plans know.

A column whose type is not listed here has a name that no policy reads.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from dpsql.backends.quoting import quote_identifier

_NAMES = MappingProxyType(
    {
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp_ntz": "TIMESTAMP",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "binary": "BLOB",
    }
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"varchar\(\d+\)|string collate \w+")
_PADDED = re.compile(r"char\(\d+\)")


def parse_engine_type(name: str) -> str:
    """The engine type of a column, by the name that DESCRIBE has for it.

    >>> parse_engine_type("bigint"), parse_engine_type("decimal(12,2)"), parse_engine_type("timestamp"), parse_engine_type("char(5)")
    ('BIGINT', 'DECIMAL(12,2)', 'TIMESTAMP WITH TIME ZONE', 'CHAR')
    >>> parse_engine_type("map<int,int>"), parse_engine_type("string collate UTF8_LCASE")
    ('MAP<INT,INT> (SPARK)', 'VARCHAR')
    >>> parse_engine_type("array<struct<city:string,at:decimal(3,0)>>"), parse_engine_type("struct<a:int,seen:timestamp>")
    ('STRUCT("city" VARCHAR, "at" DECIMAL(3,0))[]', 'STRUCT<A:INT,SEEN:TIMESTAMP> (SPARK)')
    """
    return _parse_plain_type(name) or _parse_nested_type(name) or f"{name.upper()} (SPARK)"


def _parse_plain_type(name: str) -> str | None:
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return f"DECIMAL({found[1]},{found[2]})"
    if _PADDED.fullmatch(name):
        return "CHAR"
    return "VARCHAR" if _TEXT.fullmatch(name) else _NAMES.get(name)


def _parse_nested_type(name: str) -> str | None:
    """The engine type of an array or a struct, None where a part of it, at any depth, is not read.

    Claim: no part of what is read makes Spark fail for a row.
    Why: Spark may read a struct whole of which a field is asked for, as below EXPLODE. Of moments within one nobody knows in which unit
    a file has them, and Spark fails at milliseconds that are too many.
    Source: Spark 4.0, NestedColumnAliasing, and as `footers`.
    """
    if name.startswith("array<") and name.endswith(">"):
        of = _parse_inner_type(name[len("array<") : -1])
        return of and f"{of}[]"
    if name.startswith("struct<") and name.endswith(">"):
        parts = [part.partition(":") for part in _split_fields(name[len("struct<") : -1])]
        kinds = [(field, _parse_inner_type(kind)) for field, _, kind in parts]
        if all(kind for _, kind in kinds):
            return f"STRUCT({', '.join(f'{quote_identifier(field)} {kind}' for field, kind in kinds)})"
    return None


def _parse_inner_type(name: str) -> str | None:
    """The engine type of a field or an element, which is no moment."""
    return None if name.startswith("timestamp") else _parse_plain_type(name) or _parse_nested_type(name)


def _split_fields(text: str) -> list[str]:
    """The parts of a text between the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
