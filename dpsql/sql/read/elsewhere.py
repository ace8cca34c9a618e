"""Calls that a SELECT cannot have, and where what they mean is had."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.sql.read.rejection import Source

_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "RANDOMIZE": (
        "RANDOMIZE makes the columns of a local table",
        "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)",
    ),
    "BEST_EXPERT": (
        "a choice among experts is drawn at random in each round, and a statement draws nothing but the noise of its releases",
        "release the series of losses by a query, then follow it in Python, free: learner.choose(), learner.observe(row)",
    ),
}


def require_none_elsewhere(source: Source, tree: exp.Expr | None) -> exp.Expr | None:
    """The tree, in which there is no such call. Raises QueryRejected (`function`) at one."""
    for node in () if tree is None else tree.find_all(exp.Anonymous):
        if node.name.upper() in _ELSEWHERE:
            source.refuse(node, "function", *_ELSEWHERE[node.name.upper()])
    return tree
