"""Notices: what of a statement or of its answer needs attention.

Claim: a notice costs no privacy loss.
Why: it is a function of the statement, the policy and released values with the public law of their noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches

from dpsql.aggregates import AGGREGATES
from dpsql.analysis.intervals import conditions, interval
from dpsql.engine.accuracy import noise_half_width
from dpsql.engine.prepare import PreparedQuery
from dpsql.plan.dependencies import children
from dpsql.plan.expr import Call, Column, Expr, Literal, Released, walk
from dpsql.plan.interval import Interval, position
from dpsql.plan.nodes import Aggregation, OuterQuery, Release
from dpsql.plan.noiseless import noiseless
from dpsql.plan.provenance import provenance
from dpsql.plan.render import phrase
from dpsql.plan.sampling import percent, sampling_rate
from dpsql.plan.types import Type, Value
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.partition_selection import OptimalPartitionSelection
from dpsql.planning.top_k import TopKSelection
from dpsql.postprocess.occupied_groups import occupied
from dpsql.release import ReleasedTable
from dpsql.rendering import text
from dpsql.result import Result
from dpsql.sql.emit.outer_query import Copies
from dpsql.uncertainty.cells import RowProvenance, has_interval, intervals_of
from dpsql.uncertainty.cut_off import allowances, clamp_of

CONFIDENCE = 0.95
FEW_VALUES = 100
"""An end of so few whole numbers, as of months, is often reached by right values."""
_LISTED = 6
_MOST_CONSTANTS = 4
"""The most constants of a comparison of which a notice says why they never match: each is looked up among all values of a column."""
_FAR = 10**6
"""How large a computed value may be that is mentioned: its bounds are a function's, or a product's, and nobody declared them."""
_MATTERS = 0.01
"""A notice says what clamps may cut off if that is at least this part of the value."""
_EQUALITIES = ("eq", "ne", "in", "is_distinct", "is_not_distinct")
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def of_statement(outer: OuterQuery) -> tuple[str, ...]:
    """A notice for each constant that a column is compared with and, as the policy states, never equals or reaches."""
    return tuple(dict.fromkeys(_excluded(outer)))


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
    return lambda result: (
        *of_statement(outer),
        *_chosen(chosen, result),
        *_answer(tables, result, released=provenance(outer) is not None),
        *_bare(bare, result),
    )


def _bare_columns(prepared: PreparedQuery, bounded: Sequence[bool]) -> tuple[int, ...]:
    """The numeric columns that have noise and no intervals, and are no quantiles or ends of intervals themselves."""
    outer, copies = prepared.outer, prepared.above
    if prepared.matrix or prepared.experts is not None or not isinstance(copies, Copies):
        return ()
    found = provenance(outer)
    if found is None and any(copies.ends.values()):
        return ()
    exact = noiseless(outer)
    return tuple(
        place
        for place, output in enumerate(outer.outputs)
        if not exact[place]
        and output.expr.type.numeric
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
            f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} noise, and no interval is known: noise has a part in which "
            "values are read, as it has in the greatest or least one, or the law of the result is not simulated."
        )


def _chosen(chosen: Sequence[tuple[int, int]], result: Result) -> Iterator[str]:
    """A notice that noise has a part in which rows are shown, and that intervals allow for it."""
    kept, released = sum(few for few, _ in chosen), sum(many for _, many in chosen)
    if kept and any(result.bounded):
        yield (
            f"Noisy values chose {kept:,} of {released:,} rows: of all rows that might have been chosen, those are more likely "
            "whose noise favors them. Intervals are wider for this, so that 95% of those of chosen rows hold."
        )


def _answer(tables: Sequence[ReleasedTable], result: Result, *, released: bool) -> Iterator[str]:
    for number, table in enumerate(tables, 1):
        plan = table.plan
        if plan.selection is not None and not table.rows:
            yield _nothing_selected(plan, f" of release {number}" * (len(tables) > 1))
    yield from dict.fromkeys(text for table in tables for text in _withheld(tables, table))
    yield from dict.fromkeys(text for table in tables for text in _sampled(table.plan))
    noisy = list(_mostly_noise(result))
    yield from noisy
    if noisy or any(None in row for row in result.rows):
        yield from dict.fromkeys(notice for table in tables for notice in _far_bounds(table.plan))
    for table in tables if released else ():
        yield from _left_out(table)
    for table in tables:
        if table.plan.top_k is not None and table.rows:
            far = shortfall(table.plan, table.plan.top_k, CONFIDENCE)
            yield f"{far[0].upper()}{far[1:]}."
        yield from _beyond_clamps(table)
        yield from _at_bounds(table)
        yield from _ranks(table)


def selected_from(plan: MeasurementPlan) -> str:
    """From which size on a group is released by partition selection."""
    chosen = plan.selection
    if isinstance(chosen, OptimalPartitionSelection):
        many = f"{chosen.median_units:,} unit{'s' * (chosen.median_units != 1)}"
        return f"a group of {many} is released with probability 1/2, a smaller one with less"
    if chosen is None:
        return "all groups are released"
    learnt = plan.vectors[chosen.vector].clamp is not None and not any(each.chosen for each in plan.clamps)
    least = f"a group is released if its noisy count is at least {math.ceil(chosen.count)}"
    return f"{least}{' where the clamp is as expected' * learnt}"


def _withheld(tables: Sequence[ReleasedTable], table: ReleasedTable) -> Iterator[str]:
    """A notice of a release of which partition selection may have left groups out, and how much as far as that is known.

    How many are missing is known where the keys are listed. Which part of the rows is missing follows, but for noise, where the
    statement has released the count of all rows, too.
    """
    plan = table.plan
    if plan.selection is None or not table.rows:
        return
    shown = len(table.rows)
    if plan.analysis.domains is not None:
        listed = math.prod(map(len, plan.analysis.domains))
        if shown < listed:
            yield (
                f"{listed - shown:,} of {listed:,} listed groups ({(listed - shown) / listed:.0%}) are not shown: "
                f"{selected_from(plan)}."
            )
        return
    near, missing = _near_threshold(table), _missing_share(tables, table)
    yield (
        f"Groups may be missing: the policy does not list the keys, so {selected_from(plan)}."
        + f" {near:,} of the {shown:,} shown have a count below twice that, so smaller ones are likely."
        * (near > 0)
        + (f" About {missing:.0%} of the rows are in groups that are not shown." if missing else "")
    )


def _near_threshold(table: ReleasedTable) -> int:
    """How many shown groups have a noisy count below twice the threshold; 0 where none is released."""
    chosen = table.plan.threshold
    if chosen is None:
        return 0
    counts = (sum(cells[chosen.vector][at] for at in chosen.components) for cells in table.components)
    return sum(count < 2 * chosen.threshold for count in counts)


def _missing_share(tables: Sequence[ReleasedTable], table: ReleasedTable) -> float:
    """Which part of all rows is in no shown group, where the same rows were counted without keys; 0 where it may be noise."""
    release = table.plan.analysis.release
    for item in release.aggregations:
        if item.function != "count_rows":
            continue
        for other in tables:
            whole = other.plan.analysis.release
            of_all = next((one for one in whole.aggregations if one.function == item.function), None)
            if whole.keys or of_all is None or whole.input != release.input:
                continue
            every = intervals_of(other.plan, other, of_all, [0], CONFIDENCE)
            found = [*every, *intervals_of(table.plan, table, item, range(len(table.rows)), CONFIDENCE)]
            middles = [(ends[0] + ends[1]) / 2 for ends in found if ends is not None]
            noise = math.hypot(*((ends[1] - ends[0]) / 2 for ends in found if ends is not None))
            missing = middles[0] - sum(middles[1:])
            return min(1.0, missing / middles[0]) if missing > noise and middles[0] > 0 else 0.0
    return 0.0


def _sampled(plan: MeasurementPlan) -> Iterator[str]:
    """A notice that an answer is of a sample, and how it is scaled."""
    rate = sampling_rate(plan.analysis.release.input)
    if rate is not None:
        yield (
            f"The answer is of a sample, in which each privacy unit is with probability {percent(rate)}; intervals hold for the "
            f"sample. Of all units, a count or a sum is about the answer / {float(rate):.6g}."
        )


def shortfall(plan: MeasurementPlan, chosen: TopKSelection, confidence: float) -> str:
    """How far from the best the scores of the chosen groups are, at most."""
    groups = math.prod(map(len, plan.analysis.domains or ()))
    steps = chosen.shortfall(groups, confidence)
    lattice = plan.analysis.measures[0].lattice if plan.analysis.measures else None
    off = steps * float(lattice.step) if lattice is not None else steps
    return f"with {confidence:.0%} probability no chosen score is more than {off:,.4g} from the best of {groups:,} that was left"


def _nothing_selected(plan: MeasurementPlan, which: str) -> str:
    return (
        f"No group{which} is shown: the policy does not list the keys, so {selected_from(plan)}. A larger epsilon or "
        "delta, fewer groups of a unit (max_groups) or larger groups help; keys whose values the policy lists are all shown."
    )


def _left_out(table: ReleasedTable) -> Iterator[str]:
    """A notice if groups whose keys follow from bounds are left out, since they may be empty."""
    keys = len(table.plan.analysis.release.keys)
    holds = occupied(table.plan, table)
    missing = sum(not holds[place] for place, row in enumerate(table.rows) if None not in row[:keys])
    if missing:
        yield (
            f"{missing:,} of {len(holds):,} groups are left out: their keys follow from bounds, and, by their noisy counts, they "
            "may be empty. Groups whose keys the policy, or a condition with IN, lists are all shown."
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
        yield (
            f"{sql} may be anything in {measure.interval}, and noise grows with that: "
            f"narrower bounds help, as in LEAST({sql}, 100)."
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
        most, units = clamp.most_beyond, "units"
        if (
            counted is not None
            and groups == 1
            and isinstance(count := table.rows[0][len(release.keys) + counted], int)
        ):
            count = max(count, 1)
            most, units = min(most, count), f"of about {count:,} units"
        yield (
            f"Up to {most:,} {units} contribute more to {call_text(item)} than {_limits(plan, clamp)}, the bound that was "
            f"chosen privately, and what is beyond it is not counted; the 95% interval allows for {'up to ' * (groups > 1)}{text(allowed)} more. "
            "A larger epsilon helps, and so do lower bounds on rows and values that the owner knows."
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
        if around is None:
            continue
        hit = sum(_at_an_end(row[place], around) for row in table.rows)
        if hit:
            rows = "" if len(table.rows) == 1 else f" in {hit:,} of {len(table.rows):,} groups"
            yield (
                f"{call_text(item)} is at an end of its bounds {around}{rows}: values beyond count as that end, which no "
                "interval covers."
            )


def _ranks(table: ReleasedTable) -> Iterator[str]:
    """A notice for each quantile without an interval: how many values its rank is off by."""
    plan = table.plan
    for item in plan.analysis.release.aggregations if table.rows else ():
        place = plan.quantile_index(item)
        if place is None or item.interval_end or has_interval(plan, item):
            continue
        chosen, call = plan.quantiles[place], call_text(item)
        off = chosen.rows(CONFIDENCE)
        if chosen.public or not item.type.numeric or off < 1:
            continue
        where = "" if len(table.rows) == 1 else " of a group"
        yield (
            f"Between {call} and the true one lie at most {math.ceil(off):,} values{where}, with 95% probability. "
            f"DP_INTERVAL_LOW({call}) and DP_INTERVAL_HIGH({call}) beside it give an interval, for a part of the loss."
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


def _excluded(outer: OuterQuery) -> Iterator[str]:
    for call, keys in _calls(outer):
        name = call.function.name
        arguments = [
            keys.get(each.name, each) if isinstance(each, Released) else each for each in call.arguments
        ]
        constants = [each for each in arguments if isinstance(each, Literal)]
        for column in arguments if constants else ():
            if isinstance(column, Column):
                mirrored = name if column is arguments[0] else _MIRRORED.get(name, name)
                known = [each for each in dict.fromkeys(constants) if _comparable(each, column)]
                never = _never(column, mirrored, known)
                yield from (_why_never(call, column, constant) for constant in never[:_MOST_CONSTANTS])
                if len(never) > _MOST_CONSTANTS:
                    yield f"Likewise {len(never) - _MOST_CONSTANTS:,} more constants of {phrase(call)}."


def _comparable(constant: Literal, column: Column) -> bool:
    """Whether a constant is one of the column's type, and not NULL."""
    numbers = constant.type.numeric and column.type.numeric
    return constant.value is not None and (constant.type is column.type or numbers)


def _never(column: Column, name: str, constants: Sequence[Literal]) -> list[Literal]:
    """The constants with which a comparison of a column is the same whatever value the policy allows."""
    stated = column.facts
    if name in _EQUALITIES and stated.domain is not None:
        listed = frozenset(stated.domain)
        return [each for each in constants if each.value not in listed]
    if not stated.interval.bounded:
        return []
    low, high = stated.interval.ends
    found = []
    for each in constants:
        at = position(each.value)
        if at is None:
            continue
        beyond = {"lt": low >= at, "le": low > at, "gt": high <= at, "ge": high < at}
        if beyond.get(name, name in _EQUALITIES and not stated.interval.contains(at)):
            found.append(each)
    return found


def _why_never(call: Call, column: Column, constant: Literal) -> str:
    stated = column.facts
    if call.function.name in _EQUALITIES and stated.domain is not None:
        return _not_listed(constant, column, stated.domain)
    ends = "" if not stated.stored else ", and values beyond its bounds count as their ends"
    return f"{phrase(constant)} in {phrase(call)} is out of reach: {column} is in {stated.interval}{ends}."


def _not_listed(constant: Literal, column: Column, domain: tuple[Value, ...]) -> str:
    values = ", ".join(map(str, domain[:_LISTED])) + f", … ({len(domain):,} values)" * (len(domain) > _LISTED)
    near = get_close_matches(str(constant.value), map(str, domain), 1)
    return (
        f"{phrase(constant)} is none of the values that the policy lists for {column}, {values}; others count as NULL."
        + "".join(f" Did you mean {each}?" for each in near)
    )


def _calls(outer: OuterQuery) -> Iterator[tuple[Call, Mapping[str, Expr]]]:
    """Each call of a plan, once, with the expressions of the keys that its names mean above the boundary."""
    waiting: list[tuple[object, Mapping[str, Expr]]] = [(outer, {})]
    seen = set[tuple[int, int]]()
    while waiting:
        part, keys = waiting.pop()
        if (id(part), id(keys)) in seen:
            continue
        seen.add((id(part), id(keys)))
        if isinstance(part, Call):
            yield part, keys
        if isinstance(part, OuterQuery):
            keys = (
                {key.name: key.expr for key in part.source.keys} if isinstance(part.source, Release) else {}
            )
        waiting += [(child, keys) for child in reversed(children(part))]
