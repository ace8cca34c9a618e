"""Emit the lattice points of values."""

from __future__ import annotations

from typing import TypeGuard

from dpsql.analysis.lattice import Lattice
from dpsql.plan.expressions import Column, Expr
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.scalars import MAX_INTEGER, emit_constant


def emit_lattice_point(expr: Expr, lattice: Lattice, name: str, around: Interval | None = None) -> str:
    """Return the lattice point of the value of `expr`, known as `name`, which is not NaN.

    It is clamped, unless it is a table's column that was clamped to `around` when it was read.

    Claim: the point is from the lattice's low end to its high one; of a decimal with the lattice's digits, below 2^50 of its last
    one, it is exact.
    Why: the factor is 10^digits / 2^exponent, a DOUBLE up to 10^22, so that the product of a value within the ends is off by less
    than a quarter of a step, and the ends are whole numbers of steps.
    """
    at = (
        name
        if is_own_point(expr, lattice)
        else get_dialect().emit_lattice_point(name, float(1 / lattice.step))
    )
    if around is not None and is_clamped_when_read(expr, around):
        return at
    low, high = (emit_constant(float(end)) for end in lattice.interval.ends)
    if expr.type is Type.INTEGER:
        low, high = (
            emit_constant(max(-MAX_INTEGER, min(MAX_INTEGER, int(end)))) for end in lattice.interval.ends
        )
    clamped = f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {at}"
    return f"{clamped} WHEN {name} < {low} THEN {lattice.low} WHEN {name} > {high} THEN {lattice.high} END"


def is_own_point(expr: Expr, lattice: Lattice) -> bool:
    """Return whether a value is its own lattice point."""
    return lattice.exponent == 0 and expr.type is Type.INTEGER


def is_clamped_when_read(expr: Expr, around: Interval) -> TypeGuard[Column]:
    """Return whether an expression is a stored column that is clamped to an interval when it is read."""
    return isinstance(expr, Column) and expr.facts.is_stored and expr.facts.interval == around
