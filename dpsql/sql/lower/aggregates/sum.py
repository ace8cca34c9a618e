"""SUM(x): the total of a number."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.plan.functions import build_function_call
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    GroupedRows,
    find_distinct_argument,
    lower_single_argument,
)

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
