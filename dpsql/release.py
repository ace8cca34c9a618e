"""Exact to noisy: the one place that opens `Exact`, and what comes out of it.

Everything after `release` is post-processing of public values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

from dpsql.aggregates import AGGREGATES, Moment
from dpsql.analysis.analyse import Analysis
from dpsql.analysis.domains import product
from dpsql.backends import Exact
from dpsql.errors import InternalError
from dpsql.mechanisms import Entropy
from dpsql.plan.nodes import Aggregation, released_columns
from dpsql.plan.types import Value
from dpsql.planning.choose import statistic_of
from dpsql.planning.clamp_histogram import ClampHistogram, clamped, learnt
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.planning.partition_selection import OptimalPartitionSelection, Threshold
from dpsql.planning.quantiles import Window
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.sql.emit.statement import Statement
from dpsql.sql.emit.top_k_scores import SCORE

Keys = tuple[Value, ...]
Cells = tuple[tuple[int, ...], ...]
"""Noisy cells of one group, block by block; then each value that was chosen, as a lattice point."""


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """The released table: one row a group, keys before aggregates, and the noisy cells behind it.

    `plan` is what was measured, with the clamps that were chosen and the noise that follows from them.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value, ...], ...]
    cells: tuple[Cells, ...]
    plan: MeasurementPlan = field(compare=False)


def release(plan: MeasurementPlan, statement: Statement, exact: Exact, entropy: Entropy) -> ReleasedTable:
    """Chooses clamps, adds the noise, chooses values in order of size, and selects and orders the groups.

    Or it chooses the best groups.

    Claim: the released table is as private as the plan's event says.
    Why: clamps are chosen first, and the noise is for what they let count; each cell of each group gets its
    own draw, and each value its own choice; the groups are those of public domains, each of them, or have
    passed the selection; their order is that of the keys, or that in which they were chosen.
    Source: Dwork, Roth 2014, Theorems 3.6 and 3.16, Proposition 2.1 (post-processing).
    """
    if plan.best is not None:
        keys, scores = _scores(plan.analysis, statement, exact.reveal())
        best = [keys[index] for index in plan.best.choose(scores, entropy)]
        return table_of(plan, best, ((),) * len(best))
    groups = _groups(plan, statement, exact.reveal())
    if plan.clamps:
        plan, groups = _with_clamps(plan, groups, entropy)
    noisy = _noised(plan, [group.moments for group in groups], entropy)
    shown = [
        (group, cells)
        for group, cells in zip(groups, noisy, strict=True)
        if plan.selection is None or _passes(plan.selection, plan.analysis, group.moments, cells, entropy)
    ]
    chosen = [
        (
            *cells,
            *(
                (part.choose(window, entropy),)
                for part, window in zip(plan.ranked, group.windows, strict=True)
            ),
        )
        for group, cells in shown
    ]
    return table_of(plan, [group.keys for group, _ in shown], chosen)


class Refining(Protocol):
    """How cells that were released are refined, block by block."""

    def cells(self, block: int, exact: Sequence[int], before: Sequence[int], entropy: Entropy) -> list[int]:
        """The refined cells of a block in all groups, from the exact ones and those that were released."""
        ...


def refined(
    plan: MeasurementPlan,
    measured: tuple[Statement, Exact],
    before: ReleasedTable,
    law: Refining,
    entropy: Entropy,
) -> ReleasedTable:
    """The released table of the same groups with less noise; `measured` are a statement and what it gave.

    Claim: both tables together are as private as the law says.
    Why: the exact cells are those of the first release, and each is refined for itself.
    """
    statement, exact = measured
    groups = _groups(plan, statement, exact.reveal())
    keys = [group.keys for group in groups]
    if keys != [row[: len(statement.keys)] for row in before.rows]:
        raise InternalError("a release is refined for the groups that it has", code="release")
    columns: list[list[tuple[int, ...]]] = []
    for place, part in enumerate(plan.blocks):
        cells = part.block.cells
        true = [cell.exact(group.moments) for group in groups for cell in cells]
        old = [cell for row in before.cells for cell in row[place]]
        drawn = iter(law.cells(place, true, old, entropy))
        columns.append([tuple(next(drawn) for _ in cells) for _ in groups])
    return table_of(plan, keys, [tuple(column[index] for column in columns) for index in range(len(groups))])


def table_of(plan: MeasurementPlan, keys: Sequence[Keys], cells: Sequence[Cells]) -> ReleasedTable:
    """The released table that follows from what was released: its keys and its noisy cells, row by row."""
    columns = tuple((column.name, column.type.value) for column in released_columns(plan.analysis.release))
    values = [() if plan.best is not None else _values(plan, found) for found in cells]
    rows = tuple((*key, *value) for key, value in zip(keys, values, strict=True))
    return ReleasedTable(columns, rows, tuple(cells), plan)


def _scores(
    analysis: Analysis, statement: Statement, rows: Sequence[tuple[Any, ...]]
) -> tuple[tuple[Keys, ...], list[int]]:
    """All groups of the public keys, in order, and their scores: 0 for a group without rows."""
    if analysis.domains is None:
        raise TypeError("the best are chosen among groups that are known")
    named = map(statement.named, rows)
    found = {_keys(statement, row): _whole(row[SCORE]) for row in named}
    known = tuple(product(analysis.domains))
    return known, [found.get(keys, 0) for keys in known]


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with its exact moments, its clamp histograms, and the window of values around each quantile."""

    keys: Keys
    moments: Mapping[Statistic, int]
    histograms: tuple[ClampHistogram, ...]
    windows: tuple[Window, ...]

    def __repr__(self) -> str:
        return "_Group(…)"  # what is exact shows nowhere


def _groups(plan: MeasurementPlan, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> list[_Group]:
    """The groups in public order; the moments of empty ones of a domain are zeros."""
    analysis = plan.analysis
    present: dict[Keys, _Group] = {}
    for row in map(statement.named, rows):
        moments = {statistic: _whole(row[name]) for name, statistic in statement.moments.items()}
        if not analysis.bound.per_unit:
            moments[UNITS] = moments[ROWS]
        keys = _keys(statement, row)
        histograms = tuple(ClampHistogram.of(row[name]) for name in statement.histograms)
        windows = tuple(Window.of(row[name]) for name in statement.windows)
        present[keys] = _Group(keys, moments, histograms, windows)
    if analysis.domains is None:
        return list(present.values())
    zeros = dict.fromkeys((*statement.moments.values(), UNITS), 0)
    unfilled, empty = (ClampHistogram(),) * len(statement.histograms), (Window(),) * len(statement.windows)
    known = product(analysis.domains)
    if analysis.selects:
        known = tuple(keys for keys in known if keys in present)
    return [present.get(keys) or _Group(keys, zeros, unfilled, empty) for keys in known]


def _with_clamps(
    plan: MeasurementPlan, groups: Sequence[_Group], entropy: Entropy
) -> tuple[MeasurementPlan, list[_Group]]:
    """The plan with its clamps chosen, and the groups in which units count up to them."""
    clamps = learnt(plan.clamps, [group.histograms for group in groups], entropy)
    kept = [
        replace(group, moments={**group.moments, **clamped(clamps, group.histograms)}) for group in groups
    ]
    return plan.at(clamps), kept


def _keys(statement: Statement, row: Mapping[str, Any]) -> Keys:
    """The group keys of a row."""
    return tuple(row[name] for name in statement.keys)


def _whole(value: Any) -> int:
    """A moment from the engine; a sum over no rows is NULL there and zero here."""
    return 0 if value is None else int(value)


def _noised(
    plan: MeasurementPlan, groups: Sequence[Mapping[Statistic, int]], entropy: Entropy
) -> list[Cells]:
    columns: list[list[tuple[int, ...]]] = []
    for measured in plan.blocks:
        cells, draws = measured.block.cells, iter(noise(measured, len(groups), entropy))
        columns.append([tuple(cell.exact(moments) + next(draws) for cell in cells) for moments in groups])
    return [tuple(column[index] for column in columns) for index in range(len(groups))]


def noise(measured: VectorMeasurement, groups: int, entropy: Entropy) -> list[int]:
    """The noise of a block in so many groups, cell by cell."""
    return measured.mechanism.draw(groups * len(measured.block.cells), entropy)


def _passes(
    chosen: Threshold | OptimalPartitionSelection,
    analysis: Analysis,
    moments: Mapping[Statistic, int],
    cells: Cells,
    entropy: Entropy,
) -> bool:
    units = moments[UNITS if analysis.bound.per_unit else ROWS]
    if isinstance(chosen, OptimalPartitionSelection):
        return chosen.shows(units, entropy)
    found = sum(cells[chosen.block][at] for at in chosen.cells)
    return units >= chosen.min_frequency and found >= chosen.threshold


def _values(plan: MeasurementPlan, cells: Cells) -> tuple[Value, ...]:
    return tuple(_value(plan, item, cells) for item in plan.analysis.release.aggregations)


def _value(plan: MeasurementPlan, item: Aggregation, cells: Cells) -> Value:
    entry = AGGREGATES[item.function]
    index = plan.analysis.measure(item)
    interval = None if index is None else plan.analysis.measures[index].interval
    estimates = {moment: estimate(plan, item, moment, cells) for moment in entry.moments}
    return entry.value(estimates, interval, item.type)


def estimate(plan: MeasurementPlan, item: Aggregation, moment: Moment, cells: Cells) -> Fraction:
    """The estimate of an aggregate's moment from a group's noisy cells, TOTAL and RANKED in value units."""
    place = plan.place(item)
    if place is not None:
        (point,) = cells[len(plan.blocks) + place]
        return point * plan.ranked[place].lattice.step
    block, weights = plan.source(statistic_of(plan.analysis, item, moment))
    steps = sum(
        (weight * cell for weight, cell in zip(weights, cells[block], strict=True)), start=Fraction(0)
    )
    index = plan.analysis.measure(item)
    lattice = None if index is None else plan.analysis.measures[index].lattice
    return steps * lattice.step if lattice is not None and moment is Moment.TOTAL else steps
