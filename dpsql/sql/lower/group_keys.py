"""Resolve GROUP BY to group keys as DuckDB does: expressions, ordinals, aliases, ALL, ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
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
    iterate_columns,
    replace_parts,
)
from dpsql.plan.nodes import OuterQuery, Output
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.constants import is_constant
from dpsql.sql.lower.derived_tables import make_unique_names
from dpsql.sql.lower.interval_ends import get_interval_argument
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.star_expansion import Item, list_select_items
from dpsql.sql.lower.statement_context import CrossingWindow
from dpsql.sql.lower.unknown_syntax import refuse_constant_key
from dpsql.sql.parse.own_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText

# Read what an item of GROUP BY or ORDER BY refers to: an output by its place or its alias, or an expression.


def find_unqualified_name(text: QueryText, node: exp.Expr) -> str | None:
    """Find the folded name of a column without a table, which may be an alias."""
    if type(node) is not exp.Column or type(node.this) is not exp.Identifier or node.args.get("table"):
        return None
    (identifier,) = text.take_arguments(node, "this")
    return normalize_name(str(text.take_arguments(identifier, "this", quoted=(True,))[0]))


def find_ordinal(text: QueryText, node: exp.Expr) -> int | None:
    """Find the number of an output that a node is."""
    if type(node) is not exp.Literal or node.is_string or not str(node.this).isdigit():
        return None
    digits, _ = text.take_arguments(node, "this", "is_string")
    return int(digits)


def strip_parentheses(text: QueryText, node: exp.Expr) -> exp.Expr:
    """Return the node within parentheses."""
    while type(node) is exp.Paren:
        (node,) = text.take_arguments(node, "this")
    return node


def is_column(scope: Scope, name: str) -> bool:
    """Return whether a folded name is a column of FROM."""
    return any(name in named.columns for named in scope.tables.values())


# Lower ROLLUP, CUBE and GROUPING SETS to one SELECT per grouping set.


MAX_KEYS = 60
"""The most keys of a SELECT; GROUPING, a bit for each, is then a BIGINT."""
MAX_SETS = 32
"""The most grouping sets, each of which is a release."""
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
Sets = list[tuple[exp.Expr, ...]]


def find_grouping_sets(source: QueryText, group: exp.Expr | None) -> Sets | None:
    """Return the keys of each set that GROUP BY asks for, None where it asks for plain groups.

    Claim: a query with grouping sets is the UNION ALL of one release per set, and its loss is the sum of their losses.
    Why: each set is a SELECT over the same rows, in which the other keys are NULL. Each is analyzed, charged and noised like any
    other release of the statement.
    Source: ISO/IEC 9075-2, <grouping sets specification>, which defines them by that union.
    """
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


@dataclass(slots=True)
class GroupingSetParts:
    """The expressions of one grouping set, as `shapes` over `parts`, which have no windows in them.

    Claim: they are as private as the groups of the sets are.
    Why: the groups are released or public; windows over their union are post-processing.
    Source: Dwork, Roth 2014, Proposition 2.1.
    """

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


# Resolve GROUP BY to the group keys of a SELECT, as DuckDB does: expressions, ordinals, aliases, ALL.


@dataclass(slots=True)
class GroupKeys:
    """The group keys of a SELECT, and those that only other grouping sets of it have, which are NULL in its groups.

    `private` says whether the rows are private ones. `check` refuses an expression that cannot be a key on this side of
    the release. With `is_one_group` all items of GROUP BY are constants, so that all rows form one group, which only
    exists if there are rows.
    """

    scope: Scope
    select: exp.Select | exp.SetOperation
    private: bool
    check: Callable[[exp.Expr, Expr], None]
    keys: list[Expr] = field(default_factory=list)
    excluded: list[Expr] = field(default_factory=list)
    is_one_group: bool = False

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""
        return self.scope.source

    def resolve(self, items: Sequence[Item]) -> None:
        """Resolve GROUP BY."""
        group = self.select.args.get("group")
        if group is None:
            return
        nodes, every = self.source.take_arguments(group, "expressions", "all")
        nodes = list_keys(self.source, nodes or ())
        if every:
            nodes = [
                node
                for place, (_, node) in enumerate(items)
                if not has_aggregate(node)
                and not self._is_interval_of_output(node, items)
                and not self._reads_only_aliases(node, items[:place])
            ]
        targets = [(node, self._resolve_item(node, items)) for node in nodes or ()]
        # Next to other keys, a constant changes no groups; alone, it makes one group.
        varying = [node for node, target in targets if not self.is_constant(target)]
        self.is_one_group = bool(nodes) and not varying and self.private
        self.add_items([] if self.is_one_group else varying or nodes, items)

    def add_items(self, nodes: Iterable[exp.Expr], items: Sequence[Item]) -> None:
        """Make items of GROUP BY keys."""
        for node in nodes:
            self.add(node, self._resolve_item(node, items))
            if len(self.keys) > MAX_KEYS:
                group = self.select.args.get("group") or node
                self.source.refuse(group, "too_long", f"at most {MAX_KEYS} group keys")

    def exclude_items(self, nodes: Iterable[exp.Expr], items: Sequence[Item]) -> None:
        """Make items of GROUP BY NULL in each group, except for its keys."""
        found = [
            round_to_decimal(self.scope.scalars.lower(self._resolve_item(node, items))) for node in nodes
        ]
        self.excluded += [expr for expr in found if expr not in self.keys]

    def _note_distinct_window(self, target: exp.Expr) -> None:
        """Note a window among distinct values, which may be one value for each group."""
        window = target.find(exp.Window)
        if window is None or not self.select.args.get("distinct") or self.select.args.get("group"):
            return
        partition, order, frame = (window.args.get(name) for name in ("partition_by", "order", "spec"))
        if window.args.get("alias") is None and not (order and frame):  # an order is not checked here
            self.scope.context.crossing_windows.append(CrossingWindow(window, partition or (), order, frame))

    def add(self, node: exp.Expr, target: exp.Expr) -> None:
        """Make the expression that an item of GROUP BY means a key."""
        if has_aggregate(target) or target.find(exp.Window):
            self._note_distinct_window(target)
            self.source.refuse(
                node,
                "group_by",
                "an aggregate or window function cannot be a group key",
                "leave it out of GROUP BY",
            )
        expr = round_to_decimal(self.scope.scalars.lower(target))
        if not any(iterate_columns(expr)):
            group = self.select.args.get("group")
            of_all = group is not None and bool(group.args.get("all"))
            keys = (
                [item for _, item in list_select_items(self.scope, self.select) if not has_aggregate(item)]
                if of_all
                else None
            )
            refuse_constant_key(self.source, node, target, keys)
        self.check(node, expr)
        if expr not in self.keys:
            self.keys.append(expr)

    def is_constant(self, node: exp.Expr) -> bool:
        """Return whether a group key has one value for all rows."""
        reads = node.find(exp.Column, exp.Subquery, exp.Window) is not None or has_aggregate(node)
        return not reads and is_constant(self.scope.scalars.lower(node))

    def _resolve_item(self, node: exp.Expr, items: Sequence[Item]) -> exp.Expr:
        """Return the expression that a GROUP BY item means: itself, a SELECT item's ordinal or its alias."""
        node = strip_parentheses(self.source, node)
        ordinal = find_ordinal(self.source, node)
        if ordinal is not None:
            if not 1 <= ordinal <= len(items):
                self.source.refuse(node, "ordinal", f"GROUP BY {ordinal}: SELECT has {len(items)} columns")
            return items[ordinal - 1][1]
        name = find_unqualified_name(self.source, node)
        if name is not None and not is_column(self.scope, name):
            for alias, target in reversed(items):
                if alias is not None and normalize_name(alias) == name:
                    return target
        return node

    def _reads_only_aliases(self, node: exp.Expr, before: Sequence[Item]) -> bool:
        """Return whether an item reads nothing but aliases of items before it, which are keys or aggregates: each group has one value."""
        named = {normalize_name(alias) for alias, _ in before if alias is not None}
        read = [find_unqualified_name(self.source, part) for part in node.find_all(exp.Column)]
        nested = node.find(exp.Query, exp.Window) is not None
        return (
            bool(read)
            and not nested
            and all(name in named and not is_column(self.scope, name) for name in read)
        )

    def _is_interval_of_output(self, node: exp.Expr, items: Sequence[Item]) -> bool:
        """Return whether a node asks for the interval of an aggregate by its alias."""
        named = {normalize_name(alias) for alias, item in items if alias is not None and has_aggregate(item)}
        asked = (
            get_interval_argument(self.source, part)
            for part in node.walk()
            if find_interval_end(part) is not None
        )
        return any(find_unqualified_name(self.source, part) in named for part in asked)
