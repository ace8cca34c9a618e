"""FROM public LEFT JOIN private: every public row has a group, also without a matching private row.

Claim: if all groups are public, and every aggregate ignores public rows without a private match, the release is that of the
INNER JOIN.
Why: all public groups are released, also empty ones; an expression that is NULL where the private columns are is neither
counted nor summed.
Source: ISO/IEC 9075-2, <joined table> and <aggregate function>, by which aggregates of a column ignore NULL.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.functions.conditional import split_case_branches
from dpsql.plan.nodes import Filter, JoinKind, Relation, Release, SemiJoin, is_private
from dpsql.sql.lower.joins import FromItem
from dpsql.sql.lower.public_groups import PublicGroupsRequirement
from dpsql.sql.lower.scope import Scope

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


def to_inner_join(scope: Scope, items: list[FromItem]) -> list[FromItem]:
    """Return the items of a FROM clause with such a source joined to the public rows that it has rows of.

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
