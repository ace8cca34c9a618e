"""Lower SELECT trees to plans: a whitelist, and the only validator.

Every node is taken apart argument by argument, and an argument that is not named here is refused. The
user's text stops here: what is sent to the engine is written anew from the plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.number_types import MOST_DIGITS, find_decimal_digits, is_float
from dpsql.analysis.stability import PublicFacts
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.backends.analyst_schema import AnalystSchema
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.base import Aggregate
from dpsql.plan.expressions import UNIT_IDENTITY, Expr, Order, ReleasedColumn, has_window, iterate_columns
from dpsql.plan.nodes import (
    Aggregation,
    Key,
    OuterQuery,
    Output,
    Relation,
    Release,
    SetKind,
    SetOperation,
    Source,
    is_private,
)
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import BoundParameters, Parameter
from dpsql.sql.lower.aggregates import lower_aggregate_across
from dpsql.sql.lower.aggregates.base import guard_by_count, has_counted_rows
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.lower.correlated_subqueries import lower_correlated_subquery
from dpsql.sql.lower.derived_tables import (
    build_projection,
    combine_set_operation,
    lower_set_operation,
    lower_values,
    to_public_subquery,
    with_common_tables,
)
from dpsql.sql.lower.distinct_rows import (
    build_all_rows,
    check_counted,
    count_distinct_rows,
    find_distinct_rows,
    has_side_comparison,
    refuse_values,
)
from dpsql.sql.lower.empty_statements import build_empty_query, find_empty_query
from dpsql.sql.lower.exists_columns import lower_subquery_predicate
from dpsql.sql.lower.from_sources import add_single_row
from dpsql.sql.lower.group_conditions import wrap_in_derived_table
from dpsql.sql.lower.grouping import Grouping
from dpsql.sql.lower.grouping_sets import GroupingSetParts, Sets, find_grouping_sets, substitute_parts
from dpsql.sql.lower.interval_ends import (
    build_interval_end,
    build_quantile_interval_end,
    get_interval_argument,
)
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.key_dependent_columns import KeyDependentColumns
from dpsql.sql.lower.node_kinds import has_aggregate, is_table_function
from dpsql.sql.lower.per_unit_selects import (
    DerivedGroupBy,
    PlainSelect,
    SelectItems,
    build_derived_table,
    has_distinct,
    has_unit_key,
    lower_rows,
    lower_select_items,
)
from dpsql.sql.lower.public_groups import LoweredStatement
from dpsql.sql.lower.public_left_joins import check_row_count, with_all_public_rows
from dpsql.sql.lower.references import find_unqualified_name
from dpsql.sql.lower.scope import Scope, to_named_source
from dpsql.sql.lower.select_clauses import (
    is_output,
    list_order_items,
    lower_grouping_set,
    lower_having,
    lower_limit_or_offset,
    lower_order_by,
    lower_order_item,
    lower_outputs,
    lower_qualify,
)
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.statement_context import StatementContext, check_statement_size
from dpsql.sql.lower.table_functions import lower_table_function
from dpsql.sql.lower.unit_checks import check_hidden_groups, check_unit, refuse_units
from dpsql.sql.lower.unknown_syntax import suggest_statistic
from dpsql.sql.parse.interval_calls import find_interval_end, has_interval_calls
from dpsql.sql.parse.parse import Statement
from dpsql.sql.parse.rejection import CLAUSE_HINTS
from dpsql.sql.parse.rejection import QueryText as Text

_SELECT = (
    "with_",
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "windows",
    "distinct",
    "order",
    "limit",
    "offset",
)
_OVER_SETS = (
    "a window function over several grouping sets would mix their groups",
    "compute the sets in a subquery: SELECT …, RANK() OVER (…) FROM (SELECT … GROUP BY ROLLUP(…))",
)
_SET = ("with_", "this", "expression", "distinct", "order", "limit", "offset")


def lower_statement(
    statement: Statement,
    catalog: AnalystSchema,
    facts: PublicFacts,
    parameters: BoundParameters | Sequence[Parameter] = (),
    max_groups: int | None = None,
    *,
    at: dt.datetime,
) -> LoweredStatement:
    """Lower the statement to a plan, with its requirements on its releases.

    `facts` looks public tables up, `max_groups` is the query's own contribution bound, `at` when the statement was
    asked, in UTC. Raises
    QueryRejected, with the place in the text, for anything that is not known to be safe.
    """
    given = parameters if isinstance(parameters, BoundParameters) else BoundParameters(tuple(parameters))
    values_ = given.order_values(statement.parameters, statement.names)
    time = StatementTime(at)
    context = StatementContext(
        statement.source,
        catalog,
        values_,
        time,
        facts,
        _lower_derived_query,
        _lower_correlated_select,
        lower_subquery_predicate,
        max_groups=max_groups,
    )
    node = statement.query
    if isinstance(node, exp.SetOperation):
        outer = _lower_set_query(with_common_tables(context, node), node)
    else:
        scope, chosen = _lower_select(context, node, outermost=True)
        check_unit(scope, statement.options.unit)
        outer = chosen if isinstance(chosen, OuterQuery) else chosen.to_outer_query()
    check_counted(context, outer)
    if outer.limit == 0:
        outer = build_empty_query(context, node, outer.outputs) or outer
    check_statement_size(context.source, node, outer)
    at_sample = context.source.find_position(context.sample_nodes[0]) if context.sample_nodes else None
    return LoweredStatement(
        outer, tuple(context.requirements), dict(sorted(time.used_constants.items())), at_sample
    )


def _lower_derived_query(
    context: StatementContext, node: exp.Expr, alias: str, names: Sequence[str]
) -> Source:
    """Return the source that the query of a derived table or common table expression means."""
    while type(node) is exp.Subquery or type(node) is exp.Paren:
        (node,) = context.source.take_arguments(node, "this")
    if isinstance(node, exp.SetOperation):
        inner = with_common_tables(context, node)
        _check_clauses(context.source, node, _SET)
        if any(node.args.get(name) for name in ("order", "limit", "offset")):
            return context.rename_columns(node, _lower_paged_source(inner, node, alias), names)
        return context.rename_columns(node, lower_set_operation(inner, node, alias), names)
    if type(node) is exp.Values:
        return context.rename_columns(node, lower_values(context, node, alias), names)
    if is_table_function(node):
        return context.rename_columns(node, lower_table_function(context, node, alias), names)
    if type(node) is not exp.Select:
        context.source.refuse(node, "subquery", "a derived table must be a SELECT or a set operation")
    scope, chosen = _lower_select(context, node)
    context.check_outputs(node, chosen.outputs)
    if isinstance(chosen, OuterQuery):
        check_hidden_groups(context, node, chosen)
    source = (
        to_public_subquery(chosen, alias)
        if isinstance(chosen, OuterQuery)
        else build_derived_table(scope, node, chosen, alias)
    )
    return context.rename_columns(node, source, names)


def _lower_select(
    context: StatementContext, node: exp.Select, *, outermost: bool = False
) -> tuple[Scope, SelectItems | OuterQuery]:
    _check_clauses(context.source, node, _SELECT)
    node = wrap_in_derived_table(context.source, node)
    scope = Scope(with_common_tables(context, node), keeps_interval_columns=has_interval_calls(node))
    relation = lower_rows(scope, node, released=outermost)

    sets = find_grouping_sets(scope.source, node.args.get("group"))

    def lower_release() -> OuterQuery:
        if sets is not None:
            return _lower_grouping_sets(scope, node, relation, sets)
        return _ReleaseBuilder(scope, node, relation).lower_query()

    if sets is not None:
        within = (
            None
            if outermost or not is_private(relation)
            else _lower_sets_within_units(scope, node, relation, sets)
        )
        return scope, within or lower_release()
    # The outermost SELECT is over all units, whatever its groups are.
    released = outermost and is_private(relation)
    if released and (empty := find_empty_query(scope, node, relation)) is not None:
        return scope, empty
    return scope, lower_release() if released else lower_select_items(scope, node, relation, lower_release)


def _lower_sets_within_units(
    scope: Scope, node: exp.Select, relation: Relation, sets: Sets
) -> SelectItems | None:
    """Return the groups of each grouping set, below each other, where those of every set are of one unit each; else None."""
    every = [key for keys in sets for key in keys]
    for keys in sets:
        trial = DerivedGroupBy(scope, node, relation, alias=scope.context.allocate_alias(node))
        trial.group_by.add_items(keys, list_select_items(scope, node))
        if not has_unit_key(trial.keys, relation):
            return None
    together: Source | None = None
    for keys in sets:
        groups = DerivedGroupBy(scope, node, relation, alias=scope.context.allocate_alias(node))
        items = list_select_items(scope, node)
        groups.group_by.add_items(keys, items)
        groups.group_by.exclude_items(every, items)
        outputs, having = lower_outputs(groups, items), lower_having(groups)
        if lower_qualify(groups) is not None or any(has_window(expr) for _, expr in outputs):
            scope.source.refuse(node, "private_window", *_OVER_SETS)
        rows: Relation = groups.build_group_by()
        rows = rows if having is None else build_filter(rows, [having])
        source: Source = build_projection(rows, scope.context.allocate_alias(node), outputs)
        together = (
            source
            if together is None
            else combine_set_operation(
                scope.context,
                node,
                SetKind.UNION_ALL,
                together,
                source,
                alias=scope.context.allocate_alias(node),
            )
        )
    if together is None or isinstance(together, Scan):
        raise TypeError("there must be a grouping set, whose groups are derived")
    every_column = tuple(Output(column.name, column) for column in together.columns)
    page = lower_limit_or_offset(groups, "limit"), lower_limit_or_offset(groups, "offset") or 0
    return SelectItems(together, every_column, (), *page, has_distinct(scope, node), None)


def _lower_grouping_sets(scope: Scope, node: exp.Select, relation: Relation, sets: Sets) -> OuterQuery:
    """Lower grouping sets to one release each, put together by UNION ALL; ORDER BY and LIMIT apply to all of them."""
    context, every = scope.context, [key for keys in sets for key in keys]
    together: Source | None = None
    names: list[str] = []
    first: GroupingSetParts | None = None
    besides: tuple[Order, ...] = ()
    asks = False
    for keys in sets:
        outer = lower_grouping_set(_make_grouping(scope, node, relation), keys, every)
        names = [output.name for output in outer.outputs]
        context.check_outputs(node, outer.outputs)
        besides, asks = outer.order, outer.qualify is not None
        parts = GroupingSetParts.from_query(outer)
        first = parts if first is None else first
        if parts.shapes != first.shapes:
            context.source.refuse(node, "private_window", *_OVER_SETS)
        source = to_public_subquery(parts.build_parts_query(outer), context.allocate_alias(node))
        together = (
            source
            if together is None
            else combine_set_operation(
                context, node, SetKind.UNION_ALL, together, source, alias=context.allocate_alias(node)
            )
        )
    if together is None or first is None or isinstance(together, Scan):
        raise TypeError("there must be a grouping set, whose groups are released")
    exprs = substitute_parts(first.shapes, together.columns)
    outputs = tuple(Output(name, expr) for name, expr in zip(names, exprs, strict=False))
    qualify = exprs[-1] if asks else None
    paging = PlainSelect(
        Scope(context, tables={normalize_name(together.alias): to_named_source(together)}), node, together
    )
    paging.aliases |= {normalize_name(output.name): output.expr for output in outputs}
    limit, offset = lower_limit_or_offset(paging, "limit"), lower_limit_or_offset(paging, "offset") or 0
    distinct = has_distinct(scope, node)
    hidden = iter(replace(item, expr=expr) for item, expr in zip(besides, exprs[len(names) :], strict=False))
    order = tuple(
        lower_order_item(paging, outputs, item) if is_output(paging, outputs, item) else next(hidden)
        for item in list_order_items(paging, len(outputs))
    )
    return OuterQuery(together, outputs, None, order, limit, offset, distinct, qualify)


def _make_grouping(scope: Scope, node: exp.Select, relation: Relation) -> Grouping:
    """Build the groups of private rows, which are released, or of public ones."""
    if is_private(relation):
        return _ReleaseBuilder(scope, node, relation)
    return DerivedGroupBy(scope, node, relation, alias=scope.context.allocate_alias(node))


def _lower_correlated_select(scope: Scope, node: exp.Select) -> Expr | None:
    def lower_release(
        inner: Scope, query: exp.Select, relation: Relation, keys: Sequence[Expr]
    ) -> OuterQuery:
        return _ReleaseBuilder(inner, query, relation, keys, is_correlated=True).lower_query()

    return lower_correlated_subquery(scope, node, lower_release)


def _lower_set_query(context: StatementContext, node: exp.SetOperation) -> OuterQuery:
    """Lower a set operation of released or public rows."""
    _check_clauses(context.source, node, _SET)
    operation = lower_set_operation(context, node, context.allocate_alias(node))
    if is_private(operation):
        paging, outputs = _prepare_paging(context, node, operation)
        empty = (
            build_empty_query(context, node, outputs) if lower_limit_or_offset(paging, "limit") == 0 else None
        )
        return empty or _refuse_rows(context, node)
    return _build_paged_query(context, node, operation)


def _lower_paged_source(context: StatementContext, node: exp.SetOperation, alias: str) -> Source:
    """Return a set operation with ORDER BY or LIMIT as a derived table; nothing follows from an order of private rows."""
    operation = lower_set_operation(context, node, context.allocate_alias(node))
    if not is_private(operation):
        return to_public_subquery(_build_paged_query(context, node, operation), alias)
    paging, outputs = _prepare_paging(context, node, operation)
    if lower_limit_or_offset(paging, "limit") is not None or lower_limit_or_offset(paging, "offset"):
        _refuse_rows(context, node)
    lower_order_by(paging, outputs)
    return replace(
        operation, alias=alias, columns=tuple(replace(column, source=alias) for column in operation.columns)
    )


def _refuse_rows(context: StatementContext, node: exp.SetOperation) -> NoReturn:
    context.source.refuse(
        node,
        "no_aggregate",
        "the query would release single rows, which belong to privacy units",
        "aggregate them: SELECT COUNT(*), AVG(…) … FROM (…)",
    )


def _build_paged_query(
    context: StatementContext, node: exp.SetOperation, operation: SetOperation
) -> OuterQuery:
    """Build the rows of a set operation with its ORDER BY, LIMIT and OFFSET."""
    paging, outputs = _prepare_paging(context, node, operation)
    limit, offset = lower_limit_or_offset(paging, "limit"), lower_limit_or_offset(paging, "offset") or 0
    return OuterQuery(operation, outputs, None, lower_order_by(paging, outputs), limit, offset)


def _prepare_paging(
    context: StatementContext, node: exp.SetOperation, operation: SetOperation
) -> tuple[PlainSelect, tuple[Output, ...]]:
    scope = Scope(context, tables={normalize_name(operation.alias): to_named_source(operation)})
    outputs = tuple(Output(column.name, column) for column in operation.columns)
    paging = PlainSelect(scope, node, operation)
    paging.aliases |= {normalize_name(output.name): output.expr for output in outputs}
    return paging, outputs


def _find_statistic_digits(entry: Aggregate, argument: Expr | None) -> tuple[int, int] | None:
    """Find the digits of an aggregate of DECIMAL values that is a DECIMAL in the engine."""
    held = None if argument is None or not entry.keeps_scale else find_decimal_digits(argument)
    return held if held is None or entry.within_argument else (MOST_DIGITS, held[1])


def _check_clauses(text: Text, node: exp.Expr, allowed: Iterable[str]) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            text.refuse(
                value if isinstance(value, exp.Expr) else node,
                "clause",
                f"{text.describe_clause(node, name, value)} is not supported",
                CLAUSE_HINTS.get(name),
            )


@dataclass(slots=True)
class _ReleaseBuilder(Grouping):
    """The outermost SELECT, on its way over the release boundary."""

    aggregations: list[Aggregation] = field(default_factory=list)
    separate_values: list[Expr] = field(default_factory=list)
    dependent_columns: KeyDependentColumns | None = None
    is_correlated: bool = False

    def lower_query(self) -> OuterQuery:
        """Lower the release and its post-processing."""
        if self.scope.pending_joins is None:  # else there are sources of keys that are known already
            self.scope.pending_joins = []
        items = list_select_items(self.scope, self.select)
        distinct = has_distinct(self.scope, self.select)
        self.group_by.resolve(items)
        if (
            distinct
            and not self.select.args.get("group")
            and not any(has_aggregate(node) for _, node in items)
        ):
            # Distinct rows are groups without aggregates.
            distinct = False
            # Next to other columns, a constant makes no further distinct rows.
            varying = [node for _, node in items if not self.group_by.is_constant(node)]
            for node in varying or (node for _, node in items):
                self.group_by.add(node, node)
        outputs = [Output(name, expr) for name, expr in lower_outputs(self, items)]
        having, qualify = lower_having(self), lower_qualify(self)
        if self.group_by.is_one_group:
            having = self._with_rows_alone(having)
        order = lower_order_by(self, outputs)
        limit, offset = lower_limit_or_offset(self, "limit"), lower_limit_or_offset(self, "offset") or 0
        source: Release | Relation
        if self.separate_values and not self.aggregations and not self.keys:
            source = self.scope.tables[add_single_row(self.scope, self.select)].relation
        else:
            source = self._build_release()
        return self._join_public_rows(
            OuterQuery(source, tuple(outputs), having, order, limit, offset, distinct, qualify)
        )

    def _with_rows_alone(self, having: Expr | None) -> Expr:
        """Return the condition that the one group of all rows is not empty: DuckDB has no such group without rows."""
        there = has_counted_rows(self, self.select)
        if there is None:
            self.source.refuse(
                self.select.args["group"],
                "constant",
                "a constant can be the only group key beside COUNT(*) alone",
                "add COUNT(*), or leave out GROUP BY",
            )
        return there if having is None else self.scope.scalars.build_call(self.select, "and", there, having)

    @property
    def is_public_output(self) -> bool:
        """Whether its output is released, which it is."""
        return True

    def _build_release(self) -> Release:
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release single rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        keys = tuple(Key(f"k{index}", expr) for index, expr in enumerate(self.keys))
        rows = self.apply_pending_joins()
        if self.aggregations and find_distinct_rows(rows) is not None:
            rows = build_all_rows(self.scope.context, self.select, rows)
        release = Release(rows, keys, tuple(self.aggregations), self.scope.context.max_groups)
        return with_all_public_rows(self.scope, self.select, release)

    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the release with these outputs."""
        return self._join_public_rows(OuterQuery(self._build_release(), outputs, having))

    def _join_public_rows(self, outer: OuterQuery) -> OuterQuery:
        """Return the query with the public rows that it reads for each group joined to the release."""
        return outer if self.dependent_columns is None else self.dependent_columns.join_lookups(outer)

    def find_determined_value(self, argument: exp.Expr) -> Expr | None:
        """Return the value of an expression in all rows of a group, if the keys determine it; None also for a node that is no expression."""
        if (
            not self.keys
            or self.is_correlated
            or argument.find(exp.Query, exp.AggFunc, exp.Distinct, exp.Window)
        ):
            return None
        expr = self.scope.scalars.lower(argument)
        if not any(iterate_columns(expr)):
            return None
        if self.dependent_columns is None:
            known: dict[Expr, Expr] = {key: self.get_key_column(index) for index, key in enumerate(self.keys)}
            self.dependent_columns = KeyDependentColumns.from_keys(
                self.scope.context, self.select, self.input, known
            )
        return self.dependent_columns.find_value(expr)

    def lower_aggregate_of_key(self, node: exp.Expr, key: Expr) -> Expr:
        """Return MIN and the like of a group key, which is the key, but NULL if a COUNT(*) of the same SELECT shows an empty group."""
        return guard_by_count(self, node, key)

    def get_key_column(self, index: int) -> ReleasedColumn:
        """Return a key of the released table."""
        key = self.keys[index]
        return ReleasedColumn(f"k{index}", key.type, decimal=find_decimal_digits(key), float32=is_float(key))

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Refuse the unit's id, whose groups would all be too small to release, and expressions that are always NULL."""
        if expr.type is Type.NULL:
            self.source.refuse(node, "constant", "NULL cannot be a group key", "leave it out of GROUP BY")
        if find_injective_identity(expr, self.input) == UNIT_IDENTITY:
            refuse_units(self.source, node, expr, self.input)

    def lower_aggregate(self, node: exp.AggFunc) -> Expr:
        """Lower an aggregate to a column of the released table, or to an expression over several."""
        expr, separate = lower_aggregate_across(self, node)
        if separate:
            self.separate_values.append(expr)
        return expr

    def add_statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> ReleasedColumn:
        """Return a column of the released table that holds a statistic."""
        source = find_distinct_rows(self.input)
        if source is not None and (function != "count_distinct" or has_side_comparison(source)):
            refuse_values(self.source, node, source)
        return self._add_statistic(node, function, argument, rank)

    def _add_statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> ReleasedColumn:
        if function == "count_rows":
            check_row_count(self.scope, node)
        entry = AGGREGATES[function]
        result = entry.result_type(None if argument is None else argument.type)
        if result is None:
            self.source.refuse(
                node,
                "type",
                f"{entry.signature} does not take {argument.type if argument else 'nothing'}",
                None if argument is None else suggest_statistic(node, entry.signature, argument.type),
            )
        for known in self.aggregations:
            if (known.function, known.argument, known.rank, known.interval_end) == (
                function,
                argument,
                rank,
                0,
            ):
                return ReleasedColumn(known.name, known.type, decimal=_find_statistic_digits(entry, argument))
        name = f"a{len(self.aggregations)}"
        self.aggregations.append(Aggregation(name, function, argument, result, rank))
        return ReleasedColumn(name, result, decimal=_find_statistic_digits(entry, argument))

    def add_count(self, node: exp.AggFunc, function: str, argument: Expr | None) -> Expr:
        """Return COUNT(*) or COUNT(x); distinct rows across units are counted by their values."""
        source = find_distinct_rows(self.input)
        if source is None:
            return self.add_statistic(node, function, argument)
        return count_distinct_rows(
            self.scope, node, source, argument, lambda value: self._add_distinct_count(node, value)
        )

    def _add_distinct_count(self, node: exp.AggFunc, value: Expr) -> Expr:
        return self._add_statistic(node, "count_distinct", value)

    def lower_interval_end(self, node: exp.Expr) -> Expr | None:
        """Return the end of the interval of an aggregate of the released table, a factor and a shift aside."""
        asked, known = get_interval_argument(self.source, node), len(self.aggregations)
        name = find_unqualified_name(self.source, asked)
        # An alias takes precedence over a column here: a private column has no interval.
        expr = self.aliases.get(name) if name is not None else None
        if isinstance(asked, exp.AggFunc):
            expr = self.lower_aggregate(asked)
        elif expr is None and (type(asked) is exp.Filter or has_aggregate(asked)):
            expr = self.group_scalars.lower(asked)
        if expr is None:
            return None
        which = find_interval_end(node) or ""
        return build_quantile_interval_end(expr, which, self.aggregations, known) or build_interval_end(
            expr, which, self.aggregations
        )
