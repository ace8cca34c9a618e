"""HISTOGRAM(x, [b1, b2, …]) and HISTOGRAM(x) of all units or of each group: the number of rows in each bin, as one map.

Claim: it is the plan of SELECT k, bin, COUNT(*) … GROUP BY k, bin over groups and bins that are all public, without rows that
fall into no bin. It is as private as that query, and is charged as one release of the statement.
Why: this module builds the release of that query, which later stages analyze, charge and verify like any other. The map that
is built from its rows takes the place of a scalar subquery's value in the statement, and each group takes its own part of the
map.
Source: Dwork, McSherry, Nissim, Smith 2006, section 3.2 (histograms).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Function,
    Literal,
    ReleasedColumn,
    Scalar,
    iterate_columns,
)
from dpsql.plan.interval import find_position
from dpsql.plan.nodes import Aggregation, Key, OuterQuery, Output, Release, iterate_sources
from dpsql.plan.types import Type, Value
from dpsql.sql.lower.aggregates.base import AggregateCall, CallForm, ReleasedGroups, refuses
from dpsql.sql.lower.aggregates.quantiles import LIST
from dpsql.sql.lower.constants import parse_moment
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.statement_context import PublicValuesRequirement
from dpsql.sql.parse.dialect import ADDED_NODES
from dpsql.sql.parse.rejection import QueryText

MOST_BINS = 300
MOST_CELLS = 10_000
"""Bins of all groups together."""
GREATEST: dict[Type, Value] = {
    Type.INTEGER: 2**63 - 1,
    Type.DOUBLE: math.inf,
    Type.DATE: dt.date.max,
    Type.TIMESTAMP: dt.datetime.max,  # noqa: DTZ901  (SQL timestamps have no zone)
}
"""The name of the bin above all boundaries, as in DuckDB."""
_MAP = Function(
    "map",
    "MAP {x: n, …}",
    lambda _: Type.LIST,
    "MAP(LIST({0} ORDER BY {0}), LIST({1} ORDER BY {0}))",
    "no value is computed, and no key comes twice",
)
"""All rows of a released table as one value, which is the only output of its query."""
_PART = Function(
    "histogram_of_group",
    "the part of the group in HISTOGRAM",
    lambda _: Type.LIST,
    "CASE WHEN {1} IS NULL THEN MAP({2}, LIST_TRANSFORM({2}, lambda bin: 0)) "
    "ELSE MAP({2}, LIST_SLICE(MAP_VALUES({0}), {1} * LEN({2}) + 1, ({1} + 1) * LEN({2}))) END",
    "no value is computed, and the bins are distinct",
)
"""The cells of the group with this number, by their bins, out of the numbered cells of all groups.

A group without a number has no row in any bin, whatever the data are, since none of its rows has a value.
"""
_COUNTED = "count rows by bin: SELECT k, bin, COUNT(*) … GROUP BY k, bin"
_MOMENTS = {Type.DATE: dt.date, Type.TIMESTAMP: dt.datetime}


def lower_histogram(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Return the map of a HISTOGRAM over the rows of a SELECT, or over those of each of its groups.

    Its groups must be public, and so must its values where there are no bins. The map is built once they are known.
    Raises QueryRejected for bins that are not increasing constants of the argument's type.
    """
    text = over.source
    argument, bins = _take_arguments(text, node)
    value = over.lower_argument(argument)
    _check_keys(over, node)
    ends = None if bins is None else [*_iterate_bin_ends(over, node, bins, value)]
    by = (*over.keys, value if ends is None else _build_bin_end(over, node, value, ends))
    keys = tuple(Key(f"k{index}", expr) for index, expr in enumerate(by))
    rows = Aggregation("a0", "count_rows", None, Type.INTEGER)
    rows_with_value = build_filter(over.input, [_build_presence(over, argument, value)])
    release = Release(rows_with_value, keys, (rows,), over.scope.context.max_groups)

    grouped = len(keys) > 1

    def refuse() -> NoReturn:
        text.refuse(
            node,
            "group_by",
            f"HISTOGRAM needs bins, or at most {MOST_BINS} public values of which none is hidden for "
            "being rare" + ", and public groups" * grouped,
            _COUNTED
            if grouped
            else (
                "list the bins, HISTOGRAM(x, [10, 20]); or let the policy list the values; or write "
                "SELECT x, COUNT(*) … GROUP BY x"
            ),
        )

    def build_map(domains: Sequence[Sequence[Value]]) -> Expr:
        *groups, found = domains
        bins = [value for value in found if value is not None]
        if not 0 < len(bins) <= MOST_BINS + 1:
            refuse()
        if math.prod(map(len, groups)) * len(bins) > MOST_CELLS:
            text.refuse(
                node,
                "too_long",
                f"HISTOGRAM takes at most {MOST_CELLS:,} bins in all groups together",
                _COUNTED,
            )
        return _build_histogram_value(over, node, release, groups, bins)

    if value.type is Type.NULL:
        refuse()
    counts = Output("histogram", ReleasedColumn(rows.name, rows.type))
    placeholder = Scalar(OuterQuery(release, (counts,)), Type.LIST)
    over.scope.context.requirements.append(PublicValuesRequirement(release, refuse, placeholder, build_map))
    return placeholder


def _take_arguments(text: QueryText, node: exp.AggFunc) -> tuple[exp.Expr, exp.Expr | None]:
    """Return the argument of a HISTOGRAM and its list of bins, if there is one."""
    argument, bins = text.take_arguments(node, "this", "expression")
    if argument is None:
        text.refuse(node, "syntax", "HISTOGRAM(x, [b1, b2, …]): x is missing")
    if type(argument) is exp.Distinct:
        text.refuse(node, "distinct", "HISTOGRAM(DISTINCT …) is not supported")
    if argument.find(exp.Query):
        text.refuse(
            argument, "subquery", "HISTOGRAM takes one column or expression, without a subquery", _COUNTED
        )
    return argument, bins


def _build_presence(over: ReleasedGroups, node: exp.Expr, value: Expr) -> Expr:
    """Return the condition that a row has a value that is counted: neither NULL nor NaN."""
    scalars = over.scope.scalars
    there = scalars.build_call(node, "not", scalars.build_call(node, "is_null", value))
    if value.type is not Type.DOUBLE:
        return there
    finite = scalars.build_call(node, "not", scalars.build_call(node, "isnan", value))
    return scalars.build_call(node, "and", there, finite)


def _check_keys(over: ReleasedGroups, node: exp.Expr) -> None:
    known = {source.alias for source in iterate_sources(over.input)}
    if any(column.source not in known for key in over.keys for column in iterate_columns(key)):
        over.source.refuse(
            node,
            "subquery",
            "HISTOGRAM cannot be grouped by a subquery's value for each row",
            _COUNTED,
        )


def _build_histogram_value(
    over: ReleasedGroups,
    node: exp.Expr,
    release: Release,
    groups: Sequence[Sequence[Value]],
    bins: Sequence[Value],
) -> Expr:
    """Build the map of the `bins`, or in groups of these keys the part of each group, from their counts."""
    scalars, (rows,) = over.scope.scalars, release.aggregations
    *outer, key = (ReleasedColumn(key.name, key.expr.type) for key in release.keys)
    # Of a computed day the domain may hold NULL, which is no key of a map.
    keyed = scalars.build_call(node, "not", scalars.build_call(node, "is_null", key))
    number: Expr | None = None
    for place, values in zip(outer, groups, strict=True):
        number = _build_cell_number(over, node, number, place, values)
    cell: Expr = key if number is None else _build_cell_number(over, node, number, key, bins)
    counts = Call(_MAP, (cell, ReleasedColumn(rows.name, rows.type)), Type.LIST)
    whole = Scalar(OuterQuery(release, (Output("histogram", counts),), having=keyed), Type.LIST)
    if number is None:
        return whole
    listed = Call(LIST, tuple(Literal(end, key.type) for end in bins), Type.LIST)
    return Call(_PART, (whole, number, listed), Type.LIST)


def _build_cell_number(
    over: ReleasedGroups, node: exp.Expr, before: Expr | None, key: Expr, values: Sequence[Value]
) -> Expr:
    """Build the index of a key among its values; after `before`, the index of earlier keys, that of both together; NULL for other keys."""
    scalars, parts = over.scope.scalars, []
    for index, value in enumerate(values):
        known = Literal(value, key.type)
        same = (
            scalars.build_call(node, "is_null", key)
            if value is None
            else scalars.build_call(node, "eq", key, known)
        )
        parts += [same, Literal(index, Type.INTEGER)]
    none = Literal(None, Type.INTEGER)
    place = scalars.build_call(node, "case", *parts, none) if parts else none
    if before is None:
        return place
    rest = scalars.build_call(node, "multiply", before, Literal(len(values), Type.INTEGER))
    return scalars.build_call(node, "add", rest, place)


def _build_bin_end(over: ReleasedGroups, node: exp.Expr, value: Expr, ends: Sequence[Value]) -> Expr:
    """Build the end of a row's bin: the first that the value does not pass."""
    scalars, parts = over.scope.scalars, []
    # One bin as well: a constant is no key.
    for end in (Literal(end, value.type) for end in ends[:-1] or ends):
        parts += [scalars.build_call(node, "le", value, end), end]
    return scalars.build_call(node, "case", *parts, Literal(ends[-1], value.type))


def _iterate_bin_ends(
    over: ReleasedGroups, node: exp.AggFunc, bins: exp.Expr, value: Expr
) -> Iterator[Value]:
    """Yield the upper ends of all bins: those of the query, and the greatest value of the type if one may lie above."""
    text = over.source
    if value.type not in GREATEST:
        text.refuse(node, "type", f"HISTOGRAM takes numbers, dates and timestamps, not {value.type}")
    items = text.take_arguments(bins, "expressions")[0] if type(bins) is exp.Array else ()
    if not items:
        text.refuse(node, "syntax", "HISTOGRAM takes a list of constants", "write HISTOGRAM(x, [10, 20])")
    if len(items) > MOST_BINS:
        text.refuse(node, "too_long", f"HISTOGRAM takes at most {MOST_BINS} bins")
    ends = [_lower_bin_end(over, item, value.type) for item in items]
    places = [find_position(end) for end in ends]
    above = find_position(GREATEST[value.type])
    ordered = all(a is not None and b is not None and a < b for a, b in pairwise(places))
    if not ordered or places[-1] is None:
        text.refuse(bins, "constant", "the ends of the bins must be finite and ascending")
    if above is not None and not places[-1] < above:
        text.refuse(
            bins,
            "constant",
            f"the last end must be below the greatest {value.type}",
            "leave out the last end",
        )
    yield from ends
    most = derive_interval(value, derive_known_intervals(over.input)).high
    exact = value.type is not Type.DOUBLE or (isinstance(value, Column) and value.facts.is_stored)
    if not exact or most is None or most > places[-1]:
        yield GREATEST[value.type]


def _lower_bin_end(over: ReleasedGroups, node: exp.Expr, kind: Type) -> Value:
    """Return the end of a bin as a value of the type."""
    found = over.scope.scalars.lower(node)
    value = found.value if isinstance(found, Literal) else None
    if kind.temporal and isinstance(value, str):
        return parse_moment(over.source, node, kind, value).value
    if kind is Type.TIMESTAMP and type(value) is dt.date:
        return dt.datetime.combine(value, dt.time())
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is Type.DOUBLE and number:
        return float(value) + 0.0  # type: ignore[arg-type]  # one sign for zero
    if kind is Type.INTEGER and number and math.isfinite(value) and value == int(value):  # type: ignore[arg-type]
        return int(value)  # type: ignore[arg-type]
    if type(value) is not _MOMENTS.get(kind):
        over.source.refuse(node, "constant", f"the end of a bin must be a constant {kind} here")
    return value


HISTOGRAM = AggregateCall(
    forms=(CallForm("HISTOGRAM", ("HISTOGRAM",), "({x}, [10, 20])"),),
    nodes=(ADDED_NODES["HISTOGRAM"],),
    signature="HISTOGRAM(x, [b1, b2, …])",
    says=(
        "The number of rows in each bin, as a map; without bins, the number of rows with each public value."
    ),
    arity=(1, 2),
    across=lower_histogram,
    within=refuses(
        "released_only",
        "HISTOGRAM is only supported across privacy units",
        "count rows by bin: SELECT bin, COUNT(*) … GROUP BY bin",
    ),
    separate=True,
    accepted=(
        "SELECT HISTOGRAM(cost, [10, 100]), HISTOGRAM(plan) FROM visits",
        "SELECT plan, HISTOGRAM(age, [40]) FILTER (WHERE cost > 10) FROM visits GROUP BY plan",
    ),
    refused={
        "SELECT HISTOGRAM(DISTINCT plan) FROM visits": "distinct",
        "SELECT HISTOGRAM(note) FROM visits": "group_by",
        "SELECT HISTOGRAM(age, [2, 1]) FROM visits": "constant",
        "SELECT COUNT(h) FROM (SELECT HISTOGRAM(age, [40]) AS h FROM visits GROUP BY patient_id)": "released_only",
    },
)
