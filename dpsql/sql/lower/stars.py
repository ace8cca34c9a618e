"""The columns that `*` means, also beside GROUP BY; without those of EXCLUDE, with others in place of those of REPLACE, and renamed by RENAME.

Claim: they are the columns of `*` and expressions over its rows, so that nothing else is read.
Why: each name that stands there is one of the columns of `*`, and is refused elsewhere, as in DuckDB. Beside GROUP BY they stand
in the place of `*` as if they were written, so that each is a group key, or is refused.
Source: DuckDB's documentation, "Star expression".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot import exp

from dpsql.plan.nodes import is_private
from dpsql.plan.tables import Scan
from dpsql.policy import fold
from dpsql.sql.lower.scope import Scope
from dpsql.sql.read.pivots import OTHERS
from dpsql.sql.read.rejection import Source

_T = TypeVar("_T")


def star_columns(
    source: Source, star: exp.Expr, columns: Sequence[tuple[str, _T]], lower: Callable[[exp.Expr], _T]
) -> list[tuple[str, _T]]:
    """The named columns of `*`, of which `columns` is all that it means without the words behind it.

    They are what `lower` makes of expressions: lowered ones, or their nodes.
    """
    excluded, replaced, renamed = source.take(star, "except_", "replace", "rename")
    known = [fold(name) for name, _ in columns]
    out = {_called(source, item, known) for item in excluded or ()}
    others = {_alias(source, item, known): lower(item.this) for item in _aliases(source, replaced)}
    names = {
        _called(source, item.this, known): str(source.take(item.args["alias"], "this", quoted=(True,))[0])
        for item in _aliases(source, renamed)
    }
    for name in sorted(out & (others.keys() | names.keys())):
        source.refuse(
            star, "ambiguous", f"{name} is left out by EXCLUDE and named again", "leave it out of one"
        )
    for name in others:
        if known.count(name) > 1:
            source.refuse(star, "ambiguous", f"* has two columns {name}", f"write t.* REPLACE (… AS {name})")
    return [
        (names.get(fold(name), name), others.get(fold(name), expr))
        for name, expr in columns
        if fold(name) not in out
    ]


def star_items(scope: Scope, item: exp.Expr, *, grouped: bool) -> list[tuple[str | None, exp.Expr]] | None:
    """The columns that an item of a SELECT with GROUP BY means as `*`, each with its name if it has another; None for other items.

    Of a private table it is no item: the database may have columns that nobody has declared.
    """
    star = item.this if type(item) is exp.Column else item
    if type(star) is not exp.Star:
        return None
    private = [named.relation for named in scope.tables.values() if is_private(named.relation)]
    if private and (not grouped or any(isinstance(relation, Scan) for relation in private)):
        if star.meta.get(OTHERS):
            scope.source.refuse(
                item,
                "group_by",
                "without GROUP BY, PIVOT groups by all other columns, of a private table those of its unit among them",
                "GROUP BY the columns that stay, at its end; or PIVOT (SELECT k, g, x FROM t) ON k IN ('a', 'b') USING SUM(x)",
            )
        return None
    table = scope.source.take(item, "this", "table")[1] if star is not item else None
    owner = None if table is None else str(scope.source.take(table, "this", quoted=(True,))[0])
    every = [(scope.called(column), column.source) for column in scope.every(item, owner)]
    start = next((part.meta["start"] for part in item.walk() if "start" in part.meta), None)
    nodes = [(name, _named(scope, name, alias, start)) for name, alias in every]
    found = star_columns(scope.source, star, nodes, lambda node: node)
    return [(None if (name, node) in nodes else name, node) for name, node in found]


def _named(scope: Scope, name: str, alias: str, start: int | None) -> exp.Expr:
    """A column of a source as the query would name it, where the * stands."""
    owner = None if fold(name) in scope.merged else exp.to_identifier(alias, quoted=True)
    found = exp.Column(this=exp.to_identifier(name, quoted=True), table=owner)
    found.meta.update({} if start is None else {"start": start})
    return found


def _aliases(source: Source, items: Sequence[exp.Expr] | None) -> Sequence[exp.Expr]:
    for item in items or ():
        if type(item) is not exp.Alias:
            source.refuse(item, "syntax", "REPLACE takes x + 1 AS x, and RENAME x AS y")
        source.take(item, "this", "alias")
    return items or ()


def _alias(source: Source, item: exp.Expr, known: Sequence[str]) -> str:
    """The folded column that an item of REPLACE stands for."""
    return _known(source, item, str(source.take(item.args["alias"], "this", quoted=(True,))[0]), known)


def _called(source: Source, item: exp.Expr, known: Sequence[str]) -> str:
    """The folded column that an item of EXCLUDE or RENAME names."""
    if type(item) is not exp.Column:
        source.refuse(item, "column", "a column name is expected here")
    (identifier,) = source.take(item, "this")
    return _known(source, item, str(source.take(identifier, "this", quoted=(True,))[0]), known)


def _known(source: Source, node: exp.Expr, name: str, known: Sequence[str]) -> str:
    if fold(name) not in known:
        source.refuse(node, "column", f"* has no column {name}", f"it has: {', '.join(known)}")
    return fold(name)
