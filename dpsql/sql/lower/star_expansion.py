"""List SELECT items, and expand `*`, also next to GROUP BY, with EXCLUDE, REPLACE and RENAME.

Claim: the items are columns of `*` and expressions over its rows, so that nothing else is read.
Why: each name in them must be a column of `*`, as in DuckDB, and is refused otherwise. Next to GROUP BY they replace `*` as
if they were written out, so that each is a group key, or is refused.
Source: DuckDB's documentation, "Star expression".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot import exp

from dpsql.plan.nodes import is_private
from dpsql.plan.tables import Scan
from dpsql.policy import normalize_name
from dpsql.sql.lower.scope import Scope
from dpsql.sql.parse.pivots import OTHERS
from dpsql.sql.parse.rejection import QueryText

MAX_OUTPUTS = 100
Item = tuple[str | None, exp.Expr]
"""A SELECT item: its alias, if there is one, and its expression."""
_T = TypeVar("_T")


def apply_star_modifiers(
    source: QueryText, star: exp.Expr, columns: Sequence[tuple[str, _T]], lower: Callable[[exp.Expr], _T]
) -> list[tuple[str, _T]]:
    """Apply EXCLUDE, REPLACE and RENAME to `columns`, the columns of `*`.

    Their values are results of `lower`: lowered expressions, or nodes.
    """
    excluded, replaced, renamed = source.take_arguments(star, "except_", "replace", "rename")
    known = [normalize_name(name) for name, _ in columns]
    out = {_take_column_name(source, item, known) for item in excluded or ()}
    others = {
        _take_replaced_name(source, item, known): lower(item.this)
        for item in _require_aliases(source, replaced)
    }
    names = {
        _take_column_name(source, item.this, known): str(
            source.take_arguments(item.args["alias"], "this", quoted=(True,))[0]
        )
        for item in _require_aliases(source, renamed)
    }
    for name in sorted(out & (others.keys() | names.keys())):
        source.refuse(
            star,
            "ambiguous",
            f"{name} is named by EXCLUDE and by REPLACE or RENAME",
            "remove it from one of them",
        )
    for name in others:
        if known.count(name) > 1:
            source.refuse(star, "ambiguous", f"* has two columns {name}", f"write t.* REPLACE (… AS {name})")
    return [
        (names.get(normalize_name(name), name), others.get(normalize_name(name), expr))
        for name, expr in columns
        if normalize_name(name) not in out
    ]


def list_select_items(scope: Scope, select: exp.Select | exp.SetOperation) -> list[Item]:
    """List the SELECT items of groups, with the columns of `*` where it stands next to GROUP BY."""
    grouped = bool(select.args.get("group"))
    items: list[Item] = []
    for node in select.expressions:
        columns = expand_star_item(scope, node, grouped=grouped)
        items += [_split_alias(scope.source, node)] if columns is None else columns
    if not items or len(items) > MAX_OUTPUTS:
        scope.source.refuse(select, "too_long", f"SELECT must name between 1 and {MAX_OUTPUTS} columns")
    return items


def _split_alias(text: QueryText, node: exp.Expr) -> Item:
    if type(node) is not exp.Alias:
        return None, node
    inner, identifier = text.take_arguments(node, "this", "alias")
    return str(text.take_arguments(identifier, "this", quoted=(True,))[0]), inner


def expand_star_item(scope: Scope, item: exp.Expr, *, grouped: bool) -> list[Item] | None:
    """Return the columns that an item of a SELECT with GROUP BY means as `*`, each with its name if it has another; None for other items.

    For a private table it returns None: the database may have columns that nobody has declared.
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
                "PIVOT without GROUP BY groups by all other columns, the column of the privacy unit included",
                "add GROUP BY with the columns to keep at its end; or PIVOT (SELECT k, g, x FROM t) ON k "
                "IN ('a', 'b') USING SUM(x)",
            )
        return None
    table = scope.source.take_arguments(item, "this", "table")[1] if star is not item else None
    owner = None if table is None else str(scope.source.take_arguments(table, "this", quoted=(True,))[0])
    every = [(scope.get_column_name(column), column.source) for column in scope.list_columns(item, owner)]
    start = next((part.meta["start"] for part in item.walk() if "start" in part.meta), None)
    nodes = [(name, _build_column_node(scope, name, alias, start)) for name, alias in every]
    found = apply_star_modifiers(scope.source, star, nodes, lambda node: node)
    return [(None if (name, node) in nodes else name, node) for name, node in found]


def _build_column_node(scope: Scope, name: str, alias: str, start: int | None) -> exp.Expr:
    """Build a column of a source as the query would name it, where the * stands."""
    owner = None if normalize_name(name) in scope.using_owners else exp.to_identifier(alias, quoted=True)
    found = exp.Column(this=exp.to_identifier(name, quoted=True), table=owner)
    found.meta.update({} if start is None else {"start": start})
    return found


def _require_aliases(source: QueryText, items: Sequence[exp.Expr] | None) -> Sequence[exp.Expr]:
    for item in items or ():
        if type(item) is not exp.Alias:
            source.refuse(
                item,
                "syntax",
                "REPLACE is written REPLACE (x + 1 AS x), and RENAME is written RENAME (x AS y)",
            )
        source.take_arguments(item, "this", "alias")
    return items or ()


def _take_replaced_name(source: QueryText, item: exp.Expr, known: Sequence[str]) -> str:
    """Return the folded name of the column that an item of REPLACE replaces."""
    return _require_known_name(
        source, item, str(source.take_arguments(item.args["alias"], "this", quoted=(True,))[0]), known
    )


def _take_column_name(source: QueryText, item: exp.Expr, known: Sequence[str]) -> str:
    """Return the folded column that an item of EXCLUDE or RENAME names."""
    if type(item) is not exp.Column:
        source.refuse(item, "column", "a column name is expected here")
    (identifier,) = source.take_arguments(item, "this")
    return _require_known_name(
        source, item, str(source.take_arguments(identifier, "this", quoted=(True,))[0]), known
    )


def _require_known_name(source: QueryText, node: exp.Expr, name: str, known: Sequence[str]) -> str:
    if normalize_name(name) not in known:
        source.refuse(node, "column", f"* has no column {name}", f"it has: {', '.join(known)}")
    return normalize_name(name)
