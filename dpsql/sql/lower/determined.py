"""Values that the keys of a released group determine: the keys, and columns of public rows that keys identify.

Claim: `Determined.value` gives an expression over released keys and public rows; in a group that has rows, it is the value
of the expression in each of them. It costs nothing, and is the same whether or not anybody has rows in the group.
Why: all rows of a group have its keys. An inner join is on equal values, so a column that equals a determined one is
determined. If determined columns are a unique key of a public source, all rows of the group are joined to one row of it, or
to none. That row is found again by these columns: by equality, which NULL never fulfils, so that of rows that are joined
to none each column is NULL, as in a LEFT JOIN. Where rows of the source have NULL in such a column, nothing is determined,
unless the rows are joined on the column.
Source: ISO/IEC 9075-2, section 4.19 (functional dependencies); Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.functions import call
from dpsql.plan.dependencies import needs
from dpsql.plan.expr import Call, Column, Expr, Literal, Released, columns, replaced, replaced_order, walk
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Relation,
    SemiJoin,
    Source,
    is_answered,
    is_private,
    optional_sources,
    sources,
)
from dpsql.sql.lower.derived import answer
from dpsql.sql.lower.scope import Context

Place = tuple[str, str]
"""The source and the name of a column: of the optional side of a join it has other facts in some places."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The row of a public source that has these values in its key columns; `read` are the columns that are read of it."""

    source: Source
    alias: str
    on: tuple[tuple[Expr, Column], ...]
    read: dict[str, Column] = field(default_factory=dict)

    def column(self, column: Column) -> Column:
        """A column of the row; NULL where there is none."""
        self.read.setdefault(column.name, column)
        return self._named(f"v {column.name}", column)

    def join(self, groups: Relation, moved: Mapping[Expr, Expr]) -> Join:
        """The groups, each with its row. `moved` are the released columns in terms of the groups."""
        keys, values = tuple(column for _, column in self.on), tuple(self.read.values())
        found = tuple(self._named(f"k {key.name}", key) for key in keys)
        rows = PerUnitGroupBy(
            self.source,
            self.alias,
            keys,
            tuple(PerUnitAggregate("max", value) for value in values),
            (*found, *map(self.column, values)),
        )
        on = ((replaced(ours, moved), theirs) for (ours, _), theirs in zip(self.on, found, strict=True))
        return Join(groups, rows, JoinKind.LEFT, tuple(on))

    def _named(self, name: str, column: Column) -> Column:
        return Column(self.alias, name, replace(column.facts, engine_type="", nullable=True, identity=None))


@dataclass(frozen=True, slots=True)
class Determined:
    """What the released keys of groups determine of the columns of a relation.

    `columns` are those that are known by themselves, `rows` the rows of public sources, by the sources' names. `lookups`
    are those of all levels of derived tables, each after those that it is found by.
    """

    context: Context
    node: exp.Expr
    lookups: list[Lookup]
    exprs: dict[Expr, Expr]
    columns: dict[Place, Expr] = field(default_factory=dict)
    rows: dict[str, Lookup] = field(default_factory=dict)

    @classmethod
    def of(
        cls, context: Context, node: exp.Expr, relation: Relation, keys: Mapping[Expr, Expr]
    ) -> Determined:
        """What keys determine, given how each is known; `node` is where the query stands."""
        found = cls(context, node, [], dict(keys))
        found._follow(relation)
        return found

    def value(self, expr: Expr) -> Expr | None:
        """An expression in terms of released keys and looked-up rows; None where keys do not determine it."""
        if expr in self.exprs:
            return self.exprs[expr]
        match expr:
            case Literal():
                return expr
            case Column():
                if _place(expr) in self.columns:
                    return self.columns[_place(expr)]
                found = self.rows.get(expr.source)
                return None if found is None else found.column(expr)
            case Call():
                parts = [self.value(argument) for argument in expr.arguments]
                settled = tuple(part for part in parts if part is not None)
                return replace(expr, arguments=settled) if len(settled) == len(parts) else None
            case _:
                return None

    def outer_query(self, outer: OuterQuery) -> OuterQuery:
        """The query of a release, which is joined to the looked-up rows that the query reads."""
        read = [part for expr in _exprs(outer) for part in walk(expr)]
        wanted = self._wanted({part.source for part in read if isinstance(part, Column)})
        if not wanted:
            return outer
        read += [part for lookup in wanted for ours, _ in lookup.on for part in walk(ours)]
        released = dict.fromkeys(part for part in read if isinstance(part, Released))
        groups = answer(
            OuterQuery(outer.source, tuple(Output(part.name, part) for part in released)),
            self.context.fresh(self.node),
        )
        moved: dict[Expr, Expr] = dict(zip(released, groups.columns, strict=True))
        relation: Relation = groups
        for lookup in wanted:
            relation = lookup.join(relation, moved)
        return replace(
            outer,
            source=relation,
            outputs=tuple(replace(output, expr=replaced(output.expr, moved)) for output in outer.outputs),
            having=None if outer.having is None else replaced(outer.having, moved),
            order=replaced_order(outer.order, moved),
            qualify=None if outer.qualify is None else replaced(outer.qualify, moved),
        )

    def _wanted(self, read: set[str]) -> list[Lookup]:
        """The look-ups of these names, and those that their rows are found by."""
        wanted: list[Lookup] = []
        for lookup in reversed(self.lookups):
            if lookup.alias in read:
                wanted.insert(0, lookup)
                read |= {column.source for ours, _ in lookup.on for column in columns(ours)}
        return wanted

    def _follow(self, relation: Relation) -> None:
        """Adds what is determined, until no more follows."""
        for expr, value in self.exprs.items():
            if isinstance(expr, Column):
                self.columns.setdefault(_place(expr), value)
        optional, joins = optional_sources(relation), list(_joins(relation))
        before = -1
        while (size := len(self.columns) + len(self.rows)) > before:
            before = size
            for join in joins:
                if join.kind is JoinKind.INNER:
                    for pair in join.on:
                        self._equate(*pair)
            for source in sources(relation):
                if not is_private(source):
                    self._look_up(source, next((join for join in joins if join.right == source), None))
                elif isinstance(source, Project) and source.alias not in optional:
                    # Of an optional one, NULL in a column says nothing of the rows within.
                    self._follow_within(source)

    def _equate(self, ours: Expr, theirs: Column) -> None:
        """Of two equal values of one type, the one that is determined determines the other."""
        if ours.type is not theirs.type:
            return
        value = self.value(ours) if any(columns(ours)) else None
        if value is not None:
            self.columns.setdefault(_place(theirs), value)
        elif isinstance(ours, Column) and _place(theirs) in self.columns:
            self.columns[_place(ours)] = self.columns[_place(theirs)]

    def _follow_within(self, source: Project) -> None:
        """Follows what is determined into a derived table, and back out of it."""
        pairs = list(zip(source.columns, source.items, strict=True))
        known = {
            item: self.columns[_place(column)] for column, item in pairs if _place(column) in self.columns
        }
        inner = Determined(self.context, self.node, self.lookups, known)
        inner._follow(source.input)
        for column, item in pairs:
            value = inner.value(item) if known and any(columns(item)) else None
            if value is not None:
                self.columns.setdefault(_place(column), value)

    def _look_up(self, source: Source, join: Join | None) -> None:
        """Looks up the row of a public source, if determined columns are a unique key of it."""
        if source.alias in self.rows or is_answered(source) or needs(source):
            return
        named = {_place(column): column for column in self._compared(source, join)}
        on = [(self.columns[place], column) for place, column in named.items() if place in self.columns]
        if not on and join is not None and join.kind is JoinKind.LEFT and join.also is None:
            values = [self.value(ours) if ours.type is theirs.type else None for ours, theirs in join.on]
            pairs = zip(values, (theirs for _, theirs in join.on), strict=True)
            on = [(value, theirs) for value, theirs in pairs if value is not None]
            if len(on) < len(join.on):
                return
        joined = set() if join is None else {_place(theirs) for _, theirs in join.on}
        facts = self.context.facts
        theirs = tuple((column, column) for _, column in on)
        if not on or facts.multiplicity(Join(source, source, JoinKind.INNER, theirs)) > 1:
            return
        if any(_place(column) not in joined and self._holds_null(source, column) for _, column in on):
            return
        found = Lookup(source, self.context.fresh(self.node), tuple(on))
        self.rows[source.alias] = found
        self.lookups.append(found)

    def _compared(self, source: Source, join: Join | None) -> Iterator[Column]:
        """The columns of a source that may be determined: group keys, and those that it is joined on."""
        for expr in self.exprs:
            yield from (column for column in columns(expr) if column.source == source.alias)
        for ours, theirs in () if join is None else join.on:
            yield from (column for column in (*columns(ours), theirs) if column.source == source.alias)

    def _holds_null(self, source: Source, column: Column) -> bool:
        missing = call("is_null", column)
        if missing is None:
            return True
        query = OuterQuery(Filter(source, missing), (Output("k", column),), limit=1)
        return bool(self.context.facts.rows(query))


def _place(column: Column) -> Place:
    return column.source, column.name


def _joins(relation: Relation) -> Iterator[Join]:
    match relation:
        case Filter() | SemiJoin():
            yield from _joins(relation.input)
        case Join():
            yield from _joins(relation.left)
            yield relation
        case _:
            return


def _exprs(outer: OuterQuery) -> Iterator[Expr]:
    """The expressions of a query."""
    yield from (output.expr for output in outer.outputs)
    yield from (item.expr for item in outer.order)
    yield from (part for part in (outer.having, outer.qualify) if part is not None)
