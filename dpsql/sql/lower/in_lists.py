"""The items of IN; and `= ANY` and `<> ALL` of a subquery or list as IN and NOT IN, which mean the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.policy.request.parameters import Parameter
from dpsql.sql.parse.rejection import QueryText


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
