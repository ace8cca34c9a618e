"""Notices about groups: those that are withheld or may be empty, and what is computed from those that are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dpsql.analysis.listed_keys import measures_presence
from dpsql.engine.intervals.cells import compute_intervals
from dpsql.engine.postprocess.occupied_groups import list_possibly_empty_rows, mark_occupied_groups
from dpsql.engine.released_table import ReleasedTable
from dpsql.engine.statement_notices import iterate_plan_parts
from dpsql.plan.dependencies import list_children
from dpsql.plan.expressions import has_window
from dpsql.plan.nodes import (
    OuterQuery,
    PerUnitGroupBy,
    PublicSubquery,
    Release,
    list_inputs,
)
from dpsql.plan.render import format_expression
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.partition_selection import OptimalPartitionSelection
from dpsql.planning.top_k import TopKSelection

CONFIDENCE = 0.95


def describe_selection_threshold(plan: MeasurementPlan) -> str:
    """Return the size from which a group is released by partition selection."""
    chosen = plan.selection
    if isinstance(chosen, OptimalPartitionSelection):
        many = f"{chosen.median_units:,} unit{'s' * (chosen.median_units != 1)}"
        return f"a group of {many} is released with probability 1/2, a smaller one with a lower probability"
    if chosen is None:
        return "all groups are released"
    learnt = plan.vectors[chosen.vector].clamp is not None and not any(each.chosen for each in plan.clamps)
    least = f"a group is released if its noisy count is at least {math.ceil(chosen.count)}"
    return f"{least}{' if the clamp is as expected' * learnt}"


def describe_shortfall(plan: MeasurementPlan, chosen: TopKSelection, confidence: float) -> str:
    """Return how far below the best the scores of the selected groups may be."""
    groups = math.prod(map(len, plan.analysis.domains or ()))
    steps = chosen.bound_shortfall(groups, confidence)
    lattice = plan.analysis.measures[0].lattice if plan.analysis.measures else None
    off = steps * float(lattice.step) if lattice is not None else steps
    return f"with {confidence:.0%} probability, no selected score is more than {off:,.4g} from the best remaining score of the {groups:,} groups"


def describe_withheld_groups(tables: Sequence[ReleasedTable], table: ReleasedTable) -> Iterator[str]:
    """Yield a notice if partition selection may have left groups out, and how many as far as that is known.

    The number of missing groups is known if the keys are listed. The missing part of the rows follows, up to noise, if the
    statement also releases the count of all rows.
    """
    plan = table.plan
    if plan.selection is None or not table.rows:
        return
    visible = len(table.rows)
    if plan.analysis.domains is not None:
        listed = math.prod(map(len, plan.analysis.domains))
        if visible < listed:
            yield (
                f"{listed - visible:,} of {listed:,} listed groups ({(listed - visible) / listed:.0%}) are not shown: "
                f"{describe_selection_threshold(plan)}."
            )
        return
    near, missing = _count_near_threshold(table), _estimate_missing_share(tables, table)
    yield (
        f"Groups may be missing: the policy does not list the keys, so {describe_selection_threshold(plan)}."
        + f" {near:,} of the {visible:,} shown have a count below twice that, so smaller ones are likely."
        * (near > 0)
        + (f" About {missing:.0%} of the rows are in groups that are not shown." if missing else "")
    )


def _count_near_threshold(table: ReleasedTable) -> int:
    """Return how many shown groups have a noisy count below twice the threshold; 0 if no count is released."""
    chosen = table.plan.threshold
    if chosen is None:
        return 0
    counts = (sum(cells[chosen.vector][at] for at in chosen.components) for cells in table.components)
    return sum(count < 2 * chosen.threshold for count in counts)


def _estimate_missing_share(tables: Sequence[ReleasedTable], table: ReleasedTable) -> float:
    """Return the part of all rows in no shown group, if the same rows were counted without keys; 0 if it may be noise."""
    release = table.plan.analysis.release
    for item in release.aggregations:
        if item.function != "count_rows":
            continue
        for other in tables:
            whole = other.plan.analysis.release
            of_all = next((one for one in whole.aggregations if one.function == item.function), None)
            if whole.keys or of_all is None or whole.input != release.input:
                continue
            every = compute_intervals(other.plan, other, of_all, [0], CONFIDENCE)
            found = [*every, *compute_intervals(table.plan, table, item, range(len(table.rows)), CONFIDENCE)]
            middles = [(ends[0] + ends[1]) / 2 for ends in found if ends is not None]
            noise = math.hypot(*((ends[1] - ends[0]) / 2 for ends in found if ends is not None))
            missing = middles[0] - sum(middles[1:])
            return min(1.0, missing / middles[0]) if missing > noise and middles[0] > 0 else 0.0
    return 0.0


def describe_empty_selection(plan: MeasurementPlan, which: str) -> str:
    """Return the notice of a release of which no group passed the threshold."""
    return (
        f"No group{which} is shown: the policy does not list the keys, so {describe_selection_threshold(plan)}. A larger epsilon or "
        "delta, fewer groups per unit (max_groups) or larger groups help; keys whose values the policy lists are all shown. "
        "If each key belongs to one unit, none of this helps: group by the key and the unit in a subquery, and aggregate its rows."
    )


def describe_missing_groups(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice if groups whose keys follow from bounds are left out, because they may be empty."""
    keys = len(table.plan.analysis.release.keys)
    holds = mark_occupied_groups(table.plan, table)
    if measures_presence(table.plan.analysis.release):
        missing = len(holds) - sum(holds)
        if missing:
            yield (
                f"{_format_group_subject(missing, len(holds))} not shown: by the noisy counts of units, they may have no rows. A query "
                "with COUNT(*) shows all groups that the policy lists."
            )
        return
    missing = sum(not holds[place] for place, row in enumerate(table.rows) if None not in row[:keys])
    if missing:
        yield (
            f"{_format_group_subject(missing, len(holds))} left out: keys follow from bounds, and by the noisy counts there may be no rows. "
            "Groups whose keys are listed, in the policy or in a condition with IN, are all shown."
        )


def _format_group_subject(few: int, many: int) -> str:
    """Format a number of groups, out of all of them, as a subject with its verb."""
    return f"{few:,} of {many:,} groups {'is' if few == 1 else 'are'}"


def describe_empty_groups(table: ReleasedTable, *, chosen: bool, unconditional: bool) -> Iterator[str]:
    """Yield notices about groups without rows that are shown, or take part in an order, because their keys are public."""
    analysis = table.plan.analysis
    if analysis.undecided_conditions and table.rows and analysis.release.top is None:
        names = " and ".join(dict.fromkeys(map(format_expression, analysis.undecided_conditions)))
        yield (
            f"Groups are shown whether or not {names} holds for their keys: it was not computed for all values in advance. Groups "
            "without rows may be groups that this condition excludes."
        )
    if analysis.is_free and not analysis.release.all_public_rows and table.rows:
        yield (
            f"Groups ({len(table.rows):,}) follow from values that the policy lists, or from bounds: nothing was measured, and some may "
            "have no rows. Add a condition, or COUNT(*), to see which."
        )
    elif analysis.release.top is not None:
        yield (
            "The best groups are selected from all groups that the policy lists, or that lie within bounds, so groups without rows may be "
            "among them: add COUNT(*) to see how many rows each has."
        )
    elif (chosen or unconditional) and not measures_presence(analysis.release):
        holds = mark_occupied_groups(table.plan, table)
        empty = sum(holds[place] for place in list_possibly_empty_rows(table.plan, table))
        if empty:
            yield (
                f"{empty:,} of the {sum(holds):,} groups{' that are ordered' * chosen} may have no rows, by their noisy values: "
                "HAVING COUNT(*) > 0 leaves out those whose count is not above 0."
            )


def has_unfiltered_groups(outer: OuterQuery) -> bool:
    """Return whether the groups of a release are shown, or read further, without a condition on them."""
    return any(
        isinstance(part, OuterQuery) and isinstance(part.source, Release) and part.having is None
        for part in iterate_plan_parts(outer)
    )


def is_ordered_selection(outer: OuterQuery) -> bool:
    """Return whether rows are dropped for their places in an order, by LIMIT or by windows, and not for their counts."""
    waiting: list[object] = [outer]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, Release):
            continue
        seen.add(id(part))
        if isinstance(part, OuterQuery) and part.having is None:
            items = [output.expr for output in part.outputs] + (
                [] if part.qualify is None else [part.qualify]
            )
            if (part.order and part.limit is not None) or any(map(has_window, items)):
                return True
        waiting += list_children(part)
    return False


def describe_partial_totals(outer: OuterQuery, tables: Sequence[ReleasedTable]) -> Iterator[str]:
    """Yield a notice where a window or an aggregate reads released groups of which some may not be shown.

    It follows from the plans alone.
    """
    plans = {table.plan.analysis.release: table.plan for table in tables if table.plan.selection is not None}
    found: dict[Release, None] = {}
    for part in iterate_plan_parts(outer) if plans else ():
        if isinstance(part, OuterQuery):
            exprs = [*(each.expr for each in part.outputs), *(each.expr for each in part.order)]
            reads = any(map(has_window, exprs)) or part.qualify is not None
            source: object = part.source
        else:
            reads, source = isinstance(part, PerUnitGroupBy) and bool(part.aggregates), part
        if reads:
            found |= dict.fromkeys(each for each in _iterate_releases_below(source) if each in plans)
    for release in found:
        keys = ", ".join(format_expression(key.expr) for key in release.keys)
        yield (
            f"Totals, means, ranks and running sums over the groups by {keys} are over the groups that are shown: "
            f"{describe_selection_threshold(plans[release])}. The rows of other groups are missing; an aggregate without GROUP BY reads all rows."
        )


def _iterate_releases_below(part: object) -> Iterator[Release]:
    """Yield the releases whose rows a part reads: not those that are below them, or values in its conditions."""
    if isinstance(part, Release):
        yield part
    elif isinstance(part, OuterQuery):
        yield from _iterate_releases_below(part.source)
    elif isinstance(part, PublicSubquery):
        yield from _iterate_releases_below(part.outer)
    else:
        for each in list_inputs(part):  # type: ignore[arg-type]
            yield from _iterate_releases_below(each)
