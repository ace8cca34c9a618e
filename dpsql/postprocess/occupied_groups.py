"""Empty NULL groups: left out of aggregates over the groups of a release.

For public keys every group is released, also that of NULL if a column is nullable, since its presence is private. SQL has
no empty groups, so an average over groups would have one group too many.

Claim: it costs no privacy loss, and is deterministic given the released table. An empty group is left out with probability
at least 95%; a group of twice the half-width of its count's interval is kept with at least this probability.
Why: a group is left out if the 95% interval of each noisy count of its rows or units reaches zero, which is a function of
noisy components and of the public law of their noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsql.aggregates import AGGREGATES
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.types import Type
from dpsql.planning.choose import statistic_of
from dpsql.planning.measurement import MeasurementPlan
from dpsql.release import ReleasedTable
from dpsql.uncertainty.cells import CONFIDENCE, intervals_of

_COUNTS = ("count_rows", "count_units")
"""The aggregates that are zero for empty groups only."""


def may_be_empty(plans: Mapping[Release, MeasurementPlan]) -> frozenset[Release]:
    """The releases with a group whose key is NULL, and a count of its rows or units."""
    return frozenset(release for release, plan in plans.items() if _may_be_empty(plan))


def _may_be_empty(plan: MeasurementPlan) -> bool:
    domains = plan.analysis.domains
    listed = domains is not None and any(None in domain for domain in domains)
    return listed and plan.selection is None and any(True for _ in _counts(plan))


def occupied(plan: MeasurementPlan, table: ReleasedTable) -> list[bool]:
    """For each row of a released table, whether its group is kept: no key is NULL, or its counts are above zero."""
    keys = len(plan.analysis.release.keys)
    rows = (
        [place for place, row in enumerate(table.rows) if None in row[:keys]] if _may_be_empty(plan) else []
    )
    found = [intervals_of(plan, table, item, rows, CONFIDENCE) for item in _counts(plan)] if rows else []
    empty = {
        row
        for row, *ends in zip(rows, *found, strict=True)
        if all(end is not None and end[0] <= 0 for end in ends)
    }
    return [place not in empty for place in range(len(table.rows))]


def _counts(plan: MeasurementPlan) -> Iterator[Aggregation]:
    """The counts of rows and of units that are measured, whether or not the query shows them."""
    for function in _COUNTS:
        item = Aggregation("", function, None, Type.INTEGER)
        (moment,) = AGGREGATES[function].moments
        statistic = statistic_of(plan.analysis, item, moment)
        if any(part.vector.weights(statistic) for part in plan.vectors):
            yield item
