"""Notices: what of a statement or of its answer needs attention.

Claim: a notice costs no privacy loss.
Why: it is a function of the statement, the policy and released values with the public law of their noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

from dpsql.aggregates import AGGREGATES, Moment
from dpsql.aggregates.count import COUNT
from dpsql.analysis.intervals import conditions, interval
from dpsql.engine.accuracy import noise_half_width
from dpsql.engine.group_notices import (
    CONFIDENCE,
    is_ordered,
    known_groups,
    missing_groups,
    nothing_selected,
    shortfall,
    shows_all_groups,
    totals_of_shown_groups,
    withheld_groups,
)
from dpsql.engine.prepare import PreparedQuery
from dpsql.engine.statement_notices import absent_ids, constant_questions, excluded_constants
from dpsql.engine.within_units import within_units
from dpsql.plan.expr import Column, Expr, Released, walk
from dpsql.plan.interval import Interval, position, span
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Relation,
    Release,
    SemiJoin,
    SetKind,
    SetOperation,
    inputs,
)
from dpsql.plan.noiseless import noiseless
from dpsql.plan.provenance import provenance
from dpsql.plan.render import phrase
from dpsql.plan.sampling import percent, sampling_rate
from dpsql.plan.types import Type, Value
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.postprocess.nobody import has_condition, is_told_of_nobody
from dpsql.release import ReleasedTable
from dpsql.rendering import text
from dpsql.result import Result
from dpsql.sql.emit.outer_query import Copies
from dpsql.uncertainty.cells import RowProvenance, intervals_of, released_ends
from dpsql.uncertainty.cut_off import allowances, clamp_of

FEW_VALUES = 100
"""An end of so few whole numbers, as of months, is often reached by right values."""
_COUNT_IF = re.compile(r"\bCOUNT_?IF\s*\(", re.ASCII | re.IGNORECASE)
_FAR = 10**6
"""How large a computed value may be that is mentioned: its bounds are a function's, or a product's, and nobody declared them."""
_LONG = 40
"""An expression of more letters is named by its columns: as the terms of a regression, the query may not have it as such."""
_MATTERS = 0.01
"""A notice says what clamps may cut off if that is at least this part of the value."""


def of_statement(outer: OuterQuery) -> tuple[str, ...]:
    """The notices that follow from a statement and the policy alone.

    One for each constant that a column is compared with and never equals or reaches, for each question whose answer is the
    same for every row, where rows without a unit are asked for, and for each key by which rows are joined or grouped within
    a unit alone.
    """
    found = (*excluded_constants(outer), *constant_questions(outer), *absent_ids(outer), *within_units(outer))
    return tuple(dict.fromkeys(found))


def of_answer(
    prepared: PreparedQuery,
    tables: Sequence[ReleasedTable],
    origins: RowProvenance | None,
    bounded: Sequence[bool],
) -> Callable[[Result], tuple[str, ...]]:
    """The notices of an answer that is computed from these released tables, when it is asked for them.

    `bounded` says which columns have intervals.
    """
    outer = prepared.outer
    chosen, bare = () if origins is None else origins.chosen, _bare_columns(prepared, bounded)
    ordered, unconditional = is_ordered(outer), shows_all_groups(outer)
    return lambda result: (
        *of_statement(outer),
        *_chosen(chosen, result),
        *totals_of_shown_groups(outer, tables),
        *_answer(tables, result, released=provenance(outer) is not None),
        *_counts_of_no_rows(prepared.asked.sql, tables),
        *(
            notice
            for table in tables
            for notice in known_groups(table, chosen=ordered, unconditional=unconditional)
        ),
        *_bare(bare, result),
    )


def _bare_columns(prepared: PreparedQuery, bounded: Sequence[bool]) -> tuple[int, ...]:
    """The columns that have noise and no intervals, and are no quantiles or ends of intervals themselves.

    Those that are true or false, texts or lists are among them: noise decides about `COUNT(*) > 100`, too.
    """
    outer, copies = prepared.outer, prepared.above
    if prepared.matrix or prepared.experts is not None or not isinstance(copies, Copies):
        return ()
    found = provenance(outer)
    if found is None and any(copies.ends.values()):
        return ()
    exact = noiseless(outer)
    return tuple(
        place
        for place in range(len(outer.outputs))
        if not exact[place]
        and not any(bounded[place : place + 1])
        and not any(_are_selected(trace.outputs[place], trace.release) for trace in found or ())
    )


def _are_selected(expr: Expr, release: Release) -> bool:
    """Whether an expression reads a quantile or the end of an interval."""
    ranked = {item.name for item in release.aggregations if item.rank is not None}
    read = [part for part in walk(expr) if isinstance(part, Released)]
    return any(part.end_of is not None or part.name in ranked for part in read)


def _bare(bare: Sequence[int], result: Result) -> Iterator[str]:
    """A notice of noisy columns of which no interval is known."""
    names = [result.columns[place] for place in bare if any(row[place] is not None for row in result.rows)]
    if names:
        yield (
            f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} noise, and no interval is known: noise decides which values "
            "are read, as for the greatest of several, or dpsql does not simulate the law of the result."
        )


def _chosen(chosen: Sequence[tuple[int, int]], result: Result) -> Iterator[str]:
    """A notice that noise has a part in which rows are shown, and that intervals allow for it."""
    chosen_rows, released = sum(few for few, _ in chosen), sum(many for _, many in chosen)
    if chosen_rows and any(result.bounded):
        yield (
            f"Noisy values chose {chosen_rows:,} of {released:,} rows, and a row whose noise favors it is chosen more often. "
            "Intervals are wider for this: 95% of the intervals of chosen rows hold."
        )


def _answer(tables: Sequence[ReleasedTable], result: Result, *, released: bool) -> Iterator[str]:
    for number, table in enumerate(tables, 1):
        plan = table.plan
        if plan.selection is not None and not table.rows:
            yield nothing_selected(plan, f" of release {number}" * (len(tables) > 1))
    yield from dict.fromkeys(text for table in tables for text in withheld_groups(tables, table))
    yield from dict.fromkeys(text for table in tables for text in _sampled(table.plan))
    noisy = list(_mostly_noise(result))
    yield from noisy
    if noisy or any(None in row for row in result.rows):
        yield from dict.fromkeys(notice for table in tables for notice in _far_bounds(table.plan))
    for table in tables if released else ():
        yield from missing_groups(table)
    for table in tables:
        if table.plan.top_k is not None and table.rows:
            far = shortfall(table.plan, table.plan.top_k, CONFIDENCE)
            yield f"{far[0].upper()}{far[1:]}."
        yield from _beyond_clamps(table)
        yield from _at_bounds(table)
        yield from _uncounted(table.plan)
        yield from _uncounted_sums(table)
        yield from _ranks(table)
    yield from dict.fromkeys(notice for table in tables for notice in _withheld_values(table))


def _sampled(plan: MeasurementPlan) -> Iterator[str]:
    """A notice that an answer is of a sample, and how it is scaled."""
    rate = sampling_rate(plan.analysis.release.input)
    if rate is not None:
        yield (
            f"The answer is of a sample, which holds each privacy unit with probability {percent(rate)}; intervals hold for the "
            f"sample. Divide a count or a sum by {float(rate):.6g} to estimate it for all units."
        )


def _mostly_noise(result: Result) -> Iterator[str]:
    """A notice for each column of which most cells have a 95% interval with a half-width above the value.

    It is the half-width that tables show: an interval is from the value less it to the value and it, at most.
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
            f"its 95% interval is {text(poor[0][0], poor[0][1])} ± {text(poor[0][1], poor[0][1])}"
            if len(cells) == 1
            else f"in {len(poor):,} of {len(cells):,} rows its 95% interval has a half-width above the value"
        )
        yield f"Most of {name} is noise: {where}. A larger epsilon, fewer groups or fewer aggregates help."


def _far_bounds(plan: MeasurementPlan) -> Iterator[str]:
    """A notice for what is added up and may be very large, as nobody has said how large it is."""
    for measure in plan.analysis.measures:
        if measure.lattice is None or isinstance(measure.expr, Column) or measure.interval.magnitude < _FAR:
            continue
        sql = phrase(measure.expr)
        named = list(dict.fromkeys(str(part) for part in walk(measure.expr) if isinstance(part, Column)))
        if len(sql) > _LONG and named:
            what, bounded = f"What is computed of {' and '.join(named)} and added up", named[0]
        else:
            what, bounded = sql, sql
        yield (
            f"{what} may be anything in {measure.interval}, and noise grows with that: "
            f"narrower bounds help, as in LEAST({bounded}, 100)."
        )


def _beyond_clamps(table: ReleasedTable) -> Iterator[str]:
    """A notice for each learnt clamp beyond which units may contribute more than the noise, and a part of the value.

    How many units that are is known from the choice: see `Clamp.most_beyond`. Of how many units is known if they are counted.
    """
    plan, mentions = table.plan, set[int]()
    release, groups = plan.analysis.release, len(table.rows)
    if release.top is not None:  # of the groups only the keys are released
        return
    counted = next(
        (at for at, item in enumerate(release.aggregations) if item.function == "count_units"), None
    )
    for place, item in enumerate(release.aggregations, len(release.keys)):
        clamp, noise = clamp_of(plan, item), noise_half_width(plan, item, CONFIDENCE)
        if clamp is None or noise is None or not clamp.chosen or id(clamp) in mentions:
            continue
        (cut,) = allowances(plan, table, item, range(groups), CONFIDENCE)
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
        most, units = clamp.most_beyond, "unit" if clamp.most_beyond == 1 else "units"
        if (
            counted is not None
            and groups == 1
            and isinstance(count := table.rows[0][len(release.keys) + counted], int)
        ):
            count = max(count, 1)
            most, units = min(most, count), f"of about {count:,} unit{'s' * (count > 1)}"
        yield (
            f"Up to {most:,} {units} contribute{'s' * (most == 1)} more to {call_text(item)} than {_limits(plan, clamp)}, the bound that "
            f"was chosen privately. What is beyond it is not counted; the 95% interval allows for {'up to ' * (groups > 1)}{text(allowed)} more. "
            "A larger epsilon helps, and so do lower bounds on rows and values in the policy."
        )


def _limits(plan: MeasurementPlan, clamp: Clamp) -> str:
    """The chosen points of a clamp, in the units of what it limits."""
    if clamp.total is None:
        return f"{clamp.points[0]:,} {clamp.amount.value}"
    lattice = plan.analysis.measures[clamp.total].lattice
    step = 1.0 if lattice is None else float(lattice.step)
    return " or ".join(
        text(sign * point * step) for sign, point in zip(clamp.sides, clamp.points, strict=True)
    )


def _at_bounds(table: ReleasedTable) -> Iterator[str]:
    """A notice for each quantile that is released at an end of its bounds."""
    release = table.plan.analysis.release
    for place, item in enumerate(release.aggregations, len(release.keys)):
        around = _clamped_to(table.plan, item)
        if around is None or item.argument is None:
            continue
        hit = sum(_at_an_end(row[place], around) for row in table.rows)
        if hit:
            rows = "" if len(table.rows) == 1 else f" in {hit:,} of {len(table.rows):,} groups"
            yield (
                f"{call_text(item)} is at an end of its bounds {span(around, item.argument.type)}{rows}: values beyond "
                "count as that end, which no interval covers."
            )


def _withheld_values(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice if cells are withheld, as their noisy counts are below the minimum frequency."""
    if table.withheld:
        cells = len(table.rows) * len(table.plan.analysis.release.aggregations)
        yield (
            f"{len(table.withheld):,} of {cells:,} values are withheld (NULL): by their noisy counts, fewer than "
            f"{table.plan.analysis.bound.min_frequency:,} units, the policy's min_frequency, may be behind them."
        )


def _uncounted(plan: MeasurementPlan) -> Iterator[str]:
    """Yield a notice for each quantile that is a value at random if it is over no values, where nothing says whether it is."""
    release = plan.analysis.release
    groups = bool(release.keys)
    if release.top is not None:
        return
    for item, ranked in zip(release.aggregations, _are_chosen(plan), strict=True):
        none = groups or has_condition(item) or _is_restricted(release.input)
        if ranked and none and not is_told_of_nobody(plan, item):
            yield (
                f"{call_text(item)} has no count of its values beside it: over no values it is a random value within its bounds. "
                f"Add {_count_of(item)}, which says whether there are any; where there are none, it is then NULL."
            )


def _count_of(item: Aggregation) -> str:
    """The count of an aggregate's values, as it is written in SQL."""
    if has_condition(item):
        return "a COUNT with the same FILTER"
    return "COUNT(*)" if item.argument is None else f"COUNT({phrase(item.argument)})"


def _uncounted_sums(table: ReleasedTable) -> Iterator[str]:
    """Yield a notice for each sum that may be over no values, by its interval, where no count says whether it is."""
    plan, release = table.plan, table.plan.analysis.release
    for item in release.aggregations if release.top is None else ():
        if AGGREGATES[item.function].moments != (Moment.TOTAL,) or is_told_of_nobody(plan, item):
            continue
        near = _near_zero(table, item)
        if near:
            yield (
                f"{call_text(item)} may be over no values{f' in {near:,} of {len(table.rows):,} groups' * bool(release.keys)}, where SQL "
                f"has NULL and it is a noisy number near 0. {_count_of(item)} beside it says whether there are any, and it is NULL "
                "where there are none."
            )


def _counts_of_no_rows(text: str, tables: Sequence[ReleasedTable]) -> Iterator[str]:
    """Yield a notice if the text of a statement has COUNT_IF, and a count under a condition may be 0."""
    if _COUNT_IF.search(text) and any(
        item.function == COUNT.name and has_condition(item) and _near_zero(table, item)
        for table in tables
        for item in table.plan.analysis.release.aggregations
    ):
        yield "COUNT_IF of no rows is 0, where DuckDB has NULL."


def _near_zero(table: ReleasedTable, item: Aggregation) -> int:
    """In how many rows the 95% interval of an aggregate holds 0."""
    ends = intervals_of(table.plan, table, item, range(len(table.rows)), CONFIDENCE)
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
    return any(map(_is_restricted, inputs(relation)))


def _are_chosen(plan: MeasurementPlan) -> list[bool]:
    """Return of each aggregate whether it is a quantile that is chosen with noise."""
    places = [plan.quantile_index(item) for item in plan.analysis.release.aggregations]
    return [place is not None and not plan.quantiles[place].interval_end for place in places]


def _ranks(table: ReleasedTable) -> Iterator[str]:
    """A notice for each quantile without an interval: how many values its rank is off by."""
    plan = table.plan
    for item in plan.analysis.release.aggregations if table.rows else ():
        place = plan.quantile_index(item)
        if place is None or item.interval_end or released_ends(plan, item) is not None:
            continue
        chosen, call = plan.quantiles[place], call_text(item)
        off = chosen.rows(CONFIDENCE)
        if chosen.public or off < 1:
            continue
        where = "" if len(table.rows) == 1 else " of a group"
        yield (
            f"At most {(most := math.ceil(off)):,} value{'s' * (most > 1)}{where} lie{'s' * (most == 1)} between {call} and the true one, "
            f"with 95% probability. Add DP_INTERVAL_LOW({call}) and DP_INTERVAL_HIGH({call}) for an interval; they take a part of the loss."
        )


def _clamped_to(plan: MeasurementPlan, item: Aggregation) -> Interval | None:
    """The bounds by which the values of a quantile are clamped; None for others, and for few whole numbers."""
    index = None if item.rank is None or item.interval_end else plan.analysis.measure(item)
    if index is None:
        return None
    measure = plan.analysis.measures[index]
    stated = interval(measure.expr, conditions(plan.analysis.release.input))
    if not stated.bounded or measure.expr.type is Type.BOOLEAN:
        return None  # the values of a public table are not clamped
    low, high = stated.ends
    return None if measure.expr.type is Type.INTEGER and high - low < FEW_VALUES else stated


def _at_an_end(value: Value, around: Interval) -> bool:
    return value is not None and position(value) in around.ends


def call_text(item: Aggregation) -> str:
    """An aggregate as it is written in SQL."""
    entry = AGGREGATES[item.function]
    return (
        entry.signature
        if item.argument is None
        else entry.call(phrase(item.argument), item.rank, item.interval_end)
    )
