"""Lower the clauses of a SELECT over its groups: SELECT items, HAVING, QUALIFY, ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.plan.expressions import Column, Expr, Literal, Order, Scalar, has_window
from dpsql.plan.nodes import OuterQuery, Output
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.derived_tables import get_declared_name
from dpsql.sql.lower.grouping import Grouping
from dpsql.sql.lower.references import find_ordinal, find_unqualified_name, strip_parentheses
from dpsql.sql.lower.star_expansion import Item, list_select_items
from dpsql.sql.lower.windows import check_named_windows
from dpsql.sql.parse.interval_calls import find_interval_end


def lower_outputs(groups: Grouping, items: Sequence[Item]) -> list[tuple[str, Expr]]:
    """Return the SELECT items over the groups, each with its name; aliases are known from here on."""
    outputs = []
    for alias, node in items:
        expr = groups.output_scalars.lower(node)
        outputs.append((_get_output_name(groups, node, expr) if alias is None else alias, expr))
        if alias is not None:
            # A later alias hides an earlier one, as in DuckDB.
            groups.aliases[normalize_name(alias)] = expr
    return outputs


def _get_output_name(groups: Grouping, node: exp.Expr, expr: Expr) -> str:
    """Return the name of an output without an alias; for a column its declared name, however the query spells it."""
    for index, key in enumerate(groups.keys):
        if (
            isinstance(key, Column)
            and find_interval_end(node) is None
            and expr == groups.get_key_column(index)
        ):
            return get_declared_name(node, key)
    return _format_output_name(node)


def lower_having(groups: Grouping) -> Expr | None:
    """Return the condition on groups."""
    having = groups.select.args.get("having")
    if having is None:
        return None
    (predicate,) = groups.source.take_arguments(having, "this")
    expr = groups.having_scalars.lower(predicate)
    if has_window(expr):
        groups.source.refuse(
            predicate, "qualify", "a window function is not allowed in HAVING", "write QUALIFY"
        )
    return _require_condition(groups, predicate, expr)


def lower_qualify(groups: Grouping) -> Expr | None:
    """Lower QUALIFY, the condition on window values, after all outputs are known."""
    check_named_windows(groups)
    qualify = groups.select.args.get("qualify")
    if qualify is None:
        return None
    (predicate,) = groups.source.take_arguments(qualify, "this")
    expr = groups.output_scalars.lower(predicate)
    if not has_window(expr):
        groups.source.refuse(
            predicate,
            "qualify",
            "QUALIFY needs a window function in its condition",
            "write WHERE or HAVING instead",
        )
    return _require_condition(groups, predicate, expr)


def _require_condition(groups: Grouping, node: exp.Expr, expr: Expr) -> Expr:
    if expr.type not in (Type.BOOLEAN, Type.NULL):
        groups.source.refuse(node, "type", f"a condition must be a BOOLEAN, not {expr.type}")
    return expr


def lower_order_by(groups: Grouping, outputs: Sequence[Output]) -> tuple[Order, ...]:
    """Lower ORDER BY over the outputs and the other values of the groups."""
    items = tuple(lower_order_item(groups, outputs, node) for node in list_order_items(groups, len(outputs)))
    # A constant has no effect on the order, whether it is known now or computed in an earlier step.
    # A HISTOGRAM differs between groups once it is emitted.
    return tuple(
        item
        for item in items
        if not isinstance(item.expr, (Literal, Scalar)) or (item.expr.type is Type.LIST and groups.keys)
    )


def lower_order_item(groups: Grouping, outputs: Sequence[Output], node: exp.Expr) -> Order:
    """Return an item of ORDER BY."""
    inner, descending, nulls_first = groups.source.take_arguments(node, "this", "desc", "nulls_first")
    bare = strip_parentheses(groups.source, inner)
    ordinal = find_ordinal(groups.source, bare)
    name = find_unqualified_name(groups.source, bare)
    if name in groups.aliases:
        # An unqualified name means an output first, and otherwise a column.
        expr = groups.aliases[name]
    elif ordinal is None:
        expr = groups.output_scalars.lower(inner)
        of_set = bool(groups.group_by.excluded) or inner.find(exp.Grouping) is not None
        if isinstance(expr, Literal) and not of_set:
            groups.source.refuse(
                node, "constant", "ORDER BY a constant has no effect", "leave it out of ORDER BY"
            )
    elif 1 <= ordinal <= len(outputs):
        expr = outputs[ordinal - 1].expr
    else:
        groups.source.refuse(node, "ordinal", f"ORDER BY {ordinal}: SELECT has {len(outputs)} columns")
    return Order(expr, bool(descending), bool(nulls_first))


def list_order_items(groups: Grouping, outputs: int) -> tuple[exp.Expr, ...]:
    """List the items of ORDER BY; those of ORDER BY ALL are the places of all outputs."""
    order = groups.select.args.get("order")
    if order is None:
        return ()
    (nodes,) = groups.source.take_arguments(order, "expressions")
    first = nodes[0]
    if len(nodes) > 1 or type(first.this) is not exp.Var or first.this.name.upper() != "ALL":
        return tuple(nodes)
    named, descending, nulls_first = groups.source.take_arguments(first, "this", "desc", "nulls_first")
    groups.source.take_arguments(named, "this")
    return tuple(
        exp.Ordered(this=exp.Literal.number(place), desc=descending, nulls_first=nulls_first)
        for place in range(1, outputs + 1)
    )


def is_output(groups: Grouping, outputs: Sequence[Output], node: exp.Expr) -> bool:
    """Return whether an item of ORDER BY names an output, by its place or its name."""
    bare = strip_parentheses(groups.source, node.this)
    return find_ordinal(groups.source, bare) is not None or find_unqualified_name(groups.source, bare) in {
        normalize_name(output.name) for output in outputs
    }


def lower_limit_or_offset(groups: Grouping, name: str) -> int | None:
    """Return the number of LIMIT or OFFSET."""
    clause = groups.select.args.get(name)
    if clause is None:
        return None
    if type(clause) is exp.Fetch:
        groups.source.refuse(
            clause,
            "clause",
            "FETCH is only supported as FETCH … ROWS ONLY",
            "to include ties: QUALIFY RANK() OVER (ORDER BY n DESC) <= 3",
        )
    (node,) = groups.source.take_arguments(clause, "expression")
    value = fold_constant(groups.source, node, groups.constant_scalars.lower(node))
    if not isinstance(value, Literal) or type(value.value) is not int or value.value < 0:
        groups.source.refuse(node, "constant", f"{name.upper()} takes a whole number that is not negative")
    return value.value


def lower_grouping_set(groups: Grouping, keys: Sequence[exp.Expr], every: Iterable[exp.Expr]) -> OuterQuery:
    """Return the groups of one grouping set, and its outputs; keys that only other sets have are NULL.

    Windows in the outputs and in QUALIFY are over the groups of all sets. `order` has the items of ORDER BY that are not
    outputs.
    """
    items = list_select_items(groups.scope, groups.select)
    groups.group_by.add_items(keys, items)
    groups.group_by.exclude_items(every, items)
    outputs = tuple(Output(name, expr) for name, expr in lower_outputs(groups, items))
    qualify = lower_qualify(groups)
    order = tuple(
        lower_order_item(groups, outputs, node)
        for node in list_order_items(groups, len(outputs))
        if not is_output(groups, outputs, node)
    )
    return replace(groups.build_outer_query(outputs, lower_having(groups)), qualify=qualify, order=order)


def _format_output_name(node: exp.Expr) -> str:
    """Return the name of an output without an alias; only for lowered nodes."""
    if type(node) is exp.Column and type(node.this) is exp.Identifier:
        return str(node.this.this)
    if type(node) is exp.Count and type(node.this) is exp.Star:
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower", comments=False)[:200]
