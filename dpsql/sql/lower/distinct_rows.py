"""Distinct rows across privacy units, which no relation holds: a release counts their values.

SELECT DISTINCT, UNION, INTERSECT and EXCEPT of private rows without the unit's id merge equal rows of several units into one.
Only COUNT(*), COUNT(x) and COUNT(DISTINCT x) are allowed over them, which are numbers of distinct values.

Claim: one unit moves each of these numbers, in all groups together, by at most the number of its rows that are counted.
Why: equal rows are merged by counting distinct texts, one for each row of values, over all rows of the units; see
`dpsql.plan.aggregates.base`. |A ∩ B| = |A| + |B| - |A ∪ B| and |A - B| = |A ∪ B| - |B| are computed from three and from
two such numbers over the rows of both sides, each of which a release measures. With several sides, whether a value counts
depends on the set of sides that have it. That is a sum, with whole factors, of indicators that the value is on at least one
of a subset of the sides; so the number of values is the same sum of numbers of distinct values over subsets of the sides.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union); Rota 1964, "On the foundations of combinatorial
theory I", section 3 (Möbius inversion over subsets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal
from dpsql.plan.nodes import Filter, OuterQuery, Project, Relation, SetKind, SetOperation, Source
from dpsql.plan.tables import Scan
from dpsql.plan.types import INIT_FIELDS, Type
from dpsql.sql.lower.aggregates.count import build_row_text
from dpsql.sql.lower.derived_tables import build_projection, make_unique_names
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.statement_context import StatementContext
from dpsql.sql.parse.rejection import QueryText

_HINT = (
    "add the unit's column to SELECT; or only count the distinct rows in the outer SELECT: "
    "SELECT COUNT(*) FROM (SELECT DISTINCT …), with WHERE and GROUP BY"
)
_MOST_SIDES, _MOST_COUNTS = 8, 15
"""The most compared sides of set operations, and the most numbers that are summed for them."""


def check_counted(context: StatementContext, outer: OuterQuery) -> None:
    """Refuse a plan in which distinct rows across units are read otherwise than by counting them."""
    if context.distinct_nodes and _has_distinct_rows(outer, set()):
        context.source.refuse(
            context.distinct_nodes[-1],
            "distinct",
            "distinct rows of several privacy units can only be counted, not read one by one",
            _HINT,
        )


def _has_distinct_rows(part: object, seen: set[int]) -> bool:
    """Return whether distinct rows across units are in a plan."""
    if isinstance(part, tuple):
        return any(_has_distinct_rows(item, seen) for item in part)
    if id(part) in seen or not INIT_FIELDS[type(part)]:
        return False
    seen.add(id(part))
    if isinstance(part, (Project, SetOperation)) and part.once:
        return True
    return any(_has_distinct_rows(getattr(part, name), seen) for name in INIT_FIELDS[type(part)])


def find_distinct_rows(relation: Relation) -> Project | SetOperation | None:
    """Find the distinct rows across units behind a relation, below conditions on them."""
    while isinstance(relation, Filter):
        relation = relation.input
    return relation if isinstance(relation, (Project, SetOperation)) and relation.once else None


def build_all_rows(context: StatementContext, node: exp.Expr, relation: Relation) -> Relation:
    """Build all rows from which distinct ones are counted; rows of two sides with the number of their side."""
    if isinstance(relation, Filter):
        return replace(relation, input=build_all_rows(context, node, relation.input))
    if isinstance(relation, Project):
        return replace(relation, once=False)
    if not isinstance(relation, SetOperation):
        raise TypeError("these rows must be distinct")
    if not has_side_comparison(relation):
        return replace(relation, once=False, kind=SetKind.UNION_ALL)
    first, *others = (
        _add_side_number(context, node, side, number) for number, side in enumerate(_list_sides(relation), 1)
    )
    columns = (*relation.columns, _make_side_column(relation))
    for place, other in enumerate(others, 1):
        alias = relation.alias if place == len(others) else context.allocate_alias(node)
        named = tuple(replace(column, source=alias) for column in columns)
        first = SetOperation(first, other, alias, SetKind.UNION_ALL, named)
    return first


def _list_sides(source: Source) -> list[Source]:
    """List the sides of a set operation, and of those that are its sides themselves."""
    if isinstance(source, SetOperation) and source.once:
        return [leaf for side in (source.left, source.right) for leaf in _list_nested_sides(source, side)]
    return [source]


def _list_nested_sides(whole: SetOperation, side: Source) -> list[Source]:
    return _list_sides(side) if _is_nested_comparison(whole, side) else [side]


def _is_nested_comparison(whole: SetOperation, side: Source) -> bool:
    """Return whether a side is a set operation that compares values as the whole does: converted, others would be equal."""
    return (
        isinstance(side, SetOperation)
        and side.once
        and [column.type for column in side.columns] == [column.type for column in whole.columns]
    )


def _has_nested_comparison(source: SetOperation) -> bool:
    """Return whether a side is a set operation itself that is to be compared."""
    return any(_is_nested_comparison(source, side) for side in (source.left, source.right))


def _add_side_number(context: StatementContext, node: exp.Expr, side: Source, number: int) -> Source:
    if isinstance(side, Scan):
        raise TypeError("a side must be a query")
    items: list[tuple[str, Expr]] = [(column.name, column) for column in side.columns]
    return build_projection(
        side, context.allocate_alias(node), [*items, ("side", Literal(number, Type.INTEGER))]
    )


def _make_side_column(operation: SetOperation) -> Column:
    *_, name = make_unique_names([*(column.name for column in operation.columns), "side"])
    return Column(operation.alias, name, ColumnInfo(Type.INTEGER, "", nullable=False))


def count_distinct_rows(
    scope: Scope,
    node: exp.Expr,
    source: Project | SetOperation,
    argument: Expr | None,
    count: Callable[[Expr], Expr],
) -> Expr:
    """Return the number of distinct rows in which an argument is not NULL; `count` releases one count of distinct values."""
    value = build_row_text(scope.scalars, node, source.columns)
    call = scope.scalars.build_call
    if argument is not None:
        value = call(node, "case", call(node, "is_null", argument), Literal(None, Type.NULL), value)
    return _count_over_sides(scope, node, source, value, count)


def has_side_comparison(source: Project | SetOperation) -> bool:
    """Return whether rows are distinct ones of one side that are, or are not, on the other."""
    return isinstance(source, SetOperation) and (
        source.kind in (SetKind.INTERSECT, SetKind.EXCEPT) or _has_nested_comparison(source)
    )


def refuse_values(text: QueryText, node: exp.Expr, source: Project | SetOperation) -> NoReturn:
    """Refuse all aggregates of distinct rows across units except for counts."""
    text.refuse(
        node,
        "distinct",
        "distinct rows of several privacy units can only be counted: removing one unit can remove a value",
        "compute the counted values inside of the set operation: SELECT COUNT(*) FROM (SELECT x "
        "… INTERSECT SELECT x …)"
        if has_side_comparison(source)
        else "write COUNT(*); or release the rows first: SELECT SUM(x) FROM (SELECT x … GROUP BY x)",
    )


def _count_over_sides(
    scope: Scope, node: exp.Expr, source: Project | SetOperation, value: Expr, count: Callable[[Expr], Expr]
) -> Expr:
    call = scope.scalars.build_call
    if not isinstance(source, SetOperation) or not has_side_comparison(source):
        return count(value)
    side = _make_side_column(source)
    if _has_nested_comparison(source):
        return _count_over_many_sides(scope, node, source, value, count)

    def count_side(number: int) -> Expr:
        other = call(node, "ne", side, Literal(number, Type.INTEGER))
        return count(call(node, "case", other, Literal(None, Type.NULL), value))

    if source.kind is SetKind.EXCEPT:
        return call(node, "subtract", count(value), count_side(2))
    return call(node, "subtract", call(node, "add", count_side(1), count_side(2)), count(value))


def _count_over_many_sides(
    scope: Scope, node: exp.Expr, source: SetOperation, value: Expr, count: Callable[[Expr], Expr]
) -> Expr:
    """Return the number of values that set operations over several sides leave, as a sum of numbers of values of some sides."""
    call, side, number = scope.scalars.build_call, _make_side_column(source), len(_list_sides(source))
    factors = (
        _compute_factors(number, lambda having: _is_in_set_operation(source, having))
        if number <= _MOST_SIDES
        else {}
    )
    if not 0 < len(factors) <= _MOST_COUNTS:
        scope.source.refuse(
            node,
            "distinct",
            f"counting distinct rows of {number} sides would take over {_MOST_COUNTS} noisy numbers",
            "release the values of each side as groups first: SELECT COUNT(*) FROM (SELECT x … GROUP "
            "BY x INTERSECT …)",
        )
    found: Expr | None = None
    # The first is above zero, since no count of values is negative.
    for some, factor in sorted(factors.items(), key=lambda pair: pair[1] < 0):
        here = [Literal(place + 1, Type.INTEGER) for place in range(number) if some >> place & 1]
        among = call(node, "in", side, *here)
        held = value if len(here) == number else call(node, "case", among, value, Literal(None, Type.NULL))
        part = count(held)
        if abs(factor) > 1:
            part = call(node, "multiply", part, Literal(abs(factor), Type.INTEGER))
        found = part if found is None else call(node, "add" if factor > 0 else "subtract", found, part)
    if found is None:
        raise TypeError("there must be factors")
    return found


def _is_in_set_operation(source: SetOperation, having: Iterator[bool]) -> bool:
    """Return whether a value is in a set operation, given of each side in turn whether it has the value."""
    left, right = (
        _is_in_set_operation(side, having)
        if isinstance(side, SetOperation) and _is_nested_comparison(source, side)
        else next(having)
        for side in (source.left, source.right)
    )
    match source.kind:
        case SetKind.INTERSECT:
            return left and right
        case SetKind.EXCEPT:
            return left and not right
        case _:
            return left or right


def _compute_factors(number: int, is_member: Callable[[Iterator[bool]], bool]) -> dict[int, int]:
    """Compute the factors of the numbers of values of some sides, these as bits, whose sum is the number of values that are left.

    A value on the sides of a bit set `has` is on at least one side of `some` if the two sets share a bit. So it counts as
    total - g(complement of has), where g sums the factors of the subsets of its argument; g is inverted over subsets.

    >>> _compute_factors(2, lambda having: all([next(having), next(having)]))
    {1: 1, 2: 1, 3: -1}
    """
    everything = (1 << number) - 1
    left_by = [
        is_member(iter([bool(has >> place & 1) for place in range(number)])) for has in range(everything + 1)
    ]
    within = [int(left_by[everything]) - int(left_by[everything & ~some]) for some in range(everything + 1)]
    for place in range(number):
        for some in range(everything + 1):
            if some >> place & 1:
                within[some] -= within[some & ~(1 << place)]
    return {some: factor for some, factor in enumerate(within) if some and factor}
