"""MAD, ENTROPY and WAVG: aggregates that are computed from a median, from counts of values, and from two sums."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import Call, Expr, Function, Literal, ReleasedColumn, Scalar
from dpsql.plan.nodes import OuterQuery, Output
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    GroupedRows,
    ReleasedGroups,
    refuse_distinct,
    refuses,
)
from dpsql.sql.lower.aggregates.chosen_values import build_value_counts
from dpsql.sql.lower.statement_context import PublicGroupsRequirement
from dpsql.sql.parse.dialect import ADDED_NODES

_ZERO = Literal(0, Type.INTEGER)
_NULL = Literal(None, Type.NULL)

# MAD(x): the median distance from the median.


_MAD = "write the median of distances: MEDIAN(ABS(x - 40)), with the median of each group in place of 40"


def lower_mad(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Return the median of |x - m|, where m is the median of x over the same rows.

    Claim: it is the plan of SELECT MEDIAN(ABS(x - (SELECT MEDIAN(x) FROM …))) FROM …, and is as private as that query.
    Why: the subquery is a release of its own, whose value enters as a constant; later stages analyze, charge and verify both.
    Source: Dwork, Roth 2014, Theorem 3.16 (adaptive composition).
    """
    (argument,) = over.source.take_arguments(node, "this")
    if argument is None or argument.find(exp.Query):
        over.source.refuse(node, "aggregate", "MAD takes one number, without a subquery", _MAD)
    if type(argument) is exp.Distinct:
        refuse_distinct(over.source, node)
    if not over.lower_argument(argument).type.numeric:
        over.source.refuse(node, "type", "MAD takes a number")
    if over.keys or not isinstance(over.select, exp.Select) or over.select.args.get("group"):
        over.source.refuse(
            node,
            "aggregate",
            "MAD is not supported with GROUP BY: it needs the median of each group first",
            _MAD,
        )
    clauses = {name: over.select.args.get(name) for name in ("from_", "joins", "where")}
    median = exp.Select(expressions=[exp.Median(this=argument.copy())])
    for name, clause in clauses.items():
        copied = [part.copy() for part in clause] if isinstance(clause, list) else clause and clause.copy()
        median.set(name, copied)
    difference = exp.Sub(this=exp.Paren(this=argument.copy()), expression=exp.Subquery(this=median))
    distance = exp.Anonymous(this="abs", expressions=[difference])
    return over.add_statistic(node, "median", over.lower_argument(distance), AGGREGATES["median"].rank)


MAD = AggregateCall(
    forms=(CallForm("OF_ONE", ("MAD",)),),
    nodes=(ADDED_NODES["MAD"],),
    signature="MAD(x)",
    says="The median distance from the median, in two releases; without GROUP BY.",
    across=lower_mad,
    within=refuses("released_only", "{name} is only supported across privacy units", _MAD),
    accepted=(
        "SELECT MAD(cost), COUNT(*) FROM visits WHERE age > 30",
        "SELECT MAD(age) FILTER (WHERE cost > 10) FROM visits",
    ),
    refused={
        "SELECT plan, MAD(cost) FROM visits GROUP BY plan": "aggregate",
        "SELECT MAD(note) FROM visits": "type",
        "SELECT MAD(DISTINCT age) FROM visits": "distinct",
        "SELECT COUNT(m) FROM (SELECT MAD(age) AS m FROM visits GROUP BY patient_id)": "released_only",
    },
)


# ENTROPY(x): the information of the frequencies of listed values.


_FROM_COUNTS = Function(
    "entropy_of_counts",
    "the entropy of counts",
    lambda _: Type.DOUBLE,
    "COALESCE(GREATEST(LOG2(SUM({0})) - SUM({0} * LOG2({0})) / SUM({0}), 0), 0)",
    "it only reads counts above zero",
)
"""The entropy of all rows of a released table, which is the only output of its query."""
_FREQUENCIES = (
    "compute it from counts: SELECT -SUM(n / t * LOG2(n / t)) FROM (SELECT x, COUNT(*) AS n, "
    "SUM(COUNT(*)) OVER () AS t FROM … GROUP BY x)"
)


def lower_entropy(over: ReleasedGroups, node: exp.AggFunc) -> Scalar:
    """Return the entropy of the values of a column, which must be public.

    Claim: it is as private as SELECT x, COUNT(*) … GROUP BY x without NULLs, and is charged as one release of the statement.
    Why: this module builds the release of that query, which later stages analyze, charge and verify like any other. The entropy is
    computed from its counts above zero.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    _, release = build_value_counts(over, node, "aggregate", _FREQUENCIES)
    count = ReleasedColumn(release.aggregations[0].name, Type.INTEGER)

    def refuse() -> NoReturn:
        over.source.refuse(
            node,
            "aggregate",
            "ENTROPY takes public values of which none is hidden for being rare",
            _FREQUENCIES,
        )

    over.scope.context.requirements.append(PublicGroupsRequirement(release, refuse))
    counted = over.scope.scalars.build_call(node, "gt", count, _ZERO)
    found = Output("entropy", Call(_FROM_COUNTS, (count,), Type.DOUBLE))
    return Scalar(OuterQuery(release, (found,), having=counted), Type.DOUBLE)


ENTROPY = AggregateCall(
    forms=(CallForm("UNFILTERED", ("ENTROPY",), "({k})"),),
    nodes=(ADDED_NODES["ENTROPY"],),
    signature="ENTROPY(x)",
    says="The entropy in bits of the frequencies of public values, from noisy counts; without GROUP BY.",
    across=lower_entropy,
    within=refuses("released_only", "{name} is only supported across privacy units", _FREQUENCIES),
    filters=False,
    separate=True,
    accepted=(
        "SELECT ENTROPY(plan) FROM visits",
        "SELECT ENTROPY(plan), COUNT(*) FROM visits WHERE cost > 10",
    ),
    refused={
        "SELECT ENTROPY(note) FROM visits": "aggregate",
        "SELECT plan, ENTROPY(region) FROM visits GROUP BY plan": "aggregate",
        "SELECT COUNT(m) FROM (SELECT ENTROPY(plan) AS m FROM visits GROUP BY patient_id)": "released_only",
    },
)


# WAVG(x, w): the mean of x with weights w.


def _lower_weighted_arguments(over: GroupedRows, node: exp.AggFunc) -> tuple[Expr, Expr]:
    """Return x * w, and w where x has a value, as DuckDB has it."""
    nodes = over.source.take_arguments(node, "this", "expression")
    if any(type(part) is exp.Distinct for part in nodes):
        refuse_distinct(over.source, node)
    if any(part is None for part in nodes):
        over.source.refuse(node, "syntax", "WAVG(x, w): an argument is missing")
    value, weight = map(over.lower_argument, nodes)
    if not (value.type.numeric and weight.type.numeric):
        over.source.refuse(node, "type", f"WAVG takes numbers, not ({value.type}, {weight.type})")
    scalars = over.scope.scalars
    there = scalars.build_call(node, "is_null", value)
    return scalars.build_call(node, "multiply", value, weight), scalars.build_call(
        node, "case", there, _ZERO, weight
    )


def _build_ratio(over: GroupedRows, node: exp.AggFunc, total: Expr, weights: Expr) -> Expr:
    scalars = over.scope.scalars
    none = scalars.build_call(node, "eq", weights, _ZERO)
    ratio = scalars.build_call(node, "divide", total, weights)
    return scalars.build_call(node, "case", none, _NULL, ratio)


def _lower_weighted_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    parts = [over.add_statistic(node, "sum", part) for part in _lower_weighted_arguments(over, node)]
    return _build_ratio(over, node, *parts)


def _lower_weighted_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    parts = [over.add_exact_aggregate(node, "sum", part) for part in _lower_weighted_arguments(over, node)]
    return _build_ratio(over, node, *parts)


WEIGHTED_MEAN = AggregateCall(
    forms=(CallForm("OF_TWO", ("WAVG", "WEIGHTED_AVG"), "({x}, {y})"),),
    nodes=(ADDED_NODES["WAVG"], ADDED_NODES["WEIGHTED_AVG"]),
    signature="WAVG(x, w)",
    says="The mean of x with weights w: SUM(x * w) / SUM(w), both of which need bounds.",
    arity=(2,),
    across=_lower_weighted_across,
    within=_lower_weighted_within,
    accepted=(
        "SELECT plan, WAVG(age, cost) FROM visits GROUP BY plan",
        "SELECT WEIGHTED_AVG(cost, age) FILTER (WHERE cost > 10) FROM visits",
        "SELECT COUNT(v) FROM (SELECT WAVG(age, cost) AS v FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT WAVG(note, age) FROM visits": "type",
        "SELECT WAVG(weight, age) FROM visits": "unbounded",
    },
)
