"""Constants and types as Spark's SQL writes them, under the settings that are pinned."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from dpsql.backends.dialect import ValueSyntax
from dpsql.plan.types import Type

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
"""Spark's names of the value types; it has no times of day and no UUID."""


@dataclass(frozen=True)
class SparkValues(ValueSyntax):
    r"""Constants and casts of Spark: texts are read under the collation that compares bytes.

    >>> print(VALUES.emit_constant(3), VALUES.emit_constant(0.5), VALUES.emit_constant("it's"))
    CAST(3 AS BIGINT) CAST('0.5' AS DOUBLE) 'it\u0027s'
    """

    def _emit_text(self, value: str) -> str:
        """Escape all but plain letters and digits, so that no setting of the parser can change the text."""
        return f"'{''.join(map(_escape_letter, value))}'"


def _escape_letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter in " _-.,:;()"):
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 2**16 else f"\\U{ord(letter):08x}"


VALUES = SparkValues(engine="Spark", types=TYPES)
NAN, INFINITY = VALUES.nan, VALUES.infinity
emit_constant = VALUES.emit_constant
