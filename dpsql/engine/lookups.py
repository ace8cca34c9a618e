"""Memoized look-ups in public tables, which need no charge.

Claim: what is planned is the same as if each look-up were made anew.
Why: an answer is kept within one snapshot or, longer, of a database whose rows cannot change while it is open. It is a
function of the text of the look-up and of public rows; constants of the time are part of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dpsql.analysis.text_bounds import row_work
from dpsql.backends import Backend, trial
from dpsql.engine.post_processor import as_constants
from dpsql.errors import BackendError, QueryRejected
from dpsql.plan.dependencies import Known, PublicGroups, needs, steps, substitute
from dpsql.plan.expr import Expr, Scalar, size_of
from dpsql.plan.nodes import (
    Join,
    OuterQuery,
    Output,
    PublicSubquery,
    Relation,
    Release,
    Values,
    public_groups,
)
from dpsql.sql.emit.outer_query import Originals, emit_outer_query
from dpsql.sql.emit.relations import emit_multiplicity

_MOST = 256
"""How many look-ups of each kind are kept at most; beyond, all are forgotten."""

MOST_GROUPS = 10_000
"""The most groups of public rows that are written into a statement."""

MOST_TRIED = 2**29
"""The most work on constants for one statement, in steps as of `row_work`: about half a second of DuckDB."""
_VALUE, _CALL = 1_500, 100
"""The steps of reading and writing a constant, and of a call besides those on its texts."""
_LONG = 10_000
"""Look-ups of more characters are not kept from one statement to the next."""

_LookUp = TypeVar("_LookUp")


def _bounded(found: dict[str, _LookUp]) -> dict[str, _LookUp]:
    """The same dictionary, with room for one more."""
    if len(found) >= _MOST:
        found.clear()
    return found


@dataclass(slots=True)
class _Tried:
    """What was computed of constants for one statement, and how much work that was."""

    work: int = 0
    rows: dict[OuterQuery, Sequence[tuple[Any, ...]] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublicTables:
    """Memoized look-ups in public tables."""

    backend: Backend
    _known: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _tried: _Tried = field(default_factory=_Tried)

    def for_statement(self) -> PublicTables:
        """Return the same look-ups for one more statement, whose work on constants is counted anew."""
        return replace(self, _tried=_Tried())

    @property
    def approximate(self) -> frozenset[str]:
        """The functions that the engine of private rows computes other than DuckDB, in the last digits."""
        return self.backend.dialect.approximate

    def multiplicity(self, join: Join) -> int:
        """The most rows of the right side of `join` that match one row."""
        right = substitute(join.right, self._values(join.right))
        sql = emit_multiplicity(replace(join, right=right))
        if sql not in self._known:
            _bounded(self._known)[sql] = self.backend.public_number(sql)
        return self._known[sql]

    def rows(self, query: OuterQuery) -> Sequence[tuple[Any, ...]]:
        """The rows of a query on public tables; a query on constants does not use the database.

        It may read values of subqueries on public tables, and no release.
        """
        sql = emit_outer_query(substitute(query, self._values(query)), Originals())
        found = self._rows.get(sql)
        if found is None:
            constants = isinstance(query.source, Values)
            found = trial.rows(sql) if constants else self.backend.public_rows(sql)[0]
            if not constants or len(sql) <= _LONG:
                _bounded(self._rows)[sql] = found
        return found

    def constants(self, query: OuterQuery) -> Sequence[tuple[Any, ...]] | None:
        """The rows of a query on constants; None where that is more work than a statement is planned with.

        Claim: it is the same whenever the statement is planned.
        Why: the work is computed from the plan, and what was tried for the statement before is part of it.
        """
        if query not in self._tried.rows:
            work = _work(query)
            found = None
            if work is not None and self._tried.work + work <= MOST_TRIED:
                self._tried.work += work
                with suppress(BackendError):
                    found = self.rows(query)
            self._tried.rows[query] = found
        return self._tried.rows[query]

    def groups(self, relation: Relation) -> PublicGroups:
        """The rows of the groups of public rows that a relation reads, but for those that are of released values."""
        found = {}
        for group in public_groups(relation):
            if group not in found and not any(isinstance(step, Release) for step in needs(group)):
                query = OuterQuery(group, tuple(Output(column.name, column) for column in group.columns))
                rows = tuple(self.rows(substitute(query, self._values(group))))
                if len(rows) > MOST_GROUPS:
                    raise QueryRejected(
                        f"a group of public rows becomes part of the statement on this engine: at most {MOST_GROUPS:,} of them",
                        code="engine",
                        hint="store the groups as a public table, or use DuckDB",
                    )
                found[group] = Values(rows, group.alias, group.columns)
        return found

    def _values(self, source: Relation | OuterQuery) -> Known:
        """The values of the subqueries that a public source or query depends on."""
        values: dict[Scalar | PublicSubquery, Expr | Values] = {}
        for step in steps(source) if isinstance(source, OuterQuery) else needs(source):
            if isinstance(step, Release):
                raise TypeError("a source that depends on a release cannot be looked up before the release")
            found, _ = self.backend.public_rows(emit_outer_query(substitute(step.outer, values), Originals()))
            values[step] = as_constants(step, found)
        return values


def _work(query: OuterQuery) -> int | None:
    """The steps of a query on constants; None where a text would be too long."""
    if not isinstance(query.source, Values):
        raise TypeError("it reads more than constants")
    box, exprs = query.source, [output.expr for output in query.outputs]
    try:
        steps = row_work(exprs, box)
    except QueryRejected:
        return None
    each = _VALUE * (len(box.columns) + len(exprs)) + _CALL * sum(map(size_of, exprs))
    return len(box.rows) * (each + steps)
