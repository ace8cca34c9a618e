"""Emit exact per-unit aggregates, clamped to their intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from dpsql.analysis.decimals import find_decimal_digits
from dpsql.analysis.intervals import KnownIntervals, derive_interval
from dpsql.analysis.lattice import Lattice
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Column, Expr
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitAggregate
from dpsql.plan.types import Type
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.lattice import emit_lattice_point
from dpsql.sql.compile.scalars import (
    MAX_INTEGER,
    emit_cast,
    emit_constant,
    emit_expression,
    emit_number_or_null,
)

_CALLED = re.compile(r"\b(COUNT|SUM|MIN|MAX|BOOL_AND|BOOL_OR)\(")
_BITS = 80
"""A real value at the far bound is at most 2^80 steps from zero."""


def emit_per_unit_aggregate(
    item: PerUnitAggregate, named: Column, known: KnownIntervals, over: str = ""
) -> str:
    """Return the aggregate, in the type and interval of its column.

    `known` is what conditions say of the rows. With `over`, the rows of that window are aggregated, not those of a group.
    """
    entry = WITHIN[item.function]
    kind = None if item.argument is None else item.argument.type
    template = _add_window(get_dialect().emit_per_unit_aggregate(item.function, entry.sql, kind), over)
    if item.argument is None:
        text = template.format()
    elif entry.takes_rank:
        text = entry.emit_sql(emit_with_unsigned_zero(item.argument), rank=item.rank)
    elif entry.is_sum:
        around = derive_interval(item.argument, known)
        # A released NULL has no bounds; a value lies within those of its sum.
        text = _emit_point_sum(template, item.argument, around if around.is_bounded else named.facts.interval)
    else:
        text = template.format(*map(emit_with_unsigned_zero, item.arguments))
    return _emit_clamped_number(text, named) if named.type.numeric else text


def _add_window(template: str, over: str) -> str:
    """Return a template with the window after each aggregate that it calls.

    >>> _add_window("SUM(CAST({0} AS INT)) / COUNT({0})", " OVER w")
    'SUM(CAST({0} AS INT)) OVER w / COUNT({0}) OVER w'
    """
    window, parts, at = over.replace("{", "{{").replace("}", "}}"), list[str](), 0
    for found in _CALLED.finditer(template):
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(template[end], 0)
            end += 1
        parts += [template[at:end], window]
        at = end
    return "".join([*parts, template[at:]])


def emit_within_interval(text: str, named: Column) -> str:
    """Return a value in the type of its column and, for numbers, clamped to its interval."""
    return _emit_clamped_number(text, named) if named.type.numeric else emit_cast(text, named.type)


def emit_public_aggregate(item: PerUnitAggregate, named: Column) -> str:
    """Return the aggregate of public rows in the type of its column."""
    text = WITHIN[item.function].emit_sql(*map(emit_expression, item.arguments), rank=item.rank)
    return f"TRY_CAST({text} AS {named.type.value})"


def emit_with_unsigned_zero(argument: Expr) -> str:
    """Return a value in which negative zero becomes zero."""
    text = emit_number_or_null(argument)
    return f"({text} + 0)" if argument.type is Type.DOUBLE else text


def _emit_point_sum(template: str, argument: Expr, around: Interval) -> str:
    """Return a sum of lattice points, or a function of one, as a DOUBLE; whole numbers unchanged.

    The points of decimals are whole numbers of their last digit, so that the sum is the DOUBLE nearest to the DECIMAL that the
    engine has, where both are below 2^50 of these.

    Claim: it is the same in whatever order the rows come, cannot fail, and of one value x it is x where |x| is no less
    than 2^-27 of the larger bound M, and within M 2^-80 (or 2^-1000) of it elsewhere.
    Why: points are whole numbers, at most 2^80 each, so the sum of 2^46 of them is a HUGEINT. A DOUBLE has 53 bits: where x is at
    least M 2^-27, the last of them is a step or more, so that x is a point.
    """
    if argument.type is Type.INTEGER:
        if not around.is_bounded:
            return template.format(emit_number_or_null(argument))
        lattice = Lattice.from_interval(around, integral=True)
        added = template.format(f"({emit_lattice_point(argument, lattice, emit_number_or_null(argument))})")
        return added if lattice.step == 1 else f"({added}) * {emit_constant(float(lattice.step))}"
    decimal = find_decimal_digits(argument)
    lattice = Lattice.from_interval(
        around, integral=False, bits=_BITS, digits=None if decimal is None else decimal[1]
    )
    name, (low, high) = (
        emit_number_or_null(argument),
        (emit_constant(float(end)) for end in lattice.interval.ends),
    )
    held = f"CASE WHEN {name} < {low} THEN {low} WHEN {name} > {high} THEN {high} ELSE {name} END"
    # In two steps: a factor beyond the range of DOUBLE would be an infinity, and its inverse no power of two.
    up, down = split_power_of_two(-lattice.exponent)
    times = float(10**lattice.digits)
    added = template.format(get_dialect().emit_wide_lattice_point(held, (up * times, down)))
    scaled = get_dialect().emit_scaled_double(added, split_power_of_two(lattice.exponent))
    return f"({scaled}) / {emit_constant(times)}" if lattice.digits else scaled


def split_power_of_two(exponent: int) -> tuple[float, float]:
    """Return two numbers whose product is that power of two, each within the range of DOUBLE."""
    half = exponent // 2
    return math.ldexp(1.0, half), math.ldexp(1.0, exponent - half)


def _emit_clamped_number(text: str, named: Column) -> str:
    clamped = cast = get_dialect().emit_aggregate_cast(text, named.type)
    low, high = named.facts.interval.low, named.facts.interval.high
    if low is not None:
        clamped = f"GREATEST({clamped}, {_emit_interval_end(named.type, low, math.floor)})"
    if high is not None:
        clamped = f"LEAST({clamped}, {_emit_interval_end(named.type, high, math.ceil)})"
    # The engine's LEAST and GREATEST skip NULL, so NULL must be kept explicitly.
    return cast if clamped == cast else f"CASE WHEN {text} IS NOT NULL THEN {clamped} END"


def _emit_interval_end(kind: Type, end: Fraction, rounded: Callable[[Fraction], int]) -> str:
    if kind is Type.INTEGER:
        return emit_constant(max(-MAX_INTEGER, min(MAX_INTEGER, rounded(end))))
    return emit_constant(float(end))
