"""Lower `range`, `generate_series` and UNNEST of constants to public rows.

Claim: their rows are public, and the same on neighboring databases.
Why: their arguments are constants of the statement; an engine without data computes them during planning, and the emitted SQL
holds the values.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.backends import scratch_database
from dpsql.errors import BackendError
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import Values
from dpsql.plan.types import Type, Value, find_common_type
from dpsql.policy import normalize_name
from dpsql.sql.compile.scalars import emit_constant, emit_expression
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.statement_context import StatementContext

MOST_ROWS = 10_000
"""The most rows of a table that a statement lists or generates."""


def lower_table_function(context: StatementContext, node: exp.Expr, alias: str) -> Values:
    """Return the rows of such a call, with their one column. Raises QueryRejected."""
    if type(node) is exp.Unnest:
        (items, _) = context.source.take_arguments(node, "expressions", "alias")
        return lower_unnested_constants(context, node, items, alias)
    called, _ = context.source.take_arguments(node, "this", "alias")
    name, arguments = context.source.take_arguments(called, "this", "expressions")
    kind, found = _compute_series(context, node, normalize_name(str(name)), arguments or ())
    return _build_values(alias, normalize_name(str(name)), kind, found)


def lower_unnested_constants(
    context: StatementContext, node: exp.Expr, items: Sequence[exp.Expr], alias: str
) -> Values:
    """Return the values of a constant list as rows."""
    if len(items) != 1 or type(items[0]) is not exp.Array:
        context.source.refuse(
            node, "constant", "UNNEST takes a list of constants here", "write FROM UNNEST([1, 2]) AS t(x)"
        )
    (parts,) = context.source.take_arguments(items[0], "expressions", value_constructor=(False,))
    scalars = Scope(context).scalars
    values = [fold_constant(context.source, part, scalars.lower(part)) for part in parts]
    if not values or not all(isinstance(value, Literal) for value in values):
        context.source.refuse(
            node, "constant", "UNNEST takes a list of constants here", "write UNNEST([1, 2])"
        )
    kind = find_common_type(tuple(value.type for value in values))
    if kind is None:
        context.source.refuse(node, "type", "all values of a list must have one type")
    return _build_values(
        alias, "unnest", kind, [value.value for value in values if isinstance(value, Literal)]
    )


def _compute_series(
    context: StatementContext, node: exp.Expr, name: str, items: Sequence[exp.Expr]
) -> tuple[Type, list[Value]]:
    """Compute the values of `range` or `generate_series`: whole numbers, or timestamps at a distance."""
    scalars = Scope(context).scalars
    step = scalars.find_span(items[2]) if len(items) > len(("start", "stop")) else None
    plain = items if step is None else items[:2]
    ends = [fold_constant(context.source, item, scalars.lower(item)) for item in plain]
    if not 1 <= len(items) <= len(("start", "stop", "step")) or not all(
        isinstance(end, Literal) and end.value is not None for end in ends
    ):
        _refuse_series(context, node, name)
    if step is None and all(end.type is Type.INTEGER for end in ends):
        written = [emit_expression(end) for end in ends]
    elif step is not None and all(end.type.temporal for end in ends):
        count, unit = step
        many = fold_constant(context.source, node, count)
        if not isinstance(many, Literal) or type(many.value) is not int:
            _refuse_series(context, node, name)
        moments: list[Expr] = [build_function_call("cast_timestamp", end) or end for end in ends]
        written = [*map(emit_expression, moments), f"INTERVAL ({emit_constant(many.value)}) {unit.upper()}"]
    else:
        _refuse_series(context, node, name)
    try:
        found = [
            row[0]
            for row in scratch_database.query_constant_rows(
                f"SELECT * FROM {name}({', '.join(written)}) LIMIT {MOST_ROWS + 1}"
            )
        ]
    except BackendError:
        _refuse_series(context, node, name)
    if len(found) > MOST_ROWS:
        context.source.refuse(node, "too_long", f"{name.upper()} makes at most {MOST_ROWS:,} rows")
    return Type.INTEGER if step is None else Type.TIMESTAMP, found


def _build_values(alias: str, name: str, kind: Type, values: Sequence[Value]) -> Values:
    facts = ColumnInfo(kind, "", nullable=None in values)
    return Values(tuple((value,) for value in values), alias, (Column(alias, name, facts),))


def _refuse_series(context: StatementContext, node: exp.Expr, name: str) -> NoReturn:
    context.source.refuse(
        node,
        "constant",
        f"{name} takes constants",
        f"write {name}(0, 10), or {name}(DATE '2026-01-01', DATE '2026-02-01', INTERVAL 1 DAY)",
    )
