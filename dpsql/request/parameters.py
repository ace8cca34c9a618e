"""The values that stand for the `?` of a query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpsql.errors import DataError, ProgrammingError
from dpsql.plan.types import Type, Value, type_of


def bound(parameters: Sequence[Value]) -> tuple[Value, ...]:
    """The parameters of a query, each as exactly one of the built-in types. Raises DataError for others."""
    if isinstance(parameters, (str, bytes, Mapping)) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            "parameters must be a list or tuple with one value for each ?", code="parameter", hint="[18, 'A']"
        )
    return tuple(_plain(index, value) for index, value in enumerate(parameters, 1))


def _plain(index: int, value: Value) -> Value:
    """The value as exactly one of the built-in types: a subclass may say anything of itself."""
    try:
        kind = type_of(value)
    except TypeError:
        name = type(value).__name__
        raise DataError(f"parameter {index} is of type {name}", code="parameter") from None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        raise DataError(
            f"parameter {index} has a time zone", code="parameter", hint="convert it to UTC and drop the zone"
        )
    return _PLAIN[kind](value)


_PLAIN: dict[Type, Callable[[Any], Value]] = {
    Type.BOOLEAN: lambda value: value is True,
    Type.INTEGER: int.__int__,
    Type.DOUBLE: float.__float__,
    Type.VARCHAR: str.__str__,
    Type.DATE: lambda value: dt.date.fromordinal(dt.date.toordinal(value)),
    Type.TIMESTAMP: lambda value: dt.datetime.fromisoformat(dt.datetime.isoformat(value)),
    Type.NULL: lambda _: None,
}
