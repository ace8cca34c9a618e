"""APPROX_COUNT_DISTINCT(x): COUNT(DISTINCT x), which is counted exactly before its noise."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    GroupedRows,
    ReleasedGroups,
    refuse_distinct,
)
from dpsql.sql.lower.aggregates.count import lower_count_across, lower_count_within


def _rewrite_as_count(over: GroupedRows, node: exp.AggFunc) -> exp.Count:
    (argument,) = over.source.take_arguments(node, "this")
    if argument is None:
        over.source.refuse(node, "syntax", "APPROX_COUNT_DISTINCT(x): x is missing")
    if type(argument) is exp.Distinct:
        refuse_distinct(over.source, node)
    return exp.Count(this=exp.Distinct(expressions=[argument.copy()]), big_int=True)


def _lower_approximate_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    return lower_count_across(over, _rewrite_as_count(over, node))


def _lower_approximate_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    return lower_count_within(over, _rewrite_as_count(over, node))


APPROX_COUNT_DISTINCT = AggregateCall(
    forms=(CallForm("UNFILTERED", ("APPROX_COUNT_DISTINCT",)),),
    nodes=(exp.ApproxDistinct,),
    signature="APPROX_COUNT_DISTINCT(x)",
    says="As COUNT(DISTINCT x).",
    across=_lower_approximate_across,
    within=_lower_approximate_within,
    filters=False,
    accepted=(
        "SELECT plan, APPROX_COUNT_DISTINCT(patient_id) FROM visits GROUP BY plan",
        "SELECT APPROX_COUNT_DISTINCT(note) FROM visits",
    ),
    refused={
        "SELECT APPROX_COUNT_DISTINCT(note) FILTER (WHERE cost > 10) FROM visits": "aggregate",
        "SELECT APPROX_COUNT_DISTINCT(SUM(age)) FROM visits": "nested_aggregate",
    },
)
