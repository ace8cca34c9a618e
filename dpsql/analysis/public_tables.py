"""Look-ups in public tables: the values of group keys, and the intervals of summed expressions.

Claim: a key over public columns has no other values than those that are looked up; an expression over public columns is
within the interval that is looked up. Both are the same on neighboring databases.
Why: a joined row contains a row of the public table, which satisfies all conditions on public tables, and what conditions
with private columns imply for the public side: that it is not NULL, and within the interval of the private side. A row
for which a LEFT JOIN finds no partner has NULL in all columns of that side, which gives a key one value more. Nothing
private is read, and public tables are the same on both neighbors.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from dpsql.analysis.domains import (
    EXACT,
    MAX_DERIVED,
    Domain,
    derive_domain,
    derive_listed_values,
    normalize_group_key,
)
from dpsql.analysis.images import Images
from dpsql.analysis.intervals import (
    derive_interval,
    derive_known_intervals,
    iterate_conjuncts,
    narrow_intervals,
)
from dpsql.analysis.stability import PublicFacts
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Order,
    ReleasedColumn,
    Scalar,
    iterate_columns,
    substitute_columns,
    walk,
)
from dpsql.plan.functions import build_function_call
from dpsql.plan.interval import Interval, find_position
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    Source,
    Values,
    is_private,
    iterate_sources,
    list_optional_aliases,
)
from dpsql.plan.steps import list_required_steps, list_steps
from dpsql.plan.types import Type

_LISTED = frozenset({Type.VARCHAR, Type.INTEGER, Type.DOUBLE})
"""Types whose values the engine and Python represent alike, after `normalize_group_key`."""

_NOBODY = "#nobody"

_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in"})
"""Conditions that are not true if either side is NULL."""


def look_up_values(
    expr: Expr, relation: Relation, facts: PublicFacts, *, all_rows: bool = False, most: int = MAX_DERIVED
) -> Domain | None:
    """Return every value of a key over public columns, NULL last; None if it reads others or has more than `most` values.

    The values are those of rows that private rows can be joined to, or of `all_rows`; on the optional side of a LEFT JOIN also
    the value of rows without a partner.
    """
    traced = _trace_key(expr, relation)
    if traced is None:
        return None
    expr, relation, unmatched = traced
    # A stored day lies within Python's calendar; a computed one may not.
    if expr.type not in _LISTED and not (expr.type.temporal and isinstance(expr, Column)):
        return None
    rows = _build_public_part(relation, {column.source for column in iterate_columns(expr)})
    if rows is None:
        return None
    if not all_rows:
        for condition in _iterate_partner_conditions(
            relation, {source.alias for source in iterate_sources(rows)}, facts
        ):
            rows = Filter(rows, condition)
    query = OuterQuery(rows, (Output("k", expr),), limit=most + 1, distinct=True)
    if any(isinstance(step, Release) for read in (query, *unmatched) for step in list_steps(read)):
        return None  # known once that is released, which is after the plan is made
    found = [value for (value,) in facts.read_rows(query)]
    if len(found) > most:
        return None
    for alone in unmatched:
        ((value, *held),) = facts.read_rows(alone)
        found += [value] if all(held) else []
    values = {normalize_group_key(value) for value in found}
    known = sorted(value for value in values if value is not None)
    return (*known, None) if None in values else tuple(known)


def shares_public_rows(release: Release, index: int) -> bool:
    """Return whether another key is computed from the same public rows as this one, or from columns that look them up.

    All pairs of a code and its name would else be released, of which most can have no rows.
    """
    traced = _trace_key(release.keys[index].expr, release.input)
    if traced is None:
        return False
    expr, relation, _ = traced
    own = {column.source for column in iterate_columns(expr)}
    found_by = {
        column
        for ours, theirs in _iterate_join_pairs(relation)
        if theirs.source in own
        for column in iterate_columns(ours)
    }
    others = (
        _rewrite_over_inner(key.expr, release.input, relation)
        for place, key in enumerate(release.keys)
        if place != index
    )
    return any(
        column.source in own or column in found_by for other in others for column in iterate_columns(other)
    )


def look_up_interval(expr: Expr, relation: Relation, facts: PublicFacts) -> Interval:
    """Return the interval of an expression from the stored values of its public columns."""
    known = dict(derive_known_intervals(relation))
    named = {source.alias: source for source in iterate_sources(relation)}
    for column in set(iterate_columns(expr)):
        found = _look_up_bounds(column, named.get(column.source), facts)
        if found is not None:
            known[column] = known[column].narrow_to(found) if column in known else found
    return derive_interval(expr, known)


def _look_up_bounds(column: Column, source: Source | None, facts: PublicFacts) -> Interval | None:
    if (
        source is None
        or column.facts.interval.is_bounded
        or not (column.type.numeric or column.type.temporal)
    ):
        return None
    if is_private(source):
        item = _get_items(source).get(column)
        return None if item is None else look_up_interval(item, _get_input(source), facts)
    if list_required_steps(source):
        return None
    ends = []
    for descending in (False, True):
        order = Order(column, descending, nulls_first=False)
        rows = facts.read_rows(OuterQuery(source, (Output("v", column),), order=(order,), limit=1))
        ends += [find_position(value) for (value,) in rows]
    return Interval(*ends) if len(ends) == 2 and None not in ends else None


def _trace_key(expr: Expr, relation: Relation) -> tuple[Expr, Relation, tuple[OuterQuery, ...]] | None:
    """Return a key in terms of the tables that it comes from, within the derived table that holds them.

    The queries are of its values for rows without a partner, for each optional side of a LEFT JOIN that it comes through.
    """
    unmatched: tuple[OuterQuery, ...] = ()
    while True:
        named = {source.alias: source for source in iterate_sources(relation)}
        aliases = _collect_aliases(expr)
        read = [named.get(alias) for alias in aliases]
        if not read or None in read:
            return None
        if aliases & list_optional_aliases(relation):
            if len(aliases) > 1:
                return None
            unmatched += (_build_unmatched_query(expr, relation),)
        found = [source for source in read if source is not None and is_private(source)]
        if not found:
            return expr, relation, unmatched
        items = {column.name: item for column, item in _get_items(found[0]).items()}
        if len(read) > 1 or not all(column.name in items for column in iterate_columns(expr)):
            return None
        expr = substitute_columns(expr, {column: items[column.name] for column in iterate_columns(expr)})
        relation = _get_input(found[0])


def _build_unmatched_query(expr: Expr, relation: Relation) -> OuterQuery:
    """Build the value of an expression of one optional side for a row without a partner, and whether conditions keep the row."""
    about = [
        each
        for each in iterate_filter_conditions(relation)
        if _reads_tables_only(each) and _collect_aliases(each) == _collect_aliases(expr)
    ]
    read = dict.fromkeys(column for each in (expr, *about) for column in iterate_columns(each))
    nulls = tuple(
        Column(_NOBODY, f"c{place}", replace(column.facts, engine_type="", identity=None))
        for place, column in enumerate(read)
    )
    named = dict(zip(read, nulls, strict=True))
    outputs = (
        Output(f"k{place}", substitute_columns(each, named)) for place, each in enumerate((expr, *about))
    )
    return OuterQuery(Values(((None,) * len(nulls),), _NOBODY, nulls), tuple(outputs))


def _rewrite_over_inner(expr: Expr, relation: Relation, inner: Relation) -> Expr:
    """Rewrite an expression over the tables of an inner relation, as far as it is computed there."""
    while relation is not inner:
        found = [source for source in iterate_sources(relation) if source.alias in _collect_aliases(expr)]
        if len(found) != 1 or not all(column in _get_items(found[0]) for column in iterate_columns(expr)):
            return expr
        expr, relation = substitute_columns(expr, _get_items(found[0])), _get_input(found[0])
    return expr


def _get_items(source: Source) -> Mapping[Column, Expr]:
    """Return the expressions behind the columns of a derived table, except for aggregates and windows."""
    match source:
        case Project():
            return dict(zip(source.columns, source.items, strict=True))
        case PerUnitGroupBy():
            return dict(zip(source.columns, source.keys, strict=False))
        case PerUnitWindows():
            return dict(zip(source.columns, source.items, strict=False))
        case _:
            return {}


def _get_input(source: Source) -> Relation:
    if not isinstance(source, (Project, PerUnitGroupBy, PerUnitWindows)):
        raise TypeError("the source must be a derived table")
    return source.input


def _build_public_part(relation: Relation, wanted: set[str]) -> Relation | None:
    """Build the join of public sources that determines the possible rows of the `wanted` ones; None if there is none."""
    outer = list_optional_aliases(relation) - wanted
    public = {
        source.alias: source
        for source in iterate_sources(relation)
        if not is_private(source) and not list_required_steps(source) and source.alias not in outer
    }
    if not wanted or not wanted <= public.keys():
        return None
    pairs = [pair for pair in _iterate_join_pairs(relation) if _collect_aliases(*pair) <= public.keys()]
    reached = set(wanted)
    for _ in public:
        reached |= {
            alias for pair in pairs if _collect_aliases(*pair) & reached for alias in _collect_aliases(*pair)
        }
    part: Relation | None = None
    placed: set[str] = set()
    for alias, source in public.items():
        if alias not in reached:
            continue
        on = tuple(pair for pair in pairs if pair[1].source == alias and _collect_aliases(pair[0]) <= placed)
        if part is not None and not on:
            return None
        part = source if part is None else Join(part, source, JoinKind.INNER, on)
        placed.add(alias)
    for condition in iterate_filter_conditions(relation):
        if part is not None and _collect_aliases(condition) <= placed and _reads_tables_only(condition):
            part = Filter(part, condition)
    return part


def _iterate_partner_conditions(relation: Relation, public: set[str], facts: PublicFacts) -> Iterator[Expr]:
    """Yield what conditions between private and public columns imply for the public ones, whatever the private ones hold."""
    known, stated = derive_known_intervals(relation), derive_listed_values(relation)

    def iterate_implied(expr: Expr, around: Interval) -> Iterator[Expr]:
        if not any(iterate_columns(expr)) or not _collect_aliases(expr) <= public:
            return
        yield from _build_condition("not", build_function_call("is_null", expr))
        for comparison, end in (("ge", around.low), ("le", around.high)):
            if end is not None and expr.type.numeric and abs(end) <= EXACT:
                yield from _build_condition(
                    comparison, expr, _round_outward(expr.type, end, up=comparison == "le")
                )

    for ours, theirs in _iterate_join_pairs(relation):
        yield from iterate_implied(
            theirs, derive_interval(ours, known) if ours.type is theirs.type else Interval()
        )
        joined = ours.type is theirs.type and theirs.source in public
        values = derive_domain(ours, known, stated, Images(facts, relation)) if joined else None
        if values and len(values) <= MAX_DERIVED and theirs.type in (Type.INTEGER, Type.VARCHAR):
            there = [Literal(value, theirs.type) for value in values if value is not None]
            yield from _build_condition("in", theirs, *there)
    for condition in iterate_filter_conditions(relation):
        if isinstance(condition, Call) and condition.function.name in _COMPARED:
            narrowed = narrow_intervals(condition)
            for side in condition.arguments:
                yield from iterate_implied(side, narrowed.get(side, Interval()))


def _build_condition(name: str, *arguments: Expr | None) -> Iterator[Expr]:
    """Yield the condition, if its arguments are available and of its types."""
    given = [argument for argument in arguments if argument is not None]
    found = (
        build_function_call(name, *given)
        if len(given) == len(arguments) and len(given) > (name == "in")
        else None
    )
    if found is not None:
        yield found


def _round_outward(kind: Type, end: Fraction, *, up: bool) -> Literal:
    """Return an end of an interval as a constant that is no nearer than the end itself."""
    if kind is Type.INTEGER:
        return Literal(math.ceil(end) if up else math.floor(end), kind)
    return Literal(math.nextafter(float(end), math.inf if up else -math.inf), kind)


def _collect_aliases(*exprs: Expr) -> set[str]:
    return {column.source for expr in exprs for column in iterate_columns(expr)}


def _reads_tables_only(condition: Expr) -> bool:
    """Return whether a condition is of rows of tables alone, known before anything is answered."""
    return any(iterate_columns(condition)) and not any(
        isinstance(part, (Scalar, ReleasedColumn)) for part in walk(condition)
    )


def _iterate_join_pairs(relation: Relation) -> Iterator[tuple[Expr, Column]]:
    match relation:
        case Filter() | SemiJoin():
            yield from _iterate_join_pairs(relation.input)
        case Join():
            yield from _iterate_join_pairs(relation.left)
            yield from (pair for pair in relation.on if any(iterate_columns(pair[0])))


def iterate_filter_conditions(relation: Relation) -> Iterator[Expr]:
    """Yield the conditions that the filters of a block ask of all its rows."""
    match relation:
        case Filter():
            yield from iterate_filter_conditions(relation.input)
            yield from iterate_conjuncts(relation.predicate)
        case SemiJoin():
            yield from iterate_filter_conditions(relation.input)
        case Join():
            yield from iterate_filter_conditions(relation.left)
