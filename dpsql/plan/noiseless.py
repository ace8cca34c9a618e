"""Outputs of a query over released values that have no noise: group keys and public values.

Claim: such a value is a function of group keys, constants and public values only. Noise may decide whether a row exists,
and which of these values it has.
Why: each part of the expression is traced to the release, table or constant that it comes from; aggregates of private
rows, window functions and all unknown cases count as noisy.
"""

from __future__ import annotations

from dpsql.plan.dependencies import releases
from dpsql.plan.expr import Column, Expr, Released, Scalar, walk, windowed
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
    sources,
)
from dpsql.plan.tables import Scan

_CHOOSES = frozenset({"min", "max"})
"""Aggregates within groups whose value is one of the values of their argument."""


def noiseless(outer: OuterQuery) -> tuple[bool, ...]:
    """For each output of a query, whether it has no noise in it."""
    if not releases(outer):
        return (True,) * len(outer.outputs)
    return tuple(is_noiseless(output.expr, outer.source) for output in outer.outputs)


def is_noiseless(expr: Expr, source: Release | Relation) -> bool:
    """Whether an expression over a source has no noise in it."""
    return not windowed(expr) and all(_leaf(part, source) for part in dict.fromkeys(walk(expr)))


def _leaf(part: Expr, source: Release | Relation) -> bool:
    match part:
        case Released():
            return isinstance(source, Release) and part.name in {key.name for key in source.keys}
        case Column():
            found = [] if isinstance(source, Release) else sources(source)
            return any(each.alias == part.source and _column(part, each) for each in found)
        case Scalar():
            return all(noiseless(part.outer))
        case _:
            return True


def _column(column: Column, source: Source) -> bool:
    """Whether a column of a source has no noise in it."""
    match source:
        case Scan() | Values():
            return True
        case PublicSubquery():
            return noiseless(source.outer)[source.columns.index(column)]
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
                _column(side.columns[place], side) for side in (left, right) if not isinstance(side, Scan)
            )
