"""Notices: what needs attention in a statement or in its answer.

Claim: a notice costs no privacy loss.
Why: it is a function of the statement, the policy and released values with the public law of their noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.engine.intervals.cells import RowProvenance, compute_intervals, find_released_ends
from dpsql.engine.intervals.noise_laws import compute_allowances, find_clamp, predict_noise_half_width
from dpsql.engine.postprocess.empty_groups import has_condition, has_value_count
from dpsql.engine.query_run import QueryRun
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.engine.statement_notices import (
    CONFIDENCE,
    describe_absent_ids,
    describe_constant_questions,
    describe_empty_groups,
    describe_empty_selection,
    describe_excluded_constants,
    describe_missing_groups,
    describe_partial_totals,
    describe_shortfall,
    describe_unit_keys,
    describe_widened_values,
    describe_withheld_groups,
    has_unfiltered_groups,
    is_ordered_selection,
)
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.aggregates.base import COUNT
from dpsql.plan.expressions import Call, Column, Expr, ReleasedColumn, is_null, walk
from dpsql.plan.interval import Interval, find_position, format_interval
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    find_place,
    iterate_sources,
    list_inputs,
)
from dpsql.plan.provenance import find_provenance, mark_exact_outputs, mark_noiseless_outputs
from dpsql.plan.steps import find_sampling_rate, format_percent
from dpsql.plan.tables import Scan
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type, Value
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.results.rendering import format_value
from dpsql.results.result import Result
from dpsql.sql.compile.outer_query import ReleasedTables

FEW_VALUES = 100
"""An end of so few whole numbers, as of months, is often reached by right values."""
_COUNT_IF = re.compile(r"\bCOUNT_?IF\s*\(", re.ASCII | re.IGNORECASE)
_FAR = 10**6
"""How large a computed value may be that is mentioned: its bounds are a function's, or a product's, and nobody declared them."""
_LONG = 40
"""An expression of more letters is named by its columns: as the terms of a regression, the query may not have it as such."""
_MATTERS = 0.01
"""A notice says what clamps may cut off if that is at least this part of the value."""


def list_statement_notices(outer: OuterQuery, differences: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the notices that follow from a statement and the policy alone; `differences` are those of its lowering.

    They are about constants that a column never equals or reaches, tests that have the same result for every row, conditions on
    rows without a unit, keys by which rows are joined or grouped only within a unit, and whole numbers without bounds.
    """
    found = (
        *differences,
        *describe_excluded_constants(outer),
        *describe_constant_questions(outer),
        *describe_absent_ids(outer),
        *describe_unit_keys(outer),
        *describe_widened_values(outer),
    )
    return tuple(dict.fromkeys(found))


def make_answer_notices(
    prepared: QueryRun,
    tables: Sequence[ReleasedTable],
    origins: RowProvenance | None,
    bounded_columns: Sequence[bool],
) -> Callable[[Result], tuple[str, ...]]:
    """Return a function that computes the notices of an answer from its released tables.

    `bounded_columns` marks the columns that have intervals.
    """
    outer = prepared.outer
    chosen, bare, conditional = (
        () if origins is None else origins.row_selections,
        _list_unbounded_columns(prepared, bounded_columns),
        _list_conditional_columns(prepared),
    )
    ordered, unconditional = is_ordered_selection(outer), has_unfiltered_groups(outer)
    return lambda result: (
        *list_statement_notices(outer, prepared.notices),
        *_describe_row_selection(chosen, result),
        *describe_partial_totals(outer, tables),
        *_describe_answer(tables, result, released=find_provenance(outer) is not None),
        *_describe_count_if(prepared.query.sql, tables),
        *(
            notice
            for table in tables
            for notice in describe_empty_groups(table, chosen=ordered, unconditional=unconditional)
        ),
        *_describe_unbounded_columns(bare, result),
        *_describe_conditional_columns(conditional, result),
    )


def _shows_released_columns(prepared: QueryRun) -> bool:
    """Return whether the answer's columns are those of the statement, computed from released tables."""
    return (
        not prepared.matrix_columns
        and prepared.expert_losses is None
        and isinstance(prepared.post_processing, ReleasedTables)
    )


def _list_unbounded_columns(prepared: QueryRun, bounded: Sequence[bool]) -> tuple[int, ...]:
    """Return the noisy columns that have no intervals, except for quantiles and ends of intervals.

    Booleans, texts and lists are among them: noise decides about `COUNT(*) > 100`, too.
    """
    outer, copies = prepared.outer, prepared.post_processing
    if not isinstance(copies, ReleasedTables) or not _shows_released_columns(prepared):
        return ()
    found = find_provenance(outer)
    if found is None and any(copies.interval_ends.values()):
        return ()
    exact = mark_exact_outputs(outer)
    return tuple(
        place
        for place in range(len(outer.outputs))
        if not exact[place]
        and not any(bounded[place : place + 1])
        and not any(_is_selected_value(trace.outputs[place], trace.release) for trace in found or ())
    )


def _list_conditional_columns(prepared: QueryRun) -> tuple[int, ...]:
    """Return the columns whose values have no noise, where noise decides whether they are NULL."""
    if not _shows_released_columns(prepared):
        return ()
    found = zip(mark_exact_outputs(prepared.outer), mark_noiseless_outputs(prepared.outer), strict=True)
    return tuple(place for place, (exact, noiseless) in enumerate(found) if exact and not noiseless)


def _describe_conditional_columns(places: Sequence[int], result: Result) -> Iterator[str]:
    """Yield a notice about values without noise whose presence is noisy."""
    if places:
        yield f"{', '.join(result.columns[place] for place in places)}: values have no noise; noise decides where they are NULL."


def _is_selected_value(expr: Expr, release: Release) -> bool:
    """Return whether an expression reads a quantile or the end of an interval."""
    ranked = {item.name for item in release.aggregations if item.rank is not None}
    read = [part for part in walk(expr) if isinstance(part, ReleasedColumn)]
    return any(part.end_of is not None or part.name in ranked for part in read)


def _describe_unbounded_columns(bare: Sequence[int], result: Result) -> Iterator[str]:
    """Yield a notice about noisy columns without a known interval."""
    names = [result.columns[place] for place in bare if any(row[place] is not None for row in result.rows)]
    if names:
        yield (
            f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} noise, and no interval is known: noise decides which values "
            "are read (as in a maximum of several), or dpsql does not simulate the distribution of the result."
        )


def _describe_row_selection(chosen: Sequence[tuple[int, int]], result: Result) -> Iterator[str]:
    """Yield a notice if noise affects which rows are shown; intervals allow for it."""
    chosen_rows, released = sum(few for few, _ in chosen), sum(many for _, many in chosen)
    if chosen_rows and any(result.bounded_columns):
        yield (
            f"Noisy values selected {chosen_rows:,} of {released:,} rows, and a row whose noise favors it is selected more often. "
            "Intervals are wider for this: 95% of the intervals of selected rows hold the true value."
        )


def _describe_answer(tables: Sequence[ReleasedTable], result: Result, *, released: bool) -> Iterator[str]:
    for number, table in enumerate(tables, 1):
        plan = table.plan
        if plan.selection is not None and not table.rows:
            yield describe_empty_selection(plan, f" of release {number}" * (len(tables) > 1))
    yield from dict.fromkeys(text for table in tables for text in describe_withheld_groups(tables, table))
    yield from dict.fromkeys(text for table in tables for text in _describe_sampling(table.plan))
    noisy = list(_describe_noisy_columns(result))
    yield from noisy
    if noisy or any(None in row for row in result.rows):
        yield from dict.fromkeys(notice for table in tables for notice in _describe_wide_bounds(table.plan))
    for table in tables if released else ():
        yield from describe_missing_groups(table)
    for table in tables:
        if table.plan.top_k is not None and table.rows:
            far = describe_shortfall(table.plan, table.plan.top_k, CONFIDENCE)
            yield f"{far[0].upper()}{far[1:]}."
        yield from _describe_clamped_units(table)
        yield from _describe_quantiles_at_bounds(table)
        yield from _describe_uncounted_quantiles(table.plan)
        yield from _describe_uncounted_sums(table)
        yield from _describe_rank_errors(table)
    yield from dict.fromkeys(notice for table in tables for notice in _describe_withheld_cells(table))


def _describe_sampling(plan: MeasurementPlan) -> Iterator[str]:
    """Yield a notice if an answer describes a sample, with the factor that scales it."""
    rate = find_sampling_rate(plan.analysis.release.input)
    if rate is not None:
        yield (
            f"The answer describes a sample, which has each privacy unit with probability {format_percent(rate)}; so do its "
            f"intervals. Divide a count or a sum by {float(rate):.6g} to estimate it for all units."
        )


def _describe_noisy_columns(result: Result) -> Iterator[str]:
    """Yield a notice for each column of which most cells have a 95% interval with a half-width above the value.

    It is the half-width that tables show: an interval lies within the value minus and plus its half-width.
    """
    intervals = result.intervals(CONFIDENCE)
    for place, name in enumerate(result.columns):
        cells = [
            (number, max(ends[1] - number, number - ends[0]))
            for row, found in zip(result.rows, intervals, strict=True)
            for value, ends in [(row[place], found[place])]
            if ends is not None and isinstance(value, (int, float, Decimal))
            for number in [value if isinstance(value, int) else float(value)]
        ]
        poor = [(value, half) for value, half in cells if not half < abs(value)]
        poor = [(value, half) for value, half in poor if half]  # an exact zero is no noise
        if 2 * len(poor) <= len(cells):
            continue
        where = (
            f"its 95% interval is {format_value(poor[0][0], poor[0][1])} ± {format_value(poor[0][1], poor[0][1])}"
            if len(cells) == 1
            else f"in {len(poor):,} of {len(cells):,} rows its 95% interval has a half-width above the value"
        )
        yield f"Most of {name} is noise: {where}. A larger epsilon, fewer groups or fewer aggregates help."


def _describe_wide_bounds(plan: MeasurementPlan) -> Iterator[str]:
    """Yield a notice for a summed expression that may be very large, because no bounds were declared for it."""
    for measure in plan.analysis.measures:
        if measure.lattice is None or isinstance(measure.expr, Column) or measure.interval.magnitude < _FAR:
            continue
        sql = format_expression(measure.expr)
        named = list(dict.fromkeys(str(part) for part in walk(measure.expr) if isinstance(part, Column)))
        if len(sql) > _LONG and named:
            what, bounded = f"The summed expression of {' and '.join(named)}", named[0]
        else:
            what, bounded = sql, sql
        yield (
            f"{what} has the bounds {measure.interval}, and the noise grows with them: "
            f"narrower bounds help, as in LEAST({bounded}, 100)."
        )


def _describe_clamped_units(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice for each chosen clamp beyond which units may contribute more than the noise, and a part of the value.

    The number of these units is known from the choice, see `Clamp.max_n_clipped`; the number of all units if they are counted.
    """
    plan, mentions = table.plan, set[int]()
    release, groups = plan.analysis.release, len(table.rows)
    if release.top is not None:  # of the groups only the keys are released
        return
    counted = next(
        (at for at, item in enumerate(release.aggregations) if item.function == "count_units"), None
    )
    for place, item in enumerate(release.aggregations, len(release.keys)):
        clamp, noise = find_clamp(plan, item), predict_noise_half_width(plan, item, CONFIDENCE)
        if clamp is None or noise is None or not clamp.chosen or id(clamp) in mentions:
            continue
        (cut,) = compute_allowances(plan, table, item, range(groups), CONFIDENCE)
        allowed = max(
            (
                most
                for row, most in zip(table.rows, cut.max(axis=1).tolist(), strict=True)
                if isinstance(value := row[place], (int, float))
                and most > max(noise, _MATTERS * abs(float(value)))
            ),
            default=0.0,
        )
        if not allowed:
            continue
        mentions.add(id(clamp))
        most, units = clamp.max_n_clipped, "unit" if clamp.max_n_clipped == 1 else "units"
        if (
            counted is not None
            and groups == 1
            and isinstance(count := table.rows[0][len(release.keys) + counted], int)
        ):
            count = max(count, 1)
            most, units = min(most, count), f"of about {count:,} unit{'s' * (count > 1)}"
        yield (
            f"Up to {most:,} {units} contribute{'s' * (most == 1)} more to {format_call(item)} than {_format_clamp_limits(plan, clamp)}, the clamp that "
            f"was chosen privately. The excess is not counted; the 95% interval allows for {'up to ' * (groups > 1)}{format_value(allowed)} more. "
            "A larger epsilon helps, and so do lower bounds on rows and values in the policy."
        )


def _format_clamp_limits(plan: MeasurementPlan, clamp: Clamp) -> str:
    """Return the chosen points of a clamp, in the units of what it limits."""
    if clamp.total is None:
        return f"{clamp.points[0]:,} {clamp.amount.value}"
    lattice = plan.analysis.measures[clamp.total].lattice
    step = 1.0 if lattice is None else float(lattice.step)
    return " or ".join(
        format_value(sign * point * step) for sign, point in zip(clamp.sides, clamp.points, strict=True)
    )


def _describe_quantiles_at_bounds(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice for each quantile that is released at an end of its bounds."""
    release = table.plan.analysis.release
    for place, item in enumerate(release.aggregations, len(release.keys)):
        around = _find_quantile_bounds(table.plan, item)
        if around is None or item.argument is None:
            continue
        hit = sum(_is_at_bound(row[place], around) for row in table.rows)
        if hit:
            rows = "" if len(table.rows) == 1 else f" in {hit:,} of {len(table.rows):,} groups"
            yield (
                f"{format_call(item)} is at an end of its bounds {format_interval(around, item.argument.type)}{rows}: values beyond "
                "them count as that end, and no interval covers this."
            )


def _describe_withheld_cells(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice if cells are withheld because their noisy counts are below the minimum frequency."""
    if table.withheld_cells:
        cells = len(table.rows) * len(table.plan.analysis.release.aggregations)
        yield (
            f"{len(table.withheld_cells):,} of {cells:,} values are withheld (NULL): by their noisy counts, fewer than "
            f"{table.plan.analysis.bound.min_frequency:,} units, the policy's min_frequency, may be behind them."
        )


def _describe_uncounted_quantiles(plan: MeasurementPlan) -> Iterator[str]:
    """Yield a notice for each quantile that is a random value if there are no values, while no count tells whether there are."""
    release = plan.analysis.release
    groups = bool(release.keys)
    if release.top is not None:
        return
    for item, ranked in zip(release.aggregations, _mark_chosen_quantiles(plan), strict=True):
        none = (
            groups
            or has_condition(item)
            or _is_restricted(release.input)
            or _may_be_always_null(item.argument, release.input)
        )
        if ranked and none and not has_value_count(plan, item):
            yield (
                f"{format_call(item)} has no count of its values in this query: over no values it is a random value within its bounds. "
                f"Add {_format_count_call(item)}: it says whether there are values, and {format_call(item)} is NULL if there are none."
            )


def _format_count_call(item: Aggregation) -> str:
    """Return the count of an aggregate's values, as SQL."""
    if has_condition(item):
        return "a COUNT with the same FILTER"
    return "COUNT(*)" if item.argument is None else f"COUNT({format_expression(item.argument)})"


def _describe_uncounted_sums(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice for each sum that may be over no values, by its interval, while no count tells whether there are values."""
    plan, release = table.plan, table.plan.analysis.release
    for item in release.aggregations if release.top is None else ():
        if AGGREGATES[item.function].moments != (Moment.TOTAL,) or has_value_count(plan, item):
            continue
        near = _count_near_zero(table, item)
        if near:
            yield (
                f"{format_call(item)} may be over no values{f' in {near:,} of {len(table.rows):,} groups' * bool(release.keys)}, where SQL "
                f"returns NULL and this answer has a noisy number near 0. Add {_format_count_call(item)}: it says whether there are values, "
                f"and {format_call(item)} is NULL if there are none."
            )


def _describe_count_if(text: str, tables: Sequence[ReleasedTable]) -> Iterator[str]:
    """Yield a notice if the text of a statement has COUNT_IF, and a count under a condition may be 0."""
    if _COUNT_IF.search(text) and any(
        item.function == COUNT.name and has_condition(item) and _count_near_zero(table, item)
        for table in tables
        for item in table.plan.analysis.release.aggregations
    ):
        yield "COUNT_IF over no rows is 0; in DuckDB it is NULL."


def _count_near_zero(table: ReleasedTable, item: Aggregation) -> int:
    """Return the number of rows in which the 95% interval of an aggregate holds 0."""
    ends = compute_intervals(table.plan, table, item, range(len(table.rows)), CONFIDENCE)
    return sum(end is not None and end[0] <= 0 <= end[1] for end in ends)


def _is_restricted(relation: Relation) -> bool:
    """Return whether a condition, a join or a set operation may leave no row of a relation."""
    match relation:
        case (
            Filter()
            | SemiJoin()
            | Join(kind=JoinKind.INNER)
            | SetOperation(kind=SetKind.INTERSECT | SetKind.EXCEPT)
        ):
            return True
    return any(map(_is_restricted, list_inputs(relation)))


def _may_be_always_null(expr: Expr | None, relation: Relation) -> bool:
    """Return whether an expression reads what can be NULL in each row: a window as LAG is, NULLIF, or a CASE with NULL in it."""
    parts = [] if expr is None else list(dict.fromkeys(walk(expr)))
    if any(isinstance(part, Call) and _can_give_null(part) for part in parts):
        return True
    sources = {source.alias: source for source in iterate_sources(relation) if not isinstance(source, Scan)}
    return any(
        _may_be_null_column(find_place(part, sources[part.source].columns), sources[part.source])
        for part in parts
        if isinstance(part, Column) and part.source in sources
    )


def _can_give_null(call: Call) -> bool:
    """Return whether a function is there to give NULL for some values."""
    return call.function.name == "nullif" or (
        call.function.name == "case" and any(map(is_null, call.arguments))
    )


def _may_be_null_column(place: int, source: Source) -> bool:
    """Return whether the column at a place of a derived table can be NULL in each row."""
    match source:
        case SetOperation():
            return any(_may_be_null_column(place, side) for side in (source.left, source.right))
        case PerUnitGroupBy():
            keys = len(source.keys)
            read = (source.keys[place],) if place < keys else source.aggregates[place - keys].arguments
            return any(_may_be_always_null(each, source.input) for each in read)
        case Project() | PerUnitWindows():
            return place >= len(source.items) or _may_be_always_null(source.items[place], source.input)
        case _:
            return False


def _mark_chosen_quantiles(plan: MeasurementPlan) -> list[bool]:
    """Return, for each aggregate, whether it is a quantile that is selected with noise."""
    places = [plan.find_quantile_index(item) for item in plan.analysis.release.aggregations]
    return [place is not None and not plan.quantiles[place].interval_end for place in places]


def _describe_rank_errors(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice for each quantile without an interval, with the error of its rank."""
    plan = table.plan
    for item in plan.analysis.release.aggregations if table.rows else ():
        place = plan.find_quantile_index(item)
        if place is None or item.interval_end or find_released_ends(plan, item) is not None:
            continue
        chosen, call = plan.quantiles[place], format_call(item)
        off = chosen.bound_row_error(CONFIDENCE)
        if chosen.is_public or off < 1:
            continue
        where = "" if len(table.rows) == 1 else " of a group"
        yield (
            f"At most {(most := math.ceil(off)):,} value{'s' * (most > 1)}{where} lie{'s' * (most == 1)} between {call} and the true one, "
            f"with 95% probability. Add DP_INTERVAL_LOW({call}) and DP_INTERVAL_HIGH({call}) for an interval; they take a part of the loss."
        )


def _find_quantile_bounds(plan: MeasurementPlan, item: Aggregation) -> Interval | None:
    """Return the bounds to which the values of a quantile are clamped; None for other aggregates, and for few whole numbers."""
    index = None if item.rank is None or item.interval_end else plan.analysis.find_measure_index(item)
    if index is None:
        return None
    measure = plan.analysis.measures[index]
    stated = derive_interval(measure.expr, derive_known_intervals(plan.analysis.release.input))
    if not stated.is_bounded or measure.expr.type is Type.BOOLEAN:
        return None  # the values of a public table are not clamped
    low, high = stated.ends
    return None if measure.expr.type is Type.INTEGER and high - low < FEW_VALUES else stated


def _is_at_bound(value: Value, around: Interval) -> bool:
    return value is not None and find_position(value) in around.ends


def format_call(item: Aggregation) -> str:
    """Return an aggregate as SQL."""
    entry = AGGREGATES[item.function]
    return (
        entry.signature
        if item.argument is None
        else entry.format_call(format_expression(item.argument), item.rank, item.interval_end)
    )
