"""Numeric functions: absolute value, sign, rounding, least and greatest."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.plan.expressions import Expr, Function, Literal, is_null
from dpsql.plan.functions.enclosures import (
    IntervalRule,
    make_arithmetic_rule,
    make_constant_rule,
    round_to_doubles,
)
from dpsql.plan.functions.growth import bound_longest_text
from dpsql.plan.functions.operators import NO_OVERFLOW
from dpsql.plan.functions.signatures import (
    INTEGER,
    NUMBER,
    TEMPORAL,
    make_fixed_rule,
    make_numeric_rule,
    make_variadic_rule,
)
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.types import Type, Value

MOST_DIGITS = 15
"""Most digits that a DOUBLE can be rounded to."""
_TRUTH = make_constant_rule(Interval(0, 1))
_CHOICE = "values of one type compare"
_DOUBLE = "defined for every DOUBLE"


def _derive_absolute_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return abs(of[0])


def _derive_floor_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].floor()


def _derive_ceil_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].ceil()


def _derive_rounded_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].round_outward()


def _derive_truncated_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].map(math.trunc, math.trunc)


def _derive_even_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    two = Fraction(2)
    return of[0].map(lambda low: 2 * math.floor(low / two), lambda high: 2 * math.ceil(high / two))


def _derive_digits_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    digits = arguments[1].value if isinstance(arguments[1], Literal) else None
    if not isinstance(digits, int):
        return Interval()
    unit = Fraction(10) ** -digits
    low, high = of[0].low, of[0].high
    return round_to_doubles(
        Interval(
            None if low is None else math.floor(low / unit) * unit,
            None if high is None else math.ceil(high / unit) * unit,
        )
    )


def _find_digits_error(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and abs(values[0]) <= MOST_DIGITS
    return None if fits else f"at most {MOST_DIGITS} digits"


def _list_constants(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> list[Fraction]:
    """List the values of the arguments that are never NULL, hence never skipped by LEAST and GREATEST."""
    return [
        interval.ends[0]
        for argument, interval in zip(arguments, of, strict=True)
        if isinstance(argument, Literal) and interval.is_bounded
    ]


def _derive_least_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if len({argument.type for argument in arguments if argument.type.temporal}) > 1:
        return Interval()  # a DATE's line is not a TIMESTAMP's
    # NULLs are skipped, so only constants cap the result; it is one of the arguments in any case.
    there = [place for place, argument in enumerate(arguments) if not is_null(argument)]
    arguments, of = tuple(arguments[place] for place in there), tuple(of[place] for place in there)
    caps = _list_constants(arguments, of)
    around = merge_intervals(of) if of else Interval()
    return around.narrow_to(Interval(None, min(caps))) if caps else around


def _derive_greatest_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -_derive_least_interval(arguments, tuple(-interval for interval in of))


def _define_rounding(name: str, interval: IntervalRule, aliases: tuple[str, ...], example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x)",
        make_numeric_rule(1),
        f"{word}({{0}})",
        _DOUBLE,
        interval=interval,
        strict=True,
        integral=True,
        names=(name, *aliases),
        example=(f"{word}(2.5)", example),
    )


def _define_rounding_to_digits(name: str, word: str, aliases: tuple[str, ...], example: str) -> Function:
    return Function(
        name,
        f"{word}(x, digits)",
        make_fixed_rule(Type.DOUBLE, NUMBER, INTEGER),
        f"{word}(CAST({{0}} AS DOUBLE), {{1}})",
        _DOUBLE,
        interval=_derive_digits_interval,
        strict=True,
        literals=frozenset({1}),
        check=_find_digits_error,
        names=(word.lower(), *aliases),
        example=(f"{word}(LN(2), 1)", example),
    )


def _define_number_test(name: str, example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x)",
        make_fixed_rule(Type.BOOLEAN, NUMBER),
        f"{word}(CAST({{0}} AS DOUBLE))",
        _DOUBLE,
        interval=_TRUTH,
        strict=True,
        names=(name,),
        example=(f"{word}(2.5)", example),
    )


def _define_timestamp_test(name: str, example: str) -> Function:
    word = name.upper()
    return Function(
        f"{name}_moment",
        f"{word}(t)",
        make_fixed_rule(Type.BOOLEAN, TEMPORAL),
        f"{word}(TRY_CAST({{0}} AS TIMESTAMP))",
        "defined for every TIMESTAMP",
        interval=_TRUTH,
        strict=True,
        names=(name,),
        example=(f"{word}(DATE '2024-02-29')", example),
    )


def _define_extreme(name: str, interval: IntervalRule, example: str) -> Function:
    word = name.upper()
    return Function(
        name,
        f"{word}(x, …)",
        make_variadic_rule(2),
        f"{word}({{args}})",
        _CHOICE,
        interval=interval,
        size=bound_longest_text,
        names=(name,),
        example=(f"{word}(6, 3, NULL)", example),
    )


NUMERIC_FUNCTIONS = (
    Function(
        "abs",
        "ABS(x)",
        make_numeric_rule(1),
        "ABS({0})",
        NO_OVERFLOW,
        interval=make_arithmetic_rule(_derive_absolute_interval),
        integer_sql="TRY_CAST(ABS(CAST({0} AS HUGEINT)) AS BIGINT)",
        strict=True,
        names=("abs",),
        example=("ABS(-6)", "6"),
    ),
    _define_rounding("floor", _derive_floor_interval, (), "2.0"),
    _define_rounding("ceil", _derive_ceil_interval, ("ceiling",), "3.0"),
    _define_rounding("round", _derive_rounded_interval, (), "3.0"),
    _define_rounding("trunc", _derive_truncated_interval, (), "2.0"),
    Function(
        "even",
        "EVEN(x)",
        make_fixed_rule(Type.DOUBLE, NUMBER),
        "EVEN({0})",
        _DOUBLE,
        interval=make_arithmetic_rule(_derive_even_interval),
        strict=True,
        integral=True,
        names=("even",),
        example=("EVEN(2.5)", "4.0"),
    ),
    _define_rounding_to_digits("round_digits", "ROUND", (), "0.7"),
    _define_rounding_to_digits("trunc_digits", "TRUNC", (), "0.6"),
    _define_rounding_to_digits("round_even", "ROUND_EVEN", ("roundbankers",), "0.7"),
    _define_number_test("isnan", "false"),
    _define_number_test("isinf", "false"),
    _define_number_test("isfinite", "true"),
    _define_number_test("signbit", "false"),
    _define_timestamp_test("isinf", "false"),
    _define_timestamp_test("isfinite", "true"),
    _define_extreme("least", _derive_least_interval, "3"),
    _define_extreme("greatest", _derive_greatest_interval, "6"),
)
