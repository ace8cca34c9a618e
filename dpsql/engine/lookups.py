"""Memoized look-ups in public tables, which need no charge.

Claim: the plan is the same as if each look-up were made anew.
Why: an answer is kept within one snapshot, or longer for a database whose rows cannot change while it is open. It is a
function of the text of the look-up and of public rows; constants of the time are part of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dpsql.analysis.text_bounds import bound_row_work
from dpsql.backends import Backend, scratch_database
from dpsql.engine.subquery_values import to_constants
from dpsql.errors import BackendError, QueryRejected
from dpsql.plan.dependencies import (
    KnownValues,
    PublicGroups,
    list_required_steps,
    list_steps,
    substitute_subqueries,
)
from dpsql.plan.expressions import Expr, Scalar, compute_expression_size
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
from dpsql.sql.compile.outer_query import OriginalTables, emit_outer_query
from dpsql.sql.compile.relations import emit_multiplicity

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
    """Memoized look-ups in public tables."""

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
        right = substitute_subqueries(join.right, self._evaluate_subqueries(join.right))
        sql = emit_multiplicity(replace(join, right=right))
        if sql not in self._multiplicities:
            _make_room(self._multiplicities)[sql] = self.backend.read_public_number(sql)
        return self._multiplicities[sql]

    def read_rows(self, query: OuterQuery) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query on public tables; a query on constants does not use the database.

        The query may read values of subqueries on public tables, but no release.
        """
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
