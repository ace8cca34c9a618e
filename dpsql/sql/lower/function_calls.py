"""Lower function calls: overload resolution in the registry, and checks of constant arguments."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.number_types import WIDE, derive_bits
from dpsql.analysis.text_bounds import require_bounded_text
from dpsql.backends import scratch_database
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Column, Expr, Function, Literal, WindowCall
from dpsql.plan.functions import build_function_call, build_typed_call, get_overloads
from dpsql.plan.functions.conditional import split_case_branches
from dpsql.plan.functions.growth import MULTIPLIES, list_constants
from dpsql.plan.types import Type, find_common_type
from dpsql.sql.compile.scalars import emit_expression
from dpsql.sql.lower.constants import READ_FROM_TEXT, fold_constant, parse_constant
from dpsql.sql.lower.number_types import (
    build_decimal_text,
    build_float_text,
    round_before_cast,
    round_before_comparison,
    round_decimal_call,
    round_float_call,
)
from dpsql.sql.lower.operators import READS_TEXT
from dpsql.sql.parse.rejection import QueryText

_COMPARED = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct"})
_QUOTIENT = "//"
SAFE_INTEGER = 2**62
MAX_SIZE = 4_000
"""The most calls in an expression with aliases, BETWEEN and CASE operands, and columns of derived tables expanded.

An engine's planner expands these, and takes seconds for more.
"""
_SAMPLES: Mapping[Type, Literal] = {
    Type.INTEGER: Literal(1, Type.INTEGER),
    Type.DOUBLE: Literal(1.0, Type.DOUBLE),
    Type.VARCHAR: Literal("a", Type.VARCHAR),
    Type.BOOLEAN: Literal(value=True, type=Type.BOOLEAN),
    Type.DATE: Literal(dt.date(2024, 2, 29), Type.DATE),
    Type.TIMESTAMP: Literal(dt.datetime(2024, 2, 29), Type.TIMESTAMP),  # noqa: DTZ001  (SQL timestamps have no zone)
    Type.TIME: Literal(dt.time(12, 34), Type.TIME),
    Type.UUID: Literal(uuid.UUID(int=1), Type.UUID),
    Type.BLOB: Literal(b"a", Type.BLOB),
    Type.NULL: Literal(None, Type.NULL),
}


def resolve_call(source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]) -> Expr:
    """Return the call that a name means with these arguments. Raises QueryRejected at the node."""
    if name in READS_TEXT:
        first = READS_TEXT[name]
        arguments = (*arguments[:first], *map(_to_text, arguments[first:]))
    if name == "bit_count":
        arguments = tuple(map(_mask_to_own_bits, arguments))
    arguments = _fold_constant_arguments(
        source, node, name, round_before_comparison(name, round_before_cast(name, arguments))
    )
    problem: tuple[Function, str] | None = None
    for taken in _iterate_readings(source, node, name, arguments):
        for function in get_overloads(name):
            built = build_typed_call(function, taken)
            if built is None:
                continue
            wrong = _find_constant_problem(built)
            if wrong is None:
                return _finish_call(source, node, built)
            problem = problem or (function, wrong)
    if problem is not None:
        source.refuse(node, "constant", f"{problem[0].signature}: {problem[1]}")
    _refuse_types(source, node, name, arguments)


def _fold_constant_arguments(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """Return the arguments, folded to constants where each reading of the call takes a constant."""
    places = {place for function in get_overloads(name) for place in function.literals}
    return tuple(
        fold_constant(source, node, argument) if place in places else argument
        for place, argument in enumerate(arguments)
    )


def _to_text(argument: Expr) -> Expr:
    if argument.type in (Type.VARCHAR, Type.NULL):
        return argument
    return (
        build_decimal_text(argument)
        or build_float_text(argument)
        or build_function_call("cast_varchar", _restore_integer(argument))
        or argument
    )


def _mask_to_own_bits(argument: Expr) -> Expr:
    """Return a number with the bits that DuckDB's type of it has: of 64, a negative one has more."""
    low = derive_interval(argument).low
    if derive_bits(argument) == WIDE or (low is not None and low >= 0):
        return argument
    return (
        build_function_call("bit_and", argument, Literal(2 ** derive_bits(argument) - 1, Type.INTEGER))
        or argument
    )


def _iterate_readings(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> Iterator[tuple[Expr, ...]]:
    """Yield the arguments unchanged; then with text constants read in the type of their neighbors, as in SQL.

    Widened arithmetic is read as the whole number that it represents: first by //, which is / for real numbers, and by
    functions that take whole numbers only.
    """
    whole = tuple(map(_restore_integer, arguments))
    again = whole != arguments and all(argument.type is Type.INTEGER for argument in whole)
    if again and name == _QUOTIENT:
        yield whole
    yield arguments
    if again:
        yield whole
    if name in _COMPARED and (truths := _convert_to_booleans(arguments)) is not None:
        yield truths
    target = find_common_type(
        tuple(argument.type for argument in arguments if argument.type in READ_FROM_TEXT)
    )
    if target is None or target not in READ_FROM_TEXT:
        return
    read = [isinstance(argument, Literal) and isinstance(argument.value, str) for argument in arguments]
    zoned = any(isinstance(argument, Column) and argument.facts.has_time_zone for argument in arguments)
    types = tuple(
        target if as_moment else argument.type for as_moment, argument in zip(read, arguments, strict=True)
    )
    if any(read) and any(function.result(types) is not None for function in get_overloads(name)):
        yield tuple(
            parse_constant(source, node, target, str(argument.value), zoned=zoned)  # type: ignore[union-attr]
            if as_moment
            else argument
            for as_moment, argument in zip(read, arguments, strict=True)
        )


def _convert_to_booleans(arguments: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Return the arguments with 0 and 1 read as truth values next to others, as in SQL; None if that does not apply."""
    numbers = [argument.type is Type.INTEGER for argument in arguments]
    known = all(
        isinstance(argument, Literal) and argument.value in (0, 1)
        for argument, number in zip(arguments, numbers, strict=True)
        if number
    )
    if not any(numbers) or not known or not any(argument.type is Type.BOOLEAN for argument in arguments):
        return None
    return tuple(
        Literal(bool(argument.value), Type.BOOLEAN) if number and isinstance(argument, Literal) else argument
        for argument, number in zip(arguments, numbers, strict=True)
    )


def _find_constant_problem(built: Call) -> str | None:
    """Return the rule that the constants of a call break, or None."""
    for place in sorted(built.function.literals):
        argument = built.arguments[place]
        if not isinstance(argument, Literal) or argument.value is None:
            return "this argument must be a constant"
    wrong = built.function.check(list_constants(built))
    if wrong is not None or not built.function.checked_by_engine:
        return wrong
    sampled = tuple(
        argument if place in built.function.literals else _SAMPLES[argument.type]
        for place, argument in enumerate(built.arguments)
    )
    return scratch_database.find_evaluation_error(emit_expression(Call(built.function, sampled, built.type)))


def _finish_call(source: QueryText, node: exp.Expr | None, built: Call) -> Expr:
    if built.function.integral and built.type is Type.INTEGER:
        return built.arguments[0]  # whole numbers are whole already
    if built.function.name == "cast_varchar":
        built = (
            build_decimal_text(built.arguments[0])
            or build_float_text(built.arguments[0])
            or (build_typed_call(built.function, tuple(map(_restore_integer, built.arguments))) or built)
        )
    built = round_float_call(round_decimal_call(_widen_arithmetic(_convert_dates(built))))
    if built.size > MAX_SIZE:
        source.refuse(
            node,
            "too_long",
            f"the expression has over {MAX_SIZE:,} operations, those of the derived tables that it "
            "reads included",
            "name a column once instead of several times, as x * (x + 1) for x * x + x; or use fewer "
            "levels of subqueries",
        )
    if built.function.size in MULTIPLIES:
        refusal = None
        try:
            require_bounded_text(built, {})
        except QueryRejected as too_long:
            refusal = too_long
        if refusal is not None:  # not within `except`: an error has no other behind it
            source.refuse(node, "too_long", refusal.message, refusal.hint)
    return built


def _convert_dates(built: Call) -> Call:
    """Return the arguments with days among timestamps read as timestamps, so that one interval holds both."""
    days = [argument.type is Type.DATE for argument in built.arguments]
    if built.type is not Type.TIMESTAMP or not any(days) or all(days):
        return built
    if not any(argument.type is Type.TIMESTAMP for argument in built.arguments):
        return built
    moments = tuple(
        (build_function_call("cast_timestamp", argument) or argument) if day else argument
        for day, argument in zip(days, built.arguments, strict=True)
    )
    return build_typed_call(built.function, moments) or built


def _widen_arithmetic(built: Call) -> Call:
    """Return integer arithmetic that may exceed 64 bits as arithmetic in DOUBLE.

    Neither form can fail, so an interval that is wrong on rows that a condition drops does no harm.
    """
    if not built.function.integer_sql or built.type is not Type.INTEGER:
        return built
    if derive_interval(built).is_within(SAFE_INTEGER):
        return built
    doubled = tuple(build_function_call("cast_double", argument) or argument for argument in built.arguments)
    return build_typed_call(built.function, doubled) or built


def _restore_integer(argument: Expr) -> Expr:
    """Return widened arithmetic as a whole number again, NULL beyond 64 bits."""
    return (build_function_call("cast_bigint", argument) or argument) if is_widened(argument) else argument


def is_widened(expr: Expr) -> bool:
    """Return whether an expression is a result of `_widen_arithmetic`, or passes one on: an integer that is read as DOUBLE."""
    if isinstance(expr, Column):
        return expr.facts.widened
    if expr.type is not Type.DOUBLE:
        return False
    if isinstance(expr, WindowCall):
        values = expr.arguments[:1] + expr.arguments[2:]  # the second of LAG, LEAD and NTH_VALUE is a place
        return OVER[expr.function].keeps_scale and are_widened(values)
    if not isinstance(expr, Call):
        return False
    if expr.function.name in _PASSING:
        return are_widened(_PASSING[expr.function.name](expr.arguments))
    if not expr.function.integer_sql:
        return False
    read = [
        each.arguments[0] if isinstance(each, Call) and each.function.name == "cast_double" else None
        for each in expr.arguments
    ]
    return all(each is not None and each.type is Type.INTEGER for each in read) or are_widened(expr.arguments)


def are_widened(values: Iterable[Expr]) -> bool:
    """Return whether some of the values of one column or expression are integers that are read as DOUBLE."""
    known = [(is_widened(each), each.type in (Type.INTEGER, Type.NULL)) for each in values]
    return any(widened for widened, _ in known) and all(widened or whole for widened, whole in known)


def _list_case_values(arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """List the values of a CASE."""
    pairs, otherwise = split_case_branches(arguments)
    return (*(value for _, value in pairs), otherwise)


_PASSING: Mapping[str, Callable[[tuple[Expr, ...]], tuple[Expr, ...]]] = {
    "case": _list_case_values,
    "coalesce": tuple,
    "greatest": tuple,
    "least": tuple,
    "nullif": lambda arguments: arguments[:1],
}
"""Functions whose result is one of these arguments."""


def _refuse_types(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> NoReturn:
    given = ", ".join(str(argument.type) for argument in arguments)
    signatures = dict.fromkeys(function.signature for function in get_overloads(name))
    source.refuse(
        node,
        "type",
        f"{' or '.join(list(signatures)[:3])} does not take ({given})",
        "convert with CAST(… AS …)",
    )
