"""Post-process released groups for free: withheld cells, empty groups, aggregates of nobody."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dpsql.analysis.listed_keys import has_unlisted_keys, measures_presence
from dpsql.analysis.nullability import is_never_null
from dpsql.engine.intervals.cells import CONFIDENCE, compute_intervals
from dpsql.engine.release.released_table import (
    Components,
    ReleasedTable,
    build_released_table,
    estimate_moments,
)
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.aggregates.base import COUNT
from dpsql.plan.expressions import Call, Expr, Literal, is_conditional
from dpsql.plan.nodes import Aggregation, Release
from dpsql.plan.types import Type, Value
from dpsql.planning.choose import get_statistic, get_units_statistic
from dpsql.planning.measurement import MeasurementPlan

# Cells of fewer units than the policy's minimum frequency, which are withheld: NULL, without an interval.


_COUNTS = ("count_rows", "count_units", "count")


def withhold_rare_cells(table: ReleasedTable) -> ReleasedTable:
    """Return a released table without the cells of fewer units than the minimum frequency.

    Claim: it costs no privacy loss. No aggregate is shown of a group, or of all rows, whose noisy count of privacy units is below
    `min_frequency`, and none over the rows of a condition (FILTER, COUNT_IF, PIVOT, CASE without ELSE) whose noisy count of values
    is.
    Why: it is a function of noisy components, which such releases measure within their loss. Where groups pass a partition
    selection, that has compared the exact and the noisy count of units of each group before.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).

    It is a rule on what is shown, as of a statistics office, and no part of the guarantee. Noise may take a count across the limit
    in either direction, and what is withheld can follow from a total and its other parts.
    """
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


# Empty groups: which groups of a release are shown.


_PRESENCE_COUNTS = ("count_rows", "count_units")
"""The aggregates that are zero for empty groups only."""


def list_possibly_empty_releases(plans: Mapping[Release, MeasurementPlan]) -> frozenset[Release]:
    """Return the releases with groups that are shown only where somebody is in them, and a count of their rows or units."""
    return frozenset(release for release, plan in plans.items() if _has_possibly_empty_groups(plan))


def _has_possibly_empty_groups(plan: MeasurementPlan) -> bool:
    domains = plan.analysis.domains
    if domains is None or plan.selection is not None:
        return False
    release = plan.analysis.release
    has_null_group = not release.all_public_rows and any(None in domain for domain in domains)
    doubtful = has_null_group or has_unlisted_keys(release) or measures_presence(release)
    return doubtful and any(True for _ in _iterate_counts(plan))


def mark_occupied_groups(plan: MeasurementPlan, table: ReleasedTable) -> list[bool]:
    """Return, for each row of a released table, whether its group is shown: its keys are listed, or its counts are above 0.

    For public keys every group is released, since its presence is private. SQL has no empty groups, so an average over groups would
    have too many groups. All groups are shown whose keys are listed: by the policy, a condition, the query or a public table.
    So is that of NULL in `public LEFT JOIN private`, which a public row makes. Others are shown if they have rows: the NULL group,
    which a nullable column has, and groups whose keys follow from bounds. So are all groups of a query that asks for keys alone,
    under a condition: of the empty ones about one is shown, or one in twenty.

    Claim: it costs no privacy loss, and is deterministic given the released table. An empty group of NULL is left out with
    probability at least 95%, and of the empty ones from bounds about one is shown, or one in twenty; a group of twice the
    half-width of its count's interval is kept with at least this probability. The groups from bounds that are left out hold
    together less than the noise of their sum: where they seem to hold more, as days with a few rows each do, all are shown. So they
    are where noise alone might have made the greatest count, which in a release over no unit is so in 95% of cases.
    Why: a group is left out if the interval of each noisy count of its rows or units reaches zero, and those from bounds only if
    the sum of their counts is within the interval of a sum of as much noise: functions of noisy components and of the public law of
    their noise.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if not _has_possibly_empty_groups(plan):
        return [True] * len(table.rows)
    keys = len(plan.analysis.release.keys)
    public = plan.analysis.release.all_public_rows
    nulls = [place for place, row in enumerate(table.rows) if None in row[:keys] and not public]
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
    """Return whether all of these groups together may be empty: the sum of their counts is within the noise of that sum."""
    for item in _iterate_counts(plan):
        ends = [end for end in compute_intervals(plan, table, item, rows, CONFIDENCE) if end is not None]
        together = sum(low + high for low, high in ends) / 2
        if together > math.sqrt(sum((high - low) ** 2 for low, high in ends)) / 2:
            return False
    return True


def _iterate_counts(plan: MeasurementPlan) -> Iterator[Aggregation]:
    """Yield the counts of rows and of units that are measured, whether or not the query shows them.

    If there are none, these are the counts of values of all aggregates: a group without values shows only NULL and 0.
    """
    found = [Aggregation("", function, None, Type.INTEGER) for function in _PRESENCE_COUNTS]
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


# Aggregates over no rows, which are NULL as in SQL, and quantiles in the order of their levels.


CASE = 3
"""Arguments of CASE with one WHEN: the condition, its value, and that of ELSE."""
_OF_VALUES = ("count", "count_distinct")


def present_table(table: ReleasedTable) -> ReleasedTable:
    """Return a released table as it is shown.

    Quantiles are in order, a mean or a quantile over no rows is NULL, and so are withheld cells.

    A quantile or a mean over no rows is a random number within the public bounds. It is set to NULL if a noisy count says that
    there are no rows: a count of at least the rows that the aggregate reads, which the query shows in the same release, or else a
    count that is measured anyway.

    Claim: it costs no privacy loss. An aggregate is NULL wherever a shown count of its rows is not above zero. Quantiles of one
    argument do not cross, and are together no farther from the true ones than before.
    Why: it is a function of released values and noisy components. Ordering the released values of different levels, the least to
    the lowest level, lowers the sum of any convex loss of their errors, since the true values are in order.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Chernozhukov, Fernandez-Val, Galichon 2010, "Quantile and
    probability curves without crossing", Proposition 4 (rearrangement).

    A sum over no rows is noise, which is zero on average, so the table keeps it for what only adds it to others; all else reads it
    as NULL (`ReleasedTables.emit_released_table`). Quantiles and means over no rows are not such estimates, and are NULL everywhere.
    """
    release = table.plan.analysis.release
    if table.plan.synthesis is not None or release.top is not None:
        return table
    table = _sort_quantiles(table)
    first = len(release.keys)
    nulls = {
        place: mark_empty_values(table.plan, table, item)
        for place, item in enumerate(release.aggregations, first)
        if item.rank is not None or AGGREGATES[item.function].ratio
    }
    if any(map(any, nulls.values())):
        table = replace(table, rows=tuple(_with_nulls(table.rows, nulls)))
    return withhold_rare_cells(table)


def _with_nulls(
    rows: Sequence[tuple[Value, ...]], nulls: dict[int, list[bool]]
) -> Iterator[tuple[Value, ...]]:
    """Yield the rows with NULL in these places, row by row."""
    for row, values in enumerate(rows):
        yield tuple(
            None if place in nulls and nulls[place][row] else value for place, value in enumerate(values)
        )


def _sort_quantiles(table: ReleasedTable) -> ReleasedTable:
    """Return the table with the quantiles of each argument in the order of their levels, within the ends of their intervals."""
    plan = table.plan
    levels: dict[int, list[tuple[int, int]]] = {}
    for place, part in enumerate(plan.quantiles):
        levels.setdefault(part.measure, []).append((part.interval_end, place))
    if all(len(found) == 1 for found in levels.values()):
        return table
    first = len(plan.vectors)
    components: list[Components] = []
    for group in table.components:
        points = [point for (point,) in group[first:]]
        for found in levels.values():
            middle = sorted(
                (place for end, place in found if not end), key=lambda at: plan.quantiles[at].rank
            )
            for place, point in zip(middle, sorted(points[place] for place in middle), strict=True):
                points[place] = point
            for end, place in found:
                of = [at for at in middle if end and plan.quantiles[at].rank == plan.quantiles[place].rank]
                points[place] = (max if end > 0 else min)([points[place], *(points[at] for at in of)])
        components.append((*group[:first], *((point,) for point in points)))
    release = plan.analysis.release
    keys = [row[: len(release.keys)] for row in table.rows]
    ranked = [item.rank is not None for item in release.aggregations]
    made = build_released_table(plan, keys, components)
    rows = [
        (
            *key,
            *(
                new if of else old
                for old, new, of in zip(before[len(key) :], after[len(key) :], ranked, strict=True)
            ),
        )
        for key, before, after in zip(keys, table.rows, made.rows, strict=True)
    ]
    return replace(table, rows=tuple(rows), components=tuple(components))


def mark_empty_values(plan: MeasurementPlan, table: ReleasedTable, item: Aggregation) -> list[bool]:
    """Return, for each row of a released table, whether an aggregate is over no rows, by the counts of the release.

    A shown count decides by the value that is shown. Another count may be a fraction, and decides if COUNT would round it to 0.
    """
    first, items = len(plan.analysis.release.keys), plan.analysis.release.aggregations
    deciding = [place for place, other in enumerate(items, first) if _is_deciding_count(other, item)]
    if deciding:
        return [any(_is_zero(row[place]) for place in deciding) for row in table.rows]
    found = _find_measured_count(plan, item)
    if found is None:
        return [False] * len(table.rows)
    counts, whole = estimate_moments(plan, *found, table.components)
    return [2 * count < whole for count in counts]


def _is_zero(count: Value) -> bool:
    return isinstance(count, int) and count <= 0


def has_deciding_count(plan: MeasurementPlan, item: Aggregation) -> bool:
    """Return whether some count says that an aggregate is over no rows."""
    is_counted = any(_is_deciding_count(other, item) for other in plan.analysis.release.aggregations)
    return is_counted or _find_measured_count(plan, item) is not None


def has_condition(item: Aggregation) -> bool:
    """Return whether an aggregate has a FILTER."""
    return _match_filter(item.argument) is not None


def has_value_count(plan: MeasurementPlan, item: Aggregation) -> bool:
    """Return whether a count of just the values that an aggregate reads says that it is over no rows: a count of rows, if no value is NULL."""
    items, release = plan.analysis.release.aggregations, plan.analysis.release
    condition = _match_filter(item.argument)
    value = item.argument if condition is None else condition[1]
    if any(_is_value_count(each, item) for each in items):
        return True
    of_values = get_statistic(plan.analysis, replace(item, rank=None, interval_end=0), Moment.COUNT)
    if plan.is_measured(of_values) and not any(_is_deciding_count(each, item) for each in items):
        return True  # what is shown decides before what is measured
    if value is not None and not is_never_null(value, release.input):
        return False
    return (
        any(_is_filtered_count(each, item) for each in items) if condition else has_deciding_count(plan, item)
    )


def list_counted_sums(plan: MeasurementPlan) -> tuple[str, ...]:
    """Return the names of the sums of which a noisy count says whether they are over no rows."""
    return tuple(
        item.name
        for item in plan.analysis.release.aggregations
        if AGGREGATES[item.function].moments == (Moment.TOTAL,) and has_deciding_count(plan, item)
    )


def _is_deciding_count(count: Aggregation, item: Aggregation) -> bool:
    """Return whether an aggregate counts rows, units or values without which another has no values."""
    if count.function in _PRESENCE_COUNTS:
        return True
    return _is_value_count(count, item) or _is_filtered_count(count, item)


def _is_value_count(count: Aggregation, item: Aggregation) -> bool:
    """Return whether an aggregate counts the values of another."""
    return count.function in _OF_VALUES and count.argument == item.argument


def _is_filtered_count(count: Aggregation, item: Aggregation) -> bool:
    """Return whether an aggregate counts the rows for which the condition is true under which another reads values."""
    condition = _match_filter(item.argument)
    counted = _match_filter(count.argument)
    return (
        count.function == COUNT.name
        and condition is not None
        and counted is not None
        and condition[0] == counted[0]
        and isinstance(counted[1], Literal)
        and counted[1].value is not None
    )


def _match_filter(argument: Expr | None) -> tuple[Expr, Expr] | None:
    """Return the condition and the value of CASE WHEN condition THEN value END; None for another expression."""
    if not isinstance(argument, Call) or argument.function.name != "case" or len(argument.arguments) != CASE:
        return None
    condition, value, otherwise = argument.arguments
    return (condition, value) if isinstance(otherwise, Literal) and otherwise.value is None else None


def _find_measured_count(plan: MeasurementPlan, item: Aggregation) -> tuple[Aggregation, Moment] | None:
    """Return the count that is measured, though none is shown: of an aggregate's values, else of rows, else of units."""
    item = replace(item, rank=None, interval_end=0)  # of a quantile no moment but its own would be estimated
    counts = [(item, Moment.COUNT), (item, Moment.ROWS), (item, Moment.UNITS)]
    return next((each for each in counts if plan.is_measured(get_statistic(plan.analysis, *each))), None)


def mark_null_sums(plan: MeasurementPlan, table: ReleasedTable, name: str) -> list[bool]:
    """Return for each row of a released table whether a sum is NULL."""
    item = next(item for item in plan.analysis.release.aggregations if item.name == name)
    return mark_empty_values(plan, table, item)


def with_null_sums(plan: MeasurementPlan, table: ReleasedTable) -> list[tuple[Value, ...]]:
    """Return the rows of a released table as they are shown: sums over no rows are NULL."""
    names = [name for name, _ in table.columns]
    nulls = {names.index(name): mark_null_sums(plan, table, name) for name in list_counted_sums(plan)}
    return list(_with_nulls(table.rows, nulls))
