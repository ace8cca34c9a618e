"""Drop the clauses of a subquery of EXISTS or IN that do not change its values.

`EXISTS (SELECT … ORDER BY day LIMIT 1)` is EXISTS of the rows themselves, so that private rows need no order.

Claim: EXISTS and IN have the same value without these clauses.
Why: both ask whether there is a row. ORDER BY without LIMIT removes no row, DISTINCT keeps one of equal rows, and LIMIT n
with n ≥ 1 keeps a row if there is one, which decides EXISTS.
Source: ISO/IEC 9075-2, <exists predicate> and <in predicate>.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.lower.scope import Scope
from dpsql.sql.parse.rejection import QueryText


def remove_irrelevant_clauses(source: QueryText, query: exp.Expr, *, exists: bool) -> exp.Expr:
    """Return the subquery without DISTINCT and ORDER BY, and for EXISTS without LIMIT, where that changes nothing."""
    if type(query) is not exp.Select:
        return query
    distinct, limit, offset = (query.args.get(name) for name in ("distinct", "limit", "offset"))
    if (distinct is not None and distinct.args.get("on")) or offset is not None:
        return query
    if limit is not None and not (exists and _allows_rows(source, limit)):
        return query
    if distinct is not None:
        source.take_arguments(distinct)
    bare = query.copy()
    for name in ("distinct", "order", "limit"):
        bare.set(name, None)
    return bare


def check_order(scope: Scope, query: exp.Select, order: exp.Expr | None) -> None:
    """Refuse an ORDER BY that is dropped from a subquery but names missing columns."""
    if order is None:
        return
    names = {normalize_name(item.alias) for item in query.expressions if item.alias}
    for item in scope.source.take_arguments(order, "expressions")[0]:
        (value, *_) = scope.source.take_arguments(item, "this", "desc", "nulls_first")
        if type(value) is exp.Column and not value.args.get("table") and normalize_name(value.name) in names:
            scope.source.take_arguments(*scope.source.take_arguments(value, "this"), "this", quoted=(True,))
        else:
            scope.scalars.lower(value)


def _allows_rows(source: QueryText, limit: exp.Expr) -> bool:
    """Return whether a LIMIT lets a row through."""
    if type(limit) is not exp.Limit:
        return False
    (number,) = source.take_arguments(limit, "expression")
    if type(number) is not exp.Literal:
        return False
    text, is_string = source.take_arguments(number, "this", "is_string")
    return not is_string and text.isdigit() and int(text) > 0
