"""Operators, comparisons and CASE."""

from __future__ import annotations

from typing import TypeVar

from dpsql.plan.expressions import Expr, Function, is_null
from dpsql.plan.functions.growth import (
    bound_by_first_text,
    bound_comparison_work,
    bound_longest_text,
    bound_membership_work,
    bound_untouched_work,
)
from dpsql.plan.functions.signatures import (
    ANY,
    NUMBER,
    IntervalRule,
    derive_first_interval,
    infer_comparison_type,
    infer_logic_type,
    make_arithmetic_rule,
    make_constant_rule,
    make_double_rule,
    make_fixed_rule,
    make_numeric_rule,
    make_variadic_rule,
)
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.types import Type, find_common_type

# Arithmetic, comparison and logic.


NO_OVERFLOW = (
    "whole numbers in 128 bits, with NULL for results beyond 64 bits; a DOUBLE that is too large is inf"
)
_COMPARES = "values of one type always compare"
_TRUTH = make_constant_rule(Interval(0, 1))
_LOGIC = "logic has three values"


def _derive_sum_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] + of[1]


def _derive_difference_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] - of[1]


def _derive_product_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if arguments[0] == arguments[1]:
        square = abs(of[0])
        return square * square
    return of[0] * of[1]


def _derive_quotient_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if arguments[1].type is Type.INTEGER and of[0].is_bounded and of[1].contains(0):
        # A zero divisor gives NULL, and any other integer divides by at least one.
        positive = all(interval.low is not None and interval.low >= 0 for interval in of)
        return Interval(0 if positive else -of[0].magnitude, of[0].magnitude)
    return of[0] / of[1]


def _derive_negation_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return -of[0]


def _define_arithmetic(name: str, symbol: str, interval: IntervalRule, example: str) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        make_numeric_rule(2),
        f"({{0}} {symbol} {{1}})",
        NO_OVERFLOW,
        interval=make_arithmetic_rule(interval),
        integer_sql=f"TRY_CAST((CAST({{0}} AS HUGEINT) {symbol} {{1}}) AS BIGINT)",
        strict=True,
        names=(symbol, name),
        example=(f"6 {symbol} 3", example),
    )


def _define_comparison(name: str, symbol: str, example: str) -> Function:
    return Function(
        name,
        f"x {symbol} y",
        lambda types: infer_comparison_type(types) if len(types) == 2 else None,
        f"({{0}} {symbol} {{1}})",
        _COMPARES,
        interval=_TRUTH,
        strict=True,
        work=bound_comparison_work,
        example=(f"6 {symbol} 3", example),
    )


def _define_distinct_test(name: str, words: str, example: str) -> Function:
    return Function(
        name,
        f"x {words} y",
        lambda types: infer_comparison_type(types) if len(types) == 2 else None,
        f"({{0}} {words} {{1}})",
        "NULL is a value like any other here",
        interval=_TRUTH,
        never_null=True,
        example=(f"6 {words} NULL", example),
    )


def _define_truth_test(name: str, word: str, example: str) -> Function:
    return Function(
        name,
        f"p IS {word}",
        lambda types: infer_logic_type(types) if len(types) == 1 else None,
        f"({{0}} IS {word})",
        "defined for NULL too",
        interval=_TRUTH,
        never_null=True,
        example=(f"(6 > 3) IS {word}", example),
    )


def _define_connective(name: str, word: str, example: str) -> Function:
    return Function(
        name,
        f"p {word} q",
        lambda types: infer_logic_type(types) if len(types) >= 2 else None,
        f"({{{name}}})",
        _LOGIC,
        interval=_TRUTH,
        strict=True,
        example=(f"6 > 3 {word} NULL", example),
    )


OPERATORS = (
    _define_arithmetic("add", "+", _derive_sum_interval, "9"),
    _define_arithmetic("subtract", "-", _derive_difference_interval, "3"),
    _define_arithmetic("multiply", "*", _derive_product_interval, "18"),
    Function(
        "divide",
        "x / y",
        make_fixed_rule(Type.DOUBLE, NUMBER, NUMBER),
        "(CAST({0} AS DOUBLE) / NULLIF(CAST({1} AS DOUBLE), 0))",
        "a zero divisor gives NULL",
        interval=make_double_rule(_derive_quotient_interval),
        doubled_arguments=frozenset({1}),
        names=("/", "//"),
        example=("6 / 4", "1.5"),
    ),
    Function(
        "negate",
        "-x",
        make_numeric_rule(1),
        "(- {0})",
        NO_OVERFLOW,
        interval=make_arithmetic_rule(_derive_negation_interval),
        integer_sql="TRY_CAST((- CAST({0} AS HUGEINT)) AS BIGINT)",
        strict=True,
        example=("-ABS(6)", "-6"),
    ),
    _define_comparison("eq", "=", "false"),
    _define_comparison("ne", "<>", "true"),
    _define_comparison("lt", "<", "false"),
    _define_comparison("le", "<=", "false"),
    _define_comparison("gt", ">", "true"),
    _define_comparison("ge", ">=", "true"),
    _define_distinct_test("is_distinct", "IS DISTINCT FROM", "true"),
    _define_distinct_test("is_not_distinct", "IS NOT DISTINCT FROM", "false"),
    _define_connective("and", "AND", "NULL"),
    _define_connective("or", "OR", "true"),
    Function(
        "not",
        "NOT p",
        lambda types: infer_logic_type(types) if len(types) == 1 else None,
        "(NOT {0})",
        _LOGIC,
        interval=_TRUTH,
        strict=True,
        example=("NOT 6 > 3", "false"),
    ),
    Function(
        "is_null",
        "x IS NULL",
        make_fixed_rule(Type.BOOLEAN, ANY),
        "({0} IS NULL)",
        "defined for every value",
        interval=_TRUTH,
        strict=True,
        never_null=True,
        work=bound_untouched_work,
        example=("6 IS NULL", "false"),
    ),
    _define_truth_test("is_true", "TRUE", "true"),
    _define_truth_test("is_false", "FALSE", "false"),
    Function(
        "in",
        "x IN (c, …)",
        lambda types: infer_comparison_type(types) if len(types) >= 2 else None,
        "({0} IN ({rest}))",
        _COMPARES,
        interval=_TRUTH,
        doubled_arguments=frozenset({0}),
        work=bound_membership_work,
        example=("6 IN (3, 6)", "true"),
    ),
)


# Conditional functions. The interval of CASE is in `analysis.intervals`, which knows its conditions.


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
