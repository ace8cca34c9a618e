"""Constants and casts as DuckDB's SQL writes them."""

from __future__ import annotations

import datetime as dt
import math
import uuid

from dpsql.plan.types import Pairs, Type, Value

NAN = "CAST('NaN' AS DOUBLE)"


def emit_constant(value: Value | Pairs) -> str:
    """A constant of exactly the engine type that its plan type stands for.

    >>> emit_constant(3), emit_constant(0.5), emit_constant("it's")
    ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"CAST({value} AS BIGINT)"
        case float() if math.isinf(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            text = repr(value)
            text = text if "e" in text else f"{text}e0"
            return f"({text})" if value < 0 else text
        case str():
            return "'" + value.replace("'", "''") + "'"
        case tuple():
            return f"MAP_FROM_ENTRIES([{', '.join(f'({emit_constant(key)}, {emit_constant(n)})' for key, n in value)}])"
        case _:
            return _emit_typed_literal(value)


def _emit_typed_literal(value: dt.date | dt.time | uuid.UUID | bytes) -> str:
    """A constant that the engine writes as a text of its type."""
    match value:
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case uuid.UUID():
            return f"CAST('{value}' AS UUID)"
        case bytes():
            return f"CAST('{''.join(f'{chr(92)}x{byte:02X}' for byte in value)}' AS BLOB)"


def emit_cast(text: str, kind: Type) -> str:
    """The SQL of a value as one of a type; what is always NULL has none, and a list says its own."""
    return text if kind in (Type.NULL, Type.LIST) else f"TRY_CAST({text} AS {kind.value})"
