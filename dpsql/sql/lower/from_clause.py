"""Lower FROM and JOIN to sources, each with its join conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.plan.nodes import JoinKind
from dpsql.plan.tables import Scan
from dpsql.policy import normalize_name
from dpsql.sql.lower.from_sources import add_single_row, add_source
from dpsql.sql.lower.full_joins import lower_full_join
from dpsql.sql.lower.joins import FromItem, iterate_factored_conjuncts, lower_condition, resolve_using_column
from dpsql.sql.lower.list_elements import add_selected_elements, add_unnested_elements
from dpsql.sql.lower.scope import Scope, SemiJoinSource

_MATCHING = ("SEMI", "ANTI")


def lower_from_clause(scope: Scope, select: exp.Select) -> list[FromItem]:
    """Bring the sources of FROM and JOIN into scope, and those of UNNEST in SELECT."""
    items = _lower_sources(scope, select)
    alias = add_selected_elements(scope, select)
    return items if alias is None else [*items, FromItem(alias, JoinKind.INNER, (), select)]


def _lower_sources(scope: Scope, select: exp.Select) -> list[FromItem]:
    origin = select.args.get("from_")
    if origin is None:
        return [FromItem(add_single_row(scope, select), JoinKind.INNER, (), select)]
    (node,) = scope.source.take_arguments(origin, "this")
    node, within = _unwrap_table(scope, _unwrap_lateral(scope, node))
    items = [FromItem(add_source(scope, node), JoinKind.INNER, (), node)]
    for join in (*within, *(select.args.get("joins") or ())):
        _attach_join(scope, join, items)
    return items


def _unwrap_table(scope: Scope, node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """Return a table in parentheses, and the joins that follow it there."""
    joins: list[exp.Join] = []
    while type(node) is exp.Subquery and type(node.this) in (exp.Table, exp.Subquery):
        if node.args.get("alias") is not None and type(node.this) is exp.Table:
            scope.source.refuse(
                node,
                "subquery",
                "joined tables in parentheses cannot have an alias",
                "write (SELECT * FROM …) AS t",
            )
        if node.args.get("alias") is not None:
            break
        inner, own = scope.source.take_arguments(node, "this", "joins")
        joins = [*(own or ()), *joins]
        node = inner
    if type(node) is exp.Table and node.args.get("joins"):
        joins = [*node.args["joins"], *joins]
        node = node.copy()
        node.set("joins", None)
    return node, joins


def _attach_join(scope: Scope, join: exp.Join, items: list[FromItem]) -> None:
    side = _get_join_side(scope, join)
    table, on, using, *_ = scope.source.take_arguments(join, "this", "on", "using", "side", "kind", "method")
    table, within = _unwrap_table(scope, _unwrap_lateral(scope, table))
    if within:
        _attach_group(scope, join, items, table, within)
        return
    if add_unnested_elements(scope, table, outer=side == "LEFT"):
        _check_elements(scope, join, side, items)
        return
    before = list(scope.tables)
    alias = add_source(scope, table)
    if join.args.get("method"):
        using = _list_shared_columns(scope, join, before, alias)
    if join.args.get("kind") in _MATCHING:
        _attach_semi_join(scope, join, before, alias, using or ())
        return
    _check_place(scope, join, side, items)
    if side == "FULL":
        items[0] = lower_full_join(scope, join, items[0].alias, alias)
        return
    _make_optional(scope, side, alias, items)
    conditions: list[Expr] = []
    if using:
        conditions = [_merge_using_column(scope, join, before, alias, identifier) for identifier in using]
    elif on is not None:
        conditions = list(iterate_factored_conjuncts(lower_condition(scope, on)))
    if side and not conditions:
        scope.source.refuse(table, "join", "a join needs ON or USING", "write JOIN … ON a = b")
    distinct = tuple(dict.fromkeys(conditions))  # USING may name a column many times
    joined = FromItem(alias, JoinKind.LEFT if side else JoinKind.INNER, distinct, table)
    if side == "RIGHT":
        first = items.pop()
        items.append(replace(joined, kind=JoinKind.INNER, conditions=()))
        joined = replace(joined, alias=first.alias, node=first.node)
    items.append(joined)


def _unwrap_lateral(scope: Scope, node: exp.Expr) -> exp.Expr:
    """Return a derived table for LATERAL, which, as other derived tables, reads no columns of those before."""
    if type(node) is not exp.Lateral or type(node.this) is not exp.Subquery:
        return node
    inner, alias = scope.source.take_arguments(node, "this", "alias", view=(False, None), outer=(False, None))
    found: exp.Expr = inner.copy()
    found.set("alias", None if alias is None else alias.copy())
    return found


def _check_elements(scope: Scope, join: exp.Join, side: str, items: list[FromItem]) -> None:
    """Refuse conditions and sides of a join with the elements of a row's list: it keeps rows that have some."""
    on = join.args.get("on")
    plain = on is None or (type(on) is exp.Boolean and scope.source.take_arguments(on, "this") == [True])
    if (
        side not in ("", "LEFT")
        or not plain
        or join.args.get("using")
        or join.args.get("method")
        or join.args.get("kind") in _MATCHING
    ):
        scope.source.refuse(
            join,
            "join",
            "UNNEST may only be joined by CROSS JOIN, or by LEFT JOIN … ON TRUE, which keeps rows "
            "without elements",
            "write FROM t, UNNEST(t.tags) AS u(tag) WHERE …",
        )
    if scope.semi_join_sources or any(item.kind is not JoinKind.INNER for item in items):
        scope.source.refuse(
            join,
            "join",
            "UNNEST must come before LEFT, SEMI and ANTI JOIN",
            "move UNNEST right behind its table",
        )


def _make_optional(scope: Scope, side: str, alias: str, items: list[FromItem]) -> None:
    """Mark the sources that a LEFT or RIGHT JOIN may pad with NULL."""
    if side == "LEFT":
        scope.nullable.add(alias)
    if side == "RIGHT":
        before_it = scope.tables[items[0].alias].relation  # of a FULL JOIN, both sides
        scope.nullable |= {name for name, known in scope.tables.items() if known.relation is before_it}


def _check_place(scope: Scope, join: exp.Join, side: str, items: list[FromItem]) -> None:
    """Refuse a FULL or RIGHT JOIN after joins or lists whose rows it would keep."""
    if side not in ("FULL", "RIGHT"):
        return
    if scope.semi_join_sources:
        scope.source.refuse(
            join,
            "join",
            f"a {side} JOIN must come before SEMI and ANTI JOIN",
            "put the SEMI or ANTI JOIN into a derived table",
        )
    if any(isinstance(known.relation, Scan) and known.relation.unnested for known in scope.tables.values()):
        scope.source.refuse(
            join, "join", f"a {side} JOIN must come before UNNEST", "unnest the list in a derived table"
        )
    if len(items) != 1 and side == "FULL":
        scope.source.refuse(
            join, "join", "a FULL JOIN must be the first join", "put the FULL JOIN into a derived table"
        )
    if len(items) != 1:
        scope.source.refuse(
            join, "join", "a RIGHT JOIN must be the first join", "swap the sides: b LEFT JOIN a"
        )


def _attach_group(
    scope: Scope, join: exp.Join, items: list[FromItem], table: exp.Expr, within: list[exp.Join]
) -> None:
    """Attach `JOIN (a JOIN b ON …) ON …`: of INNER JOINs it does not matter which is made first."""
    inner = all(
        _get_join_side(scope, each) == "" and each.args.get("kind") not in _MATCHING
        for each in (join, *within)
    )
    if not inner or any(each.args.get("method") or each.args.get("using") for each in (join, *within)):
        scope.source.refuse(
            join,
            "join",
            "parentheses may only group INNER JOINs with ON, and only inside of an INNER JOIN",
            "put them into a derived table: JOIN (SELECT … FROM a LEFT JOIN b ON …) AS t ON …",
        )
    items.append(FromItem(add_source(scope, table), JoinKind.INNER, (), table))
    for each in within:
        _attach_join(scope, each, items)
    if join.args.get("on") is not None:
        conditions = tuple(iterate_factored_conjuncts(lower_condition(scope, join.args["on"])))
        items[-1] = replace(items[-1], conditions=(*items[-1].conditions, *conditions))


def _attach_semi_join(
    scope: Scope, join: exp.Join, before: list[str], alias: str, using: Sequence[exp.Expr]
) -> None:
    """Attach a SEMI or ANTI JOIN: the earlier rows with a partner, or without, whose columns stay hidden."""
    on = join.args.get("on")
    conditions = [_build_using_equality(scope, join, before, alias, identifier)[1] for identifier in using]
    if on is not None:
        conditions += iterate_factored_conjuncts(lower_condition(scope, on))
    if not conditions:
        scope.source.refuse(join, "join", "a join needs ON or USING", "write SEMI JOIN … ON a = b")
    found = scope.tables.pop(alias)
    scope.semi_join_sources.append(
        SemiJoinSource(found, tuple(conditions), join.args.get("kind") == "ANTI", join)
    )


def _list_shared_columns(scope: Scope, join: exp.Join, before: list[str], alias: str) -> list[exp.Expr]:
    """List the columns that both sides of a NATURAL JOIN have."""
    if join.args.get("on") is not None or join.args.get("using"):
        scope.source.refuse(
            join, "join", "a NATURAL JOIN cannot have ON or USING", "leave out ON and USING, or write JOIN"
        )
    held = {name for item in before for name in scope.tables[item].columns}
    shared = [column.name for name, column in scope.tables[alias].columns.items() if name in held]
    if not shared:
        scope.source.refuse(
            join, "join", "the sides of this NATURAL JOIN share no column", "write JOIN … ON a = b"
        )
    return [exp.to_identifier(name, quoted=True) for name in shared]


def _merge_using_column(
    scope: Scope, join: exp.Join, before: list[str], alias: str, identifier: exp.Expr
) -> Expr:
    (name, holder), equal = _build_using_equality(scope, join, before, alias, identifier)
    folded = normalize_name(name)
    # The side whose rows are all kept always has the column.
    scope.using_owners[folded] = alias if holder in scope.nullable else holder
    scope.using_sides.setdefault(folded, [holder]).append(alias)
    return equal


def _build_using_equality(
    scope: Scope, join: exp.Join, before: list[str], alias: str, identifier: exp.Expr
) -> tuple[tuple[str, str], Expr]:
    """Return the column of USING that `resolve_using_column` finds, and the equality of both sides."""
    name, holder = resolve_using_column(scope, before, alias, identifier)
    equal = scope.scalars.build_call(
        join, "eq", scope.get_column(holder, name), scope.get_column(alias, name)
    )
    return (name, holder), equal


def _get_join_side(scope: Scope, join: exp.Join) -> str:
    """Return the side of a join whose rows are all kept, FULL for both, or "" for none."""
    side, kind, method = (join.args.get(name) or "" for name in ("side", "kind", "method"))
    known = side in ("", "LEFT", "RIGHT", "FULL") and kind in ("", "INNER", "OUTER", "CROSS", *_MATCHING)
    if method not in ("", "NATURAL") or not known or (side and kind in _MATCHING):
        scope.source.refuse(
            join,
            "join",
            "this kind of join is not supported: only INNER, LEFT, RIGHT, FULL, CROSS, SEMI, ANTI "
            "and NATURAL",
            "write JOIN … ON a = b",
        )
    return str(side)
