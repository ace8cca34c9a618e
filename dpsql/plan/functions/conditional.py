"""Conditional functions. The interval of CASE is in `analysis.intervals`, which knows its conditions."""

from __future__ import annotations

from typing import TypeVar

from dpsql.plan.expressions import Expr, Function, is_null
from dpsql.plan.functions.enclosures import derive_first_interval
from dpsql.plan.functions.growth import (
    bound_by_first_text,
    bound_comparison_work,
    bound_longest_text,
    bound_untouched_work,
)
from dpsql.plan.functions.signatures import make_variadic_rule
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.types import Type, find_common_type

T = TypeVar("T")

_CHOICE = "no value is computed"


def split_case_branches(arguments: tuple[T, ...]) -> tuple[tuple[tuple[T, T], ...], T]:
    """Return the (condition, value) pairs and the ELSE value of a CASE call's arguments, as they are or written."""
    *pairs, otherwise = arguments
    return tuple(zip(pairs[::2], pairs[1::2], strict=True)), otherwise


def _infer_case_type(types: tuple[Type, ...]) -> Type | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    conditions, values = types[:-1:2], (*types[1::2], types[-1])
    return find_common_type(values) if set(conditions) <= {Type.BOOLEAN, Type.NULL} else None


def _derive_coalesce_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    known = [around for argument, around in zip(arguments, of, strict=True) if not is_null(argument)]
    return merge_intervals(known) if known else Interval()


CONDITIONALS = (
    Function(
        "case",
        "CASE WHEN p THEN x … ELSE y END",
        _infer_case_type,
        "CASE {case} END",
        _CHOICE,
        size=bound_longest_text,
        work=bound_untouched_work,
        example=("CASE WHEN 6 > 3 THEN 'more' ELSE 'less' END", "more"),
    ),
    Function(
        "coalesce",
        "COALESCE(x, …)",
        make_variadic_rule(1),
        "COALESCE({args})",
        _CHOICE,
        interval=_derive_coalesce_interval,
        names=("coalesce", "ifnull"),
        size=bound_longest_text,
        work=bound_untouched_work,
        example=("COALESCE(NULL, 6)", "6"),
    ),
    Function(
        "nullif",
        "NULLIF(x, y)",
        lambda types: types[0] if len(types) == 2 and find_common_type(types) is not None else None,
        "NULLIF({0}, {1})",
        "values of one type compare",
        interval=derive_first_interval,
        doubled_arguments=frozenset({0}),
        names=("nullif",),
        size=bound_by_first_text,
        work=bound_comparison_work,
        example=("NULLIF(6, 6)", "NULL"),
    ),
)
