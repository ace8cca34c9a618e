"""Emit expressions of PostgreSQL over values that are computed once, from which functions are written."""

from __future__ import annotations

from dpsql.backends.function_spellings import MAX_INT64, MIN_INT64
from dpsql.backends.postgres.values import REAL


def bind_arguments(body: str, *arguments: str) -> str:
    """Emit a text over `a`, `b` and so on, which are the arguments, each of them computed once.

    OFFSET keeps PostgreSQL from putting the arguments in place of their names.
    """
    named = ", ".join(f"{argument} AS {name}" for argument, name in zip(arguments, "abcdef", strict=False))
    return f'(SELECT {body} FROM (SELECT {named} OFFSET 0) AS "#held")'


def emit_double(place: int) -> str:
    """Emit an argument as DOUBLE."""
    return f"CAST({{{place}}} AS {REAL})"


def emit_timestamp(place: int) -> str:
    """Emit a day or moment as a moment."""
    return f"CAST({{{place}}} AS TIMESTAMP)"


def emit_bigint_or_null(number: str) -> str:
    """Emit a NUMERIC that is whole as 64 bits, NULL where they do not hold it."""
    return bind_arguments(
        f"CASE WHEN a BETWEEN {MIN_INT64} AND {MAX_INT64} THEN CAST(a AS BIGINT) END", number
    )
