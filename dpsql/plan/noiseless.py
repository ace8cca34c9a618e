"""Outputs of a query over released values that have no noise: group keys and public values.

Claim: such a value is a function of group keys, constants and public values only. Noise may decide whether a row exists,
and which of these values it has.
Why: each part of the expression is traced to the release, table or constant that it comes from; aggregates of private
rows, window functions and all unknown cases count as noisy.
"""

from __future__ import annotations

from dpsql.plan.dependencies import list_releases
from dpsql.plan.expressions import Column, Expr, ReleasedColumn, Scalar, has_window, walk
from dpsql.plan.nodes import (
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetOperation,
    Source,
    Values,
    iterate_sources,
)
from dpsql.plan.tables import Scan

_CHOOSES = frozenset({"min", "max"})
"""Aggregates within groups whose value is one of the values of their argument."""


def mark_noiseless_outputs(outer: OuterQuery) -> tuple[bool, ...]:
    """Return for each output of a query whether it has no noise."""
    if not list_releases(outer):
        return (True,) * len(outer.outputs)
    return tuple(is_noiseless(output.expr, outer.source) for output in outer.outputs)


def is_noiseless(expr: Expr, source: Release | Relation) -> bool:
    """Return whether an expression over a source has no noise in it."""
    return not has_window(expr) and all(
        _is_noiseless_leaf(part, source) for part in dict.fromkeys(walk(expr))
    )


def _is_noiseless_leaf(part: Expr, source: Release | Relation) -> bool:
    match part:
        case ReleasedColumn():
            return isinstance(source, Release) and part.name in {key.name for key in source.keys}
        case Column():
            found = [] if isinstance(source, Release) else iterate_sources(source)
            return any(each.alias == part.source and _is_noiseless_column(part, each) for each in found)
        case Scalar():
            return all(mark_noiseless_outputs(part.outer))
        case _:
            return True


def _is_noiseless_column(column: Column, source: Source) -> bool:
    """Return whether a column of a source has no noise in it."""
    match source:
        case Scan() | Values():
            return True
        case PublicSubquery():
            return mark_noiseless_outputs(source.outer)[source.columns.index(column)]
        case Project():
            return is_noiseless(source.items[source.columns.index(column)], source.input)
        case PerUnitGroupBy():
            place = source.columns.index(column)
            if place < len(source.keys):
                return is_noiseless(source.keys[place], source.input)
            found = source.aggregates[place - len(source.keys)]
            return found.function in _CHOOSES and all(
                is_noiseless(expr, source.input) for expr in found.arguments
            )
        case PerUnitWindows():
            return False
        case SetOperation(left=left, right=right):
            place = source.columns.index(column)
            return all(
                _is_noiseless_column(side.columns[place], side)
                for side in (left, right)
                if not isinstance(side, Scan)
            )
