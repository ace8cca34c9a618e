"""Lower a SELECT over groups, on either side of the release boundary: its nodes and its clauses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, is_float
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Column, Expr, Literal, Order, Scalar, has_window, iterate_columns
from dpsql.plan.nodes import OuterQuery, Output, Relation, is_private
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates import BY_NODE
from dpsql.sql.lower.aggregates.base import GroupedRows, build_conditional_value
from dpsql.sql.lower.aggregates.chosen_values import ANY_VALUE
from dpsql.sql.lower.aggregates.lists import CONDITION, JOINED_TEXT, LIST_OF_VALUES
from dpsql.sql.lower.aggregates.quantiles import normalize_quantile_call
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.derived_tables import get_declared_name
from dpsql.sql.lower.from_clause import require_private_argument
from dpsql.sql.lower.group_keys import (
    GroupKeys,
    find_ordinal,
    find_unqualified_name,
    is_column,
    lower_grouping_call,
    strip_parentheses,
)
from dpsql.sql.lower.interval_ends import refuse_interval
from dpsql.sql.lower.joins import build_left_join
from dpsql.sql.lower.node_kinds import has_aggregate, is_quantified
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.quantified_comparisons import lower_quantified_comparison
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.star_expansion import Item, list_select_items
from dpsql.sql.lower.typed_calls import lower_grouped_typed_call
from dpsql.sql.lower.windows import check_named_windows, lower_window
from dpsql.sql.parse.own_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.typed_calls import is_typed_call

# AGGREGATE(x) FILTER (WHERE condition): the aggregate of x where the condition is true, and of NULL elsewhere.


def rewrite_filtered_aggregate(grouping: GroupedRows, node: exp.Filter) -> exp.AggFunc:
    """Return an aggregate without FILTER that means the same. Raises QueryRejected."""
    text = grouping.source
    aggregate, clause = text.take_arguments(node, "this", "expression")
    (condition,) = text.take_arguments(clause, "this")
    if isinstance(aggregate, (exp.AggFunc, exp.WithinGroup)):
        aggregate = normalize_quantile_call(text, aggregate)
    if type(aggregate) in LIST_OF_VALUES.nodes + JOINED_TEXT.nodes and CONDITION not in aggregate.meta:
        listed: exp.AggFunc = aggregate.copy()
        listed.meta[CONDITION] = condition
        return listed
    entry = BY_NODE.get(type(aggregate))
    if entry is None or not entry.filters:
        text.refuse(node, "aggregate", "FILTER is only allowed after an aggregate, such as COUNT, SUM or AVG")
    argument, other = text.take_arguments(aggregate, "this", "expression", big_int=(True,))
    if type(argument) is exp.Star:
        text.take_arguments(argument)
        argument = None
    if type(argument) is exp.Distinct:
        (items,) = text.take_arguments(argument, "expressions")
        chosen: exp.Expr = exp.Distinct(
            expressions=[build_conditional_value(condition, item) for item in items]
        )
    else:
        chosen = build_conditional_value(condition, exp.Literal.number(1) if argument is None else argument)
    built: exp.AggFunc = type(aggregate)(this=chosen, expression=other)
    return built


# Lower the nodes of a SELECT over groups, on either side of the release boundary.


_OF_EQUALS = (*ANY_VALUE.nodes, exp.Min, exp.Max)
"""Aggregates that return one of the values of a group."""


@dataclass(slots=True)
class Grouping(ABC):
    """The groups of the rows of `input`, and what the nodes of their SELECT mean after grouping.

    `group_by` owns the group keys, of which `known_keys` are given. `aliases` are the lowered SELECT items by their
    folded aliases, as far as they are lowered.

    Each kind of grouping defines what an aggregate or a group key is afterwards: a column of the released table, or one of a
    derived table.
    """

    scope: Scope
    select: exp.Select | exp.SetOperation
    input: Relation
    known_keys: InitVar[Sequence[Expr]] = ()
    aliases: dict[str, Expr] = field(default_factory=dict)
    group_by: GroupKeys = field(init=False)

    def __post_init__(self, known_keys: Sequence[Expr]) -> None:
        private = is_private(self.input)
        self.group_by = GroupKeys(self.scope, self.select, private, self.check_key, [*known_keys])

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
        """Return the text of the query."""
        return self.scope.source

    @property
    def keys(self) -> Sequence[Expr]:
        """Return the group keys."""
        return self.group_by.keys

    @property
    def window_rows(self) -> Relation:
        """Return the rows that windows are laid on."""
        return self.input

    @property
    def group_scalars(self) -> Scalars:
        """Lower expressions over the groups."""
        return replace(self.constant_scalars, intercept=self._lower_group_node)

    @property
    def constant_scalars(self) -> Scalars:
        """Lower expressions in which no column may stand."""
        context = self.scope.context
        return Scalars(self.source, context.parameters, context.time, self._refuse_ungrouped_column)

    @property
    def is_public_output(self) -> bool:
        """Return whether its output is released or public, so that windows may read it."""
        return not is_private(self.input)

    @property
    def output_scalars(self) -> Scalars:
        """Lower what is put out, chosen or ordered: expressions over the groups, and windows."""
        outer = self.group_scalars

        def lower_output_node(node: exp.Expr) -> Expr | None:
            if type(node) is exp.Window:
                return lower_window(self, node)
            if is_typed_call(node):
                return self._lower_typed_call(scalars, node)
            if _is_call(node, "typeof"):
                return _lower_typeof(self, node, scalars)
            if is_quantified(node) and node.this.find(exp.Window) is not None:
                return lower_quantified_comparison(self.scope, node, scalars.lower)
            alias = self._find_alias_value(node)
            return outer.intercept(node) if alias is None else alias

        scalars = replace(outer, intercept=lower_output_node)
        return scalars

    @property
    def having_scalars(self) -> Scalars:
        """Lower the condition on groups."""
        return replace(self.group_scalars, intercept=self._lower_having_node)

    def _lower_having_node(self, node: exp.Expr) -> Expr | None:
        """Lower a node over groups, where an unqualified name means a group key, then an alias, then a column, as in DuckDB."""
        name = find_unqualified_name(self.source, node)
        if name in self.aliases and is_column(self.scope, name):
            return self._find_key(node) or self.aliases[name]
        return self._lower_group_node(node)

    def apply_pending_joins(self) -> Relation:
        """Join the values of correlated subqueries to the rows, after everything else is lowered."""
        for item in self.scope.pending_joins or ():
            self.input = build_left_join(self.scope, self.input, item)
        self.scope.pending_joins = None
        return self.input

    @abstractmethod
    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the groups with these outputs, where they are released or public."""

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

    def _lower_group_node(self, node: exp.Expr) -> Expr | None:  # noqa: C901  (a case for each kind of node)
        """Return the column that a whole node means after grouping: an aggregate, a key or an alias."""
        if type(node) is exp.Grouping:
            return lower_grouping_call(
                self.source, self.scope.scalars, node, self.keys, self.group_by.excluded
            )
        if find_interval_end(node) is not None:
            return self.lower_interval_end(node) or self._find_key(node) or refuse_interval(self.source, node)
        if is_typed_call(node):
            return self._lower_typed_call(self.group_scalars, node)
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

    def _lower_typed_call(self, scalars: Scalars, node: exp.Expr) -> Expr | None:
        """Lower a call that a translation wrote: a group key, or a call whose type follows from what its aggregates read."""
        key = None if has_aggregate(node) else self._find_key(node)
        return key or lower_grouped_typed_call(scalars, self.scope.scalars, node)

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
        return Literal(None, Type.NULL) if expr in self.group_by.excluded else None

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
        name = find_unqualified_name(self.source, node)
        return None if name is None or is_column(self.scope, name) else self.aliases.get(name)

    def lower_interval_end(self, node: exp.Expr) -> Expr | None:  # noqa: ARG002  (what is not released has none)
        """Return the end of the interval of an aggregate, or None."""
        return None

    def lower_argument(self, node: exp.Expr) -> Expr:
        """Return the argument of an aggregate."""
        if has_aggregate(node):
            self.source.refuse(
                node,
                "nested_aggregate",
                "an aggregate cannot contain another aggregate: compute the inner one in a subquery",
            )
        return require_private_argument(self.scope, node, self.scope.scalars.lower(node))


def _is_call(node: exp.Expr, name: str) -> bool:
    """Return whether a node is a call of a function that has no node of its own."""
    return type(node) is exp.Anonymous and isinstance(node.this, str) and normalize_name(node.this) == name


def _lower_typeof(groups: Grouping, node: exp.Expr, scalars: Scalars) -> Literal:
    """Return the name of the type that a released value has, or a column of a public table."""
    _, items = groups.source.take_arguments(node, "this", "expressions")
    if len(items or ()) != 1:
        groups.source.refuse(node, "type", "TYPEOF takes one value")
    expr = scalars.lower(items[0])
    if not groups.is_public_output:
        groups.source.refuse(
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


# Lower the clauses of a SELECT over its groups: SELECT items, HAVING, QUALIFY, ORDER BY, LIMIT and OFFSET.


def lower_outputs(groups: Grouping, items: Sequence[Item]) -> list[tuple[str, Expr]]:
    """Return the SELECT items over the groups, each with its name; aliases are known from here on."""
    outputs = []
    for alias, node in items:
        expr = groups.output_scalars.lower(node)
        outputs.append((_get_output_name(groups, node, expr) if alias is None else alias, expr))
        if alias is not None:
            # A later alias hides an earlier one, as in DuckDB.
            groups.aliases[normalize_name(alias)] = expr
    return outputs


def _get_output_name(groups: Grouping, node: exp.Expr, expr: Expr) -> str:
    """Return the name of an output without an alias; for a column its declared name, however the query spells it."""
    for index, key in enumerate(groups.keys):
        if (
            isinstance(key, Column)
            and find_interval_end(node) is None
            and expr == groups.get_key_column(index)
        ):
            return get_declared_name(node, key)
    return format_output_name(node)


def lower_having(groups: Grouping) -> Expr | None:
    """Return the condition on groups."""
    having = groups.select.args.get("having")
    if having is None:
        return None
    (predicate,) = groups.source.take_arguments(having, "this")
    expr = groups.having_scalars.lower(predicate)
    if has_window(expr):
        groups.source.refuse(
            predicate, "qualify", "a window function is not allowed in HAVING", "write QUALIFY"
        )
    return _require_condition(groups, predicate, expr)


WITHOUT_WINDOWS = "without_windows"
"""The mark of QUALIFY over private rows in which released values stand for windows."""


def lower_qualify(groups: Grouping) -> Expr | None:
    """Lower QUALIFY, the condition on window values, after all outputs are known."""
    check_named_windows(groups)
    qualify = groups.select.args.get("qualify")
    if qualify is None:
        return None
    (predicate,) = groups.source.take_arguments(qualify, "this")
    expr = groups.output_scalars.lower(predicate)
    rewritten = qualify.meta.get(WITHOUT_WINDOWS) and not groups.is_public_output
    if not has_window(expr) and not rewritten:
        groups.source.refuse(
            predicate,
            "qualify",
            "QUALIFY needs a window function in its condition",
            "write WHERE or HAVING instead",
        )
    return _require_condition(groups, predicate, expr)


def _require_condition(groups: Grouping, node: exp.Expr, expr: Expr) -> Expr:
    if expr.type not in (Type.BOOLEAN, Type.NULL):
        groups.source.refuse(node, "type", f"a condition must be a BOOLEAN, not {expr.type}")
    return expr


def lower_order_by(groups: Grouping, outputs: Sequence[Output]) -> tuple[Order, ...]:
    """Lower ORDER BY over the outputs and the other values of the groups."""
    items = tuple(lower_order_item(groups, outputs, node) for node in list_order_items(groups, len(outputs)))
    # A constant has no effect on the order, whether it is known now or computed in an earlier step.
    # A HISTOGRAM differs between groups once it is emitted.
    return tuple(
        item
        for item in items
        if not isinstance(item.expr, (Literal, Scalar)) or (item.expr.type is Type.LIST and groups.keys)
    )


def lower_order_item(groups: Grouping, outputs: Sequence[Output], node: exp.Expr) -> Order:
    """Return an item of ORDER BY."""
    inner, descending, nulls_first = groups.source.take_arguments(node, "this", "desc", "nulls_first")
    bare = strip_parentheses(groups.source, inner)
    ordinal = find_ordinal(groups.source, bare)
    name = find_unqualified_name(groups.source, bare)
    if name in groups.aliases:
        # An unqualified name means an output first, and otherwise a column.
        expr = groups.aliases[name]
    elif ordinal is None:
        expr = groups.output_scalars.lower(inner)
        of_set = bool(groups.group_by.excluded) or inner.find(exp.Grouping) is not None
        if isinstance(expr, Literal) and not of_set:
            groups.source.refuse(
                node, "constant", "ORDER BY a constant has no effect", "leave it out of ORDER BY"
            )
    elif 1 <= ordinal <= len(outputs):
        expr = outputs[ordinal - 1].expr
    else:
        groups.source.refuse(node, "ordinal", f"ORDER BY {ordinal}: SELECT has {len(outputs)} columns")
    return Order(expr, bool(descending), bool(nulls_first))


def list_order_items(groups: Grouping, outputs: int) -> tuple[exp.Expr, ...]:
    """List the items of ORDER BY; those of ORDER BY ALL are the places of all outputs."""
    order = groups.select.args.get("order")
    if order is None:
        return ()
    (nodes,) = groups.source.take_arguments(order, "expressions")
    first = nodes[0]
    if len(nodes) > 1 or type(first.this) is not exp.Var or first.this.name.upper() != "ALL":
        return tuple(nodes)
    named, descending, nulls_first = groups.source.take_arguments(first, "this", "desc", "nulls_first")
    groups.source.take_arguments(named, "this")
    return tuple(
        exp.Ordered(this=exp.Literal.number(place), desc=descending, nulls_first=nulls_first)
        for place in range(1, outputs + 1)
    )


def is_output(groups: Grouping, outputs: Sequence[Output], node: exp.Expr) -> bool:
    """Return whether an item of ORDER BY names an output, by its place or its name."""
    bare = strip_parentheses(groups.source, node.this)
    return find_ordinal(groups.source, bare) is not None or find_unqualified_name(groups.source, bare) in {
        normalize_name(output.name) for output in outputs
    }


def lower_limit_or_offset(groups: Grouping, name: str) -> int | None:
    """Return the number of LIMIT or OFFSET."""
    clause = groups.select.args.get(name)
    if clause is None:
        return None
    if type(clause) is exp.Fetch:
        groups.source.refuse(
            clause,
            "clause",
            "FETCH is only supported as FETCH … ROWS ONLY",
            "to include ties: QUALIFY RANK() OVER (ORDER BY n DESC) <= 3",
        )
    (node,) = groups.source.take_arguments(clause, "expression")
    value = fold_constant(groups.source, node, groups.constant_scalars.lower(node))
    if not isinstance(value, Literal) or type(value.value) is not int or value.value < 0:
        groups.source.refuse(node, "constant", f"{name.upper()} takes a whole number that is not negative")
    return value.value


def lower_grouping_set(groups: Grouping, keys: Sequence[exp.Expr], every: Iterable[exp.Expr]) -> OuterQuery:
    """Return the groups of one grouping set, and its outputs; keys that only other sets have are NULL.

    Windows in the outputs and in QUALIFY are over the groups of all sets. `order` has the items of ORDER BY that are not
    outputs.
    """
    items = list_select_items(groups.scope, groups.select)
    groups.group_by.add_items(keys, items)
    groups.group_by.exclude_items(every, items)
    outputs = tuple(Output(name, expr) for name, expr in lower_outputs(groups, items))
    qualify = lower_qualify(groups)
    order = tuple(
        lower_order_item(groups, outputs, node)
        for node in list_order_items(groups, len(outputs))
        if not is_output(groups, outputs, node)
    )
    return replace(groups.build_outer_query(outputs, lower_having(groups)), qualify=qualify, order=order)


def format_output_name(node: exp.Expr) -> str:
    """Return the name of an output without an alias; only for lowered nodes."""
    if type(node) is exp.Column and type(node.this) is exp.Identifier:
        return str(node.this.this)
    if type(node) is exp.Count and type(node.this) is exp.Star:
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower", comments=False)[:200]
