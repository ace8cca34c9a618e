"""Tell kinds of nodes apart: comparisons with lists and subqueries, functions that return rows, aggregates of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import Parameter
from dpsql.sql.parse.rejection import QueryText

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
COUNTED = frozenset({"range", "generate_series"})
"""Functions in FROM that make a series of rows."""


def is_matching(node: exp.Expr) -> bool:
    """Return whether a node is EXISTS, or IN over a subquery."""
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def is_quantified(node: exp.Expr) -> bool:
    """Return whether a node compares with ALL or ANY of a subquery; = ANY and <> ALL are IN and its opposite."""
    side = node.args.get("expression")
    if type(node) not in COMPARISONS or type(side) not in (exp.All, exp.Any):
        return False
    return (type(node), type(side)) not in ((exp.EQ, exp.Any), (exp.NEQ, exp.All))


def is_table_function(node: exp.Expr) -> bool:
    """Return whether an item of FROM is a call that gives public rows."""
    called = node.this if type(node) is exp.Table else None
    named = called.this if type(called) is exp.Anonymous else None
    return type(node) is exp.Unnest or (isinstance(named, str) and normalize_name(named) in COUNTED)


def is_unnest(node: exp.Expr) -> bool:
    """Return whether a node is UNNEST in an expression."""
    return (
        type(node) is exp.Anonymous and normalize_name(str(node.this)) == "unnest" and bool(node.expressions)
    )


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether a node holds an aggregate of groups outside of subqueries; it steers the lowering, and accepts nothing."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.AggFunc) and not is_over_window(part) for part in parts)


def is_over_window(node: exp.Expr) -> bool:
    """Return whether an aggregate is one over a window."""
    part: exp.Expr | None = node
    while part is not None and part.arg_key == "this":
        part = part.parent
        if type(part) not in (exp.Filter, exp.IgnoreNulls, exp.RespectNulls):
            return type(part) is exp.Window
    return False


# The items of IN; and `= ANY` and `<> ALL` of a subquery or list as IN and NOT IN, which mean the same.


def rewrite_as_in(
    source: QueryText, node: exp.Expr, left: exp.Expr, right: exp.Expr, given: Callable[[exp.Expr], Parameter]
) -> exp.Expr:
    """Rewrite a quantified comparison as IN, at its place in the tree; `given` returns the value of a parameter."""
    (listed,) = source.take_arguments(right, "this")
    while type(listed) in (exp.Paren, exp.Subquery):
        (listed,) = source.take_arguments(listed, "this")
    found: exp.Expr = exp.In(this=left.copy())
    if type(listed) is exp.Values:
        found.set("expressions", [listed.copy()])
    elif isinstance(listed, exp.Query):
        found.set("query", exp.Subquery(this=listed.copy()))
    else:
        found.set("expressions", [item.copy() for item in _list_array_items(source, listed, given)])
    found = exp.Not(this=found) if type(node) is exp.NEQ else found
    found.parent, found.arg_key = node.parent, node.arg_key
    return found


def _list_array_items(
    source: QueryText, node: exp.Expr, given: Callable[[exp.Expr], Parameter]
) -> list[exp.Expr]:
    """List the items of a list of constants, or the parameter whose value is such a list."""
    if type(node) is exp.Array:
        (items,) = source.take_arguments(node, "expressions", value_constructor=(False,))
        if items:
            return list(items)
    elif type(node) is exp.Placeholder and isinstance(given(node), tuple):
        return [node]
    source.refuse(
        node,
        "subquery",
        "ANY and ALL take a subquery or a list of at least one value",
        "write x = ANY([1, 2])",
    )


def list_members(source: QueryText, items: Sequence[exp.Expr]) -> list[exp.Expr]:
    """List the items of a list; of x IN (VALUES (1), (2)) those of its rows, each of one value."""
    for item in items:
        if type(item) is exp.Alias:
            source.refuse(item, "syntax", "only PIVOT allows a name after a value in IN", "write x IN (1, 2)")
    if len(items) != 1 or type(items[0]) is not exp.Values:
        return list(items)
    (rows,) = source.take_arguments(items[0], "expressions")
    values = [value for row in rows for value in source.take_arguments(row, "expressions")[0]]
    if len(values) != len(rows):
        source.refuse(
            items[0], "subquery", "VALUES in IN must have one column", "write (a, b) IN ((1, 2), (3, 4))"
        )
    return values
