"""APPROX_COUNT_DISTINCT(x): COUNT(DISTINCT x), which is counted exactly before its noise."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expr import Expr
from dpsql.sql.lower.aggregates.base import (
    AcrossUnits,
    AggregateCall,
    ExactGroups,
    Form,
    Rows,
    refuse_distinct,
)
from dpsql.sql.lower.aggregates.count import count_across, count_within


def _counted(over: Rows, node: exp.AggFunc) -> exp.Count:
    (argument,) = over.source.take(node, "this")
    if argument is None:
        over.source.refuse(node, "syntax", "APPROX_COUNT_DISTINCT(x): x is missing")
    if type(argument) is exp.Distinct:
        refuse_distinct(over.source, node)
    return exp.Count(this=exp.Distinct(expressions=[argument.copy()]), big_int=True)


def _across(over: AcrossUnits, node: exp.AggFunc) -> Expr:
    return count_across(over, _counted(over, node))


def _within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    return count_within(over, _counted(over, node))


APPROX_COUNT_DISTINCT = AggregateCall(
    forms=(Form("UNFILTERED", ("APPROX_COUNT_DISTINCT",)),),
    nodes=(exp.ApproxDistinct,),
    signature="APPROX_COUNT_DISTINCT(x)",
    says="As COUNT(DISTINCT x).",
    across=_across,
    within=_within,
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
