"""The columns that a query may name, and which of them can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from properties.expressions import build
from sqlglot import exp

from dpsql.plan.expressions import Column, Expr
from dpsql.sql.lower.scope import Scope


def known(scope: Scope) -> list[Column]:
    """The columns of all sources in scope."""
    return scope.list_columns(exp.null())


def equal(ours: Expr, theirs: Expr, function: str = "eq") -> Expr:
    """The comparison of two columns that can be compared."""
    built = build(function, ours, theirs)
    if built is None:
        raise TypeError("columns of comparable types are compared")
    return built


def identities(ours: Iterable[Column], theirs: Iterable[Column]) -> list[tuple[Column, Column]]:
    """The pairs of columns whose equal values have one unit."""
    return [
        (a, b)
        for a in ours
        for b in theirs
        if a.facts.identity is not None and a.facts.identity == b.facts.identity and a.type is b.type
    ]
