"""The uncertainty of each cell of a result: standard deviations of the noise, and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.analysis.release_analysis import Measure
from dpsql.engine.intervals import noise_laws
from dpsql.engine.intervals.noise_laws import compute_allowances
from dpsql.engine.intervals.post_selection import (
    Noises,
    PostSelection,
    collect_deciding_noises,
    collect_noises,
    compute_kept_row_confidence,
    has_shared_noise,
)
from dpsql.engine.intervals.simulation import can_simulate, simulate_intervals
from dpsql.engine.release.released_table import Components, ReleasedTable, estimate_moment, estimate_moments
from dpsql.plan.aggregates import AGGREGATES, Aggregate, Moment
from dpsql.plan.aggregates.base import divide_to_double, round_to_double
from dpsql.plan.expressions import Expr, ReleasedColumn
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.provenance import Provenance
from dpsql.plan.smooth import match_linear
from dpsql.plan.types import Type, Value
from dpsql.planning.choose import compute_predicted_std, get_statistic
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import ConsistencyNoise, Mechanism
from dpsql.results.rendering import Ends

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
        object.__setattr__(self, "_deciding", collect_deciding_noises(self.plan, self.provenance))

    @property
    def row_selection(self) -> tuple[int, int] | None:
        """Return how many of the released rows are kept, and of how many, if noisy values choose among them; else None."""
        rows, released = len(self.origin), len(self.table.rows)
        return (rows, released) if self._deciding and 0 < rows < released else None

    def adjust_confidence(self, column: int, confidence: float) -> float:
        """Return the confidence of each interval of a column, so that those of the kept rows hold with `confidence`."""
        if self.row_selection is None or not has_shared_noise(
            self._deciding, collect_noises(self.plan, [self.provenance.outputs[column]])
        ):
            return confidence
        return compute_kept_row_confidence(confidence, *self.row_selection)

    def compute_scales(self) -> tuple[tuple[float | None, ...], ...]:
        """Return the standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        columns = [self._compute_column_scales(column) for column in range(len(self.provenance.outputs))]
        return tuple(zip(*columns, strict=True))

    def _compute_column_scales(self, column: int) -> tuple[float | None, ...]:
        found = match_linear(self.provenance.outputs[column])
        item = _find_aggregation(self.provenance.release, None if found is None else found.column)
        if found is None or item is None or item.rank is not None:
            return (None,) * len(self.origin)
        std = compute_predicted_std(self.plan, item) * abs(found.factor)
        if not AGGREGATES[item.function].ratio:
            return (std,) * len(self.origin)
        cells = [self.table.components[row] for row in self.origin]
        counts, of = estimate_moments(self.plan, item, Moment.COUNT, cells)
        return tuple(std / max(1.0, divide_to_double(count, of)) for count in counts)

    def compute_interval(self, row: int, column: int, confidence: float) -> Ends:
        """Return the confidence interval of a cell, simulated if it is not a linear function of one aggregate.

        It is wider if noisy values select the rows. It is None if nothing in the value is noisy, or if the law of its noise is
        unknown.
        """
        confidence = self.adjust_confidence(column, confidence)
        found = match_linear(self.provenance.outputs[column])
        item = _find_aggregation(self.provenance.release, None if found is None else found.column)
        if found is None or item is None:
            return self._get_simulated_intervals(self.provenance.outputs[column], confidence)[row]
        ends = self._compute_aggregate_intervals(item, found.column, confidence)[row]
        if ends is None:
            return None
        low, high = (found.shift + found.factor * end for end in ends)
        return min(low, high), max(low, high)

    def has_intervals(self, column: int) -> bool:
        """Return whether a column has confidence intervals."""
        found = match_linear(self.provenance.outputs[column])
        item = _find_aggregation(self.provenance.release, None if found is None else found.column)
        if item is None:
            return can_simulate(self.plan, self.provenance.outputs[column])
        return has_interval(self.plan, item)

    def is_count(self, column: int) -> bool:
        """Return whether a column is a noisy count."""
        expr = self.provenance.outputs[column]
        item = _find_aggregation(self.provenance.release, expr)
        return item is not None and AGGREGATES[item.function].moments[0] in _COUNTS

    def _compute_aggregate_intervals(
        self, item: Aggregation, column: ReleasedColumn, confidence: float
    ) -> list[Ends]:
        if (column, confidence) not in self._known:
            found = compute_intervals(self.plan, self.table, item, self.origin, confidence)
            self._known[column, confidence] = found
        return self._known[column, confidence]

    def _get_simulated_intervals(self, expr: Expr, confidence: float) -> list[Ends]:
        """Return the simulated intervals of an expression, made once for all rows when one is asked for."""
        if (expr, confidence) not in self._known:
            found = simulate_intervals(self.plan, self.table, expr, self.origin, confidence)
            self._known[expr, confidence] = found
        return self._known[expr, confidence]


def compute_intervals(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """Return the confidence interval of a released aggregate in each of these rows of the released table.

    The interval holds the value without noise, and is extended by the `compute_allowances` of chosen clamps. It is None for a
    withheld cell. If partition selection compared a count with a threshold, aggregates that share its components are simulated,
    because their noise given selection is not symmetric. A quantile has the ends that were released with it, or None.
    """
    found = _compute_intervals(plan, table, item, rows, confidence)
    if not table.withheld_cells:
        return found
    return [
        None if (row, item.name) in table.withheld_cells else ends
        for row, ends in zip(rows, found, strict=True)
    ]


def _compute_intervals(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """Return the intervals of a released aggregate, withheld or not."""
    if item.rank is not None:
        return _compute_quantile_intervals(plan, table, item, rows, confidence)
    entry = AGGREGATES[item.function]
    sources = [plan.get_estimator(get_statistic(plan.analysis, item, moment)) for moment in entry.moments]
    if plan.threshold is not None and any(
        plan.threshold.vector == block and not plan.is_selection_count(block, weights)
        for block, weights in sources
    ):
        return simulate_intervals(plan, table, ReleasedColumn(item.name, item.type), rows, confidence)
    cells = [table.components[row] for row in rows]
    if not entry.ratio and plan.threshold is None:
        found = _compute_linear_intervals(plan, item, cells, confidence)
    elif entry.ratio and len({block for block, _ in sources}) > 1:
        return [*_compute_ratio_intervals(plan, table, item, rows, confidence)]
    else:
        found = [_compute_interval(plan, item, each, confidence) for each in cells]
    adjusted = any(isinstance(plan.vectors[block].mechanism, ConsistencyNoise) for block, _ in sources)
    if adjusted and item.type is Type.INTEGER and item in plan.analysis.release.aggregations:
        place = len(plan.analysis.release.keys) + plan.analysis.release.aggregations.index(item)
        found = [_widen_interval(table.rows[row][place], ends) for row, ends in zip(rows, found, strict=True)]
    if entry.ratio:
        return [*found]
    (cut,) = compute_allowances(plan, table, item, rows, confidence)
    return [
        (low - below, high + above) for (low, high), (below, above) in zip(found, cut.tolist(), strict=True)
    ]


def _widen_interval(number: Value, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the interval about a whole number that is shown in place of an estimate.

    Claim: it holds every whole number that the interval of the estimate holds.
    Why: the interval is extended by the distance between the number and the estimate, and its ends are whole.
    """
    if not isinstance(number, int):
        return ends
    half = math.floor(max(ends[1] - number, number - ends[0]) + _LAST_DIGITS)
    return float(number - half), float(number + half)


def _compute_linear_intervals(
    plan: MeasurementPlan, item: Aggregation, cells: Sequence[Components], confidence: float
) -> list[tuple[float, float]]:
    """Return `_compute_interval` for an aggregate that is a weighted sum of components, in many groups."""
    entry, index = AGGREGATES[item.function], plan.analysis.find_measure_index(item)
    block, weights = plan.get_estimator(get_statistic(plan.analysis, item, entry.moments[0]))
    step = _get_step(entry, None if index is None else plan.analysis.measures[index])
    half = noise_laws.compute_half_width(plan.vectors[block].mechanism, weights, confidence) * step
    centres, of = estimate_moments(plan, item, entry.moments[0], cells)
    return [(centre - half, centre + half) for centre in (divide_to_double(each, of) for each in centres)]


def _compute_quantile_intervals(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """Return the intervals between the released ends of a quantile, extended to the quantile itself.

    An interval is None for a confidence above that of the released ends; for a lower confidence it is conservative.
    """
    ends = _find_numeric_ends(plan, item)
    if ends is None or confidence > CONFIDENCE:
        return [None] * len(rows)
    first, items = len(plan.analysis.release.keys), plan.analysis.release.aggregations
    places = [first + items.index(each) for each in (item, *ends)]
    cells = ([table.rows[row][place] for place in places] for row in rows)
    numbers = [[float(value) for value in found if isinstance(value, (int, float))] for found in cells]
    return [(min(found), max(found)) if found else None for found in numbers]


def has_interval(plan: MeasurementPlan, item: Aggregation) -> bool:
    """Return whether an aggregate has intervals; a quantile has them if their ends were released with it."""
    return item.rank is None or _find_numeric_ends(plan, item) is not None


def _find_numeric_ends(plan: MeasurementPlan, item: Aggregation) -> tuple[Aggregation, Aggregation] | None:
    """Return the released interval ends of a quantile of numbers; None if either is missing."""
    return find_released_ends(plan, item) if item.type.numeric else None


def find_released_ends(plan: MeasurementPlan, item: Aggregation) -> tuple[Aggregation, Aggregation] | None:
    """Return the ends of a quantile's interval that the release has; None if either is missing."""
    known = {replace(each, name=""): each for each in plan.analysis.release.aggregations}
    low, high = (known.get(replace(item, name="", interval_end=end)) for end in (-1, 1))
    return (low, high) if low and high and not item.interval_end else None


def _compute_interval(
    plan: MeasurementPlan, item: Aggregation, cells: Components, confidence: float
) -> tuple[float, float]:
    """Return the confidence interval of an aggregate from the law of its noise."""
    entry = AGGREGATES[item.function]
    block, weights = plan.get_estimator(get_statistic(plan.analysis, item, entry.moments[0]))
    mechanism = plan.vectors[block].mechanism
    index = plan.analysis.find_measure_index(item)
    measure = None if index is None else plan.analysis.measures[index]
    if entry.ratio and measure is not None:
        if plan.vectors[block].vector.joint:
            return _compute_joint_mean_interval(plan, item, measure, cells, confidence)
        return _compute_mean_interval(measure, cells[block], mechanism, confidence)
    if plan.threshold is not None and plan.is_selection_count(block, weights):
        return PostSelection.from_cells(plan, plan.threshold, cells[block]).compute_interval(confidence)
    centre = round_to_double(estimate_moment(plan, item, entry.moments[0], cells))
    half = noise_laws.compute_half_width(mechanism, weights, confidence) * _get_step(entry, measure)
    return centre - half, centre + half


def compute_interval_ends(
    plan: MeasurementPlan, table: ReleasedTable, column: ReleasedColumn, confidence: float = CONFIDENCE
) -> list[float | None]:
    """Return the end of a confidence interval as a column of the released table, row by row.

    The ends are NULL if nothing in the expression is noisy, or if the law of its noise is unknown.

    Claim: it costs no privacy loss.
    Why: it is a function of the noisy components and of the public law of their noise.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if column.end_of is None:
        raise ValueError("the column is not an interval end")
    of, which = column.end_of
    rows = range(len(table.rows))
    item = _find_aggregation(plan.analysis.release, of)
    if item is None:
        found = simulate_intervals(plan, table, of, rows, confidence)
    else:
        found = compute_intervals(plan, table, item, rows, confidence)
    return [None if ends is None else ends[which == "high"] for ends in found]


def _find_aggregation(release: Release, expr: Expr | None) -> Aggregation | None:
    """Return the aggregate whose released column an expression is; None for other expressions."""
    name = expr.name if isinstance(expr, ReleasedColumn) else None
    return next((item for item in release.aggregations if item.name == name), None)


def _get_step(entry: Aggregate, measure: Measure | None) -> float:
    if not entry.moments[0].is_sum_of_values or measure is None or measure.lattice is None:
        return 1.0
    return float(measure.lattice.step)


@dataclass(frozen=True, slots=True)
class RowProvenance:
    """The uncertainty of a result with provenance: each row comes from a row of one of the `parts`, the branches."""

    parts: tuple[Uncertainty, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def from_branches(
        cls,
        parts: Iterable[tuple[MeasurementPlan, Provenance, ReleasedTable]],
        rows: Sequence[tuple[int, int]],
    ) -> RowProvenance:
        """Return the provenance of rows, from the plan, provenance and released table of each branch, and each row's ordinal and branch."""
        found: list[Uncertainty] = []
        places: dict[tuple[int, int], int] = {}
        for number, (plan, trace, table) in enumerate(parts):
            origin = tuple(dict.fromkeys(ordinal for ordinal, branch in rows if branch == number))
            places |= {(ordinal, number): place for place, ordinal in enumerate(origin)}
            found.append(Uncertainty(plan, trace, table, origin))
        return cls(tuple(found), tuple((branch, places[ordinal, branch]) for ordinal, branch in rows))

    def compute_scales(self) -> tuple[tuple[float | None, ...], ...]:
        """Return the standard deviation of each cell's noise, in the value's own units; None if it is derived."""
        scales = [part.compute_scales() for part in self.parts]
        return tuple(scales[part][place] for part, place in self.places)

    @property
    def bounded_columns(self) -> tuple[bool, ...]:
        """Return, for each column, whether it has intervals in some branch."""
        width = len(self.parts[0].provenance.outputs) if self.parts else 0
        return tuple(any(part.has_intervals(column) for part in self.parts) for column in range(width))

    @property
    def count_columns(self) -> tuple[bool, ...]:
        """Return, for each column, whether it is a noisy count in every branch."""
        width = len(self.parts[0].provenance.outputs) if self.parts else 0
        return tuple(all(part.is_count(column) for part in self.parts) for column in range(width))

    @property
    def row_selections(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers of kept and of released rows of each branch in which noisy values choose among the rows."""
        return tuple(part.row_selection for part in self.parts if part.row_selection is not None)

    def compute_interval(self, row: int, column: int, confidence: float) -> Ends:
        """Return the confidence interval of a cell; None if nothing in it is noisy, or the law of its noise is unknown."""
        part, place = self.places[row]
        return self.parts[part].compute_interval(place, column, confidence)


def _compute_mean_interval(
    measure: Measure, cells: tuple[int, ...], mechanism: Mechanism, confidence: float
) -> tuple[float, float]:
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    first, last = noise_laws.compute_mean_interval(cells[0], cells[1], mechanism, confidence)
    start, width = lattice.low * lattice.step, lattice.width * lattice.step
    return float(max(low, start + first * width)), float(min(high, start + last * width))


def _compute_ratio_intervals(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> list[tuple[float, float]]:
    """Return the intervals of a mean whose total and count are measured apart, with what the clamps of both cut off."""
    index = plan.analysis.find_measure_index(item)
    measure = None if index is None else plan.analysis.measures[index]
    if measure is None or measure.lattice is None:
        raise LookupError("a mean is of a measure with a lattice")
    step = float(measure.lattice.step)
    noises = []
    for moment, unit in ((Moment.TOTAL, step), (Moment.COUNT, 1.0)):
        vector, weights = plan.get_estimator(get_statistic(plan.analysis, item, moment))
        noises.append(noise_laws.ScaledNoise(plan.vectors[vector].mechanism, weights, unit))
    cut, uncounted = compute_allowances(plan, table, item, rows, confidence)
    cells = [table.components[row] for row in rows]
    (totals, parts), (counts, shares) = (
        estimate_moments(plan, item, moment, cells) for moment in (Moment.TOTAL, Moment.COUNT)
    )
    low, high = map(float, measure.interval.ends)
    return [
        noise_laws.make_ratio_interval(noises[0], noises[1], (missing[0], missing[1]), more, confidence)(
            divide_to_double(above, parts), divide_to_double(beside, shares), low, high
        )
        for above, beside, missing, (_, more) in zip(
            totals, counts, cut.tolist(), uncounted.tolist(), strict=True
        )
    ]


def _compute_joint_mean_interval(
    plan: MeasurementPlan, item: Aggregation, measure: Measure, cells: Components, confidence: float
) -> tuple[float, float]:
    """Return `_compute_mean_interval` for a mean from a centered total and a count, which are components of a joint vector."""
    low, high = measure.interval.ends
    lattice = measure.lattice
    if lattice is None or lattice.width == 0:
        return float(low), float(high)
    block, total = plan.get_estimator(get_statistic(plan.analysis, item, Moment.TOTAL))
    _, count = plan.get_estimator(get_statistic(plan.analysis, item, Moment.COUNT))
    middle, half = Fraction(lattice.low + lattice.high, 2), Fraction(lattice.width, 2)
    about = tuple(whole - middle * each for whole, each in zip(total, count, strict=True))
    noise = plan.vectors[block].mechanism
    first, last = noise_laws.compute_ratio_interval(cells[block], (about, count), half, noise, confidence)
    ends = ((middle + end) * lattice.step for end in (first, last))
    least, most = ends
    return float(max(low, least)), float(min(high, most))
