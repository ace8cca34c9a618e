"""Rewrite UNION BY NAME as a UNION by place.

Claim: the rewritten query has the rows of the original, so that everything proven about the rewritten query holds for the original.
Why: the columns of the first query come first, then those that only the second has; each side is read as a derived table whose
columns are named in this order, with NULL for those that it lacks. Both sides must name each of their columns, once.
Source: DuckDB's documentation, "UNION (ALL) BY NAME".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import QueryText

_ALIAS = "by_name"


def rewrite_unions_by_name(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree of a statement without BY NAME. Raises QueryRejected for a side with a column that has no name."""
    if tree is None:
        return tree
    found = [union for union in tree.find_all(exp.SetOperation) if union.args.get("by_name")]
    for union in reversed(found):  # those within others first
        union.set("by_name", None)
        ours, theirs = _list_names(source, union.this), _list_names(source, union.expression)
        known = {normalize_name(name) for name in ours}
        names = [*ours, *(name for name in theirs if normalize_name(name) not in known)]
        for place, own in (("this", ours), ("expression", theirs)):
            if [normalize_name(name) for name in own] != [normalize_name(name) for name in names]:
                union.set(place, _select_by_name(union.args[place], own, names))
    return tree


def _list_names(source: QueryText, query: exp.Expr) -> list[str]:
    """List the columns of a query."""
    first = query
    while isinstance(first, exp.Subquery | exp.SetOperation):
        first = first.this
    items: Sequence[exp.Expr] = first.expressions if isinstance(first, exp.Select) else ()
    names = [item.alias_or_name for item in items if isinstance(item, exp.Alias | exp.Column)]
    counts = Counter(map(normalize_name, names))
    if not names or len(names) < len(items) or "*" in counts or max(counts.values()) > 1:
        source.refuse(
            query,
            "set_operation",
            "UNION BY NAME needs a name for each column of both queries, and no name twice",
            "name them: SELECT k, COUNT(*) AS n …",
        )
    return names


def _select_by_name(query: exp.Expr, own: Sequence[str], names: Sequence[str]) -> exp.Expr:
    """Build the query that reads the columns of another in a given order, with NULL for those that it lacks."""
    has = {normalize_name(name) for name in own}
    items = [
        exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(_ALIAS))
        if normalize_name(name) in has
        else exp.alias_(exp.Null(), exp.to_identifier(name, quoted=True))
        for name in names
    ]
    bare = isinstance(query, exp.Subquery) and not any(
        value for key, value in query.args.items() if key != "this"
    )
    inner = query.this if bare else query
    return exp.Select(
        expressions=items,
        from_=exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(_ALIAS)))),
    )
