"""Post-processing: runs the outer query of a statement on a scratch engine that holds its released tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.analysis.intervals import answer_intervals, interval
from dpsql.backends import Backend
from dpsql.backends.scratch import Scratch
from dpsql.engine.prepare import PreparedQuery, PreparedRelease
from dpsql.functions.enclosures import doubles
from dpsql.plan.dependencies import Known, final_releases, substitute
from dpsql.plan.expr import Expr, Literal, Scalar
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import PublicSubquery, Release, Values
from dpsql.plan.noiseless import noiseless
from dpsql.postprocess.consistency import consistent
from dpsql.postprocess.nobody import null_sums, presented
from dpsql.postprocess.occupied_groups import occupied
from dpsql.release import ReleasedTable
from dpsql.sql.emit.outer_query import OCCUPIED, Copies, emit_copy, emit_outer_query, null_sum
from dpsql.uncertainty.cells import ends_of


@dataclass(frozen=True, slots=True)
class PostProcessor:
    """A scratch engine with the tables that `copies` names: released tables, and copies of public tables."""

    scratch: Scratch
    copies: Copies
    backend: Backend

    def create(self, parts: Sequence[PreparedRelease]) -> None:
        """Creates the released tables, empty, and copies of the public tables."""
        for part in parts:
            ends = [(end.name, end.type.value) for end in self.copies.ends.get(part.release, ())]
            occupancy = [(OCCUPIED, "BOOLEAN")] * (part.release in self.copies.occupied)
            nulls = [(null_sum(name), "BOOLEAN") for name in self.copies.null_sums.get(part.release, ())]
            self.scratch.create(
                self.copies.released[part.release], [*part.columns, *ends, *occupancy, *nulls]
            )
        for table, read in self.copies.columns.items():
            columns = list(read.values())
            rows, _ = self.backend.public_rows(emit_copy(table, columns))
            self.scratch.create(
                table, [(column.name, column.type.value) for column in columns] or [("#", "BIGINT")]
            )
            self.scratch.fill(table, _series(rows, len(columns)) if columns else [[1] * len(rows)])

    def load(self, release: Release, table: ReleasedTable) -> None:
        """Loads a released table."""
        ends = [ends_of(table.plan, table, end) for end in self.copies.ends.get(release, ())]
        series = _series(table.rows, len(table.columns))
        occupancy = [occupied(table.plan, table)] if release in self.copies.occupied else []
        nulls = [null_sums(table.plan, table, name) for name in self.copies.null_sums.get(release, ())]
        columns = [*series, list(range(len(table.rows))), *ends, *occupancy, *nulls]
        self.scratch.fill(self.copies.released[release], columns)

    def load_consistent(
        self, prepared: PreparedQuery, tables: Sequence[ReleasedTable]
    ) -> list[ReleasedTable]:
        """Makes the final releases consistent and loads them; returns the tables of all releases, as they are shown."""
        last = final_releases(prepared.before)
        by_release = dict(zip((part.release for part in prepared.releases), tables, strict=True))
        by_release |= zip(last, consistent([by_release[release] for release in last]), strict=True)
        by_release = {release: presented(table) for release, table in by_release.items()}
        for release in last:
            self.load(release, by_release[release])
        return list(by_release.values())

    def evaluate(self, step: Scalar | PublicSubquery, values: Known) -> Literal | Values:
        """Evaluates a subquery over the tables; its rows as constants."""
        query = substitute(step.outer, values, within_releases=False)
        rows, _ = self.scratch.query(emit_outer_query(query, self.copies.of_step(step)))
        return as_constants(step, rows)

    def rows(self, prepared: PreparedQuery, values: Known) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of the outer query, with their provenance, and the engine types."""
        if not values:
            return self.scratch.query(prepared.outer_sql)
        query = substitute(prepared.outer, values, within_releases=False)
        return self.scratch.query(emit_outer_query(query, self.copies, traced=True))


def as_constants(step: Scalar | PublicSubquery, rows: Sequence[tuple[Any, ...]]) -> Literal | Values:
    """The rows of an evaluated subquery as constants; a scalar subquery without rows is NULL.

    Claim: each noisy number is within the interval that the plan derives for it. No two different values of a column
    become equal, so a private row that matches one row of the subquery still matches at most one.
    Why: noise is unbounded, so a value computed from it may be anywhere; here it is clamped, the only place where released
    values enter private computations. Keys have no noise and are not clamped. A value that clamping would make equal to
    another becomes NULL, which equals nothing.
    """
    columns: Sequence[Expr] = step.columns if isinstance(step, PublicSubquery) else (step,)
    ranges = [
        ANYWHERE if exact else interval(column).meet(around)
        for column, around, exact in zip(
            columns, answer_intervals(step.outer), noiseless(step.outer), strict=True
        )
    ]
    series = [
        _clamped_column(values, around)
        for values, around in zip(zip(*rows, strict=True), ranges, strict=False)
    ]
    cleaned = tuple(zip(*series, strict=True)) if rows else ()
    if isinstance(step, PublicSubquery):
        return Values(cleaned, step.alias, step.columns)
    return Literal(cleaned[0][0] if cleaned else None, step.type)


def _series(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Rows as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _clamped_column(values: Sequence[Any], around: Interval) -> list[Any]:
    """The values of a column clamped to an interval; NULL for those that clamping makes equal to others."""
    moved = [_clamped(value, around) for value in values]
    pairs = [(value, at) for value, at in zip(values, moved, strict=True) if isinstance(at, (int, float))]
    met: dict[Any, set[Any]] = {}
    for value, at in pairs:
        met.setdefault(at, set()).add(value)
    merged = {at for value, at in pairs if value != at and len(met[at]) > 1}
    return [
        None if isinstance(at, (int, float)) and at != value and at in merged else at
        for value, at in zip(values, moved, strict=True)
    ]


def _clamped(value: Any, around: Interval) -> Any:
    """A released value as a constant: finite, and clamped to its interval."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value):
        return None
    whole = isinstance(value, int)
    around = around if whole else doubles(around)
    low, high = around.low, around.high
    if low is not None and value < low:
        return math.ceil(low) if whole else float(low)
    if high is not None and value > high:
        return math.floor(high) if whole else float(high)
    return value
