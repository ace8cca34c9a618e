"""Intervals of values that are computed from several released rows or tables: shares of a total, growth, running totals, rates.

Claim: the interval covers the value without noise with about the probability `confidence`, and with exactly that for values that
are linear in the noisy cells. It costs no privacy loss.
Why: a noisy cell is the exact one plus noise of a known symmetric law, so the noisy cells minus fresh draws of the noise have the
law of the exact cells, given the released ones. The query is run over many tables that are drawn this way, with all cells of all
rows together, and its values have the law of the exact value. Nothing is simulated if noise could change which rows are read. If
a divisor may have the other sign, the value may be anything. If clamps may have cut something off, the interval contains the
values without the cut part and with all of it.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Efron, Tibshirani 1993, "An Introduction to the Bootstrap",
section 13.3 (percentiles); Fieller 1954, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine.intervals.cells import RowProvenance
from dpsql.engine.intervals.noise_laws import compute_allowances
from dpsql.engine.intervals.post_selection import compute_kept_row_confidence
from dpsql.engine.intervals.simulation import (
    can_simulate_aggregate,
    compute_lowering,
    draw_joint_noise,
    simulate_values,
)
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.errors import OperationalError
from dpsql.plan.nodes import OuterQuery, Output, Release
from dpsql.plan.provenance import find_provenance, mark_exact_outputs, mark_noiseless_outputs
from dpsql.plan.smooth import is_cut_by_noise, iterate_noisy_divisors, mark_smooth_outputs
from dpsql.policy.names import quote_identifier
from dpsql.results.rendering import Ends
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.outer_query import DRAW, DRAWS, ORDINAL, ReleasedTables, emit_simulations

PAIRS = (500, 100)
"""How many pairs of draws there are, or where tables are large."""
MOST_CELLS = 500_000
"""How many noisy cells are drawn in all, at most."""
_NEAR = 1e-6
_ROW = "#row"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PublicCopy:
    """A copy of a public table that a query reads: its columns with their engine types, and its values."""

    columns: Sequence[tuple[str, str]]
    series: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class DerivedIntervals:
    """The intervals of the simulated columns of an answer to a query over these tables; `rows` are as the engine gave them.

    `marks` are columns of a released table that noise does not move in the simulation: which groups are shown, which sums are NULL.
    """

    outer: OuterQuery
    copies: ReleasedTables
    tables: Mapping[Release, ReleasedTable]
    public_copies: Mapping[str, PublicCopy]
    marks: Mapping[Release, Mapping[str, Sequence[bool]]]
    rows: Sequence[tuple[Any, ...]]
    columns: frozenset[int]
    _naming: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _known: list[tuple[int, list[Floats]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # A row is known by where it comes from, or by its values without noise.
        exact = (place for place, known in enumerate(mark_noiseless_outputs(self.outer)) if known)
        traced = find_provenance(self.outer) is not None
        object.__setattr__(self, "_naming", (-2, -1) if traced else tuple(exact))

    def compute_interval(self, row: int, column: int, confidence: float) -> Ends:
        """Return the interval of a cell; None where it is NULL, or the draws are too few for the confidence."""
        value = self.rows[row][column]
        if column not in self.columns or value is None:
            return None
        if not self._known:
            self._known.append(self._simulate_corners())
        every, corners = self._known[0]
        if is_cut_by_noise(self.outer):
            confidence = compute_kept_row_confidence(confidence, len(self.rows), every)
        found = [
            ends for drawn in corners if (ends := _compute_ends(drawn[column, row], float(value), confidence))
        ]
        if len(found) < len(corners) or not found:
            return None
        low, high = min(ends[0] for ends in found), max(ends[1] for ends in found)
        # What is computed from groups that may be hidden says nothing of these where no draw changes it.
        hidden = any(table.plan.threshold is not None for table in self.tables.values())
        return (low, high) if low < high or not hidden else None

    def _simulate_corners(self) -> tuple[int, list[Floats]]:
        """Return how many rows there are without a limit, and the values of each corner, of the shape (columns, rows, 1 + draws)."""
        outer = replace(self.outer, order=(), limit=None, offset=0)
        divisors = [
            (place, Output(f"divisor {place}", each))
            for place in sorted(self.columns)
            for each in dict.fromkeys(iterate_noisy_divisors(outer.outputs[place].expr, outer.source))
        ]
        width = len(outer.outputs)
        asked = replace(outer, outputs=(*outer.outputs, *(output for _, output in divisors)))
        noisy = [*self.columns, *range(width, width + len(divisors))]
        sql = emit_simulations(asked, replace(self.copies, simulated=True), noisy)
        found, every = list[Floats](), 0
        pairs = _count_draw_pairs(self.tables.values())
        cut = any(table.plan.clamps for table in self.tables.values())
        for corner in (0, -1, 1) if cut else (0,):
            try:
                drawn, every = self._run_simulation(sql, pairs, corner, noisy)
            except OperationalError:
                return 0, []  # some simulated value is out of the engine's range
            for extra, (place, _) in enumerate(divisors, width):
                signs = np.sign(drawn[extra])
                drawn[place] = np.where(signs == signs[:, :1], drawn[place], np.nan)
            found.append(drawn[:width])
        return every, found

    def _run_simulation(self, sql: str, pairs: int, corner: int, noisy: Sequence[int]) -> tuple[Floats, int]:
        """Return the simulated values of the rows of the answer, and the number of rows that there are without a limit."""
        places = {key: at for at, key in enumerate(map(self._get_row_name, self.rows))}
        draws = 1 + 2 * pairs
        with ScratchDatabase() as scratch:
            for copied, copy in self.public_copies.items():
                scratch.create_table(copied, copy.columns)
                scratch.fill_table(copied, copy.series)
            moved = draw_joint_noise([*self.tables.values()], pairs)
            for (release, table), less in zip(self.tables.items(), moved, strict=True):
                cut = [
                    [
                        each[:, int(corner > 0)] * corner
                        for each in compute_allowances(table.plan, table, item, range(len(table.rows)), 0.95)
                    ]
                    for item in table.plan.analysis.release.aggregations
                ]
                simulated = _SimulatedTable(self.copies.released[release], table, self.marks[release])
                simulated.create_table(scratch)
                simulated.simulate_table(scratch, less, cut)
            scratch.register_arrays(DRAWS, {DRAW: np.arange(draws)})
            answered, _ = scratch.run_query(sql)
        drawn = np.full((max(noisy) + 1, len(self.rows), draws), np.nan)
        names = set[Hashable]()
        for draw, *row in answered:
            name = self._get_row_name(row)
            names.add(name)
            place = places.get(name)
            if place is not None:
                for column in noisy:
                    drawn[column, place, draw] = math.nan if row[column] is None else row[column]
        return drawn, len(names)

    def _get_row_name(self, row: Sequence[Any]) -> Hashable:
        """Return what a row is found again by."""
        return tuple(row[place] for place in self._naming)

    def has_distinct_rows(self) -> bool:
        """Return whether each row is found again."""
        return len(set(map(self._get_row_name, self.rows))) == len(self.rows)


def _count_draw_pairs(tables: Iterable[ReleasedTable]) -> int:
    """Return how many pairs of draws are not too many for tables of this size; 0 where they are too large."""
    cells = sum(
        len(table.rows) * sum(len(block.vector.components) for block in table.plan.vectors)
        for table in tables
    )
    return next((pairs for pairs in PAIRS if cells * 2 * pairs <= MOST_CELLS), 0)


def list_simulated_columns(
    outer: OuterQuery, copies: ReleasedTables, tables: Mapping[Release, ReleasedTable]
) -> frozenset[int]:
    """Return the columns of an answer that can be simulated: steady ones, over aggregates with known noise, of tables not too large."""
    known = all(
        can_simulate_aggregate(table.plan, item)
        for table in tables.values()
        for item in table.plan.analysis.release.aggregations
    )
    if (
        not tables
        or not known
        or any(copies.interval_ends.values())
        or not _count_draw_pairs(tables.values())
    ):
        return frozenset()
    exact = mark_exact_outputs(outer)
    return frozenset(
        place
        for place, steady in enumerate(mark_smooth_outputs(outer))
        if steady and not exact[place] and outer.outputs[place].expr.type.numeric
    )


@dataclass(frozen=True, slots=True)
class _SimulatedTable:
    """A released table by its name in a query, and the columns that mark its rows."""

    name: str
    table: ReleasedTable
    marks: Mapping[str, Sequence[bool]]

    def create_table(self, scratch: ScratchDatabase) -> None:
        """Make the table as it is, under another name."""
        rows = self.table.rows
        added = [(ORDINAL, "BIGINT"), *((name, "BOOLEAN") for name in self.marks)]
        series: list[Sequence[Any]] = (
            list(zip(*rows, strict=True)) if rows else [()] * len(self.table.columns)
        )
        scratch.create_table(self._released_name, [*self.table.columns, *added])
        scratch.fill_table(
            self._released_name, [*series, list(range(len(rows))), *map(list, self.marks.values())]
        )

    def simulate_table(
        self, scratch: ScratchDatabase, draws: Floats, cut: Sequence[Sequence[Floats]]
    ) -> None:
        """Make the table of simulated tables, with `draws` taken from the cells and its `cut` added to each moment."""
        plan, (rows, many, _) = self.table.plan, draws.shape
        items = plan.analysis.release.aggregations
        cells = [each[: len(plan.vectors)] for each in self.table.components]
        centres = np.array([[float(cell) for block in each for cell in block] for each in cells])
        lowered = None
        if plan.threshold is not None and rows:
            lowered = np.vstack(
                [compute_lowering(plan, self.table, row, draws[row, 1:]) for row in range(rows)]
            )
        columns: dict[str, Any] = {
            item.name: simulate_values(plan, item, centres, draws, lowered, cut=each).ravel()
            if rows
            else np.empty(0)
            for item, each in zip(items, cut, strict=True)
        }
        columns |= {_ROW: np.repeat(np.arange(rows), many), DRAW: np.tile(np.arange(many), rows)}
        scratch.register_arrays(self._drawn_name, columns)
        released, drawn = quote_identifier(self._released_name), quote_identifier(self._drawn_name)
        replaced = []
        for item in items:
            value = f"{drawn}.{quote_identifier(item.name)}"
            text = f"CASE WHEN isnan({value}) THEN NULL ELSE {value} END"
            replaced.append(f"{DUCKDB_COMPILER.emit_cast(text, item.type)} AS {quote_identifier(item.name)}")
        instead = f" REPLACE ({', '.join(replaced)})" * bool(replaced)
        scratch.create_table_as(
            self.name,
            f"SELECT {released}.*{instead}, {drawn}.{quote_identifier(DRAW)} FROM {released} "
            f"JOIN {drawn} ON {released}.{quote_identifier(ORDINAL)} = {drawn}.{quote_identifier(_ROW)}",
        )

    @property
    def _released_name(self) -> str:
        return f"{self.name} released"

    @property
    def _drawn_name(self) -> str:
        return f"{self.name} drawn"


def make_interval_function(
    origins: RowProvenance | None, derived: DerivedIntervals | None
) -> Callable[[int, int, float], Ends]:
    """Return the interval of each cell: from its own released row, or else of what is computed from several."""
    if derived is None and origins is not None:
        return origins.compute_interval
    own = () if origins is None else origins.bounded_columns

    def compute_interval(row: int, column: int, confidence: float) -> Ends:
        if origins is not None and own[column]:
            return origins.compute_interval(row, column, confidence)
        return None if derived is None else derived.compute_interval(row, column, confidence)

    return compute_interval


def mark_bounded_columns(
    origins: RowProvenance | None, derived: DerivedIntervals | None, width: int
) -> tuple[bool, ...]:
    """Return which columns have intervals."""
    own = () if origins is None else origins.bounded_columns
    if derived is None:
        return own
    return tuple(place in derived.columns or (bool(own) and own[place]) for place in range(width))


def _compute_ends(drawn: Floats, value: float, confidence: float) -> Ends:
    """Return the interval from a released value and the simulated ones, the released one first."""
    outside, draws = (1 - confidence) / 2, len(drawn) - 1
    # One standard error further out, because there are only so many draws.
    last = math.floor(outside * draws - math.sqrt(outside * (1 - outside) * draws))
    if last < 0 or not math.isclose(drawn[0], value, rel_tol=_NEAR, abs_tol=_NEAR):
        return None
    low, high = (
        float(
            min(
                np.partition(np.where(np.isnan(drawn[1:]), -np.inf, sign * drawn[1:]), last)[last],
                sign * value,
            )
        )
        for sign in (1.0, -1.0)
    )
    return low, -high
