"""Which groups with a key that is NULL are left out where an aggregate is taken over the groups of a release.

Of public keys each group is released, that of NULL too where a column may be NULL, as its presence would tell of
people. In SQL there is no group that nobody is in, and an average over groups would have one member too many.

Claim: it costs nothing, and the same released table gives the same answer. A group that nobody is in is left out with
a probability of 95% or more, and one of twice as many people as its count may be off by is kept with as much.
Why: a group is left out where the 95% interval of each noisy count of its rows or units reaches zero, which is a
function of noisy cells and of the public law of their noise.
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
"""Those that are zero of nobody, and of nobody else."""


def may_be_empty(plans: Mapping[Release, MeasurementPlan]) -> frozenset[Release]:
    """The releases that have a group whose key is NULL, whoever is in it, beside a count that says so."""
    return frozenset(release for release, plan in plans.items() if _may_be_empty(plan))


def _may_be_empty(plan: MeasurementPlan) -> bool:
    domains = plan.analysis.domains
    listed = domains is not None and any(None in domain for domain in domains)
    return listed and plan.selection is None and any(True for _ in _counts(plan))


def occupied(plan: MeasurementPlan, table: ReleasedTable) -> list[bool]:
    """For each row of a released table, whether it is kept: by its count, or since no key is NULL."""
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
