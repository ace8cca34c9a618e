"""Rewrite functions that DuckDB's SQL calls after a dot: `name.upper()` is UPPER(name)."""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name

_SCHEMAS = frozenset({"main", "temp", "system", "pg_catalog", "information_schema"})
"""Names before a dot that are schemas of functions, not columns."""


def rewrite_method_calls(tree: exp.Expr | None) -> exp.Expr | None:
    """Rewrite calls after a dot in place, so that the value before the dot is the first argument.

    Claim: the calls mean what they mean in DuckDB, where they are allowed.
    Why: DuckDB itself adds the value before the dot as the first argument, unless a schema has that name.
    Source: DuckDB's documentation, "Function chaining via the dot operator".
    """
    for node in [] if tree is None else reversed(list(tree.find_all(exp.Dot))):
        call = node.expression
        receiver = _read_receiver(node.this)
        if type(call) is not exp.Anonymous or receiver is None:
            continue
        call.set("expressions", [receiver, *call.expressions])
        if node is tree:
            tree = call
        else:
            node.replace(call)
    return tree


def _read_receiver(node: exp.Expr) -> exp.Expr | None:
    """Return the value before a dot, as the parser reads it elsewhere; None for a schema and for other nodes."""
    match node:
        case exp.Identifier():
            return None if normalize_name(node.name) in _SCHEMAS else exp.Column(this=node)
        case exp.Dot(this=exp.Identifier(), expression=exp.Identifier()):
            return exp.Column(this=node.expression, table=node.this)
        case exp.Column() | exp.Literal() | exp.Paren():
            return node
        case exp.Anonymous():
            node.set("expressions", [_read_argument(item) for item in node.expressions])
            return node
        case _:
            return None


def _read_argument(node: exp.Expr) -> exp.Expr:
    """Return an argument of a call before a dot, where the parser leaves the names of columns as words."""
    return exp.Column(this=node) if isinstance(node, exp.Identifier) else node
