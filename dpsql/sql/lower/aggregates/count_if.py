"""COUNT_IF(condition): the number of rows in which a condition is true."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    ReleasedGroups,
    build_conditional_value,
)
from dpsql.sql.parse.rejection import QueryText


def build_counted_value(text: QueryText, node: exp.AggFunc) -> exp.Expr:
    """Build the value that COUNT_IF counts, which is NULL unless its condition is true."""
    (condition,) = text.take_arguments(node, "this")
    return build_conditional_value(condition, exp.Literal.number(1))


def build_one_or_zero(text: QueryText, node: exp.AggFunc) -> exp.Expr:
    """Build the number that COUNT_IF adds up for groups that may be empty: 1 if its condition is true, 0 if it is false."""
    (condition,) = text.take_arguments(node, "this")
    no = exp.Not(this=exp.Paren(this=condition.copy()))
    chosen = [(condition.copy(), 1), (no, 0)]
    return exp.Case(ifs=[exp.If(this=known, true=exp.Literal.number(value)) for known, value in chosen])


def _lower_count_if_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    return over.add_count(node, "count", over.lower_argument(build_counted_value(over.source, node)))


def _lower_count_if_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    """Lower COUNT_IF, which is NULL if the condition is known in no row, as in DuckDB."""
    return over.add_exact_aggregate(node, "sum", over.lower_argument(build_one_or_zero(over.source, node)))


COUNT_IF = AggregateCall(
    forms=(CallForm("UNFILTERED", ("COUNT_IF", "COUNTIF"), "({x} > 10)"),),
    nodes=(exp.CountIf,),
    signature="COUNT_IF(condition)",
    says="The number of rows where the condition is true.",
    across=_lower_count_if_across,
    within=_lower_count_if_within,
    filters=False,
    accepted=(
        "SELECT plan, COUNT_IF(age > 40) FROM visits GROUP BY plan",
        "SELECT COUNT(*) FROM (SELECT patient_id, COUNTIF(age > 40) AS n FROM visits GROUP BY patient_id) WHERE n > 2",
    ),
    refused={
        "SELECT COUNT_IF(age > 40) FILTER (WHERE cost > 10) FROM visits": "aggregate",
        "SELECT COUNT_IF(note) FROM visits": "type",
    },
)
