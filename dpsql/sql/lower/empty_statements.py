"""Statements without rows: LIMIT 0, and rows under a condition of constants that is never true.

Tools send them to learn the names and types of columns: `SELECT * FROM visits WHERE 1=0`.

Claim: the plan reads no table; its columns have the names and types of the statement's columns.
Why: it consists of constants only. Names and types follow from the text, the policy and the schema. The statement was lowered
as a whole, so that whatever is not allowed in it is refused.
Source: ISO/IEC 9075-2, <fetch first clause> and <where clause>: no row fulfils them, whatever the rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, find_scale, is_float, is_inexact
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal
from dpsql.plan.nodes import OuterQuery, Output, Relation, Values
from dpsql.plan.types import Type
from dpsql.sql.lower.constants import fold_constant, is_constant
from dpsql.sql.lower.function_calls import is_widened
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.per_unit_selects import PlainSelect, lower_select_items, replace_windows
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.select_clauses import lower_limit_or_offset
from dpsql.sql.lower.statement_context import StatementContext


def find_empty_query(scope: Scope, node: exp.Select, relation: Relation) -> OuterQuery | None:
    """Return the columns of a SELECT of private rows that has none; None for any other SELECT."""
    grouped = any(node.args.get(name) for name in ("group", "having", "distinct"))
    if grouped or any(map(has_aggregate, node.expressions)) or not _is_empty(scope, node, relation):
        return None
    chosen = lower_select_items(scope, node, relation, lambda: OuterQuery(relation, ()))
    if isinstance(chosen, OuterQuery):
        return None
    outputs = replace_windows(scope, node, chosen).outputs
    return build_empty_query(scope.context, node, outputs)


def build_empty_query(
    context: StatementContext, node: exp.Expr, outputs: Sequence[Output]
) -> OuterQuery | None:
    """Build no row of these outputs; None where one is a list, whose type only its values have."""
    if any(output.expr.type is Type.LIST for output in outputs):
        return None
    alias = context.allocate_alias(node)
    columns = tuple(
        Column(alias, f"c{place}", _derive_output_info(output.expr)) for place, output in enumerate(outputs)
    )
    named = (Output(output.name, column) for output, column in zip(outputs, columns, strict=True))
    return OuterQuery(Values((), alias, columns), tuple(named))


def _derive_output_info(expr: Expr) -> ColumnInfo:
    return ColumnInfo(
        expr.type,
        "",
        scale=find_scale(expr),
        decimal=find_decimal_digits(expr),
        inexact=is_inexact(expr),
        widened=is_widened(expr),
        float32=is_float(expr),
    )


def _is_empty(scope: Scope, node: exp.Select, relation: Relation) -> bool:
    """Return whether LIMIT or a condition of constants leaves no row."""
    if (
        node.args.get("limit") is not None
        and lower_limit_or_offset(PlainSelect(scope, node, relation), "limit") == 0
    ):
        return True
    where = node.args.get("where")
    return where is not None and any(_is_never_true(scope, part) for part in _iterate_conditions(where.this))


def _iterate_conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    if type(node) is exp.And:
        yield from _iterate_conditions(node.this)
        yield from _iterate_conditions(node.expression)
    else:
        yield node


def _is_never_true(scope: Scope, node: exp.Expr) -> bool:
    """Return whether a condition of constants is FALSE or NULL."""
    if node.find(exp.Column, exp.Query):
        return False
    expr = scope.scalars.lower(node)
    found = fold_constant(scope.source, node, expr) if is_constant(expr) else expr
    return isinstance(found, Literal) and not found.value
