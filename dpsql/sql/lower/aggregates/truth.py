"""BOOL_AND(x) and BOOL_OR(x): whether x is true in all rows of a group, or in one.

Over the rows of one unit, released rows and public ones they are the least and the greatest truth value. Over rows of all
units a single row would decide them, which noise cannot hide; so the number of rows in which x is false is released instead.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    lower_single_argument,
    refuses,
)


def _make_within_lowering(function: str, signature: str) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    def lower_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        argument = lower_single_argument(over, node, signature)
        if argument.type not in (Type.BOOLEAN, Type.NULL):
            over.source.refuse(
                node,
                "type",
                f"{over.source.get_function_name(node)} takes a condition, not {argument.type}",
                "x <> 0",
            )
        if argument.type is Type.NULL:
            argument = over.scope.scalars.build_call(node, "cast_boolean", argument)
        return over.add_exact_aggregate(node, function, argument)

    return lower_within


BOOL_AND = AggregateCall(
    forms=(CallForm("OF_ONE", ("BOOL_AND",), "({x} > 10)"),),
    nodes=(exp.LogicalAnd,),
    signature="BOOL_AND(condition)",
    says=("Whether the condition is true in all rows where it is known; NULL if it is known in none."),
    across=refuses(
        "exact_only",
        "{name} is not supported: one row would decide it, whatever the noise",
        "count instead: COUNT_IF(NOT x) AS n, where 0 or less means hardly any",
    ),
    within=_make_within_lowering("min", "BOOL_AND(condition)"),
    accepted=(
        "SELECT COUNT(*) FROM (SELECT patient_id, BOOL_AND(age > 40) AS old FROM visits GROUP BY patient_id) WHERE old",
        "SELECT BOOL_AND(n > 5) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)",
    ),
    refused={
        "SELECT BOOL_AND(age > 40) FROM visits": "exact_only",
        "SELECT BOOL_AND(n) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)": "type",
    },
)
BOOL_OR = AggregateCall(
    forms=(CallForm("OF_ONE", ("BOOL_OR",), "({x} > 10)"),),
    nodes=(exp.LogicalOr,),
    signature="BOOL_OR(condition)",
    says="Whether the condition is true in any row; NULL if it is known in none.",
    across=refuses(
        "exact_only",
        "{name} is not supported: one row would decide it, whatever the noise",
        "count instead: COUNT_IF(x) AS n, where 0 or less means hardly any",
    ),
    within=_make_within_lowering("max", "BOOL_OR(condition)"),
    accepted=(
        "SELECT old, COUNT(*) FROM (SELECT patient_id, BOOL_OR(age > 40) AS old FROM visits GROUP BY patient_id) GROUP BY old",
        "SELECT BOOL_OR(n > 5) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)",
    ),
    refused={
        "SELECT BOOL_OR(age > 40) FROM visits": "exact_only",
        "SELECT BOOL_OR(DISTINCT n > 5) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)": "distinct",
    },
)
