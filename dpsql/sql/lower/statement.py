"""Lower SELECT trees to plans: a whitelist, and the only validator.

Every node is taken apart argument by argument, and an argument that is not named here is refused. The
user's text stops here: what is sent to the engine is written anew from the plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, find_scale, is_float, is_inexact
from dpsql.analysis.stability import PublicFacts
from dpsql.backends.analyst_schema import AnalystSchema
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal, Order, has_window
from dpsql.plan.nodes import (
    OuterQuery,
    Output,
    Relation,
    SetKind,
    SetOperation,
    Source,
    Values,
    is_private,
)
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import BoundParameters, Parameter
from dpsql.sql.lower.constants import StatementTime, fold_constant, is_constant
from dpsql.sql.lower.correlated_subqueries import lower_correlated_subquery, lower_subquery_predicate
from dpsql.sql.lower.derived_tables import (
    build_projection,
    combine_set_operation,
    lower_set_operation,
    lower_values,
    to_public_subquery,
    with_common_tables,
)
from dpsql.sql.lower.distinct_rows import (
    check_counted,
)
from dpsql.sql.lower.from_clause import check_optional_source
from dpsql.sql.lower.from_sources import lower_table_function
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.group_conditions import wrap_in_derived_table
from dpsql.sql.lower.group_keys import GroupingSetParts, Sets, find_grouping_sets, substitute_parts
from dpsql.sql.lower.grouping import (
    Grouping,
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
from dpsql.sql.lower.joins import build_filter
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
    replace_windows,
)
from dpsql.sql.lower.ranked_quantiles import rewrite_ranked_quantiles
from dpsql.sql.lower.release_builder import ReleaseBuilder
from dpsql.sql.lower.scope import Scope, to_named_source
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.statement_context import (
    CrossingWindow,
    LoweredStatement,
    StatementContext,
    check_statement_size,
)
from dpsql.sql.lower.unit_checks import check_hidden_groups, check_unit
from dpsql.sql.lower.windows_across_units import rewrite_crossing_window
from dpsql.sql.parse.own_calls import has_interval_calls
from dpsql.sql.parse.parse import Statement
from dpsql.sql.parse.rejection import CLAUSE_HINTS, QueryText

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

    `facts` looks public tables up, `max_groups` is the query's own contribution bound, `at` the time of the statement, in
    UTC. Raises QueryRejected, with the place in the text, for anything that is not known to be safe.
    """
    lower = partial(
        _lower_tree,
        statement,
        catalog=catalog,
        facts=facts,
        parameters=parameters,
        max_groups=max_groups,
        at=at,
    )
    crossing: list[CrossingWindow] = []
    try:
        return lower(statement.query, crossing=crossing)
    except QueryRejected as error:
        refused = error
    if not crossing:
        raise refused
    rewritten = rewrite_ranked_quantiles(statement.query)
    if isinstance(rewritten, (exp.Select, exp.SetOperation)):
        crossing.clear()
        try:
            return lower(rewritten, crossing=crossing)
        except QueryRejected:
            if not crossing:
                raise
    return _lower_without_windows(statement, rewritten or statement.query, crossing, refused, lower)


_MOST_REWRITES = 12
"""The most windows, or groups around them, that are rewritten in one statement: it is lowered anew after each."""


def _lower_without_windows(
    statement: Statement,
    tree: exp.Expr,
    crossing: list[CrossingWindow],
    refused: QueryRejected,
    lower: Callable[..., LoweredStatement],
) -> LoweredStatement:
    """Lower a statement whose windows over rows of several units are rewritten. Raises `refused` where one cannot be."""
    notices: list[str] = []
    for _ in range(_MOST_REWRITES):
        try:
            rewritten = rewrite_crossing_window(statement.source, tree, crossing[-1]) if crossing else None
            if rewritten is None:
                break
            tree, notices = rewritten.tree, [*notices, *rewritten.notices]
            crossing.clear()
            found = lower(tree, crossing=crossing)
            return replace(found, notices=tuple(dict.fromkeys((*found.notices, *notices))))
        except QueryRejected:
            if not crossing:
                break
    raise refused


def _lower_tree(
    statement: Statement,
    node: exp.Select | exp.SetOperation,
    *,
    crossing: list[CrossingWindow],
    catalog: AnalystSchema,
    facts: PublicFacts,
    parameters: BoundParameters | Sequence[Parameter],
    max_groups: int | None,
    at: dt.datetime,
) -> LoweredStatement:
    """Lower a tree of the statement to its plan, as `lower_statement`."""
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
        crossing_windows=crossing,
    )
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
        outer,
        tuple(context.requirements),
        dict(sorted(time.used_constants.items())),
        at_sample,
        tuple(dict.fromkeys(context.notices)),
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
    scope = Scope(
        with_common_tables(context, node), keeps_interval_columns=has_interval_calls(context.source, node)
    )
    grouped = bool(node.args.get("group")) or any(map(has_aggregate, node.expressions))
    relation = lower_rows(scope, node, released=outermost or grouped)

    sets = find_grouping_sets(scope.source, node.args.get("group"))

    def lower_release() -> OuterQuery:
        if sets is not None:
            return _lower_grouping_sets(scope, node, relation, sets)
        return ReleaseBuilder(scope, node, relation).lower_query()

    if sets is not None:
        within = (
            None
            if outermost or not is_private(relation)
            else _lower_sets_within_units(scope, node, relation, sets)
        )
        if within is not None:
            check_optional_source(scope, node)
        return scope, within or lower_release()
    # The outermost SELECT is over all units, whatever its groups are.
    released = outermost and is_private(relation)
    if released and (empty := find_empty_query(scope, node, relation)) is not None:
        return scope, empty
    if released:
        return scope, lower_release()
    found = lower_select_items(scope, node, relation, lower_release)
    if isinstance(found, SelectItems) and not outermost and is_private(relation):
        check_optional_source(scope, node)
    return scope, found


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
        return ReleaseBuilder(scope, node, relation)
    return DerivedGroupBy(scope, node, relation, alias=scope.context.allocate_alias(node))


def _lower_correlated_select(scope: Scope, node: exp.Select) -> Expr | None:
    def lower_release(
        inner: Scope, query: exp.Select, relation: Relation, keys: Sequence[Expr]
    ) -> OuterQuery:
        return ReleaseBuilder(inner, query, relation, keys, is_correlated=True).lower_query()

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


def _check_clauses(text: QueryText, node: exp.Expr, allowed: Iterable[str]) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            text.refuse(
                value if isinstance(value, exp.Expr) else node,
                "clause",
                f"{text.describe_clause(node, name, value)} is not supported",
                CLAUSE_HINTS.get(name),
            )


# Statements without rows: LIMIT 0, and rows under a condition of constants that is never true.


def find_empty_query(scope: Scope, node: exp.Select, relation: Relation) -> OuterQuery | None:
    """Return the columns of a SELECT of private rows that has none; None for any other SELECT."""
    grouped = any(node.args.get(name) for name in ("group", "having", "distinct"))
    if grouped or any(map(has_aggregate, node.expressions)) or not _is_empty(scope, node, relation):
        return None
    chosen = lower_select_items(scope, node, relation, lambda: OuterQuery(relation, ()))
    if isinstance(chosen, OuterQuery):
        return None
    outputs = replace_windows(scope, node, chosen).outputs
    return build_empty_query(scope.context, node, outputs)


def build_empty_query(
    context: StatementContext, node: exp.Expr, outputs: Sequence[Output]
) -> OuterQuery | None:
    """Build no row of these outputs; None where one is a list, whose type only its values have.

    Tools send them to learn the names and types of columns: `SELECT * FROM visits WHERE 1=0`.

    Claim: the plan reads no table; its columns have the names and types of the statement's columns.
    Why: it consists of constants only. Names and types follow from the text, the policy and the schema. The statement was lowered
    as a whole, so that whatever is not allowed in it is refused.
    Source: ISO/IEC 9075-2, <fetch first clause> and <where clause>: no row fulfils them, whatever the rows are.
    """
    if any(output.expr.type is Type.LIST for output in outputs):
        return None
    alias = context.allocate_alias(node)
    columns = tuple(
        Column(alias, f"c{place}", _derive_output_info(output.expr)) for place, output in enumerate(outputs)
    )
    named = (Output(output.name, column) for output, column in zip(outputs, columns, strict=True))
    return OuterQuery(Values((), alias, columns), tuple(named))


def _derive_output_info(expr: Expr) -> ColumnInfo:
    return ColumnInfo(
        expr.type,
        "",
        scale=find_scale(expr),
        decimal=find_decimal_digits(expr),
        inexact=is_inexact(expr),
        widened=is_widened(expr),
        float32=is_float(expr),
    )


def _is_empty(scope: Scope, node: exp.Select, relation: Relation) -> bool:
    """Return whether LIMIT or a condition of constants leaves no row."""
    if (
        node.args.get("limit") is not None
        and lower_limit_or_offset(PlainSelect(scope, node, relation), "limit") == 0
    ):
        return True
    where = node.args.get("where")
    return where is not None and any(_is_never_true(scope, part) for part in _iterate_conditions(where.this))


def _iterate_conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    if type(node) is exp.And:
        yield from _iterate_conditions(node.this)
        yield from _iterate_conditions(node.expression)
    else:
        yield node


def _is_never_true(scope: Scope, node: exp.Expr) -> bool:
    """Return whether a condition of constants is FALSE or NULL."""
    if node.find(exp.Column, exp.Query):
        return False
    expr = scope.scalars.lower(node)
    found = fold_constant(scope.source, node, expr) if is_constant(expr) else expr
    return isinstance(found, Literal) and not found.value
