"""Bound the texts of a statement, and the work on one row, before anything is charged.

Claim: in a statement that `require_bounded_texts` accepts, each text that a row makes has at most `MOST_MADE` bytes, or at
most `MOST_SHARE` times the bytes of the row's longest stored text and `MOST_MADE` more; all work on the texts of one row is
at most `MOST_WORK`, and all texts that are made of it together have at most `MOST_TOGETHER` bytes and `MOST_SHARES` times
those of its stored ones. So no single row makes an engine fail, since engines hold texts of 2^30 bytes.
Why: bounds are carried from each column to the expressions over it, through derived tables, groups, windows, set operations and
joins; a column has the bounds of its item, or of each of several items. An engine may put the item in the place of each reference to a
column, so that a reference counts as much work as the item; what an operator keeps is computed once more. Stored texts
are bounded where they are read, in the same expression, so that no optimizer separates the bound from the expression that depends on it.
Source: the definitions; Goldberg 1991 does the same for numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import (
    Call,
    Column,
    ColumnInfo,
    Expr,
    Literal,
    ReleasedColumn,
    Scalar,
    WindowCall,
    WorkRule,
)
from dpsql.plan.functions.growth import (
    bound_call_work,
    bound_longest_text,
    bound_result_size,
    compute_literal_size,
    makes_text,
)
from dpsql.plan.interval import NO_TEXT, STORED, TextSize, make_constant_size
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
    list_inputs,
)
from dpsql.plan.steps import list_steps
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type

MOST_MADE = 2**17
"""The most bytes of a text beyond whole stored texts; an engine holds those of some 2,000 rows at once."""
MOST_SHARE = 16
"""The largest length of a text, as a multiple of the row's stored texts."""
MOST_WORK = 2**30
"""The most work on the texts of one row in a statement: about a second of DuckDB."""
MOST_TOGETHER = 2**20
"""The most bytes of all texts computed from one row, without parts of stored ones."""
MOST_SHARES = 256
"""The largest length of all these together, as a multiple of the row's stored texts."""
_SMALL = 2**14
"""Texts up to this size count by their size, whatever they are computed from."""
_TEXTS = (Type.VARCHAR, Type.BLOB)
_HINT = "shorten the texts first: LEFT(s, 30)"


@dataclass(frozen=True, slots=True)
class RowWork:
    """The work on the texts of one row, and the bytes of the texts made from it, as in a `TextSize`."""

    steps: int = 0
    share: Fraction = Fraction(0)
    extra_bytes: int = 0

    def __add__(self, other: RowWork) -> RowWork:
        """Bound both, one after the other."""
        return RowWork(
            self.steps + other.steps, self.share + other.share, self.extra_bytes + other.extra_bytes
        )

    def __or__(self, other: RowWork) -> RowWork:
        """Bound either of two."""
        return RowWork(
            max(self.steps, other.steps),
            max(self.share, other.share),
            max(self.extra_bytes, other.extra_bytes),
        )

    def require_bounded(self) -> None:
        """Raise QueryRejected if the texts of one row take too much work or memory."""
        if self.steps > MOST_WORK:
            _raise_too_long(
                f"the texts of one row could take {self.steps:,} steps, and a statement may take at most "
                f"{MOST_WORK:,}"
            )
        if self.share > MOST_SHARES or self.extra_bytes > MOST_TOGETHER:
            _raise_too_long("the texts made from one row could take too much memory together")


@dataclass(frozen=True, slots=True)
class TextBound:
    """The size of the text of a value, and the work of computing it from a row."""

    size: TextSize
    work: RowWork = RowWork()

    def __or__(self, other: TextBound) -> TextBound:
        """Bound either of two."""
        return TextBound(self.size | other.size, self.work | other.work)


_Name = tuple[str, str]
"""A column by its source and name, or a released one by "" and its name."""
Scope = Mapping[_Name, TextBound]


def require_bounded_texts(outer: OuterQuery, rules: Mapping[str, WorkRule]) -> None:
    """Raise QueryRejected, with code "too_long", if one row of some step of a statement could be too much for an engine.

    `rules` are the engine's own for the work of functions, by their names.
    """
    _StatementBounds(rules).bound_statement(outer).require_bounded()


def require_bounded_text(expr: Expr, rules: Mapping[str, WorkRule]) -> None:
    """Raise QueryRejected as `require_bounded_texts` does, for one expression; its columns of derived tables count as empty."""
    found = _ExpressionBounds(rules, None).bound_expression(expr)
    found.work.require_bounded()


def bound_row_work(exprs: Sequence[Expr], box: Values) -> int:
    """Bound the work of expressions on the texts of one of some constant rows, by DuckDB.

    Raise QueryRejected, with code "too_long", if one of the texts or the work could be too much for a row.
    """
    sizes = (
        make_constant_size(max(compute_literal_size(row[place]).max_bytes for row in box.rows))
        if column.type in _TEXTS and box.rows
        else NO_TEXT
        for place, column in enumerate(box.columns)
    )
    found = _ExpressionBounds({}, _build_scope(box.columns, map(TextBound, sizes)))
    work = _sum_work(map(found.bound_expression, exprs))
    work.require_bounded()
    return work.steps


@dataclass(slots=True)
class _ExpressionBounds:
    """Bound the parts of expressions over one scope, each once; without a scope, derived columns are empty."""

    rules: Mapping[str, WorkRule]
    scope: Scope | None
    statement: _StatementBounds | None = None
    _found: dict[int, tuple[Expr, TextBound]] = field(default_factory=dict)

    def bound_expression(self, expr: Expr) -> TextBound:
        """Bound the text and the work of an expression."""
        known = self._found.get(id(expr))
        if known is None:
            # The part is kept beside what is found, so that its identity is not given to another.
            known = self._found[id(expr)] = (expr, self._bound_part(expr))
        return known[1]

    def _bound_part(self, expr: Expr) -> TextBound:
        match expr:
            case Literal():
                return TextBound(compute_literal_size(expr.value))
            case Column():
                return self._bound_column(expr.source, expr.name, expr.type, expr.facts)
            case ReleasedColumn():
                return self._bound_column("", expr.name, expr.type, None)
            case Scalar():
                return self._bound_scalar(expr)
            case WindowCall():
                return TextBound(
                    _bound_typed_value(
                        expr.type, [self.bound_expression(part).size for part in expr.arguments]
                    )
                )
            case Call():
                return self._bound_call(expr)

    def _bound_column(self, source: str, name: str, kind: Type, facts: ColumnInfo | None) -> TextBound:
        found = None if self.scope is None else self.scope.get((source, name))
        if found is not None:
            return found
        if kind not in _TEXTS:
            return TextBound(NO_TEXT)
        if facts is not None and facts.is_stored:
            return TextBound(_bound_stored_text(facts))
        if self.scope is None:
            return TextBound(NO_TEXT)
        raise LookupError(f"the length of the text {name} has no known limit")

    def _bound_scalar(self, expr: Scalar) -> TextBound:
        if self.statement is None or expr.type not in _TEXTS:
            return TextBound(NO_TEXT)
        return TextBound(self.statement.bound_outputs(expr.outer)[0].size)

    def _bound_call(self, expr: Call) -> TextBound:
        parts = [self.bound_expression(argument) for argument in expr.arguments]
        sizes = [part.size for part in parts]
        result = bound_result_size(expr, sizes)
        if not _is_bounded(result):
            _raise_too_long(
                f"{expr.function.signature} could make a text of {result.max_bytes:,} bytes from one row; at most "
                f"{MOST_MADE:,} bytes, or {MOST_SHARE} times the longest stored text of the row, are allowed"
            )
        work = RowWork(bound_call_work(expr, sizes, result, self.rules))
        if makes_text(expr):
            work += _bound_made_text(result)
        for place, part in enumerate(parts):
            work += part.work + part.work if place in expr.function.doubled_arguments else part.work
        return TextBound(result, work)


@dataclass(slots=True)
class _StatementBounds:
    """Bound each relation and query of a plan, each once by identity, since plans share many."""

    rules: Mapping[str, WorkRule]
    _scopes: dict[int, tuple[object, Scope]] = field(default_factory=dict)
    _works: dict[int, tuple[object, RowWork]] = field(default_factory=dict)
    _outputs: dict[int, tuple[object, list[TextBound]]] = field(default_factory=dict)

    def bound_statement(self, outer: OuterQuery) -> RowWork:
        """Bound the work of a statement on one row, with all steps before it."""
        total = self._bound_query(outer)
        for step in list_steps(outer):
            total += self._bound_release(step) if isinstance(step, Release) else self._bound_query(step.outer)
        return total

    def bound_outputs(self, outer: OuterQuery) -> list[TextBound]:
        """Bound the outputs of a query above the boundary."""
        known = self._outputs.get(id(outer))
        if known is None:
            read = self._make_expression_bounds(self._get_outer_scope(outer))
            known = self._outputs[id(outer)] = (
                outer,
                [read.bound_expression(output.expr) for output in outer.outputs],
            )
        return known[1]

    def _bound_query(self, outer: OuterQuery) -> RowWork:
        read = self._make_expression_bounds(self._get_outer_scope(outer))
        others = [part for part in (outer.having, outer.qualify) if part is not None]
        others += [item.expr for item in outer.order]
        total = _sum_work([*self.bound_outputs(outer), *map(read.bound_expression, others)])
        total += _sum_work(
            read.bound_expression(part)
            for part in _list_window_parts([output.expr for output in outer.outputs])
        )
        return total if isinstance(outer.source, Release) else total + self._bound_work(outer.source)

    def _get_outer_scope(self, outer: OuterQuery) -> Scope:
        return (
            self.bound_released_columns(outer.source)
            if isinstance(outer.source, Release)
            else self._get_scope(outer.source)
        )

    def bound_released_columns(self, release: Release) -> Scope:
        """Bound the columns of a released table."""
        read = self._make_expression_bounds(self._get_scope(release.input))
        found = {("", key.name): TextBound(read.bound_expression(key.expr).size) for key in release.keys}
        for item in release.aggregations:
            inner = [] if item.argument is None else [read.bound_expression(item.argument).size]
            found["", item.name] = TextBound(_bound_typed_value(item.type, inner))
        return found

    def _bound_release(self, release: Release) -> RowWork:
        read = self._make_expression_bounds(self._get_scope(release.input))
        arguments = [item.argument for item in release.aggregations if item.argument is not None]
        return _sum_work(
            map(read.bound_expression, [*(key.expr for key in release.keys), *arguments])
        ) + self._bound_work(release.input)

    def _make_expression_bounds(self, scope: Scope) -> _ExpressionBounds:
        return _ExpressionBounds(self.rules, scope, self)

    def _get_scope(self, relation: Relation) -> Scope:
        """Bound the columns that are visible in the rows of a relation."""
        known = self._scopes.get(id(relation))
        if known is None:
            known = self._scopes[id(relation)] = (relation, self._compute_scope(relation))
        return known[1]

    def _compute_scope(self, relation: Relation) -> Scope:
        match relation:
            case Scan():
                return {}
            case Filter() | SemiJoin():
                return self._get_scope(relation.input)
            case Join():
                return {**self._get_scope(relation.left), **self._get_scope(relation.right)}
            case Project():
                return _build_scope(
                    relation.columns,
                    map(
                        self._make_expression_bounds(self._get_scope(relation.input)).bound_expression,
                        relation.items,
                    ),
                )
            case _:
                return _build_scope(relation.columns, self._bound_derived_columns(relation))

    def _bound_derived_columns(self, relation: Relation) -> Iterable[TextBound]:
        """Bound the columns of a relation that is no part of the query's own rows, by their places."""
        match relation:
            case PerUnitGroupBy():
                return self._bound_group_columns(relation)
            case PerUnitWindows():
                items = list(
                    map(
                        self._make_expression_bounds(self._get_scope(relation.input)).bound_expression,
                        relation.items,
                    )
                )
                inside = self._make_expression_bounds(_build_scope(relation.columns[: len(items)], items))
                return [*items, *map(inside.bound_expression, relation.windows)]
            case SetOperation():
                sides = [self._bound_side_columns(side) for side in (relation.left, relation.right)]
                return [one | other for one, other in zip(*sides, strict=True)]
            case PublicSubquery():
                return [TextBound(output.size) for output in self.bound_outputs(relation.outer)]
            case Values():
                columns = zip(*relation.rows, strict=True) if relation.rows else ((),) * len(relation.columns)
                return [
                    TextBound(bound_longest_text((), list(map(compute_literal_size, values))))
                    for values in columns
                ]
            case _:
                raise TypeError(relation)

    def _bound_group_columns(self, relation: PerUnitGroupBy) -> list[TextBound]:
        """Bound the group keys and the aggregated texts, each of which is the text of one row."""
        read = self._make_expression_bounds(self._get_scope(relation.input))
        found = [read.bound_expression(key) for key in relation.keys]
        for item, column in zip(relation.aggregates, relation.columns[len(found) :], strict=True):
            inner = [] if item.argument is None else [read.bound_expression(item.argument).size]
            found.append(TextBound(_bound_typed_value(column.type, inner)))
        return found

    def _bound_side_columns(self, side: Relation) -> list[TextBound]:
        """Bound the columns of one side of a set operation, by their places."""
        if isinstance(side, (Scan, Filter, SemiJoin, Join)):
            raise TypeError("a side of a set operation must have the columns of the whole")
        scope = self._get_scope(side)
        return [scope[column.source, column.name] for column in side.columns]

    def _bound_work(self, relation: Relation) -> RowWork:
        """Bound the work on one row of all that a relation computes, except items that others read in their place."""
        known = self._works.get(id(relation))
        if known is None:
            total = _sum_work(
                map(
                    self._make_expression_bounds(self._get_inner_scope(relation)).bound_expression,
                    _list_computed_expressions(relation),
                )
            )
            for part in list_inputs(relation):
                total += self._bound_work(part)
            known = self._works[id(relation)] = (relation, total)
        return known[1]

    def _get_inner_scope(self, relation: Relation) -> Scope:
        """Bound the columns that the expressions of a relation read."""
        match relation:
            case SemiJoin():
                return {**self._get_scope(relation.right), **self._get_scope(relation.input)}
            case Join():
                return self._get_scope(relation)
            case PerUnitWindows():
                return {**self._get_scope(relation.input), **self._get_scope(relation)}
            case Filter() | Project() | PerUnitGroupBy():
                return self._get_scope(relation.input)
            case _:
                return {}


def _list_computed_expressions(relation: Relation) -> Sequence[Expr]:
    """Return the expressions that an operator computes itself, once for each row."""
    match relation:
        case Filter():
            return [relation.predicate]
        case SemiJoin():
            return [relation.on]
        case Join():
            pairs = [part for pair in relation.on for part in pair]
            return pairs if relation.condition is None else [*pairs, relation.condition]
        case Project(distinct=True) | Project(once=True):
            return relation.items
        case PerUnitGroupBy():
            return [*relation.keys, *(part for item in relation.aggregates for part in item.arguments)]
        case PerUnitWindows():
            return [*relation.items, *_list_window_parts(relation.windows)]
        case _:
            return []


def _list_window_parts(exprs: Iterable[Expr]) -> list[Expr]:
    """Return the arguments, partitions and orders of window functions."""
    found = list[Expr]()
    for expr in exprs:
        if isinstance(expr, WindowCall):
            found += [*expr.arguments, *expr.partition, *(item.expr for item in expr.order)]
        elif isinstance(expr, Call):
            found += _list_window_parts(expr.arguments)
    return found


def _build_scope(columns: Sequence[Column], found: Iterable[TextBound]) -> Scope:
    return {(column.source, column.name): bounded for column, bounded in zip(columns, found, strict=False)}


def _bound_stored_text(facts: ColumnInfo) -> TextSize:
    """Bound a stored text: by the values of its domain, where it has one."""
    if facts.domain is None:
        return STORED
    longest = max((compute_literal_size(value).max_bytes for value in facts.domain), default=0)
    return STORED.truncate_to(longest)


def _bound_typed_value(kind: Type, sizes: Sequence[TextSize]) -> TextSize:
    """Bound a value of a type that is one of several texts."""
    return bound_longest_text((), sizes) if kind in _TEXTS else NO_TEXT


def _is_bounded(size: TextSize) -> bool:
    return size.max_bytes <= MOST_MADE or (size.share <= MOST_SHARE and size.extra_bytes <= MOST_MADE)


def _bound_made_text(size: TextSize) -> RowWork:
    if size.max_bytes <= _SMALL:
        return RowWork(extra_bytes=size.max_bytes)
    return RowWork(share=size.share, extra_bytes=size.extra_bytes)


def _sum_work(found: Iterable[TextBound]) -> RowWork:
    total = RowWork()
    for each in found:
        total += each.work
    return total


def _raise_too_long(message: str) -> None:
    raise QueryRejected(message, code="too_long", hint=_HINT)
