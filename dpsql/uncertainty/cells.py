"""The uncertainty of each cell of a result: standard deviations of the noise, and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.aggregates import AGGREGATES, Aggregate, Moment
from dpsql.aggregates.base import nearest, quotient
from dpsql.analysis.analyse import Measurand
from dpsql.mechanisms import ConsistencyNoise, Mechanism
from dpsql.plan.expr import Expr, Released
from dpsql.plan.linear import linear
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.provenance import Provenance
from dpsql.plan.types import Type, Value
from dpsql.planning.choose import predicted_std, statistic_of
from dpsql.planning.measurement import MeasurementPlan
from dpsql.release import Components, ReleasedTable, estimate, estimates
from dpsql.rendering import Ends
from dpsql.uncertainty import laws
from dpsql.uncertainty.cut_off import allowances
from dpsql.uncertainty.post_selection import PostSelection
from dpsql.uncertainty.selected_rows import Noises, are_shared, confidence_for, deciding_noises, noises
from dpsql.uncertainty.simulation import simulable, simulated_intervals

CONFIDENCE = 0.95
"""The confidence of DP_INTERVAL_LOW and DP_INTERVAL_HIGH."""

_LAST_DIGITS = 1e-9
"""How far an end may be off by what a DOUBLE leaves out."""
_COUNTS = frozenset({Moment.ROWS, Moment.UNITS, Moment.COUNT, Moment.DISTINCT})


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The uncertainty of the result rows of one branch; `origin` has the released row of each."""

    plan: MeasurementPlan
    provenance: Provenance
    table: ReleasedTable
    origin: tuple[int, ...]
    _deciding: Noises = field(init=False, repr=False, compare=False)
    _known: dict[tuple[Expr, float], list[Ends]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_deciding", deciding_noises(self.plan, self.provenance))

    @property
    def chosen(self) -> tuple[int, int] | None:
        """How many of the released rows are kept, and of how many, if noisy values choose among them; else None."""
        rows, released = len(self.origin), len(self.table.rows)
        return (rows, released) if self._deciding and 0 < rows < released else None

    def confidence(self, column: int, confidence: float) -> float:
        """The confidence of each interval of a column, so that those of the kept rows hold with `confidence`."""
        if self.chosen is None or not are_shared(
            self._deciding, noises(self.plan, [self.provenance.outputs[column]])
        ):
            return confidence
        return confidence_for(confidence, *self.chosen)

    def scales(self) -> tuple[tuple[float | None, ...], ...]:
        """The standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        columns = [self._scales(column) for column in range(len(self.provenance.outputs))]
        return tuple(zip(*columns, strict=True))

    def _scales(self, column: int) -> tuple[float | None, ...]:
        found = linear(self.provenance.outputs[column])
        item = _aggregation(self.provenance.release, None if found is None else found.column)
        if found is None or item is None or item.rank is not None:
            return (None,) * len(self.origin)
        std = predicted_std(self.plan, item) * abs(found.factor)
        if not AGGREGATES[item.function].ratio:
            return (std,) * len(self.origin)
        cells = [self.table.components[row] for row in self.origin]
        counts, of = estimates(self.plan, item, Moment.COUNT, cells)
        return tuple(std / max(1.0, quotient(count, of)) for count in counts)

    def interval(self, row: int, column: int, confidence: float) -> Ends:
        """The confidence interval of a cell, simulated if it is not a linear function of one aggregate.

        It is wider where noisy values choose among the rows. None if nothing in it is noisy, or the law of its noise is
        unknown.
        """
        confidence = self.confidence(column, confidence)
        found = linear(self.provenance.outputs[column])
        item = _aggregation(self.provenance.release, None if found is None else found.column)
        if found is None or item is None:
            return self._simulations(self.provenance.outputs[column], confidence)[row]
        ends = self._of_aggregates(item, found.column, confidence)[row]
        if ends is None:
            return None
        low, high = (found.shift + found.factor * end for end in ends)
        return min(low, high), max(low, high)

    def bounded(self, column: int) -> bool:
        """Whether a column has confidence intervals."""
        found = linear(self.provenance.outputs[column])
        item = _aggregation(self.provenance.release, None if found is None else found.column)
        if item is None:
            return simulable(self.plan, self.provenance.outputs[column])
        return has_interval(self.plan, item)

    def counts(self, column: int) -> bool:
        """Whether a column is a noisy count."""
        expr = self.provenance.outputs[column]
        item = _aggregation(self.provenance.release, expr)
        return item is not None and AGGREGATES[item.function].moments[0] in _COUNTS

    def _of_aggregates(self, item: Aggregation, column: Released, confidence: float) -> list[Ends]:
        if (column, confidence) not in self._known:
            found = intervals_of(self.plan, self.table, item, self.origin, confidence)
            self._known[column, confidence] = found
        return self._known[column, confidence]

    def _simulations(self, expr: Expr, confidence: float) -> list[Ends]:
        """The simulated intervals of an expression, made once for all rows when one is asked for."""
        if (expr, confidence) not in self._known:
            found = simulated_intervals(self.plan, self.table, expr, self.origin, confidence)
            self._known[expr, confidence] = found
        return self._known[expr, confidence]


def intervals_of(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """The confidence interval of a released aggregate in each of these rows of the released table.

    It holds the value without noise, and what learnt clamps cut off as far as `allowances` say. It is None for a cell that
    is withheld. If partition selection compared a count with a threshold, aggregates that share its components are
    simulated, since their noise given selection is not symmetric. A quantile has the interval ends that were released with it, else None.
    """
    found = _intervals(plan, table, item, rows, confidence)
    if not table.withheld:
        return found
    return [
        None if (row, item.name) in table.withheld else ends for row, ends in zip(rows, found, strict=True)
    ]


def _intervals(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """Return the intervals of a released aggregate, withheld or not."""
    if item.rank is not None:
        return _selected_interval(plan, table, item, rows, confidence)
    entry = AGGREGATES[item.function]
    sources = [plan.source(statistic_of(plan.analysis, item, moment)) for moment in entry.moments]
    if plan.threshold is not None and any(
        plan.threshold.vector == block and not plan.decides(block, weights) for block, weights in sources
    ):
        return simulated_intervals(plan, table, Released(item.name, item.type), rows, confidence)
    cells = [table.components[row] for row in rows]
    if not entry.ratio and plan.threshold is None:
        found = _linear_intervals(plan, item, cells, confidence)
    elif entry.ratio and len({block for block, _ in sources}) > 1:
        return [*_means_apart(plan, table, item, rows, confidence)]
    else:
        found = [_interval(plan, item, each, confidence) for each in cells]
    adjusted = any(isinstance(plan.vectors[block].mechanism, ConsistencyNoise) for block, _ in sources)
    if adjusted and item.type is Type.INTEGER and item in plan.analysis.release.aggregations:
        place = len(plan.analysis.release.keys) + plan.analysis.release.aggregations.index(item)
        found = [_around(table.rows[row][place], ends) for row, ends in zip(rows, found, strict=True)]
    if entry.ratio:
        return [*found]
    (cut,) = allowances(plan, table, item, rows, confidence)
    return [
        (low - below, high + above) for (low, high), (below, above) in zip(found, cut.tolist(), strict=True)
    ]


def _around(number: Value, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the interval about a whole number that is shown in place of an estimate.

    Claim: it holds every whole number that the interval of the estimate holds.
    Why: it is as much wider as the number is from the estimate; its ends are whole.
    """
    if not isinstance(number, int):
        return ends
    half = math.floor(max(ends[1] - number, number - ends[0]) + _LAST_DIGITS)
    return float(number - half), float(number + half)


def _linear_intervals(
    plan: MeasurementPlan, item: Aggregation, cells: Sequence[Components], confidence: float
) -> list[tuple[float, float]]:
    """As `_interval`, of an aggregate that is a weighted sum of components, in many groups."""
    entry, index = AGGREGATES[item.function], plan.analysis.measure(item)
    block, weights = plan.source(statistic_of(plan.analysis, item, entry.moments[0]))
    step = _step(entry, None if index is None else plan.analysis.measures[index])
    half = laws.half_width(plan.vectors[block].mechanism, weights, confidence) * step
    centres, of = estimates(plan, item, entry.moments[0], cells)
    return [(centre - half, centre + half) for centre in (quotient(each, of) for each in centres)]


def _selected_interval(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """The intervals between the released ends of a quantile, extended to the quantile itself.

    None for a confidence above that of the ends; for a lower confidence the intervals are conservative.
    """
    ends = _interval_aggregations(plan, item)
    if ends is None or confidence > CONFIDENCE:
        return [None] * len(rows)
    first, items = len(plan.analysis.release.keys), plan.analysis.release.aggregations
    places = [first + items.index(each) for each in (item, *ends)]
    cells = ([table.rows[row][place] for place in places] for row in rows)
    numbers = [[float(value) for value in found if isinstance(value, (int, float))] for found in cells]
    return [(min(found), max(found)) if found else None for found in numbers]


def has_interval(plan: MeasurementPlan, item: Aggregation) -> bool:
    """Whether an aggregate has intervals: of a quantile, whether their ends were released beside it."""
    return item.rank is None or _interval_aggregations(plan, item) is not None


def _interval_aggregations(
    plan: MeasurementPlan, item: Aggregation
) -> tuple[Aggregation, Aggregation] | None:
    """The released interval ends of a quantile of numbers; None if either is missing."""
    return released_ends(plan, item) if item.type.numeric else None


def released_ends(plan: MeasurementPlan, item: Aggregation) -> tuple[Aggregation, Aggregation] | None:
    """Return the ends of a quantile's interval that the release has; None if either is missing."""
    known = {replace(each, name=""): each for each in plan.analysis.release.aggregations}
    low, high = (known.get(replace(item, name="", interval_end=end)) for end in (-1, 1))
    return (low, high) if low and high and not item.interval_end else None


def _interval(
    plan: MeasurementPlan, item: Aggregation, cells: Components, confidence: float
) -> tuple[float, float]:
    """The confidence interval of an aggregate from the law of its noise."""
    entry = AGGREGATES[item.function]
    block, weights = plan.source(statistic_of(plan.analysis, item, entry.moments[0]))
    mechanism = plan.vectors[block].mechanism
    index = plan.analysis.measure(item)
    measure = None if index is None else plan.analysis.measures[index]
    if entry.ratio and measure is not None:
        if plan.vectors[block].vector.joint:
            return _joint_mean(plan, item, measure, cells, confidence)
        return _mean(measure, cells[block], mechanism, confidence)
    if plan.threshold is not None and plan.decides(block, weights):
        return PostSelection.of(plan, plan.threshold, cells[block]).interval(confidence)
    centre = nearest(estimate(plan, item, entry.moments[0], cells))
    half = laws.half_width(mechanism, weights, confidence) * _step(entry, measure)
    return centre - half, centre + half


def ends_of(
    plan: MeasurementPlan, table: ReleasedTable, column: Released, confidence: float = CONFIDENCE
) -> list[float | None]:
    """The end of a confidence interval as a column of the released table, row by row.

    NULL if nothing in the expression is noisy, or the law of its noise is unknown.

    Claim: it costs no privacy loss.
    Why: it is a function of the noisy components and of the public law of their noise.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if column.end_of is None:
        raise ValueError("the column is not an interval end")
    of, which = column.end_of
    rows = range(len(table.rows))
    item = _aggregation(plan.analysis.release, of)
    if item is None:
        found = simulated_intervals(plan, table, of, rows, confidence)
    else:
        found = intervals_of(plan, table, item, rows, confidence)
    return [None if ends is None else ends[which == "high"] for ends in found]


def _aggregation(release: Release, expr: Expr | None) -> Aggregation | None:
    """The aggregate whose released column an expression is; None for other expressions."""
    name = expr.name if isinstance(expr, Released) else None
    return next((item for item in release.aggregations if item.name == name), None)


def _step(entry: Aggregate, measure: Measurand | None) -> float:
    if not entry.moments[0].in_steps or measure is None or measure.lattice is None:
        return 1.0
    return float(measure.lattice.step)


@dataclass(frozen=True, slots=True)
class RowProvenance:
    """The uncertainty of a result with provenance: each row comes from a row of one of the `parts`, the branches."""

    parts: tuple[Uncertainty, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        parts: Iterable[tuple[MeasurementPlan, Provenance, ReleasedTable]],
        rows: Sequence[tuple[int, int]],
    ) -> RowProvenance:
        """From the plan, provenance and released table of each branch, and the ordinal and branch of each row."""
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

    @property
    def bounded(self) -> tuple[bool, ...]:
        """Which columns have intervals in some branch."""
        width = len(self.parts[0].provenance.outputs) if self.parts else 0
        return tuple(any(part.bounded(column) for part in self.parts) for column in range(width))

    @property
    def counts(self) -> tuple[bool, ...]:
        """Which columns are noisy counts in every branch."""
        width = len(self.parts[0].provenance.outputs) if self.parts else 0
        return tuple(all(part.counts(column) for part in self.parts) for column in range(width))

    @property
    def chosen(self) -> tuple[tuple[int, int], ...]:
        """The numbers of kept and of released rows of each branch in which noisy values choose among the rows."""
        return tuple(part.chosen for part in self.parts if part.chosen is not None)

    def interval(self, row: int, column: int, confidence: float) -> Ends:
        """The confidence interval of a cell; None if nothing in it is noisy, or the law of its noise is unknown."""
        part, place = self.places[row]
        return self.parts[part].interval(place, column, confidence)


def _mean(
    measure: Measurand, cells: tuple[int, ...], mechanism: Mechanism, confidence: float
) -> tuple[float, float]:
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    first, last = laws.mean_interval(cells[0], cells[1], mechanism, confidence)
    start, width = lattice.low * lattice.step, lattice.width * lattice.step
    return float(max(low, start + first * width)), float(min(high, start + last * width))


def _means_apart(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[tuple[float, float]]:
    """The intervals of a mean whose total and count are measured apart, with what the clamps of both cut off."""
    index = plan.analysis.measure(item)
    measure = None if index is None else plan.analysis.measures[index]
    if measure is None or measure.lattice is None:
        raise LookupError("a mean is of a measure with a lattice")
    step = float(measure.lattice.step)
    noises = []
    for moment, unit in ((Moment.TOTAL, step), (Moment.COUNT, 1.0)):
        vector, weights = plan.source(statistic_of(plan.analysis, item, moment))
        noises.append(laws.ScaledNoise(plan.vectors[vector].mechanism, weights, unit))
    cut, uncounted = allowances(plan, table, item, rows, confidence)
    cells = [table.components[row] for row in rows]
    (totals, parts), (counts, shares) = (
        estimates(plan, item, moment, cells) for moment in (Moment.TOTAL, Moment.COUNT)
    )
    low, high = map(float, measure.interval.ends)
    return [
        laws.ratio_of_two(noises[0], noises[1], (missing[0], missing[1]), more, confidence)(
            quotient(above, parts), quotient(beside, shares), low, high
        )
        for above, beside, missing, (_, more) in zip(
            totals, counts, cut.tolist(), uncounted.tolist(), strict=True
        )
    ]


def _joint_mean(
    plan: MeasurementPlan, item: Aggregation, measure: Measurand, cells: Components, confidence: float
) -> tuple[float, float]:
    """As `_mean`, for a mean from a centred total and a count, which are components of a joint vector."""
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    block, total = plan.source(statistic_of(plan.analysis, item, Moment.TOTAL))
    _, count = plan.source(statistic_of(plan.analysis, item, Moment.COUNT))
    middle, half = Fraction(lattice.low + lattice.high, 2), Fraction(lattice.width, 2)
    about = tuple(whole - middle * each for whole, each in zip(total, count, strict=True))
    noise = plan.vectors[block].mechanism
    first, last = laws.ratio_interval(cells[block], (about, count), half, noise, confidence)
    ends = ((middle + end) * lattice.step for end in (first, last))
    least, most = ends
    return float(max(low, least)), float(min(high, most))
