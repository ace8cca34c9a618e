"""Calls of MEDIAN, MIN, MAX and quantiles: which value in order of size they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from sqlglot import exp

from dpsql.aggregates import AGGREGATES
from dpsql.plan.expr import Literal
from dpsql.sql.refuse import Source
from dpsql.sql.scalars import Scalars

RANKED: Mapping[type[exp.Expr], str] = {
    exp.Min: "min",
    exp.Max: "max",
    exp.Median: "median",
    exp.PercentileCont: "quantile_cont",
    exp.PercentileDisc: "quantile_disc",
    exp.Quantile: "quantile_disc",
}
"""The registry's name of each call."""
NAMES = (
    "MIN",
    "MAX",
    "MEDIAN",
    "QUANTILE",
    "QUANTILE_CONT",
    "QUANTILE_DISC",
    "PERCENTILE_CONT",
    "PERCENTILE_DISC",
)
"""What they are called in SQL."""

_MOST = 10**6
"""Shares are told apart to a millionth."""


def plain(text: Source, node: exp.AggFunc | exp.WithinGroup) -> exp.AggFunc:
    """PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x) as QUANTILE_CONT(x, q), and QUANTILE as QUANTILE_DISC.

    From the greatest down a share q of the values is one of 1 - q from the least up.
    """
    if type(node) is exp.Quantile:
        argument, share = text.take(node, "this", "quantile")
        return exp.PercentileDisc(this=argument, expression=share)
    if not isinstance(node, exp.WithinGroup):
        return node
    call, order = text.take(node, "this", "expression")
    (items,) = text.take(order, "expressions")
    if type(call) not in (exp.PercentileCont, exp.PercentileDisc) or len(items) != 1:
        text.refuse(
            node,
            "aggregate",
            "WITHIN GROUP (ORDER BY x) stands after PERCENTILE_CONT(q) or PERCENTILE_DISC(q)",
        )
    share, none = text.take(call, "this", "expression")
    if none is not None:
        text.refuse(node, "aggregate", "the share alone stands in the call, the column after ORDER BY")
    # NULL values are no values, wherever they come.
    argument, descending, _ = text.take(items[0], "this", "desc", "nulls_first")
    if descending:
        share = exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))
    built: exp.AggFunc = type(call)(this=argument, expression=share)
    return built


def asked(text: Source, scalars: Scalars, node: exp.AggFunc) -> tuple[str, exp.Expr, Fraction]:
    """The registry's name of a call, its argument, and the share of values below what it asks for."""
    name = RANKED[type(node)]
    entry = AGGREGATES[name]
    share: exp.Expr | None = None
    if entry.rank is not None:
        (argument,) = text.take(node, "this")
    else:
        argument, share = text.take(node, "this", "expression")
    if argument is None:
        text.refuse(node, "syntax", f"{entry.signature}: x is missing")
    if entry.rank is not None:
        return name, argument, entry.rank
    found = scalars.lower(share) if share is not None else None
    value = found.value if isinstance(found, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        text.refuse(
            node,
            "constant",
            f"{entry.signature}: q is a constant from 0 to 1",
            f"{entry.call('x', Fraction(1, 2))}",
        )
    return name, argument, Fraction(str(value)).limit_denominator(_MOST)
