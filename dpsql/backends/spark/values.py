"""Constants and types as Spark's SQL writes them, under the settings that are pinned."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from types import MappingProxyType

from dpsql.errors import QueryRejected
from dpsql.plan.types import Pairs, Type, Value

TYPES = MappingProxyType(
    {
        Type.INTEGER: "BIGINT",
        Type.DOUBLE: "DOUBLE",
        Type.VARCHAR: "STRING",
        Type.DATE: "DATE",
        Type.TIMESTAMP: "TIMESTAMP_NTZ",
        Type.BOOLEAN: "BOOLEAN",
        Type.BLOB: "BINARY",
    }
)
"""What Spark calls the value types; it has no times of day and no UUID."""
NAN, INFINITY = "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"


def emit_constant(value: Value | Pairs) -> str:
    r"""A constant of exactly the engine type that its plan type stands for.

    Of a text all but plain letters and digits are escaped, so that no setting of the parser can change it.

    >>> print(emit_constant(3), emit_constant(0.5), emit_constant("it's"))
    CAST(3 AS BIGINT) CAST('0.5' AS DOUBLE) 'it\u0027s'
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"CAST({value} AS BIGINT)"
        case float() if math.isinf(value):
            return f"CAST('{'-' * (value < 0)}Infinity' AS DOUBLE)"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return f"'{''.join(map(_escape_letter, value))}'"
        case tuple():
            raise QueryRejected("map constants are not supported on Spark", code="engine")
        case _:
            return _emit_typed_literal(value)


def _escape_letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter in " _-.,:;()"):
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 2**16 else f"\\U{ord(letter):08x}"


def _emit_typed_literal(value: dt.date | dt.time | uuid.UUID | bytes) -> str:
    """A constant that the engine writes as a text of its type."""
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            raise QueryRejected("times of day are not supported on Spark", code="engine")
        case uuid.UUID():
            raise QueryRejected("UUIDs are not supported on Spark", code="engine")


def get_type_name(kind: Type) -> str:
    """What Spark calls a value type. Raises QueryRejected, with code `engine`, for those that it does not have."""
    if kind not in TYPES:
        raise QueryRejected(f"values of type {kind.name} are not supported on Spark", code="engine")
    return TYPES[kind]


def emit_cast(text: str, kind: Type) -> str:
    """A value as one of a type that holds each of its values: NULL, a whole number as a DOUBLE, a day as a moment."""
    return text if kind is Type.NULL else f"TRY_CAST({text} AS {get_type_name(kind)})"
