"""Aggregates over no rows, which are NULL as in SQL, and quantiles in the order of their levels.

A quantile or a mean over no rows is a random number within the public bounds. It is set to NULL if a noisy count says that there
are no rows: a count of at least the rows that the aggregate reads, which the query shows in the same release, or else a count
that is measured anyway.

Claim: it costs no privacy loss. An aggregate is NULL wherever a shown count of its rows is not above zero. Quantiles of one
argument do not cross, and are together no farther from the true ones than before.
Why: it is a function of released values and noisy components. Ordering the released values of different levels, the least to the
lowest level, lowers the sum of any convex loss of their errors, since the true values are in order.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Chernozhukov, Fernandez-Val, Galichon 2010, "Quantile and
probability curves without crossing", Proposition 4 (rearrangement).

A sum over no rows is noise, which is zero on average, so sums that are added to others keep it: they are only NULL in rows that
are shown as they are. Quantiles and means over no rows are not such estimates, and are NULL everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsql.analysis.nullability import is_never_null
from dpsql.engine.postprocess.minimum_frequency import withhold_rare_cells
from dpsql.engine.released_table import Components, ReleasedTable, build_released_table, estimate_moments
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.aggregates.count import COUNT
from dpsql.plan.expressions import Call, Expr, Literal
from dpsql.plan.nodes import Aggregation
from dpsql.plan.types import Value
from dpsql.planning.choose import get_statistic
from dpsql.planning.measurement import MeasurementPlan

CASE = 3
"""Arguments of CASE with one WHEN: the condition, its value, and that of ELSE."""
_OF_ROWS = ("count_rows", "count_units")
_OF_VALUES = ("count", "count_distinct")


def present_table(table: ReleasedTable) -> ReleasedTable:
    """Return a released table as it is shown.

    Quantiles are in order, a mean or a quantile over no rows is NULL, and so are withheld cells.
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
    if count.function in _OF_ROWS:
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
