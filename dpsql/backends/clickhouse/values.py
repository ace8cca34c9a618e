"""Constants and types as ClickHouse's SQL writes them, and expressions over arguments that are computed once."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.backends.dialect import ValueSyntax
from dpsql.plan.types import Type

# Days and moments are whole numbers of microseconds since 1970: ClickHouse's own types begin with 1900 and end with 2299, and
# its functions return another day, and no error, for what lies outside. A day is its first moment, so that days and moments
# compare, and a day becomes a moment without a computation. Results tell the two types apart by their digits.


DAY, MOMENT = "Decimal(17, 0)", "Decimal(18, 0)"
"""The types of days and of moments; both are stored in 64 bits."""
TYPES = MappingProxyType(
    {
        Type.INTEGER: "Int64",
        Type.DOUBLE: "Float64",
        Type.VARCHAR: "String",
        Type.DATE: DAY,
        Type.TIMESTAMP: MOMENT,
        Type.BOOLEAN: "Bool",
    }
)
"""ClickHouse's names of the value types; it has no times of day. UUID and BLOB are not read."""
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)
_MICROSECOND = dt.timedelta(microseconds=1)


def count_microseconds(moment: dt.date) -> int:
    """Return the microseconds since 1970 of a moment, or of the first one of a day.

    >>> count_microseconds(dt.date(1970, 1, 2)), count_microseconds(dt.datetime(1969, 12, 31, 23, 59, 59))
    (86400000000, -1000000)
    """
    at = moment if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
    return (at - _EPOCH) // _MICROSECOND


def get_moment(microseconds: int) -> dt.datetime:
    """Return the moment of microseconds since 1970."""
    return _EPOCH + dt.timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class ClickHouseValues(ValueSyntax):
    r"""Constants and casts of ClickHouse: a DOUBLE is written by its bits, since how digits are read is not specified.

    >>> print(VALUES.emit_constant(3), VALUES.emit_constant(0.5), VALUES.emit_constant("it's"))
    CAST(3 AS Int64) reinterpretAsFloat64(CAST(4602678819172646912 AS Int64)) 'it\x27s'
    >>> print(VALUES.emit_constant(dt.date(1970, 1, 2)))
    CAST('86400000000' AS Decimal(17, 0))
    """

    def _emit_double(self, value: float) -> str:
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return f"reinterpretAsFloat64(CAST({bits} AS Int64))"

    def _emit_text(self, value: str) -> str:
        """Escape all but plain letters and digits, so that no text has a quotation mark or a brace."""
        return f"'{''.join(map(_escape_letter, value))}'"

    def _emit_typed_literal(self, value: dt.date | dt.time | uuid.UUID) -> str:
        kind = Type.TIMESTAMP if isinstance(value, dt.datetime) else Type.DATE
        if not isinstance(value, dt.date):
            kind = Type.UUID if isinstance(value, uuid.UUID) else Type.TIME
        name = self.get_type_name(kind)  # refuses the other two
        return f"CAST('{count_microseconds(value)}' AS {name})" if isinstance(value, dt.date) else ""

    def emit_cast(self, text: str, kind: Type) -> str:
        """Cast a value to a type that holds each of its values: NULL, a whole number as a DOUBLE, a day as a moment.

        Whole numbers may be wider than 64 bits.
        """
        if kind is Type.NULL:
            return text
        name = self.get_type_name(kind)
        if text == "NULL":
            return f"CAST(NULL AS Nullable({name}))"
        return f"accurateCastOrNull({text}, 'Int64')" if kind is Type.INTEGER else f"CAST({text} AS {name})"

    def emit_nan_as_null(self, number: str) -> str:
        """Ask for NaN, which equals no number here. An expression that stands twice in a statement is computed once."""
        return f"if(isNaN({number}), NULL, {number})"


def _escape_letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter in " _-.,:;()"):
        return letter
    return "".join(f"\\x{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))


def bind_arguments(body: str, *arguments: str) -> str:
    """Emit a text over `a`, `b` and so on, which are the arguments, each of them computed once: an array of one is mapped.

    >>> bind_arguments("a + b", "x", "y")
    'arrayMap((a, b) -> (a + b), [x], [y])[1]'
    """
    names = ", ".join("abcdef"[: len(arguments)])
    listed = ", ".join(f"[{argument}]" for argument in arguments)
    return f"arrayMap(({names}) -> ({body}), {listed})[1]"


def emit_wide_double(number: str) -> str:
    """Emit a whole number of at most 128 bits as a DOUBLE, from two halves: ClickHouse's own cast may be off in the last digit.

    Claim: it is the nearest DOUBLE below 2^64, and beyond the number with two roundings, as in DuckDB.
    Why: each half has 64 bits without a sign, of which a processor makes the nearest DOUBLE; the product is exact.
    Source: IEEE 754-2019, section 5.4.1 (convertFromInt).
    """
    low, high = (
        f"CAST(CAST({half} AS UInt64) AS Float64)" for half in ("abs(a)", "bitShiftRight(abs(a), 64)")
    )
    whole = f"({low} + {high} * {VALUES.emit_constant(2.0**64)})"
    return bind_arguments(f"CASE WHEN a < 0 THEN -{whole} ELSE {whole} END", f"CAST({number} AS Int128)")


VALUES = ClickHouseValues(engine="ClickHouse", types=TYPES, cast="CAST")
NAN, INFINITY = VALUES.emit_constant(float("nan")), VALUES.emit_constant(float("inf"))
emit_constant = VALUES.emit_constant
