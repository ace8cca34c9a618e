"""CAST, which gives NULL where a value has no counterpart: an error would reveal the value."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.functions.enclosures import Rule, constantly, doubles
from dpsql.functions.growth import as_long, at_most, written
from dpsql.functions.moments import mapped
from dpsql.functions.signatures import ANY, INTEGER, fixed
from dpsql.plan.expr import Expr, Function, Literal
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

_TOTAL = "TRY_CAST gives NULL instead of an error"
_ORDERED = (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN)
_PLAIN = (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.BOOLEAN)
MOST_PRECISION = 38
_SINGLE = Fraction(1, 2**24)
_LEAST_SINGLE = Fraction(1, 2**149)


def _of_numbers(rule: Rule) -> Rule:
    """Nothing is known of text; numbers and booleans keep their value, but for the rule."""
    return lambda arguments, of: rule(arguments, of) if arguments[0].type in _ORDERED else Interval()


def _whole(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0].outward()


def _same(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return doubles(of[0])


def _single(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Rounding keeps the order of numbers, so that an end which is a FLOAT is still one."""
    low, high = of[0].low, of[0].high
    return doubles(
        Interval(
            low if low is None or _is_single(low) else low - abs(low) * _SINGLE - _LEAST_SINGLE,
            high if high is None or _is_single(high) else high + abs(high) * _SINGLE + _LEAST_SINGLE,
        )
    )


def _is_single(end: Fraction) -> bool:
    """Whether a number is surely a FLOAT: so many digits, and neither too large nor too small.

    >>> [_is_single(Fraction(end)) for end in (0, 1.5, 0.1, 2**24 + 1, 2**24 + 2, 2**130)]
    [True, True, False, False, True, False]
    """
    digits = end.numerator // (end.numerator & -end.numerator) if end else 0
    power = end.denominator & (end.denominator - 1) == 0
    return power and abs(digits) < 2**24 and end.denominator <= 2**126 and abs(end) < 2**127


def _decimal(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
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
    return doubles(exact.meet(Interval(-most, most)))


def _precision(values: tuple[Value, ...]) -> str | None:
    precision, scale = values
    fits = (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= MOST_PRECISION
        and 0 <= scale <= precision
    )
    return None if fits else f"DECIMAL has up to {MOST_PRECISION} digits, of which no more after the point"


def _day(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return (
        mapped(lambda at: at.date(), arguments[0].type, of[0]) if arguments[0].type.temporal else Interval()
    )


def _moment(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return mapped(lambda at: at, arguments[0].type, of[0]) if arguments[0].type.temporal else Interval()


def _integer(name: str) -> Function:
    return Function(
        f"cast_{name.lower()}",
        f"CAST(x AS {name})",
        fixed(Type.INTEGER, _PLAIN),
        f"CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)",
        _TOTAL,
        interval=_of_numbers(_whole),
        example=(f"CAST('6' AS {name})", "6"),
    )


def _large(name: str) -> Function:
    """A cast to an integer type of more than 64 bits, within the range of 64 bits."""
    return Function(
        f"cast_{name.lower()}",
        f"CAST(x AS {name})",
        fixed(Type.INTEGER, _PLAIN),
        f"TRY_CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)",
        f"{_TOTAL}, also where 64 bits are too few",
        interval=_of_numbers(_whole),
        example=(f"CAST('6' AS {name})", "6"),
    )


ENTRIES = (
    *map(_integer, ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")),
    *map(_large, ("UBIGINT", "HUGEINT", "UHUGEINT")),
    Function(
        "cast_double",
        "CAST(x AS DOUBLE)",
        fixed(Type.DOUBLE, _PLAIN),
        "TRY_CAST({0} AS DOUBLE)",
        _TOTAL,
        interval=_of_numbers(_same),
        example=("CAST('2.5' AS DOUBLE)", "2.5"),
    ),
    Function(
        "cast_float",
        "CAST(x AS FLOAT)",
        fixed(Type.DOUBLE, _PLAIN),
        "CAST(TRY_CAST({0} AS FLOAT) AS DOUBLE)",
        _TOTAL,
        interval=_of_numbers(_single),
        example=("CAST('2.5' AS FLOAT)", "2.5"),
    ),
    Function(
        "cast_decimal",
        "CAST(x AS DECIMAL(p, s))",
        fixed(Type.DOUBLE, (Type.INTEGER, Type.DOUBLE, Type.VARCHAR), INTEGER, INTEGER),
        "CAST(TRY_CAST({0} AS DECIMAL({1}, {2})) AS DOUBLE)",
        f"{_TOTAL}; the digits are constants, and the result is read as DOUBLE",
        interval=_of_numbers(_decimal),
        literals=frozenset({1, 2}),
        check=_precision,
        example=("CAST('2.345' AS DECIMAL(10, 1))", "2.3"),
    ),
    Function(
        "cast_varchar",
        "CAST(x AS VARCHAR)",
        fixed(Type.VARCHAR, ANY),
        "TRY_CAST({0} AS VARCHAR)",
        _TOTAL,
        size=written,
        example=("CAST(6 AS VARCHAR)", "6"),
    ),
    Function(
        "cast_varchar decimal",
        "CAST(decimal AS VARCHAR)",
        fixed(Type.VARCHAR, (Type.DOUBLE,), INTEGER, INTEGER),
        "TRY_CAST(TRY_CAST({0} AS DECIMAL({1}, {2})) AS VARCHAR)",
        f"{_TOTAL}; of a DECIMAL, with all its digits after the point, which are constants",
        literals=frozenset({1, 2}),
        check=_precision,
        size=at_most(48),
        example=("CAST(CAST('2.5' AS DECIMAL(10, 2)) AS VARCHAR)", "2.50"),
    ),
    Function(
        "cast_varchar float",
        "CAST(float AS VARCHAR)",
        fixed(Type.VARCHAR, (Type.DOUBLE,)),
        "TRY_CAST(TRY_CAST({0} AS FLOAT) AS VARCHAR)",
        f"{_TOTAL}; of a FLOAT, with the digits that tell it from other FLOATs",
        size=at_most(48),
        example=("CAST(CAST('0.1' AS FLOAT) AS VARCHAR)", "0.1"),
    ),
    Function(
        "cast_boolean",
        "CAST(x AS BOOLEAN)",
        fixed(Type.BOOLEAN, _PLAIN),
        "TRY_CAST({0} AS BOOLEAN)",
        _TOTAL,
        interval=constantly(Interval(0, 1)),
        example=("CAST('true' AS BOOLEAN)", "true"),
    ),
    Function(
        "cast_date",
        "CAST(x AS DATE)",
        fixed(Type.DATE, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY_CAST(TRY_CAST(TRY_CAST({0} AS DATE) AS TIMESTAMP) AS DATE)",
        "dates beyond the range of TIMESTAMP become NULL, so the two always compare",
        interval=_day,
        example=("CAST('2024-02' || '-29' AS DATE)", "2024-02-29"),
    ),
    Function(
        "cast_timestamp",
        "CAST(x AS TIMESTAMP)",
        fixed(Type.TIMESTAMP, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY_CAST({0} AS TIMESTAMP)",
        _TOTAL,
        interval=_moment,
        example=("CAST('2024-02' || '-29' AS TIMESTAMP)", "2024-02-29 00:00:00"),
    ),
    Function(
        "cast_time",
        "CAST(x AS TIME)",
        fixed(Type.TIME, (Type.VARCHAR, Type.TIMESTAMP, Type.TIME)),
        "NULLIF(TRY_CAST({0} AS TIME), TIME '24:00:00')",
        f"{_TOTAL}; 24:00:00, which is no time of a day, becomes NULL",
        doubled=frozenset({0}),
        example=("CAST('12:' || '34' AS TIME)", "12:34:00"),
    ),
    Function(
        "cast_uuid",
        "CAST(x AS UUID)",
        fixed(Type.UUID, (Type.VARCHAR, Type.UUID)),
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
        fixed(Type.BLOB, (Type.VARCHAR, Type.BLOB)),
        "TRY_CAST({0} AS BLOB)",
        _TOTAL,
        size=as_long,
        example=("CAST(CAST('a' || 'b' AS BLOB) AS VARCHAR)", "ab"),
    ),
)
