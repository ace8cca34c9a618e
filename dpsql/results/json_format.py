"""Answers, values, errors and records as JSON and back."""

from __future__ import annotations

import base64
import copyreg
import datetime as dt
import math
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, cast

from dpsql import errors
from dpsql.errors import Error, OperationalError, Position, ProgrammingError
from dpsql.ledger.budget_state import BudgetState
from dpsql.policy.request.loss import DisplayedFraction
from dpsql.policy.request.parameters import BoundParameters, Parameters
from dpsql.privacy.accounting.partitions.boxes import Box
from dpsql.results.rendering import CONFIDENCE, Ends
from dpsql.results.result import ExplainedQuery, QueryCharge, Receipt, Result

# Write values as JSON and read them back; types that JSON lacks are written as texts and restored by the column's type.


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


# Write frozen dataclasses as JSON and read them back, field by field: budgets, quotes, forecasts, descriptions.


_T = TypeVar("_T")
_EXACT = 2**53


def write_record(value: Any) -> Any:
    """Return a record as JSON data.

    Exact numbers are written as texts, such as "1/10", and so are whole numbers beyond 53 bits, which many JSON readers round.

    >>> from dpsql.privacy.accounting.events import Charge
    >>> write_record(Charge(10**30, 2))
    {'loss': '1000000000000000000000000000000', 'delta': 2}
    """
    if isinstance(value, (Fraction, Box)):
        return str(Fraction(value) if isinstance(value, Fraction) else value)
    if is_dataclass(value):
        return {field.name: write_record(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [write_record(each) for each in value]
    if type(value) is int and abs(value) > _EXACT:
        return str(value)
    return value


def read_record(kind: type[_T], data: Any) -> _T:
    """Read a record of a dataclass. Raises TypeError, KeyError or ValueError for other data.

    >>> from dpsql.privacy.accounting.events import Charge
    >>> read_record(Charge, {"loss": "1000000000000000000000000000000", "delta": 2}) == Charge(10**30, 2)
    True
    """
    return cast("_T", _read_value(kind, data))


def _read_value(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (each for each in typing.get_args(kind) if each is not type(None))
        return None if data is None else _read_value(inner, data)
    if origin is tuple:
        return tuple(_read_value(typing.get_args(kind)[0], each) for each in data)
    if kind is Box:
        return Box.parse(data)
    if is_dataclass(kind):
        made: Any = kind
        hints = _get_type_hints(made)
        found = made(
            **{field.name: _read_value(hints[field.name], data[field.name]) for field in fields(made)}
        )
        return _with_displayed_fractions(found) if isinstance(found, BudgetState) else found
    if kind in (int, Fraction):
        return kind(data)
    if not isinstance(data, kind):
        raise TypeError(f"no {kind.__name__}")
    return data


@cache
def _get_type_hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _with_displayed_fractions(state: BudgetState) -> BudgetState:
    """Return a state whose figures are displayed rounded, as those of a ledger."""
    return replace(
        state,
        epsilon=DisplayedFraction(state.epsilon),
        delta=DisplayedFraction(state.delta),
        remaining_epsilon=DisplayedFraction(state.remaining_epsilon),
        spent_epsilon=DisplayedFraction(state.spent_epsilon, up=True),
    )


# Write errors as JSON and read them back: class, message, code, hint, position, and whether the query was charged.


def _iterate_error_classes(kind: type[Error]) -> Iterator[type[Error]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _iterate_error_classes(each)


_CLASSES = {
    kind.__name__: kind for kind in _iterate_error_classes(Error) if kind.__module__ == errors.__name__
}


def write_error(error: Error, sql: str | None = None) -> dict[str, Any]:
    """Return an error about a query `sql` as JSON; `text` is added if the position refers to another text, as a translation.

    An error's text depends only on the query, the policy and public metadata (see `dpsql.errors`), and so does its JSON.
    """
    place = error.position
    data: dict[str, Any] = {
        "error": next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _CLASSES),
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": None if place is None else place.line,
        "column": None if place is None else place.column,
        "charged": error.charged,
    }
    if error.text is not None and error.text != sql:
        data["text"] = error.text
    return data


def read_error(data: Mapping[str, Any], sql: str | None = None) -> Error:
    """Return the error of its JSON; an unknown class becomes OperationalError."""
    kind = _CLASSES.get(str(data.get("error")), OperationalError)
    line, column = data.get("line"), data.get("column")
    placed = isinstance(line, int) and isinstance(column, int)
    found = kind.__new__(kind)
    Error.__init__(
        found,
        str(data.get("message")),
        code=str(data.get("code") or kind.code),
        hint=None if data.get("hint") is None else str(data["hint"]),
        position=Position(line, column) if placed else None,  # type: ignore[arg-type]
        text=str(data["text"]) if "text" in data else sql if placed else None,
    )
    charged = data.get("charged")
    found.charged = charged if isinstance(charged, bool) else None
    return found


def make_unforeseen_error(charged: bool | None) -> Error:
    """Return the error for an unexpected failure, whose own message could quote private values."""
    found = errors.InternalError(
        "unexpected failure in dpsql; any charge stands",
        hint="ask the owner; the server's log has the place",
    )
    found.charged = charged
    return found


# Write answers as JSON and read them back, with the intervals of cells, notices and receipt.


IntervalMatrix = tuple[tuple[Ends, ...], ...]
"""The interval of each cell, row by row."""
IntervalSource = Callable[[float], IntervalMatrix]
"""A function that returns the intervals at a confidence that was not written."""


def write_answer(result: Result, confidences: Iterable[float]) -> dict[str, Any]:
    """Return the whole answer as JSON, with the intervals at these confidences."""
    return {
        **write_all_but_rows(result, confidences),
        "rows": [write_value(row) for row in result.rows],
    }


def write_all_but_rows(result: Result, confidences: Iterable[float]) -> dict[str, Any]:
    """Return an answer as JSON without its rows."""
    width = len(result.columns)
    bounded, counts = result.bounded_columns or (False,) * width, result.count_columns or (False,) * width
    return {
        "columns": [
            {"name": name, "type": kind, "has_intervals": ends, "is_count": count}
            for name, kind, ends, count in zip(result.columns, result.types, bounded, counts, strict=True)
        ],
        "scales": [write_value(row) for row in result.scales],
        "intervals": [
            {"confidence": confidence, "ends": write_intervals(result.intervals(confidence))}
            for confidence in confidences
        ],
        "notices": list(result.notices),
        "branches": list(result.branches),
        "receipt": result.receipt.to_dict(),
    }


def write_intervals(found: IntervalMatrix) -> list[Any]:
    """Return the intervals of all cells as JSON; null for a cell without one."""
    return [[None if ends is None else write_value(ends) for ends in row] for row in found]


def read_answer(data: Mapping[str, Any], more: IntervalSource) -> Result:
    """Read an answer from JSON; `more` returns intervals at other confidences."""
    columns = data["columns"]
    kinds = tuple(str(column["type"]) for column in columns)
    receipt = read_receipt(data["receipt"])
    known = {float(each["confidence"]): read_intervals(each["ends"]) for each in data["intervals"]}
    notices = tuple(map(str, data["notices"]))[len(receipt.notices) :]

    def get_interval(row: int, column: int, confidence: float) -> Ends:
        if confidence not in known:
            known[confidence] = more(confidence)
        return known[confidence][row][column]

    return Result(
        columns=tuple(str(column["name"]) for column in columns),
        types=kinds,
        rows=tuple(tuple(map(read_value, row, kinds)) for row in data["rows"]),
        scales=tuple(tuple(read_value(scale, "DOUBLE") for scale in row) for row in data["scales"]),
        receipt=receipt,
        _interval_of=get_interval,
        _bounded=tuple(bool(column["has_intervals"]) for column in columns),
        _counts=tuple(bool(column["is_count"]) for column in columns),
        _branches=tuple(map(int, data["branches"])),
        _compute_notices=lambda _: notices,
    )


PICKLED = (0.5, 0.68, 0.8, 0.9, CONFIDENCE, 0.99)
"""The confidences whose intervals a pickled answer keeps."""


def reduce_answer(result: Result) -> tuple[Callable[[dict[str, Any]], Result], tuple[dict[str, Any]]]:
    """Return how an answer is pickled and copied: as JSON, with its intervals at some confidences."""
    return read_pickled_answer, (write_answer(result, PICKLED),)


copyreg.pickle(Result, reduce_answer)


def read_pickled_answer(data: Mapping[str, Any]) -> Result:
    """Read an answer that was pickled; intervals at other confidences raise DataError."""
    confidences = [each["confidence"] for each in data["intervals"]]

    def refuse(confidence: float) -> IntervalMatrix:
        raise errors.DataError(
            f"a pickled answer has no intervals at {confidence:g}",
            hint=f"it has those at {', '.join(map(str, confidences))}; others are computed before it is pickled",
        )

    return read_answer(data, refuse)


def read_intervals(data: Iterable[Iterable[Any]]) -> IntervalMatrix:
    """Read intervals from JSON."""
    return tuple(tuple(None if ends is None else _read_ends(ends) for ends in row) for row in data)


def _read_ends(ends: list[Any]) -> Ends:
    low, high = (read_value(end, "DOUBLE") for end in ends)
    return low, high


def read_receipt(data: Mapping[str, Any]) -> Receipt:
    """Read a receipt that `Receipt.to_dict` wrote."""
    known: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in data.items()
        if name in Receipt.__dataclass_fields__
    }
    return Receipt(**known)


def write_explanation(explained: ExplainedQuery) -> dict[str, Any]:
    """Return the plan of a query as JSON, line by line, with its receipt and notices."""
    return {
        "plan": list(explained.lines),
        "notices": list(explained.notices),
        "receipt": explained.receipt.to_dict(),
        "price": None if explained.price is None else write_record(explained.price),
    }


def read_explanation(data: Mapping[str, Any]) -> ExplainedQuery:
    """Read an explanation from JSON."""
    return ExplainedQuery(
        lines=tuple(map(str, data["plan"])),
        receipt=read_receipt(data["receipt"]),
        notices=tuple(map(str, data["notices"])),
        price=None if data["price"] is None else read_record(QueryCharge, data["price"]),
    )
