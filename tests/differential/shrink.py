"""Finds made small: clauses, branches and operands are dropped as long as the find remains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp

_CLAUSES = (
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "limit",
    "offset",
    "joins",
    "expressions",
    "distinct",
    "with_",
    "on",
)
_MOST = 400
"""Statements that are tried for one find."""


def smaller(sql: str, remains: Callable[[str], bool], most: int = _MOST) -> str:
    """A statement, as small as single steps lead to, of which `remains` still holds."""
    found, tried = sql, set[str]()
    progress = True
    while progress:
        progress = False
        for text in _steps(found):
            if text in tried or len(text) >= len(found):
                continue
            tried.add(text)
            if len(tried) > most:
                return found
            if remains(text):
                found, progress = text, True
                break
    return found


def _steps(sql: str) -> Iterator[str]:
    """Statements that are one step smaller, the largest steps first."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    found: set[str] = set()
    for place, _ in enumerate(tree.walk()):
        for edit in range(12):
            copy = tree.copy()
            node = next(node for at, node in enumerate(copy.walk()) if at == place)
            if not _edited(node, edit):
                continue
            text = copy.sql(dialect="duckdb")
            found.add(text)
    yield from sorted(found, key=lambda text: (len(text), text))


def _edited(node: exp.Expression, edit: int) -> bool:
    """Whether a node could be made smaller in the way of that number, and was."""
    if edit < 5:
        return _without(node, edit)
    children = [
        child for child in node.iter_expressions() if not isinstance(child, (exp.Identifier, exp.DataType))
    ]
    if (
        isinstance(node, exp.Condition)
        and not isinstance(node, (exp.Column, exp.Literal))
        and edit - 5 < len(children)
    ):
        child = children[edit - 5]
        if isinstance(child, exp.Condition) and node.parent is not None:
            node.replace(child.pop())
            return True
    if edit == 11 and isinstance(node, exp.Subquery) and isinstance(node.parent, (exp.From, exp.Join)):
        inner = node.this
        if isinstance(inner, exp.SetOperation):
            inner.replace(inner.this.copy())
            return True
    if edit == 10 and isinstance(node, exp.SetOperation):
        node.replace(node.expression.copy())
        return True
    return False


def _without(node: exp.Expression, edit: int) -> bool:
    names = [name for name in _CLAUSES if node.args.get(name)]
    pieces: list[tuple[str, int | None]] = []
    for name in names:
        value = node.args[name]
        if isinstance(value, list):
            pieces += [(name, at) for at in range(len(value)) if len(value) > 1 or name == "joins"]
        else:
            pieces.append((name, None))
    if edit >= len(pieces):
        return False
    name, at = pieces[edit]
    if at is None:
        node.set(name, None)
    else:
        node.set(name, [item for place, item in enumerate(node.args[name]) if place != at])
    return True
