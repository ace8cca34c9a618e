"""Bound the texts of a statement, and the work on one row, before anything is charged.

Claim: in a statement that `require_bounded_texts` accepts, each text that a row makes has at most `MOST_MADE` bytes, or at
most `MOST_SHARE` times the bytes of the row's longest stored text and `MOST_MADE` more; all work on the texts of one row is
at most `MOST_WORK`, and all texts that are made of it together have at most `MOST_TOGETHER` bytes and `MOST_SHARES` times
those of its stored ones. So no row alone makes an engine fail, which holds a text of 2^30 bytes.
Why: bounds are carried from each column to what is computed of it, through derived tables, groups, windows, set operations and
joins; a column has the bounds of its item, or of each of several items. An engine may put the item in the place of each reference to a
column, so that a reference counts as much work as the item; what an operator keeps is computed once more. Stored texts
are bounded where they are read, in the same expression, so that no optimizer separates the bound from what rests on it.
Source: Goldberg 1991 has the like for numbers; nothing but the definitions is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.errors import QueryRejected
from dpsql.functions.growth import call_work, literal_size, longest, makes_text, result_size
from dpsql.plan.dependencies import steps
from dpsql.plan.expr import Call, Column, Expr, Facts, Literal, Released, Scalar, Windowed, WorkRule
from dpsql.plan.nodes import (
    Filter,
    Join,
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetOperation,
    Values,
    inputs,
)
from dpsql.plan.tables import Scan
from dpsql.plan.text_size import NO_TEXT, STORED, TextSize, constant_size
from dpsql.plan.types import Type

MOST_MADE = 2**17
"""The most bytes of a text that is made of no whole stored text; an engine holds those of some 2,000 rows at once."""
MOST_SHARE = 16
"""How many times as long as the row's stored texts a text may be."""
MOST_WORK = 2**30
"""The most work on the texts of one row in a statement: about a second of DuckDB."""
MOST_TOGETHER = 2**20
"""The most bytes of all texts that are made of one row, not counting parts of stored ones."""
MOST_SHARES = 256
"""How many times as long as the row's stored texts all these together may be."""
_SMALL = 2**14
"""Texts up to this size count by it, whatever they are made of."""
_TEXTS = (Type.VARCHAR, Type.BLOB)
_HINT = "cut the texts first, as in LEFT(s, 30)"


@dataclass(frozen=True, slots=True)
class RowWork:
    """The work on the texts of one row, and the bytes of the texts that are made of it, as in a `TextSize`."""

    steps: int = 0
    share: Fraction = Fraction(0)
    added: int = 0

    def __add__(self, other: RowWork) -> RowWork:
        """Bound both, one after the other."""
        return RowWork(self.steps + other.steps, self.share + other.share, self.added + other.added)

    def __or__(self, other: RowWork) -> RowWork:
        """Bound either of two."""
        return RowWork(
            max(self.steps, other.steps), max(self.share, other.share), max(self.added, other.added)
        )

    def require_bounded(self) -> None:
        """Raise QueryRejected if it is too much for one row."""
        if self.steps > MOST_WORK:
            _refuse(
                f"the texts of one row could take {self.steps:,} steps, of which a statement may take {MOST_WORK:,}"
            )
        if self.share > MOST_SHARES or self.added > MOST_TOGETHER:
            _refuse("the texts that are made of one row could take too much memory together")


@dataclass(frozen=True, slots=True)
class Bounded:
    """The size of the text of a value, and the work of computing it from a row."""

    size: TextSize
    work: RowWork = RowWork()

    def __or__(self, other: Bounded) -> Bounded:
        """Bound either of two."""
        return Bounded(self.size | other.size, self.work | other.work)


_Name = tuple[str, str]
"""A column by its source and name, or a released one by "" and its name."""
Scope = Mapping[_Name, Bounded]


def require_bounded_texts(outer: OuterQuery, rules: Mapping[str, WorkRule]) -> None:
    """Raise QueryRejected, with code "too_long", if one row of some step of a statement could be too much for an engine.

    `rules` are the engine's own for the work of functions, by their names.
    """
    _Statement(rules).of_outer(outer).require_bounded()


def released_sizes(release: Release, rules: Mapping[str, WorkRule]) -> list[TextSize]:
    """Bound the texts of a release's keys, in order."""
    statement = _Statement(rules)
    return [statement.above(release)["", key.name].size for key in release.keys]


def require_bounded_text(expr: Expr, rules: Mapping[str, WorkRule]) -> None:
    """Raise QueryRejected as `require_bounded_texts` does, for one expression; its columns of derived tables count as empty."""
    found = _Expressions(rules, None).of(expr)
    found.work.require_bounded()


def row_work(exprs: Sequence[Expr], box: Values) -> int:
    """Bound the work of expressions on the texts of one of some constant rows, by DuckDB.

    Raise QueryRejected, with code "too_long", if one of the texts or the work could be too much for a row.
    """
    sizes = (
        constant_size(max(literal_size(row[place]).most for row in box.rows))
        if column.type in _TEXTS and box.rows
        else NO_TEXT
        for place, column in enumerate(box.columns)
    )
    found = _Expressions({}, _named(box.columns, map(Bounded, sizes)))
    work = _total(map(found.of, exprs))
    work.require_bounded()
    return work.steps


@dataclass(slots=True)
class _Expressions:
    """Bounds the parts of expressions over one scope, each once; without a scope derived columns are empty."""

    rules: Mapping[str, WorkRule]
    scope: Scope | None
    statement: _Statement | None = None
    _found: dict[int, tuple[Expr, Bounded]] = field(default_factory=dict)

    def of(self, expr: Expr) -> Bounded:
        """Bound the text and the work of an expression."""
        known = self._found.get(id(expr))
        if known is None:
            # The part is kept beside what is found, so that its identity is not given to another.
            known = self._found[id(expr)] = (expr, self._bounded(expr))
        return known[1]

    def _bounded(self, expr: Expr) -> Bounded:
        match expr:
            case Literal():
                return Bounded(literal_size(expr.value))
            case Column():
                return self._named(expr.source, expr.name, expr.type, expr.facts)
            case Released():
                return self._named("", expr.name, expr.type, None)
            case Scalar():
                return self._scalar(expr)
            case Windowed():
                return Bounded(_of_type(expr.type, [self.of(part).size for part in expr.arguments]))
            case Call():
                return self._call(expr)

    def _named(self, source: str, name: str, kind: Type, facts: Facts | None) -> Bounded:
        found = None if self.scope is None else self.scope.get((source, name))
        if found is not None:
            return found
        if kind not in _TEXTS:
            return Bounded(NO_TEXT)
        if facts is not None and facts.stored:
            return Bounded(_stored(facts))
        if self.scope is None:
            return Bounded(NO_TEXT)
        raise LookupError(f"nothing says how long the text {name} is")

    def _scalar(self, expr: Scalar) -> Bounded:
        if self.statement is None or expr.type not in _TEXTS:
            return Bounded(NO_TEXT)
        return Bounded(self.statement.outputs(expr.outer)[0].size)

    def _call(self, expr: Call) -> Bounded:
        parts = [self.of(argument) for argument in expr.arguments]
        sizes = [part.size for part in parts]
        result = result_size(expr, sizes)
        if not _bounded(result):
            _refuse(
                f"{expr.function.signature} could make a text of {result.most:,} bytes of one row; at most "
                f"{MOST_MADE:,} bytes, or {MOST_SHARE} times the longest stored text of the row, are possible"
            )
        work = RowWork(call_work(expr, sizes, result, self.rules))
        if makes_text(expr):
            work += _made(result)
        for place, part in enumerate(parts):
            work += part.work + part.work if place in expr.function.doubled else part.work
        return Bounded(result, work)


@dataclass(slots=True)
class _Statement:
    """Bounds each relation and query of a plan once, of which plans share many, by identity."""

    rules: Mapping[str, WorkRule]
    _scopes: dict[int, tuple[object, Scope]] = field(default_factory=dict)
    _works: dict[int, tuple[object, RowWork]] = field(default_factory=dict)
    _outputs: dict[int, tuple[object, list[Bounded]]] = field(default_factory=dict)

    def of_outer(self, outer: OuterQuery) -> RowWork:
        """Bound the work of a statement on one row, with all steps before it."""
        total = self._of_query(outer)
        for step in steps(outer):
            total += self._of_release(step) if isinstance(step, Release) else self._of_query(step.outer)
        return total

    def outputs(self, outer: OuterQuery) -> list[Bounded]:
        """Bound the outputs of a query above the boundary."""
        known = self._outputs.get(id(outer))
        if known is None:
            read = self._over(self._scope_above(outer))
            known = self._outputs[id(outer)] = (outer, [read.of(output.expr) for output in outer.outputs])
        return known[1]

    def _of_query(self, outer: OuterQuery) -> RowWork:
        read = self._over(self._scope_above(outer))
        others = [part for part in (outer.having, outer.qualify) if part is not None]
        others += [item.expr for item in outer.order]
        total = _total([*self.outputs(outer), *map(read.of, others)])
        total += _total(read.of(part) for part in _windows([output.expr for output in outer.outputs]))
        return total if isinstance(outer.source, Release) else total + self._work(outer.source)

    def _scope_above(self, outer: OuterQuery) -> Scope:
        return self.above(outer.source) if isinstance(outer.source, Release) else self._scope(outer.source)

    def above(self, release: Release) -> Scope:
        """Bound the columns of a released table."""
        read = self._over(self._scope(release.input))
        found = {("", key.name): Bounded(read.of(key.expr).size) for key in release.keys}
        for item in release.aggregations:
            inner = [] if item.argument is None else [read.of(item.argument).size]
            found["", item.name] = Bounded(_of_type(item.type, inner))
        return found

    def _of_release(self, release: Release) -> RowWork:
        read = self._over(self._scope(release.input))
        arguments = [item.argument for item in release.aggregations if item.argument is not None]
        return _total(map(read.of, [*(key.expr for key in release.keys), *arguments])) + self._work(
            release.input
        )

    def _over(self, scope: Scope) -> _Expressions:
        return _Expressions(self.rules, scope, self)

    def _scope(self, relation: Relation) -> Scope:
        """Bound the columns that are visible in the rows of a relation."""
        known = self._scopes.get(id(relation))
        if known is None:
            known = self._scopes[id(relation)] = (relation, self._columns(relation))
        return known[1]

    def _columns(self, relation: Relation) -> Scope:
        match relation:
            case Scan():
                return {}
            case Filter() | SemiJoin():
                return self._scope(relation.input)
            case Join():
                return {**self._scope(relation.left), **self._scope(relation.right)}
            case Project():
                return _named(
                    relation.columns, map(self._over(self._scope(relation.input)).of, relation.items)
                )
            case _:
                return _named(relation.columns, self._made_columns(relation))

    def _made_columns(self, relation: Relation) -> Iterable[Bounded]:
        """Bound the columns of a relation that is no part of the query's own rows, by their places."""
        match relation:
            case PerUnitGroupBy():
                return self._of_groups(relation)
            case PerUnitWindows():
                items = list(map(self._over(self._scope(relation.input)).of, relation.items))
                inside = self._over(_named(relation.columns[: len(items)], items))
                return [*items, *map(inside.of, relation.windows)]
            case SetOperation():
                sides = [self._side(side) for side in (relation.left, relation.right)]
                return [one | other for one, other in zip(*sides, strict=True)]
            case PublicSubquery():
                return [Bounded(output.size) for output in self.outputs(relation.outer)]
            case Values():
                columns = zip(*relation.rows, strict=True) if relation.rows else ((),) * len(relation.columns)
                return [Bounded(longest((), list(map(literal_size, values)))) for values in columns]
            case _:
                raise TypeError(relation)

    def _of_groups(self, relation: PerUnitGroupBy) -> list[Bounded]:
        """Bound the keys of groups and what is aggregated of their rows, which is the text of one of them."""
        read = self._over(self._scope(relation.input))
        found = [read.of(key) for key in relation.keys]
        for item, column in zip(relation.aggregates, relation.columns[len(found) :], strict=True):
            inner = [] if item.argument is None else [read.of(item.argument).size]
            found.append(Bounded(_of_type(column.type, inner)))
        return found

    def _side(self, side: Relation) -> list[Bounded]:
        """Bound the columns of one side of a set operation, by their places."""
        if isinstance(side, (Scan, Filter, SemiJoin, Join)):
            raise TypeError("a side of a set operation has the columns of the whole")
        scope = self._scope(side)
        return [scope[column.source, column.name] for column in side.columns]

    def _work(self, relation: Relation) -> RowWork:
        """Bound the work on one row of all that a relation computes, except items that others read in their place."""
        known = self._works.get(id(relation))
        if known is None:
            total = _total(map(self._over(self._scope_within(relation)).of, _computed(relation)))
            for part in inputs(relation):
                total += self._work(part)
            known = self._works[id(relation)] = (relation, total)
        return known[1]

    def _scope_within(self, relation: Relation) -> Scope:
        """Bound the columns that the expressions of a relation read."""
        match relation:
            case SemiJoin():
                return {**self._scope(relation.right), **self._scope(relation.input)}
            case Join():
                return self._scope(relation)
            case PerUnitWindows():
                return {**self._scope(relation.input), **self._scope(relation)}
            case Filter() | Project() | PerUnitGroupBy():
                return self._scope(relation.input)
            case _:
                return {}


def _computed(relation: Relation) -> Sequence[Expr]:
    """Return the expressions that an operator computes itself, once for each row."""
    match relation:
        case Filter():
            return [relation.predicate]
        case SemiJoin():
            return [relation.on]
        case Join():
            pairs = [part for pair in relation.on for part in pair]
            return pairs if relation.also is None else [*pairs, relation.also]
        case Project(distinct=True) | Project(once=True):
            return relation.items
        case PerUnitGroupBy():
            return [*relation.keys, *(part for item in relation.aggregates for part in item.arguments)]
        case PerUnitWindows():
            return [*relation.items, *_windows(relation.windows)]
        case _:
            return []


def _windows(exprs: Iterable[Expr]) -> list[Expr]:
    """Return the arguments, partitions and orders of window functions."""
    found = list[Expr]()
    for expr in exprs:
        if isinstance(expr, Windowed):
            found += [*expr.arguments, *expr.partition, *(item.expr for item in expr.order)]
        elif isinstance(expr, Call):
            found += _windows(expr.arguments)
    return found


def _named(columns: Sequence[Column], found: Iterable[Bounded]) -> Scope:
    return {(column.source, column.name): bounded for column, bounded in zip(columns, found, strict=False)}


def _stored(facts: Facts) -> TextSize:
    """Bound a stored text: by the values of its domain, where it has one."""
    if facts.domain is None:
        return STORED
    longest = max((literal_size(value).most for value in facts.domain), default=0)
    return STORED.cut(longest)


def _of_type(kind: Type, sizes: Sequence[TextSize]) -> TextSize:
    """Bound a value of a type that is one of several texts."""
    return longest((), sizes) if kind in _TEXTS else NO_TEXT


def _bounded(size: TextSize) -> bool:
    return size.most <= MOST_MADE or (size.share <= MOST_SHARE and size.added <= MOST_MADE)


def _made(size: TextSize) -> RowWork:
    if size.most <= _SMALL:
        return RowWork(added=size.most)
    return RowWork(share=size.share, added=size.added)


def _total(found: Iterable[Bounded]) -> RowWork:
    total = RowWork()
    for each in found:
        total += each.work
    return total


def _refuse(message: str) -> None:
    raise QueryRejected(message, code="too_long", hint=_HINT)
