"""Lower the nodes of a SELECT over groups, on either side of the release boundary.

Each kind of grouping defines what an aggregate or a group key is afterwards: a column of the released table, or one of a
derived table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, is_float
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Column, Expr, Literal, iterate_columns
from dpsql.plan.nodes import OuterQuery, Output, Relation, is_private
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregate_filter import rewrite_filtered_aggregate
from dpsql.sql.lower.aggregates.any_value import ANY_VALUE
from dpsql.sql.lower.aggregates.quantiles import normalize_quantile_call
from dpsql.sql.lower.group_keys import GroupKeys
from dpsql.sql.lower.grouping_sets import lower_grouping_call
from dpsql.sql.lower.interval_ends import refuse_interval
from dpsql.sql.lower.joins import build_left_join
from dpsql.sql.lower.node_kinds import has_aggregate, is_quantified
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.public_left_joins import require_private_argument
from dpsql.sql.lower.quantified_comparisons import lower_quantified_comparison
from dpsql.sql.lower.references import find_unqualified_name, is_column
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.windows import lower_window
from dpsql.sql.parse.interval_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText

_OF_EQUALS = (*ANY_VALUE.nodes, exp.Min, exp.Max)
"""Aggregates that return one of the values of a group."""


@dataclass(slots=True)
class Grouping(ABC):
    """The groups of the rows of `input`, and what the nodes of their SELECT mean after grouping.

    `group_by` owns the group keys, of which `known_keys` are given. `aliases` are the lowered SELECT items by their
    folded aliases, as far as they are lowered.
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
        """The text of the query."""
        return self.scope.source

    @property
    def keys(self) -> Sequence[Expr]:
        """The group keys."""
        return self.group_by.keys

    @property
    def window_rows(self) -> Relation:
        """The rows that windows are laid on."""
        return self.input

    @property
    def group_scalars(self) -> Scalars:
        """Lowers expressions over the groups."""
        return replace(self.constant_scalars, intercept=self._lower_group_node)

    @property
    def constant_scalars(self) -> Scalars:
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
                return _lower_typeof(self, node, scalars)
            if is_quantified(node) and node.this.find(exp.Window) is not None:
                return lower_quantified_comparison(self.scope, node, scalars.lower)
            alias = self._find_alias_value(node)
            return outer.intercept(node) if alias is None else alias

        scalars = replace(outer, intercept=lower_output_node)
        return scalars

    @property
    def having_scalars(self) -> Scalars:
        """Lowers the condition on groups."""
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

    def _lower_group_node(self, node: exp.Expr) -> Expr | None:
        """Return the column that a whole node means after grouping: an aggregate, a key or an alias."""
        if type(node) is exp.Grouping:
            return lower_grouping_call(
                self.source, self.scope.scalars, node, self.keys, self.group_by.excluded
            )
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
