"""The noise behind each cell of a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.aggregates import AGGREGATES, Aggregate, Moment
from dpsql.analysis import intervals
from dpsql.analysis.analyse import Measure
from dpsql.analysis.choose import Measured, predicted_std, statistic_of
from dpsql.mechanisms import Mechanism
from dpsql.plan.expr import Call, Expr, Literal, Released
from dpsql.plan.nodes import Aggregation
from dpsql.plan.traces import Trace
from dpsql.release import Cells, ReleasedTable, estimate
from dpsql.result import Ends

CONFIDENCE = 0.95
"""That of DP_INTERVAL_LOW and DP_INTERVAL_HIGH."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Answers for the cells of rows of one branch; `origin` is the released row of each of them."""

    plan: Measured
    trace: Trace
    table: ReleasedTable
    origin: tuple[int, ...]

    def scales(self) -> tuple[tuple[float | None, ...], ...]:
        """The standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        columns = [self._scales(column) for column in range(len(self.trace.outputs))]
        return tuple(zip(*columns, strict=True))

    def _scales(self, column: int) -> tuple[float | None, ...]:
        found = _linear(self.trace.outputs[column])
        item = None if found is None else self._aggregation(found.of)
        if found is None or item is None or item.rank is not None:
            return (None,) * len(self.origin)
        std = predicted_std(self.plan, item) * abs(found.factor)
        if not AGGREGATES[item.function].ratio:
            return (std,) * len(self.origin)
        cells = (self.table.cells[row] for row in self.origin)
        counts = (estimate(self.plan, item, Moment.COUNT, found) for found in cells)
        return tuple(std / max(1.0, float(count)) for count in counts)

    def interval(self, row: int, column: int, confidence: float) -> Ends:
        """The confidence interval of a cell; None if it is derived."""
        found = _linear(self.trace.outputs[column])
        item = None if found is None else self._aggregation(found.of)
        if found is None or item is None or item.rank is not None:
            return None
        ends = interval_of(self.plan, item, self.table.cells[self.origin[row]], confidence)
        low, high = (found.shift + found.factor * end for end in ends)
        return min(low, high), max(low, high)

    def _aggregation(self, column: Released) -> Aggregation | None:
        named = (item for item in self.trace.release.aggregations if item.name == column.name)
        return next(named, None)


def interval_of(plan: Measured, item: Aggregation, cells: Cells, confidence: float) -> tuple[float, float]:
    """The confidence interval of a released aggregate in the group with these noisy cells."""
    entry = AGGREGATES[item.function]
    block, weights = plan.source(statistic_of(plan.analysis, item, entry.moments[0]))
    mechanism = plan.blocks[block].mechanism
    index = plan.analysis.measure(item)
    measure = None if index is None else plan.analysis.measures[index]
    if entry.ratio and measure is not None:
        if plan.blocks[block].block.joint:
            return _joint_mean(plan, item, measure, cells, confidence)
        return _mean(measure, cells[block], mechanism, confidence)
    centre = float(estimate(plan, item, entry.moments[0], cells))
    half = intervals.half_width(mechanism, weights, confidence) * _step(entry, measure)
    return centre - half, centre + half


def ends_of(plan: Measured, table: ReleasedTable, column: Released) -> list[float]:
    """The end of an aggregate's 95% confidence interval that a column of the released table holds, row by row.

    Claim: it costs nothing.
    Why: it is a function of the noisy cells and of the public law of their noise.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if column.end_of is None:
        raise ValueError("only an end of an interval is made after the release")
    name, which = column.end_of
    (item,) = (item for item in plan.analysis.release.aggregations if item.name == name)
    ends = (interval_of(plan, item, cells, CONFIDENCE) for cells in table.cells)
    return [high if which == "high" else low for low, high in ends]


def _step(entry: Aggregate, measure: Measure | None) -> float:
    if entry.moments[0] is not Moment.TOTAL or measure is None or measure.lattice is None:
        return 1.0
    return float(measure.lattice.step)


@dataclass(frozen=True, slots=True)
class Origins:
    """Answers for the cells of a result: each row comes from a row of one of the `parts`."""

    parts: tuple[Uncertainty, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, parts: Iterable[tuple[Measured, Trace, ReleasedTable]], rows: Sequence[tuple[int, int]]
    ) -> Origins:
        """From what each branch measures and releases, and each row's ordinal there and its branch."""
        found: list[Uncertainty] = []
        places: dict[tuple[int, int], int] = {}
        for number, (plan, trace, table) in enumerate(parts):
            origin = tuple(dict.fromkeys(ordinal for ordinal, branch in rows if branch == number))
            places |= {(ordinal, number): place for place, ordinal in enumerate(origin)}
            found.append(Uncertainty(plan, trace, table, origin))
        return cls(tuple(found), tuple((branch, places[ordinal, branch]) for ordinal, branch in rows))

    def scales(self) -> tuple[tuple[float | None, ...], ...]:
        """The standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        scales = [part.scales() for part in self.parts]
        return tuple(scales[part][place] for part, place in self.places)

    def interval(self, row: int, column: int, confidence: float) -> Ends:
        """The confidence interval of a cell; None if it is derived from several released ones."""
        part, place = self.places[row]
        return self.parts[part].interval(place, column, confidence)


@dataclass(frozen=True, slots=True)
class _Linear:
    """A released column times a factor, plus a shift."""

    of: Released
    factor: float = 1.0
    shift: float = 0.0


def _linear(expr: Expr) -> _Linear | None:
    """An expression as a linear one of a single released column, where it is that."""
    if isinstance(expr, Released):
        return _Linear(expr)
    if not isinstance(expr, Call):
        return None
    name, parts = expr.function.name, [part for part in expr.arguments if not isinstance(part, Literal)]
    inner = _linear(parts[0]) if len(parts) == 1 else None
    constants = [part.value for part in expr.arguments if isinstance(part, Literal)]
    if inner is None or not all(type(value) in (int, float) for value in constants):
        return None
    numbers = [float(value) for value in constants if isinstance(value, (int, float))]
    first = expr.arguments[0] is parts[0]
    match name, numbers:
        case "negate", []:
            return _Linear(inner.of, -inner.factor, -inner.shift)
        case "cast_double", []:
            return inner
        case "multiply", [by]:
            return _Linear(inner.of, inner.factor * by, inner.shift * by)
        case "divide", [by] if first and by != 0:
            return _Linear(inner.of, inner.factor / by, inner.shift / by)
        case "add", [by]:
            return _Linear(inner.of, inner.factor, inner.shift + by)
        case "subtract", [by]:
            sign = 1.0 if first else -1.0
            return _Linear(inner.of, inner.factor * sign, (inner.shift - by) * sign)
        case _:
            return None


def _mean(
    measure: Measure, cells: tuple[int, ...], mechanism: Mechanism, confidence: float
) -> tuple[float, float]:
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    first, last = intervals.mean_interval(cells[0], cells[1], mechanism, confidence)
    start, width = lattice.low * lattice.step, lattice.width * lattice.step
    return float(max(low, start + first * width)), float(min(high, start + last * width))


def _joint_mean(
    plan: Measured, item: Aggregation, measure: Measure, cells: Cells, confidence: float
) -> tuple[float, float]:
    """As `_mean`, where a total about the middle and a count are cells of a joint block."""
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    block, total = plan.source(statistic_of(plan.analysis, item, Moment.TOTAL))
    _, count = plan.source(statistic_of(plan.analysis, item, Moment.COUNT))
    middle, half = Fraction(lattice.low + lattice.high, 2), Fraction(lattice.width, 2)
    about = tuple(whole - middle * each for whole, each in zip(total, count, strict=True))
    noise = plan.blocks[block].mechanism
    first, last = intervals.ratio_interval(cells[block], (about, count), half, noise, confidence)
    ends = ((middle + end) * lattice.step for end in (first, last))
    least, most = ends
    return float(max(low, least)), float(min(high, most))
