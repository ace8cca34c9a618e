"""Constants and types as PostgreSQL's SQL writes them, with `standard_conforming_strings` on."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from types import MappingProxyType

from dpsql.errors import QueryRejected
from dpsql.plan.types import Pairs, Type, Value

REAL = "DOUBLE PRECISION"
TYPES = MappingProxyType(
    {
        Type.INTEGER: "BIGINT",
        Type.DOUBLE: REAL,
        Type.VARCHAR: "TEXT",
        Type.DATE: "DATE",
        Type.TIMESTAMP: "TIMESTAMP",
        Type.BOOLEAN: "BOOLEAN",
        Type.TIME: "TIME",
        Type.UUID: "UUID",
        Type.BLOB: "BYTEA",
    }
)
"""What PostgreSQL calls the value types."""
NAN, INFINITY = f"CAST('NaN' AS {REAL})", f"CAST('Infinity' AS {REAL})"


def emit_constant(value: Value | Pairs) -> str:
    """A constant of exactly the engine type that its plan type stands for; a text is compared by its bytes.

    A DOUBLE is a text that is cast: a number with a point is NUMERIC here. `repr` gives the digits that no other DOUBLE has.

    >>> print(emit_constant(3), emit_constant(0.5), emit_constant("it's"))
    CAST(3 AS BIGINT) CAST('0.5' AS DOUBLE PRECISION) (CAST('it''s' AS TEXT) COLLATE "C")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"CAST({value} AS BIGINT)"
        case float() if math.isinf(value):
            return f"CAST('{'-' * (value < 0)}Infinity' AS {REAL})"
        case float():
            return f"CAST('{value!r}' AS {REAL})"
        case str():
            return f"""(CAST({_quote_text(value)} AS TEXT) COLLATE "C")"""
        case tuple():
            raise QueryRejected("map constants are not supported on PostgreSQL", code="engine")
        case _:
            return _emit_typed_literal(value)


def _emit_typed_literal(value: dt.date | dt.time | uuid.UUID | bytes) -> str:
    """A constant that the engine writes as a text of its type."""
    match value:
        case bytes():
            return f"CAST('{chr(92)}x{value.hex()}' AS BYTEA)"
        case dt.datetime():
            return f"CAST('{value.isoformat(sep=' ')}' AS TIMESTAMP)"
        case dt.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case dt.time():
            return f"CAST('{value.isoformat()}' AS TIME)"
        case uuid.UUID():
            return f"CAST('{value}' AS UUID)"


def emit_cast(text: str, kind: Type) -> str:
    """A value as one of a type that holds each of its values: NULL, a whole number as a DOUBLE, a day as a moment.

    Days are within the calendar (see `columns`), so that each has a moment.
    """
    if kind is Type.LIST:
        raise QueryRejected("list constants are not supported on PostgreSQL", code="engine")
    written = text if kind is Type.NULL else f"CAST({text} AS {TYPES[kind]})"
    return f'({written} COLLATE "C")' if kind is Type.VARCHAR else written


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
