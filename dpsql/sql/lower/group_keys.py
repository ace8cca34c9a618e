"""Resolve GROUP BY to the group keys of a SELECT, as DuckDB does: expressions, ordinals, aliases, ALL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.plan.expressions import Expr, iterate_columns
from dpsql.policy import normalize_name
from dpsql.sql.lower.constants import is_constant
from dpsql.sql.lower.grouping_sets import MAX_KEYS, list_keys
from dpsql.sql.lower.interval_ends import get_interval_argument
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.references import find_ordinal, find_unqualified_name, is_column, strip_parentheses
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.star_expansion import Item, list_select_items
from dpsql.sql.lower.unknown_syntax import refuse_constant_key
from dpsql.sql.parse.interval_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText


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
        """The text of the query."""
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

    def add(self, node: exp.Expr, target: exp.Expr) -> None:
        """Make the expression that an item of GROUP BY means a key."""
        if has_aggregate(target) or target.find(exp.Window):
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
