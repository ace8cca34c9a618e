"""Distinct rows across privacy units, which no relation holds, and of which a release counts values.

SELECT DISTINCT, UNION, INTERSECT and EXCEPT of private rows that do not say whose they are make one row of equal rows of
several units. Over them stand COUNT(*), COUNT(x) and COUNT(DISTINCT x), which are numbers of distinct values.

Claim: one unit moves each of these numbers, in all groups together, by at most the number of its rows that count.
Why: rows are made one by counting distinct texts, one for each row of values, over all rows of the units; see
`dpsql.aggregates.count_distinct`. |A ∩ B| = |A| + |B| - |A ∪ B| and |A - B| = |A ∪ B| - |B| are computed of three and of
two such numbers over the rows of both sides, each of which a release measures.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expr import Column, Expr, Facts, Literal
from dpsql.plan.fields import INIT_FIELDS
from dpsql.plan.nodes import Filter, OuterQuery, Project, Relation, SetKind, SetOperation, Source
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.row_values import row_value
from dpsql.sql.lower.derived import project, unique_names
from dpsql.sql.lower.scope import Context, Scope
from dpsql.sql.read.rejection import Source as Text

_HINT = (
    "add the unit's column to SELECT; or count them, and nothing else, in the SELECT around: "
    "SELECT COUNT(*) FROM (SELECT DISTINCT …), with WHERE and GROUP BY"
)


def check_counted(context: Context, outer: OuterQuery) -> None:
    """Refuses a plan in which distinct rows across units are read otherwise than by counting them."""
    if context.once and _holds(outer, set()):
        context.source.refuse(
            context.once[-1],
            "distinct",
            "distinct rows of several privacy units are counted, and not read one by one",
            _HINT,
        )


def _holds(part: object, seen: set[int]) -> bool:
    """Whether distinct rows across units are in a plan."""
    if isinstance(part, tuple):
        return any(_holds(item, seen) for item in part)
    if id(part) in seen or not INIT_FIELDS[type(part)]:
        return False
    seen.add(id(part))
    if isinstance(part, (Project, SetOperation)) and part.once:
        return True
    return any(_holds(getattr(part, name), seen) for name in INIT_FIELDS[type(part)])


def once(relation: Relation) -> Project | SetOperation | None:
    """The distinct rows across units that a relation is, but for conditions on them."""
    while isinstance(relation, Filter):
        relation = relation.input
    return relation if isinstance(relation, (Project, SetOperation)) and relation.once else None


def all_rows(context: Context, node: exp.Expr, relation: Relation) -> Relation:
    """All rows, of which distinct ones are counted; those of two sides with the number of their side."""
    if isinstance(relation, Filter):
        return replace(relation, input=all_rows(context, node, relation.input))
    if isinstance(relation, Project):
        return replace(relation, once=False)
    if not isinstance(relation, SetOperation):
        raise TypeError("these rows are distinct as they are")
    if relation.kind is SetKind.UNION:
        return replace(relation, once=False, kind=SetKind.UNION_ALL)
    left, right = (
        _numbered(context, node, side, number)
        for number, side in enumerate((relation.left, relation.right), 1)
    )
    columns = (*relation.columns, _side(relation))
    return SetOperation(left, right, relation.alias, SetKind.UNION_ALL, columns)


def _numbered(context: Context, node: exp.Expr, side: Source, number: int) -> Source:
    if isinstance(side, Scan):
        raise TypeError("a side is a query")
    items: list[tuple[str, Expr]] = [(column.name, column) for column in side.columns]
    return project(side, context.fresh(node), [*items, ("side", Literal(number, Type.INTEGER))])


def _side(operation: SetOperation) -> Column:
    *_, name = unique_names([*(column.name for column in operation.columns), "side"])
    return Column(operation.alias, name, Facts(Type.INTEGER, "", nullable=False))


def counted(
    scope: Scope,
    node: exp.Expr,
    source: Project | SetOperation,
    argument: Expr | None,
    count: Callable[[Expr], Expr],
) -> Expr:
    """The number of distinct rows, of those in which an argument is not NULL; `count` releases one of distinct values."""
    value = row_value(scope.scalars, node, source.columns)
    call = scope.scalars.call
    if argument is not None:
        value = call(node, "case", call(node, "is_null", argument), Literal(None, Type.NULL), value)
    return _of_sides(scope, node, source, value, count)


def compared(source: Project | SetOperation) -> bool:
    """Whether rows are distinct ones of one side that are, or are not, on the other."""
    return isinstance(source, SetOperation) and source.kind in (SetKind.INTERSECT, SetKind.EXCEPT)


def refuse_values(text: Text, node: exp.Expr, source: Project | SetOperation) -> NoReturn:
    """Refuses what is not a count of distinct rows across units."""
    text.refuse(
        node,
        "distinct",
        "distinct rows of several privacy units are counted: one unit's row may be the last of its values",
        "put into the set operation what is counted: SELECT COUNT(*) FROM (SELECT x … INTERSECT SELECT x …)"
        if compared(source)
        else "write COUNT(*); or release the rows first: SELECT SUM(x) FROM (SELECT x … GROUP BY x)",
    )


def _of_sides(
    scope: Scope, node: exp.Expr, source: Project | SetOperation, value: Expr, count: Callable[[Expr], Expr]
) -> Expr:
    call = scope.scalars.call
    if not isinstance(source, SetOperation) or not compared(source):
        return count(value)
    side = _side(source)

    def of(number: int) -> Expr:
        other = call(node, "ne", side, Literal(number, Type.INTEGER))
        return count(call(node, "case", other, Literal(None, Type.NULL), value))

    if source.kind is SetKind.EXCEPT:
        return call(node, "subtract", count(value), of(2))
    return call(node, "subtract", call(node, "add", of(1), of(2)), count(value))
