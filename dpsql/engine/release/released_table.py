"""Released tables: group keys, noisy components, and the aggregates that are computed from them.

Nothing here is exact: `release` adds the noise, and everything in this module is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.aggregates.base import EstimateSeries
from dpsql.plan.nodes import Aggregation, list_released_columns
from dpsql.plan.types import Value
from dpsql.planning.choose import get_statistic
from dpsql.planning.measurement import MeasurementPlan

Keys = tuple[Value, ...]
Components = tuple[tuple[int, ...], ...]
"""The noisy components of one group, vector by vector; then each chosen quantile, as a lattice point."""


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """The released table: one row per group with keys and aggregates, and the noisy components they are computed from.

    `plan` is the measurement plan with the chosen clamps and the noise that follows from them.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value, ...], ...]
    components: tuple[Components, ...]
    plan: MeasurementPlan = field(compare=False)
    withheld_cells: frozenset[tuple[int, str]] = frozenset()
    """The cells, by row and aggregate, that are NULL since fewer units than the minimum frequency may be behind them."""


def build_released_table(
    plan: MeasurementPlan, keys: Sequence[Keys], components: Sequence[Components]
) -> ReleasedTable:
    """Return the released table with these keys and noisy components, row by row."""
    columns = tuple(
        (column.name, column.type.value) for column in list_released_columns(plan.analysis.release)
    )
    values: list[list[Value]] = []
    if plan.synthesis is not None:
        values = [[rows for ((rows, _),) in components]]
    elif plan.top_k is None:
        values = [_compute_column(plan, item, components) for item in plan.analysis.release.aggregations]
    width = len(columns) - len(values)
    series = [*zip(*keys, strict=True)] if keys else [()] * width
    rows = tuple(zip(*series, *values, strict=True)) if columns else ((),) * len(keys)
    return ReleasedTable(columns, rows, tuple(components), plan)


def _compute_column(
    plan: MeasurementPlan, item: Aggregation, components: Sequence[Components]
) -> list[Value]:
    """Return the values of an aggregate in all groups."""
    entry = AGGREGATES[item.function]
    index = plan.analysis.find_measure_index(item)
    interval = None if index is None else plan.analysis.measures[index].interval
    series = [estimate_moments(plan, item, moment, components) for moment in entry.moments]
    if entry.compute_column is not None:
        return entry.compute_column(series, interval, item.type)
    found = zip(*([Fraction(each, of) for each in numerators] for numerators, of in series), strict=True)
    return [
        entry.compute_value(dict(zip(entry.moments, each, strict=True)), interval, item.type)
        for each in found
    ]


def estimate_moment(
    plan: MeasurementPlan, item: Aggregation, moment: Moment, components: Components
) -> Fraction:
    """Return the estimate of a moment of an aggregate from a group's noisy components; TOTAL and RANKED in the value's units."""
    ((numerator,), denominator) = estimate_moments(plan, item, moment, [components])
    return Fraction(numerator, denominator)


def estimate_moments(
    plan: MeasurementPlan, item: Aggregation, moment: Moment, components: Sequence[Components]
) -> EstimateSeries:
    """Return the estimates of a moment of an aggregate in all groups, as `estimate_moment` has them."""
    place = plan.find_quantile_index(item)
    if place is not None:
        chosen = plan.quantiles[place]
        step = chosen.lattice.step
        points = [chosen.round_outward(group[len(plan.vectors) + place][0]) for group in components]
        return EstimateSeries([point * step.numerator for point in points], step.denominator)
    vector, weights = plan.get_estimator(get_statistic(plan.analysis, item, moment))
    index = plan.analysis.find_measure_index(item)
    lattice = None if index is None else plan.analysis.measures[index].lattice
    if lattice is not None and moment.is_sum_of_values:
        weights = tuple(weight * lattice.step for weight in weights)
    common = math.lcm(*(weight.denominator for weight in weights))
    whole = [(at, int(weight * common)) for at, weight in enumerate(weights) if weight] or [(0, 0)]
    parts = [[times * group[vector][at] for group in components] for at, times in whole]
    return EstimateSeries(parts[0] if len(parts) == 1 else list(map(sum, zip(*parts, strict=True))), common)
