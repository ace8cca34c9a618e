"""Tell kinds of nodes apart: comparisons with the rows of a subquery, functions that return rows, aggregates of groups."""

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
