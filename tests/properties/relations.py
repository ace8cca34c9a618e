"""Relations below the release boundary, drawn by Hypothesis: tables, joins, derived tables, conditions.

What `lower` decides, such as where a condition goes and which joins are allowed, is decided by its own
functions here, so that what is drawn is what a query can mean.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NoReturn, TypeVar

from hypothesis import reject
from hypothesis import strategies as st
from properties.answers import answer_join, scalar
from properties.expressions import CONSTANTS, HALF, KINDS, OFTEN, SELDOM, Expressions, build, one_of
from properties.matches import matched
from properties.schema import PUBLIC, UNLINKED, Rules, ids_of
from properties.scopes import equal, identities, known
from sqlglot import exp

from dpsql.analysis.intervals import MAX_MAGNITUDE, derive_interval, derive_known_intervals
from dpsql.analysis.release_analysis import get_type_limits
from dpsql.analysis.stability import PublicFacts, bound_rows
from dpsql.analysis.unit_identity import find_identity
from dpsql.backends.analyst_schema import AnalystSchema
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal, Order, WindowCall, iterate_columns
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import (
    JoinKind,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Relation,
    SetOperation,
    Source,
    Values,
    is_private,
    list_private_scans,
)
from dpsql.plan.types import Type, find_common_type, get_value_type
from dpsql.policy import normalize_name
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.lower.derived_tables import build_projection, derive_column_info, lower_set_operation
from dpsql.sql.lower.dotted_names import build_scan
from dpsql.sql.lower.joins import build_filter, build_from_relation, iterate_factored_conjuncts
from dpsql.sql.lower.scope import NamedSource, Scope
from dpsql.sql.lower.statement_context import StatementContext
from dpsql.sql.lower.windows import build_unit_windows
from dpsql.sql.parse.rejection import QueryText as Text

T = TypeVar("T")
_PRIVATE = ("t", "t", "t", "v", "l", "m", "y")
_PRIVATE_JOINS = one_of((0, 0, 0, 0, 1))
_PUBLIC_JOINS = one_of((0, 0, 0, 1, 1, 2))
_JOIN_KINDS = one_of(tuple(JoinKind))
_ALIASES = one_of((None, None, None, 'a "b"'))
_CLAMPS = one_of(((-1, 4), (0, 1), (2, 2), (-7, -2), (-0.5, 0.25), (0, 10**12), (-1e9, 1e100)))
_TIMES = {
    Type.DATE: (dt.date(2024, 2, 27), dt.date(2024, 3, 1)),
    Type.TIMESTAMP: (dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 12)),
    Type.TIME: (dt.time(6), dt.time(18)),
}
_AGGREGATES = one_of((1, 1, 2, 0))
_OF_NONE = ("row_number", "rank", "dense_rank")
_WINDOWS = (*_OF_NONE, "count", "min", "max", "lag", "lead", "first_value")
_DERIVED = one_of(("project", "grouped", "grouped", "set", "set"))
_SETS = one_of(((exp.Union, False), (exp.Union, True), (exp.Intersect, True), (exp.Except, True)))


@dataclass(frozen=True)
class Item:
    """A source of FROM with the conditions of its join, as `build_from_relation` takes it."""

    alias: str
    kind: JoinKind = JoinKind.INNER
    conditions: tuple[Expr, ...] = ()
    node: None = None


@dataclass(frozen=True)
class Relations:
    """Draws the relations of one query."""

    draw: st.DrawFn
    catalog: AnalystSchema
    rules: Rules
    facts: PublicFacts
    featured: str
    deepest: int
    max_groups: int | None
    windows: bool = False
    aliases: set[str] = field(default_factory=set)
    context: StatementContext = field(init=False)

    def __post_init__(self) -> None:
        refuse, time = self._refuse, StatementTime(dt.datetime(2026, 4, 1, 12))
        context = StatementContext(
            Text(""), self.catalog, (), time, self.facts, refuse, refuse, refuse, max_groups=self.max_groups
        )
        object.__setattr__(self, "context", context)

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("nothing is derived from text")

    def expressions(self, columns_: Sequence[Column], *, private: bool = False) -> Expressions:
        """Draws expressions over these columns, among private rows with released values beside them."""
        released = (lambda kind: scalar(self, kind)) if private else None
        return Expressions(self.draw, columns_, self.featured, self.deepest, released)

    def block(self, depth: int, *, private: bool = True) -> tuple[Relation, list[Column]]:
        """The rows of FROM and WHERE, with the columns that SELECT may name."""
        scope = Scope(self.context)
        items = [self.brought(scope, self.source(depth, private=private))]
        if private and not self.rules.by_row:
            for _ in range(self.draw(_PRIVATE_JOINS)):
                items += self._private_join(scope, depth)
        if private and depth > 0 and not self.draw(OFTEN):
            items += answer_join(self, scope)
        for _ in range(self.draw(_PUBLIC_JOINS)):
            items.append(self._public_join(scope, depth))
        where = [*iterate_factored_conjuncts(self.condition(scope))] if self.draw(HALF) else []
        try:
            relation = build_from_relation(scope, items, where)
        except QueryRejected:  # joined to an answer by keys that would be converted
            reject()
        while depth > 0 and not self.draw(OFTEN):
            relation = matched(self, scope, relation, depth, private=private)
        return relation, known(scope)

    def one(self, among: Sequence[T]) -> T:
        """One of several things."""
        return among[self.draw(st.integers(0, len(among) - 1))]

    def condition(self, scope: Scope) -> Expr:
        """A condition on the rows of a scope."""
        among = known(scope)
        private = any(is_private(named.relation) for named in scope.tables.values())
        return self.expressions(among, private=private).expression(Type.BOOLEAN)

    def brought(self, scope: Scope, source: NamedSource, kind: JoinKind = JoinKind.INNER) -> Item:
        """A source that is in scope from now on."""
        scope.tables[normalize_name(source.alias)] = source
        if kind is JoinKind.LEFT:
            scope.nullable.add(normalize_name(source.alias))
        return Item(normalize_name(source.alias), kind)

    def _private_join(self, scope: Scope, depth: int) -> list[Item]:
        """A private source joined on what identifies the unit, if there is such a pair of columns."""
        source, kind = self.source(depth), self.draw(_JOIN_KINDS)
        before = known(scope)
        pairs = identities(before, source.columns.values())
        if not pairs:
            return []
        item = self.brought(scope, source, kind)
        ours, theirs = self.one(pairs)
        on = [equal(ours, scope.get_column(item.alias, theirs.name))]
        if self.draw(SELDOM):
            on += iterate_factored_conjuncts(self.condition(scope))
        return [replace(item, conditions=tuple(on))]

    def _public_join(self, scope: Scope, depth: int) -> Item:
        """A public source joined on equality with columns before it, or now and then to all rows."""
        before = known(scope)
        kind = self.draw(_JOIN_KINDS)
        item = self.brought(scope, self.source(depth, private=False), kind)
        theirs = [scope.get_column(item.alias, name) for name in scope.tables[item.alias].columns]
        pairs = [(a, b) for b in theirs for a in before if find_common_type((a.type, b.type)) is not None]
        if not pairs or (kind is JoinKind.INNER and self.draw(SELDOM)):
            scope.nullable.discard(item.alias)
            return replace(item, kind=JoinKind.INNER)
        on: list[Expr] = []
        for _ in range(2 if self.draw(SELDOM) else 1):
            ours, its = self.one(pairs)
            computed = self.expressions(before).part(ours.type, 1) if self.draw(SELDOM) else ours
            fits = any(iterate_columns(computed)) and build("eq", computed, its) is not None
            on.append(equal(computed if fits else ours, its))
        if self.draw(SELDOM):
            on += iterate_factored_conjuncts(self.condition(scope))
        return replace(item, conditions=tuple(on))

    def _values(self) -> Values:
        """A few rows of constants."""
        kinds = [self.draw(one_of(KINDS)) for _ in range(2)]
        row = st.tuples(*(one_of((*CONSTANTS[kind], None)) for kind in kinds))
        rows = tuple(self.draw(st.lists(row, min_size=1, max_size=3)))
        alias = self.alias("d")
        found = [
            find_common_type(tuple(get_value_type(row[place]) for row in rows)) for place in range(len(kinds))
        ]
        named = (
            Column(alias, f"col{place}", ColumnInfo(kind or Type.NULL, ""))
            for place, kind in enumerate(found)
        )
        return Values(rows, alias, tuple(named))

    def source(self, depth: int, *, private: bool = True) -> NamedSource:
        """A table or, now and then, a derived one."""
        if depth > 0 and self.draw(HALF):
            derived = self._derived(self.alias("d"), depth - 1, private=private)
            return NamedSource(derived, {normalize_name(column.name): column for column in derived.columns})
        if not private and self.draw(SELDOM):
            values = self._values()
            return NamedSource(values, {column.name: column for column in values.columns})
        return self.table(self.private_name() if private else self.draw(one_of(PUBLIC)))

    def private_name(self) -> str:
        """The name of a private table."""
        return self.draw(
            one_of(tuple(name for name in _PRIVATE if not self.rules.by_row or name in UNLINKED))
        )

    def table(self, name: str) -> NamedSource:
        """A table under a name of its own."""
        table = self.catalog.tables[name]
        alias = self.alias(table.name)
        found = {folded: Column(alias, *column) for folded, column in table.columns.items()}
        return NamedSource(build_scan(self.catalog, alias, table), found)

    def alias(self, name: str) -> str:
        """A name that no other source of the query has."""
        wanted = self.draw(_ALIASES) or name
        alias, number = wanted, 1
        while normalize_name(alias) in self.aliases:
            number += 1
            alias = f"{wanted}{number}"
        self.aliases.add(normalize_name(alias))
        return alias

    def _derived(self, alias: str, depth: int, *, private: bool) -> Project | SetOperation:
        # Rows that are units themselves are neither grouped nor put together.
        kind = "project" if private and self.rules.by_row else self.draw(_DERIVED)
        if kind == "grouped":
            return self._grouped(alias, depth, private=private)
        if kind == "set":
            return self._set(alias, depth, private=private)
        return self._project(alias, depth, private=private, distinct=not self.draw(OFTEN))

    def _project(self, alias: str, depth: int, *, private: bool, distinct: bool = False) -> Project:
        relation, read = self.block(depth, private=private)
        items = self._items(read, self.draw(one_of((1, 2))), private=private)
        if self.windows and private and not self.rules.by_row and not self.draw(OFTEN):
            relation, items = self._windows(relation, read, items)
        whole = not private or any(find_identity(expr, relation) for _, expr in items)
        return build_projection(relation, alias, items, distinct=distinct and whole)

    def _windows(
        self, relation: Relation, read: Sequence[Column], items: list[tuple[str, Expr]]
    ) -> tuple[Relation, list[tuple[str, Expr]]]:
        """The items, and a window over the rows of each unit, where a column tells whose a row is."""
        identifying = [column for column in read if find_identity(column, relation)]
        if not identifying:
            return relation, items
        name = self.draw(one_of(_WINDOWS))
        arguments = () if name in _OF_NONE else (self.one(read),)
        kind = OVER[name].result(tuple(argument.type for argument in arguments))
        if kind is None:
            name, arguments, kind = "row_number", (), Type.INTEGER
        order = (Order(self.one(read), self.draw(HALF), self.draw(HALF)),)
        window = WindowCall(name, arguments, (self.one(identifying),), order, None, False, kind)
        exprs = [*(expr for _, expr in items), window]
        rows, found = build_unit_windows(self.context, exp.null(), relation, exprs)
        return rows, [(f"c{place}", expr) for place, expr in enumerate(found)]

    def _items(self, read: Sequence[Column], number: int, *, private: bool) -> list[tuple[str, Expr]]:
        """What identifies the unit, most of it, and some expressions, all under names of their own."""
        kept: list[Expr] = [column for column in read if column.facts.identity and self.draw(OFTEN)]
        drawn = self.expressions(read, private=private)
        kept += [drawn.expression(drawn.kind()) for _ in range(number)]
        return [(f"c{place}", expr) for place, expr in enumerate(kept)]

    def _grouped(self, alias: str, depth: int, *, private: bool) -> Project:
        """Groups of each unit, or of public rows, with aggregates of them."""
        relation, read = self.block(depth, private=private)
        drawn = self.expressions(read, private=private)
        identifying = [column for column in read if find_identity(column, relation)]
        keys: list[Expr] = [drawn.one(identifying)] if identifying else []
        if not keys or self.draw(HALF):
            key = drawn.expression(drawn.kind())
            key = key if any(iterate_columns(key)) else drawn.one(read)
            keys += [key] if key not in keys else []
        if private and not identifying:
            return build_projection(relation, alias, [("c0", keys[0])])
        name = self.context.allocate_alias(exp.null())
        known_as = [
            Column(name, f"k{place}", derive_column_info(key, relation)) for place, key in enumerate(keys)
        ]
        found = dict(self._within(drawn, relation) for _ in range(self.draw(_AGGREGATES)))
        aggregates = [Column(name, f"a{place}", facts) for place, facts in enumerate(found.values())]
        groups: Relation = PerUnitGroupBy(relation, name, tuple(keys), tuple(found), (*known_as, *aggregates))
        together = [*known_as, *aggregates]
        if self.draw(SELDOM):
            groups = build_filter(
                groups, [self.expressions(together, private=private).expression(Type.BOOLEAN)]
            )
        items = [(f"c{place}", column) for place, column in enumerate(together)]
        return build_projection(groups, alias, items, distinct=self.draw(SELDOM))

    def _within(self, drawn: Expressions, relation: Relation) -> tuple[PerUnitAggregate, ColumnInfo]:
        """An aggregate over a unit's rows, with what is known of it."""
        entry = WITHIN[self.draw(one_of(tuple(WITHIN)))]
        argument = None
        if "{0}" in entry.sql:
            kind = drawn.kind([kind for kind in KINDS if entry.result(kind) is not None])
            argument = drawn.expression(kind)
            if isinstance(argument, Literal):
                fitting = [column for column in drawn.columns if entry.result(column.type)]
                entry, argument = (entry, drawn.one(fitting)) if fitting else (WITHIN["count_rows"], None)
            if (
                entry.is_sum
                and argument is not None
                and argument.type is Type.DOUBLE
                and is_private(relation)
            ):
                # Of a unit's rows no sum is allowed whose argument lies beyond the limits.
                within = derive_interval(argument, derive_known_intervals(relation)).is_within(MAX_MAGNITUDE)
                argument = argument if within else self.clamped(argument)
        by = None
        if entry.takes_order_value:
            by = drawn.expression(drawn.kind())
            by = drawn.one(drawn.columns) if isinstance(by, Literal) else by
        result = entry.result(None if argument is None else argument.type)
        ends = ANYWHERE
        if is_private(relation):
            around = (
                ANYWHERE if argument is None else derive_interval(argument, derive_known_intervals(relation))
            )
            ends = entry.interval(around, bound_rows(relation, self.facts))
        rank = self.draw(one_of((Fraction(0), Fraction(1, 8), Fraction(9, 10)))) if entry.takes_rank else None
        return PerUnitAggregate(entry.name, argument, by, rank), ColumnInfo(
            result or Type.NULL, "", ends, nullable=entry.nullable
        )

    def _set(self, alias: str, depth: int, *, private: bool) -> Project | SetOperation:
        """Two queries put together by position."""
        wanted: list[Expr] = []

        def side(_: StatementContext, __: exp.Expr, name: str, ___: Sequence[str]) -> Source:
            if depth >= 0 and not wanted and self.draw(OFTEN if private else HALF):
                again = depth > 0 and self.draw(HALF)
                first = (self._set if again else self._derived)(name, depth - 1, private=private)
                wanted[:] = first.columns
                return first
            relation, read = self.block(depth, private=private)
            items = self._alike(read, wanted) if wanted else self._items(read, 1, private=private)
            wanted[:] = [expr for _, expr in items]
            return build_projection(relation, name, items)

        for operator, distinct in (self.draw(_SETS), (exp.Union, False)):
            node = operator(this=exp.null(), expression=exp.null(), distinct=distinct)
            wanted.clear()
            try:
                found = lower_set_operation(replace(self.context, lower_derived_query=side), node, alias)
            except QueryRejected:  # rows of no unit that can be told, or columns of other types
                continue
            # Else rows of no unit that can be told are only counted, or the ids of one person differ.
            if not found.once and len({str(ids_of(scan.table)) for scan in list_private_scans(found)}) < 2:
                return found
        return self._project(alias, 0, private=private)

    def _alike(self, read: Sequence[Column], wanted: Sequence[Expr]) -> list[tuple[str, Expr]]:
        """Expressions of the same types, what identifies the unit in the same place."""
        found: list[Expr] = []
        for expr in wanted:
            same = identities([expr] if isinstance(expr, Column) else [], read)
            found.append(same[0][1] if same else self.expressions(read).part(expr.type, 1))
        return [(f"c{place}", expr) for place, expr in enumerate(found)]

    def bounded(self, expr: Expr, relation: Relation) -> Expr:
        """An expression that has bounds: itself where it has them, else clamped by constants."""
        around = derive_interval(expr, derive_known_intervals(relation))
        if around.is_bounded and around.narrow_to(get_type_limits(expr.type)) == around:
            return expr
        return self.clamped(expr)

    def clamped(self, expr: Expr) -> Expr:
        """An expression between constants."""
        ends = self.draw(_CLAMPS) if expr.type.numeric else _TIMES[expr.type]
        low, high = (Literal(end, get_value_type(end)) for end in ends)
        clamped = build("least", build("greatest", expr, low) or low, high)
        return clamped or high
