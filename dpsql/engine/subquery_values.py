"""The values of subqueries that were evaluated before a release, as constants of its statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpsql.analysis.intervals import derive_answer_intervals, derive_interval
from dpsql.plan.expressions import Expr, Literal, Scalar
from dpsql.plan.functions.enclosures import round_to_doubles
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import PublicSubquery, Values
from dpsql.plan.provenance import mark_noiseless_outputs


def to_constants(step: Scalar | PublicSubquery, rows: Sequence[tuple[Any, ...]]) -> Literal | Values:
    """Return the rows of an evaluated subquery as constants; a scalar subquery without rows is NULL.

    Claim: each noisy number is within the interval that the plan derives for it. No two different values of a column become
    equal, so a private row that matches one row of the subquery still matches at most one.
    Why: noise is unbounded, so a value computed from it may be anywhere; it is clamped here, the only place where released values
    enter private computations. Keys have no noise and are not clamped. A value that clamping would make equal to another becomes
    NULL, which equals nothing.
    """
    columns: Sequence[Expr] = step.columns if isinstance(step, PublicSubquery) else (step,)
    ranges = [
        ANYWHERE if exact else derive_interval(column).narrow_to(around)
        for column, around, exact in zip(
            columns, derive_answer_intervals(step.outer), mark_noiseless_outputs(step.outer), strict=True
        )
    ]
    series = [
        _clip_column(values, around) for values, around in zip(zip(*rows, strict=True), ranges, strict=False)
    ]
    cleaned = tuple(zip(*series, strict=True)) if rows else ()
    if isinstance(step, PublicSubquery):
        return Values(cleaned, step.alias, step.columns)
    return Literal(cleaned[0][0] if cleaned else None, step.type)


def _clip_column(values: Sequence[Any], around: Interval) -> list[Any]:
    """Return the values of a column clamped to an interval; NULL for those that clamping makes equal to others."""
    moved = [_clip_value(value, around) for value in values]
    pairs = [(value, at) for value, at in zip(values, moved, strict=True) if isinstance(at, (int, float))]
    met: dict[Any, set[Any]] = {}
    for value, at in pairs:
        met.setdefault(at, set()).add(value)
    merged = {at for value, at in pairs if value != at and len(met[at]) > 1}
    return [
        None if isinstance(at, (int, float)) and at != value and at in merged else at
        for value, at in zip(values, moved, strict=True)
    ]


def _clip_value(value: Any, around: Interval) -> Any:
    """Return a released value as a constant: finite, and clamped to its interval."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value):
        return None
    whole = isinstance(value, int)
    around = around if whole else round_to_doubles(around)
    low, high = around.low, around.high
    if low is not None and value < low:
        return math.ceil(low) if whole else float(low)
    if high is not None and value > high:
        return math.floor(high) if whole else float(high)
    return value
