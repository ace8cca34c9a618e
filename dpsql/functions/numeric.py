"""Numeric functions: absolute value, sign, rounding, least and greatest."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.functions.enclosures import Rule, constantly, doubles, machine
from dpsql.functions.growth import longest
from dpsql.functions.operators import NO_OVERFLOW
from dpsql.functions.signatures import INTEGER, NUMBER, TEMPORAL, fixed, numbers, several
from dpsql.plan.expr import Expr, Function, Literal, is_null
from dpsql.plan.interval import Interval, hull
from dpsql.plan.types import Type, Value

MOST_DIGITS = 15
"""Most digits that a DOUBLE can be rounded to."""
_TRUTH = constantly(Interval(0, 1))
_CHOICE = "values of one type compare"
_DOUBLE = "defined for every DOUBLE"


def _absolute(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return abs(of[0])


def _floor(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].floor()


def _ceil(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].ceil()


def _outward(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].outward()


def _truncated(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].map(math.trunc, math.trunc)


def _even(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    two = Fraction(2)
    return of[0].map(lambda low: 2 * math.floor(low / two), lambda high: 2 * math.ceil(high / two))


def _to_digits(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    digits = arguments[1].value if isinstance(arguments[1], Literal) else None
    if not isinstance(digits, int):
        return Interval()
    unit = Fraction(10) ** -digits
    low, high = of[0].low, of[0].high
    return doubles(
        Interval(
            None if low is None else math.floor(low / unit) * unit,
            None if high is None else math.ceil(high / unit) * unit,
        )
    )


def _digits(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and abs(values[0]) <= MOST_DIGITS
    return None if fits else f"at most {MOST_DIGITS} digits"


def _constants(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> list[Fraction]:
    """The values of the arguments that are never NULL, hence never skipped by LEAST and GREATEST."""
    return [
        interval.ends[0]
        for argument, interval in zip(arguments, of, strict=True)
        if isinstance(argument, Literal) and interval.bounded
    ]


def _least(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if len({argument.type for argument in arguments if argument.type.temporal}) > 1:
        return Interval()  # a DATE's line is not a TIMESTAMP's
    # NULLs are skipped, so only constants cap the result; it is one of the arguments in any case.
    there = [place for place, argument in enumerate(arguments) if not is_null(argument)]
    arguments, of = tuple(arguments[place] for place in there), tuple(of[place] for place in there)
    caps = _constants(arguments, of)
    around = hull(of) if of else Interval()
    return around.meet(Interval(None, min(caps))) if caps else around


def _greatest(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -_least(arguments, tuple(-interval for interval in of))


def _rounding(name: str, interval: Rule, aliases: tuple[str, ...], example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x)",
        numbers(1),
        f"{word}({{0}})",
        _DOUBLE,
        interval=interval,
        strict=True,
        integral=True,
        names=(name, *aliases),
        example=(f"{word}(2.5)", example),
    )


def _rounding_to(name: str, word: str, aliases: tuple[str, ...], example: str) -> Function:
    return Function(
        name,
        f"{word}(x, digits)",
        fixed(Type.DOUBLE, NUMBER, INTEGER),
        f"{word}(CAST({{0}} AS DOUBLE), {{1}})",
        _DOUBLE,
        interval=_to_digits,
        strict=True,
        literals=frozenset({1}),
        check=_digits,
        names=(word.lower(), *aliases),
        example=(f"{word}(LN(2), 1)", example),
    )


def _question(name: str, example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x)",
        fixed(Type.BOOLEAN, NUMBER),
        f"{word}(CAST({{0}} AS DOUBLE))",
        _DOUBLE,
        interval=_TRUTH,
        strict=True,
        names=(name,),
        example=(f"{word}(2.5)", example),
    )


def _question_of_moments(name: str, example: str) -> Function:
    word = name.upper()
    return Function(
        f"{name}_moment",
        f"{word}(t)",
        fixed(Type.BOOLEAN, TEMPORAL),
        f"{word}(TRY_CAST({{0}} AS TIMESTAMP))",
        "defined for every TIMESTAMP",
        interval=_TRUTH,
        strict=True,
        names=(name,),
        example=(f"{word}(DATE '2024-02-29')", example),
    )


def _extreme(name: str, interval: Rule, example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x, …)",
        several(2),
        f"{word}({{args}})",
        _CHOICE,
        interval=interval,
        size=longest,
        names=(name,),
        example=(f"{word}(6, 3, NULL)", example),
    )


ENTRIES = (
    Function(
        "abs",
        "ABS(x)",
        numbers(1),
        "ABS({0})",
        NO_OVERFLOW,
        interval=machine(_absolute),
        whole="TRY_CAST(ABS(CAST({0} AS HUGEINT)) AS BIGINT)",
        strict=True,
        names=("abs",),
        example=("ABS(-6)", "6"),
    ),
    _rounding("floor", _floor, (), "2.0"),
    _rounding("ceil", _ceil, ("ceiling",), "3.0"),
    _rounding("round", _outward, (), "3.0"),
    _rounding("trunc", _truncated, (), "2.0"),
    Function(
        "even",
        "EVEN(x)",
        fixed(Type.DOUBLE, NUMBER),
        "EVEN({0})",
        _DOUBLE,
        interval=machine(_even),
        strict=True,
        integral=True,
        names=("even",),
        example=("EVEN(2.5)", "4.0"),
    ),
    _rounding_to("round_digits", "ROUND", (), "0.7"),
    _rounding_to("trunc_digits", "TRUNC", (), "0.6"),
    _rounding_to("round_even", "ROUND_EVEN", ("roundbankers",), "0.7"),
    _question("isnan", "false"),
    _question("isinf", "false"),
    _question("isfinite", "true"),
    _question("signbit", "false"),
    _question_of_moments("isinf", "false"),
    _question_of_moments("isfinite", "true"),
    _extreme("least", _least, "3"),
    _extreme("greatest", _greatest, "6"),
)
