"""Expressions of PostgreSQL over values that are computed once, which functions are written with."""

from __future__ import annotations

from dpsql.backends.postgres.values import REAL

MIN, MAX = -(2**63), 2**63 - 1
"""The ends of BIGINT."""
CALENDAR = "defined for every day and moment of the calendar; what leaves it is NULL"


def bind_arguments(body: str, *arguments: str) -> str:
    """A text over `a`, `b` and so on, which are the arguments, each of them computed once.

    OFFSET keeps PostgreSQL from putting the arguments in place of their names.
    """
    named = ", ".join(f"{argument} AS {name}" for argument, name in zip(arguments, "abcdef", strict=False))
    return f'(SELECT {body} FROM (SELECT {named} OFFSET 0) AS "#held")'


def emit_double(place: int) -> str:
    """An argument as DOUBLE."""
    return f"CAST({{{place}}} AS {REAL})"


def emit_timestamp(place: int) -> str:
    """A day or moment as a moment."""
    return f"CAST({{{place}}} AS TIMESTAMP)"


def emit_bigint_or_null(number: str) -> str:
    """A NUMERIC that is whole as 64 bits, NULL where they do not hold it."""
    return bind_arguments(f"CASE WHEN a BETWEEN {MIN} AND {MAX} THEN CAST(a AS BIGINT) END", number)
