"""Lower window functions over private rows: each window holds rows of one privacy unit.

Claim: each row with the windows' values depends on rows of its own unit alone; a unit has as many rows as before.
Why: PARTITION BY names what identifies the unit, and the engine partitions by the unit besides. Among rows that are equal
in ORDER BY, their own values decide, never the place where they are stored.
Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from dpsql.analysis.decimals import find_decimal_digits, find_scale
from dpsql.analysis.domains import derive_domain
from dpsql.analysis.floats import is_float
from dpsql.analysis.intervals import MAX_MAGNITUDE, derive_interval
from dpsql.analysis.stability import bound_rows
from dpsql.analysis.unit_identity import find_identity
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import (
    Column,
    ColumnInfo,
    Expr,
    FrameKind,
    Literal,
    WindowCall,
    iterate_columns,
    replace_parts,
    walk,
)
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.nodes import PerUnitWindows, Relation, iterate_sources, list_private_scans
from dpsql.plan.render import format_expression
from dpsql.plan.tables import UnitKind
from dpsql.plan.types import Type, Value
from dpsql.sql.lower.derived_tables import derive_column_info, make_unique_names
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.statement_context import StatementContext
from dpsql.sql.parse.rejection import QueryText

_NUMBERED = frozenset({"row_number", "rank", "dense_rank"})
_SHARES = frozenset({"percent_rank", "cume_dist"})
_CHOSEN = frozenset({"first_value", "last_value", "nth_value"})
_ALWAYS = _NUMBERED | _SHARES | {"ntile", "count"}
"""Functions that are never NULL."""


def check_partition(scope: Scope, node: exp.Expr, partition: Iterable[Expr], relation: Relation) -> None:
    """Refuse a window over private rows whose partition does not identify the unit."""
    rows = any(scan.unit.kind is UnitKind.ROW for scan in list_private_scans(relation))
    if not rows and any(find_identity(part, relation) is not None for part in partition):
        return
    scope.source.refuse(
        node,
        "private_window",
        "a window over private rows would compare the rows of one privacy unit with those of others",
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
    """Build the rows with all windows of some expressions over them, and these over its columns."""
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
