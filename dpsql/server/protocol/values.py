"""Values on the wire: types by their numbers, and their text and binary formats.

Source: PostgreSQL 16, src/include/catalog/pg_type.dat (numbers), src/backend/utils/adt (binary formats).
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from dpsql.server.protocol.failure import Failed

BOOL, CHAR, NAME, INT8, INT2, INT4, TEXT, OID = 16, 18, 19, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, UNKNOWN, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = (
    700, 701, 705, 1043, 1082, 1114, 1184, 1700,
)  # fmt: skip
BPCHAR = 1042

_SIZES = {BOOL: 1, INT2: 2, INT4: 4, INT8: 8, FLOAT8: 8, DATE: 4, TIMESTAMP: 8, OID: 4}
_ENGINE = {
    "BIGINT": INT8,
    "INTEGER": INT4,
    "SMALLINT": INT2,
    "TINYINT": INT2,
    "UTINYINT": INT2,
    "USMALLINT": INT4,
    "UINTEGER": OID,
    "UBIGINT": NUMERIC,
    "HUGEINT": NUMERIC,
    "UHUGEINT": NUMERIC,
    "DOUBLE": FLOAT8,
    "FLOAT": FLOAT8,
    "VARCHAR": TEXT,
    "BOOLEAN": BOOL,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
}
_ARRAYS = {
    BOOL: 1000, INT2: 1005, INT4: 1007, TEXT: 1009, INT8: 1016, FLOAT8: 1022, OID: 1028, TIMESTAMP: 1115,
    DATE: 1182, NUMERIC: 1231,
}  # fmt: skip
_ELEMENTS = {array: element for element, array in _ARRAYS.items()} | {
    1003: NAME, 1014: BPCHAR, 1015: VARCHAR, 1021: FLOAT4, 1185: TIMESTAMPTZ,
}  # fmt: skip
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s",{}\\](?:[^",{}\\]*[^\s",{}\\])?))\s*(,|\Z)', re.DOTALL)
"""An item of an array as text, in quotation marks or without, and what follows it."""
MOST_ITEMS = 10_000
"""Items of a list that is bound to a parameter."""
_EPOCH_DAY = dt.date(2000, 1, 1).toordinal()
_EPOCH = dt.datetime(2000, 1, 1)  # noqa: DTZ001  (a timestamp without time zone)
_MICROSECOND = dt.timedelta(microseconds=1)
_NEEDS_QUOTES = re.compile(r'[{}",\\\s]')


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer: its name and the number of its type."""

    name: str
    oid: int

    @property
    def size(self) -> int:
        """The bytes of a value, -1 where they vary."""
        return _SIZES.get(self.oid, -1)


def oid_of(engine_type: str) -> int:
    """The type on the wire of an engine type; text for what has none.

    >>> oid_of("BIGINT"), oid_of("DECIMAL(10,2)"), oid_of("BIGINT[]"), oid_of("MAP(BIGINT, BIGINT)")
    (20, 1700, 1016, 25)
    """
    if engine_type.endswith("[]"):
        return _ARRAYS.get(oid_of(engine_type[:-2]), TEXT)
    return NUMERIC if engine_type.startswith("DECIMAL(") else _ENGINE.get(engine_type, TEXT)


def array_of(oid: int) -> int:
    """The type of the arrays of a type; arrays of text for one that has none."""
    return _ARRAYS.get(oid, _ARRAYS[TEXT])


def element_of(oid: int) -> int | None:
    """The type of an array's items; None for a type of no arrays."""
    return _ELEMENTS.get(oid)


def encoded(value: Any, oid: int, code: int) -> bytes | None:
    """A value in text (`code` 0) or binary (1); None for NULL.

    Raises Failed for a value that its type does not hold, as a day beyond the calendar in binary.
    """
    if value is None:
        return None
    if code == 0:
        return as_text(value).encode("utf-8", "replace")
    try:
        return _binary(value, oid)
    except (struct.error, TypeError, ValueError, OverflowError, AttributeError):
        raise Failed(
            "22003",
            "a value of the answer is beyond its type's binary format; what was charged stays charged",
            "ask again with results in text format: the same question is answered again, free",
        ) from None


def as_text(value: Any) -> str:
    r"""A value as PostgreSQL writes it.

    >>> as_text(True), as_text(1.0), as_text(float("inf")), as_text(["a b", None, 'c"'])
    ('t', '1', 'Infinity', '{"a b",NULL,"c\\""}')
    """
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return repr(value).removesuffix(".0")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(map(_element, value)) + "}"
    if isinstance(value, dict):
        return json.dumps(
            {as_text(key): each for key, each in value.items()}, ensure_ascii=False, default=str
        )
    return str(value)


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    text = as_text(value)
    if isinstance(value, (list, tuple)) or (
        text and not _NEEDS_QUOTES.search(text) and text.upper() != "NULL"
    ):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _binary(value: Any, oid: int) -> bytes:
    if oid in _ELEMENTS:
        return _binary_array(value, _ELEMENTS[oid])
    write = _TO_BINARY.get(oid)
    return as_text(value).encode("utf-8", "replace") if write is None else write(value)


def _binary_array(values: Sequence[Any], element: int) -> bytes:
    if not values:
        return struct.pack("!iiI", 0, 0, element)
    items = [encoded(value, element, 1) for value in values]
    head = struct.pack("!iiIii", 1, any(item is None for item in items), element, len(items), 1)
    return head + b"".join(
        struct.pack("!i", -1) if item is None else struct.pack("!i", len(item)) + item for item in items
    )


def _binary_numeric(value: Decimal) -> bytes:
    """Digits to the base 10,000 with the weight of the first."""
    if not value.is_finite():
        return struct.pack("!hhHh", 0, 0, 0xC000, 0)
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    shift = -scale % 4
    whole *= 10**shift
    groups = list[int]()
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - (scale + shift) // 4
    while groups and groups[0] == 0:
        groups.pop(0)
    groups.reverse()
    head = struct.pack("!hhHH", len(groups), weight if groups else 0, 0x4000 if sign else 0, scale)
    return head + b"".join(struct.pack("!H", group) for group in groups)


def decoded(data: bytes | None, oid: int, code: int) -> Any:
    """The value of a parameter. Raises Failed for what is none of its type."""
    if data is None:
        return None
    try:
        if oid in _ELEMENTS:
            read = _array_from_binary if code == 1 else _array_from_text
            return read(data, _ELEMENTS[oid])
        if code == 1:
            return _from_binary(data, oid)
        return _FROM_TEXT.get(oid, str)(_plain_text(data))
    except (struct.error, UnicodeDecodeError, ValueError, OverflowError, InvalidOperation):
        raise Failed("22P02", "a parameter's value is not of its type") from None


def _array_from_text(data: bytes, element: int) -> tuple[Any, ...]:
    r"""The items of an array of one dimension. Raises ValueError for what is none.

    >>> _array_from_text(b'{1, NULL,2}', INT4), _array_from_text(rb'{"a\"b",c}', TEXT), _array_from_text(b"{}", TEXT)
    ((1, None, 2), ('a"b', 'c'), ())
    """
    text = _plain_text(data).strip()
    if len(text) < 2 or (text[0], text[-1]) != ("{", "}"):
        raise ValueError
    text, at, items = text[1:-1], 0, list[Any]()
    more = bool(text.strip())
    while more:
        match = _ITEM.match(text, at)
        if match is None or len(items) == MOST_ITEMS:
            raise ValueError
        quoted, plain, follows = match.groups()
        is_null = plain is not None and plain.upper() == "NULL"
        item = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        items.append(None if is_null else decoded(item.encode(), element, 0))
        at, more = match.end(), follows == ","
    return tuple(items)


def _array_from_binary(data: bytes, element: int) -> tuple[Any, ...]:
    dimensions, _, _ = struct.unpack_from("!iii", data)
    if dimensions == 0:
        return ()
    count, _ = struct.unpack_from("!ii", data, 12)
    if dimensions != 1 or not 0 <= count <= MOST_ITEMS:
        raise ValueError
    at, items = 20, list[Any]()
    for _ in range(count):
        (length,) = struct.unpack_from("!i", data, at)
        at += 4
        if length > len(data) - at:
            raise ValueError
        items.append(None if length < 0 else decoded(data[at : at + length], element, 1))
        at += max(length, 0)
    return tuple(items)


def _from_binary(data: bytes, oid: int) -> Any:
    read = _FROM_BINARY.get(oid)
    if read is None:
        raise Failed("0A000", f"parameters of the type {oid} are not read in binary format")
    return read(data)


def _unpack(code: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(code, data)[0]


def _plain_text(data: bytes) -> str:
    text = data.decode()
    if "\0" in text:
        raise ValueError
    return text


def _from_binary_numeric(data: bytes) -> Decimal:
    count, weight, sign, _ = struct.unpack_from("!HhHH", data)
    groups = struct.unpack_from(f"!{count}H", data, 8)
    if sign not in (0, 0x4000) or len(data) != 8 + 2 * count or max(groups, default=0) > 9_999:
        raise ValueError
    digits = "".join(f"{group:04}" for group in groups) or "0"
    exponent = (weight - count + 1) * 4 if groups else 0
    # Made of its parts, it is exact; computed with, it would be rounded to the context's digits.
    return Decimal((1 if sign else 0, tuple(map(int, digits)), exponent))


def _plain_number(value: Decimal) -> int | float:
    """A whole number as such, another as the nearest double: the engine reads no other numbers."""
    if not value.is_finite() or abs(value.adjusted()) > 400:
        raise ValueError
    return int(value) if value == value.to_integral_value() else float(value)


def _boolean(text: str) -> bool:
    known = {"t": True, "true": True, "on": True, "yes": True, "1": True}
    known |= {"f": False, "false": False, "off": False, "no": False, "0": False}
    if text.strip().lower() not in known:
        raise ValueError
    return known[text.strip().lower()]


def _integer(text: str) -> int:
    if len(text) > 50:
        raise ValueError
    return int(text)


_TIME = re.compile(
    r"(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z| ?[+-]\d\d(?::\d\d){0,2})?| [+-]\d\d(?::\d\d){0,2})\Z",
    re.ASCII,
)
"""A time behind a day, with or without a zone, or a zone alone."""
_FROM_TEXT: dict[int, Callable[[str], Any]] = {
    BOOL: _boolean,
    INT2: _integer,
    INT4: _integer,
    INT8: _integer,
    OID: _integer,
    FLOAT4: float,
    FLOAT8: float,
    NUMERIC: lambda text: _plain_number(Decimal(text)),
    # PostgreSQL ignores the time and the zone, which the drivers of JDBC and node write behind a day.
    DATE: lambda text: dt.date.fromisoformat(_TIME.sub("", text)),
    TIMESTAMP: lambda text: dt.datetime.fromisoformat(text).replace(tzinfo=None),
    TIMESTAMPTZ: dt.datetime.fromisoformat,
}
_TO_BINARY: dict[int, Callable[[Any], bytes]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT2: lambda value: struct.pack("!h", value),
    INT4: lambda value: struct.pack("!i", value),
    INT8: lambda value: struct.pack("!q", value),
    OID: lambda value: struct.pack("!I", value),
    FLOAT8: lambda value: struct.pack("!d", value),
    DATE: lambda value: struct.pack("!i", value.toordinal() - _EPOCH_DAY),
    TIMESTAMP: lambda value: struct.pack("!q", (value - _EPOCH) // _MICROSECOND),
    NUMERIC: lambda value: _binary_numeric(Decimal(str(value))),
}
_FROM_BINARY: dict[int, Callable[[bytes], Any]] = {
    BOOL: _unpack("!?"),
    INT2: _unpack("!h"),
    INT4: _unpack("!i"),
    INT8: _unpack("!q"),
    OID: _unpack("!I"),
    FLOAT4: _unpack("!f"),
    FLOAT8: _unpack("!d"),
    DATE: lambda data: dt.date.fromordinal(struct.unpack("!i", data)[0] + _EPOCH_DAY),
    TIMESTAMP: lambda data: _EPOCH + struct.unpack("!q", data)[0] * _MICROSECOND,
    NUMERIC: lambda data: _plain_number(_from_binary_numeric(data)),
    **dict.fromkeys((0, CHAR, NAME, TEXT, UNKNOWN, BPCHAR, VARCHAR), _plain_text),
}
