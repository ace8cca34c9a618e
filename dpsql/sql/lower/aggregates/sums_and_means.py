"""SUM, AVG and GEOMEAN."""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.plan.aggregates.base import round_to_double
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.functions.dates import LENGTHS, find_end_timestamp
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    GroupedRows,
    ReleasedGroups,
    find_distinct_argument,
    lower_single_argument,
    refuses,
)
from dpsql.sql.parse.dialect import ADDED_NODES

# SUM(x): the total of a number.


_SUM_SIGNATURE = "SUM(x)"


def _lower_summed_argument(over: GroupedRows, node: exp.AggFunc) -> tuple[str, Expr]:
    """Return the statistic and the summed expression, with truth values as 1 and 0, as in DuckDB."""
    values = find_distinct_argument(over, node)
    found = lower_single_argument(over, node, _SUM_SIGNATURE) if values is None else values
    found = (build_function_call("cast_bigint", found) or found) if found.type is Type.BOOLEAN else found
    return "sum" if values is None else "sum_distinct", found


SUM = AggregateCall(
    forms=(CallForm("TOTAL", ("SUM", "FSUM", "KAHAN_SUM", "SUMKAHAN")),),
    nodes=(exp.Sum,),
    signature=_SUM_SIGNATURE,
    says="The total of x, which needs bounds; with DISTINCT, of each distinct value once.",
    across=lambda over, node: over.add_statistic(node, *_lower_summed_argument(over, node)),
    within=lambda over, node: over.add_exact_aggregate(node, *_lower_summed_argument(over, node)),
    distinct=True,
    window=True,
    accepted=(
        "SELECT plan, SUM(cost), SUM(age) FILTER (WHERE cost > 10) FROM visits GROUP BY plan",
        "SELECT SUM(age > 40) FROM visits",
        "SELECT FSUM(cost), KAHAN_SUM(age), SUMKAHAN(DISTINCT age) FROM visits",
        "SELECT plan, SUM(DISTINCT age) FROM visits GROUP BY plan",
        "SELECT AVG(s) FROM (SELECT SUM(DISTINCT cost) AS s FROM visits GROUP BY patient_id)",
        "SELECT AVG(LEAST(s, 500)) FROM (SELECT SUM(cost) AS s FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT SUM(note) FROM visits": "type",
        "SELECT SUM(weight) FROM visits": "unbounded",
    },
)


# AVG(x): the mean of a number; of days and moments, arithmetic over a released mean.


_AVG_SIGNATURE = "AVG(x)"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def _lower_mean_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    values = find_distinct_argument(over, node)
    if values is not None:
        return _lower_distinct_mean(over, node, values)
    argument = lower_single_argument(over, node, _AVG_SIGNATURE)
    if argument.type.temporal:
        return _lower_mean_moment(over, node, argument)
    return over.add_statistic(node, "avg", argument)


def _lower_distinct_mean(over: ReleasedGroups, node: exp.AggFunc, value: Expr) -> Expr:
    """Return the total of distinct values over their number, within the interval of the values; NULL if there are none."""
    around, call = derive_interval(value, derive_known_intervals(over.input)), over.scope.scalars.build_call
    total, number = (over.add_statistic(node, name, value) for name in ("sum_distinct", "count_distinct"))
    found = call(node, "divide", total, number)
    if around.is_bounded:
        low, high = (Literal(float(end), Type.DOUBLE) for end in around.ends)
        found = call(node, "least", call(node, "greatest", found, low), high)
    there = call(node, "gt", number, Literal(0, Type.INTEGER))
    return call(node, "case", there, found, Literal(None, Type.NULL))


def _lower_mean_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    values = find_distinct_argument(over, node)
    if values is not None:
        return over.add_exact_aggregate(node, "avg_distinct", values)
    return over.add_exact_aggregate(node, "avg", lower_single_argument(over, node, _AVG_SIGNATURE))


def _lower_mean_moment(over: ReleasedGroups, node: exp.AggFunc, argument: Expr) -> Expr:
    """Return the mean of a DATE or TIMESTAMP as TIMESTAMP, to the microsecond; NULL where no row is estimated to be.

    Claim: the mean of dates and timestamps is as private as the mean that it is computed from.
    Why: the released value is the mean distance from the first possible timestamp; the rest is post-processing.
    Source: Dwork, Roth 2014, Proposition 2.1.
    """
    scalars = over.scope.scalars
    unit = "day" if argument.type is Type.DATE else "microsecond"
    first = Literal(
        find_end_timestamp(argument.type, derive_interval(argument, derive_known_intervals(over.input)).low)
        or _EPOCH,
        Type.TIMESTAMP,
    )
    mean = over.add_statistic(node, "avg", scalars.build_call(node, f"date_diff_{unit}", first, argument))
    length = Literal(LENGTHS[unit] // LENGTHS["microsecond"], Type.INTEGER)
    after = scalars.build_call(node, "cast_bigint", scalars.build_call(node, "multiply", mean, length))
    return scalars.build_call(node, "plus_microsecond", first, after)


AVG = AggregateCall(
    forms=(CallForm("TOTAL", ("AVG", "MEAN", "FAVG")),),
    nodes=(exp.Avg,),
    signature=_AVG_SIGNATURE,
    says="The mean of x, which needs bounds; of dates and timestamps a timestamp.",
    across=_lower_mean_across,
    within=_lower_mean_within,
    distinct=True,
    window=True,
    accepted=(
        "SELECT AVG(cost), AVG(age) FILTER (WHERE cost > 10), AVG(day) FROM visits",
        "SELECT plan, AVG(DISTINCT age) FROM visits GROUP BY plan",
        "SELECT plan, MEAN(age), FAVG(cost) FILTER (WHERE age > 30) FROM visits GROUP BY plan",
        "SELECT MAX(a) FROM (SELECT AVG(DISTINCT age) AS a FROM visits GROUP BY patient_id)",
        "SELECT MAX(a) FROM (SELECT AVG(age) AS a FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT AVG(note) FROM visits": "type",
        "SELECT AVG(weight) FROM visits": "unbounded",
    },
)


# GEOMEAN(x): the geometric mean of positive numbers, as arithmetic over a released mean.


_GEOMEAN_SIGNATURE = "GEOMEAN(x)"


def _lower_geomean_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Return EXP of the released mean of LN(x), within the interval of x.

    Claim: it is as private as the mean of LN(x), from which it is computed.
    Why: its exponential is post-processing.
    Source: Dwork, Roth 2014, Proposition 2.1.
    """
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
