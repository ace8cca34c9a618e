"""Confidence intervals of expressions over several released columns, by simulating the noise.

Claim: the interval covers the value without noise with probability at least `confidence`. This is exact for expressions
that are linear in the noisy components or monotone in one of them, and was measured for others.
Why: noisy components are z = c + N, c being the exact ones and N noise of a known symmetric law, so c = z - N: the values
of a linear expression at z minus draws of the noise have the law of its exact value. Three nonlinear cases are handled.
If the noise may have changed the sign of a divisor, the exact value may be anything, as in Fieller's set. If the
expression has a turning point, as a square has, the exact value may be beyond all but few draws, so the interval also
contains the values along the line through z on which the expression changes most. If the expression chooses among noisy
values, as GREATEST does, the choice is biased, so the interval contains all values for a region that contains c. In a
group that passed a threshold, draws are mapped to the law of the noise given selection.
It costs no privacy loss: it is a function of noisy components and of the public law of their noise. The draws need not
be secret: they are a fixed public stream, so that an interval is the same at every call.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Fieller 1954, section 4; Efron, Tibshirani 1993,
"An Introduction to the Bootstrap", section 13.3 (percentiles).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_128
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpsql.analysis.intervals import derive_interval
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine.intervals.noise_laws import compute_allowances
from dpsql.engine.intervals.post_selection import PostSelection
from dpsql.engine.release.noise import draw_noise
from dpsql.engine.release.released_table import Components, ReleasedTable
from dpsql.errors import OperationalError
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Call, Expr, Literal, ReleasedColumn, compute_expression_size, walk
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import Aggregation, list_released_columns
from dpsql.plan.provenance import find_only_value
from dpsql.plan.types import Type
from dpsql.planning.choose import get_statistic
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.results.rendering import Ends
from dpsql.sql.compile.outer_query import DRAWN, KEYS, PLACE, ROW, emit_simulated

PAIRS = 5000
"""The fewest draws, each of which is used with both signs: enough for a confidence of 0.998."""
_MOST_WRITTEN = 1_000
"""The most operations of an expression that is simulated, its subqueries written out: it is computed some thousand times."""
_TAIL = 10
"""How many draws are beyond each end, at least."""
_MOST = 0.99996
"""The greatest confidence for which noise is drawn so often that there are enough draws."""
_AT_ONCE = 2_000_000
_SOME = 5
"""One draw in this many is used to find a direction."""
_STEPS = np.linspace(-1, 1, 65)
_WHOLE = 2.0**62
_ENDLESS = 2.0**53
_DIVIDES = frozenset({"divide", "quotient", "remainder"})
_CHOOSES = frozenset({"greatest", "least"})
_CHOICES = 4
"""For a choice among more noisy values, the simulated extremes no longer cover the exact value."""

_CORNERS = 3

Floats = NDArray[np.float64]
Cut = Mapping[tuple[str, int], Floats]
"""How much clamps have cut off of the moments of aggregates in each row, by their names and the indices of moments."""


def simulate_intervals(
    plan: MeasurementPlan, table: ReleasedTable, expr: Expr, rows: Sequence[int], confidence: float
) -> list[Ends]:
    """Return the interval of an expression in each of these rows of a released table.

    An interval is None if the value is NULL or not a number, if nothing in it is noisy, if it reads anything but columns of the
    release, if it chooses among more than four noisy values, and for a confidence above 0.99996.
    """
    nothing: list[Ends] = [None] * len(rows)
    read = _find_columns(plan, expr)
    if read is None or confidence > _MOST:
        return nothing
    size = max(1, _AT_ONCE // (2 * count_draw_pairs(confidence)))
    found: list[Ends] = []
    try:
        for start in range(0, len(rows), size):
            found += _RowSimulation(
                plan, table, expr, *read, tuple(rows[start : start + size])
            ).compute_intervals(confidence)
    except OperationalError:
        return nothing  # some simulated value is out of the engine's range
    hidden = {row for row, name in table.withheld_cells if name in {item.name for item in read[0]}}
    return [None if row in hidden else ends for row, ends in zip(rows, found, strict=True)]


def count_draw_pairs(confidence: float) -> int:
    """Return how many pairs of draws leave enough of them beyond the ends of an interval.

    >>> count_draw_pairs(0.95), count_draw_pairs(0.998), count_draw_pairs(0.999)
    (5000, 5000, 10000)
    """
    return max(PAIRS, math.ceil(_TAIL / (1 - confidence) - 1e-6))


def can_simulate(plan: MeasurementPlan, expr: Expr) -> bool:
    """Return whether an expression has intervals where it is not NULL."""
    return _find_columns(plan, expr) is not None


def simulate_values(
    plan: MeasurementPlan,
    item: Aggregation,
    released: Floats,
    moved: Floats,
    lowered: Floats | None = None,
    *,
    cut: Sequence[Floats | None] = (),
) -> Floats:
    """Return the values of an aggregate where noisy cells are less by `moved`, as `release` computes them.

    In all but the first draw of each row, each moment is increased by its `cut`, the part that a clamp has cut off.

    `released` has the shape (rows, cells), `moved` (draws, cells) or (rows, draws, cells) and the values
    (rows, draws), NaN for NULL. The sum of the cells that decide whether a group is shown is also reduced by `lowered`, of the
    shape (rows, draws).
    """
    entry = AGGREGATES[item.function]
    weights = [_build_weights(plan, item, moment) for moment in entry.moments]
    moments: list[Floats] = [(released @ of)[:, None] - moved @ of for of in weights]
    if lowered is not None:
        shares = _draw_shares(plan, moved.shape[-2] - 1)
        moments = [
            moment - lowered * (shares @ of[_list_deciding_cells(plan)])
            for moment, of in zip(moments, weights, strict=True)
        ]
    for each, more in zip(moments, cut, strict=False):
        if more is not None:
            each[:, 1:] += more[:, None]
    if entry.ratio:
        total, count = moments
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        index = plan.analysis.find_measure_index(item)
        low, high = (Interval() if index is None else plan.analysis.measures[index].interval).ends
        return np.clip(mean, float(low), float(high))
    (value,) = moments
    return np.clip(np.floor(value + 0.5), -_WHOLE, _WHOLE) if item.type is Type.INTEGER else value


@dataclass(frozen=True, slots=True)
class _RowSimulation:
    """An expression over `aggregates` and `keys` of a released table, in some of its rows."""

    plan: MeasurementPlan
    table: ReleasedTable
    expr: Expr
    aggregates: tuple[Aggregation, ...]
    keys: tuple[ReleasedColumn, ...]
    rows: tuple[int, ...]

    def compute_intervals(self, confidence: float) -> list[Ends]:
        """Return the intervals; if clamps may have cut off much, the smallest that hold the intervals of all corners."""
        draws = _draw_cell_noise(self.plan.vectors, count_draw_pairs(confidence))
        lowered = self._compute_lowering(draws)
        found = self._compute_corner_intervals(draws, lowered, confidence, {})
        for cut in self._iterate_corners(confidence):
            found = [
                *map(_compute_hull, found, self._compute_corner_intervals(draws, lowered, confidence, cut))
            ]
        return found

    def _iterate_corners(self, confidence: float) -> Iterator[Cut]:
        """Yield the corners of the region of amounts that clamps may have cut off: all for few moments, else each moment and all."""
        allowed = {
            (item.name, at): each
            for item in self.aggregates
            for at, each in enumerate(compute_allowances(self.plan, self.table, item, self.rows, confidence))
            if each.any()
        }
        if not allowed:
            return
        if len(allowed) <= _CORNERS:
            sides = list(itertools.product((-1, 1), repeat=len(allowed)))
        else:
            alone = [
                tuple(sign * (at == one) for at in range(len(allowed)))
                for one in range(len(allowed))
                for sign in (-1, 1)
            ]
            sides = [*alone, (-1,) * len(allowed), (1,) * len(allowed)]
        for signs in sides:
            yield {
                name: sign * each[:, int(sign > 0)]
                for (name, each), sign in zip(allowed.items(), signs, strict=True)
            }

    def _compute_corner_intervals(
        self, draws: Floats, lowered: Floats | None, confidence: float, cut: Cut
    ) -> list[Ends]:
        values = self._simulate_expression(draws, lowered, cut)
        lines = [np.outer(_STEPS, _compute_steepest_line(of[1:], draws, confidence)) for of in values]
        beside = self._simulate_expression(np.array(lines), cut=cut)
        near = _mark_near_draws(draws, confidence) if _count_choices(self.expr) > 1 else None
        return [
            None if math.isnan(of[0]) else self._compute_ends(of, along, near, confidence)
            for of, along in zip(values, beside, strict=True)
        ]

    def _compute_ends(
        self, values: Floats, along: Floats, near: NDArray[np.bool_] | None, confidence: float
    ) -> Ends:
        """Return the interval from the simulated values and those along the line, the released one before each.

        If `near` marks the draws in a region that holds the noise, the interval holds all values of these draws.
        """
        outside, drawn = (1 - confidence) / 2, len(values) - 1
        # One standard error further out, because there are only so many draws.
        last = math.floor(outside * drawn - math.sqrt(outside * (1 - outside) * drawn))
        held = along[:1] if near is None else np.concatenate([along[:1], values[1:][near]])
        low, high = (
            min(
                np.partition(np.where(np.isnan(values[1:]), -np.inf, sign * values[1:]), last)[last],
                np.nanmin(sign * held),
                _estimate_minimum(sign * along[1:]),
            )
            for sign in (1.0, -1.0)
        )
        # The exact value lies where the expression does, the released one perhaps not.
        least, greatest = self._bound_expression()
        return float(max(low, min(least, along[0]))), -float(max(high, min(-greatest, -along[0])))

    def _bound_expression(self) -> tuple[float, float]:
        """Return the interval of the expression over all exact values of the aggregates."""
        known: dict[Expr, Interval] = {}
        for item in self.aggregates:
            entry, index = AGGREGATES[item.function], self.plan.analysis.find_measure_index(item)
            if entry.ratio and index is not None:
                known[ReleasedColumn(item.name, item.type)] = self.plan.analysis.measures[index].interval
            elif not entry.moments[0].is_sum_of_values:
                known[ReleasedColumn(item.name, item.type)] = Interval(0, None)
        around = derive_interval(self.expr, known)
        ends = [
            None if end is None or abs(end) > _ENDLESS else float(end) for end in (around.low, around.high)
        ]
        return -math.inf if ends[0] is None else ends[0], math.inf if ends[1] is None else ends[1]

    def _compute_lowering(self, draws: Floats) -> Floats | None:
        """Return `compute_lowering` for all rows; None if no count decided."""
        if self.plan.threshold is None:
            return None
        return np.vstack([compute_lowering(self.plan, self.table, row, draws) for row in self.rows])

    def _simulate_expression(
        self, moved: Floats, lowered: Floats | None = None, cut: Cut = MappingProxyType({})
    ) -> Floats:
        """Return the released values, and then those with the cells lowered by `moved`; shape (rows, 1 + draws).

        Each aggregate is increased by what clamps have `cut` off. A value is NaN if it may be anything.
        """
        moved = np.concatenate([np.zeros_like(moved[..., :1, :]), moved], axis=-2)
        blocks = len(self.plan.vectors)
        centres = np.array([_flatten_cells(self.table.components[row][:blocks]) for row in self.rows])
        count, draws = len(self.rows), moved.shape[-2]
        places = np.arange(count * draws)
        columns = {
            item.name: simulate_values(
                self.plan,
                item,
                centres,
                moved,
                lowered,
                cut=[cut.get((item.name, at)) for at in range(len(AGGREGATES[item.function].moments))],
            ).ravel()
            for item in self.aggregates
        }
        divisors = tuple(dict.fromkeys(_iterate_noisy_divisors(self.expr)))
        released = [ReleasedColumn(item.name, item.type) for item in self.aggregates]
        with ScratchDatabase() as scratch:
            if self.keys:
                self._lend_keys(scratch)
            scratch.register_arrays(DRAWN, {**columns, PLACE: places, ROW: places // draws})
            found = scratch.query_arrays(emit_simulated((self.expr, *divisors), released, self.keys))
        values, *divided = (column.reshape(count, draws) for column in found)
        for signs in map(np.sign, divided):
            values = np.where(signs == signs[:, :1], values, np.nan)
        return values

    def _lend_keys(self, scratch: ScratchDatabase) -> None:
        """Make the table of the rows' keys."""
        places = [list_released_columns(self.plan.analysis.release).index(key) for key in self.keys]
        scratch.create_table(KEYS, [*((key.name, key.type.value) for key in self.keys), (ROW, "BIGINT")])
        series = [[self.table.rows[row][place] for row in self.rows] for place in places]
        scratch.fill_table(KEYS, [*series, list(range(len(self.rows)))])


def compute_lowering(plan: MeasurementPlan, table: ReleasedTable, row: int, draws: Floats) -> Floats:
    """Return how much more than `draws` is taken off the sum of the cells that decided, in a row, shape (1, 1 + draws); first nothing.

    Claim: the sum minus its noise then has the law that `PostSelection` gives to the exact count.
    Why: draws keep their order and get the quantiles of that law.
    """
    found = np.zeros((1, 1 + len(draws)))
    chosen = plan.threshold
    if chosen is None:
        return found
    sums = draws[:, _list_deciding_cells(plan)].sum(axis=1)
    places = (np.argsort(np.argsort(sums)) + 0.5) / len(sums)
    selection = PostSelection.from_cells(plan, chosen, table.components[row][chosen.vector])
    counts = selection.find_quantiles(1 - places, float(np.abs(sums).max()))
    if counts is not None:
        found[0, 1:] = selection.noisy_count - selection.scale * counts - sums
    return found


def _compute_hull(one: Ends, other: Ends) -> Ends:
    """Return the least interval that holds both."""
    return None if one is None or other is None else (min(one[0], other[0]), max(one[1], other[1]))


def _find_columns(
    plan: MeasurementPlan, expr: Expr
) -> tuple[tuple[Aggregation, ...], tuple[ReleasedColumn, ...]] | None:
    """Return the aggregates and keys that an expression reads; None where no interval of it can be simulated."""
    if compute_expression_size(expr) > _MOST_WRITTEN:
        return None
    known = {ReleasedColumn(item.name, item.type): item for item in plan.analysis.release.aggregations}
    keys = set(list_released_columns(plan.analysis.release)) - set(known)
    parts = tuple(dict.fromkeys(walk(expr)))
    if not expr.type.numeric or _count_choices(expr) > _CHOICES:
        return None
    if not all(isinstance(part, (Call, Literal)) or part in known or part in keys for part in parts):
        return None
    aggregates = tuple(item for column, item in known.items() if column in parts)
    if all(part not in known for part in walk(find_only_value(expr))):
        return None
    if not all(can_simulate_aggregate(plan, item) for item in aggregates):
        return None
    return aggregates, tuple(part for part in parts if isinstance(part, ReleasedColumn) and part in keys)


def can_simulate_aggregate(plan: MeasurementPlan, item: Aggregation) -> bool:
    """Return whether an aggregate is computed of noisy cells in a way that is known here."""
    entry, chosen = AGGREGATES[item.function], plan.threshold
    if chosen is not None and not plan.vectors[chosen.vector].mechanism.independent:
        # One radius for all: what lifts the count moves the other cells, too.
        return False
    served = (
        any(block.vector.find_weights(get_statistic(plan.analysis, item, moment)) for block in plan.vectors)
        for moment in entry.moments
    )
    return len(entry.moments) == (2 if entry.ratio else 1) and all(served)


def _build_weights(plan: MeasurementPlan, item: Aggregation, moment: Moment) -> Floats:
    """Return the weights over all cells of a group that estimate an aggregate's moment, in its own units."""
    index, weights = plan.get_estimator(get_statistic(plan.analysis, item, moment))
    measure = plan.analysis.find_measure_index(item)
    lattice = None if measure is None else plan.analysis.measures[measure].lattice
    step = float(lattice.step) if lattice is not None and moment.is_sum_of_values else 1.0
    sizes = [len(measurement.vector.components) for measurement in plan.vectors]
    found = np.zeros(sum(sizes))
    found[sum(sizes[:index]) :][: sizes[index]] = [float(weight) * step for weight in weights]
    return found


def _list_deciding_cells(plan: MeasurementPlan) -> list[int]:
    """Return the places of the cells whose sum decides whether a group is shown; none if every group is shown."""
    if plan.threshold is None:
        return []
    sizes = [len(measurement.vector.components) for measurement in plan.vectors]
    start = sum(sizes[: plan.threshold.vector])
    return [start + at for at in plan.threshold.components]


def _draw_shares(plan: MeasurementPlan, draws: int) -> Floats:
    """Return the share of each deciding cell in what is added to their sum, shape (1 + draws, cells).

    Claim: given a large sum of their noises, the shares of the cells have this law.
    Why: the sum of equal Gaussian variables is independent of their differences, so it is shared evenly. Geometric variables with
    a given sum have a constant density wherever none is below zero, so their shares are uniform there, like exponential variables
    divided by their sum.
    Source: Devroye 1986, "Non-Uniform Random Variate Generation", chapter V, theorem 2.2 (uniform spacings).
    """
    chosen = plan.threshold
    if chosen is None:
        return np.zeros((1 + draws, 0))
    measurement = plan.vectors[chosen.vector]
    shape = (1 + draws, len(chosen.components))
    if measurement.mechanism.is_gaussian:
        return np.full(shape, 1 / shape[1])
    words = _PublicWords().draw_words(math.prod(shape))
    parts = -np.log((words.astype(np.float64) + 0.5) / 2.0**64).reshape(shape)
    shared: Floats = parts / parts.sum(axis=1, keepdims=True)
    return shared


def _count_choices(expr: Expr) -> int:
    """Return the largest number of noisy values among which an expression chooses."""
    most = 0
    for part in walk(expr):
        if isinstance(part, Call):
            values: tuple[Expr, ...] = part.arguments if part.function.name in _CHOOSES else ()
            if part.function.name == "case":
                branches, otherwise = split_case_branches(part.arguments)
                values = (*(value for _, value in branches), otherwise)
            most = max(most, len({value for value in values if _is_noisy(value)}))
    return most


def _is_noisy(expr: Expr) -> bool:
    return any(isinstance(part, ReleasedColumn) for part in walk(expr))


def _iterate_noisy_divisors(expr: Expr) -> Iterator[Expr]:
    """Yield the noisy divisors."""
    for part in walk(expr):
        if isinstance(part, Call) and part.function.name in _DIVIDES:
            yield from part.arguments[1:2] * _is_noisy(part.arguments[1])


def _compute_steepest_line(values: Floats, draws: Floats, confidence: float) -> Floats:
    """Return how far the noise moves the cells in the direction in which the values change most.

    It is the covariance with the ranks of the values, and as long as the noise along it is at `confidence`.
    """
    some = draws[::_SOME]
    values = values[::_SOME]
    known = ~np.isnan(values)
    ranks = np.argsort(np.argsort(np.where(known, values, np.inf))).astype(np.float64)
    covariance = np.where(known, ranks - (known.sum() - 1) / 2, 0.0) @ some
    variance = (draws**2).mean(axis=0)
    slope = np.divide(covariance, variance, out=np.zeros_like(variance), where=variance > 0)
    length = math.sqrt(float(slope @ covariance))
    if not length:
        return np.zeros_like(variance)
    # One standard error further out here too.
    reach = float(
        np.quantile(
            np.abs(draws @ slope), confidence + math.sqrt(confidence * (1 - confidence) * 2 / len(draws))
        )
    )
    along: Floats = covariance * reach / length**2
    return along


def _mark_near_draws(draws: Floats, confidence: float) -> NDArray[np.bool_]:
    """Return which draws lie in an ellipsoid that holds the noise of all cells with this probability."""
    variance = (draws**2).mean(axis=0)
    distance = np.divide(draws**2, variance, out=np.zeros_like(draws), where=variance > 0).sum(axis=1)
    inside: NDArray[np.bool_] = distance <= np.quantile(distance, confidence)
    return inside


def _estimate_minimum(line: Floats) -> float:
    """Return the smallest value of a function that is known at even steps, and may turn between two of them.

    Beyond the smallest known value, the function is assumed to continue with the same slope, until the next one is in reach.
    """
    known = np.where(np.isnan(line), np.inf, line)
    place = int(known.argmin())
    least, around = float(known[place]), known[max(0, place - 1) : place + 2].tolist()
    if len(around) == 3 and all(map(math.isfinite, around)):
        least -= abs(
            around[2] / 2 - around[0] / 2
        )  # halved first: the difference may be beyond the largest number
    return least


def _flatten_cells(cells: Components) -> list[float]:
    return [float(cell) for block in cells for cell in block]


@lru_cache(maxsize=8)
def _draw_cell_noise(blocks: tuple[VectorMeasurement, ...], pairs: int) -> Floats:
    """Return noise of all cells of a group, shape (2 * pairs, cells), both signs of each draw."""
    words = _PublicWords()
    parts = [
        np.array(draw_noise(measurement, pairs, words), dtype=np.float64).reshape(
            pairs, len(measurement.vector.components)
        )
        for measurement in blocks
    ]
    drawn = np.hstack(parts)
    return np.vstack([drawn, -drawn])


def draw_joint_noise(tables: Sequence[ReleasedTable], pairs: int) -> list[Floats]:
    """Return noise of all cells of each table, of the shape (rows, 1 + 2 * pairs, cells): none at first, then both signs of each draw."""
    words, found = _PublicWords(), list[Floats]()
    for table in tables:
        rows = len(table.rows)
        parts = [
            np.array(draw_noise(block, rows * pairs, words), np.float64).reshape(
                rows, pairs, len(block.vector.components)
            )
            for block in table.plan.vectors
        ]
        drawn = np.concatenate(parts, axis=2)
        found.append(np.concatenate([np.zeros_like(drawn[:, :1]), drawn, -drawn], axis=1))
    return found


class _PublicWords:
    """A fixed stream of words that anybody knows: for simulating noise, never for adding it."""

    def __init__(self) -> None:
        self._calls = 0

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        self._calls += 1
        text = shake_128(b"simulated noise %d" % self._calls).digest(8 * count)
        return np.frombuffer(text, dtype=np.uint64)
