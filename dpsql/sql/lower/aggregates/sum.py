"""SUM(x): the total of a number."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.lower.aggregates.base import AggregateCall, Form, one_argument

_SIGNATURE = "SUM(x)"

SUM = AggregateCall(
    forms=(Form("TOTAL", ("SUM",)),),
    nodes=(exp.Sum,),
    signature=_SIGNATURE,
    says="The total of x, which needs bounds; across units 0 over no rows.",
    across=lambda over, node: over.released(node, "sum", one_argument(over, node, _SIGNATURE)),
    within=lambda over, node: over.exact(node, "sum", one_argument(over, node, _SIGNATURE)),
    window=True,
    accepted=(
        "SELECT plan, SUM(cost), SUM(age) FILTER (WHERE cost > 10) FROM visits GROUP BY plan",
        "SELECT AVG(LEAST(s, 500)) FROM (SELECT SUM(cost) AS s FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT SUM(DISTINCT age) FROM visits": "distinct",
        "SELECT SUM(note) FROM visits": "type",
        "SELECT SUM(weight) FROM visits": "unbounded",
    },
)
