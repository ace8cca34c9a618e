"""MODE(x) of all units: the most frequent value is selected, and its frequency is not released.

Claim: it is the plan of (SELECT x FROM … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1) without NULLs. It is as private as that
query, and is charged as one release of the statement.
Why: this module builds the release of that query, with its one best group, which later stages analyze, charge and verify like
any other. Its value takes the place of a scalar subquery's value in the statement.
Source: McKenna, Sheldon 2020, "Permute-and-flip"; Dwork, Roth 2014, Theorem 3.10 (exponential mechanism).
"""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits
from dpsql.plan.expressions import ReleasedColumn, Scalar
from dpsql.plan.nodes import Aggregation, Key, OuterQuery, Output, Release, TopK
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import AggregateCall, CallForm, ReleasedGroups, refuses
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.public_groups import PublicGroupsRequirement

_ROWS = "let the policy list the values; or write SELECT x FROM … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1"


def lower_mode(over: ReleasedGroups, node: exp.AggFunc) -> Scalar:
    """Return the value of a MODE over the rows of a SELECT.

    Its values must be public. Raises QueryRejected with code "mode" next to group keys, and for an argument with a subquery.
    """
    (argument,) = over.source.take_arguments(node, "this")
    if argument is None or type(argument) is exp.Distinct or argument.find(exp.Query):
        over.source.refuse(node, "mode", "MODE takes one column or expression, without a subquery", _ROWS)
    value = over.lower_argument(argument)
    if over.keys or over.select.args.get("group"):
        over.source.refuse(
            node,
            "mode",
            "MODE is not supported with GROUP BY: each group would need its own selection",
            "count the values, SELECT k, x, COUNT(*) AS n … GROUP BY k, x, and rank the counts, "
            "which costs nothing",
        )
    scalars, context = over.scope.scalars, over.scope.context
    there = scalars.build_call(argument, "not", scalars.build_call(argument, "is_null", value))
    rows = Aggregation("a0", "count_rows", None, Type.INTEGER)
    key = ReleasedColumn("k0", value.type, decimal=find_decimal_digits(value))
    top = TopK(1, descending=True)
    release = Release(
        build_filter(over.input, [there]), (Key(key.name, value),), (rows,), context.max_groups, top
    )

    def refuse() -> NoReturn:
        over.source.refuse(
            node,
            "mode",
            "MODE only selects among public values of which none is hidden for being rare",
            _ROWS,
        )

    if value.type is Type.NULL:
        refuse()
    context.requirements.append(PublicGroupsRequirement(release, refuse))
    return Scalar(OuterQuery(release, (Output("mode", key),), limit=1), value.type)


MODE = AggregateCall(
    forms=(CallForm("UNFILTERED", ("MODE",), "({k})"),),
    nodes=(exp.Mode,),
    signature="MODE(x)",
    says="The most frequent value, selected among public ones.",
    across=lower_mode,
    within=refuses(
        "mode",
        "{name} is only supported over private rows of several privacy units",
        "select the most frequent value: SELECT x … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1",
    ),
    filters=False,
    separate=True,
    accepted=("SELECT MODE(plan) FROM visits", "SELECT MODE(plan), COUNT(*) FROM visits WHERE cost > 10"),
    refused={
        "SELECT MODE(note) FROM visits": "mode",
        "SELECT plan, MODE(age) FROM visits GROUP BY plan": "mode",
        "SELECT MODE(plan) FILTER (WHERE cost > 10) FROM visits": "aggregate",
        "SELECT COUNT(m) FROM (SELECT MODE(plan) AS m FROM visits GROUP BY patient_id)": "mode",
    },
)
