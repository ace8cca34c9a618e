"""MIN, MAX, MEDIAN and quantiles.

Across units they are one family: values at shares of the others. Over the rows of one unit they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.aggregates import AGGREGATES, Aggregate
from dpsql.functions import FUNCTIONS
from dpsql.plan.expr import Call, Expr, Function, Literal
from dpsql.plan.nodes import is_private
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AcrossUnits,
    AggregateCall,
    ExactGroups,
    Form,
    one_argument,
    refuse_distinct,
    where_counted,
)
from dpsql.sql.lower.folding import constant_of
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.read.rejection import Source

_MOST = 10**6
"""Shares are told apart to a millionth."""
_ENDS = frozenset({"min", "max"})
"""Those that are a value of the argument's own type, and so the value itself where all rows of a group have one."""
MOST_SHARES = 100
"""Most values that one call lists."""
LIST = Function(
    "list", "[x, …]", lambda _: Type.LIST, "[{args}]", "no value is computed", example=("[6, 7]", "[6, 7]")
)


def plain(text: Source, node: exp.AggFunc | exp.WithinGroup) -> exp.AggFunc:
    """PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x) as QUANTILE_CONT(x, q), and QUANTILE and APPROX_QUANTILE as QUANTILE_DISC.

    From the greatest down a share q of the values is one of 1 - q from the least up.
    """
    if type(node) in (exp.Quantile, exp.ApproxQuantile):
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
            "WITHIN GROUP (ORDER BY x) is only allowed after PERCENTILE_CONT(q) or PERCENTILE_DISC(q)",
        )
    share, none = text.take(call, "this", "expression")
    if none is not None:
        text.refuse(node, "aggregate", "the call takes the share only; the column follows ORDER BY")
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
class QuantileCall:
    """The name of the statistic that a call asks for, its argument, and the shares of values below what it asks for.

    It gives one value, or `listed` a list of them.
    """

    function: str
    argument: exp.Expr
    shares: tuple[Fraction, ...]
    listed: bool = False

    def value(self, found: Sequence[Expr]) -> Expr:
        """What the call gives, of the values at its shares: between two days lies a moment, as in DuckDB."""
        between = AGGREGATES[self.function].result_type(Type.INTEGER) is Type.DOUBLE
        values = [
            Call(FUNCTIONS["cast_timestamp"], (value,), Type.TIMESTAMP)
            if between and value.type is Type.DATE
            else value
            for value in found
        ]
        return Call(LIST, tuple(values), Type.LIST) if self.listed else values[0]


def _asked(text: Source, scalars: Scalars, node: exp.AggFunc, name: str) -> QuantileCall:
    """What a call of the statistic with this name asks for."""
    entry = AGGREGATES[name]
    share: exp.Expr | None = None
    if entry.rank is not None:
        (argument,) = text.take(node, "this")
    else:
        argument, share = text.take(node, "this", "expression")
    if argument is None:
        text.refuse(node, "syntax", f"{entry.signature}: x is missing")
    if entry.rank is not None:
        return QuantileCall(name, argument, (entry.rank,))
    if type(share) is not exp.Array:
        return QuantileCall(name, argument, (_share(text, scalars, node, entry, share),))
    (items,) = text.take(share, "expressions")
    if not 0 < len(items) <= MOST_SHARES:
        text.refuse(share, "constant", f"{entry.signature}: from 1 to {MOST_SHARES} shares in a list")
    shares = tuple(_share(text, scalars, node, entry, item) for item in items)
    return QuantileCall(name, argument, shares, listed=True)


def _share(
    text: Source, scalars: Scalars, node: exp.AggFunc, entry: Aggregate, share: exp.Expr | None
) -> Fraction:
    found = constant_of(text, share, scalars.lower(share)) if share is not None else None
    value = found.value if isinstance(found, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        text.refuse(
            node,
            "constant",
            f"{entry.signature}: q is a constant from 0 to 1",
            f"{entry.call('x', Fraction(1, 2))}",
        )
    return Fraction(str(value)).limit_denominator(_MOST)


def _selected(function: str) -> Callable[[AcrossUnits, exp.AggFunc], Expr]:
    """The values that a call asks for, each of them a statistic."""

    def across(over: AcrossUnits, node: exp.AggFunc) -> Expr:
        ranks = _asked(over.source, over.scope.scalars, node, function)
        if type(ranks.argument) is exp.Distinct:
            refuse_distinct(over.source, node)
        known = over.determined(ranks.argument) if function in _ENDS else None
        if known is not None:
            return where_counted(over, node, known)
        value = over.argument(ranks.argument)
        return ranks.value([over.released(node, function, value, rank) for rank in ranks.shares])

    return across


def _exact(function: str) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    signature = AGGREGATES[function].signature
    return lambda over, node: over.exact(node, function, one_argument(over, node, signature))


def _exact_at(function: str) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    """The exact values that a call asks for; of one unit's rows a single one, since no column holds a list."""

    def within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        ranks = _asked(over.source, over.scope.scalars, node, function)
        if type(ranks.argument) is exp.Distinct:
            refuse_distinct(over.source, node)
        if ranks.listed and is_private(over.input):
            over.source.refuse(
                node,
                "type",
                "a list of quantiles cannot be a column of a unit's groups",
                AGGREGATES[function].call("x", ranks.shares[0]) + " for each of them",
            )
        value = over.argument(ranks.argument)
        return ranks.value([over.exact(node, function, value, rank=rank) for rank in ranks.shares])

    return within


MIN, MAX = (
    AggregateCall(
        forms=(Form("TOTAL", (name,)),),
        nodes=(node,),
        signature=f"{name}(x)",
        says=f"The {which} value; across units one near it, selected at random.",
        across=_selected(name.lower()),
        within=_exact(name.lower()),
        window=True,
        accepted=(
            f"SELECT {name}(cost), {name}(age) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT AVG(m) FROM (SELECT {name}(age) AS m FROM visits GROUP BY patient_id)",
        ),
        refused={
            f"SELECT {name}(DISTINCT age) FROM visits": "distinct",
            f"SELECT {name}(note) FROM visits": "type",
        },
    )
    for name, which, node in (("MIN", "least", exp.Min), ("MAX", "greatest", exp.Max))
)
MEDIAN = AggregateCall(
    forms=(Form("OF_ONE", ("MEDIAN",)),),
    nodes=(exp.Median,),
    signature="MEDIAN(x)",
    says="The value that half of the others lie below.",
    across=_selected("median"),
    within=_exact("median"),
    accepted=(
        "SELECT plan, MEDIAN(cost), MEDIAN(age) FILTER (WHERE cost > 10) FROM visits GROUP BY plan",
        "SELECT AVG(m) FROM (SELECT MEDIAN(age) AS m FROM visits GROUP BY patient_id)",
    ),
    refused={"SELECT MEDIAN(DISTINCT age) FROM visits": "distinct"},
)
QUANTILE_CONT, QUANTILE_DISC = (
    AggregateCall(
        forms=(
            Form("QUANTILE", names, "({x}, 0.5)"),
            Form("PERCENTILE", (ordered,), "(0.5) WITHIN GROUP (ORDER BY {x})"),
        ),
        nodes=nodes,
        signature=f"{names[0]}(x, q)",
        says=f"The value that a share q of the others lie below, {of}; of a list of shares, a list.",
        arity=(2,),
        across=_selected(names[0].lower()),
        within=_exact_at(names[0].lower()),
        accepted=(
            *(f"SELECT {name}(age, 0.9), {name}(cost, [0.1, 0.5]) FROM visits" for name in names),
            f"SELECT {ordered}(0.9) WITHIN GROUP (ORDER BY age DESC) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT AVG(q) FROM (SELECT {names[0]}(age, 0.9) AS q FROM visits GROUP BY patient_id)",
        ),
        refused={
            f"SELECT {names[0]}(age, 2) FROM visits": "constant",
            f"SELECT {names[0]}(DISTINCT age, 0.5) FROM visits": "distinct",
            f"SELECT COUNT(q) FROM (SELECT {names[0]}(age, [0.5]) AS q FROM visits GROUP BY patient_id)": "type",
            f"SELECT {names[0]}(0.5) WITHIN GROUP (ORDER BY age) FROM visits": "syntax",
        },
    )
    for names, ordered, of, nodes in (
        (("QUANTILE_CONT",), "PERCENTILE_CONT", "between two if need be", (exp.PercentileCont,)),
        (
            ("QUANTILE_DISC", "QUANTILE", "APPROX_QUANTILE"),
            "PERCENTILE_DISC",
            "a whole number of whole numbers",
            (exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile),
        ),
    )
)
