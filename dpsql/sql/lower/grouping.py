"""Lower a SELECT with GROUP BY or aggregates on either side of the release boundary.

Group keys, aliases and ordinals are resolved as DuckDB does. What an aggregate or a key is afterwards,
a released column or one of a derived table, the two kinds of grouping say for themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, is_float
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Column, Expr, Literal, Order, Scalar, has_window, iterate_columns
from dpsql.plan.nodes import OuterQuery, Output, Relation, is_private
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregate_filter import rewrite_filtered_aggregate
from dpsql.sql.lower.aggregates.any_value import ANY_VALUE
from dpsql.sql.lower.aggregates.quantiles import normalize_quantile_call
from dpsql.sql.lower.constants import fold_constant, is_constant
from dpsql.sql.lower.derived_tables import get_declared_name
from dpsql.sql.lower.grouping_sets import MAX_KEYS, list_keys, lower_grouping_call
from dpsql.sql.lower.interval_ends import get_interval_argument, refuse_interval
from dpsql.sql.lower.joins import build_left_join
from dpsql.sql.lower.node_kinds import is_quantified
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.public_left_joins import require_private_argument
from dpsql.sql.lower.quantified_comparisons import lower_quantified_comparison
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.star_expansion import expand_star_item
from dpsql.sql.lower.unknown_syntax import refuse_constant_key
from dpsql.sql.lower.windows import check_named_windows, lower_window
from dpsql.sql.parse.interval_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText

MAX_OUTPUTS = 100

_OF_EQUALS = (*ANY_VALUE.nodes, exp.Min, exp.Max)
"""Aggregates that return one of the values of a group."""

Item = tuple[str | None, exp.Expr]
"""A SELECT item: its alias, if there is one, and its expression."""


@dataclass(slots=True)
class Grouping(ABC):
    """One SELECT over the rows of `input`, grouped by `keys`."""

    scope: Scope
    select: exp.Select | exp.SetOperation
    input: Relation
    keys: list[Expr] = field(default_factory=list)
    excluded_keys: list[Expr] = field(default_factory=list)
    aliases: dict[str, Expr] = field(default_factory=dict)
    is_one_group: bool = False
    """Whether all keys are constants, so that all rows form one group, which only exists if there are rows."""

    @abstractmethod
    def get_key_column(self, index: int) -> Expr:
        """Return a key as the columns after grouping know it."""

    @abstractmethod
    def lower_aggregate(self, node: exp.AggFunc) -> Expr:
        """Return an aggregate as the columns after grouping know it."""

    @abstractmethod
    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Refuse an expression that cannot be a group key on this side of the release."""

    @property
    def source(self) -> QueryText:
        """The text of the query."""
        return self.scope.source

    @property
    def window_rows(self) -> Relation:
        """The rows that windows are laid on."""
        return self.input

    @property
    def group_scalars(self) -> Scalars:
        """Lowers expressions over the groups."""
        return replace(self._constant_scalars, intercept=self._lower_group_node)

    @property
    def _constant_scalars(self) -> Scalars:
        """Lowers expressions in which no column may stand."""
        context = self.scope.context
        return Scalars(self.source, context.parameters, context.time, self._refuse_ungrouped_column)

    @property
    def is_public_output(self) -> bool:
        """Whether its output is released or public, so that windows may read it."""
        return not is_private(self.input)

    @property
    def output_scalars(self) -> Scalars:
        """Lowers what is put out, chosen or ordered: expressions over the groups, and windows."""
        outer = self.group_scalars

        def lower_output_node(node: exp.Expr) -> Expr | None:
            if type(node) is exp.Window:
                return lower_window(self, node)
            if _is_call(node, "typeof"):
                return self._lower_typeof(node, scalars)
            if is_quantified(node) and node.this.find(exp.Window) is not None:
                return lower_quantified_comparison(self.scope, node, scalars.lower)
            alias = self._find_alias_value(node)
            return outer.intercept(node) if alias is None else alias

        scalars = replace(outer, intercept=lower_output_node)
        return scalars

    def _lower_typeof(self, node: exp.Expr, scalars: Scalars) -> Literal:
        """Return the name of the type that a released value has, or a column of a public table."""
        _, items = self.source.take_arguments(node, "this", "expressions")
        if len(items or ()) != 1:
            self.source.refuse(node, "type", "TYPEOF takes one value")
        expr = scalars.lower(items[0])
        if not self.is_public_output:
            self.source.refuse(
                node,
                "type",
                "TYPEOF is only allowed over released values",
                "write SELECT typeof(COUNT(*)) FROM …",
            )
        stored = expr.facts.engine_type if isinstance(expr, Column) else ""
        digits = find_decimal_digits(expr)
        made = "FLOAT" if is_float(expr) else str(expr.type)
        made = made if digits is None else f"DECIMAL({digits[0]},{digits[1]})"
        return Literal(stored or made, Type.VARCHAR)

    def list_items(self) -> list[Item]:
        """List the SELECT items."""
        grouped = bool(self.select.args.get("group"))
        items: list[Item] = []
        for node in self.select.expressions:
            columns = expand_star_item(self.scope, node, grouped=grouped)
            items += [self._split_alias(node)] if columns is None else columns
        if not items or len(items) > MAX_OUTPUTS:
            self.source.refuse(
                self.select, "too_long", f"SELECT must name between 1 and {MAX_OUTPUTS} columns"
            )
        return items

    def _split_alias(self, node: exp.Expr) -> Item:
        if type(node) is not exp.Alias:
            return None, node
        inner, identifier = self.source.take_arguments(node, "this", "alias")
        return str(self.source.take_arguments(identifier, "this", quoted=(True,))[0]), inner

    def lower_outputs(self, items: Sequence[Item]) -> list[tuple[str, Expr]]:
        """Return the SELECT items over the groups, each with its name; aliases are known from here on."""
        outputs = []
        for alias, node in items:
            expr = self.output_scalars.lower(node)
            outputs.append((self._get_output_name(node, expr) if alias is None else alias, expr))
            if alias is not None:
                # A later alias hides an earlier one, as in DuckDB.
                self.aliases[normalize_name(alias)] = expr
        return outputs

    def _get_output_name(self, node: exp.Expr, expr: Expr) -> str:
        """Return the name of an output without an alias; for a column its declared name, however the query spells it."""
        for index, key in enumerate(self.keys):
            if (
                isinstance(key, Column)
                and find_interval_end(node) is None
                and expr == self.get_key_column(index)
            ):
                return get_declared_name(node, key)
        return _format_output_name(node)

    def lower_having(self) -> Expr | None:
        """Return the condition on groups."""
        having = self.select.args.get("having")
        if having is None:
            return None
        (predicate,) = self.source.take_arguments(having, "this")
        expr = replace(self.group_scalars, intercept=self._lower_having_node).lower(predicate)
        if has_window(expr):
            self.source.refuse(
                predicate, "qualify", "a window function is not allowed in HAVING", "write QUALIFY"
            )
        return self._require_condition(predicate, expr)

    def _lower_having_node(self, node: exp.Expr) -> Expr | None:
        """Lower a node over groups, where an unqualified name means a group key, then an alias, then a column, as in DuckDB."""
        name = self.find_unqualified_name(node)
        if name in self.aliases and self.is_column(name):
            return self._find_key(node) or self.aliases[name]
        return self._lower_group_node(node)

    def lower_qualify(self) -> Expr | None:
        """Lower QUALIFY, the condition on window values, after all outputs are known."""
        check_named_windows(self)
        qualify = self.select.args.get("qualify")
        if qualify is None:
            return None
        (predicate,) = self.source.take_arguments(qualify, "this")
        expr = self.output_scalars.lower(predicate)
        if not has_window(expr):
            self.source.refuse(
                predicate,
                "qualify",
                "QUALIFY needs a window function in its condition",
                "write WHERE or HAVING instead",
            )
        return self._require_condition(predicate, expr)

    def _require_condition(self, node: exp.Expr, expr: Expr) -> Expr:
        if expr.type not in (Type.BOOLEAN, Type.NULL):
            self.source.refuse(node, "type", f"a condition must be a BOOLEAN, not {expr.type}")
        return expr

    def resolve_group_by(self, items: Sequence[Item]) -> None:
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
        targets = [(node, self._resolve_group_item(node, items)) for node in nodes or ()]
        # Next to other keys, a constant changes no groups; alone, it makes one group.
        varying = [node for node, target in targets if not self.is_constant_key(target)]
        self.is_one_group = bool(nodes) and not varying and is_private(self.input)
        self.add_group_keys([] if self.is_one_group else varying or nodes, items)

    def _reads_only_aliases(self, node: exp.Expr, before: Sequence[Item]) -> bool:
        """Return whether an item reads nothing but aliases of items before it, which are keys or aggregates: each group has one value."""
        named = {normalize_name(alias) for alias, _ in before if alias is not None}
        read = [self.find_unqualified_name(part) for part in node.find_all(exp.Column)]
        nested = node.find(exp.Query, exp.Window) is not None
        return bool(read) and not nested and all(name in named and not self.is_column(name) for name in read)

    def is_constant_key(self, node: exp.Expr) -> bool:
        """Return whether a group key has one value for all rows."""
        reads = node.find(exp.Column, exp.Subquery, exp.Window) is not None or has_aggregate(node)
        return not reads and is_constant(self.scope.scalars.lower(node))

    def _is_interval_of_output(self, node: exp.Expr, items: Sequence[Item]) -> bool:
        """Return whether a node asks for the interval of an aggregate by its alias."""
        named = {normalize_name(alias) for alias, item in items if alias is not None and has_aggregate(item)}
        asked = (
            get_interval_argument(self.source, part)
            for part in node.walk()
            if find_interval_end(part) is not None
        )
        return any(self.find_unqualified_name(part) in named for part in asked)

    def add_group_keys(self, nodes: Iterable[exp.Expr], items: Sequence[Item]) -> None:
        """Make items of GROUP BY keys."""
        for node in nodes:
            self.add_group_key(node, self._resolve_group_item(node, items))
            if len(self.keys) > MAX_KEYS:
                group = self.select.args.get("group") or node
                self.source.refuse(group, "too_long", f"at most {MAX_KEYS} group keys")

    def apply_pending_joins(self) -> Relation:
        """Join the values of correlated subqueries to the rows, after everything else is lowered."""
        for item in self.scope.pending_joins or ():
            self.input = build_left_join(self.scope, self.input, item)
        self.scope.pending_joins = None
        return self.input

    def lower_grouping_set(self, keys: Sequence[exp.Expr], every: Iterable[exp.Expr]) -> OuterQuery:
        """Return the groups of one grouping set, and its outputs; keys that only other sets have are NULL.

        Windows among the outputs, and what QUALIFY asks, are over the groups of all sets. Of ORDER BY it has what is no output.
        """
        items = self.list_items()
        self.add_group_keys(keys, items)
        self.exclude_keys(every, items)
        outputs = tuple(Output(name, expr) for name, expr in self.lower_outputs(items))
        qualify = self.lower_qualify()
        order = tuple(
            self.lower_order_item(outputs, node)
            for node in self.list_order_items(len(outputs))
            if not self.is_output(outputs, node)
        )
        return replace(self.build_outer_query(outputs, self.lower_having()), qualify=qualify, order=order)

    @abstractmethod
    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the groups with these outputs, where they are released or public."""

    def exclude_keys(self, nodes: Iterable[exp.Expr], items: Sequence[Item]) -> None:
        """Make items of GROUP BY NULL in each group, except for its keys."""
        found = [
            round_to_decimal(self.scope.scalars.lower(self._resolve_group_item(node, items)))
            for node in nodes
        ]
        self.excluded_keys += [expr for expr in found if expr not in self.keys]

    def add_group_key(self, node: exp.Expr, target: exp.Expr) -> None:
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
            keys = [item for _, item in self.list_items() if not has_aggregate(item)] if of_all else None
            refuse_constant_key(self.source, node, target, keys)
        self.check_key(node, expr)
        if expr not in self.keys:
            self.keys.append(expr)

    def _resolve_group_item(self, node: exp.Expr, items: Sequence[Item]) -> exp.Expr:
        """Return the expression that a GROUP BY item means: itself, a SELECT item's ordinal or its alias."""
        node = self.strip_parentheses(node)
        ordinal = self.find_ordinal(node)
        if ordinal is not None:
            if not 1 <= ordinal <= len(items):
                self.source.refuse(node, "ordinal", f"GROUP BY {ordinal}: SELECT has {len(items)} columns")
            return items[ordinal - 1][1]
        name = self.find_unqualified_name(node)
        if name is not None and not self.is_column(name):
            for alias, target in reversed(items):
                if alias is not None and normalize_name(alias) == name:
                    return target
        return node

    def find_unqualified_name(self, node: exp.Expr) -> str | None:
        """Find the folded name of a column without a table, which may be an alias."""
        if type(node) is not exp.Column or type(node.this) is not exp.Identifier or node.args.get("table"):
            return None
        (identifier,) = self.source.take_arguments(node, "this")
        return normalize_name(str(self.source.take_arguments(identifier, "this", quoted=(True,))[0]))

    def find_ordinal(self, node: exp.Expr) -> int | None:
        """Find the number of an output that a node is."""
        if type(node) is not exp.Literal or node.is_string or not str(node.this).isdigit():
            return None
        text, _ = self.source.take_arguments(node, "this", "is_string")
        return int(text)

    def is_column(self, name: str) -> bool:
        """Return whether a folded name is a column of FROM."""
        return any(name in named.columns for named in self.scope.tables.values())

    def strip_parentheses(self, node: exp.Expr) -> exp.Expr:
        """Return the node within parentheses."""
        while type(node) is exp.Paren:
            (node,) = self.source.take_arguments(node, "this")
        return node

    def _refuse_ungrouped_column(self, node: exp.Column) -> Expr:
        column = self.scope.resolve_column(node)
        name = column.name
        grouped = self.select.args.get("group") or any(map(has_aggregate, self.select.expressions))
        rows = is_private(self.input) and not grouped
        self.source.refuse(
            node,
            "group_by",
            f"{name} {'would be released row by row: it ' * rows}is neither in GROUP BY nor in an aggregate",
            f"count the privacy units: COUNT(DISTINCT {name})"
            if column.facts.is_unit
            else f"add it to GROUP BY, or aggregate it: {'AVG' if column.type.numeric else 'COUNT'}({name})",
        )

    def _lower_group_node(self, node: exp.Expr) -> Expr | None:
        """Return the column that a whole node means after grouping: an aggregate, a key or an alias."""
        if type(node) is exp.Grouping:
            return lower_grouping_call(self.source, self.scope.scalars, node, self.keys, self.excluded_keys)
        if find_interval_end(node) is not None:
            return self.lower_interval_end(node) or self._find_key(node) or refuse_interval(self.source, node)
        key = self._find_aggregated_key(node)
        if key is not None:
            return key
        if type(node) is exp.IgnoreNulls and type(node.this) is exp.AnyValue:
            (node,) = self.source.take_arguments(node, "this")  # so the parser writes ANY_VALUE
        if isinstance(node, (exp.AggFunc, exp.WithinGroup)):
            return self.lower_aggregate(normalize_quantile_call(self.source, node))
        if isinstance(node, (exp.Subquery, exp.Filter)):
            return (
                self.lower_aggregate(rewrite_filtered_aggregate(self, node))
                if type(node) is exp.Filter
                else self._lower_subquery_value(node)
            )
        if is_quantified(node):
            key = None if has_aggregate(node.this) else self._find_key(node)
            return (
                lower_quantified_comparison(self.scope, node, self.group_scalars.lower)
                if key is None
                else key
            )
        alias = self._find_alias_value(node)
        if alias is not None:
            return alias
        if isinstance(node, (exp.Literal, exp.Null, exp.Boolean)) or has_aggregate(node):
            return None
        return self._find_key(node)

    def _find_aggregated_key(self, node: exp.Expr) -> Expr | None:
        """Find the group key that a call chooses a value of: all values of a group are its key.

        Claim: ANY_VALUE, FIRST, LAST, MIN and MAX of a group key are the key, if the group has a row.
        Why: the key has one value in all rows of a group. `lower_aggregate_of_key` decides about a group that is shown without a row.
        Source: ISO/IEC 9075-2, <any value>, and <group by clause>: rows of a group are not distinct in its columns.
        """
        if type(node) is exp.IgnoreNulls:
            (node,) = self.source.take_arguments(node, "this")
        if type(node) not in _OF_EQUALS or type(node.this) is exp.Distinct or node.this is None:
            return None
        if any(value for name, value in node.args.items() if name != "this"):
            return None
        key = None if has_aggregate(node.this) else self._find_key(node.this)
        return None if key is None or isinstance(key, Literal) else self.lower_aggregate_of_key(node, key)

    def lower_aggregate_of_key(self, node: exp.Expr, key: Expr) -> Expr:  # noqa: ARG002  (groups of a release need it)
        """Return MIN and the like of a group key, which is the key itself, since each group has a row."""
        return key

    def _find_key(self, node: exp.Expr) -> Expr | None:
        """Return the group key that a node means, or NULL if the grouping set omits it."""
        try:
            expr = round_to_decimal(self.scope.scalars.lower(node))
        except QueryRejected:
            return None
        if expr in self.keys:
            return self.get_key_column(self.keys.index(expr))
        return Literal(None, Type.NULL) if expr in self.excluded_keys else None

    def _lower_subquery_value(self, node: exp.Expr) -> Expr:
        """Return the value of a scalar subquery, or the group key that it is."""
        expr = round_to_decimal(self.scope.lower_scalar_subquery(node))
        if expr in self.keys:
            return self.get_key_column(self.keys.index(expr))
        if any(iterate_columns(expr)):
            self.source.refuse(
                node,
                "subquery",
                "a scalar subquery must not depend on the group",
                "group in a derived table, and write the subquery in the outer SELECT",
            )
        return expr

    def _find_alias_value(self, node: exp.Expr) -> Expr | None:
        """Return the expression behind an unqualified name that is an alias and no column."""
        name = self.find_unqualified_name(node)
        return None if name is None or self.is_column(name) else self.aliases.get(name)

    def lower_interval_end(self, node: exp.Expr) -> Expr | None:  # noqa: ARG002  (what is not released has none)
        """Return the end of the interval of an aggregate, or None."""
        return None

    def lower_order_by(self, outputs: Sequence[Output]) -> tuple[Order, ...]:
        """Lower ORDER BY over the outputs and the other values of the groups."""
        items = tuple(self.lower_order_item(outputs, node) for node in self.list_order_items(len(outputs)))
        # A constant has no effect on the order, whether it is known now or computed in an earlier step.
        # A HISTOGRAM differs between groups once it is emitted.
        return tuple(
            item
            for item in items
            if not isinstance(item.expr, (Literal, Scalar)) or (item.expr.type is Type.LIST and self.keys)
        )

    def is_output(self, outputs: Sequence[Output], node: exp.Expr) -> bool:
        """Return whether an item of ORDER BY names an output, by its place or its name."""
        bare = self.strip_parentheses(node.this)
        return self.find_ordinal(bare) is not None or self.find_unqualified_name(bare) in {
            normalize_name(output.name) for output in outputs
        }

    def list_order_items(self, outputs: int) -> tuple[exp.Expr, ...]:
        """List the items of ORDER BY; those of ORDER BY ALL are the places of all outputs."""
        order = self.select.args.get("order")
        if order is None:
            return ()
        (nodes,) = self.source.take_arguments(order, "expressions")
        first = nodes[0]
        if len(nodes) > 1 or type(first.this) is not exp.Var or first.this.name.upper() != "ALL":
            return tuple(nodes)
        named, descending, nulls_first = self.source.take_arguments(first, "this", "desc", "nulls_first")
        self.source.take_arguments(named, "this")
        return tuple(
            exp.Ordered(this=exp.Literal.number(place), desc=descending, nulls_first=nulls_first)
            for place in range(1, outputs + 1)
        )

    def lower_order_item(self, outputs: Sequence[Output], node: exp.Expr) -> Order:
        """Return an item of ORDER BY."""
        inner, descending, nulls_first = self.source.take_arguments(node, "this", "desc", "nulls_first")
        bare = self.strip_parentheses(inner)
        ordinal = self.find_ordinal(bare)
        name = self.find_unqualified_name(bare)
        if name in self.aliases:
            # An unqualified name means an output first, and otherwise a column.
            expr = self.aliases[name]
        elif ordinal is None:
            expr = self.output_scalars.lower(inner)
            of_set = bool(self.excluded_keys) or inner.find(exp.Grouping) is not None
            if isinstance(expr, Literal) and not of_set:
                self.source.refuse(
                    node, "constant", "ORDER BY a constant has no effect", "leave it out of ORDER BY"
                )
        elif 1 <= ordinal <= len(outputs):
            expr = outputs[ordinal - 1].expr
        else:
            self.source.refuse(node, "ordinal", f"ORDER BY {ordinal}: SELECT has {len(outputs)} columns")
        return Order(expr, bool(descending), bool(nulls_first))

    def lower_limit_or_offset(self, name: str) -> int | None:
        """Return the number of LIMIT or OFFSET."""
        clause = self.select.args.get(name)
        if clause is None:
            return None
        if type(clause) is exp.Fetch:
            self.source.refuse(
                clause,
                "clause",
                "FETCH is only supported as FETCH … ROWS ONLY",
                "to include ties: QUALIFY RANK() OVER (ORDER BY n DESC) <= 3",
            )
        (node,) = self.source.take_arguments(clause, "expression")
        value = fold_constant(self.source, node, self._constant_scalars.lower(node))
        if not isinstance(value, Literal) or type(value.value) is not int or value.value < 0:
            self.source.refuse(node, "constant", f"{name.upper()} takes a whole number that is not negative")
        return value.value

    def lower_argument(self, node: exp.Expr) -> Expr:
        """Return the argument of an aggregate."""
        if has_aggregate(node):
            self.source.refuse(
                node,
                "nested_aggregate",
                "an aggregate cannot contain another aggregate: compute the inner one in a subquery",
            )
        return require_private_argument(self.scope, node, self.scope.scalars.lower(node))


def _format_output_name(node: exp.Expr) -> str:
    """Return the name of an output without an alias; only for lowered nodes."""
    if type(node) is exp.Column and type(node.this) is exp.Identifier:
        return str(node.this.this)
    if type(node) is exp.Count and type(node.this) is exp.Star:
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower", comments=False)[:200]


def _is_call(node: exp.Expr, name: str) -> bool:
    """Return whether a node is a call of a function that has no node of its own."""
    return type(node) is exp.Anonymous and isinstance(node.this, str) and normalize_name(node.this) == name


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether a node holds an aggregate of groups outside of subqueries; it steers the lowering, and accepts nothing."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.AggFunc) and not is_over_window(part) for part in parts)


def is_over_window(node: exp.Expr) -> bool:
    """Return whether an aggregate is one over a window."""
    part: exp.Expr | None = node
    while part is not None and part.arg_key == "this":
        part = part.parent
        if type(part) not in (exp.Filter, exp.IgnoreNulls, exp.RespectNulls):
            return type(part) is exp.Window
    return False
