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
from statistics import median

from dpsql.aggregates import AGGREGATES
from dpsql.analysis.intervals import conditions, interval
from dpsql.analysis.listed_keys import measures_presence
from dpsql.engine.accuracy import noise_half_width
from dpsql.engine.within_units import within_units
from dpsql.plan.dependencies import children
from dpsql.plan.expr import Call, Column, Expr, Literal, Released, windowed
from dpsql.plan.interval import Interval, position
from dpsql.plan.nodes import Aggregation, OuterQuery, Release
from dpsql.plan.provenance import provenance
from dpsql.plan.render import phrase
from dpsql.plan.sampling import percent, sampling_rate
from dpsql.plan.types import Type, Value
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.partition_selection import OptimalPartitionSelection
from dpsql.planning.top_k import TopKSelection
from dpsql.postprocess.occupied_groups import may_have_no_rows, occupied
from dpsql.release import ReleasedTable
from dpsql.rendering import text
from dpsql.result import Result
from dpsql.uncertainty.cut_off import allowance, clamp_of

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
    """The notices that follow from the statement and the policy.

    There is one for each constant that a column is compared with and, as the policy states, never equals or reaches; and
    for each key by which rows are joined or grouped within a unit alone.
    """
    return tuple(dict.fromkeys((*_excluded(outer), *within_units(outer))))


def of_answer(outer: OuterQuery, tables: Sequence[ReleasedTable]) -> Callable[[Result], tuple[str, ...]]:
    """The notices of an answer that is computed from these released tables, when it is asked for them."""
    released, chosen = provenance(outer) is not None, _chooses(outer)
    return lambda result: (
        *of_statement(outer),
        *_answer(tables, result, released=released),
        *(notice for table in tables for notice in _known_groups(table, chosen=chosen)),
    )


def _chooses(outer: OuterQuery) -> bool:
    """Whether some rows are put out for their places in an order: by LIMIT or by windows, and not for their counts."""
    waiting: list[object] = [outer]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, Release):
            continue
        seen.add(id(part))
        if isinstance(part, OuterQuery) and part.having is None:
            shown = [output.expr for output in part.outputs] + (
                [] if part.qualify is None else [part.qualify]
            )
            if (part.order and part.limit is not None) or any(map(windowed, shown)):
                return True
        waiting += children(part)
    return False


def _known_groups(table: ReleasedTable, *, chosen: bool) -> Iterator[str]:
    """Notices that groups without rows are shown, or take part in an order, since their keys are public."""
    analysis = table.plan.analysis
    if analysis.free and not analysis.release.all_public_rows and table.rows:
        yield (
            f"All {len(table.rows):,} groups are of values that are listed, or within bounds: nothing is measured, and some may "
            "have no rows. A condition, or COUNT(*) beside them, says which."
        )
    elif analysis.release.top is not None:
        yield (
            "The best are chosen among all groups that are listed, or within bounds, and groups without rows may be among them: "
            "COUNT(*) beside them shows how many rows each has."
        )
    elif chosen and not measures_presence(analysis.release):
        empty = len(may_have_no_rows(table.plan, table))
        if empty:
            yield (
                f"{empty:,} of the {len(table.rows):,} groups that are put in order may have no rows, by their noisy counts: "
                "HAVING COUNT(*) > 0 leaves out those whose count is not above 0."
            )


def _answer(tables: Sequence[ReleasedTable], result: Result, *, released: bool) -> Iterator[str]:
    for number, table in enumerate(tables, 1):
        plan = table.plan
        if plan.selection is not None and not table.rows:
            yield _nothing_selected(plan, f" of release {number}" * (len(tables) > 1))
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
        "delta, fewer groups of a unit (max_groups) or larger groups help; keys whose values the policy lists are all shown. "
        "Where each key is one unit's, none of this helps: group by it in a subquery, with the unit, and aggregate its rows."
    )


def _left_out(table: ReleasedTable) -> Iterator[str]:
    """A notice if groups whose keys follow from bounds are left out, since they may be empty."""
    keys = len(table.plan.analysis.release.keys)
    holds = occupied(table.plan, table)
    if measures_presence(table.plan.analysis.release):
        missing = len(holds) - sum(holds)
        if missing:
            yield (
                f"{missing:,} of {len(holds):,} groups are not shown: by their noisy counts of units, they may have no rows. A query "
                "with COUNT(*) shows all groups that the policy lists."
            )
        return
    missing = sum(not holds[place] for place, row in enumerate(table.rows) if None not in row[:keys])
    if missing:
        yield (
            f"{missing:,} of {len(holds):,} groups are left out: their keys follow from bounds, and, by their noisy counts, they "
            "may be empty. Groups whose keys the policy, or a condition with IN, lists are all shown."
        )


def _mostly_noise(result: Result) -> Iterator[str]:
    """A notice for each column of which most cells have a 95% interval with a half-width above the value."""
    intervals = result.intervals(CONFIDENCE)
    for place, name in enumerate(result.columns):
        cells = [
            (value if isinstance(value, int) else float(value), (ends[1] - ends[0]) / 2)
            for row, found in zip(result.rows, intervals, strict=True)
            for value, ends in [(row[place], found[place])]
            if ends is not None and isinstance(value, (int, float, Decimal))
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
        allowed = max(allowance(plan, item, groups, CONFIDENCE))
        values = [abs(value) for row in table.rows if isinstance(value := row[place], (int, float))]
        if not values or allowed <= max(noise, _MATTERS * float(median(values))):
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
            f"chosen privately, and what is beyond it is not counted; the 95% interval allows for {text(allowed)} more. "
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
