"""Lower ROLLUP, CUBE and GROUPING SETS to one SELECT per grouping set.

Claim: a query with grouping sets is the UNION ALL of one release per set, and its loss is the sum of their losses.
Why: each set is a SELECT over the same rows, in which the other keys are NULL. Each is analyzed, charged and noised like any
other release of the statement.
Source: ISO/IEC 9075-2, <grouping sets specification>, which defines them by that union.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Order,
    ReleasedColumn,
    WindowCall,
    has_window,
    replace_parts,
)
from dpsql.plan.nodes import OuterQuery, Output
from dpsql.plan.types import Type
from dpsql.sql.lower.derived_tables import make_unique_names
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.rejection import QueryText

MAX_KEYS = 60
"""The most keys of a SELECT; GROUPING, a bit for each, is then a BIGINT."""
MAX_SETS = 32
"""The most grouping sets, each of which is a release."""
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
Sets = list[tuple[exp.Expr, ...]]


def find_grouping_sets(source: QueryText, group: exp.Expr | None) -> Sets | None:
    """Return the keys of each set that GROUP BY asks for, None where it asks for plain groups."""
    items = [] if group is None else group.expressions
    if group is None or not any(type(item) in _SETS for item in items):
        return None
    (items,) = source.take_arguments(group, "expressions")
    found: Sets = [()]
    for item in items:
        sets = _list_item_sets(source, item)
        if len(found) * len(sets) > MAX_SETS:
            source.refuse(group, "too_long", f"at most {MAX_SETS} grouping sets")
        found = [(*before, *after) for before, after in itertools.product(found, sets)]
    return found


def _list_item_sets(source: QueryText, item: exp.Expr) -> Sets:
    if type(item) not in _SETS:
        return [_list_item_keys(source, item)]
    (parts,) = source.take_arguments(item, "expressions")
    if type(item) is exp.GroupingSets:
        return [found for part in parts or () for found in _list_item_sets(source, part)]
    keys = [_list_item_keys(source, part) for part in parts or ()]
    if type(item) is exp.Rollup:
        return [_merge_keys(keys[:length]) for length in range(len(keys), -1, -1)]
    if 2 ** len(keys) > MAX_SETS:
        source.refuse(item, "too_long", f"at most {MAX_SETS} grouping sets")
    lengths = range(len(keys), -1, -1)
    return [_merge_keys(chosen) for length in lengths for chosen in itertools.combinations(keys, length)]


def _list_item_keys(source: QueryText, item: exp.Expr) -> tuple[exp.Expr, ...]:
    """List the keys of an item, which may be several in parentheses."""
    if type(item) is exp.Tuple:
        (parts,) = source.take_arguments(item, "expressions")
        return tuple(parts or ())
    return (item,)


def list_keys(source: QueryText, items: Sequence[exp.Expr]) -> list[exp.Expr]:
    """List the keys of plain groups, parentheses expanded; () has none."""
    return [key for item in items for key in _list_item_keys(source, item)]


def _merge_keys(parts: Sequence[tuple[exp.Expr, ...]]) -> tuple[exp.Expr, ...]:
    return tuple(key for part in parts for key in part)


def lower_grouping_call(
    source: QueryText, scalars: Scalars, node: exp.Expr, keys: Sequence[Expr], excluded_keys: Sequence[Expr]
) -> Literal:
    """Lower GROUPING(x, …): one bit for each argument, the first one highest, which is 1 if the set omits the key."""
    bits = 0
    (arguments,) = source.take_arguments(node, "expressions")
    if len(arguments) > MAX_KEYS:
        source.refuse(node, "too_long", f"at most {MAX_KEYS} group keys")
    for argument in arguments:
        expr = scalars.lower(argument)
        if expr not in (*keys, *excluded_keys):
            source.refuse(argument, "group_by", "GROUPING may only name group keys")
        bits = 2 * bits + (expr in excluded_keys)
    return Literal(bits, Type.INTEGER)


# Windows over the groups of all grouping sets: the outputs of each set, and windows over these together.
#
# Claim: they are as private as the groups of the sets are.
# Why: the groups are released or public; windows over their union are post-processing.
# Source: Dwork, Roth 2014, Proposition 2.1.


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
