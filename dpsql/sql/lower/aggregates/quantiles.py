"""MIN, MAX, MEDIAN and quantiles.

Across units they are selected privately, all by one mechanism. Over the rows of one unit they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.analysis.nullability import is_never_null
from dpsql.plan.aggregates import AGGREGATES, Aggregate
from dpsql.plan.expressions import Call, Expr, Function, Literal
from dpsql.plan.functions import FUNCTIONS, build_function_call
from dpsql.plan.interval import get_value_at
from dpsql.plan.nodes import Relation, is_private
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    ReleasedGroups,
    guard_by_count,
    lower_single_argument,
    refuse_distinct,
)
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.rejection import QueryText

RANKED = "ranked_values"
"""The mark of a quantile that stands for ranked rows, among which are those where the value is NULL."""
NULLS_PLACED = "nulls_placed"
"""The mark of a quantile of ordered rows, NULL among them: "low" or "high" says at which end of the bounds it is counted."""
_MOST = 10**6
"""Shares are distinguished to a millionth."""
_ENDS = frozenset({"min", "max"})
"""The quantiles that return a value of the argument's type, which is the value itself if all rows of a group share it."""
_DENSE = frozenset({Type.DOUBLE, Type.TIMESTAMP})
MOST_SHARES = 100
"""Most values that one call lists."""
LIST = Function(
    "list", "[x, …]", lambda _: Type.LIST, "[{args}]", "no value is computed", example=("[6, 7]", "[6, 7]")
)


def normalize_quantile_call(text: QueryText, node: exp.AggFunc | exp.WithinGroup) -> exp.AggFunc:
    """Rewrite PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x) as QUANTILE_CONT(x, q), and QUANTILE and APPROX_QUANTILE as QUANTILE_DISC.

    The quantile q of the values in descending order is the quantile 1 - q in ascending order.
    """
    if type(node) in (exp.Quantile, exp.ApproxQuantile):
        argument, share = text.take_arguments(node, "this", "quantile")
        return exp.PercentileDisc(this=argument, expression=share)
    if not isinstance(node, exp.WithinGroup):
        return node
    call, order = text.take_arguments(node, "this", "expression")
    (items,) = text.take_arguments(order, "expressions")
    if type(call) not in (exp.PercentileCont, exp.PercentileDisc) or len(items) != 1:
        text.refuse(
            node,
            "aggregate",
            "WITHIN GROUP (ORDER BY x) is only allowed after PERCENTILE_CONT(q) or PERCENTILE_DISC(q)",
        )
    share, none = text.take_arguments(call, "this", "expression")
    if none is not None:
        text.refuse(
            node,
            "aggregate",
            "PERCENTILE_CONT and PERCENTILE_DISC only take the share; the column follows ORDER BY",
        )
    # NULLs are excluded, wherever they are sorted.
    argument, descending, _ = text.take_arguments(items[0], "this", "desc", "nulls_first")
    if descending and type(share) is exp.Array:
        (shares,) = text.take_arguments(share, "expressions")
        share = exp.Array(expressions=[*map(_build_complement, shares)])
    elif descending:
        share = _build_complement(share)
    built: exp.AggFunc = type(call)(this=argument, expression=share)
    return built


def _build_complement(share: exp.Expr) -> exp.Expr:
    return exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))


@dataclass(frozen=True, slots=True)
class QuantileCall:
    """A quantile call: the name of its statistic, its argument, and the shares of values below the results.

    It gives one value, or `is_list` a list of them.
    """

    function: str
    argument: exp.Expr
    shares: tuple[Fraction, ...]
    is_list: bool = False

    def build_result(self, found: Sequence[Expr]) -> Expr:
        """Build the result of the call from the values at its shares; between two days it is a timestamp, as in DuckDB."""
        between = AGGREGATES[self.function].result_type(Type.INTEGER) is Type.DOUBLE
        values = [
            Call(FUNCTIONS["cast_timestamp"], (value,), Type.TIMESTAMP)
            if between and value.type is Type.DATE
            else value
            for value in found
        ]
        return Call(LIST, tuple(values), Type.LIST) if self.is_list else values[0]


def _parse_quantile_call(text: QueryText, scalars: Scalars, node: exp.AggFunc, name: str) -> QuantileCall:
    """Parse the argument and the shares of a quantile call."""
    entry = AGGREGATES[name]
    share: exp.Expr | None = None
    if entry.rank is not None:
        (argument,) = text.take_arguments(node, "this")
    else:
        argument, share = text.take_arguments(node, "this", "expression")
    if name in _ENDS:
        argument = _drop_distinct(text, argument)
    if argument is None:
        text.refuse(node, "syntax", f"{entry.signature}: x is missing")
    if entry.rank is not None:
        return QuantileCall(name, argument, (entry.rank,))
    if type(share) is not exp.Array:
        return QuantileCall(name, argument, (_parse_share(text, scalars, node, entry, share),))
    (items,) = text.take_arguments(share, "expressions")
    if not 0 < len(items) <= MOST_SHARES:
        text.refuse(share, "constant", f"{entry.signature}: a list must have from 1 to {MOST_SHARES} shares")
    shares = tuple(_parse_share(text, scalars, node, entry, item) for item in items)
    return QuantileCall(name, argument, shares, is_list=True)


def _drop_distinct(text: QueryText, argument: exp.Expr | None) -> exp.Expr | None:
    """Return the argument of MIN or MAX without DISTINCT, which does not change the least and the greatest value."""
    if type(argument) is not exp.Distinct:
        return argument
    values, on = text.take_arguments(argument, "expressions", "on")
    return values[0] if on is None and len(values) == 1 else argument


def _parse_share(
    text: QueryText, scalars: Scalars, node: exp.AggFunc, entry: Aggregate, share: exp.Expr | None
) -> Fraction:
    found = fold_constant(text, share, scalars.lower(share)) if share is not None else None
    value = found.value if isinstance(found, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        text.refuse(
            node,
            "constant",
            f"{entry.signature}: q must be a constant from 0 to 1",
            f"{entry.format_call('x', Fraction(1, 2))}",
        )
    return Fraction(str(value)).limit_denominator(_MOST)


def _make_across_lowering(function: str) -> Callable[[ReleasedGroups, exp.AggFunc], Expr]:
    """Build the values that a call asks for, each of them a statistic."""

    def lower_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
        ranks = _parse_quantile_call(over.source, over.scope.scalars, node, function)
        if type(ranks.argument) is exp.Distinct:
            refuse_distinct(over.source, node)
        known = over.find_determined_value(ranks.argument) if function in _ENDS else None
        if known is not None:
            return guard_by_count(over, node, known)
        value = over.lower_argument(ranks.argument)
        if node.meta.get(RANKED) and not is_never_null(value, over.input):
            over.scope.context.notices.append(
                f"Rows where {format_expression(value)} is NULL are left out of quantiles; ROW_NUMBER() and COUNT(*) count them."
            )
        value = _place_nulls(value, over.input, node.meta.get(NULLS_PLACED))
        return ranks.build_result([over.add_statistic(node, function, value, rank) for rank in ranks.shares])

    return lower_across


def _place_nulls(value: Expr, rows: Relation, end: str | None) -> Expr:
    """Return a value with one before the least or after the greatest that it may have in place of NULL, if `end` says so."""
    if end is None or is_never_null(value, rows):
        return value
    around = derive_interval(value, derive_known_intervals(rows))
    if around.low is None or around.high is None:
        return value  # refused for having no bounds
    step = Fraction(0) if value.type is Type.TIME else Fraction(1)  # there is no time before midnight
    step = max(step, (around.high - around.low) / 100 if value.type in _DENSE else Fraction(0))
    found = get_value_at(around.low - step if end == "low" else around.high + step, value.type)
    placed = None if found is None else build_function_call("coalesce", value, Literal(found, value.type))
    return value if placed is None else placed


def _make_within_lowering(function: str) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    signature = AGGREGATES[function].signature

    def lower_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        (argument,) = over.source.take_arguments(node, "this")
        bare = _drop_distinct(over.source, argument) if function in _ENDS else argument
        if bare is not argument and bare is not None:
            return over.add_exact_aggregate(node, function, over.lower_argument(bare))
        return over.add_exact_aggregate(node, function, lower_single_argument(over, node, signature))

    return lower_within


def _make_ranked_within_lowering(function: str) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    """Build the exact values that a call asks for; of one unit's rows a single one, since no column holds a list."""

    def lower_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        ranks = _parse_quantile_call(over.source, over.scope.scalars, node, function)
        if type(ranks.argument) is exp.Distinct:
            refuse_distinct(over.source, node)
        if ranks.is_list and is_private(over.input):
            over.source.refuse(
                node,
                "type",
                "a list of quantiles cannot be computed within a privacy unit",
                AGGREGATES[function].format_call("x", ranks.shares[0]) + " for each of them",
            )
        value = over.lower_argument(ranks.argument)
        return ranks.build_result(
            [over.add_exact_aggregate(node, function, value, rank=rank) for rank in ranks.shares]
        )

    return lower_within


MIN, MAX = (
    AggregateCall(
        forms=(CallForm("TOTAL", (name,)),),
        nodes=(node,),
        signature=f"{name}(x)",
        says=f"The {which} value; across units a value close to it, selected at random.",
        across=_make_across_lowering(name.lower()),
        within=_make_within_lowering(name.lower()),
        window=True,
        distinct=True,
        accepted=(
            f"SELECT {name}(cost), {name}(age) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT {name}(DISTINCT age), {name}(DISTINCT cost) FILTER (WHERE age > 30) FROM visits",
            f"SELECT AVG(m) FROM (SELECT {name}(DISTINCT age) AS m FROM visits GROUP BY patient_id)",
            f"SELECT AVG(m) FROM (SELECT {name}(age) AS m FROM visits GROUP BY patient_id)",
        ),
        refused={
            f"SELECT {name}(note) FROM visits": "type",
        },
    )
    for name, which, node in (("MIN", "least", exp.Min), ("MAX", "greatest", exp.Max))
)
MEDIAN = AggregateCall(
    forms=(CallForm("OF_ONE", ("MEDIAN",)),),
    nodes=(exp.Median,),
    signature="MEDIAN(x)",
    says="The value that half of the values are below.",
    across=_make_across_lowering("median"),
    within=_make_within_lowering("median"),
    accepted=(
        "SELECT plan, MEDIAN(cost), MEDIAN(age) FILTER (WHERE cost > 10) FROM visits GROUP BY plan",
        "SELECT AVG(m) FROM (SELECT MEDIAN(age) AS m FROM visits GROUP BY patient_id)",
    ),
    refused={"SELECT MEDIAN(DISTINCT age) FROM visits": "distinct"},
)
QUANTILE_CONT, QUANTILE_DISC = (
    AggregateCall(
        forms=(
            CallForm("QUANTILE", names, "({x}, 0.5)"),
            CallForm("PERCENTILE", (ordered,), "(0.5) WITHIN GROUP (ORDER BY {x})"),
        ),
        nodes=nodes,
        signature=f"{names[0]}(x, q)",
        says=f"The value that a share q of the values are below, {of}; for a list of shares, a list.",
        arity=(2,),
        across=_make_across_lowering(names[0].lower()),
        within=_make_ranked_within_lowering(names[0].lower()),
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
        (("QUANTILE_CONT",), "PERCENTILE_CONT", "interpolated between two values", (exp.PercentileCont,)),
        (
            ("QUANTILE_DISC", "QUANTILE", "APPROX_QUANTILE"),
            "PERCENTILE_DISC",
            "a whole number for whole numbers",
            (exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile),
        ),
    )
)
