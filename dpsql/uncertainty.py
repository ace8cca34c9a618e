"""The noise behind each cell of a result."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.aggregates import AGGREGATES, Aggregate, Moment
from dpsql.analysis import intervals
from dpsql.analysis.analyse import Measure
from dpsql.analysis.choose import Measured, predicted_std, statistic_of
from dpsql.mechanisms import Mechanism
from dpsql.plan.expr import Released
from dpsql.plan.nodes import Aggregation, Post
from dpsql.release import ReleasedTable, estimate
from dpsql.result import Ends


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Answers for the cells of a result; `origin` is the released row of each result row."""

    plan: Measured
    post: Post
    table: ReleasedTable
    origin: tuple[int, ...]

    def scales(self) -> tuple[tuple[float | None, ...], ...]:
        """The standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        columns = [self._scales(column) for column in range(len(self.post.outputs))]
        return tuple(zip(*columns, strict=True))

    def _scales(self, column: int) -> tuple[float | None, ...]:
        item = self._aggregation(column)
        if item is None:
            return (None,) * len(self.origin)
        std = predicted_std(self.plan, item)
        if not AGGREGATES[item.function].ratio:
            return (std,) * len(self.origin)
        cells = (self.table.cells[row] for row in self.origin)
        counts = (estimate(self.plan, item, Moment.COUNT, found) for found in cells)
        return tuple(std / max(1.0, float(count)) for count in counts)

    def interval(self, row: int, column: int, confidence: float) -> Ends:
        """The confidence interval of a cell; None if it is derived."""
        item = self._aggregation(column)
        if item is None:
            return None
        cells = self.table.cells[self.origin[row]]
        entry = AGGREGATES[item.function]
        block, weights = self.plan.source(statistic_of(self.plan.analysis, item, entry.moments[0]))
        mechanism = self.plan.blocks[block].mechanism
        measure = self._measure(item)
        if entry.ratio and measure is not None:
            return _mean(measure, cells[block], mechanism, confidence)
        centre = float(estimate(self.plan, item, entry.moments[0], cells))
        half = intervals.half_width(mechanism, weights, confidence) * self._step(entry, measure)
        return centre - half, centre + half

    def _aggregation(self, column: int) -> Aggregation | None:
        expr = self.post.outputs[column].expr
        if not isinstance(expr, Released):
            return None
        named = (item for item in self.post.release.aggregations if item.name == expr.name)
        return next(named, None)

    def _measure(self, item: Aggregation) -> Measure | None:
        index = self.plan.analysis.measure(item)
        return None if index is None else self.plan.analysis.measures[index]

    def _step(self, entry: Aggregate, measure: Measure | None) -> float:
        if entry.moments[0] is not Moment.TOTAL or measure is None or measure.lattice is None:
            return 1.0
        return float(measure.lattice.step)


def _mean(measure: Measure, cells: tuple[int, ...], mechanism: Mechanism, confidence: float) -> Ends:
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    first, last = intervals.mean_interval(cells[0], cells[1], mechanism, confidence)
    start, width = lattice.low * lattice.step, lattice.width * lattice.step
    return float(max(low, start + first * width)), float(min(high, start + last * width))
