"""Constants and types as PostgreSQL's SQL writes them, and expressions over arguments that are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from dpsql.backends.dialect import ValueSyntax
from dpsql.backends.function_spellings import MAX_INT64, MIN_INT64
from dpsql.plan.types import Type
from dpsql.policy.names import quote_literal

# Constants and types as PostgreSQL's SQL writes them, with `standard_conforming_strings` on.


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
"""PostgreSQL's names of the value types."""


@dataclass(frozen=True)
class PostgresValues(ValueSyntax):
    """Constants and casts of PostgreSQL: texts are compared by their bytes, and a number with a point would be NUMERIC.

    >>> print(VALUES.emit_constant(3), VALUES.emit_constant(0.5), VALUES.emit_constant("it's"))
    CAST(3 AS BIGINT) CAST('0.5' AS DOUBLE PRECISION) (CAST('it''s' AS TEXT) COLLATE "C")
    """

    def _emit_text(self, value: str) -> str:
        return self.emit_binary_collation(f"CAST({quote_literal(value)} AS TEXT)")

    def _emit_blob(self, value: bytes) -> str:
        return f"CAST('{chr(92)}x{value.hex()}' AS BYTEA)"

    def emit_cast(self, text: str, kind: Type) -> str:
        """Cast a value to a type that holds each of its values: NULL, a whole number as a DOUBLE, a day as a moment.

        Days are within the calendar (see `columns`), so that each has a moment.
        """
        written = ValueSyntax.emit_cast(self, text, kind)
        return self.emit_binary_collation(written) if kind is Type.VARCHAR else written

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """Emit a cast that is NULL beyond 64 bits; it compares as NUMERIC, since DOUBLE does not have the greatest BIGINT. Other types hold every value."""
        if kind is not Type.INTEGER:
            return self.emit_cast(number, kind)
        return f"CASE WHEN CAST({number} AS NUMERIC) BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({number} AS BIGINT) END"


VALUES = PostgresValues(
    engine="PostgreSQL", types=TYPES, cast="CAST", collation='"C"', has_typed_literals=False
)
NAN, INFINITY = VALUES.nan, VALUES.infinity
emit_constant = VALUES.emit_constant


# Emit expressions of PostgreSQL over values that are computed once, from which functions are written.


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
