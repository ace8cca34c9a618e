"""The columns that `*` means, without those of EXCLUDE, with others in place of those of REPLACE, and renamed by RENAME.

Claim: they are the columns of `*` and expressions over its rows, so that nothing else is read.
Why: each name that stands there is one of the columns of `*`, and is refused elsewhere, as in DuckDB.
Source: DuckDB's documentation, "Star expression".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.plan.expr import Expr
from dpsql.policy import fold
from dpsql.sql.read.rejection import Source

Named = tuple[str, Expr]


def star_columns(
    source: Source, star: exp.Expr, columns: Sequence[Named], lower: Callable[[exp.Expr], Expr]
) -> list[Named]:
    """The named columns of `*`, of which `columns` is all that it means without the words behind it."""
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
            star, "ambiguous", f"{name} is left out by EXCLUDE, and named again", "leave it out of one"
        )
    for name in others:
        if known.count(name) > 1:
            source.refuse(star, "ambiguous", f"* has two columns {name}", f"write t.* REPLACE (… AS {name})")
    return [
        (names.get(fold(name), name), others.get(fold(name), expr))
        for name, expr in columns
        if fold(name) not in out
    ]


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
