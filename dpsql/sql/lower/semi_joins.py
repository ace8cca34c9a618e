"""Lowers EXISTS and IN over a subquery to semi-joins and anti-joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.analysis.nullability import never_null
from dpsql.functions import call
from dpsql.plan.expr import Call, Column, Expr, Literal, columns
from dpsql.plan.nodes import Project, Relation, SemiJoin, Source, is_private, private_scans, sources
from dpsql.plan.render import phrase
from dpsql.plan.tables import Scan, UnitKind
from dpsql.plan.types import Type
from dpsql.sql.lower.declared_links import alternatives, declaration, linked, tells
from dpsql.sql.lower.derived import facts_of, output_columns, plain
from dpsql.sql.lower.from_clause import from_clause
from dpsql.sql.lower.has_rows import check_order, without_order
from dpsql.sql.lower.joins import (
    Attached,
    assemble,
    condition,
    conditions,
    conjuncts,
    named_items,
    same_identity,
)
from dpsql.sql.lower.node_kinds import is_matching
from dpsql.sql.lower.public_left_joins import as_inner
from dpsql.sql.lower.scope import Matched, Scope

TRUE = Literal(True, Type.BOOLEAN)


def _is_semi_join(node: exp.Expr) -> bool:
    """Whether a condition is EXISTS or IN over a subquery, or NOT of one."""
    return is_matching(_bare(node.this) if type(node) is exp.Not else node)


Joining = Callable[[Sequence[Expr]], tuple[list[Attached], list[Expr]]]
"""What is joined besides, for conditions that name columns of an outer query, and the conditions of that join."""


def split_where(
    scope: Scope, select: exp.Select, *, released: bool = False, joining: Joining | None = None
) -> tuple[Relation, list[Expr]]:
    """The rows of FROM and WHERE, and apart from them the conditions that name columns of an outer query.

    With `joining` these are joined to a further source, where they are no equalities. Of what is `released`, public rows without private ones may be left out, whose groups are there without them.
    """
    items = from_clause(scope, select)
    items = as_inner(scope, items) if released else items
    here = {named.alias for named in scope.tables.values()}
    for item in items:
        if any(column.source not in here for part in item.conditions for column in columns(part)):
            scope.source.refuse(
                item.node, "join", "ON may only name tables of its own FROM", "move the condition to WHERE"
            )
    scope.aliases = named_items(select)
    scope.waiting = []
    matched: list[exp.Expr] = []
    plain: list[Expr] = []
    for node in conditions(scope, select):
        if _is_semi_join(node):
            matched.append(node)
        else:
            plain += conjuncts(condition(scope, node))
    items += scope.waiting
    scope.waiting = None
    here = {named.alias for named in scope.tables.values()}
    across = [part for part in plain if not {column.source for column in columns(part)} <= here]
    joined, on = ([], []) if joining is None else joining(across)
    relation = assemble(scope, [*joined, *items], [*(part for part in plain if part not in across), *on])
    for partner in scope.matched:
        relation = _matched(scope, relation, partner)
    for node in matched:
        relation = matching(scope, relation, node)
    scope.aliases = {}
    return relation, across


def _matched(scope: Scope, relation: Relation, item: Matched) -> SemiJoin:
    """The rows of `relation` that SEMI JOIN or ANTI JOIN keeps."""
    alias = scope.context.fresh(item.node)
    exported: dict[Expr, Column] = {}

    def export(expr: Expr) -> Expr:
        if expr not in exported:
            exported[expr] = Column(alias, f"c{len(exported)}", facts_of(expr, item.source.relation))
        return exported[expr]

    on = _all([_rewritten(part, {item.source.alias}, export) for part in item.conditions])
    if not exported:
        export(Literal(1, Type.INTEGER))
    right = Project(item.source.relation, alias, tuple(exported), tuple(exported.values()))
    _check(scope, item.node, relation, right, on)
    return SemiJoin(relation, right, on, item.anti)


def matching(scope: Scope, relation: Relation, node: exp.Expr) -> SemiJoin:
    """The rows of `relation` for which the condition is true."""
    anti = type(node) is exp.Not
    if anti:
        (inside,) = scope.source.take(node, "this")
        node = _bare(inside)
    if type(node) is exp.Exists:
        (query,) = scope.source.take(node, "this")
        right, on = _subquery(scope, query, None)
        _check(scope, node, relation, right, on)
    else:
        operand, query = scope.source.take(node, "this", "query")
        right, on = _subquery(scope, query, _comparison(scope, node, operand))
        _check(scope, node, relation, right, on)
        if anti:
            # NOT IN is true only if no value is equal and none is unknown.
            parts = list(conjuncts(on))
            width = len(row_of(scope, operand))
            others, equal = parts[:-width], parts[-width:]
            _check_unknown(scope, node, relation, right, others=others, equal=equal)
            on = _all([*others, scope.scalars.call(node, "coalesce", _all(equal), TRUE)])
    return SemiJoin(relation, right, on, anti)


def row_of(scope: Scope, operand: exp.Expr) -> list[exp.Expr]:
    """The values of a row (a, b), or the one value that an operand of IN is."""
    return list(scope.source.take(operand, "expressions")[0]) if type(operand) is exp.Tuple else [operand]


def _comparison(scope: Scope, node: exp.Expr, operand: exp.Expr) -> Callable[[Sequence[Expr]], list[Expr]]:
    """What IN requires of the columns of its subquery: each equals a value of the operand."""
    values = [scope.scalars.lower(item) for item in row_of(scope, operand)]

    def compare(items: Sequence[Expr]) -> list[Expr]:
        check_width(scope, node, len(values), len(items))
        return [scope.scalars.call(node, "eq", *pair) for pair in zip(values, items, strict=True)]

    return compare


def check_width(scope: Scope, node: exp.Expr, values: int, columns: int) -> None:
    """Refuses IN over a subquery with another number of columns than its operand has values."""
    if values != columns:
        many = "one column" if values == 1 else f"{values} columns"
        scope.source.refuse(node, "subquery", f"IN takes a subquery of {many} here, not of {columns}")


def _check(scope: Scope, node: exp.Expr, relation: Relation, right: Source, on: Expr) -> None:
    known = {source.alias for source in sources(relation)} | {right.alias}
    if not {column.source for column in columns(on)} <= known:
        scope.source.refuse(
            node, "subquery", "a subquery may refer to the query right around it, and no further"
        )
    if not is_private(right):
        return
    same = any(isinstance(part, Call) and _is_of_unit(part, right) for part in conjuncts(on))
    pairs = _equal(on, right)
    if not (is_private(relation) and (same or (linked(pairs) and not _of_rows(relation, right)))):
        scope.source.refuse(
            node,
            "private_join",
            "a subquery over private rows must compare the privacy unit: rows of other units must not decide",
            alternatives(
                "compare the units: EXISTS (SELECT … WHERE inner.unit = outer.unit)",
                declaration(pairs, relation, right),
            )
            if is_private(relation)
            else "join them, so that each row is somebody's, and count each key once: COUNT(DISTINCT key)",
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
    """Refuses NOT IN over private rows where NULL would be compared with the rows of all units.

    A value other than NULL is only equal to values of its own unit; but `NULL NOT IN S` is true if no unit has a
    value in S, and `x NOT IN S` never is if anybody has NULL there. Of a row of values it is enough that those of the
    units are known: where they differ, the rows do, whatever is unknown besides. So are the columns of a declared link,
    all of them, where these alone say whose the rows are.
    """
    if not is_private(right) or any(isinstance(part, Call) and _is_of_unit(part, right) for part in others):
        return
    compared = [part for part in equal if isinstance(part, Call)]
    of_units = [part for part in compared if _is_of_unit(part, right)]
    telling = of_units[:1] or [part for part in compared if tells(*part.arguments)]
    for side in (side for part in telling for side in part.arguments):
        inside = any(column.source == right.alias for column in columns(side))
        if not never_null(side, right if inside else relation):
            scope.source.refuse(
                node,
                "private_join",
                f"{'a value of the subquery' if inside else phrase(side)} could be NULL, "
                "and whether NOT IN is true then depends on the rows of other privacy units",
                "leave NULL out: WHERE x IS NOT NULL, in the query and in the subquery; "
                "or write NOT EXISTS (SELECT … WHERE inner.unit = outer.unit AND …)",
            )


def _equal(on: Expr, right: Source) -> list[tuple[Expr, Expr]]:
    """Pairs of an expression over the outer rows and the equal one over the inner rows."""
    pairs = []
    for part in conjuncts(on):
        if isinstance(part, Call) and part.function.name == "eq":
            ours, theirs = part.arguments
            inside = [
                any(column.source == right.alias for column in columns(side)) for side in (ours, theirs)
            ]
            pairs += [(theirs, ours) if inside[0] else (ours, theirs)] if inside[0] != inside[1] else []
    return pairs


def _of_rows(*relations: Relation) -> bool:
    """Whether some rows are privacy units themselves."""
    return any(scan.unit.kind is UnitKind.ROW for side in relations for scan in private_scans(side))


def _is_of_unit(part: Call, right: Source) -> bool:
    return part.function.name == "eq" and _same_unit(part.arguments, right)


def _same_unit(arguments: Sequence[Expr], right: Source) -> bool:
    ours, theirs = arguments
    return (
        isinstance(theirs, Column)
        and same_identity(ours, theirs)
        and isinstance(ours, Column)
        and (ours.source == right.alias) != (theirs.source == right.alias)
    )


def _subquery(
    scope: Scope, node: exp.Expr, compare: Callable[[Sequence[Expr]], list[Expr]] | None
) -> tuple[Source, Expr]:
    """The rows to match with, under a name of their own, and the condition on them.

    `compare` is the comparison with the subquery's columns, for IN.
    """
    query = _bare(node)
    alias = scope.context.fresh(node)
    if type(query) is exp.Subquery:
        (query,) = scope.source.take(query, "this")
    bare = without_order(scope.source, query, exists=compare is None)
    if type(bare) is not exp.Select or not plain(bare):
        inner = scope.context.deeper(node, scope.context.common, around=scope)
        derived = scope.context.derive(inner, query, alias, ())
        if compare is None:
            return derived, TRUE
        if isinstance(derived, Scan):
            raise TypeError("a query is no table")
        return derived, _all(compare(derived.columns))
    return _correlated(scope, bare, query.args.get("order"), alias, compare)


def _correlated(
    scope: Scope,
    query: exp.Select,
    order: exp.Expr | None,
    alias: str,
    compare: Callable[[Sequence[Expr]], list[Expr]] | None,
) -> tuple[Source, Expr]:
    inner = Scope(scope.context.deeper(query, scope.context.common, scope.context.around), outer=scope)
    relation, across = split_where(inner, query)
    check_order(inner, query, order)
    here = {named.alias for named in inner.tables.values()}
    exported: dict[Expr, Column] = {}

    def export(expr: Expr) -> Expr:
        if expr not in exported:
            exported[expr] = Column(alias, f"c{len(exported)}", facts_of(expr, relation))
        return exported[expr]

    on = [_rewritten(part, here, export) for part in across]
    items = [expr for item in query.expressions for _, expr in output_columns(inner, item)]
    if compare is not None:
        on += compare([_rewritten(item, here, export) for item in items])
    if not exported:
        export(Literal(1, Type.INTEGER))
    right = Project(relation, alias, tuple(exported), tuple(exported.values()))
    return right, _all(on)


def _rewritten(expr: Expr, here: set[str], export: Callable[[Expr], Expr]) -> Expr:
    """The condition with the subquery's columns read under the name that it has outside."""
    if isinstance(expr, Column):
        return export(expr) if expr.source in here else expr
    if isinstance(expr, Call):
        arguments = tuple(_rewritten(part, here, export) for part in expr.arguments)
        return Call(expr.function, arguments, expr.type)
    return expr


def _bare(node: exp.Expr) -> exp.Expr:
    while type(node) is exp.Paren:
        node = node.this
    return node


def _all(predicates: Sequence[Expr]) -> Expr:
    if not predicates:
        return TRUE
    joined = predicates[0] if len(predicates) == 1 else call("and", *predicates)
    if joined is None:
        raise TypeError("conditions are booleans")
    return joined
