"""Lower DP_INTERVAL_LOW(x) and DP_INTERVAL_HIGH(x): the ends of the 95% confidence interval of a released x.

Here x is an aggregate, or an expression over the aggregates and keys of one row, such as SUM(cost) / COUNT(*).

The ends are further columns of each source that has x: the SELECT that releases it, and the queries around it. The ends of a
quantile such as MEDIAN(x) are selected privately by the SELECT that releases it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Literal, ReleasedColumn, walk
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import Aggregation, Output, PublicSubquery, Release, Source
from dpsql.plan.smooth import match_linear
from dpsql.plan.text import compute_canonical_text
from dpsql.plan.types import Type
from dpsql.sql.parse.own_calls import NAMES
from dpsql.sql.parse.rejection import QueryText

_DIGITS = 16


def get_interval_argument(text: QueryText, node: exp.Expr) -> exp.Expr:
    """Return the argument of a call of DP_INTERVAL_LOW or DP_INTERVAL_HIGH."""
    _, items = text.take_arguments(node, "this", "expressions")
    if len(items or ()) != 1:
        refuse_interval(text, node)
    asked: exp.Expr = items[0]
    while type(asked) is exp.Paren:
        (asked,) = text.take_arguments(asked, "this")
    return asked


def with_interval_columns(source: Source) -> Source:
    """Return the source with both interval ends next to each noisy column.

    After DISTINCT, an end is not a function of the row. Names that begin with # cannot be a user's.
    """
    if (
        not isinstance(source, PublicSubquery)
        or not isinstance(source.outer.source, Release)
        or source.outer.distinct
    ):
        return source
    aggregates = source.outer.source.aggregations
    outputs, columns = list(source.outer.outputs), list(source.columns)
    for output, column in zip(source.outer.outputs, source.columns, strict=True):
        for which in NAMES.values():
            end = build_interval_end(output.expr, which, aggregates)
            if end is not None:
                beside = make_interval_column(column, which)
                outputs.append(Output(beside.name, end))
                columns.append(beside)
    return replace(source, outer=replace(source.outer, outputs=tuple(outputs)), columns=tuple(columns))


def build_interval_end(expr: Expr, which: str, aggregates: Sequence[Aggregation]) -> Expr | None:
    """Build an interval end of an expression over noisy aggregates and keys of one row; None for all others.

    Claim: for a x + b with an aggregate x it is that end of its interval; else a column for the end of a simulated interval.
    Both are free.
    Why: x -> a x + b maps an interval that holds x to one that holds a x + b, with its ends swapped if a < 0; both are
    functions of noisy cells and of the public law of their noise.
    Source: Moore 1966, "Interval Analysis"; Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    known = {item.name for item in aggregates if item.rank is None}
    found = match_linear(expr)
    if found is not None:
        if found.column.name not in known:
            return None
        turned = {"low": "high", "high": "low"}[which] if found.factor < 0 else which
        return _substitute_end(expr, found.column.get_interval_end(turned))
    parts = list(walk(expr))
    ranked = {item.name for item in aggregates if item.rank is not None}
    read = [part for part in parts if isinstance(part, ReleasedColumn)]
    plain = all(isinstance(part, (Call, Literal, ReleasedColumn)) for part in parts)
    if not expr.type.numeric or not plain or any(part.name in ranked or part.end_of for part in read):
        return None
    if not any(part.name in known for part in read):
        return None
    name = hashlib.sha256(compute_canonical_text(expr).encode()).hexdigest()[:_DIGITS]
    return ReleasedColumn(f"{name}#{which}", Type.DOUBLE, (expr, which))


def build_quantile_interval_end(
    expr: Expr, which: str, aggregates: list[Aggregation], asked: int
) -> Expr | None:
    """Build an end of the interval of a value in order of size, or of a linear function of one; None for all else.

    The end is released too, and is added to the `aggregates`. If the value itself is not among the first `asked` of them,
    which the query needs otherwise, the end replaces it.
    """
    found = match_linear(expr)
    day = isinstance(expr, Call) and expr.function.name == "cast_timestamp"
    of = found.column if found is not None else expr.arguments[0] if day and isinstance(expr, Call) else expr
    item = next(
        (item for item in aggregates if isinstance(of, ReleasedColumn) and item.name == of.name), None
    )
    if item is None or item.rank is None or item.interval_end:
        return None
    turned = found is not None and found.factor < 0
    end = replace(item, interval_end=-1 if (which == "low") != turned else 1)
    known = next((each for each in aggregates if replace(each, name=item.name) == end), None)
    if aggregates.index(item) >= asked:
        aggregates.remove(item)
    if known is None:
        known = replace(end, name=f"a{len(aggregates)}")
        aggregates.append(known)
    return _substitute_end(expr, ReleasedColumn(known.name, known.type))


def _substitute_end(expr: Expr, end: ReleasedColumn) -> Expr | None:
    """Return an expression with the end of an interval in the place of the one released value that it reads."""
    if not isinstance(expr, Call):
        return end if isinstance(expr, ReleasedColumn) else expr
    parts = [_substitute_end(part, end) for part in expr.arguments]
    return build_function_call(expr.function.name, *(part for part in parts if part is not None))


def make_interval_column(column: Column, which: str) -> Column:
    """Build the column with an interval end of a released aggregate."""
    return Column(column.source, f"#{which} {column.name}", ColumnInfo(Type.DOUBLE, ""))


def refuse_interval(text: QueryText, node: exp.Expr) -> NoReturn:
    """Refuse an interval of a value without noise, or with noise of no known law."""
    name = str(node.args.get("this")).upper()
    text.refuse(
        node,
        "type",
        f"{name} takes an expression over noisy sums, counts and means of one row, one quantile, "
        "or an alias of these",
        f"write {name}(COUNT(*)), or SELECT SUM(x) / COUNT(*) AS r, {name}(r); name a quantile "
        f"such as MEDIAN(x) alone, where it is released: SELECT MEDIAN(x), {name}(MEDIAN(x))",
    )
