"""Arithmetic, comparison and logic."""

from __future__ import annotations

from dpsql.functions.signatures import ANY, NUMBER, booleans, comparable, fixed, numeric
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_NO_OVERFLOW = "BIGINT where the interval excludes overflow, else DOUBLE, whose overflow is inf"
_COMPARES = "values of one type always compare"


def _sum(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] + of[1]


def _difference(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] - of[1]


def _product(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if arguments[0] == arguments[1]:
        square = abs(of[0])
        return square * square
    return of[0] * of[1]


def _quotient(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if arguments[1].type is Type.INTEGER and of[0].bounded and of[1].contains(0):
        # A zero divisor gives NULL, and any other integer divides by at least one.
        return Interval(-of[0].magnitude, of[0].magnitude)
    return of[0] / of[1]


def _negation(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -of[0]


def _truth(_: tuple[Expr, ...], __: tuple[Interval, ...]) -> Interval:
    return Interval(0, 1)


def _arithmetic(name: str, symbol: str, interval: object) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        lambda types: numeric(types) if len(types) == 2 else None,
        f"({{0}} {symbol} {{1}})",
        _NO_OVERFLOW,
        interval=interval,  # type: ignore[arg-type]
        overflows=True,
        strict=True,
    )


def _comparison(name: str, symbol: str) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        lambda types: comparable(types) if len(types) == 2 else None,
        f"({{0}} {symbol} {{1}})",
        _COMPARES,
        interval=_truth,
        strict=True,
    )


ENTRIES = (
    _arithmetic("add", "+", _sum),
    _arithmetic("subtract", "-", _difference),
    _arithmetic("multiply", "*", _product),
    Function(
        "divide",
        "x / y",
        fixed(Type.DOUBLE, NUMBER, NUMBER),
        "(CAST({0} AS DOUBLE) / NULLIF(CAST({1} AS DOUBLE), 0))",
        "a zero divisor gives NULL",
        interval=_quotient,
    ),
    Function(
        "negate",
        "-x",
        lambda types: numeric(types) if len(types) == 1 else None,
        "(- {0})",
        _NO_OVERFLOW,
        interval=_negation,
        overflows=True,
        strict=True,
    ),
    _comparison("eq", "="),
    _comparison("ne", "<>"),
    _comparison("lt", "<"),
    _comparison("le", "<="),
    _comparison("gt", ">"),
    _comparison("ge", ">="),
    Function("and", "p AND q", booleans, "({and})", "logic has three values", interval=_truth, strict=True),
    Function("or", "p OR q", booleans, "({or})", "logic has three values", interval=_truth, strict=True),
    Function("not", "NOT p", booleans, "(NOT {0})", "logic has three values", interval=_truth, strict=True),
    Function(
        "is_null",
        "x IS NULL",
        fixed(Type.BOOLEAN, ANY),
        "({0} IS NULL)",
        "defined for every value",
        interval=_truth,
        strict=True,
    ),
    Function(
        "in",
        "x IN (c, …)",
        lambda types: comparable(types) if len(types) >= 2 else None,
        "({0} IN ({rest}))",
        _COMPARES,
        interval=_truth,
    ),
    Function(
        "like",
        "s LIKE 'pattern'",
        fixed(Type.BOOLEAN, (Type.VARCHAR,), (Type.VARCHAR,)),
        "({0} LIKE {1})",
        "the pattern is a constant without escapes",
        interval=_truth,
        strict=True,
        literals=frozenset({1}),
    ),
    Function(
        "ilike",
        "s ILIKE 'pattern'",
        fixed(Type.BOOLEAN, (Type.VARCHAR,), (Type.VARCHAR,)),
        "({0} ILIKE {1})",
        "the pattern is a constant without escapes",
        interval=_truth,
        strict=True,
        literals=frozenset({1}),
    ),
)
