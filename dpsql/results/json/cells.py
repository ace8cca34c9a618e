"""Write values as JSON and read them back; types that JSON lacks are written as texts and restored by the column's type."""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from dpsql.errors import ProgrammingError
from dpsql.policy.request.parameters import BoundParameters, Parameters

_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_READ: dict[str, Callable[[str], Any]] = {
    "DOUBLE": float,
    "DATE": dt.date.fromisoformat,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "TIME": dt.time.fromisoformat,
    "UUID": uuid.UUID,
    "BLOB": lambda text: base64.b64decode(text, validate=True),
}
_TYPES = {dt.datetime: "TIMESTAMP", dt.date: "DATE", dt.time: "TIME", uuid.UUID: "UUID", bytes: "BLOB"}
"""The Python types of parameters that are written with their SQL type."""


def write_value(value: Any) -> Any:
    """Return a value of an answer as JSON.

    >>> write_value(float("nan")), write_value(dt.date(2024, 2, 29)), write_value({"A": 3})
    ('NaN', '2024-02-29', [['A', 3]])
    """
    match value:
        case float():
            return value if math.isfinite(value) else _NUMBERS.get(value, "NaN")
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return f"{value:f}"
        case uuid.UUID():
            return str(value)
        case dict():
            return [[write_value(key), write_value(each)] for key, each in value.items()]
        case list() | tuple():
            return [write_value(each) for each in value]
        case _:
            return value


def read_value(value: Any, kind: str) -> Any:
    """Read a value of a column with an engine type.

    A text that is not a value of the type stays a text, such as a date beyond Python's calendar.

    >>> read_value("2024-02-29", "DATE"), read_value("infinity", "DATE"), read_value([["A", 3]], "MAP(VARCHAR, BIGINT)")
    (datetime.date(2024, 2, 29), 'infinity', {'A': 3})
    """
    if isinstance(value, list):
        if kind.endswith("[]"):
            return [read_value(each, kind[:-2]) for each in value]
        if kind.startswith("MAP(") and kind.endswith(")"):
            of, _, counted = kind[4:-1].rpartition(", ")
            return {read_value(key, of): read_value(each, counted) for key, each in value}
        return value
    reader = Decimal if kind.startswith("DECIMAL(") else _READ.get(kind)
    if isinstance(value, str) and reader is not None:
        with suppress(ValueError, ArithmeticError):
            return reader(value)
    return value


def write_parameters(parameters: BoundParameters) -> list[Any] | dict[str, Any]:
    """Return the parameters of a query as JSON; a type that JSON lacks is written as `{"type": …, "value": …}`."""
    values = [_write_parameter(value) for value in parameters.values]
    return values if parameters.names is None else dict(zip(parameters.names, values, strict=True))


def _write_parameter(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_write_parameter(each) for each in value]
    kind = next((name for python, name in _TYPES.items() if isinstance(value, python)), None)
    if isinstance(value, float) and not math.isfinite(value):
        kind = "DOUBLE"
    return value if kind is None else {"type": kind, "value": write_value(value)}


def read_parameters(data: Sequence[Any] | Mapping[str, Any]) -> Parameters:
    """Read the parameters of a request. Raises ProgrammingError for an invalid value."""
    if isinstance(data, Mapping):
        return {name: _read_parameter(f":{name}", value) for name, value in data.items()}
    return [_read_parameter(str(number), value) for number, value in enumerate(data, 1)]


def _read_parameter(name: str, value: Any, *, inner: bool = False) -> Any:
    if isinstance(value, list) and not inner:
        return [_read_parameter(name, each, inner=True) for each in value]
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, dict) and value.keys() == {"type", "value"} and isinstance(value["value"], str):
        reader = _READ.get(value["type"]) if isinstance(value["type"], str) else None
        if reader is not None:
            with suppress(ValueError):
                return reader(value["value"])
    raise ProgrammingError(
        f"parameter {name} is not a valid value",
        code="parameter",
        hint='write 18, "A", true, null, a list of these, or {"type": "DATE", "value": "2024-01-31"}; '
        f"types are {', '.join(_READ)}",
    )
