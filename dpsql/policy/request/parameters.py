"""The values for the `?` of a query, or for its `:name`."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpsql.errors import DataError, ProgrammingError
from dpsql.plan.types import Type, Value, get_value_type

_MOST_DIGITS = 76
Parameter = Value | tuple[Value, ...]
"""A value, or the values of a list, as `IN ?` takes them."""
Parameters = Sequence[Any] | Mapping[str, Any]
"""What a caller gives: a sequence of values for `?`, or a mapping of names to values for `:name`."""


@dataclass(frozen=True, slots=True)
class BoundParameters:
    """The parameters of a query, each as exactly one of the built-in types; `names` if they were given by name."""

    values: tuple[Parameter, ...] = ()
    names: tuple[str, ...] | None = None

    def order_values(self, count: int, names: Sequence[str]) -> tuple[Parameter, ...]:
        """Return the values in the order of a text with `count` times `?`, or with these names; raise DataError if they do not fit."""
        if self.names is None and names and self.values:
            raise DataError(
                f"the query names its parameters: {', '.join(f':{name}' for name in names)}",
                code="parameter",
                hint=f"{{{names[0]!r}: 18}}",
            )
        if (self.names or ()) and not names:
            raise DataError(
                "parameters were given by name, but the query has no named parameters",
                code="parameter",
                hint="WHERE x > :low",
            )
        if not names:
            if len(self.values) != count:
                raise DataError(
                    f"the query has {count} parameters, but {len(self.values)} values were given",
                    code="parameter",
                )
            return self.values
        given = dict(zip(self.names or (), self.values, strict=False))
        if missing := [name for name in names if name not in given]:
            raise DataError(f"no value was given for :{missing[0]}", code="parameter")
        if unknown := [name for name in given if name not in names]:
            raise DataError(f"the query has no parameter :{unknown[0]}", code="parameter")
        return tuple(given[name] for name in names)


def bind_parameters(parameters: Parameters) -> BoundParameters:
    """Return the parameters of a query; raise DataError for values of other types."""
    if isinstance(parameters, Mapping):
        names = tuple(parameters)
        if not all(isinstance(name, str) for name in names):
            raise ProgrammingError("parameter names must be text", code="parameter")
        return BoundParameters(
            tuple(_bind_value(f":{name}", value) for name, value in parameters.items()), names
        )
    if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            "parameters must be a list or tuple with one value for each ?, or a dict with one for each :name",
            code="parameter",
            hint="[18, 'A']",
        )
    return BoundParameters(tuple(_bind_value(str(index), value) for index, value in enumerate(parameters, 1)))


def _bind_value(name: str, value: object) -> Parameter:
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
        value = _list_elements(value)
    if isinstance(value, (list, tuple)):
        if not value:
            raise DataError(
                f"parameter {name} is an empty list", code="parameter", hint="pass at least one value"
            )
        return tuple(_to_plain_value(name, item) for item in value)
    return _to_plain_value(name, value)


def _list_elements(array: Any) -> list[object]:
    """Return the elements of an array of one dimension."""
    if array.ndim != 1:
        raise DataError("a list of values must have one dimension", code="parameter")
    return list(array)


def _to_plain_value(name: str, value: Any) -> Value:
    """Return the value as exactly one of the built-in types: a subclass may misreport itself."""
    if type(value).__module__ == "numpy":
        value = _from_numpy(value)
    if isinstance(value, Decimal):
        return _convert_decimal(name, value)
    if isinstance(value, dt.datetime):
        return _to_utc_datetime(name, value)
    try:
        kind = get_value_type(value)
    except TypeError:
        raise DataError(
            f"parameter {name} has the unsupported type {type(value).__name__}", code="parameter"
        ) from None
    if isinstance(value, dt.time) and value.tzinfo is not None:
        raise DataError(
            f"parameter {name} is a time of day with a time zone, which is not supported",
            code="parameter",
            hint="remove the time zone",
        )
    return _PLAIN[kind](value)


def _to_utc_datetime(name: str, value: dt.datetime) -> dt.datetime:
    """Return a moment as exactly a datetime without a zone: in UTC, if it has one."""
    found = dt.datetime.fromisoformat(dt.datetime.isoformat(value))
    if found.tzinfo is None:
        return found
    try:
        return found.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:
        raise DataError(f"parameter {name} is outside the years 1 to 9999 in UTC", code="parameter") from None


def _convert_decimal(name: str, value: Decimal) -> int | float:
    """Convert a decimal as a number in a query is read: to a whole number, or to the nearest floating-point number."""
    exact = Decimal(Decimal.__str__(value))
    if not exact.is_finite():
        raise DataError(f"parameter {name} must be a finite number", code="parameter")
    exponent = exact.as_tuple().exponent
    digits = len(exact.as_tuple().digits)
    if not isinstance(exponent, int) or digits + abs(exponent) > _MOST_DIGITS:
        raise DataError(f"parameter {name} has more digits than a DECIMAL can hold", code="parameter")
    return int(exact) if exponent >= 0 else float(exact)


def _from_numpy(value: Any) -> Any:
    """Return the Python value of a NumPy scalar, moments to the microsecond; values without an equal stay as they are."""
    kind = type(value).__name__
    if kind == "timedelta64" or not hasattr(value, "item"):
        return value
    found = value.item()
    if kind == "datetime64" and isinstance(found, int):
        found = value.astype("datetime64[us]").item()
    # Beyond the calendar a moment would be a number.
    return value if kind == "datetime64" and isinstance(found, int) else found


_PLAIN: dict[Type, Callable[[Any], Value]] = {
    Type.BOOLEAN: lambda value: value is True,
    Type.INTEGER: int.__int__,
    Type.DOUBLE: float.__float__,
    Type.VARCHAR: str.__str__,
    Type.DATE: lambda value: dt.date.fromordinal(dt.date.toordinal(value)),
    Type.TIME: lambda value: dt.time.fromisoformat(dt.time.isoformat(value)),
    Type.UUID: lambda value: uuid.UUID(int=value.int),
    Type.BLOB: bytes,
    Type.NULL: lambda _: None,
}
