"""Lower FROM: joins in the order in which they are written, FULL JOIN, and LEFT JOIN of public with private rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.nodes import Filter, JoinKind, Relation, Release, SemiJoin, SetKind, Source, is_private
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.derived_tables import build_projection, combine_set_operation
from dpsql.sql.lower.from_sources import (
    add_selected_elements,
    add_single_row,
    add_source,
    add_unnested_elements,
)
from dpsql.sql.lower.joins import (
    FromItem,
    build_conjunction,
    build_left_join,
    iterate_factored_conjuncts,
    lower_condition,
    refuse_unowned_rows,
    resolve_using_column,
)
from dpsql.sql.lower.scope import NamedSource, Scope, SemiJoinSource
from dpsql.sql.lower.statement_context import PublicGroupsRequirement

# Lower FULL JOIN to an equivalent set operation.


_MISSING = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class _FullJoinColumn:
    """A column of the result, `name` of `alias`: its value where `a` has a row, and where only `b` has one."""

    alias: str
    name: str
    left_value: Expr
    right_only_value: Expr


def lower_full_join(scope: Scope, join: exp.Join, first: str, second: str) -> FromItem:
    """Return the two sources in scope under these aliases as one. Raises QueryRejected.

    Claim: a FULL JOIN b is a LEFT JOIN b, UNION ALL the rows of b without a match in a.
    Why: that is its definition. Each row keeps its unit, by the rules of LEFT JOIN, anti-joins and UNION ALL.
    Source: ISO/IEC 9075-2, <joined table>.
    """
    table, on, using, *_ = scope.source.take_arguments(join, "this", "on", "using", "side", "kind")
    left, right = scope.tables[first].relation, scope.tables[second].relation
    _check_sides(scope, table, left, right)
    known = [alias for alias, named in scope.tables.items() if named.relation is left]
    pairs = [_build_using_column(scope, known, second, identifier) for identifier in using or ()]
    conditions = [
        scope.scalars.build_call(join, "eq", pair.left_value, pair.right_only_value) for pair in pairs
    ]
    conditions += [] if on is None else iterate_factored_conjuncts(lower_condition(scope, on))
    predicate = build_conjunction(conditions)
    if predicate is None or not {column.source for column in iterate_columns(predicate)} <= {
        left.alias,
        right.alias,
    }:
        scope.source.refuse(
            table, "join", "a FULL JOIN needs ON or USING with columns of its own two sides only"
        )
    items = [*(replace(pair, alias="") for pair in pairs), *_list_side_columns(scope, known, second)]
    item = FromItem(second, JoinKind.LEFT, tuple(conditions), table)
    whole = _build_union(
        scope, join, items, build_left_join(scope, left, item), SemiJoin(right, left, predicate, anti=True)
    )
    _rename_columns(scope, items, whole, known, second)
    return FromItem(first, JoinKind.INNER, (), table)


def _check_sides(scope: Scope, node: exp.Expr, left: Source, right: Source) -> None:
    if is_private(left) != is_private(right):
        scope.source.refuse(
            node,
            "join",
            "a FULL JOIN or RIGHT JOIN would keep rows of a public table that belong to no privacy unit",
            "keep only the rows of the private table: private LEFT JOIN public",
        )


def _build_using_column(
    scope: Scope, known: Sequence[str], second: str, identifier: exp.Expr
) -> _FullJoinColumn:
    """Build the two columns that USING makes one."""
    name, holder = resolve_using_column(scope, known, second, identifier)
    return _FullJoinColumn(holder, name, scope.get_column(holder, name), scope.get_column(second, name))


def _list_side_columns(scope: Scope, known: Sequence[str], second: str) -> list[_FullJoinColumn]:
    """List the columns of both sides."""
    ours = [(alias, *item) for alias in known for item in scope.tables[alias].columns.items()]
    theirs = scope.tables[second].columns.items()
    return [
        *(
            _FullJoinColumn(alias, _get_column_name(name, column), column, _MISSING)
            for alias, name, column in ours
        ),
        *(
            _FullJoinColumn(second, _get_column_name(name, column), _make_nullable(column), column)
            for name, column in theirs
        ),
    ]


def _get_column_name(folded: str, column: Column) -> str:
    """Return the declared name of a column, without the number that an earlier FULL JOIN gave it."""
    return column.name if normalize_name(column.name) == folded else folded


def _make_nullable(column: Column) -> Column:
    return replace(column, facts=replace(column.facts, nullable=True))


def _build_union(
    scope: Scope, join: exp.Join, items: Sequence[_FullJoinColumn], joined: Relation, alone: Relation
) -> Source:
    context = scope.context
    left = build_projection(
        joined, context.allocate_alias(join), [(item.name, item.left_value) for item in items]
    )
    right = build_projection(
        alone, context.allocate_alias(join), [(item.name, item.right_only_value) for item in items]
    )
    return combine_set_operation(
        context, join, SetKind.UNION_ALL, left, right, alias=context.allocate_alias(join)
    )


def _rename_columns(
    scope: Scope, items: Sequence[_FullJoinColumn], whole: Source, known: Sequence[str], second: str
) -> None:
    """Name mean the columns of the whole from here on; those of USING are its own."""
    if not hasattr(whole, "columns"):
        raise TypeError("a set operation must have columns")
    named: dict[str, dict[str, Column]] = {
        alias: {} for alias in (*known, second, normalize_name(whole.alias))
    }
    for item, column in zip(items, whole.columns, strict=True):
        named[item.alias or normalize_name(whole.alias)][normalize_name(item.name)] = column
    scope.tables.update({alias: NamedSource(whole, found) for alias, found in named.items()})
    scope.nullable -= {*known, second}
    for folded in named[normalize_name(whole.alias)]:
        first = next(alias for alias in known if folded in named[alias])
        scope.using_owners[folded] = normalize_name(whole.alias)
        scope.using_sides[folded] = [
            *scope.using_sides.get(folded, [first]),
            second,
            normalize_name(whole.alias),
        ]


# FROM public LEFT JOIN private: every public row has a group, also without a matching private row.


PROPAGATING = frozenset((
    "add", "subtract", "multiply", "divide", "negate", "quotient", "remainder", "abs", "floor", "ceil", "round",
    "eq", "ne", "lt", "le", "gt", "ge", "not", "like", "lower", "upper", "length", "substring", "left", "right",
    "year", "month", "day", "hour", "date_trunc_month", "date_trunc_day", "date_diff_day",
    "cast_integer", "cast_bigint", "cast_double", "cast_varchar", "cast_date",
))  # fmt: skip
"""Functions, by their names in the registry, that are NULL where an argument is."""
_COUNT = "count values of the private table: COUNT(DISTINCT unit), COUNT(x), COUNT_IF(x > 0)"


def find_optional_source(scope: Scope) -> str | None:
    """Return the name of the private source that public rows may have no row of; None if all rows belong to units."""
    private = {alias: named for alias, named in scope.tables.items() if is_private(named.relation)}
    missing = [named.alias for alias, named in private.items() if alias in scope.nullable]
    return missing[0] if missing and len(missing) == len(private) else None


def check_optional_source(scope: Scope, node: exp.Expr) -> None:
    """Refuse groups within units where public rows without a private row would belong to no unit."""
    name = find_optional_source(scope)
    if name is not None:
        refuse_unowned_rows(scope, node, "the public table", name)


def to_inner_join(scope: Scope, items: list[FromItem]) -> list[FromItem]:
    """Return the items of a FROM clause with such a source joined to the public rows that it has rows of.

    Claim: if all groups are public, and every aggregate ignores public rows without a private match, the release is that of the
    INNER JOIN.
    Why: all public groups are released, also empty ones; an expression that is NULL where the private columns are is neither
    counted nor summed.
    Source: ISO/IEC 9075-2, <joined table> and <aggregate function>, by which aggregates of a column ignore NULL.

    Raises QueryRejected if it is not the last join, or has conditions other than equalities and conditions on the joined
    table.
    """
    name = find_optional_source(scope)
    if name is None:
        return items
    *before, last = items
    if scope.tables[last.alias].alias != name or any(item.kind is JoinKind.LEFT for item in before):
        scope.source.refuse(
            last.node,
            "join",
            "the private table must come last in public LEFT JOIN private",
            "put a private table first in FROM",
        )
    if any(all(column.source != name for column in iterate_columns(part)) for part in last.conditions):
        scope.source.refuse(
            last.node,
            "join",
            "every condition of this ON must compare with the private table",
            "move the other conditions to WHERE",
        )
    return [*before, replace(last, kind=JoinKind.INNER)]


def require_private_argument(scope: Scope, node: exp.Expr, expr: Expr) -> Expr:
    """Return the argument of an aggregate. Refuses one that is not NULL in rows that belong to no unit."""
    name = find_optional_source(scope)
    if name is not None and not _is_null_when_absent(expr, name):
        scope.source.refuse(
            node,
            "join",
            "this argument could have a value in rows of the public table without a private row",
            _COUNT,
        )
    return expr


def check_row_count(scope: Scope, node: exp.Expr) -> None:
    """Refuse COUNT(*) where some rows belong to no unit."""
    if find_optional_source(scope) is not None:
        scope.source.refuse(
            node, "join", "COUNT(*) would also count rows of the public table without a private row", _COUNT
        )


def with_all_public_rows(scope: Scope, node: exp.Expr, release: Release) -> Release:
    """Return the release with groups for all public rows. Those without private rows must not be hidden."""
    name = find_optional_source(scope)
    if name is None:
        return release
    _check_absence(scope, node, release.input, name)

    def refuse() -> NoReturn:
        scope.source.refuse(
            node,
            "join",
            "every group key must have public values here: other groups without private rows would "
            "be missing",
            "group by one column of the public table with up to 1,000 values; or write JOIN, which "
            "drops groups without private rows",
        )

    release = replace(release, all_public_rows=True)
    scope.context.requirements.append(PublicGroupsRequirement(release, refuse))
    return release


def _check_absence(scope: Scope, node: exp.Expr, relation: Relation, name: str) -> None:
    """Refuse conditions that may be true of public rows without a private row: these are not among the joined rows."""
    while isinstance(relation, (Filter, SemiJoin)):
        asked: list[Expr]
        if isinstance(relation, Filter):
            asked = [part for part in iterate_conjuncts(relation.predicate) if _reads_source(part, name)]
        else:
            asked = [relation.on] if relation.anti and _reads_source(relation.on, name) else []
        if not all(_is_untrue_when_absent(part, name) for part in asked):
            scope.source.refuse(
                node.args.get("where") or node,
                "join",
                "WHERE cannot select rows of the public table without a private row: there is no exact "
                "list of them",
                f"count, and keep the small counts: SELECT x FROM a LEFT JOIN {name} … GROUP BY x HAVING "
                f"COUNT({name}.y) < 1",
            )
        relation = relation.input


def _reads_source(expr: Expr, name: str) -> bool:
    return any(column.source == name for column in iterate_columns(expr))


def _is_null_when_absent(expr: Expr, name: str) -> bool:
    """Return whether an expression is NULL where the columns of a source are."""
    match expr:
        case Column():
            return expr.source == name
        case Literal():
            return expr.value is None
        case Call() if expr.function.name == "case":
            branches, otherwise = split_case_branches(expr.arguments)
            return _is_null_when_absent(otherwise, name) and all(
                _is_untrue_when_absent(condition, name) or _is_null_when_absent(value, name)
                for condition, value in branches
            )
        case Call() if expr.function.name in PROPAGATING:
            return any(_is_null_when_absent(argument, name) for argument in expr.arguments)
    return False


def _is_untrue_when_absent(expr: Expr, name: str) -> bool:
    """Return whether a condition is not true in rows without a private row."""
    if isinstance(expr, Call) and expr.function.name == "and":
        return any(_is_untrue_when_absent(part, name) for part in expr.arguments)
    if isinstance(expr, Call) and expr.function.name == "or":
        return all(_is_untrue_when_absent(part, name) for part in expr.arguments)
    return _is_null_when_absent(expr, name)


# Lower FROM and JOIN to sources, each with its join conditions.


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
