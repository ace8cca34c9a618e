"""Which calls ask for an end of an interval: DP_INTERVAL_LOW(x) and DP_INTERVAL_HIGH(x)."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.policy import fold

NAMES: Mapping[str, str] = {"dp_interval_low": "low", "dp_interval_high": "high"}


def which_end(node: exp.Expr) -> str | None:
    """The end that a call asks for, None where a node is no such call."""
    name = node.args.get("this") if type(node) is exp.Anonymous else None
    return NAMES.get(fold(name)) if isinstance(name, str) else None


def asks_for_ends(query: exp.Expr) -> bool:
    """Whether a query asks for an end of an interval, or one within it does; only steers what is kept."""
    return any(which_end(node) is not None for node in query.walk())
