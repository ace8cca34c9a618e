"""Read ClickHouse's format Native: blocks of columns, each with its name, its type and its values.

It has whole numbers of all sizes, and days and moments as the numbers that they are (see `values`), where formats of text and
Arrow would pass through a calendar.

Source: ClickHouse 26 documentation, "Native" and "Data types binary encoding".
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from dpsql.backends.clickhouse.values import DAY, MOMENT, get_moment

_NUMBERS = {
    **{f"Int{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    "Float32": "<f4",
    "Float64": "<f8",
    "Bool": "?",
}
_WIDE = re.compile(r"(U?)Int(128|256)")
_DECIMAL = re.compile(r"Decimal\((\d+), (\d+)\)")
_DECIMAL_BYTES = ((9, 4), (18, 8), (38, 16), (76, 32))
"""The largest number of digits of a DECIMAL, by its size in bytes."""


def read_rows(data: bytes) -> list[tuple[Any, ...]]:
    r"""Return the rows of all blocks. Raises TypeError for a type that no emitted statement has.

    >>> read_rows(b"\x01\x02\x01n\x05UInt8\x03\x04")
    [(3,), (4,)]
    """
    reader, rows = _BlockReader(data), list[tuple[Any, ...]]()
    while reader.at < len(data):
        width, length = reader.read_length(), reader.read_length()
        columns = [reader.read_column(length) for _ in range(width)]
        rows += zip(*columns, strict=True)
    return rows


class _BlockReader:
    """A place in the bytes of blocks."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def read_length(self) -> int:
        """Read a whole number of seven bits a byte, the lowest first."""
        number = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def read_text(self) -> str:
        """Read a text. Beside a NULL stand any bytes, which are no reason to fail."""
        length = self.read_length()
        self.at += length
        return self._data[self.at - length : self.at].decode(errors="replace")

    def read_column(self, length: int) -> list[Any]:
        """Read the name, the type and the values of a column."""
        self.read_text()
        kind = self.read_text()
        values, show = self._read_values(kind, length), _DATES.get(kind)
        return values if show is None else list(map(show, values))

    def _read_values(self, kind: str, length: int) -> list[Any]:
        inner = _get_inner_type(kind, "Nullable")
        if inner is not None:
            missing = self._read_array("?", length)
            values, show = self._read_values(inner, length), _DATES.get(inner)
            if show is None:
                return [None if gone else value for gone, value in zip(missing, values, strict=True)]
            # Beside a NULL stands any number.
            return [None if gone else show(value) for gone, value in zip(missing, values, strict=True)]
        inner = _get_inner_type(kind, "Array")
        if inner is not None:
            ends = self._read_array("<u8", length)
            values = self._read_values(inner, ends[-1] if ends else 0)
            return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        if kind == "String":
            return [self.read_text() for _ in range(length)]
        if kind in _NUMBERS:
            return self._read_array(_NUMBERS[kind], length)
        if kind == "Nothing":
            self.at += length
            return [None] * length
        return self._read_wide_values(kind, length)

    def _read_wide_values(self, kind: str, length: int) -> list[Any]:
        wide, decimal = _WIDE.fullmatch(kind), _DECIMAL.fullmatch(kind)
        if wide is not None:
            return self._read_integers(int(wide[2]) // 8, length, signed=not wide[1])
        if decimal is None:
            raise TypeError(kind)
        digits, scale = int(decimal[1]), int(decimal[2])
        size = next(size for most, size in _DECIMAL_BYTES if digits <= most)
        numbers = self._read_integers(size, length, signed=True)
        return numbers if kind in _DATES else [Decimal(number).scaleb(-scale) for number in numbers]

    def _read_array(self, kind: str, length: int) -> list[Any]:
        found = np.frombuffer(self._data, kind, length, self.at)
        self.at += found.nbytes
        return list(found.tolist())

    def _read_integers(self, size: int, length: int, *, signed: bool) -> list[int]:
        if size <= 8:
            return self._read_array(f"<i{size}", length)
        begin, self.at = self.at, self.at + size * length
        return [
            int.from_bytes(self._data[at : at + size], "little", signed=signed)
            for at in range(begin, self.at, size)
        ]


def _get_inner_type(kind: str, outer: str) -> str | None:
    return kind[len(outer) + 1 : -1] if kind.startswith(f"{outer}(") else None


def _get_date(microseconds: int) -> dt.date:
    return get_moment(microseconds).date()


_DATES: dict[str, Callable[[int], Any]] = {DAY: _get_date, MOMENT: get_moment}
"""What is read of the types that stand for days and moments."""
