"""Values on the wire: the numbers of types, and their text and binary formats.

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

from dpsql.interfaces.server.protocol.errors import StatementError

BOOL, CHAR, NAME, INT8, INT2, INT4, TEXT, OID = 16, 18, 19, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, UNKNOWN, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = (
    700, 701, 705, 1043, 1082, 1114, 1184, 1700,
)  # fmt: skip
BPCHAR = 1042
INT2VECTOR, OIDVECTOR = 22, 30
_VECTORS = {INT2VECTOR: INT2, OIDVECTOR: OID}
"""Types of the catalog that are written as their items with spaces between them."""

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
"""An item of an array as text, quoted or not, and the separator that follows it."""
MOST_ITEMS = 10_000
"""The largest number of items of a list that is bound to a parameter."""
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
        """Return the number of bytes of a value, or -1 if it varies."""
        return _SIZES.get(self.oid, -1)


def get_oid(engine_type: str) -> int:
    """Return the wire type of an engine type, or text if it has none.

    >>> get_oid("BIGINT"), get_oid("DECIMAL(10,2)"), get_oid("BIGINT[]"), get_oid("MAP(BIGINT, BIGINT)")
    (20, 1700, 1016, 25)
    """
    if engine_type.endswith("[]"):
        return _ARRAYS.get(get_oid(engine_type[:-2]), TEXT)
    return NUMERIC if engine_type.startswith("DECIMAL(") else _ENGINE.get(engine_type, TEXT)


def get_array_oid(oid: int) -> int:
    """Return the type of the arrays of a type, or arrays of text if it has none."""
    return _ARRAYS.get(oid, _ARRAYS[TEXT])


def find_element_oid(oid: int) -> int | None:
    """Return the type of an array's items, or None for another type."""
    return _ELEMENTS.get(oid)


def encode_value(value: Any, oid: int, code: int) -> bytes | None:
    """Return a value in text (`code` 0) or binary (1), or None for NULL.

    Raises StatementError if the type cannot hold the value, such as a date beyond the calendar in binary.
    """
    if value is None:
        return None
    if code == 0 and oid in _VECTORS and isinstance(value, (list, tuple)):
        return " ".join(map(to_text, value)).encode()
    if code == 0:
        return to_text(value).encode("utf-8", "replace")
    try:
        return _encode_binary(value, oid)
    except (struct.error, TypeError, ValueError, OverflowError, AttributeError):
        raise StatementError(
            "22003",
            "a value of the answer does not fit into the binary format of its type; any charge stands",
            "run it again with results in text format; the stored answer is free",
        ) from None


def to_text(value: Any) -> str:
    r"""Return a value as PostgreSQL writes it.

    >>> to_text(True), to_text(1.0), to_text(float("inf")), to_text(["a b", None, 'c"'])
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
        return "{" + ",".join(map(_to_element_text, value)) + "}"
    if isinstance(value, dict):
        return json.dumps(
            {to_text(key): each for key, each in value.items()}, ensure_ascii=False, default=str
        )
    return str(value)


def _to_element_text(value: Any) -> str:
    if value is None:
        return "NULL"
    text = to_text(value)
    if isinstance(value, (list, tuple)) or (
        text and not _NEEDS_QUOTES.search(text) and text.upper() != "NULL"
    ):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encode_binary(value: Any, oid: int) -> bytes:
    if oid in _ELEMENTS or oid in _VECTORS:
        return _encode_binary_array(value, _ELEMENTS.get(oid) or _VECTORS[oid])
    write = _TO_BINARY.get(oid)
    return to_text(value).encode("utf-8", "replace") if write is None else write(value)


def _encode_binary_array(values: Sequence[Any], element: int) -> bytes:
    if not values:
        return struct.pack("!iiI", 0, 0, element)
    items = [encode_value(value, element, 1) for value in values]
    head = struct.pack("!iiIii", 1, any(item is None for item in items), element, len(items), 1)
    return head + b"".join(
        struct.pack("!i", -1) if item is None else struct.pack("!i", len(item)) + item for item in items
    )


def _encode_binary_numeric(value: Decimal) -> bytes:
    """Return the digits to the base 10,000 with the weight of the first."""
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


def decode_value(data: bytes | None, oid: int, code: int) -> Any:
    """Return the value of a parameter. Raises StatementError if it is not one of its type."""
    if data is None:
        return None
    try:
        if oid in _ELEMENTS:
            read = _decode_binary_array if code == 1 else _decode_text_array
            return read(data, _ELEMENTS[oid])
        if code == 1:
            return _decode_binary(data, oid)
        return _FROM_TEXT.get(oid, str)(_decode_text(data))
    except (struct.error, UnicodeDecodeError, ValueError, OverflowError, InvalidOperation):
        raise StatementError("22P02", "a parameter's value does not have its type") from None


def _decode_text_array(data: bytes, element: int) -> tuple[Any, ...]:
    r"""Return the items of an array of one dimension. Raises ValueError for another text.

    >>> _decode_text_array(b'{1, NULL,2}', INT4), _decode_text_array(rb'{"a\"b",c}', TEXT), _decode_text_array(b"{}", TEXT)
    ((1, None, 2), ('a"b', 'c'), ())
    """
    text = _decode_text(data).strip()
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
        items.append(None if is_null else decode_value(item.encode(), element, 0))
        at, more = match.end(), follows == ","
    return tuple(items)


def _decode_binary_array(data: bytes, element: int) -> tuple[Any, ...]:
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
        items.append(None if length < 0 else decode_value(data[at : at + length], element, 1))
        at += max(length, 0)
    return tuple(items)


def _decode_binary(data: bytes, oid: int) -> Any:
    read = _FROM_BINARY.get(oid)
    if read is None:
        raise StatementError("0A000", f"binary format is not supported for parameters of type {oid}")
    return read(data)


def _make_unpacker(code: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(code, data)[0]


def _decode_text(data: bytes) -> str:
    text = data.decode()
    if "\0" in text:
        raise ValueError
    return text


def _decode_binary_numeric(data: bytes) -> Decimal:
    count, weight, sign, _ = struct.unpack_from("!HhHH", data)
    groups = struct.unpack_from(f"!{count}H", data, 8)
    if sign not in (0, 0x4000) or len(data) != 8 + 2 * count or max(groups, default=0) > 9_999:
        raise ValueError
    digits = "".join(f"{group:04}" for group in groups) or "0"
    exponent = (weight - count + 1) * 4 if groups else 0
    # Constructed from its parts, the decimal is exact; arithmetic would round it to the context's digits.
    return Decimal((1 if sign else 0, tuple(map(int, digits)), exponent))


def _simplify_number(value: Decimal) -> int | float:
    """Return a whole number as an integer, another one as the nearest double: the engine reads no other numbers."""
    if not value.is_finite() or abs(value.adjusted()) > 400:
        raise ValueError
    return int(value) if value == value.to_integral_value() else float(value)


def _parse_boolean(text: str) -> bool:
    known = {"t": True, "true": True, "on": True, "yes": True, "1": True}
    known |= {"f": False, "false": False, "off": False, "no": False, "0": False}
    if text.strip().lower() not in known:
        raise ValueError
    return known[text.strip().lower()]


def _parse_integer(text: str) -> int:
    if len(text) > 50:
        raise ValueError
    return int(text)


_TIME = re.compile(
    r"(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z| ?[+-]\d\d(?::\d\d){0,2})?| [+-]\d\d(?::\d\d){0,2})\Z",
    re.ASCII,
)
"""A time after a date, with or without a zone, or only a zone."""
_FROM_TEXT: dict[int, Callable[[str], Any]] = {
    BOOL: _parse_boolean,
    INT2: _parse_integer,
    INT4: _parse_integer,
    INT8: _parse_integer,
    OID: _parse_integer,
    FLOAT4: float,
    FLOAT8: float,
    NUMERIC: lambda text: _simplify_number(Decimal(text)),
    # PostgreSQL ignores the time and the zone, which the drivers of JDBC and node write after a date.
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
    NUMERIC: lambda value: _encode_binary_numeric(Decimal(str(value))),
}
_FROM_BINARY: dict[int, Callable[[bytes], Any]] = {
    BOOL: _make_unpacker("!?"),
    INT2: _make_unpacker("!h"),
    INT4: _make_unpacker("!i"),
    INT8: _make_unpacker("!q"),
    OID: _make_unpacker("!I"),
    FLOAT4: _make_unpacker("!f"),
    FLOAT8: _make_unpacker("!d"),
    DATE: lambda data: dt.date.fromordinal(struct.unpack("!i", data)[0] + _EPOCH_DAY),
    TIMESTAMP: lambda data: _EPOCH + struct.unpack("!q", data)[0] * _MICROSECOND,
    NUMERIC: lambda data: _simplify_number(_decode_binary_numeric(data)),
    **dict.fromkeys((0, CHAR, NAME, TEXT, UNKNOWN, BPCHAR, VARCHAR), _decode_text),
}


def expand_formats(codes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the format of each value: no code means text, and a single code is for all values."""
    if len(codes) <= 1:
        return (codes or (0,)) * count
    if len(codes) != count:
        raise StatementError("08P01", f"a message has {len(codes)} formats for {count} values")
    return codes
