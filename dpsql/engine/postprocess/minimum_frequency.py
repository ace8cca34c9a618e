"""Cells of fewer units than the policy's minimum frequency, which are withheld: NULL, without an interval.

Claim: it costs no privacy loss. No aggregate is shown of a group, or of all rows, whose noisy count of privacy units is below
`min_frequency`, and none over the rows of a condition (FILTER, COUNT_IF, PIVOT, CASE without ELSE) whose noisy count of values is.
Why: it is a function of noisy components, which such releases measure within their loss. Where groups pass a partition selection,
that has compared the exact and the noisy count of units of each group before.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).

It is a rule on what is shown, as of a statistics office, and no part of the guarantee. Noise may take a count across the limit in
either direction, and what is withheld can follow from a total and its other parts.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.engine.released_table import ReleasedTable, estimate_moments
from dpsql.plan.aggregates import Moment
from dpsql.plan.expressions import is_conditional
from dpsql.plan.nodes import Aggregation
from dpsql.plan.types import Type
from dpsql.planning.choose import get_statistic, get_units_statistic
from dpsql.planning.measurement import MeasurementPlan

_COUNTS = ("count_rows", "count_units", "count")


def withhold_rare_cells(table: ReleasedTable) -> ReleasedTable:
    """Return a released table without the cells of fewer units than the minimum frequency."""
    plan = table.plan
    release, least = plan.analysis.release, plan.analysis.bound.min_frequency
    if least <= 1 or release.top is not None or plan.synthesis is not None or not release.aggregations:
        return table
    groups = [False] * len(table.rows) if plan.selection is not None else _mark_few_units(table, least)
    first = len(release.keys)
    cells = frozenset(
        (row, item.name)
        for place, item in enumerate(release.aggregations, first)
        for row, few in enumerate(_mark_few_values(table, item, least))
        if groups[row] or few or _is_below(item, table.rows[row][place], least)
    )
    if not cells:
        return table
    names = [name for name, _ in table.columns]
    rows = tuple(
        tuple(None if (row, name) in cells else value for name, value in zip(names, values, strict=True))
        for row, values in enumerate(table.rows)
    )
    return replace(table, rows=rows, withheld_cells=cells)


def _mark_few_units(table: ReleasedTable, least: int) -> list[bool]:
    """Return for each row whether its noisy count of units is below the least."""
    moment, _ = get_units_statistic(table.plan.analysis)
    return _mark_rare_counts(table, Aggregation("", "", None, Type.INTEGER), moment, least)


def _mark_few_values(table: ReleasedTable, item: Aggregation, least: int) -> list[bool]:
    """Return for each row whether the noisy count of the values that a condition leaves an aggregate is below the least."""
    if not is_conditional(item.argument):
        return [False] * len(table.rows)
    return _mark_rare_counts(table, replace(item, rank=None, interval_end=0), Moment.COUNT, least)


def _mark_rare_counts(table: ReleasedTable, item: Aggregation, moment: Moment, least: int) -> list[bool]:
    """Return for each row whether a moment, as COUNT would round it, is below the least; so is what is not measured."""
    plan: MeasurementPlan = table.plan
    if not plan.is_measured(get_statistic(plan.analysis, item, moment)):
        return [True] * len(table.rows)
    counts, whole = estimate_moments(plan, item, moment, table.components)
    return [2 * count < (2 * least - 1) * whole for count in counts]


def _is_below(item: Aggregation, value: object, least: int) -> bool:
    """Return whether a shown count of rows, units or values is below the least."""
    return item.function in _COUNTS and isinstance(value, int) and value < least
