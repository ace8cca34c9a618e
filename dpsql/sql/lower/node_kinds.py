"""Kinds of nodes: comparisons with the rows of a subquery, and functions that return rows."""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name

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
