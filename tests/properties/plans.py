"""Plans drawn by Hypothesis from the whole accepted language, as objects: no text is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import strategies as st
from properties.expressions import DEEPEST, HALF, KINDS, SELDOM, Expressions, one_of
from properties.printing import unit_column
from properties.relations import Relations
from properties.schema import Rules

from dpsql.analysis import domains
from dpsql.analysis.intervals import derive_known_intervals
from dpsql.analysis.stability import PublicFacts
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.backends.analyst_schema import AnalystSchema
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import UNIT_IDENTITY, Call, Column, Expr, Literal, iterate_columns, walk
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    Key,
    Order,
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    list_inputs,
    list_private_tables,
    list_released_columns,
    list_scans,
)
from dpsql.plan.types import Type
from dpsql.sql.lower.derived_tables import derive_column_info

MOST_GROUPS = 400
"""Second keys with which there would be more groups are left out, to save time."""
_DEPTHS = one_of((0, 1, 1, 2))
_KEYS = one_of((0, 1, 1, 2))
_AGGREGATIONS = one_of((1, 1, 2, 3, 0))
_OF_ROWS = tuple(name for name, entry in AGGREGATES.items() if Moment.UNITS not in entry.moments)
_SHOWN_OTHERWISE = {("median", Type.DATE), ("quantile_cont", Type.DATE)}
_BOUNDED = {Moment.TOTAL, Moment.DISTINCT_TOTAL, Moment.ORDER_STATISTIC}
"""What is asked of expressions that have bounds alone."""
_RANKS = one_of((Fraction(1, 2), Fraction(9, 10), Fraction(0), Fraction(1), Fraction(1, 4)))
_MAX_GROUPS = one_of((None, None, 1, 2))
_LIMITS = one_of((None, 0, 3))
_OFFSETS = one_of((0, 1))


@dataclass(frozen=True)
class _Plans:
    """Draws one plan."""

    draw: st.DrawFn
    relations: Relations
    insistent: bool

    def plan(self) -> OuterQuery:
        input_, read = self.relations.block(self.draw(_DEPTHS))
        drawn = self.relations.expressions(read, private=True)
        keys = tuple(Key(f"k{place}", expr) for place, expr in enumerate(self.keys(drawn, input_)))
        aggregations = tuple(self.aggregations(drawn, input_, least=0 if keys else 1))
        release = Release(input_, keys, aggregations, self.relations.max_groups)
        if self.insistent and drawn.featured not in applied(release):
            release = self.applying(drawn, release)
        return self.outer_query(release)

    def applying(self, drawn: Expressions, release: Release) -> Release:
        """The same with the featured function, as its only key or one more of its aggregates' arguments."""
        expr = drawn.call()
        if isinstance(expr, Column):  # whole already, and maybe the unit
            return release
        unit = find_injective_identity(expr, release.input) == UNIT_IDENTITY
        if not release.keys and any(iterate_columns(expr)) and not unit and self.draw(HALF):
            return replace(release, keys=(Key("k0", expr),))
        among = [name for name, entry in AGGREGATES.items() if entry.result_type(expr.type) is not None]
        name = drawn.one(among)
        argument = (
            self.relations.bounded(expr, release.input) if _BOUNDED & {*AGGREGATES[name].moments} else expr
        )
        place, result = len(release.aggregations), AGGREGATES[name].result_type(argument.type)
        if result is None or isinstance(argument, Literal):
            return release
        further = Aggregation(f"a{place}", name, argument, result, self.rank(name))
        return replace(release, aggregations=(*release.aggregations, further))

    def keys(self, drawn: Expressions, input_: Relation) -> Sequence[Expr]:
        """No key, one, or two that differ."""
        found: list[Expr] = []
        groups = 1
        for _ in range(self.draw(_KEYS)):
            key = self.key(drawn, input_)
            if key is None:
                continue
            values = domains.derive_domain(
                key, derive_known_intervals(input_), domains.derive_listed_values(input_)
            )
            groups *= 1 if values is None else len(values)
            if key not in found and (not found or groups <= MOST_GROUPS):
                found.append(key)
        return found

    def key(self, drawn: Expressions, input_: Relation) -> Expr | None:
        plain = [
            column
            for column in drawn.columns
            if column.type is not Type.NULL and find_injective_identity(column, input_) != UNIT_IDENTITY
        ]
        constant = [column for column in plain if column.name == "k"]
        if self.relations.rules.partition and constant and self.draw(HALF):
            return constant[0]
        expr = drawn.expression(drawn.kind()) if self.draw(HALF) or not plain else drawn.one(plain)
        if any(iterate_columns(expr)) and find_injective_identity(expr, input_) != UNIT_IDENTITY:
            return expr
        return drawn.one(plain) if plain else None

    def aggregations(self, drawn: Expressions, input_: Relation, least: int) -> Iterator[Aggregation]:
        """Aggregates that differ, often of the same argument."""
        among = tuple(AGGREGATES) if unit_column(input_) is not None else _OF_ROWS
        known: dict[tuple[str, Expr | None], None] = {}
        for _ in range(max(least, self.draw(_AGGREGATIONS))):
            name = self.draw(one_of(among))
            earlier = [argument for _, argument in known if argument is not None]
            known[name, self.argument(name, drawn, input_, earlier)] = None
        for place, (name, argument) in enumerate(known):
            result = AGGREGATES[name].result_type(None if argument is None else argument.type)
            if result is None:
                raise TypeError(f"{name} does not take {argument}")
            yield Aggregation(f"a{place}", name, argument, result, self.rank(name))

    def rank(self, name: str) -> Fraction | None:
        """The rank of a value in order of size, where an aggregate asks for one."""
        entry = AGGREGATES[name]
        if Moment.ORDER_STATISTIC not in entry.moments:
            return None
        return self.draw(_RANKS) if entry.rank is None else entry.rank

    def argument(self, name: str, drawn: Expressions, input_: Relation, earlier: list[Expr]) -> Expr | None:
        entry = AGGREGATES[name]
        if entry.result_type(None) is not None:
            return None
        # What is chosen between days is shown as a moment: it is no column of the release then.
        kinds = [kind for kind in KINDS if entry.result_type(kind) and (name, kind) not in _SHOWN_OTHERWISE]
        kind = drawn.kind(kinds)
        fitting = [expr for expr in earlier if expr.type in kinds]
        again = bool(fitting) and self.draw(HALF)
        expr = fitting[0] if again else drawn.expression(kind)
        if _BOUNDED & {*entry.moments}:
            return self.relations.bounded(expr, input_)
        # COUNT(1) is COUNT(*), and COUNT(DISTINCT unit) counts units.
        counts_units = Moment.DISTINCT in entry.moments and derive_column_info(expr, input_).is_unit
        return drawn.one(drawn.columns) if isinstance(expr, Literal) or counts_units else expr

    def outer_query(self, release: Release) -> OuterQuery:
        """What is done with the release: outputs, and now and then the rest."""
        released = list_released_columns(release)
        outputs = [Output(f"o{place}", column) for place, column in enumerate(released)]
        if not release.aggregations or not self.draw(SELDOM):
            return OuterQuery(release, tuple(outputs))
        drawn = self.relations.expressions(released[len(release.keys) :])
        outputs.append(Output('an "output"', drawn.expression(Type.DOUBLE)))
        having = drawn.expression(Type.BOOLEAN) if self.draw(HALF) else None
        order = tuple(
            Order(drawn.one(released), self.draw(HALF), self.draw(HALF)) for _ in range(self.draw(_KEYS))
        )
        return OuterQuery(release, tuple(outputs), having, order, self.draw(_LIMITS), self.draw(_OFFSETS))


@st.composite
def plans(
    draw: st.DrawFn,
    catalog: AnalystSchema,
    rules: Rules,
    facts: PublicFacts,
    *,
    featured: str | None = None,
    deepest: int = DEEPEST,
    windows: bool = False,
) -> OuterQuery:
    """Plans over the tables of `laws.schema` that `lower` could have made, public tables being as `facts` say.

    Nearly all of them apply the `featured` function, one of the registry, or without it many apply some
    function often; calls nest as deep as `deepest`. With `windows` some have windows over the rows of each unit.
    """
    chosen = featured or draw(one_of(tuple(FUNCTIONS)))
    relations = Relations(draw, catalog, rules, facts, chosen, deepest, draw(_MAX_GROUPS), windows)
    return _Plans(draw, relations, insistent=featured is not None).plan()


def applied(release: Release) -> set[str]:
    """The functions that a release applies, by their names in the registry."""
    parts = (part for expr in expressions(release) for part in walk(expr))
    return {part.function.name for part in parts if isinstance(part, Call)}


def wanted(outer: OuterQuery) -> dict[str, frozenset[str]]:
    """The tables that a plan reads, each with the columns that matter to it."""
    release = outer.release
    found: dict[str, set[str]] = {name: set() for name in list_private_tables(release.input)}
    names = {scan.alias: scan.table for scan in list_scans(release.input)}
    found |= {name: set() for name in names.values()}
    for expr in expressions(release):
        for column in iterate_columns(expr):
            if column.source in names:
                found[names[column.source]].add(column.name)
    return {name: frozenset(held) for name, held in found.items()}


def expressions(release: Release) -> Iterator[Expr]:
    """The expressions of a release, those of its relation among them."""
    parts = (*(key.expr for key in release.keys), *(item.argument for item in release.aggregations))
    yield from (expr for expr in (*parts, *_expressions(release.input)) if expr is not None)


def _expressions(relation: Relation) -> Iterator[Expr | None]:
    """The expressions in a relation and in those that it is made of."""
    match relation:
        case Filter():
            yield relation.predicate
        case SemiJoin():
            yield relation.on
        case Join():
            for ours, theirs in relation.on:
                yield from (ours, theirs)
            yield relation.condition
        case Project():
            yield from relation.items
        case PerUnitGroupBy():
            yield from relation.keys
            yield from (expr for item in relation.aggregates for expr in item.arguments)
        case PerUnitWindows():
            yield from (*relation.items, *relation.windows)
        case _:
            pass
    for part in list_inputs(relation):
        yield from _expressions(part)
