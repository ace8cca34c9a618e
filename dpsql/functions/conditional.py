"""Conditional functions. The interval of CASE is in `analysis.intervals`, which knows its conditions."""

from __future__ import annotations

from typing import TypeVar

from dpsql.functions.enclosures import unchanged
from dpsql.functions.growth import as_long, longest, shorter, untouched
from dpsql.functions.signatures import several
from dpsql.plan.expr import Expr, Function, is_null
from dpsql.plan.interval import Interval, hull
from dpsql.plan.types import Type, common

T = TypeVar("T")

_CHOICE = "no value is computed"


def case_branches(arguments: tuple[T, ...]) -> tuple[tuple[tuple[T, T], ...], T]:
    """The (condition, value) pairs and the ELSE value of a CASE call's arguments, as they are or written."""
    *pairs, otherwise = arguments
    return tuple(zip(pairs[::2], pairs[1::2], strict=True)), otherwise


def _case(types: tuple[Type, ...]) -> Type | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    conditions, values = types[:-1:2], (*types[1::2], types[-1])
    return common(values) if set(conditions) <= {Type.BOOLEAN, Type.NULL} else None


def _coalesce(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    known = [around for argument, around in zip(arguments, of, strict=True) if not is_null(argument)]
    return hull(known) if known else Interval()


ENTRIES = (
    Function(
        "case",
        "CASE WHEN p THEN x … ELSE y END",
        _case,
        "CASE {case} END",
        _CHOICE,
        size=longest,
        work=untouched,
        example=("CASE WHEN 6 > 3 THEN 'more' ELSE 'less' END", "more"),
    ),
    Function(
        "coalesce",
        "COALESCE(x, …)",
        several(1),
        "COALESCE({args})",
        _CHOICE,
        interval=_coalesce,
        names=("coalesce", "ifnull"),
        size=longest,
        work=untouched,
        example=("COALESCE(NULL, 6)", "6"),
    ),
    Function(
        "nullif",
        "NULLIF(x, y)",
        lambda types: types[0] if len(types) == 2 and common(types) is not None else None,
        "NULLIF({0}, {1})",
        "values of one type compare",
        interval=unchanged,
        doubled=frozenset({0}),
        names=("nullif",),
        size=as_long,
        work=shorter,
        example=("NULLIF(6, 6)", "NULL"),
    ),
)
