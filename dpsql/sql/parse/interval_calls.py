"""The calls that ask for an end of an interval: DP_INTERVAL_LOW(x) and DP_INTERVAL_HIGH(x)."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.policy import normalize_name

NAMES: Mapping[str, str] = {"dp_interval_low": "low", "dp_interval_high": "high"}


def find_interval_end(node: exp.Expr) -> str | None:
    """Return the end that a call asks for, None where a node is no such call."""
    name = node.args.get("this") if type(node) is exp.Anonymous else None
    return NAMES.get(normalize_name(name)) if isinstance(name, str) else None


def has_interval_calls(query: exp.Expr) -> bool:
    """Return whether a query, or one in it, asks for an interval end; it only decides which columns are kept."""
    return any(find_interval_end(node) is not None for node in query.walk())
