"""Windows over the groups of all grouping sets: the outputs of each set, and windows over these together.

Claim: they are as private as the groups of the sets.
Why: these are released, or public; windows over their union are post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Order,
    ReleasedColumn,
    WindowCall,
    has_window,
    replace_parts,
)
from dpsql.plan.nodes import OuterQuery, Output
from dpsql.plan.types import Type
from dpsql.sql.lower.derived_tables import make_unique_names


@dataclass(slots=True)
class GroupingSetParts:
    """The expressions of one grouping set, as `shapes` over `parts`, which have no windows in them."""

    parts: list[Expr] = field(default_factory=list)
    shapes: list[Expr] = field(default_factory=list)

    @classmethod
    def from_query(cls, outer: OuterQuery) -> GroupingSetParts:
        """Return the outputs of a set, its further ORDER BY expressions, and its QUALIFY condition."""
        found = cls()
        asked = [] if outer.qualify is None else [outer.qualify]
        exprs = (*(output.expr for output in outer.outputs), *(item.expr for item in outer.order), *asked)
        found.shapes += map(found._extract_parts, exprs)
        return found

    def _extract_parts(self, expr: Expr) -> Expr:
        if isinstance(expr, WindowCall):
            counts = {place for place, _ in OVER[expr.function].least_constants}
            return replace(
                expr,
                arguments=tuple(
                    argument if place in counts else self._extract_parts(argument)
                    for place, argument in enumerate(expr.arguments)
                ),
                partition=tuple(map(self._extract_parts, expr.partition)),
                order=tuple(
                    Order(self._extract_parts(item.expr), item.descending, item.nulls_first)
                    for item in expr.order
                ),
            )
        if isinstance(expr, Call) and has_window(expr):
            return replace(expr, arguments=tuple(map(self._extract_parts, expr.arguments)))
        self.parts.append(expr)
        return _make_placeholder(len(self.parts) - 1)

    def build_parts_query(self, outer: OuterQuery) -> OuterQuery:
        """Build the groups of the set with the parts as outputs; those that are outputs of the query under their names."""
        plain = all(isinstance(shape, ReleasedColumn) for shape in self.shapes)
        if plain and outer.qualify is None and not outer.order:
            return outer
        named = {
            shape.name: output.name
            for shape, output in zip(self.shapes, outer.outputs, strict=False)
            if isinstance(shape, ReleasedColumn)
        }
        names = make_unique_names(
            [named.get(str(place), f"part {place}") for place in range(len(self.parts))]
        )
        outputs = tuple(Output(name, part) for name, part in zip(names, self.parts, strict=True))
        return replace(outer, outputs=outputs, order=(), qualify=None)


def substitute_parts(shapes: Sequence[Expr], columns: Sequence[Column]) -> list[Expr]:
    """Return the expressions over the parts of all sets, which are `columns`."""
    parts: dict[Expr, Expr] = {_make_placeholder(place): column for place, column in enumerate(columns)}
    return [replace_parts(shape, parts) for shape in shapes]


def _make_placeholder(place: int) -> ReleasedColumn:
    # The sets determine its type together.
    return ReleasedColumn(str(place), Type.NULL)
