"""Lower window functions over released or public rows, or over those of a unit, with named windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from dpsql.plan.aggregates.windows import OVER, WindowFunction
from dpsql.plan.expressions import Expr, Frame, FrameKind, Literal, Order, WindowCall, has_window
from dpsql.plan.nodes import Relation
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS
from dpsql.sql.lower.aggregates.base import build_conditional_value
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.unit_windows import check_partition, check_window
from dpsql.sql.parse.rejection import QueryText

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
        """The rows or groups that windows are laid on."""
        ...

    @property
    def source(self) -> QueryText:
        """The text of the query."""
        ...

    @property
    def group_scalars(self) -> Scalars:
        """Lowers expressions over the groups."""
        ...

    @property
    def is_public_output(self) -> bool:
        """Whether its rows are released or public."""
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
        check_partition(grouping.scope, node, partition, grouping.window_rows)
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
