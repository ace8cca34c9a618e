"""Empty groups: which groups of a release are shown, and which sums are NULL.

For public keys every group is released, since its presence is private. SQL has no empty groups, so an average over groups
would have groups too many. Shown are all groups whose keys are listed: by the policy, a condition, the query or a public
table. Others are shown where somebody is in them: the group of NULL, which a nullable column has, and groups whose keys
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

from dpsql.aggregates import AGGREGATES, Moment
from dpsql.aggregates.count import COUNT
from dpsql.analysis.listed_keys import from_bounds, measures_presence
from dpsql.plan.expr import Call, Expr, Literal
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.types import Type, Value
from dpsql.planning.choose import statistic_of
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import Statistic
from dpsql.release import ReleasedTable, estimates
from dpsql.uncertainty.cells import CONFIDENCE, intervals_of

_COUNTS = ("count_rows", "count_units")
"""The aggregates that are zero for empty groups only."""
CASE = 3
"""Arguments of CASE with one WHEN: the condition, its value, and that of ELSE."""


def may_be_empty(plans: Mapping[Release, MeasurementPlan]) -> frozenset[Release]:
    """The releases with groups that are shown only where somebody is in them, and a count of their rows or units."""
    return frozenset(release for release, plan in plans.items() if _may_be_empty(plan))


def _may_be_empty(plan: MeasurementPlan) -> bool:
    domains = plan.analysis.domains
    if domains is None or plan.selection is not None:
        return False
    release = plan.analysis.release
    doubtful = any(None in domain for domain in domains) or from_bounds(release) or measures_presence(release)
    return doubtful and any(True for _ in _counts(plan))


def occupied(plan: MeasurementPlan, table: ReleasedTable) -> list[bool]:
    """For each row of a released table, whether its group is shown: its keys are listed, or its counts are above zero."""
    if not _may_be_empty(plan):
        return [True] * len(table.rows)
    keys = len(plan.analysis.release.keys)
    nulls = [place for place, row in enumerate(table.rows) if None in row[:keys]]
    empty = _empty(plan, table, nulls, CONFIDENCE)
    if measures_presence(plan.analysis.release):
        empty |= _empty(plan, table, range(len(table.rows)), max(CONFIDENCE, 1 - 2 / max(1, len(table.rows))))
    elif from_bounds(plan.analysis.release):
        others = [place for place, row in enumerate(table.rows) if None not in row[:keys]]
        number = max(1, len(others))
        found = _empty(plan, table, others, max(CONFIDENCE, 1 - 2 / number))
        some = len(_empty(plan, table, others, 1 - 2 * (1 - CONFIDENCE) / number)) < len(others)
        if some and _are_of_nobody(plan, table, sorted(found)):
            empty |= found
    return [place not in empty for place in range(len(table.rows))]


def may_have_no_rows(plan: MeasurementPlan, table: ReleasedTable) -> set[int]:
    """The rows of a released table whose keys are public and whose noisy counts, if there are any, do not exclude zero."""
    known = plan.analysis.domains is not None and plan.selection is None and bool(plan.analysis.release.keys)
    return _empty(plan, table, range(len(table.rows)), CONFIDENCE) if known and any(_counts(plan)) else set()


def _empty(plan: MeasurementPlan, table: ReleasedTable, rows: Sequence[int], confidence: float) -> set[int]:
    """Those of some rows of which the intervals of all counts reach zero."""
    found = [intervals_of(plan, table, item, rows, confidence) for item in _counts(plan)] if rows else []
    return {
        row
        for row, *ends in zip(rows, *found, strict=True)
        if all(end is not None and end[0] <= 0 for end in ends)
    }


def _are_of_nobody(plan: MeasurementPlan, table: ReleasedTable, rows: Sequence[int]) -> bool:
    """Whether all of these rows together may be of empty groups: the sum of their counts is no more than that of so much noise."""
    for item in _counts(plan):
        ends = [end for end in intervals_of(plan, table, item, rows, CONFIDENCE) if end is not None]
        together = sum(low + high for low, high in ends) / 2
        if together > math.sqrt(sum((high - low) ** 2 for low, high in ends)) / 2:
            return False
    return True


def _counts(plan: MeasurementPlan) -> Iterator[Aggregation]:
    """The counts of rows and of units that are measured, whether or not the query shows them.

    Where there are none, the counts of values of all aggregates: a group that has none shows nothing but NULL and 0.
    """
    found = [Aggregation("", function, None, Type.INTEGER) for function in _COUNTS]
    found = [item for item in found if _has(plan, item)]
    if not found and all(_has(plan, _values_of(item)) for item in plan.analysis.release.aggregations):
        found = [*dict.fromkeys(map(_values_of, plan.analysis.release.aggregations))]
    yield from found


def _values_of(item: Aggregation) -> Aggregation:
    """The count of the values of an aggregate."""
    return Aggregation("", COUNT.name, item.argument, Type.INTEGER)


def _has(plan: MeasurementPlan, item: Aggregation) -> bool:
    (moment,) = AGGREGATES[item.function].moments
    return _is_measured(plan, statistic_of(plan.analysis, item, moment))


def _is_measured(plan: MeasurementPlan, statistic: Statistic) -> bool:
    return any(part.vector.weights(statistic) for part in plan.vectors)


def counted_sums(plan: MeasurementPlan) -> tuple[str, ...]:
    """The names of the sums of which a noisy count says whether they are over no unit."""
    items = plan.analysis.release.aggregations
    return tuple(
        item.name
        for item in items
        if AGGREGATES[item.function].moments == (Moment.TOTAL,) and _count_of(plan, item) is not None
    )


def _count_of(plan: MeasurementPlan, item: Aggregation) -> tuple[Aggregation, Moment] | None:
    """The count that says whether a sum is over no unit: of its values, of rows that its FILTER keeps, of all rows, or of units."""
    filters = [
        (other, Moment.COUNT) for other in plan.analysis.release.aggregations if _is_filter(other, item)
    ]
    counts = [(item, Moment.COUNT), *filters, (item, Moment.ROWS), (item, Moment.UNITS)]
    return next((each for each in counts if _is_measured(plan, statistic_of(plan.analysis, *each))), None)


def _is_filter(count: Aggregation, item: Aggregation) -> bool:
    """Whether an aggregate counts the rows for which the condition is true under which another adds values up."""
    condition = _filter(item.argument)
    counted = _filter(count.argument)
    return (
        count.function == COUNT.name
        and condition is not None
        and counted is not None
        and condition[0] == counted[0]
        and isinstance(counted[1], Literal)
        and counted[1].value is not None
    )


def _filter(argument: Expr | None) -> tuple[Expr, Expr] | None:
    """The condition and the value of CASE WHEN condition THEN value END; None for another expression."""
    if not isinstance(argument, Call) or argument.function.name != "case" or len(argument.arguments) != CASE:
        return None
    condition, value, otherwise = argument.arguments
    return (condition, value) if isinstance(otherwise, Literal) and otherwise.value is None else None


def null_sums(plan: MeasurementPlan, table: ReleasedTable, name: str) -> list[bool]:
    """For each row of a released table, whether a sum is NULL: its noisy count, rounded as COUNT is, is not above zero.

    Claim: it costs no privacy loss, is NULL where an AVG of the same values is, and where COUNT says that nobody is there.
    Why: it is a function of noisy components. A noisy count may be a fraction: of 1/3, COUNT is 0.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    item = next(item for item in plan.analysis.release.aggregations if item.name == name)
    found = _count_of(plan, item)
    if found is None:
        return [False] * len(table.rows)
    counts, whole = estimates(plan, *found, table.components)
    return [2 * count < whole for count in counts]


def with_null_sums(plan: MeasurementPlan, table: ReleasedTable) -> list[tuple[Value, ...]]:
    """The rows of a released table as they are shown: sums over no unit are NULL."""
    names = [name for name, _ in table.columns]
    nulls = {names.index(name): null_sums(plan, table, name) for name in counted_sums(plan)}
    if not nulls:
        return list(table.rows)
    return [
        tuple(None if place in nulls and nulls[place][row] else value for place, value in enumerate(values))
        for row, values in enumerate(table.rows)
    ]
