"""Calls of MEDIAN, MIN, MAX and quantiles: which values in order of size they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.aggregates import AGGREGATES
from dpsql.functions import FUNCTIONS
from dpsql.plan.expr import Call, Expr, Function, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.read.rejection import Source

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
MOST_SHARES = 100
"""Most values that one call lists."""
LIST = Function(
    "list", "[x, …]", lambda _: Type.LIST, "[{args}]", "no value is computed", example=("[6, 7]", "[6, 7]")
)


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
    if descending and type(share) is exp.Array:
        (shares,) = text.take(share, "expressions")
        share = exp.Array(expressions=[*map(_rest, shares)])
    elif descending:
        share = _rest(share)
    built: exp.AggFunc = type(call)(this=argument, expression=share)
    return built


def _rest(share: exp.Expr) -> exp.Expr:
    return exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))


@dataclass(frozen=True, slots=True)
class Asked:
    """The registry's name of a call, its argument, and the shares of values below what it asks for.

    It gives one value, or `listed` a list of them.
    """

    function: str
    argument: exp.Expr
    shares: tuple[Fraction, ...]
    listed: bool = False

    def value(self, found: Sequence[Expr]) -> Expr:
        """What the call gives, of the values at its shares: between two days lies a moment, as in DuckDB."""
        between = AGGREGATES[self.function].result_type(Type.INTEGER) is Type.DOUBLE
        shown = [
            Call(FUNCTIONS["cast_timestamp"], (value,), Type.TIMESTAMP)
            if between and value.type is Type.DATE
            else value
            for value in found
        ]
        return Call(LIST, tuple(shown), Type.LIST) if self.listed else shown[0]


def asked(text: Source, scalars: Scalars, node: exp.AggFunc) -> Asked:
    """What a call asks for."""
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
        return Asked(name, argument, (entry.rank,))
    if type(share) is not exp.Array:
        return Asked(name, argument, (_share(text, scalars, node, share),))
    (items,) = text.take(share, "expressions")
    if not 0 < len(items) <= MOST_SHARES:
        text.refuse(share, "constant", f"{entry.signature}: from 1 to {MOST_SHARES} shares in a list")
    return Asked(name, argument, tuple(_share(text, scalars, node, item) for item in items), listed=True)


def _share(text: Source, scalars: Scalars, node: exp.AggFunc, share: exp.Expr | None) -> Fraction:
    found = scalars.lower(share) if share is not None else None
    value = found.value if isinstance(found, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        entry = AGGREGATES[RANKED[type(node)]]
        text.refuse(
            node,
            "constant",
            f"{entry.signature}: q is a constant from 0 to 1",
            f"{entry.call('x', Fraction(1, 2))}",
        )
    return Fraction(str(value)).limit_denominator(_MOST)
