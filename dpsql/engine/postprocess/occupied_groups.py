"""Empty groups: which groups of a release are shown.

For public keys every group is released, since its presence is private. SQL has no empty groups, so an average over groups
would have too many groups. All groups are shown whose keys are listed: by the policy, a condition, the query or a public
table. Others are shown if they have rows: the NULL group, which a nullable column has, and groups whose keys
follow from bounds. So are all groups of a query that asks for keys alone, under a condition: of the empty ones about one
is shown, or one in twenty.

Claim: it costs no privacy loss, and is deterministic given the released table. An empty group of NULL is left out with
probability at least 95%, and of the empty ones from bounds about one is shown, or one in twenty; a group of twice the
half-width of its count's interval is kept with at least this probability. The groups from bounds that are left out hold
together less than the noise of their sum: where they seem to hold more, as days with a few rows each do, all are shown.
So they are where noise alone might have made the greatest count, which in a release over no unit is so in 95% of cases.
Why: a group is left out if the interval of each noisy count of its rows or units reaches zero, and those from bounds only
if the sum of their counts is within the interval of a sum of as much noise: functions of noisy components and of the
public law of their noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dpsql.analysis.listed_keys import has_unlisted_keys, measures_presence
from dpsql.engine.intervals.cells import CONFIDENCE, compute_intervals
from dpsql.engine.released_table import ReleasedTable
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.count import COUNT
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.types import Type
from dpsql.planning.choose import get_statistic
from dpsql.planning.measurement import MeasurementPlan

_COUNTS = ("count_rows", "count_units")
"""The aggregates that are zero for empty groups only."""


def list_possibly_empty_releases(plans: Mapping[Release, MeasurementPlan]) -> frozenset[Release]:
    """Return the releases with groups that are shown only where somebody is in them, and a count of their rows or units."""
    return frozenset(release for release, plan in plans.items() if _has_possibly_empty_groups(plan))


def _has_possibly_empty_groups(plan: MeasurementPlan) -> bool:
    domains = plan.analysis.domains
    if domains is None or plan.selection is not None:
        return False
    release = plan.analysis.release
    doubtful = (
        any(None in domain for domain in domains) or has_unlisted_keys(release) or measures_presence(release)
    )
    return doubtful and any(True for _ in _iterate_counts(plan))


def mark_occupied_groups(plan: MeasurementPlan, table: ReleasedTable) -> list[bool]:
    """Return, for each row of a released table, whether its group is shown: its keys are listed, or its counts are above 0."""
    if not _has_possibly_empty_groups(plan):
        return [True] * len(table.rows)
    keys = len(plan.analysis.release.keys)
    nulls = [place for place, row in enumerate(table.rows) if None in row[:keys]]
    empty = _list_empty_rows(plan, table, nulls, CONFIDENCE)
    if measures_presence(plan.analysis.release):
        empty |= _list_empty_rows(
            plan, table, range(len(table.rows)), max(CONFIDENCE, 1 - 2 / max(1, len(table.rows)))
        )
    elif has_unlisted_keys(plan.analysis.release):
        others = [place for place, row in enumerate(table.rows) if None not in row[:keys]]
        number = max(1, len(others))
        found = _list_empty_rows(plan, table, others, max(CONFIDENCE, 1 - 2 / number))
        some = len(_list_empty_rows(plan, table, others, 1 - 2 * (1 - CONFIDENCE) / number)) < len(others)
        if some and _is_sum_within_noise(plan, table, sorted(found)):
            empty |= found
    return [place not in empty for place in range(len(table.rows))]


def list_possibly_empty_rows(plan: MeasurementPlan, table: ReleasedTable) -> set[int]:
    """Return the rows of a released table whose keys are public and whose noisy counts, or else sums, do not exclude zero."""
    known = plan.analysis.domains is not None and plan.selection is None and bool(plan.analysis.release.keys)
    if not known or not any(_iterate_counts(plan)):
        return _list_rows_without_sums(plan, table) if known else set()
    return _list_empty_rows(plan, table, range(len(table.rows)), CONFIDENCE)


def _list_rows_without_sums(plan: MeasurementPlan, table: ReleasedTable) -> set[int]:
    """Return the rows of a released table of which the intervals of all sums and counts of values hold zero; none without these."""
    added = [
        item
        for item in plan.analysis.release.aggregations
        if item.rank is None and not AGGREGATES[item.function].ratio
    ]
    found = [compute_intervals(plan, table, item, range(len(table.rows)), CONFIDENCE) for item in added]
    return {
        row
        for row, ends in enumerate(zip(*found, strict=True))
        if all(end is not None and end[0] <= 0 <= end[1] for end in ends)
    }


def _list_empty_rows(
    plan: MeasurementPlan, table: ReleasedTable, rows: Sequence[int], confidence: float
) -> set[int]:
    """Return those of some rows of which the intervals of all counts reach zero."""
    found = (
        [compute_intervals(plan, table, item, rows, confidence) for item in _iterate_counts(plan)]
        if rows
        else []
    )
    return {
        row
        for row, *ends in zip(rows, *found, strict=True)
        if all(end is not None and end[0] <= 0 for end in ends)
    }


def _is_sum_within_noise(plan: MeasurementPlan, table: ReleasedTable, rows: Sequence[int]) -> bool:
    """Return whether all of these rows together may be of empty groups: the sum of their counts is no more than that of so much noise."""
    for item in _iterate_counts(plan):
        ends = [end for end in compute_intervals(plan, table, item, rows, CONFIDENCE) if end is not None]
        together = sum(low + high for low, high in ends) / 2
        if together > math.sqrt(sum((high - low) ** 2 for low, high in ends)) / 2:
            return False
    return True


def _iterate_counts(plan: MeasurementPlan) -> Iterator[Aggregation]:
    """Yield the counts of rows and of units that are measured, whether or not the query shows them.

    Where there are none, the counts of values of all aggregates: a group that has none shows nothing but NULL and 0.
    """
    found = [Aggregation("", function, None, Type.INTEGER) for function in _COUNTS]
    found = [item for item in found if _is_measured(plan, item)]
    if not found and all(
        _is_measured(plan, _build_value_count(item)) for item in plan.analysis.release.aggregations
    ):
        found = [*dict.fromkeys(map(_build_value_count, plan.analysis.release.aggregations))]
    yield from found


def _build_value_count(item: Aggregation) -> Aggregation:
    """Return the count of the values of an aggregate."""
    return Aggregation("", COUNT.name, item.argument, Type.INTEGER)


def _is_measured(plan: MeasurementPlan, item: Aggregation) -> bool:
    (moment,) = AGGREGATES[item.function].moments
    return plan.is_measured(get_statistic(plan.analysis, item, moment))
