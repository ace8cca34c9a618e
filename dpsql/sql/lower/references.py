"""Read what an item of GROUP BY or ORDER BY refers to: an output by its place or its alias, or an expression."""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.lower.scope import Scope
from dpsql.sql.parse.rejection import QueryText


def find_unqualified_name(text: QueryText, node: exp.Expr) -> str | None:
    """Find the folded name of a column without a table, which may be an alias."""
    if type(node) is not exp.Column or type(node.this) is not exp.Identifier or node.args.get("table"):
        return None
    (identifier,) = text.take_arguments(node, "this")
    return normalize_name(str(text.take_arguments(identifier, "this", quoted=(True,))[0]))


def find_ordinal(text: QueryText, node: exp.Expr) -> int | None:
    """Find the number of an output that a node is."""
    if type(node) is not exp.Literal or node.is_string or not str(node.this).isdigit():
        return None
    digits, _ = text.take_arguments(node, "this", "is_string")
    return int(digits)


def strip_parentheses(text: QueryText, node: exp.Expr) -> exp.Expr:
    """Return the node within parentheses."""
    while type(node) is exp.Paren:
        (node,) = text.take_arguments(node, "this")
    return node


def is_column(scope: Scope, name: str) -> bool:
    """Return whether a folded name is a column of FROM."""
    return any(name in named.columns for named in scope.tables.values())
