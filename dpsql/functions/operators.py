"""Arithmetic, comparison and logic."""

from __future__ import annotations

from dpsql.functions.enclosures import Rule, constantly, machine, rounded
from dpsql.functions.growth import of_each, shorter, untouched
from dpsql.functions.signatures import ANY, NUMBER, booleans, comparable, fixed, numbers
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

NO_OVERFLOW = (
    "whole numbers in 128 bits, where what 64 bits cannot hold is NULL; a DOUBLE that is too large is inf"
)
_COMPARES = "values of one type always compare"
_TRUTH = constantly(Interval(0, 1))
_LOGIC = "logic has three values"


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
        positive = all(interval.low is not None and interval.low >= 0 for interval in of)
        return Interval(0 if positive else -of[0].magnitude, of[0].magnitude)
    return of[0] / of[1]


def _negation(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -of[0]


def _arithmetic(name: str, symbol: str, interval: Rule, example: str) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        numbers(2),
        f"({{0}} {symbol} {{1}})",
        NO_OVERFLOW,
        interval=machine(interval),
        whole=f"TRY_CAST((CAST({{0}} AS HUGEINT) {symbol} {{1}}) AS BIGINT)",
        strict=True,
        names=(symbol, name),
        example=(f"6 {symbol} 3", example),
    )


def _comparison(name: str, symbol: str, example: str) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        lambda types: comparable(types) if len(types) == 2 else None,
        f"({{0}} {symbol} {{1}})",
        _COMPARES,
        interval=_TRUTH,
        strict=True,
        work=shorter,
        example=(f"6 {symbol} 3", example),
    )


def _distinction(name: str, words: str, example: str) -> Function:
    return Function(
        name,
        f"x {words} y",
        lambda types: comparable(types) if len(types) == 2 else None,
        f"({{0}} {words} {{1}})",
        "NULL is a value like any other here",
        interval=_TRUTH,
        certain=True,
        example=(f"6 {words} NULL", example),
    )


def _judgement(name: str, word: str, example: str) -> Function:
    return Function(
        name,
        f"p IS {word}",
        lambda types: booleans(types) if len(types) == 1 else None,
        f"({{0}} IS {word})",
        "defined for NULL too",
        interval=_TRUTH,
        certain=True,
        example=(f"(6 > 3) IS {word}", example),
    )


def _connection(name: str, word: str, example: str) -> Function:
    return Function(
        name,
        f"p {word} q",
        lambda types: booleans(types) if len(types) >= 2 else None,
        f"({{{name}}})",
        _LOGIC,
        interval=_TRUTH,
        strict=True,
        example=(f"6 > 3 {word} NULL", example),
    )


ENTRIES = (
    _arithmetic("add", "+", _sum, "9"),
    _arithmetic("subtract", "-", _difference, "3"),
    _arithmetic("multiply", "*", _product, "18"),
    Function(
        "divide",
        "x / y",
        fixed(Type.DOUBLE, NUMBER, NUMBER),
        "(CAST({0} AS DOUBLE) / NULLIF(CAST({1} AS DOUBLE), 0))",
        "a zero divisor gives NULL",
        interval=rounded(_quotient),
        doubled=frozenset({1}),
        names=("/", "//"),
        example=("6 / 4", "1.5"),
    ),
    Function(
        "negate",
        "-x",
        numbers(1),
        "(- {0})",
        NO_OVERFLOW,
        interval=machine(_negation),
        whole="TRY_CAST((- CAST({0} AS HUGEINT)) AS BIGINT)",
        strict=True,
        example=("-ABS(6)", "-6"),
    ),
    _comparison("eq", "=", "false"),
    _comparison("ne", "<>", "true"),
    _comparison("lt", "<", "false"),
    _comparison("le", "<=", "false"),
    _comparison("gt", ">", "true"),
    _comparison("ge", ">=", "true"),
    _distinction("is_distinct", "IS DISTINCT FROM", "true"),
    _distinction("is_not_distinct", "IS NOT DISTINCT FROM", "false"),
    _connection("and", "AND", "NULL"),
    _connection("or", "OR", "true"),
    Function(
        "not",
        "NOT p",
        lambda types: booleans(types) if len(types) == 1 else None,
        "(NOT {0})",
        _LOGIC,
        interval=_TRUTH,
        strict=True,
        example=("NOT 6 > 3", "false"),
    ),
    Function(
        "is_null",
        "x IS NULL",
        fixed(Type.BOOLEAN, ANY),
        "({0} IS NULL)",
        "defined for every value",
        interval=_TRUTH,
        strict=True,
        certain=True,
        work=untouched,
        example=("6 IS NULL", "false"),
    ),
    _judgement("is_true", "TRUE", "true"),
    _judgement("is_false", "FALSE", "false"),
    Function(
        "in",
        "x IN (c, …)",
        lambda types: comparable(types) if len(types) >= 2 else None,
        "({0} IN ({rest}))",
        _COMPARES,
        interval=_TRUTH,
        doubled=frozenset({0}),
        work=of_each,
        example=("6 IN (3, 6)", "true"),
    ),
)
