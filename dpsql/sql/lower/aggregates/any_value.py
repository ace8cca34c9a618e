"""ANY_VALUE(x): the value that all rows of a group share, if the group keys determine it.

In other groups it would be the value of some row, which is not released.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ReleasedGroups,
    guard_by_count,
    lower_single_argument,
    refuses,
)
from dpsql.sql.parse.dialect import ADDED_NODES

_INSTEAD = "add x to GROUP BY; or count each value: SELECT x, COUNT(*) … GROUP BY x"


def lower_any_value(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Return the value of a determined expression. Raises QueryRejected with code "exact_only" for any other."""
    (argument,) = over.source.take_arguments(node, "this")
    value = None if argument is None else over.find_determined_value(argument)
    if value is None:
        lower_single_argument(over, node, "ANY_VALUE(x)")
        over.source.refuse(
            node,
            "exact_only",
            f"{over.source.get_function_name(node)} would release one row's value: public tables do "
            "not determine it by the group keys",
            _INSTEAD,
        )
    return guard_by_count(over, node, value)


ANY_VALUE = AggregateCall(
    forms=(CallForm("UNFILTERED", ("ANY_VALUE", "ARBITRARY", "FIRST", "LAST"), "({k})"),),
    nodes=(ADDED_NODES["ANY_VALUE"], ADDED_NODES["ARBITRARY"], exp.AnyValue, exp.First, exp.Last),
    signature="ANY_VALUE(x)",
    says=(
        "The value that all rows of a group share; of group keys, and of public columns that they determine."
    ),
    across=lower_any_value,
    within=refuses(
        "exact_only",
        "{name} could return the value of a different row at each call",
        "write MIN(x) or MAX(x)",
    ),
    filters=False,
    needs_group_keys=True,
    accepted=(
        "SELECT region, ANY_VALUE(name), ARBITRARY(country), FIRST(name), LAST(name) FROM visits JOIN regions ON region = id GROUP BY region",
        "SELECT plan, ANY_VALUE(UPPER(plan)), COUNT(*) FROM visits GROUP BY plan",
    ),
    refused={
        "SELECT plan, ANY_VALUE(note) FROM visits GROUP BY plan": "exact_only",
        "SELECT ANY_VALUE(plan) FROM visits": "exact_only",
        "SELECT COUNT(p) FROM (SELECT ANY_VALUE(plan) AS p FROM visits GROUP BY patient_id)": "exact_only",
    },
)
