"""Lower window functions over released or public rows, or over those of a unit, with named windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from dpsql.analysis.domains import derive_domain
from dpsql.analysis.intervals import MAX_MAGNITUDE, derive_interval
from dpsql.analysis.nullability import is_never_null
from dpsql.analysis.number_types import find_decimal_digits, find_scale, is_float
from dpsql.analysis.stability import bound_rows
from dpsql.analysis.unit_identity import find_identity
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.aggregates.windows import OVER, WindowFunction
from dpsql.plan.expressions import (
    Column,
    ColumnInfo,
    Expr,
    Frame,
    FrameKind,
    Literal,
    Order,
    WindowCall,
    has_window,
    iterate_columns,
    replace_parts,
    walk,
)
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.nodes import PerUnitWindows, Relation, iterate_sources, list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS
from dpsql.sql.lower.aggregates.base import build_conditional_value
from dpsql.sql.lower.derived_tables import derive_column_info, make_unique_names
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.statement_context import CrossingWindow, StatementContext
from dpsql.sql.parse.rejection import QueryText, format_sql

_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist",
    exp.Ntile: "ntile",
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
    exp.NthValue: "nth_value",
}
_AGGREGATES = {
    node: entry.names[0].lower() for entry in AGGREGATE_CALLS if entry.window for node in entry.nodes
}
_EXCLUDED = ("CURRENT ROW", "GROUP", "TIES", "NO OTHERS")
_MOST = 10**6
"""The largest offset of a frame or of LAG."""


class _WindowedSelect(Protocol):
    """The interface of the SELECT around a window."""

    select: exp.Select | exp.SetOperation
    scope: Scope

    @property
    def window_rows(self) -> Relation:
        """Return the rows or groups that windows are laid on."""
        ...

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""
        ...

    @property
    def group_scalars(self) -> Scalars:
        """Lower expressions over the groups."""
        ...

    @property
    def is_public_output(self) -> bool:
        """Return whether its rows are released or public."""
        ...


@dataclass(frozen=True, slots=True)
class _WindowDefinition:
    """The parts of a window, as nodes."""

    partition: tuple[exp.Expr, ...]
    order: exp.Expr | None
    frame: exp.Expr | None


def lower_window(grouping: _WindowedSelect, node: exp.Window) -> WindowCall:
    """Lower a window function. Raises QueryRejected."""
    text = grouping.source
    called, *_ = text.take_arguments(node, "this", "partition_by", "order", "spec", "alias", over=("OVER",))
    defined = _resolve_definition(grouping, node)
    partition = tuple(_lower_row_expression(grouping, part) for part in defined.partition)
    if not grouping.is_public_output:
        order = _lower_order(grouping, defined)
        nullable = not all(is_never_null(item.expr, grouping.window_rows) for item in order)
        crossing = CrossingWindow(node, defined.partition, defined.order, defined.frame, nullable)
        check_partition(grouping.scope, crossing, partition, grouping.window_rows)
    entry, arguments, ignores = _lower_called_function(grouping, called)
    result = entry.result(tuple(argument.type for argument in arguments))
    if result is None:
        given = ", ".join(str(argument.type) for argument in arguments)
        text.refuse(node, "type", f"{entry.signature} does not take ({given})")
    _check_counts(grouping, called, entry, arguments)
    frame = None if defined.frame is None else _lower_frame(grouping, defined.frame)
    found = WindowCall(
        entry.name, arguments, partition, _lower_order(grouping, defined), frame, ignores, result
    )
    if not grouping.is_public_output:
        check_window(text, node, found)
    return found


def check_named_windows(grouping: _WindowedSelect) -> None:
    """Refuse invalid windows that WINDOW defines, even if nothing uses them."""
    for _, node in _list_named_windows(grouping):
        defined = _resolve_definition(grouping, node)
        for part in defined.partition:
            _lower_row_expression(grouping, part)
        _lower_order(grouping, defined)
        if defined.frame is not None:
            _lower_frame(grouping, defined.frame)


def _lower_called_function(
    grouping: _WindowedSelect, node: exp.Expr
) -> tuple[WindowFunction, tuple[Expr, ...], bool]:
    """Return the entry, its arguments, and whether NULLs are passed over."""
    text, ignores = grouping.source, False
    if type(node) in (exp.IgnoreNulls, exp.RespectNulls):
        ignores = type(node) is exp.IgnoreNulls
        (node,) = text.take_arguments(node, "this")
    condition = None
    if type(node) is exp.Filter:
        node, where = text.take_arguments(node, "this", "expression")
        (condition,) = text.take_arguments(where, "this")
    name = _FUNCTIONS.get(type(node)) or _AGGREGATES.get(type(node), "")
    entry = OVER.get(name)
    if entry is None:
        known = ", ".join(known.signature for known in OVER.values())
        text.refuse(
            node,
            "aggregate",
            f"{grouping.source.get_function_name(node)} is not supported over a window",
            f"there are: {known}",
        )
    if condition is not None and type(node) not in _AGGREGATES:
        text.refuse(
            node, "aggregate", f"FILTER is only allowed after an aggregate, not after {entry.signature}"
        )
    if ignores and not entry.supports_ignore_nulls:
        text.refuse(node, "aggregate", f"IGNORE NULLS is not allowed after {entry.signature}")
    nodes = text.take_arguments(node, "this", "offset", "default", big_int=(True,))
    if type(nodes[0]) is exp.Distinct:
        text.refuse(node, "distinct", f"{entry.name.upper()}(DISTINCT …) is not supported over a window")
    if type(node) is exp.Count and type(nodes[0]) is exp.Star:
        text.take_arguments(nodes[0])
        nodes = []
    return entry, _lower_arguments(grouping, [part for part in nodes if part is not None], condition), ignores


def _lower_arguments(
    grouping: _WindowedSelect, nodes: list[exp.Expr], condition: exp.Expr | None
) -> tuple[Expr, ...]:
    """Lower the arguments; FILTER makes them NULL unless its condition is true."""
    if condition is None:
        return tuple(_lower_row_expression(grouping, node) for node in nodes)
    value = nodes[0] if nodes else exp.Literal.number(1)
    return (_lower_row_expression(grouping, build_conditional_value(condition, value)),)


def _check_counts(
    grouping: _WindowedSelect, node: exp.Expr, entry: WindowFunction, arguments: tuple[Expr, ...]
) -> None:
    for place, least in entry.least_constants:
        given = arguments[place] if place < len(arguments) else None
        constant = isinstance(given, Literal) and type(given.value) is int and given.value
        if given is not None and (constant is False or not least <= constant <= _MOST):
            grouping.source.refuse(
                node, "constant", f"{entry.signature}: n is a constant from {least} to {_MOST:,}"
            )


def _lower_row_expression(grouping: _WindowedSelect, node: exp.Expr) -> Expr:
    """Return an expression over the rows that a window is laid on."""
    expr = grouping.group_scalars.lower(node)
    if has_window(expr):
        grouping.source.refuse(
            node,
            "nested_aggregate",
            "a window function cannot contain another window function",
            "compute the inner one in a subquery",
        )
    return expr


def _resolve_definition(grouping: _WindowedSelect, node: exp.Expr, depth: int = 0) -> _WindowDefinition:
    """Return the parts of a window, those of the one that it builds on among them."""
    text = grouping.source
    _, partition, order, frame, base = text.take_arguments(
        node, "this", "partition_by", "order", "spec", "alias", over=("OVER",)
    )
    own = _WindowDefinition(tuple(partition or ()), order, frame)
    if base is None:
        return own
    named, name = _list_named_windows(grouping), _take_folded_name(grouping, base)
    found = [defined for known_as, defined in named if known_as == name]
    if not found:
        text.refuse(
            base, "column", f"WINDOW defines no window {name}", f"define it: WINDOW {name} AS (ORDER BY …)"
        )
    if len(found) > 1 or depth > len(named):
        said = "twice" if len(found) > 1 else "by itself"
        text.refuse(base, "ambiguous", f"the window {name} is defined {said}", "give each a name of its own")
    before = _resolve_definition(grouping, found[0], depth + 1)
    if own.partition or (own.order is not None and before.order is not None):
        text.refuse(node, "ambiguous", f"the window {name} already has this clause")
    if before.frame is not None and (own.order is not None or own.frame is not None):
        text.refuse(node, "ambiguous", f"the window {name} has a frame, so it cannot be extended")
    return _WindowDefinition(before.partition, own.order or before.order, own.frame or before.frame)


def _list_named_windows(grouping: _WindowedSelect) -> list[tuple[str, exp.Expr]]:
    """List the windows that WINDOW defines, with their folded names."""
    named: list[tuple[str, exp.Expr]] = []
    for node in grouping.select.args.get("windows") or ():
        if type(node) is not exp.Window:
            grouping.source.refuse(node, "clause", "WINDOW must define windows: WINDOW w AS (ORDER BY …)")
        named.append((_take_folded_name(grouping, node.this), node))
    return named


def _take_folded_name(grouping: _WindowedSelect, identifier: exp.Expr) -> str:
    return normalize_name(str(grouping.source.take_arguments(identifier, "this", quoted=(True,))[0]))


def _lower_order(grouping: _WindowedSelect, defined: _WindowDefinition) -> tuple[Order, ...]:
    if defined.order is None:
        return ()
    (nodes,) = grouping.source.take_arguments(defined.order, "expressions")
    items = []
    for node in nodes:
        inner, descending, nulls_first = grouping.source.take_arguments(node, "this", "desc", "nulls_first")
        items.append(Order(_lower_row_expression(grouping, inner), bool(descending), bool(nulls_first)))
    return tuple(items)


def _lower_frame(grouping: _WindowedSelect, node: exp.Expr) -> Frame:
    text = grouping.source
    *said, exclude = text.take_arguments(node, "kind", "start", "start_side", "end", "end_side", "exclude")
    kind, start, start_side, end, end_side = (
        word.upper() if isinstance(word, str) else word for word in said
    )
    excluded = "" if exclude is None else str(text.take_arguments(exclude, "this")[0]).upper()
    if kind not in FrameKind.__members__ or excluded not in ("", *_EXCLUDED):
        text.refuse(node, "clause", "a frame must be ROWS, RANGE or GROUPS")
    first = _lower_frame_end(grouping, node, start, start_side, kind)
    last = 0 if end is None else _lower_frame_end(grouping, node, end, end_side, kind)
    turned = (start, start_side) == ("UNBOUNDED", "FOLLOWING") or (end, end_side) == (
        "UNBOUNDED",
        "PRECEDING",
    )
    if turned or (first is not None and last is not None and first > last):
        text.refuse(node, "constant", "a frame must begin before it ends")
    return Frame(FrameKind[kind], first, last, excluded)


def _lower_frame_end(
    grouping: _WindowedSelect, node: exp.Expr, end: object, side: str | None, kind: str
) -> int | None:
    """Return how far an end is from the current row, None for the partition's."""
    if end == "CURRENT ROW":
        return 0
    if end == "UNBOUNDED":
        return None
    value = grouping.group_scalars.lower(end) if isinstance(end, exp.Expr) else None
    if kind == "RANGE":
        grouping.source.refuse(
            node,
            "clause",
            "a RANGE frame may only be bounded by UNBOUNDED and CURRENT ROW",
            "write a frame of rows: ROWS BETWEEN …",
        )
    if not isinstance(value, Literal) or type(value.value) is not int or not 0 <= value.value <= _MOST:
        grouping.source.refuse(
            node, "constant", f"a frame may only name a constant number of rows, up to {_MOST:,}"
        )
    return -value.value if side == "PRECEDING" else value.value


# Lower window functions over private rows: each window holds rows of one privacy unit.


_NUMBERED = frozenset({"row_number", "rank", "dense_rank"})
_SHARES = frozenset({"percent_rank", "cume_dist"})
_CHOSEN = frozenset({"first_value", "last_value", "nth_value"})
_ALWAYS = _NUMBERED | _SHARES | {"ntile", "count"}
"""Functions that are never NULL."""


_RANKING = frozenset({exp.RowNumber, exp.CumeDist, exp.PercentRank, exp.Ntile})
"""Window functions by which percentiles and their parts are computed."""


def check_partition(
    scope: Scope, window: CrossingWindow, partition: Iterable[Expr], relation: Relation
) -> None:
    """Refuse a window over private rows whose partition does not identify the unit."""
    node = window.node
    rows = any(scan.unit.kind is UnitKind.ROW for scan in list_private_scans(relation))
    if not rows and any(find_identity(part, relation) is not None for part in partition):
        return
    reason = "a window over private rows would compare the rows of one privacy unit with those of others"
    scope.context.crossing_windows.append(window)
    ordered, called = node.args.get("order"), type(node.this)
    if ordered is not None and called in _RANKING:
        value = format_sql(ordered.expressions[0].this)
        scope.source.refuse(
            node,
            "private_window",
            reason,
            f"number the parts by one value, without a tie-break, in at most 100 parts: NTILE(4) OVER (ORDER BY {value})"
            if called is exp.Ntile
            else f"for a percentile, write QUANTILE_CONT({value}, 0.5)"
            if rows
            else f"for a percentile, write QUANTILE_CONT({value}, 0.5); for ranks within each unit, "
            f"OVER (PARTITION BY {_describe_unit(scope, relation)} …)",
        )
    scope.source.refuse(
        node,
        "private_window",
        reason,
        "each row is a privacy unit here, so aggregate first: SELECT …, RANK() OVER (…) FROM "
        "(SELECT …, COUNT(*) … GROUP BY …)"
        if rows
        else (
            f"compute it within each unit: OVER (PARTITION BY {_describe_unit(scope, relation)} …); "
            "or aggregate first: SELECT …, RANK() OVER (…) FROM (SELECT …, COUNT(*) … GROUP BY …)"
        ),
    )


def _describe_unit(scope: Scope, relation: Relation) -> str:
    """Return the column to write for the unit of the rows."""
    named = [column for table in scope.tables.values() for column in table.columns.values()]
    known = {source.alias for source in iterate_sources(relation)}
    there = [
        column for column in named if column.source in known and find_identity(column, relation) is not None
    ]
    found = sorted(there, key=lambda column: not column.facts.is_unit)
    found += [column for column in named if column.facts.is_unit]
    if not found:
        return "the unit's id"
    alike = [column for column in named if column.name == found[0].name]
    return found[0].name if len(alike) == 1 else f"{found[0].source}.{found[0].name}"


def check_window(source: QueryText, node: exp.Expr, window: WindowCall) -> None:
    """Refuse a window over a unit's rows whose value would depend on where these are stored, or has no bounds."""
    frame, whole = window.frame, window.frame is None and not window.order
    by_rows = frame is not None and frame.kind is FrameKind.ROWS
    if frame is not None and by_rows and frame.exclude in ("GROUP", "TIES"):
        source.refuse(
            node,
            "private_window",
            f"EXCLUDE {frame.exclude} is not allowed in a frame of ROWS over private rows",
        )
    if window.function in _CHOSEN and not by_rows and not whole:
        all_rows = frame is not None and (frame.first, frame.last, frame.exclude) == (None, None, "")
        first = window.function == "first_value" and not window.ignore_nulls
        from_start = frame is None or (frame.first is None and not frame.exclude and frame.last in (0, None))
        if not all_rows and not (first and from_start):
            source.refuse(
                node,
                "private_window",
                f"{window.function.upper()} could return any of several equal rows",
                "add a frame of rows: ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            )
    added = window.function in WITHIN and WITHIN[window.function].is_sum
    if not added:
        return
    (argument,) = window.arguments
    around = derive_interval(argument)
    if argument.type is Type.DOUBLE and not around.is_within(MAX_MAGNITUDE):
        source.refuse(
            node,
            "unbounded",
            f"{format_expression(argument)} has no bounds: it may be anything in {around}, so it cannot be added up exactly",
            "clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
        )


def build_unit_windows(
    context: StatementContext, node: exp.Expr, relation: Relation, exprs: Iterable[Expr]
) -> tuple[PerUnitWindows, list[Expr]]:
    """Build the rows with all windows of some expressions over them, and these over its columns.

    Claim: each row with its window values depends only on rows of its own unit, and each unit keeps its number of rows.
    Why: PARTITION BY identifies the unit, and the emitted SQL also partitions by the unit. Rows that are equal in ORDER BY are
    ordered by their own values, never by the place where they are stored.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
    """
    given = list(exprs)
    parts = [part for expr in given for part in walk(expr)]
    windows = list(dict.fromkeys(part for part in parts if isinstance(part, WindowCall)))
    read = list(dict.fromkeys(column for expr in given for column in iterate_columns(expr)))
    alias = context.allocate_alias(node)
    # The element of a list has a name that no derived table may have.
    names = make_unique_names(
        [*(column.name.lstrip("#") or "x" for column in read), *(window.function for window in windows)]
    )
    named: dict[Expr, Expr] = {
        column: Column(alias, name, derive_column_info(column, relation))
        for name, column in zip(names, read, strict=False)
    }
    over = [part for window in windows if isinstance(part := replace_parts(window, named), WindowCall)]
    rows = bound_rows(relation, context.facts)
    found = [
        Column(alias, name, _derive_window_info(window, rows))
        for name, window in zip(names[len(read) :], over, strict=True)
    ]
    items = [column for column in named.values() if isinstance(column, Column)]
    result = PerUnitWindows(relation, alias, tuple(read), tuple(over), (*items, *found))
    named |= dict(zip(windows, found, strict=True))
    return result, [replace_parts(expr, named) for expr in given]


def _derive_window_info(window: WindowCall, rows: int) -> ColumnInfo:
    """Derive the facts of a window's value; `rows` is the most rows of a unit."""
    return ColumnInfo(
        window.type,
        "",
        _derive_window_interval(window, rows),
        _derive_window_domain(window),
        nullable=window.function not in _ALWAYS,
        scale=find_scale(window),
        widened=is_widened(window),
        decimal=find_decimal_digits(window),
        float32=is_float(window),
    )


def _derive_window_interval(window: WindowCall, rows: int) -> Interval:
    around = [derive_interval(argument) for argument in window.arguments]
    match window.function:
        case name if name in _NUMBERED:
            return Interval(1, max(1, rows))
        case name if name in _SHARES:
            return Interval(0, 1)
        case "ntile":
            return Interval(1, around[0].high)
        case "count":
            return Interval(0, rows)
        case name if name in WITHIN:
            return WITHIN[name].interval(around[0], rows)
        case "lag" | "lead":
            return merge_intervals(
                [
                    around[0],
                    *(
                        end
                        for end, arg in zip(around[2:], window.arguments[2:], strict=True)
                        if not _is_null_constant(arg)
                    ),
                ]
            )
        case _:
            return around[0]


def _derive_window_domain(window: WindowCall) -> tuple[Value, ...] | None:
    """Derive the values that a window can have, where it shows one that some row has."""
    if window.function in _ALWAYS or (window.function in WITHIN and WITHIN[window.function].is_sum):
        return None
    arguments = [window.arguments[0]]
    if window.function in ("lag", "lead"):
        arguments += [argument for argument in window.arguments[2:] if not _is_null_constant(argument)]
    found = [derive_domain(argument, {}) for argument in arguments]
    if any(argument.type is not window.type for argument in arguments) or None in found:
        return None
    values = (value for each in found for value in each or () if value is not None)
    return tuple(dict.fromkeys(values))


def _is_null_constant(argument: Expr) -> bool:
    return isinstance(argument, Literal) and argument.value is None
