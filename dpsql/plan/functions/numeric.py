"""Functions of numbers: arithmetic, rounding, powers, logarithms and trigonometry."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

from dpsql.plan.expressions import Expr, Function, Literal, is_null
from dpsql.plan.functions.growth import bound_longest_text
from dpsql.plan.functions.operators import NO_OVERFLOW
from dpsql.plan.functions.signatures import (
    GUARDED,
    INTEGER,
    NUMBER,
    ONE_NUMBER,
    TEMPORAL,
    IntervalRule,
    bound_image,
    expand_interval,
    make_arithmetic_rule,
    make_constant_rule,
    make_double_rule,
    make_fixed_rule,
    make_increasing_rule,
    make_numeric_rule,
    make_variadic_rule,
    round_to_doubles,
)
from dpsql.plan.interval import Interval, find_position, merge_intervals
from dpsql.plan.types import Type, Value

# Numeric functions: absolute value, sign, rounding, least and greatest.


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


# Powers, roots, exponentials and logarithms: outside of their domain NULL or NaN, and NaN is measured as NULL.


_NO_ZERO = "zero gives NULL, and so does TRY where the engine is set to refuse negative numbers"
_TWO = make_fixed_rule(Type.DOUBLE, NUMBER, NUMBER)
_LEAST_DOUBLE = Fraction(math.ulp(0.0))


def _make_logarithm_rule(function: Callable[[float], float]) -> IntervalRule:
    """Return the rule of a logarithm of whole numbers from 1, or of other numbers from the smallest DOUBLE."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        least = Fraction(1) if arguments[0].type is Type.INTEGER else _LEAST_DOUBLE
        return make_increasing_rule(function, within=Interval(least))(arguments, of)

    return derive_interval


def _derive_power_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive a power of a positive base is monotone in the base and in the exponent: its extremes are corners."""
    base, exponent = of
    # Negative zero is within [0, 1], and to the power of -1 it is -inf.
    inverted = exponent.low is None or exponent.low < 0
    positive = base.low is not None and (base.low > 0 or (base.low == 0 and not inverted))
    anything = Interval(0) if positive else Interval()
    if not (base.is_bounded and exponent.is_bounded):
        return anything
    (low, high), (least, most) = base.ends, exponent.ends
    if least == most and least.denominator == 1:
        if least < 0 and base.contains(0):
            return Interval(0) if least % 2 == 0 else anything
        ends = {low, high, *([Fraction(0)] if base.contains(0) else [])}
        return _compute_power_hull([(end, least) for end in ends])
    if low < 0 and (least < most or high < 0):
        return anything
    if low == 0 and least < 0:
        return anything if least < most else Interval(0)
    low = max(low, Fraction(0))
    if low == 0 and least < 0:
        return Interval(0)
    return _compute_power_hull(list(product({low, high}, {least, most}))).narrow_to(Interval(0))


def _compute_power_hull(points: list[tuple[Fraction, Fraction]]) -> Interval:
    lows = [bound_image(_make_power(exponent), base, -math.inf) for base, exponent in points]
    highs = [bound_image(_make_power(exponent), base, math.inf) for base, exponent in points]
    if None in lows or None in highs:
        return Interval()
    return Interval(min(end for end in lows if end is not None), max(end for end in highs if end is not None))


def _make_power(exponent: Fraction) -> Callable[[float], float]:
    return lambda base: math.pow(base, float(exponent))


def _derive_log_base_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive the interval of the quotient of two logarithms, which the engine computes."""
    base, number = (
        _make_logarithm_rule(math.log10)((argument,), (interval,))
        for argument, interval in zip(arguments, of, strict=True)
    )
    known = of[0].low is not None and (of[0].low > 1 or (of[0].low > 0 and (of[0].high or 1) < 1))
    return expand_interval(number / base) if known else Interval()


def _define_function(
    word: str, interval: IntervalRule, example: tuple[str, str], *, of: str = "{0}"
) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}({of}))",
        GUARDED,
        interval=interval,
        names=(word.lower(),),
        example=example,
    )


def _define_logarithm(
    word: str, function: Callable[[float], float], aliases: tuple[str, ...], example: tuple[str, str]
) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}(NULLIF({{0}}, 0)))",
        _NO_ZERO,
        interval=_make_logarithm_rule(function),
        doubled_arguments=frozenset({0}),
        names=(word.lower(), *aliases),
        example=example,
    )


POWERS = (
    _define_function(
        "SQRT", make_increasing_rule(math.sqrt, within=Interval(0), slack=Fraction(0)), ("SQRT(2.25)", "1.5")
    ),
    # Without TRY, the engine would compare the results at the least and the largest
    # argument, whose order rounding can reverse if they are close, and fail.
    _define_function("CBRT", make_increasing_rule(math.cbrt), ("CBRT(8)", "2.0"), of="TRY({0})"),
    _define_function("EXP", make_increasing_rule(math.exp, onto=Interval(0)), ("EXP(0)", "1.0")),
    _define_logarithm("LN", math.log, (), ("LN(1)", "0.0")),
    _define_logarithm("LOG10", math.log10, ("log",), ("LOG(1000)", "3.0")),
    _define_logarithm("LOG2", math.log2, (), ("LOG2(8)", "3.0")),
    Function(
        "log_base",
        "LOG(b, x)",
        _TWO,
        "TRY(LOG({0}, NULLIF({1}, 0)))",
        _NO_ZERO,
        interval=_derive_log_base_interval,
        doubled_arguments=frozenset({1}),
        names=("log",),
        example=("LOG(2, 8)", "3.0"),
    ),
    Function(
        "power",
        "POWER(x, y)",
        _TWO,
        "TRY(POWER({0}, {1}))",
        GUARDED,
        interval=make_double_rule(_derive_power_interval),
        names=("^", "power", "pow"),
        example=("POWER(2, 10)", "1024.0"),
    ),
    _define_function("GAMMA", make_constant_rule(Interval()), ("GAMMA(5)", "24.0")),
    _define_function("LGAMMA", make_constant_rule(Interval()), ("LGAMMA(1)", "0.0")),
)


# Trigonometric and hyperbolic functions: outside of their domain NULL or NaN, and NaN is measured as NULL.


_UNIT = Interval(-1, 1)
_HALF_TURN = expand_interval(Interval(find_position(-math.pi), find_position(math.pi)))


def _make_decreasing_rule(function: Callable[[float], float], within: Interval) -> IntervalRule:
    mirrored = make_increasing_rule(lambda x: -function(x), within=within)
    return lambda arguments, of: -mirrored(arguments, of)


def _derive_cosh_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    size = abs(of[0])
    low = bound_image(math.cosh, size.low, -math.inf)
    return Interval(low, bound_image(math.cosh, size.high, math.inf)).narrow_to(Interval(1))


def _define_angle_function(word: str, interval: IntervalRule, argument: str, value: str) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}({{0}}))",
        GUARDED,
        interval=interval,
        names=(word.lower(),),
        example=(f"{word}({argument})", value),
    )


TRIGONOMETRY = (
    Function(
        "pi",
        "PI()",
        make_fixed_rule(Type.DOUBLE),
        "PI()",
        "a constant",
        interval=make_constant_rule(Interval(find_position(math.pi), find_position(math.pi))),
        strict=True,
        names=("pi",),
        example=("PI()", "3.141592653589793"),
    ),
    _define_angle_function("DEGREES", make_increasing_rule(math.degrees), "0", "0.0"),
    _define_angle_function("RADIANS", make_increasing_rule(math.radians), "180", "3.141592653589793"),
    _define_angle_function("SIN", make_constant_rule(_UNIT), "0", "0.0"),
    _define_angle_function("COS", make_constant_rule(_UNIT), "0", "1.0"),
    _define_angle_function("TAN", make_constant_rule(Interval()), "0", "0.0"),
    _define_angle_function("COT", make_constant_rule(Interval()), "0.5", "1.830487721712452"),
    _define_angle_function("ASIN", make_increasing_rule(math.asin, within=_UNIT), "0", "0.0"),
    _define_angle_function("ACOS", _make_decreasing_rule(math.acos, _UNIT), "1", "0.0"),
    _define_angle_function("ATAN", make_increasing_rule(math.atan, onto=_HALF_TURN), "0", "0.0"),
    Function(
        "atan2",
        "ATAN2(y, x)",
        make_fixed_rule(Type.DOUBLE, NUMBER, NUMBER),
        "TRY(ATAN2({0}, {1}))",
        GUARDED,
        interval=make_constant_rule(_HALF_TURN),
        names=("atan2",),
        example=("ATAN2(0, 1)", "0.0"),
    ),
    _define_angle_function("SINH", make_increasing_rule(math.sinh), "0", "0.0"),
    _define_angle_function("COSH", _derive_cosh_interval, "0", "1.0"),
    _define_angle_function("TANH", make_increasing_rule(math.tanh, onto=_UNIT), "0", "0.0"),
    _define_angle_function("ASINH", make_increasing_rule(math.asinh), "0", "0.0"),
    _define_angle_function(
        "ACOSH", make_increasing_rule(math.acosh, within=Interval(1), onto=Interval(0)), "1", "0.0"
    ),
    _define_angle_function("ATANH", make_increasing_rule(math.atanh, within=_UNIT), "0", "0.0"),
)
