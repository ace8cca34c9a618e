"""What a statement reads besides private rows: look-ups in public tables, and values of evaluated subqueries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dpsql.analysis.intervals import derive_answer_intervals, derive_interval
from dpsql.analysis.public_work import require_bounded_products
from dpsql.analysis.text_bounds import bound_row_work
from dpsql.backends import Backend, scratch_database
from dpsql.errors import BackendError, QueryRejected
from dpsql.plan.expressions import Expr, Literal, Scalar, compute_expression_size
from dpsql.plan.functions.signatures import round_to_doubles
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import (
    Join,
    OuterQuery,
    Output,
    PublicSubquery,
    Relation,
    Release,
    Values,
    iterate_public_groups,
)
from dpsql.plan.provenance import mark_noiseless_outputs
from dpsql.plan.steps import KnownValues, PublicGroups, list_required_steps, list_steps, substitute_subqueries
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.outer_query import OriginalTables, emit_outer_query
from dpsql.sql.compile.relations import emit_multiplicity

# The values of subqueries that were evaluated before a release, as constants of its statement.


def to_constants(step: Scalar | PublicSubquery, rows: Sequence[tuple[Any, ...]]) -> Literal | Values:
    """Return the rows of an evaluated subquery as constants; a scalar subquery without rows is NULL.

    Claim: each noisy number is within the interval that the plan derives for it. No two different values of a column become
    equal, so a private row that matches one row of the subquery still matches at most one.
    Why: noise is unbounded, so a value computed from it may be anywhere; it is clamped here, the only place where released values
    enter private computations. Keys have no noise and are not clamped. A value that clamping would make equal to another becomes
    NULL, which equals nothing.
    """
    columns: Sequence[Expr] = step.columns if isinstance(step, PublicSubquery) else (step,)
    ranges = [
        ANYWHERE if exact else derive_interval(column).narrow_to(around)
        for column, around, exact in zip(
            columns, derive_answer_intervals(step.outer), mark_noiseless_outputs(step.outer), strict=True
        )
    ]
    series = [
        _clip_column(values, around) for values, around in zip(zip(*rows, strict=True), ranges, strict=False)
    ]
    cleaned = tuple(zip(*series, strict=True)) if rows else ()
    if isinstance(step, PublicSubquery):
        return Values(cleaned, step.alias, step.columns)
    return Literal(cleaned[0][0] if cleaned else None, step.type)


def _clip_column(values: Sequence[Any], around: Interval) -> list[Any]:
    """Return the values of a column clamped to an interval; NULL for those that clamping makes equal to others."""
    moved = [_clip_value(value, around) for value in values]
    pairs = [(value, at) for value, at in zip(values, moved, strict=True) if isinstance(at, (int, float))]
    met: dict[Any, set[Any]] = {}
    for value, at in pairs:
        met.setdefault(at, set()).add(value)
    merged = {at for value, at in pairs if value != at and len(met[at]) > 1}
    return [
        None if isinstance(at, (int, float)) and at != value and at in merged else at
        for value, at in zip(values, moved, strict=True)
    ]


def _clip_value(value: Any, around: Interval) -> Any:
    """Return a released value as a constant: finite, and clamped to its interval."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value):
        return None
    whole = isinstance(value, int)
    around = around if whole else round_to_doubles(around)
    low, high = around.low, around.high
    if low is not None and value < low:
        return math.ceil(low) if whole else float(low)
    if high is not None and value > high:
        return math.floor(high) if whole else float(high)
    return value


# Memoized look-ups in public tables, which need no charge.


_MOST = 256
"""How many look-ups of each kind are kept at most; beyond, all are forgotten."""

MOST_GROUPS = 10_000
"""The most groups of public rows that are written into a statement."""

MOST_TRIED = 2**29
"""The most work on constants for one statement, in steps as of `bound_row_work`: about half a second of DuckDB."""
_VALUE, _CALL = 1_500, 100
"""The steps of reading and writing a constant, and of a call besides those on its texts."""
_LONG = 10_000
"""Look-ups of more characters are not kept from one statement to the next."""

_Lookup = TypeVar("_Lookup")


def _make_room(found: dict[str, _Lookup]) -> dict[str, _Lookup]:
    """Return the same dictionary, with room for one more entry."""
    if len(found) >= _MOST:
        found.clear()
    return found


@dataclass(slots=True)
class _ConstantEvaluations:
    """The values of constants that were computed for one statement, and the work that they took."""

    work: int = 0
    rows: dict[OuterQuery, Sequence[tuple[Any, ...]] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublicLookups:
    """Memoized look-ups in public tables.

    Claim: the plan is the same as if each look-up were made anew.
    Why: an answer is kept within one snapshot, or longer for a database whose rows cannot change while it is open. It is a function
    of the text of the look-up and of public rows; constants of the time are part of the text.
    """

    backend: Backend
    _multiplicities: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _evaluations: _ConstantEvaluations = field(default_factory=_ConstantEvaluations)

    def with_fresh_evaluations(self) -> PublicLookups:
        """Return the same look-ups for one more statement, whose work on constants is counted anew."""
        return replace(self, _evaluations=_ConstantEvaluations())

    @property
    def approximate_functions(self) -> frozenset[str]:
        """Return the functions whose last digits differ between the engine of private rows and DuckDB."""
        return self.backend.dialect.functions.approximate_functions

    def look_up_multiplicity(self, join: Join) -> int:
        """Return the largest number of rows of the right side of `join` that match one row."""
        require_bounded_products(join.right, self)
        right = substitute_subqueries(join.right, self._evaluate_subqueries(join.right))
        sql = emit_multiplicity(DUCKDB_COMPILER, replace(join, right=right))
        if sql not in self._multiplicities:
            _make_room(self._multiplicities)[sql] = self.backend.read_public_number(sql)
        return self._multiplicities[sql]

    def read_rows(self, query: OuterQuery) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query on public tables; a query on constants does not use the database.

        The query may read values of subqueries on public tables, but no release.
        """
        require_bounded_products(query, self)
        sql = emit_outer_query(
            substitute_subqueries(query, self._evaluate_subqueries(query)), OriginalTables()
        )
        found = self._rows.get(sql)
        if found is None:
            constants = isinstance(query.source, Values)
            found = (
                scratch_database.query_constant_rows(sql)
                if constants
                else self.backend.read_public_rows(sql)[0]
            )
            if not constants or len(sql) <= _LONG:
                _make_room(self._rows)[sql] = found
        return found

    def evaluate_constants(self, query: OuterQuery) -> Sequence[tuple[Any, ...]] | None:
        """Return the rows of a query on constants; None if that is more work than planning a statement may take.

        Claim: it is the same whenever the statement is planned.
        Why: the work is computed from the plan, and includes what was evaluated for the statement before.
        """
        if query not in self._evaluations.rows:
            work = _compute_work(query)
            found = None
            if work is not None and self._evaluations.work + work <= MOST_TRIED:
                self._evaluations.work += work
                with suppress(BackendError):
                    found = self.read_rows(query)
            self._evaluations.rows[query] = found
        return self._evaluations.rows[query]

    def read_public_groups(self, relation: Relation) -> PublicGroups:
        """Return the rows of the groups of public rows that a relation reads, except for groups of released values."""
        found = {}
        for group in iterate_public_groups(relation):
            if group not in found and not any(
                isinstance(step, Release) for step in list_required_steps(group)
            ):
                query = OuterQuery(group, tuple(Output(column.name, column) for column in group.columns))
                rows = tuple(self.read_rows(substitute_subqueries(query, self._evaluate_subqueries(group))))
                if len(rows) > MOST_GROUPS:
                    raise QueryRejected(
                        f"this engine supports at most {MOST_GROUPS:,} groups of public rows, which become part of the statement",
                        code="engine",
                        hint="store the groups as a public table, or use DuckDB",
                    )
                found[group] = Values(rows, group.alias, group.columns)
        return found

    def _evaluate_subqueries(self, source: Relation | OuterQuery) -> KnownValues:
        """Return the values of the subqueries that a public source or query depends on."""
        values: dict[Scalar | PublicSubquery, Expr | Values] = {}
        for step in list_steps(source) if isinstance(source, OuterQuery) else list_required_steps(source):
            if isinstance(step, Release):
                raise TypeError("a source that depends on a release cannot be looked up before the release")
            require_bounded_products(step.outer, self)
            found, _ = self.backend.read_public_rows(
                emit_outer_query(substitute_subqueries(step.outer, values), OriginalTables())
            )
            values[step] = to_constants(step, found)
        return values


def _compute_work(query: OuterQuery) -> int | None:
    """Return the number of steps of a query on constants; None if a text would be too long."""
    if not isinstance(query.source, Values):
        raise TypeError("it reads more than constants")
    box, exprs = query.source, [output.expr for output in query.outputs]
    try:
        steps = bound_row_work(exprs, box)
    except QueryRejected:
        return None
    each = _VALUE * (len(box.columns) + len(exprs)) + _CALL * sum(map(compute_expression_size, exprs))
    return len(box.rows) * (each + steps)
