"""AVG(x): the mean of a number; of days and moments, arithmetic over a released mean.

Claim: the mean of days and moments is as private as the mean that it is computed of.
Why: released is how far after the first moment that there can be the others are on average; what is computed of that
is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from dpsql.analysis.intervals import conditions, interval
from dpsql.functions.moments import LENGTHS, at_end
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import AcrossUnits, AggregateCall, Form, one_argument

_SIGNATURE = "AVG(x)"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def _mean(over: AcrossUnits, node: exp.AggFunc) -> Expr:
    argument = one_argument(over, node, _SIGNATURE)
    if argument.type.temporal:
        return _mean_moment(over, node, argument)
    return over.released(node, "avg", argument)


def _mean_moment(over: AcrossUnits, node: exp.AggFunc, argument: Expr) -> Expr:
    """The mean of a DATE or TIMESTAMP as TIMESTAMP, to the microsecond; NULL where no row is estimated to be."""
    scalars = over.scope.scalars
    unit = "day" if argument.type is Type.DATE else "microsecond"
    first = Literal(
        at_end(argument.type, interval(argument, conditions(over.input)).low) or _EPOCH, Type.TIMESTAMP
    )
    mean = over.released(node, "avg", scalars.call(node, f"date_diff_{unit}", first, argument))
    length = Literal(LENGTHS[unit] // LENGTHS["microsecond"], Type.INTEGER)
    after = scalars.call(node, "cast_bigint", scalars.call(node, "multiply", mean, length))
    return scalars.call(node, "plus_microsecond", first, after)


AVG = AggregateCall(
    forms=(Form("TOTAL", ("AVG",)),),
    nodes=(exp.Avg,),
    signature=_SIGNATURE,
    says="The mean of x, which needs bounds; of dates and timestamps a timestamp.",
    across=_mean,
    within=lambda over, node: over.exact(node, "avg", one_argument(over, node, _SIGNATURE)),
    window=True,
    accepted=(
        "SELECT AVG(cost), AVG(age) FILTER (WHERE cost > 10), AVG(day) FROM visits",
        "SELECT MAX(a) FROM (SELECT AVG(age) AS a FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT AVG(DISTINCT age) FROM visits": "distinct",
        "SELECT AVG(note) FROM visits": "type",
        "SELECT AVG(weight) FROM visits": "unbounded",
    },
)
