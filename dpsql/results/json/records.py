"""Write frozen dataclasses as JSON and read them back, field by field: budgets, quotes, forecasts, descriptions.

Exact numbers are written as texts, such as "1/10", and so are whole numbers beyond 53 bits, which many JSON readers round.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, cast

from dpsql.ledger import BudgetState
from dpsql.policy.request.loss import DisplayedFraction
from dpsql.privacy.accounting.partitions.boxes import Box

_T = TypeVar("_T")
_EXACT = 2**53


def write_record(value: Any) -> Any:
    """Return a record as JSON data.

    >>> from dpsql.privacy.accounting.charge import Charge
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

    >>> from dpsql.privacy.accounting.charge import Charge
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
