"""Aggregates that there are not, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.aggregates.base import Aggregate
from dpsql.aggregates.per_unit import ExactAggregate
from dpsql.sql.read.dialect import Histogram
from dpsql.sql.read.rejection import Source

_LISTED = "values of rows are never released; how often each occurs is: SELECT x, COUNT(*) … GROUP BY x"
_BEST = (
    "choose the best group: SELECT {0}(k, s) FROM (SELECT k, SUM(x) AS s … GROUP BY k), "
    "or SELECT k … GROUP BY k ORDER BY SUM(x) {1} LIMIT 1"
)
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.Mode: "the value that occurs most is chosen by SELECT x … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1",
    exp.ApproxQuantile: "QUANTILE_CONT(x, q)",
    exp.ApproxDistinct: "COUNT(DISTINCT x)",
    exp.GroupConcat: _LISTED,
    exp.ArrayAgg: _LISTED,
    exp.AnyValue: _LISTED,
    exp.First: _LISTED,
    exp.Last: _LISTED,
}


def unsupported(source: Source, node: exp.Expr, entries: Iterable[Aggregate | ExactAggregate]) -> NoReturn:
    """Refuses an aggregate that is none of `entries`, with what to write in its place."""
    known = ", ".join(entry.signature for entry in entries)
    name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
    if isinstance(node, (exp.ArgMax, exp.ArgMin)):
        best = _BEST.format(name, "DESC" if isinstance(node, exp.ArgMax) else "ASC")
        source.refuse(node, "exact_only", f"{name} across privacy units would show one row's value", best)
    if isinstance(node, Histogram):
        rows = "count them: SELECT bin, COUNT(*) … GROUP BY bin"
        source.refuse(node, "released_only", "HISTOGRAM is computed across units alone", rows)
    source.refuse(
        node,
        "mode" if type(node) is exp.Mode else "aggregate",
        f"{name} is not supported yet",
        _INSTEAD.get(type(node), f"there are: {known}"),
    )
