"""Memoized look-ups in public tables, which need no charge.

Claim: what is planned is the same as if each look-up were made anew.
Why: an answer is kept within one snapshot or, longer, of a database whose rows cannot change while it is open. It is a
function of the text of the look-up and of public rows; constants of the time are part of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dpsql.backends import Backend, trial
from dpsql.engine.post_processor import as_constants
from dpsql.errors import QueryRejected
from dpsql.plan.dependencies import Known, PublicGroups, needs, steps, substitute
from dpsql.plan.expr import Expr, Scalar
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

_LookUp = TypeVar("_LookUp")


def _bounded(found: dict[str, _LookUp]) -> dict[str, _LookUp]:
    """The same dictionary, with room for one more."""
    if len(found) >= _MOST:
        found.clear()
    return found


@dataclass(frozen=True, slots=True)
class PublicTables:
    """Memoized look-ups in public tables."""

    backend: Backend
    _known: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

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
        if sql not in self._rows:
            constants = isinstance(query.source, Values)
            found = trial.rows(sql) if constants else self.backend.public_rows(sql)[0]
            _bounded(self._rows)[sql] = found
        return self._rows[sql]

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
