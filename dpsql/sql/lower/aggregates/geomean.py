"""GEOMEAN(x): the geometric mean of positive numbers, as arithmetic over a released mean.

Claim: it is as private as the mean of LN(x), from which it is computed.
Why: its exponential is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.plan.aggregates.base import round_to_double
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ReleasedGroups,
    lower_single_argument,
    refuses,
)
from dpsql.sql.parse.dialect import ADDED_NODES

_GEOMEAN_SIGNATURE = "GEOMEAN(x)"


def _lower_geomean_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    argument = lower_single_argument(over, node, _GEOMEAN_SIGNATURE)
    if not argument.type.numeric:
        over.source.refuse(node, "type", f"{_GEOMEAN_SIGNATURE} takes a number, not {argument.type}")
    around = derive_interval(argument, derive_known_intervals(over.input))
    if around.low is None or around.low <= 0:
        over.source.refuse(
            node,
            "unbounded",
            f"{_GEOMEAN_SIGNATURE} needs x > 0, and this expression can be anything in {around}",
            "set a minimum: GEOMEAN(GREATEST(x, 1)), or WHERE x >= 1",
        )
    scalars = over.scope.scalars
    logarithm = over.add_statistic(node, "avg", scalars.build_call(node, "ln", argument))
    found = scalars.build_call(node, "exp", logarithm)
    # The exponential of a rounded logarithm can lie a rounding outside of the interval.
    low = Literal(round_to_double(around.low), Type.DOUBLE)
    found = scalars.build_call(node, "case", scalars.build_call(node, "lt", found, low), low, found)
    if around.high is None:
        return found
    high = Literal(round_to_double(around.high), Type.DOUBLE)
    return scalars.build_call(node, "case", scalars.build_call(node, "gt", found, high), high, found)


GEOMEAN = AggregateCall(
    forms=(CallForm("UNFILTERED", ("GEOMEAN", "GEOMETRIC_MEAN"), "({x} + 1)"),),
    nodes=(ADDED_NODES["GEOMEAN"], ADDED_NODES["GEOMETRIC_MEAN"]),
    signature=_GEOMEAN_SIGNATURE,
    says="The geometric mean, EXP(AVG(LN(x))), of x > 0; x needs bounds.",
    across=_lower_geomean_across,
    within=refuses(
        "released_only",
        "{name} is only supported across privacy units",
        "write its formula: EXP(AVG(LN(x)))",
    ),
    filters=False,
    accepted=(
        "SELECT GEOMEAN(age), GEOMETRIC_MEAN(GREATEST(cost, 1)) FROM visits",
        "SELECT plan, GEOMEAN(cost) FROM visits WHERE cost >= 0.5 GROUP BY plan",
    ),
    refused={
        "SELECT GEOMEAN(cost) FROM visits": "unbounded",
        "SELECT GEOMEAN(cost) FROM visits WHERE cost > 0": "unbounded",
        "SELECT GEOMEAN(GREATEST(weight, 1)) FROM visits": "unbounded",
        "SELECT GEOMEAN(note) FROM visits": "type",
        "SELECT GEOMEAN(DISTINCT age) FROM visits": "distinct",
        "SELECT GEOMEAN(age) FILTER (WHERE cost > 10) FROM visits": "aggregate",
        "SELECT COUNT(g) FROM (SELECT GEOMEAN(age) AS g FROM visits GROUP BY patient_id)": "released_only",
    },
)
