"""The answer of a query: its rows from released tables, which need no further noise, with intervals and receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.analysis.number_types import find_decimal_digits, to_decimal
from dpsql.backends import Backend
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine import notices
from dpsql.engine.intervals.cells import CONFIDENCE, RowProvenance, compute_interval_ends
from dpsql.engine.intervals.derived_values import (
    DerivedIntervals,
    PublicCopy,
    list_simulated_columns,
    make_interval_function,
    mark_bounded_columns,
)
from dpsql.engine.intervals.post_selection import RowChoice, compute_kept_row_confidence
from dpsql.engine.lookups import to_constants
from dpsql.engine.postprocess.consistency import make_consistent
from dpsql.engine.postprocess.empty_groups import (
    list_counted_sums,
    list_possibly_empty_releases,
    mark_null_sums,
    mark_occupied_groups,
    present_table,
    with_null_sums,
)
from dpsql.engine.query_run import PreparedRelease, QueryRun
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan.expressions import Expr, Literal, ReleasedColumn, Scalar
from dpsql.plan.nodes import PublicSubquery, Release, Values
from dpsql.plan.provenance import find_provenance
from dpsql.plan.steps import KnownValues, list_final_releases, substitute_subqueries
from dpsql.privacy.mechanisms import Entropy
from dpsql.results.covariance import project_rows
from dpsql.results.result import Receipt, Result
from dpsql.sql.compile.outer_query import (
    OCCUPIED,
    OriginalTables,
    ReleasedTables,
    emit_copy,
    emit_outer_query,
    find_unchanged_columns,
    name_null_column,
)

# Post-processing: the rows of an answer from released tables, which need no further noise.


ROUNDS = 8
"""How often ends of intervals are made again for fewer kept rows, before they are made for one."""


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """The rows of an answer, each followed by the index of its released row and of its branch, with the types of the columns.

    `tables` are the released tables as they are shown; `derived` are the intervals of values that are computed from several rows.

    The rows are the released ones as they are, or those of the outer query on a scratch engine that holds the released tables, or,
    for a query without a release, those of the public tables.
    """

    tables: Sequence[ReleasedTable]
    rows: Sequence[tuple[Any, ...]]
    types: Sequence[str]
    derived: DerivedIntervals | None = None


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
            marks = [(name, "BOOLEAN") for name in self._list_marks(part.release)]
            self.scratch.create_table(self.copies.released[part.release], [*part.columns, *ends, *marks])
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
        columns = [*series, list(range(len(table.rows))), *ends, *self._mark_rows(release, table).values()]
        self.scratch.fill_table(self.copies.released[release], columns)

    def _list_marks(self, release: Release) -> list[str]:
        """List the columns that mark groups which are shown, and sums which are NULL, of the released table."""
        sums = map(name_null_column, self.copies.null_sums.get(release, ()))
        return [*[OCCUPIED] * (release in self.copies.occupied), *sums]

    def _mark_rows(self, release: Release, table: ReleasedTable) -> dict[str, list[bool]]:
        """Return the values of these columns by name."""
        marks = [mark_occupied_groups(table.plan, table)] if release in self.copies.occupied else []
        marks += [mark_null_sums(table.plan, table, name) for name in self.copies.null_sums.get(release, ())]
        return dict(zip(self._list_marks(release), marks, strict=True))

    def load_intermediate_release(self, running: QueryRun, release: Release) -> None:
        """Load the newest released table if a subquery reads it; tables that only the outer query reads are loaded at the end."""
        if release not in list_final_releases(running.steps):
            self.load_table(release, present_table(running.released_tables[-1]))

    def load_consistent_tables(
        self, prepared: QueryRun, tables: Sequence[ReleasedTable]
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

    def evaluate_step(self, running: QueryRun, step: Scalar | PublicSubquery) -> QueryRun:
        """Return the run with the value of one more subquery."""
        value = self.evaluate_subquery(step, running.known_values)
        return replace(running, known_values={**running.known_values, step: value})

    def compute_answer(self, released: QueryRun) -> AnswerRows:
        """Make the released tables consistent, and return the rows of the outer query over them."""
        tables, values = released.released_tables, released.known_values
        consistent_tables = self.load_consistent_tables(released, tables)
        rows, types = self.compute_rows(released, consistent_tables, values)
        derived = self.find_derived_intervals(released, tables, consistent_tables, values, rows)
        return AnswerRows(consistent_tables, rows, types, derived)

    def compute_rows(
        self, prepared: QueryRun, tables: Sequence[ReleasedTable], values: KnownValues
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of the outer query with their provenance, and the engine types.

        Claim: the ends of intervals that the query reads have at least the confidence that `compute_kept_row_confidence` asks for, with the number
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
        prepared: QueryRun,
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
        marks = {release: self._mark_rows(release, table) for release, table in by_release.items()}
        found = DerivedIntervals(
            outer, self.copies, by_release, dict(self.public_copies), marks, rows, columns
        )
        return found if found.has_distinct_rows() else None


@contextmanager
def open_post_processor(prepared: QueryRun, backend: Backend) -> Iterator[PostProcessor | None]:
    """Open a scratch engine with the tables of a prepared query, still empty; None if the released rows are the answer as they are.

    A query whose post-processing cannot be bound fails here, before it is charged.
    """
    if not isinstance(prepared.post_processing, ReleasedTables):
        raise TypeError("a query without a release has no released tables")
    if find_unchanged_columns(prepared.outer) is not None:
        yield None
        return
    with ScratchDatabase() as scratch:
        processor = PostProcessor(scratch, prepared.post_processing, backend)
        processor.create_tables(prepared.releases)
        scratch.run_query(prepared.outer_sql)
        yield processor


def emit_outer_statement(verified: QueryRun) -> QueryRun:
    """Return the run with the SQL that post-processes its releases, and the names of the tables that it reads."""
    named = {part.release: f"#released{index}" for index, part in enumerate(verified.releases)}
    empty = list_possibly_empty_releases({part.release: part.plan for part in verified.releases})
    sums = {part.release: list_counted_sums(part.plan) for part in verified.releases}
    above = ReleasedTables(named, empty, sums) if named else OriginalTables()
    sql = emit_outer_query(verified.outer, above, traced=True)
    for step in verified.steps:
        if not isinstance(step, Release):
            emit_outer_query(
                step.outer, above.with_step(step)
            )  # for the copies of public tables that it reads
    return replace(verified, post_processing=above, outer_sql=sql)


def compute_answer(released: QueryRun, processor: PostProcessor | None, backend: Backend) -> AnswerRows:
    """Return the rows of an answer; `processor` holds the released tables, unless their rows are the answer as they are."""
    if processor is not None:
        return processor.compute_answer(released)
    if isinstance(released.post_processing, OriginalTables):
        return _read_public_answer(released, released.post_processing, backend)
    return _take_released_rows(released)


def _take_released_rows(released: QueryRun) -> AnswerRows:
    """Return the released rows of a query that shows them in some order of columns."""
    (table,), places = released.released_tables, find_unchanged_columns(released.outer)
    if places is None:
        raise TypeError("the rows of the answer are not those of the release")
    table = present_table(table)
    groups = zip(with_null_sums(table.plan, table), mark_occupied_groups(table.plan, table), strict=True)
    inhabited_rows = [(row, number) for number, (row, inhabited) in enumerate(groups) if inhabited]
    rows = [(*(row[place] for place in places), number, 0) for row, number in inhabited_rows]
    return AnswerRows([table], rows, [table.columns[place][1] for place in places])


def _read_public_answer(prepared: QueryRun, tables: OriginalTables, backend: Backend) -> AnswerRows:
    """Return the rows of a query that reads nothing private: exactly, and free."""
    values: dict[Scalar | PublicSubquery, Expr | Values] = {}
    for step in prepared.steps:
        if not isinstance(step, Release):
            found, _ = backend.read_public_rows(
                emit_outer_query(substitute_subqueries(step.outer, values), tables)
            )
            values[step] = to_constants(step, found)
    return AnswerRows(
        [], *backend.read_public_rows(emit_outer_query(substitute_subqueries(prepared.outer, values), tables))
    )


def _split_columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Return rows as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


# Build the result of a query: its rows with the intervals, the receipt, and the notices that explain them.


def build_result(prepared: QueryRun, answer: AnswerRows, receipt: Receipt, entropy: Entropy) -> Result:
    """Return the result of a query with these rows; `entropy` selects experts, for a query that asks for them."""
    tables, rows, types, derived = answer.tables, answer.rows, answer.types, answer.derived
    outer, width = prepared.outer, len(prepared.outer.outputs)
    origins: RowProvenance | None = None
    if (found := find_provenance(outer)) is not None:
        places = [part.release for part in prepared.releases]
        read = [tables[places.index(trace.release)] for trace in found]
        parts = [(table.plan, trace, table) for table, trace in zip(read, found, strict=True)]
        origins = RowProvenance.from_branches(parts, [(int(row[width]), int(row[width + 1])) for row in rows])
    digits = [find_decimal_digits(output.expr) for output in outer.outputs]
    bounded = mark_bounded_columns(origins, derived, width)
    result = Result(
        columns=tuple(output.name for output in prepared.outer.outputs),
        types=tuple(
            kind if of is None else f"DECIMAL({of[0]},{of[1]})"
            for kind, of in zip(types, digits, strict=False)
        ),
        rows=project_rows(_build_answer_rows(rows, digits), prepared.matrix_columns),
        scales=((None,) * width,) * len(rows) if origins is None else origins.compute_scales(),
        receipt=receipt,
        _interval_of=make_interval_function(origins, derived),
        _bounded=bounded,
        _counts=() if origins is None else origins.count_columns,
        _branches=() if origins is None else tuple(int(row[width + 1]) for row in rows),
        _compute_notices=notices.make_answer_notices(prepared, tables, origins, bounded),
    )
    return (
        result if prepared.expert_losses is None else prepared.expert_losses.choose_experts(result, entropy)
    )


def _build_answer_rows(
    rows: Sequence[tuple[Any, ...]], digits: Sequence[tuple[int, int] | None]
) -> tuple[tuple[Any, ...], ...]:
    """Return the outputs of each row, without the provenance that follows them."""
    if not any(digits):
        return tuple(tuple(row[: len(digits)]) for row in rows)
    return tuple(tuple(map(_convert_value, row, digits)) for row in rows)


def _convert_value(value: Any, digits: tuple[int, int] | None) -> Any:
    """Return a value of the answer, as a DECIMAL if its expression is one in the engine."""
    return value if digits is None or not isinstance(value, (int, float)) else to_decimal(value, digits)
