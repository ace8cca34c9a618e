"""DP_INTERVAL_LOW(x) and DP_INTERVAL_HIGH(x): the ends of the 95% confidence interval of a released aggregate.

They are columns that stand beside x wherever x can be named: in the SELECT that releases it, and above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expr import Column, Facts, Released
from dpsql.plan.nodes import Answer, Output, Release, Source
from dpsql.plan.types import Type
from dpsql.policy import fold
from dpsql.sql.refuse import Source as Text

NAMES: Mapping[str, str] = {"dp_interval_low": "low", "dp_interval_high": "high"}


def which_end(node: exp.Expr) -> str | None:
    """The end that a call asks for, None where a node is no such call."""
    name = node.args.get("this") if type(node) is exp.Anonymous else None
    return NAMES.get(fold(name)) if isinstance(name, str) else None


def asks_for_ends(query: exp.Expr) -> bool:
    """Whether a query asks for an end of an interval, or one within it does; only steers what is kept."""
    return any(which_end(node) is not None for node in query.find_all(exp.Anonymous))


def asked_of(text: Text, node: exp.Expr) -> exp.Expr:
    """What a call asks for the interval of."""
    _, items = text.take(node, "this", "expressions")
    if len(items or ()) != 1:
        refuse(text, node)
    asked: exp.Expr = items[0]
    while type(asked) is exp.Paren:
        (asked,) = text.take(asked, "this")
    return asked


def with_ends(source: Source) -> Source:
    """The source with both ends beside each of its columns that is a released aggregate as it is.

    Where rows were made distinct, an end is no function of the row. Names that begin with # are no user's.
    """
    if not isinstance(source, Answer) or not isinstance(source.post.source, Release) or source.post.distinct:
        return source
    aggregates = {item.name for item in source.post.source.aggregations}
    outputs, columns = list(source.post.outputs), list(source.columns)
    for output, column in zip(source.post.outputs, source.columns, strict=True):
        if isinstance(output.expr, Released) and output.expr.name in aggregates:
            for which in NAMES.values():
                beside = end_column(column, which)
                outputs.append(Output(beside.name, output.expr.end(which)))
                columns.append(beside)
    return replace(source, post=replace(source.post, outputs=tuple(outputs)), columns=tuple(columns))


def end_column(column: Column, which: str) -> Column:
    """The column beside a released aggregate's that holds an end of its interval."""
    return Column(column.source, f"#{which} {column.name}", Facts(Type.DOUBLE, ""))


def refuse(text: Text, node: exp.Expr) -> NoReturn:
    """Refuses an interval of what is no released aggregate as it is."""
    name = str(node.args.get("this")).upper()
    text.refuse(
        node,
        "type",
        f"{name} takes an aggregate across privacy units, or its alias: of nothing else is an interval known",
        f"write {name}(COUNT(*)), or SELECT COUNT(*) AS n, {name}(n)",
    )
