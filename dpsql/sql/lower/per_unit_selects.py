"""Lower a SELECT within one side of the release boundary: rows of units to rows of the same units, or public rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.analysis.intervals import MAX_MAGNITUDE, derive_interval, derive_known_intervals
from dpsql.analysis.listed_keys import is_listed
from dpsql.analysis.number_types import (
    MOST_DIGITS,
    WIDE,
    derive_bits,
    find_decimal_digits,
    find_scale,
    is_float,
)
from dpsql.analysis.stability import bound_rows
from dpsql.analysis.unit_identity import find_identity, list_finer_keys
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Order, has_window
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import (
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Relation,
    Source,
    is_private,
)
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates import lower_aggregate_within
from dpsql.sql.lower.derived_tables import (
    build_projection,
    derive_column_info,
    is_identified,
    lower_select_item,
    to_public_subquery,
)
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.grouping import (
    Grouping,
    lower_having,
    lower_limit_or_offset,
    lower_order_by,
    lower_outputs,
    lower_qualify,
)
from dpsql.sql.lower.joins import build_filter, collect_aliased_items
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.semi_joins import split_where
from dpsql.sql.lower.star_expansion import MAX_OUTPUTS, list_select_items
from dpsql.sql.lower.unit_checks import check_groups
from dpsql.sql.lower.windows import build_unit_windows


def lower_rows(scope: Scope, select: exp.Select, *, released: bool = False) -> Relation:
    """Return the rows of FROM and WHERE, as far as it matters where they are released."""
    relation, _ = split_where(scope, select, released=released)
    return relation


@dataclass(frozen=True, slots=True)
class SelectItems:
    """The meaning of a SELECT over rows, or over groups of a unit's or of public rows."""

    rows: Relation
    outputs: tuple[Output, ...]
    order: tuple[Order, ...]
    limit: int | None
    offset: int
    distinct: bool
    qualify: Expr | None

    @property
    def is_limited(self) -> bool:
        """Return whether it only keeps the first rows of an order."""
        return self.limit is not None or bool(self.offset)

    @property
    def is_paged(self) -> bool:
        """Return whether the order of rows or window values select rows."""
        return bool(
            self.order
            or self.is_limited
            or self.qualify is not None
            or any(has_window(output.expr) for output in self.outputs)
        )

    def to_projection(self, alias: str) -> Project:
        """Return the derived table."""
        items = [(output.name, output.expr) for output in self.outputs]
        return build_projection(self.rows, alias, items, distinct=self.distinct)

    def to_outer_query(self) -> OuterQuery:
        """Return the query of public rows."""
        page = self.order, self.limit, self.offset
        return OuterQuery(self.rows, self.outputs, None, *page, self.distinct, self.qualify)


def lower_select_items(
    scope: Scope, node: exp.Select, relation: Relation, release: Callable[[], OuterQuery]
) -> SelectItems | OuterQuery:
    """Lower a SELECT to rows and groups of units or of public rows, or by `release` to a release of them.

    Groups of private rows are released if their keys neither identify the unit nor are declared to belong to one unit.
    """
    grouping: Grouping
    scope.pending_joins = []
    parts = [*node.expressions, *filter(None, [node.args.get("order")])]
    if node.args.get("group") or node.args.get("having") or any(map(has_aggregate, parts)):
        grouping = DerivedGroupBy(scope, node, relation, alias=scope.context.allocate_alias(node))
        items = list_select_items(scope, node)
        grouping.group_by.resolve(items)
        if is_private(relation) and not has_unit_key(grouping.keys, relation):
            check_groups(scope.source, node.args.get("group") or node, grouping.keys, relation)
            return release()
        outputs = [Output(*pair) for pair in lower_outputs(grouping, items)]
        having, qualify = lower_having(grouping), lower_qualify(grouping)
        order = lower_order_by(grouping, outputs)
        grouping.apply_pending_joins()
        rows: Relation = grouping.build_group_by()
        rows = rows if having is None else build_filter(rows, [having])
    else:
        grouping = PlainSelect(scope, node, relation)
        outputs = [Output(*pair) for pair in grouping.lower_output_columns()]
        qualify = lower_qualify(grouping)
        order = lower_order_by(grouping, outputs)
        rows = grouping.apply_pending_joins()
    page = lower_limit_or_offset(grouping, "limit"), lower_limit_or_offset(grouping, "offset") or 0
    return SelectItems(rows, tuple(outputs), order, *page, has_distinct(scope, node), qualify)


def replace_windows(scope: Scope, node: exp.Select, chosen: SelectItems) -> SelectItems:
    """Return the rows of units with their window values as columns."""
    asked = [output.expr for output in chosen.outputs]
    asked += [] if chosen.qualify is None else [chosen.qualify]
    if not any(map(has_window, asked)):
        if chosen.qualify is None:
            return chosen
        return replace(chosen, rows=build_filter(chosen.rows, [chosen.qualify]), qualify=None)
    rows, found = build_unit_windows(scope.context, node, chosen.rows, asked)
    outputs = tuple(Output(output.name, expr) for output, expr in zip(chosen.outputs, found, strict=False))
    filtered_rows: Relation = rows if chosen.qualify is None else build_filter(rows, [found[-1]])
    return replace(chosen, rows=filtered_rows, outputs=outputs, qualify=None)


def has_distinct(scope: Scope, node: exp.Expr) -> bool:
    """Return whether a SELECT is DISTINCT."""
    distinct = node.args.get("distinct")
    if distinct is None:
        return False
    (on,) = scope.source.take_arguments(distinct, "on")
    if on is not None:
        scope.source.refuse(node, "distinct", "DISTINCT ON would release single rows", "use GROUP BY")
    return True


def build_derived_table(scope: Scope, node: exp.Select, chosen: SelectItems, alias: str) -> Source:
    """Build the derived table of a SELECT that releases nothing."""
    private = is_private(chosen.rows)
    if private:
        chosen = replace_windows(scope, node, chosen)
        # Without LIMIT, the order of rows has no effect.
        chosen = replace(chosen, order=chosen.order if chosen.is_limited else ())
    if private and chosen.is_paged:
        scope.source.refuse(
            node,
            "private_order",
            "LIMIT and OFFSET are not allowed over private rows, since nothing may depend on which come first",
            "order and limit the released rows, in the outermost SELECT",
        )
    if chosen.is_paged:
        return to_public_subquery(chosen.to_outer_query(), alias)
    table = chosen.to_projection(alias)
    if private and table.distinct and not is_identified(scope.context, node, table):
        return replace(table, distinct=False, once=True)
    return table


@dataclass(slots=True)
class PlainSelect(Grouping):
    """A SELECT of rows without groups."""

    @property
    def group_scalars(self) -> Scalars:
        """Lower expressions over the rows."""
        return self.scope.scalars

    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the rows, where they are public."""
        return OuterQuery(self.input, outputs, having)

    def get_key_column(self, index: int) -> Expr:
        """Raise LookupError: there are no keys."""
        raise LookupError(index)

    def lower_aggregate(self, node: exp.AggFunc) -> Expr:
        """Raise LookupError: there are no aggregates."""
        raise LookupError(node.key)

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Accept any expression: there are no keys."""

    def lower_output_columns(self) -> list[tuple[str, Expr]]:
        """Return the columns that the SELECT items mean."""
        pairs, known = (
            list[tuple[str, Expr]](),
            collect_aliased_items(self.select) if isinstance(self.select, exp.Select) else {},
        )
        for item in self.select.expressions:
            pairs += lower_select_item(self.scope, item, self.output_scalars)
            if normalize_name(item.alias) in known:
                self.scope.aliases[normalize_name(item.alias)] = known[normalize_name(item.alias)]
        self.scope.aliases = {}
        if not pairs:
            self.source.refuse(self.select, "star", "* expands to no column here")
        if len(pairs) > MAX_OUTPUTS:
            self.source.refuse(self.select, "too_long", f"SELECT may name at most {MAX_OUTPUTS} columns")
        self.aliases |= {normalize_name(name): expr for name, expr in pairs}
        return pairs


def is_unit_key(key: Expr, relation: Relation) -> bool:
    """Return whether rows of `relation` with equal keys have one unit."""
    return find_identity(key, relation) is not None


def has_unit_key(keys: Sequence[Expr], relation: Relation) -> bool:
    """Return whether rows with equal keys belong to one unit, by identities or by declared links.

    The groups of a key whose values the policy lists are known, and are released.

    Claim: groups by such keys are groups of rows of one unit each, whatever the data are.
    Why: the emitted SQL groups by the unit and the keys. If a declaration is false, a value that several units have gives one
    group for each of them, and so does NULL.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
    """
    finer = list_finer_keys(keys, relation)
    return any(is_unit_key(key, relation) for key in keys) or not all(
        is_listed(key, relation, {}) for key in finer
    )


@dataclass(slots=True)
class DerivedGroupBy(Grouping):
    """Groups of the rows of one unit, or of public rows."""

    alias: str = ""
    aggregations: list[PerUnitAggregate] = field(default_factory=list)
    facts: list[ColumnInfo] = field(default_factory=list)

    def build_group_by(self) -> PerUnitGroupBy:
        """Build the groups with the requested aggregates."""
        columns = [self.get_key_column(index) for index in range(len(self.keys))]
        columns += [self._get_aggregate_column(index) for index in range(len(self.aggregations))]
        return PerUnitGroupBy(
            self.input, self.alias, tuple(self.keys), tuple(self.aggregations), tuple(columns)
        )

    @property
    def window_rows(self) -> Relation:
        """Return the groups that windows are laid on."""
        return self.build_group_by()

    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the groups, where their rows are public."""
        return OuterQuery(self.build_group_by(), outputs, having)

    def get_key_column(self, index: int) -> Column:
        """Return a key of the groups."""
        return Column(self.alias, f"k{index}", derive_column_info(self.keys[index], self.input))

    def _get_aggregate_column(self, index: int) -> Column:
        return Column(self.alias, f"a{index}", self.facts[index])

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Accept any expression over a unit's rows as a group key."""

    def lower_aggregate(self, node: exp.AggFunc) -> Expr:
        """Return an aggregate of the groups."""
        return lower_aggregate_within(self, node)

    def add_exact_aggregate(
        self,
        node: exp.AggFunc,
        function: str,
        argument: Expr | None,
        by: Expr | None = None,
        rank: Fraction | None = None,
    ) -> Column:
        """Return a column of the groups that holds an exact aggregate."""
        entry = WITHIN[function]
        result = entry.result(None if argument is None else argument.type)
        item = PerUnitAggregate(function, argument, by, rank)
        if result is None or (by is not None and by.type is Type.NULL):
            given = ", ".join(str(expr.type) for expr in item.arguments)
            self.source.refuse(node, "type", f"{entry.signature} does not take {given}")
        if item not in self.aggregations:
            around = (
                derive_interval(argument, derive_known_intervals(self.input))
                if argument is not None
                else None
            )
            unbounded = around is not None and not around.is_within(MAX_MAGNITUDE)
            private = is_private(self.input)
            if private and entry.is_sum and unbounded and argument and argument.type is Type.DOUBLE:
                self.source.refuse(
                    node,
                    "unbounded",
                    f"{format_expression(argument)} has no bounds: it may be anything in {around}, so it cannot be added up exactly",
                    "clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
                )
            ends = ANYWHERE
            if private:
                rows = bound_rows(self.input, self.scope.context.facts)
                ends = entry.interval(ANYWHERE if around is None else around, rows)
            self.aggregations.append(item)
            held = argument if entry.keeps_scale else None
            digits = None if held is None else find_scale(held)
            decimal = None if held is None else find_decimal_digits(held)
            if decimal is not None and entry.is_sum:
                decimal = MOST_DIGITS, decimal[1]
            single = held is not None and not entry.is_sum and is_float(held)
            self.facts.append(
                ColumnInfo(
                    result,
                    "",
                    ends,
                    nullable=entry.nullable,
                    scale=digits,
                    decimal=decimal,
                    float32=single,
                    bits=WIDE if held is None or entry.is_sum else derive_bits(held),
                    widened=held is not None and is_widened(held),
                )
            )
        return self._get_aggregate_column(self.aggregations.index(item))
