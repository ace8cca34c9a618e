"""Refuse calls that belong to another statement, and names that statement."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.sql.parse.rejection import QueryText

_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "RANDOMIZE": (
        "RANDOMIZE is only allowed in CREATE LOCAL TABLE",
        "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)",
    ),
}


def check_misplaced_calls(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree unchanged. Raises QueryRejected (`function`) if it has a call that is only allowed elsewhere."""
    for node in () if tree is None else tree.find_all(exp.Anonymous):
        if node.name.upper() in _ELSEWHERE:
            source.refuse(node, "function", *_ELSEWHERE[node.name.upper()])
    return tree
