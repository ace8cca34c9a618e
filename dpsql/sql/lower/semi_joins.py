"""Lower EXISTS and IN over a subquery to semi-joins and anti-joins, without the clauses that do not change their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.analysis.nullability import is_never_null
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import (
    Project,
    Relation,
    SemiJoin,
    Source,
    is_private,
    iterate_sources,
    list_private_scans,
)
from dpsql.plan.tables import Scan, UnitKind
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.derived_tables import derive_column_info, is_plain_select, lower_select_item
from dpsql.sql.lower.from_clause import lower_from_clause, to_inner_join
from dpsql.sql.lower.joins import (
    FromItem,
    build_from_relation,
    collect_aliased_items,
    combine_hints,
    covers_declared_link,
    has_same_identity,
    is_link_key_pair,
    iterate_factored_conjuncts,
    list_where_conditions,
    lower_condition,
    suggest_link_declaration,
)
from dpsql.sql.lower.node_kinds import is_matching
from dpsql.sql.lower.scope import Scope, SemiJoinSource
from dpsql.sql.lower.unit_checks import suggest_unit_comparison
from dpsql.sql.parse.rejection import QueryText

# Drop the clauses of a subquery of EXISTS or IN that do not change its values.


def remove_irrelevant_clauses(source: QueryText, query: exp.Expr, *, exists: bool) -> exp.Expr:
    """Return the subquery without DISTINCT and ORDER BY, and for EXISTS without LIMIT, where that changes nothing.

    `EXISTS (SELECT … ORDER BY day LIMIT 1)` is EXISTS of the rows themselves, so that private rows need no order.

    Claim: EXISTS and IN have the same value without these clauses.
    Why: both ask whether there is a row. ORDER BY without LIMIT removes no row, DISTINCT keeps one of equal rows, and LIMIT n with
    n ≥ 1 keeps a row if there is one, which decides EXISTS.
    Source: ISO/IEC 9075-2, <exists predicate> and <in predicate>.
    """
    if type(query) is not exp.Select:
        return query
    distinct, limit, offset = (query.args.get(name) for name in ("distinct", "limit", "offset"))
    if (distinct is not None and distinct.args.get("on")) or offset is not None:
        return query
    if limit is not None and not (exists and _allows_rows(source, limit)):
        return query
    if distinct is not None:
        source.take_arguments(distinct)
    bare = query.copy()
    for name in ("distinct", "order", "limit"):
        bare.set(name, None)
    return bare


def check_order(scope: Scope, query: exp.Select, order: exp.Expr | None) -> None:
    """Refuse an ORDER BY that is dropped from a subquery but names missing columns."""
    if order is None:
        return
    names = {normalize_name(item.alias) for item in query.expressions if item.alias}
    for item in scope.source.take_arguments(order, "expressions")[0]:
        (value, *_) = scope.source.take_arguments(item, "this", "desc", "nulls_first")
        if type(value) is exp.Column and not value.args.get("table") and normalize_name(value.name) in names:
            scope.source.take_arguments(*scope.source.take_arguments(value, "this"), "this", quoted=(True,))
        else:
            scope.scalars.lower(value)


def _allows_rows(source: QueryText, limit: exp.Expr) -> bool:
    """Return whether a LIMIT lets a row through."""
    if type(limit) is not exp.Limit:
        return False
    (number,) = source.take_arguments(limit, "expression")
    if type(number) is not exp.Literal:
        return False
    text, is_string = source.take_arguments(number, "this", "is_string")
    return not is_string and text.isdigit() and int(text) > 0


# Lower EXISTS and IN over a subquery to semi-joins and anti-joins.


TRUE = Literal(True, Type.BOOLEAN)


def _is_semi_join(node: exp.Expr) -> bool:
    """Return whether a condition is EXISTS or IN over a subquery, or NOT of one."""
    return is_matching(_strip_parentheses(node.this) if type(node) is exp.Not else node)


OuterTableLowering = Callable[[Sequence[Expr]], tuple[list[FromItem], list[Expr]]]
"""A further source to be joined, for conditions that name columns of an outer query, and the conditions of that join."""


def split_where(
    scope: Scope, select: exp.Select, *, released: bool = False, joining: OuterTableLowering | None = None
) -> tuple[Relation, list[Expr]]:
    """Return the rows of FROM and WHERE, and separately the conditions that name columns of an outer query.

    With `joining`, conditions that are not equalities are those of a join to a further source. If the rows are `released`,
    public rows without private ones may be left out, since their groups are released without them.
    """
    items = lower_from_clause(scope, select)
    items = to_inner_join(scope, items) if released else items
    here = {named.alias for named in scope.tables.values()}
    for item in items:
        if any(column.source not in here for part in item.conditions for column in iterate_columns(part)):
            scope.source.refuse(
                item.node, "join", "ON may only name tables of its own FROM", "move the condition to WHERE"
            )
    scope.aliases = collect_aliased_items(select)
    scope.pending_joins = []
    matched: list[exp.Expr] = []
    plain: list[Expr] = []
    for node in list_where_conditions(scope, select):
        if _is_semi_join(node):
            matched.append(node)
        else:
            plain += iterate_factored_conjuncts(lower_condition(scope, node))
    items += scope.pending_joins
    scope.pending_joins = None
    here = {named.alias for named in scope.tables.values()}
    across = [part for part in plain if not {column.source for column in iterate_columns(part)} <= here]
    joined, on = ([], []) if joining is None else joining(across)
    relation = build_from_relation(
        scope, [*joined, *items], [*(part for part in plain if part not in across), *on]
    )
    for partner in scope.semi_join_sources:
        relation = _build_semi_join(scope, relation, partner)
    for node in matched:
        relation = lower_semi_join(scope, relation, node)
    scope.aliases = {}
    return relation, across


def _build_semi_join(scope: Scope, relation: Relation, item: SemiJoinSource) -> SemiJoin:
    """Build the rows of `relation` that SEMI JOIN or ANTI JOIN keeps."""
    alias = scope.context.allocate_alias(item.node)
    exported: dict[Expr, Column] = {}

    def export_column(expr: Expr) -> Expr:
        if expr not in exported:
            exported[expr] = Column(
                alias, f"c{len(exported)}", derive_column_info(expr, item.source.relation)
            )
        return exported[expr]

    on = _build_conjunction(
        [_rewrite_columns(part, {item.source.alias}, export_column) for part in item.conditions]
    )
    if not exported:
        export_column(Literal(1, Type.INTEGER))
    right = Project(item.source.relation, alias, tuple(exported), tuple(exported.values()))
    _check_same_unit(scope, item.node, relation, right, on)
    return SemiJoin(relation, right, on, item.anti)


def lower_semi_join(scope: Scope, relation: Relation, node: exp.Expr) -> SemiJoin:
    """Return the rows of `relation` for which the condition is true."""
    anti = type(node) is exp.Not
    if anti:
        (inside,) = scope.source.take_arguments(node, "this")
        node = _strip_parentheses(inside)
    if type(node) is exp.Exists:
        (query,) = scope.source.take_arguments(node, "this")
        right, on = _lower_subquery(scope, query, None)
        _check_same_unit(scope, node, relation, right, on)
    else:
        operand, query = scope.source.take_arguments(node, "this", "query")
        right, on = _lower_subquery(scope, query, _make_comparison(scope, node, operand))
        _check_same_unit(scope, node, relation, right, on)
        if anti:
            # NOT IN is true only if no value is equal and none is unknown.
            parts = list(iterate_factored_conjuncts(on))
            width = len(list_row_values(scope, operand))
            others, equal = parts[:-width], parts[-width:]
            _check_unknown(scope, node, relation, right, others=others, equal=equal)
            on = _build_conjunction(
                [*others, scope.scalars.build_call(node, "coalesce", _build_conjunction(equal), TRUE)]
            )
    return SemiJoin(relation, right, on, anti)


def list_row_values(scope: Scope, operand: exp.Expr) -> list[exp.Expr]:
    """List the values of a row (a, b), or the one value that an operand of IN is."""
    return (
        list(scope.source.take_arguments(operand, "expressions")[0])
        if type(operand) is exp.Tuple
        else [operand]
    )


def _make_comparison(
    scope: Scope, node: exp.Expr, operand: exp.Expr
) -> Callable[[Sequence[Expr]], list[Expr]]:
    """Return the rule that IN applies to the columns of its subquery: each equals a value of the operand."""
    values = [scope.scalars.lower(item) for item in list_row_values(scope, operand)]

    def compare_columns(items: Sequence[Expr]) -> list[Expr]:
        check_width(scope, node, len(values), len(items))
        return [scope.scalars.build_call(node, "eq", *pair) for pair in zip(values, items, strict=True)]

    return compare_columns


def check_width(scope: Scope, node: exp.Expr, values: int, columns: int) -> None:
    """Refuse IN over a subquery with another number of columns than its operand has values."""
    if values != columns:
        many = "one column" if values == 1 else f"{values} columns"
        scope.source.refuse(node, "subquery", f"a subquery of IN must have {many} here, not {columns}")


def _check_same_unit(scope: Scope, node: exp.Expr, relation: Relation, right: Source, on: Expr) -> None:
    known = {source.alias for source in iterate_sources(relation)} | {right.alias}
    if not {column.source for column in iterate_columns(on)} <= known:
        scope.source.refuse(node, "subquery", "a subquery may only refer to the query directly around it")
    if not is_private(right):
        return
    same = any(
        isinstance(part, Call) and _is_unit_equality(part, right) for part in iterate_factored_conjuncts(on)
    )
    pairs = _list_equal_pairs(on, right)
    if not (
        is_private(relation)
        and (same or (covers_declared_link(pairs) and not _has_row_units(relation, right)))
    ):
        scope.source.refuse(
            node,
            "private_join",
            "a subquery over private rows must be correlated on the privacy unit, so that no other "
            "unit's rows decide",
            combine_hints(
                suggest_unit_comparison(scope, node),
                suggest_link_declaration(pairs, relation, right),
            )
            if is_private(relation)
            else "count the rows of each key, and keep the small counts: "
            "SELECT a.k FROM a LEFT JOIN b USING (k) GROUP BY a.k HAVING COUNT(b.k) < 1"
            if isinstance(node.parent, exp.Not)
            else (
                "join the tables, so that each row belongs to a privacy unit, and count each key once: "
                "COUNT(DISTINCT key)"
            ),
        )


def _check_unknown(
    scope: Scope,
    node: exp.Expr,
    relation: Relation,
    right: Source,
    *,
    others: Sequence[Expr],
    equal: Sequence[Expr],
) -> None:
    """Refuse NOT IN over private rows where NULL would be compared with the rows of all units.

    A value other than NULL is only equal to values of its own unit; but `NULL NOT IN S` is true if no unit has a value in S,
    and `x NOT IN S` never is if anybody has NULL there. In a comparison of rows of values, only the ids of the units must be
    known: where they differ, the rows differ, whatever else is unknown. The same holds for all columns of a declared link
    together, if only these identify the unit of the rows.
    """
    if not is_private(right) or any(
        isinstance(part, Call) and _is_unit_equality(part, right) for part in others
    ):
        return
    compared = [part for part in equal if isinstance(part, Call)]
    of_units = [part for part in compared if _is_unit_equality(part, right)]
    telling = of_units[:1] or [part for part in compared if is_link_key_pair(*part.arguments)]
    for side in (side for part in telling for side in part.arguments):
        inside = any(column.source == right.alias for column in iterate_columns(side))
        if not is_never_null(side, right if inside else relation):
            scope.source.refuse(
                node,
                "private_join",
                f"{'a value of the subquery' if inside else format_expression(side)} could be NULL, so "
                "that rows of other privacy units would decide whether NOT IN is true",
                "exclude NULL: WHERE x IS NOT NULL, in the query and in the subquery; or write NOT "
                "EXISTS (SELECT … WHERE inner.unit = outer.unit AND …)",
            )


def _list_equal_pairs(on: Expr, right: Source) -> list[tuple[Expr, Expr]]:
    """List pairs of an expression over the outer rows and the equal one over the inner rows."""
    pairs = []
    for part in iterate_factored_conjuncts(on):
        if isinstance(part, Call) and part.function.name == "eq":
            ours, theirs = part.arguments
            inside = [
                any(column.source == right.alias for column in iterate_columns(side))
                for side in (ours, theirs)
            ]
            pairs += [(theirs, ours) if inside[0] else (ours, theirs)] if inside[0] != inside[1] else []
    return pairs


def _has_row_units(*relations: Relation) -> bool:
    """Return whether some rows are privacy units themselves."""
    return any(scan.unit.kind is UnitKind.ROW for side in relations for scan in list_private_scans(side))


def _is_unit_equality(part: Call, right: Source) -> bool:
    return part.function.name == "eq" and _has_same_unit(part.arguments, right)


def _has_same_unit(arguments: Sequence[Expr], right: Source) -> bool:
    ours, theirs = arguments
    return (
        isinstance(theirs, Column)
        and has_same_identity(ours, theirs)
        and isinstance(ours, Column)
        and (ours.source == right.alias) != (theirs.source == right.alias)
    )


def _lower_subquery(
    scope: Scope, node: exp.Expr, compare: Callable[[Sequence[Expr]], list[Expr]] | None
) -> tuple[Source, Expr]:
    """Return the rows to match with, under a name of their own, and the condition on them.

    `compare` is the comparison with the subquery's columns, for IN.
    """
    query = _strip_parentheses(node)
    alias = scope.context.allocate_alias(node)
    if type(query) is exp.Subquery:
        (query,) = scope.source.take_arguments(query, "this")
    bare = remove_irrelevant_clauses(scope.source, query, exists=compare is None)
    if type(bare) is not exp.Select or not is_plain_select(bare):
        inner = scope.context.enter_subquery(node, scope.context.common_tables, enclosing_scope=scope)
        derived = scope.context.lower_derived_query(inner, query, alias, ())
        if compare is None:
            return derived, TRUE
        if isinstance(derived, Scan):
            raise TypeError("a query cannot be a table")
        return derived, _build_conjunction(compare(derived.columns))
    return _lower_correlated_rows(scope, bare, query.args.get("order"), alias, compare)


def _lower_correlated_rows(
    scope: Scope,
    query: exp.Select,
    order: exp.Expr | None,
    alias: str,
    compare: Callable[[Sequence[Expr]], list[Expr]] | None,
) -> tuple[Source, Expr]:
    inner = Scope(
        scope.context.enter_subquery(query, scope.context.common_tables, scope.context.enclosing_scope),
        outer=scope,
    )
    relation, across = split_where(inner, query)
    check_order(inner, query, order)
    here = {named.alias for named in inner.tables.values()}
    exported: dict[Expr, Column] = {}

    def export_column(expr: Expr) -> Expr:
        if expr not in exported:
            exported[expr] = Column(alias, f"c{len(exported)}", derive_column_info(expr, relation))
        return exported[expr]

    on = [_rewrite_columns(part, here, export_column) for part in across]
    items = [expr for item in query.expressions for _, expr in lower_select_item(inner, item)]
    if compare is not None:
        on += compare([_rewrite_columns(item, here, export_column) for item in items])
    if not exported:
        export_column(Literal(1, Type.INTEGER))
    right = Project(relation, alias, tuple(exported), tuple(exported.values()))
    return right, _build_conjunction(on)


def _rewrite_columns(expr: Expr, here: set[str], export: Callable[[Expr], Expr]) -> Expr:
    """Return the condition with the subquery's columns read under the name that it has outside."""
    if isinstance(expr, Column):
        return export(expr) if expr.source in here else expr
    if isinstance(expr, Call):
        arguments = tuple(_rewrite_columns(part, here, export) for part in expr.arguments)
        return Call(expr.function, arguments, expr.type)
    return expr


def _strip_parentheses(node: exp.Expr) -> exp.Expr:
    while type(node) is exp.Paren:
        node = node.this
    return node


def _build_conjunction(predicates: Sequence[Expr]) -> Expr:
    if not predicates:
        return TRUE
    joined = predicates[0] if len(predicates) == 1 else build_function_call("and", *predicates)
    if joined is None:
        raise TypeError("conditions must be booleans")
    return joined
