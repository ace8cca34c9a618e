"""Choices between values. The interval of CASE is in `analysis.bounds`, which knows its conditions."""

from __future__ import annotations

from typing import TypeVar

from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval, hull
from dpsql.plan.types import Type, common

T = TypeVar("T")


def case_branches(arguments: tuple[T, ...]) -> tuple[tuple[tuple[T, T], ...], T]:
    """The (condition, value) pairs and the ELSE value of a CASE call's arguments, as they are or written."""
    *pairs, otherwise = arguments
    return tuple(zip(pairs[::2], pairs[1::2], strict=True)), otherwise


def _case(types: tuple[Type, ...]) -> Type | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    conditions, values = types[:-1:2], (*types[1::2], types[-1])
    return common(values) if set(conditions) <= {Type.BOOLEAN, Type.NULL} else None


def _coalesce(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return hull(of)


def _first(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0]


ENTRIES = (
    Function("case", "CASE WHEN p THEN x … ELSE y END", _case, "CASE {case} END", "no value is computed"),
    Function(
        "coalesce",
        "COALESCE(x, …)",
        lambda types: common(types) if types else None,
        "COALESCE({args})",
        "no value is computed",
        interval=_coalesce,
    ),
    Function(
        "nullif",
        "NULLIF(x, y)",
        lambda types: types[0] if len(types) == 2 and common(types) is not None else None,
        "NULLIF({0}, {1})",
        "values of one type compare",
        interval=_first,
    ),
)
