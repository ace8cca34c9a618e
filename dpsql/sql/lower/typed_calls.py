"""Lower the calls that translations of other dialects write, by the types of their arguments.

Claim: each becomes an expression of the function registry that has the dialect's meaning for arguments of these types.
Why: the registry's functions cannot fail on any row, and which of them is taken depends on types alone, never on values. So the
rules of stability, intervals and totality are those of the functions that are written.
Source: the manuals of PostgreSQL 17 (9.3, 9.9), Transact-SQL, Spark 4 SQL, Snowflake and GoogleSQL on operators and conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.number_types import WIDE, derive_bits, find_decimal_digits, is_float
from dpsql.plan.expressions import Call, Column, Expr, Literal, walk
from dpsql.plan.types import Type
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.typed_dates import DATE_LOWERINGS, ScalarLowering
from dpsql.sql.lower.typed_texts import TEXT_LOWERINGS
from dpsql.sql.parse.dialect import FRACTIONAL_TYPES
from dpsql.sql.parse.typed_calls import (
    FIRST_TYPE,
    HALF_EVEN,
    MEAN,
    PART,
    POWER,
    QUOTIENT,
    ROUNDED,
    SUM_OR_TEXT,
    TEXT,
    TRUNCATED,
    is_typed_call,
)

_SAFE_INTEGER = 2**62
_BINARY = frozenset({"DOUBLE", "FLOAT"})
_WHOLE_TEXT_ZERO = r"\.0$"


def lower_typed_call(scalars: ScalarLowering, node: exp.Expr) -> Expr:
    """Return the expression that a reserved call means for arguments of these types. Raises QueryRejected."""
    name, items = scalars.source.take_arguments(node, "this", "expressions")
    return _LOWERINGS[name](scalars, node, list(items))


def lower_grouped_typed_call(
    scalars: ScalarLowering, row_scalars: ScalarLowering, node: exp.Expr
) -> Expr | None:
    """Lower a call whose type follows from the rows that its aggregates read; None for all others.

    In PostgreSQL the SUM of numbers of up to 32 bits is a whole number, and that of longer ones a numeric, whose quotient keeps its
    remainder. In T-SQL the AVG of whole numbers is one.
    """
    if is_typed_call(node, MEAN):
        return _lower_mean(scalars, row_scalars, node)
    if is_typed_call(node, QUOTIENT) and len(node.expressions) > 2:
        _, items = scalars.source.take_arguments(node, "this", "expressions")
        sums = [part for item in items[:2] for part in _list_sums(item)]
        is_numeric = any(_is_long(row_scalars.lower(part.this)) for part in sums)
        values = tuple(map(scalars.lower, items[:2]))
        return scalars.build_call(node, "/", *values) if is_numeric else _divide(scalars, node, *values)
    return None


def _list_sums(node: exp.Expr) -> list[exp.Expr]:
    """List the sums outside of subqueries, without DISTINCT and FILTER around their arguments."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    found: list[exp.Expr] = []
    for part in parts:
        if type(part) is exp.Sum:
            inner = part.this
            found.append(exp.Sum(this=inner.expressions[0].copy()) if type(inner) is exp.Distinct else part)
    return found


def _is_long(expr: Expr) -> bool:
    """Return whether whole numbers may have 64 bits: a column that has, or a cast to such."""
    if expr.type is not Type.INTEGER:
        return True
    return derive_bits(expr) == WIDE and any(
        (isinstance(part, Column) and part.type is Type.INTEGER and derive_bits(part) == WIDE)
        or (isinstance(part, Call) and part.function.name in ("cast_bigint", "cast_hugeint"))
        or (isinstance(part, Literal) and isinstance(part.value, int) and abs(part.value) >= 2**31)
        for part in walk(expr)
    )


def _divide(scalars: ScalarLowering, node: exp.Expr, left: Expr, right: Expr) -> Expr:
    """Divide; two whole numbers without the remainder, rounded toward zero.

    Whole numbers that may exceed 64 bits are computed in DOUBLE, and still count as whole numbers, unless the query itself casts a
    part of them to DOUBLE.
    """
    _, items = scalars.source.take_arguments(node, "this", "expressions")
    are_whole = all(
        side.type in (Type.INTEGER, Type.NULL) or (is_widened(side) and not _has_fraction(item))
        for side, item in zip((left, right), items[:2], strict=True)
    )
    if are_whole and any(isinstance(side, Column) and side.type is Type.DOUBLE for side in (left, right)):
        scalars.source.refuse(
            node,
            "type",
            "the type of a column of a derived table decides whether / discards the remainder",
            "cast the column to BIGINT or to FLOAT before it is divided",
        )
    return scalars.build_call(node, "//" if are_whole else "/", left, right)


def _has_fraction(node: exp.Expr) -> bool:
    """Return whether an expression itself casts a part to a number with a fraction."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.Cast) and part.to.this in FRACTIONAL_TYPES for part in parts)


def _lower_quotient(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    if len(items) > 2:  # a SUM, whose type only a SELECT with groups knows
        scalars.source.refuse(
            node, "aggregate", "SUM is not allowed here: it aggregates many rows", "aggregate in a subquery"
        )
    return _divide(scalars, node, *map(scalars.lower, items))


def _lower_mean(scalars: ScalarLowering, row_scalars: ScalarLowering, node: exp.Expr) -> Expr:
    """Lower AVG of T-SQL: the mean of whole numbers is truncated to one."""
    _, (called,) = scalars.source.take_arguments(node, "this", "expressions")
    mean = scalars.lower(called)
    is_window = type(called) is exp.Window
    average = called.this if is_window else called
    argument = average.this.expressions[0] if type(average.this) is exp.Distinct else average.this
    value = (scalars if is_window else row_scalars).lower(argument)
    if value.type is not Type.INTEGER:
        return mean
    return scalars.build_call(node, "cast_bigint", scalars.build_call(node, "trunc", mean))


def _refuse_mean(scalars: ScalarLowering, node: exp.Expr, _: list[exp.Expr]) -> Expr:
    scalars.source.refuse(
        node, "aggregate", "AVG is not allowed here: it aggregates many rows", "aggregate in a subquery"
    )


def _lower_power(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    base, exponent = map(scalars.lower, items)
    found = scalars.build_call(node, "pow", base, exponent)
    if base.type is not Type.INTEGER:
        return found
    return scalars.build_call(node, "cast_bigint", scalars.build_call(node, "trunc", found))


def _lower_sum_or_text(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower + of T-SQL: it joins two texts, and adds numbers; a text beside a number would be converted, and is refused."""
    sides = tuple(map(scalars.lower, items))
    texts = [side.type is Type.VARCHAR for side in sides]
    if all(text or side.type is Type.NULL for text, side in zip(texts, sides, strict=True)) and any(texts):
        return scalars.build_call(node, "||", *sides)
    if any(texts):
        scalars.source.refuse(
            node,
            "type",
            "+ takes two numbers or two texts, not one of each",
            "write CAST(x AS VARCHAR(20)) + 'text', or CONCAT(x, 'text')",
        )
    return scalars.build_call(node, "+", *sides)


def _lower_first_type(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    first, second = map(scalars.lower, items)
    if first.type is Type.INTEGER and second.type is Type.DOUBLE:
        second = scalars.build_call(node, "cast_bigint", scalars.build_call(node, "trunc", second))
    if first.type is Type.VARCHAR and second.type in (Type.INTEGER, Type.DATE):
        second = scalars.build_call(node, "cast_varchar", second)
    return scalars.build_call(node, "coalesce", first, second)


def _make_rounding(name: str) -> Callable[[ScalarLowering, exp.Expr, list[exp.Expr]], Expr]:
    def lower_rounding(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
        value = scalars.lower(items[0])
        return scalars.build_call(node, name, value) if value.type is Type.DOUBLE else value

    return lower_rounding


def _lower_half_even(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    value = scalars.lower(items[0])
    if value.type is Type.DOUBLE and _is_binary(value):
        if derive_interval(value).is_within(_SAFE_INTEGER):  # every engine has this cast
            return scalars.build_call(node, "cast_double", scalars.build_call(node, "cast_bigint", value))
        return scalars.build_call(node, "round_even", value, Literal(0, Type.INTEGER))
    return scalars.build_call(node, "round", value)


def _is_binary(value: Expr) -> bool:
    """Return whether a number is evidently computed from DOUBLE columns: whatever is computed from these is a DOUBLE, too."""
    return is_float(value) or any(
        (isinstance(part, Column) and part.type is Type.DOUBLE and part.facts.engine_type in _BINARY)
        or (isinstance(part, Call) and part.function.name == "cast_double")
        for part in walk(value)
    )


def _lower_text(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower a cast to a text: whole numbers, dates, texts and decimals are written alike everywhere."""
    value, dialect = scalars.lower(items[0]), items[1].name
    is_binary = value.type is Type.DOUBLE and find_decimal_digits(value) is None
    refused = _REFUSED_TEXTS.get(dialect, frozenset())
    if value.type in refused and (value.type is not Type.DOUBLE or is_binary):
        scalars.source.refuse(
            node,
            "type",
            f"a {value.type} has a format of its own as a text here",
            "write CAST(x AS DECIMAL(18, 3)) or CAST(x AS DATE) within it",
        )
    if not is_binary or dialect == "spark":
        return scalars.build_call(node, "cast_varchar", value)
    return _write_binary(scalars, node, value)


def _write_binary(scalars: ScalarLowering, node: exp.Expr, value: Expr) -> Expr:
    """Write a number without .0 at its end."""
    found = scalars.build_call(node, "cast_varchar", value)
    constants = (Literal(text, Type.VARCHAR) for text in (_WHOLE_TEXT_ZERO, ""))
    return scalars.build_call(node, "regexp_replace", found, *constants)


def _lower_part(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower a part of a joined text: PostgreSQL writes numbers without .0, and truth values as t and f in CONCAT."""
    value, in_call = scalars.lower(items[0]), bool(items[1].this)
    if value.type is Type.BOOLEAN and in_call:
        yes, no, null = Literal("t", Type.VARCHAR), Literal("f", Type.VARCHAR), Literal(None, Type.NULL)
        return scalars.build_call(node, "case", value, yes, scalars.build_call(node, "not", value), no, null)
    if value.type is Type.DOUBLE and find_decimal_digits(value) is None:
        return _write_binary(scalars, node, value)
    return value


_REFUSED_TEXTS: Mapping[str, frozenset[Type]] = {
    "tsql": frozenset({Type.DOUBLE, Type.TIMESTAMP, Type.BOOLEAN}),
    "snowflake": frozenset({Type.TIMESTAMP}),
    "bigquery": frozenset({Type.TIMESTAMP}),
}
"""The types whose texts differ from DuckDB's in more than a zero after the point."""


_LOWERINGS: Mapping[str, Callable[[ScalarLowering, exp.Expr, list[exp.Expr]], Expr]] = {
    QUOTIENT: _lower_quotient,
    MEAN: _refuse_mean,
    POWER: _lower_power,
    SUM_OR_TEXT: _lower_sum_or_text,
    FIRST_TYPE: _lower_first_type,
    TRUNCATED: _make_rounding("trunc"),
    ROUNDED: _make_rounding("round"),
    HALF_EVEN: _lower_half_even,
    TEXT: _lower_text,
    PART: _lower_part,
    **DATE_LOWERINGS,
    **TEXT_LOWERINGS,
}
