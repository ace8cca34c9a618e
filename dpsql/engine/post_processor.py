"""What is done above the release boundary: a scratch engine that holds a statement's released tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.analysis.intervals import interval
from dpsql.backends import Backend
from dpsql.backends.scratch import Scratch
from dpsql.engine.prepare import PreparedQuery, PreparedRelease
from dpsql.functions.enclosures import doubles
from dpsql.plan.dependencies import Known, final_releases, substitute
from dpsql.plan.expr import Expr, Literal, Scalar
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import PublicSubquery, Release, Values
from dpsql.plan.noiseless import noiseless
from dpsql.postprocess.consistency import agreeing
from dpsql.postprocess.occupied_groups import occupied
from dpsql.release import ReleasedTable
from dpsql.sql.emit.outer_query import OCCUPIED, Copies, emit_copy, emit_post
from dpsql.uncertainty.cells import ends_of


@dataclass(frozen=True, slots=True)
class PostProcessor:
    """A scratch engine with the tables that `copies` names: released ones, and public ones read beside them."""

    scratch: Scratch
    copies: Copies
    backend: Backend

    def furnish(self, parts: Sequence[PreparedRelease]) -> None:
        """Makes the empty released tables, and copies of the public tables."""
        for part in parts:
            ends = [(end.name, end.type.value) for end in self.copies.ends.get(part.release, ())]
            kept = [(OCCUPIED, "BOOLEAN")] * (part.release in self.copies.occupied)
            self.scratch.create(self.copies.released[part.release], [*part.columns, *ends, *kept])
        for table, read in self.copies.columns.items():
            columns = list(read.values())
            rows, _ = self.backend.public_rows(emit_copy(table, columns))
            self.scratch.create(
                table, [(column.name, column.type.value) for column in columns] or [("#", "BIGINT")]
            )
            self.scratch.fill(table, _series(rows, len(columns)) if columns else [[1] * len(rows)])

    def hold(self, release: Release, table: ReleasedTable) -> None:
        """Puts a released table in its place."""
        ends = [ends_of(table.plan, table, end) for end in self.copies.ends.get(release, ())]
        series = _series(table.rows, len(table.columns))
        kept = [occupied(table.plan, table)] if release in self.copies.occupied else []
        columns = [*series, list(range(len(table.rows))), *ends, *kept]
        self.scratch.fill(self.copies.released[release], columns)

    def agreed(self, prepared: PreparedQuery, tables: Sequence[ReleasedTable]) -> list[ReleasedTable]:
        """Puts the tables that the statement alone reads in their places, totals agreeing with their parts; all tables."""
        last = final_releases(prepared.post)
        shown = dict(zip((part.release for part in prepared.releases), tables, strict=True))
        shown |= zip(last, agreeing([shown[release] for release in last]), strict=True)
        for release in last:
            self.hold(release, shown[release])
        return list(shown.values())

    def found(self, step: Scalar | PublicSubquery, values: Known) -> Literal | Values:
        """What a query over the tables gives, as constants."""
        query = substitute(step.post, values, within_releases=False)
        rows, _ = self.scratch.query(emit_post(query, self.copies))
        return known(step, rows)

    def rows(self, prepared: PreparedQuery, values: Known) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of the outer query, with their provenance, and the engine types."""
        if not values:
            return self.scratch.query(prepared.post_sql)
        query = substitute(prepared.post, values, within_releases=False)
        return self.scratch.query(emit_post(query, self.copies, traced=True))


def known(step: Scalar | PublicSubquery, rows: Sequence[tuple[Any, ...]]) -> Literal | Values:
    """What a query has given, as constants: of a scalar query its value, NULL where it has no row; of a map the pairs.

    Claim: each number with noise in it lies in the interval that the plan has for it, from which all bounds above it
    were derived; and no two values of a column that differ become equal, so that a private row which is joined to one
    row of an answer before is joined to one row after.
    Why: noise has no bound, so what is computed of it may lie anywhere; here alone it enters among private rows. Keys
    have no noise, and enter as they are. What would be moved to where another value is becomes NULL, which equals none.
    """
    columns: Sequence[Expr] = step.columns if isinstance(step, PublicSubquery) else (step,)
    ranges = [
        ANYWHERE if exact else interval(column)
        for column, exact in zip(columns, noiseless(step.post), strict=True)
    ]
    series = [
        _entering(values, around) for values, around in zip(zip(*rows, strict=True), ranges, strict=False)
    ]
    cleaned = tuple(zip(*series, strict=True)) if rows else ()
    if isinstance(step, PublicSubquery):
        return Values(cleaned, step.alias, step.columns)
    return Literal(cleaned[0][0] if cleaned else None, step.type)


def _series(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Rows as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _entering(values: Sequence[Any], around: Interval) -> list[Any]:
    """The values of a column within an interval; NULL for those that would only be made equal to others."""
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
    """A released value as a constant among private rows: no infinity, and within its interval."""
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
