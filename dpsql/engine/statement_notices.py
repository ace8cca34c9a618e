"""Notices that follow from a statement and the policy: constants that never match, constant tests, rows without a unit.

Claim: a notice costs no privacy loss.
Why: it is a function of the statement and the policy.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.analysis.listed_keys import measures_presence
from dpsql.analysis.nullability import is_never_null
from dpsql.analysis.unit_identity import find_identity, find_injective_identity, list_finer_keys
from dpsql.engine.intervals.cells import compute_intervals
from dpsql.engine.postprocess.empty_groups import list_possibly_empty_rows, mark_occupied_groups
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, has_window
from dpsql.plan.interval import find_position, format_interval
from dpsql.plan.nodes import (
    Join,
    JoinKind,
    OuterQuery,
    PerUnitGroupBy,
    PublicSubquery,
    Release,
    SemiJoin,
    is_private,
    list_inputs,
)
from dpsql.plan.steps import list_children
from dpsql.plan.tables import Scan
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type, Value
from dpsql.planning.group_selection import OptimalPartitionSelection, TopKSelection
from dpsql.planning.measurement import MeasurementPlan
from dpsql.sql.lower.function_calls import is_widened, iterate_possible_values

_LISTED = 6
_MOST_CONSTANTS = 4
"""The most constants of a comparison of which a notice says why they never match: each is looked up among all values of a column."""
_QUESTIONS = {"isnan": "false", "isinf": "false", "isfinite": "true"}
_NULL_TESTS = ("is_null",)
_EQUALITIES = ("eq", "ne", "in", "is_distinct", "is_not_distinct")
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def describe_excluded_constants(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each constant that a column is compared with and, by the policy, never equals or reaches."""
    for call, keys in _iterate_calls(outer):
        name = call.function.name
        arguments = [
            keys.get(each.name, each) if isinstance(each, ReleasedColumn) else each for each in call.arguments
        ]
        constants = [each for each in arguments if isinstance(each, Literal)]
        for column in arguments if constants else ():
            if isinstance(column, Column):
                mirrored = name if column is arguments[0] else _MIRRORED.get(name, name)
                known = [each for each in dict.fromkeys(constants) if _is_comparable(each, column)]
                never = _list_unmatched_constants(column, mirrored, known)
                yield from (
                    _describe_unmatched_constant(call, column, constant)
                    for constant in never[:_MOST_CONSTANTS]
                )
                if len(never) > _MOST_CONSTANTS:
                    yield f"The same holds for {len(never) - _MOST_CONSTANTS:,} more constants of {format_expression(call)}."


def describe_constant_questions(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each test for NaN or infinities whose result is the same for every row."""
    for call, keys in _iterate_calls(outer):
        name = call.function.name
        column = call.arguments[0] if name in _QUESTIONS else None
        column = keys.get(column.name, column) if isinstance(column, ReleasedColumn) else column
        if not isinstance(column, Column) or not column.facts.is_stored:
            continue
        bounded = column.facts.interval.is_bounded
        if column.type is Type.DOUBLE and (bounded or name == "isnan"):
            how = ", infinities as the ends of its bounds" * bounded
            yield (
                f"{format_expression(call)} is {_QUESTIONS[name]} for every value: NaN in {column} is read as NULL{how}. "
                f"{column} IS NULL finds NaN and NULL alike."
            )


def describe_absent_ids(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each condition on rows without a unit's id, which belong to no privacy unit and are not read."""
    parts = [*iterate_plan_parts(outer)]
    # Behind a LEFT JOIN it is asked whether there is a partner.
    optional = {part.right.alias for part in parts if isinstance(part, Join) and part.kind is JoinKind.LEFT}
    units = {
        (part.alias, part.unit.column.name)
        for part in parts
        if isinstance(part, Scan) and part.unit.private and part.unit.column is not None
    }
    for call, _ in _iterate_calls(outer):
        for column in call.arguments if call.function.name in _NULL_TESTS else ():
            known = isinstance(column, Column) and (column.source, column.name) in units
            if isinstance(column, Column) and known and column.source not in optional:
                yield (
                    f"Rows whose {column} is NULL belong to no privacy unit and are not read: {format_expression(call)} is the same for "
                    "every row that is read."
                )


def describe_widened_values(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each selected key or aggregate of whole numbers that is released as a floating-point number."""
    for part in iterate_plan_parts(outer):
        if not isinstance(part, OuterQuery) or not isinstance(part.source, Release):
            continue
        selected = {
            value.name
            for output in part.outputs
            for value in iterate_possible_values(output.expr)
            if isinstance(value, ReleasedColumn)
        }
        keys = [(format_expression(key.expr), key.expr, key.name) for key in part.source.keys]
        calls = [
            (
                AGGREGATES[item.function].format_call(format_expression(item.argument)),
                item.argument,
                item.name,
            )
            for item in part.source.aggregations
            if item.argument is not None
            and item.type is Type.DOUBLE
            and AGGREGATES[item.function].result_type(Type.INTEGER) is Type.INTEGER
        ]
        for text, value, name in (*keys, *calls):
            if name in selected and is_widened(value):
                yield (
                    f"{text} is a floating-point number, 2.0 for 2, because it is computed from whole numbers without bounds in the policy, or "
                    "with too wide ones. Declare narrow bounds to get whole numbers."
                )


def iterate_plan_parts(outer: OuterQuery) -> Iterator[object]:
    """Yield each part of a plan once."""
    waiting: list[object] = [outer]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += list_children(part)


def _iterate_calls(outer: OuterQuery) -> Iterator[tuple[Call, Mapping[str, Expr]]]:
    """Yield each call of a plan once, with the expressions of the keys that its names mean above the privacy boundary."""
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
        waiting += [(child, keys) for child in reversed(list_children(part))]


def _is_comparable(constant: Literal, column: Column) -> bool:
    """Return whether a constant has the column's type, and is not NULL."""
    numbers = constant.type.numeric and column.type.numeric
    return constant.value is not None and (constant.type is column.type or numbers)


def _list_unmatched_constants(column: Column, name: str, constants: Sequence[Literal]) -> list[Literal]:
    """Return the constants with which a comparison of a column has the same result for each value that the policy allows."""
    stated = column.facts
    if name in _EQUALITIES and stated.domain is not None:
        listed = frozenset(stated.domain)
        return [each for each in constants if each.value not in listed]
    if not stated.interval.is_bounded:
        return []
    low, high = stated.interval.ends
    found = []
    for each in constants:
        at = find_position(each.value)
        if at is None:
            continue
        beyond = {"lt": low >= at, "le": low > at, "gt": high <= at, "ge": high < at}
        if beyond.get(name, name in _EQUALITIES and not stated.interval.contains(at)):
            found.append(each)
    return found


def _describe_unmatched_constant(call: Call, column: Column, constant: Literal) -> str:
    stated = column.facts
    if call.function.name in _EQUALITIES and stated.domain is not None:
        return _describe_unlisted_constant(constant, column, stated.domain)
    ends = "" if not stated.is_stored else ", and values beyond its bounds count as the nearest end"
    return f"{format_expression(constant)} in {format_expression(call)} is out of reach: {column} is in {format_interval(stated.interval, column.type)}{ends}."


def _describe_unlisted_constant(constant: Literal, column: Column, domain: tuple[Value, ...]) -> str:
    values = ", ".join(map(str, domain[:_LISTED])) + f", … ({len(domain):,} values)" * (len(domain) > _LISTED)
    near = get_close_matches(str(constant.value), map(str, domain), 1)
    return (
        f"{format_expression(constant)} is not among the values that the policy lists for {column}: {values}. Other values count as NULL."
        + "".join(f" Did you mean {each}?" for each in near)
    )


# Joins and groups within each privacy unit, where the policy declares that a key belongs to one unit.


_Pairs = list[tuple[Expr, Expr]]


def describe_unit_keys(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each key by which rows are joined or grouped within a unit, other than by the unit itself."""
    joined: set[str] = set()
    parts = list(_iterate_parts(outer))
    for part in parts:
        found = list_declared_pairs(_list_equal_pairs(part))
        names = " and ".join(dict.fromkeys(format_expression(ours) for ours, _ in found))
        if found and names not in joined:
            joined |= {names, " and ".join(dict.fromkeys(format_expression(theirs) for _, theirs in found))}
            yield (
                f"Rows of equal {names} are joined only within a unit, since the policy declares that they belong to one: "
                f"rows of different units are not joined, even where {names} is the same."
            )
    for part in parts:
        if isinstance(part, PerUnitGroupBy) and is_private(part):
            yield from _describe_grouping(part, joined)


def list_declared_pairs(pairs: _Pairs) -> _Pairs:
    """Return those of some pairs of equal values that are parts of a declared link, if none of the pairs tells the unit."""
    columns = [
        (ours, theirs) for ours, theirs in pairs if isinstance(ours, Column) and isinstance(theirs, Column)
    ]
    if any(
        ours.facts.identity is not None and ours.facts.identity == theirs.facts.identity
        for ours, theirs in columns
    ):
        return []
    return [(ours, theirs) for ours, theirs in columns if ours.facts.link_keys & theirs.facts.link_keys]


def _list_equal_pairs(part: object) -> _Pairs:
    """Return the pairs of values that are equal in a join of private rows."""
    if isinstance(part, Join) and is_private(part.right):
        return list(part.on)
    if isinstance(part, SemiJoin) and is_private(part.right):
        equal = (item for item in iterate_conjuncts(part.on) if item.function.name == "eq")
        return [(item.arguments[0], item.arguments[1]) for item in equal]
    return []


def _describe_grouping(groups: PerUnitGroupBy, joined: Iterable[str]) -> Iterator[str]:
    if any(find_identity(key, groups.input) is not None for key in groups.keys):
        return
    finer = list_finer_keys(groups.keys, groups.input)
    names = " and ".join(map(format_expression, finer))
    if not finer or names in joined:
        return
    nullable = [key for key in finer if not is_never_null(key, groups.input)]
    missing = (
        f"WHERE {' AND '.join(f'{format_expression(key)} IS NOT NULL' for key in nullable)} leaves them out"
    )
    if all(find_injective_identity(key, groups.input) is not None for key in finer):
        yield f"Rows in which {names} is NULL form a group per unit, where SQL has one group; {missing}."
        return
    yield (
        f"Groups of {names} are formed within each unit, since the policy declares that rows of one {names} belong to one "
        "unit: a value that several units have forms a group per unit"
        + (f", and so does NULL; {missing}." if nullable else ".")
    )


def _iterate_parts(part: object) -> Iterator[object]:
    """Yield the parts of a plan, each once."""
    waiting, seen = [part], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += reversed(list_children(found))


# Notices about groups: those that are withheld or may be empty, and what is computed from those that are shown.


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
