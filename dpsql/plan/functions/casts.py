"""CAST, which gives NULL where a value has no counterpart: an error would reveal the value."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.plan.expressions import Expr, Function, Literal
from dpsql.plan.functions.dates import map_interval
from dpsql.plan.functions.growth import bound_by_first_text, bound_cast_text, make_fixed_size_rule
from dpsql.plan.functions.signatures import (
    ANY,
    INTEGER,
    IntervalRule,
    make_constant_rule,
    make_fixed_rule,
    round_to_doubles,
)
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

_TOTAL = "TRY_CAST gives NULL instead of an error"
_ORDERED = (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN)
_PLAIN = (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.BOOLEAN)
MOST_PRECISION = 38
_SINGLE = Fraction(1, 2**24)
_LEAST_SINGLE = Fraction(1, 2**149)


def _make_number_rule(rule: IntervalRule) -> IntervalRule:
    """Return a rule that knows nothing about text, and else the interval of numbers and booleans under the given rule."""
    return lambda arguments, of: rule(arguments, of) if arguments[0].type in _ORDERED else Interval()


def _derive_integer_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].round_outward()


def _derive_double_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return round_to_doubles(of[0])


def _derive_float_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Round an interval outward to FLOAT; an end that is a FLOAT stays, since rounding keeps the order of numbers."""
    low, high = of[0].low, of[0].high
    return round_to_doubles(
        Interval(
            low if low is None or _is_float(low) else low - abs(low) * _SINGLE - _LEAST_SINGLE,
            high if high is None or _is_float(high) else high + abs(high) * _SINGLE + _LEAST_SINGLE,
        )
    )


def _is_float(end: Fraction) -> bool:
    """Return whether a number is surely a FLOAT: so many digits, and neither too large nor too small.

    >>> [_is_float(Fraction(end)) for end in (0, 1.5, 0.1, 2**24 + 1, 2**24 + 2, 2**130)]
    [True, True, False, False, True, False]
    """
    digits = end.numerator // (end.numerator & -end.numerator) if end else 0
    power = end.denominator & (end.denominator - 1) == 0
    return power and abs(digits) < 2**24 and end.denominator <= 2**126 and abs(end) < 2**127


def _derive_decimal_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    precision, scale = (argument.value for argument in arguments[1:] if isinstance(argument, Literal))
    if not isinstance(precision, int) or not isinstance(scale, int):
        return Interval()
    unit = Fraction(1, 10**scale)
    most = (10**precision - 1) * unit
    low, high = of[0].low, of[0].high
    exact = Interval(
        None if low is None else math.floor(low / unit) * unit,
        None if high is None else math.ceil(high / unit) * unit,
    )
    return round_to_doubles(exact.narrow_to(Interval(-most, most)))


def _find_precision_error(values: tuple[Value, ...]) -> str | None:
    precision, scale = values
    fits = (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= MOST_PRECISION
        and 0 <= scale <= precision
    )
    return (
        None if fits else f"a DECIMAL has up to {MOST_PRECISION} digits, and at most as many after the point"
    )


def _derive_date_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return (
        map_interval(lambda at: at.date(), arguments[0].type, of[0])
        if arguments[0].type.temporal
        else Interval()
    )


def _derive_timestamp_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return map_interval(lambda at: at, arguments[0].type, of[0]) if arguments[0].type.temporal else Interval()


def _define_integer_cast(name: str) -> Function:
    return Function(
        f"cast_{name.lower()}",
        f"CAST(x AS {name})",
        make_fixed_rule(Type.INTEGER, _PLAIN),
        f"CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)",
        _TOTAL,
        interval=_make_number_rule(_derive_integer_interval),
        example=(f"CAST('6' AS {name})", "6"),
    )


def _define_large_integer_cast(name: str) -> Function:
    """Return a cast to an integer type of more than 64 bits, within the range of 64 bits."""
    return Function(
        f"cast_{name.lower()}",
        f"CAST(x AS {name})",
        make_fixed_rule(Type.INTEGER, _PLAIN),
        f"TRY_CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)",
        f"{_TOTAL}, also where 64 bits are too few",
        interval=_make_number_rule(_derive_integer_interval),
        example=(f"CAST('6' AS {name})", "6"),
    )


CASTS = (
    *map(
        _define_integer_cast,
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    ),
    *map(_define_large_integer_cast, ("UBIGINT", "HUGEINT", "UHUGEINT")),
    Function(
        "cast_double",
        "CAST(x AS DOUBLE)",
        make_fixed_rule(Type.DOUBLE, _PLAIN),
        "TRY_CAST({0} AS DOUBLE)",
        _TOTAL,
        interval=_make_number_rule(_derive_double_interval),
        example=("CAST('2.5' AS DOUBLE)", "2.5"),
    ),
    Function(
        "cast_float",
        "CAST(x AS FLOAT)",
        make_fixed_rule(Type.DOUBLE, _PLAIN),
        "CAST(TRY_CAST({0} AS FLOAT) AS DOUBLE)",
        _TOTAL,
        interval=_make_number_rule(_derive_float_interval),
        example=("CAST('2.5' AS FLOAT)", "2.5"),
    ),
    Function(
        "cast_decimal",
        "CAST(x AS DECIMAL(p, s))",
        make_fixed_rule(Type.DOUBLE, (Type.INTEGER, Type.DOUBLE, Type.VARCHAR), INTEGER, INTEGER),
        "CAST(TRY_CAST({0} AS DECIMAL({1}, {2})) AS DOUBLE)",
        f"{_TOTAL}; the digits are constants, and the result is read as DOUBLE",
        interval=_make_number_rule(_derive_decimal_interval),
        literals=frozenset({1, 2}),
        check=_find_precision_error,
        example=("CAST('2.345' AS DECIMAL(10, 1))", "2.3"),
    ),
    Function(
        "cast_varchar",
        "CAST(x AS VARCHAR)",
        make_fixed_rule(Type.VARCHAR, ANY),
        "TRY_CAST({0} AS VARCHAR)",
        _TOTAL,
        size=bound_cast_text,
        example=("CAST(6 AS VARCHAR)", "6"),
    ),
    Function(
        "cast_varchar decimal",
        "CAST(decimal AS VARCHAR)",
        make_fixed_rule(Type.VARCHAR, (Type.DOUBLE,), INTEGER, INTEGER),
        "TRY_CAST(TRY_CAST({0} AS DECIMAL({1}, {2})) AS VARCHAR)",
        f"{_TOTAL}; of a DECIMAL, with all its digits after the point, which are constants",
        literals=frozenset({1, 2}),
        check=_find_precision_error,
        size=make_fixed_size_rule(48),
        example=("CAST(CAST('2.5' AS DECIMAL(10, 2)) AS VARCHAR)", "2.50"),
    ),
    Function(
        "cast_varchar float",
        "CAST(float AS VARCHAR)",
        make_fixed_rule(Type.VARCHAR, (Type.DOUBLE,)),
        "TRY_CAST(TRY_CAST({0} AS FLOAT) AS VARCHAR)",
        f"{_TOTAL}; of a FLOAT, with the digits that tell it from other FLOATs",
        size=make_fixed_size_rule(48),
        example=("CAST(CAST('0.1' AS FLOAT) AS VARCHAR)", "0.1"),
    ),
    Function(
        "cast_boolean",
        "CAST(x AS BOOLEAN)",
        make_fixed_rule(Type.BOOLEAN, _PLAIN),
        "TRY_CAST({0} AS BOOLEAN)",
        _TOTAL,
        interval=make_constant_rule(Interval(0, 1)),
        example=("CAST('true' AS BOOLEAN)", "true"),
    ),
    Function(
        "cast_date",
        "CAST(x AS DATE)",
        make_fixed_rule(Type.DATE, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY_CAST(TRY_CAST(TRY_CAST({0} AS DATE) AS TIMESTAMP) AS DATE)",
        "dates beyond the range of TIMESTAMP become NULL, so the two always compare",
        interval=_derive_date_interval,
        example=("CAST('2024-02' || '-29' AS DATE)", "2024-02-29"),
    ),
    Function(
        "cast_timestamp",
        "CAST(x AS TIMESTAMP)",
        make_fixed_rule(Type.TIMESTAMP, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY_CAST({0} AS TIMESTAMP)",
        _TOTAL,
        interval=_derive_timestamp_interval,
        example=("CAST('2024-02' || '-29' AS TIMESTAMP)", "2024-02-29 00:00:00"),
    ),
    Function(
        "cast_time",
        "CAST(x AS TIME)",
        make_fixed_rule(Type.TIME, (Type.VARCHAR, Type.TIMESTAMP, Type.TIME)),
        "NULLIF(TRY_CAST({0} AS TIME), TIME '24:00:00')",
        f"{_TOTAL}; 24:00:00, which is no time of a day, becomes NULL",
        doubled_arguments=frozenset({0}),
        example=("CAST('12:' || '34' AS TIME)", "12:34:00"),
    ),
    Function(
        "cast_uuid",
        "CAST(x AS UUID)",
        make_fixed_rule(Type.UUID, (Type.VARCHAR, Type.UUID)),
        "TRY_CAST({0} AS UUID)",
        _TOTAL,
        example=(
            "CAST('550e8400-e29b-41d4-a716-' || '446655440000' AS UUID)",
            "550e8400-e29b-41d4-a716-446655440000",
        ),
    ),
    Function(
        "cast_blob",
        "CAST(x AS BLOB)",
        make_fixed_rule(Type.BLOB, (Type.VARCHAR, Type.BLOB)),
        "TRY_CAST({0} AS BLOB)",
        _TOTAL,
        size=bound_by_first_text,
        example=("CAST(CAST('a' || 'b' AS BLOB) AS VARCHAR)", "ab"),
    ),
)
