"""Post-processing: run the outer query of a statement on a scratch engine that holds its released tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.analysis.intervals import derive_answer_intervals, derive_interval
from dpsql.analysis.number_types import to_decimal
from dpsql.backends import Backend
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine.intervals.cells import CONFIDENCE, compute_interval_ends
from dpsql.engine.intervals.derived_values import DerivedIntervals, PublicCopy, list_simulated_columns
from dpsql.engine.intervals.post_selection import RowChoice, compute_kept_row_confidence
from dpsql.engine.postprocess.consistency import make_consistent
from dpsql.engine.postprocess.empty_groups import mark_null_sums, mark_occupied_groups, present_table
from dpsql.engine.prepare import PreparedQuery, PreparedRelease
from dpsql.engine.released_table import ReleasedTable
from dpsql.plan.dependencies import KnownValues, list_final_releases, substitute_subqueries
from dpsql.plan.expressions import Expr, Literal, ReleasedColumn, Scalar
from dpsql.plan.functions.enclosures import round_to_doubles
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import PublicSubquery, Release, Values
from dpsql.plan.provenance import find_provenance, mark_noiseless_outputs
from dpsql.sql.compile.outer_query import (
    OCCUPIED,
    ReleasedTables,
    emit_copy,
    emit_outer_query,
    name_null_column,
)

ROUNDS = 8
"""How often ends of intervals are made again for fewer kept rows, before they are made for one."""


@dataclass(frozen=True, slots=True)
class PostProcessor:
    """A scratch engine with the tables that `copies` names: released tables, and copies of public tables."""

    scratch: ScratchDatabase
    copies: ReleasedTables
    backend: Backend
    public_copies: dict[str, PublicCopy] = field(default_factory=dict)

    def create_tables(self, parts: Sequence[PreparedRelease]) -> None:
        """Create the released tables, empty, and copies of the public tables."""
        for part in parts:
            ends = [(end.name, end.type.value) for end in self.copies.interval_ends.get(part.release, ())]
            occupancy = [(OCCUPIED, "BOOLEAN")] * (part.release in self.copies.occupied)
            nulls = [
                (name_null_column(name), "BOOLEAN") for name in self.copies.null_sums.get(part.release, ())
            ]
            self.scratch.create_table(
                self.copies.released[part.release], [*part.columns, *ends, *occupancy, *nulls]
            )
        for table, read in self.copies.columns.items():
            columns = list(read.values())
            rows, _ = self.backend.read_public_rows(emit_copy(table, columns))
            declared = [(column.name, column.type.value) for column in columns] or [("#", "BIGINT")]
            series = _split_columns(rows, len(columns)) if columns else [[1] * len(rows)]
            self.scratch.create_table(table, declared)
            self.scratch.fill_table(table, series)
            self.public_copies[table] = PublicCopy(declared, series)

    def load_table(
        self,
        release: Release,
        table: ReleasedTable,
        confidences: Mapping[ReleasedColumn, float] | None = None,
    ) -> None:
        """Load a released table, with the ends of intervals at these confidences, or else at the usual one."""
        ends = [
            compute_interval_ends(table.plan, table, end, (confidences or {}).get(end, CONFIDENCE))
            for end in self.copies.interval_ends.get(release, ())
        ]
        series = _split_columns(table.rows, len(table.columns))
        occupancy = [mark_occupied_groups(table.plan, table)] if release in self.copies.occupied else []
        nulls = [mark_null_sums(table.plan, table, name) for name in self.copies.null_sums.get(release, ())]
        columns = [*series, list(range(len(table.rows))), *ends, *occupancy, *nulls]
        self.scratch.fill_table(self.copies.released[release], columns)

    def load_consistent_tables(
        self, prepared: PreparedQuery, tables: Sequence[ReleasedTable]
    ) -> list[ReleasedTable]:
        """Make the final releases consistent and load them; return the tables of all releases as they are shown."""
        last = list_final_releases(prepared.steps)
        by_release = dict(zip((part.release for part in prepared.releases), tables, strict=True))
        by_release |= zip(last, make_consistent([by_release[release] for release in last]), strict=True)
        by_release = {release: present_table(table) for release, table in by_release.items()}
        for release in last:
            self.load_table(release, by_release[release])
        return list(by_release.values())

    def evaluate_subquery(self, step: Scalar | PublicSubquery, values: KnownValues) -> Literal | Values:
        """Evaluate a subquery over the tables, and return its rows as constants."""
        query = substitute_subqueries(step.outer, values, within_releases=False)
        rows, _ = self.scratch.run_query(emit_outer_query(query, self.copies.with_step(step)))
        return to_constants(step, rows)

    def compute_rows(
        self, prepared: PreparedQuery, tables: Sequence[ReleasedTable], values: KnownValues
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of the outer query with their provenance, and the engine types.

        Claim: the ends of intervals that the query reads have at least the confidence that `selected_rows` asks for, with the number
        of rows that are kept.
        Why: ends for a number of kept rows are wide enough if that many rows or more are kept. If fewer are kept, the ends are made
        again for that many, and at last for one.
        Source: Benjamini, Yekutieli 2005, section 4 (the step-up procedure).
        """
        sql = prepared.outer_sql
        if values:
            sql = emit_outer_query(
                substitute_subqueries(prepared.outer, values, within_releases=False), self.copies, traced=True
            )
        by_release = dict(zip((part.release for part in prepared.releases), tables, strict=True))
        choices = [
            RowChoice.from_ends(
                by_release[trace.release], trace, tuple(self.copies.interval_ends.get(trace.release, ()))
            )
            for trace in find_provenance(prepared.outer) or ()
        ]
        found = self.scratch.run_query(sql)
        if not any(choice.ends for choice in choices):
            return found
        wide = [len(choice.table.rows) for choice in choices]
        for last in (False,) * ROUNDS + (True,):
            counts = Counter(row[-1] for row in found[0])
            fewer = [counts[branch] or of for branch, of in enumerate(wide)]
            if all(now >= of for now, of in zip(fewer, wide, strict=True)):
                break
            wide = [1 if last else min(now, of) for now, of in zip(fewer, wide, strict=True)]
            for release in {choice.table.plan.analysis.release: None for choice in choices}:
                self._reload_table(release, by_release[release], choices, wide)
            found = self.scratch.run_query(sql)
        return found

    def _reload_table(
        self, release: Release, table: ReleasedTable, choices: Sequence[RowChoice], numbers: Sequence[int]
    ) -> None:
        """Load a released table again, with interval ends for these numbers of kept rows of each branch."""
        confidences: dict[ReleasedColumn, float] = {}
        for choice, rows in zip(choices, numbers, strict=True):
            if choice.table is table:
                for end in choice.ends:
                    wanted = compute_kept_row_confidence(CONFIDENCE, rows, len(table.rows))
                    confidences[end] = max(wanted, confidences.get(end, CONFIDENCE))
        self.scratch.delete_rows(self.copies.released[release])
        self.load_table(release, table, confidences)

    def find_derived_intervals(
        self,
        prepared: PreparedQuery,
        released: Sequence[ReleasedTable],
        tables: Sequence[ReleasedTable],
        values: KnownValues,
        rows: Sequence[tuple[Any, ...]],
    ) -> DerivedIntervals | None:
        """Return the intervals of values that the answer computes from several rows; None if there are none.

        `released` are the tables before, and `tables` those after they were made consistent, which share one noise.
        """
        last = list_final_releases(prepared.steps)
        by_release = dict(zip((part.release for part in prepared.releases), tables, strict=True))
        if set(last) != set(by_release) or any(
            one is not other for one, other in zip(released, tables, strict=True)
        ):
            return None
        columns = list_simulated_columns(prepared.outer, self.copies, by_release)
        if not columns or not rows:
            return None
        outer = (
            substitute_subqueries(prepared.outer, values, within_releases=False) if values else prepared.outer
        )
        inhabited = {
            release: mark_occupied_groups(table.plan, table)
            for release, table in by_release.items()
            if release in self.copies.occupied
        }
        found = DerivedIntervals(
            outer, self.copies, by_release, dict(self.public_copies), inhabited, rows, columns
        )
        return found if found.has_distinct_rows() else None


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


def _split_columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Return rows as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


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


def build_answer_rows(
    rows: Sequence[tuple[Any, ...]], digits: Sequence[tuple[int, int] | None]
) -> tuple[tuple[Any, ...], ...]:
    """Return the outputs of each row, without the provenance that follows them."""
    if not any(digits):
        return tuple(tuple(row[: len(digits)]) for row in rows)
    return tuple(tuple(map(_convert_value, row, digits)) for row in rows)


def _convert_value(value: Any, digits: tuple[int, int] | None) -> Any:
    """Return a value of the answer, as a DECIMAL if its expression is one in the engine."""
    return value if digits is None or not isinstance(value, (int, float)) else to_decimal(value, digits)
