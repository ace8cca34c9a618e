"""Functions of numbers."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.functions.signatures import NUMBER, fixed, numeric
from dpsql.plan.expr import Expr, Function, Literal
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type


def _one(types: tuple[Type, ...]) -> Type | None:
    return numeric(types) if len(types) == 1 else None


def _two_or_more(types: tuple[Type, ...]) -> Type | None:
    return numeric(types) if len(types) >= 2 else None


def _absolute(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return abs(of[0])


def _floor(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].floor()


def _ceil(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].ceil()


def _round(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].outward()


def _round_digits(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    digits = arguments[1].value if isinstance(arguments[1], Literal) else None
    if not isinstance(digits, int):
        return Interval()
    unit = Fraction(10) ** -digits
    low, high = of[0].low, of[0].high
    return Interval(
        None if low is None else math.floor(low / unit) * unit,
        None if high is None else math.ceil(high / unit) * unit,
    )


def _constants(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> list[Fraction]:
    """The values of the arguments that are never NULL, hence never skipped by LEAST and GREATEST."""
    return [
        interval.ends[0]
        for argument, interval in zip(arguments, of, strict=True)
        if isinstance(argument, Literal) and interval.bounded
    ]


def _least(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    # NULLs are skipped, so only constants cap the result; it is one of the arguments in any case.
    around = of[0]
    for interval in of[1:]:
        around = around.hull(interval)
    caps = _constants(arguments, of)
    return around.meet(Interval(None, min(caps))) if caps else around


def _greatest(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -_least(
        tuple(arguments),
        tuple(-interval for interval in of),
    )


ENTRIES = (
    Function(
        "abs",
        "ABS(x)",
        _one,
        "ABS({0})",
        "BIGINT where the interval excludes overflow, else DOUBLE",
        interval=_absolute,
        overflows=True,
        strict=True,
    ),
    Function("floor", "FLOOR(x)", _one, "FLOOR({0})", "DOUBLE", interval=_floor, strict=True, integral=True),
    Function("ceil", "CEIL(x)", _one, "CEIL({0})", "DOUBLE", interval=_ceil, strict=True, integral=True),
    Function("round", "ROUND(x)", _one, "ROUND({0})", "DOUBLE", interval=_round, strict=True, integral=True),
    Function(
        "round_digits",
        "ROUND(x, digits)",
        fixed(Type.DOUBLE, NUMBER, (Type.INTEGER,)),
        "ROUND(CAST({0} AS DOUBLE), {1})",
        "DOUBLE",
        interval=_round_digits,
        literals=frozenset({1}),
    ),
    Function(
        "least", "LEAST(x, …)", _two_or_more, "LEAST({args})", "values of one type compare", interval=_least
    ),
    Function(
        "greatest",
        "GREATEST(x, …)",
        _two_or_more,
        "GREATEST({args})",
        "values of one type compare",
        interval=_greatest,
    ),
)
