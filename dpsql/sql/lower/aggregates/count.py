"""COUNT(*), COUNT(x), COUNT(DISTINCT x): numbers of rows, of values, and of privacy units."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.sql.lower.aggregates.base import AggregateCall, CallForm, ExactGroups, GroupedRows, ReleasedGroups
from dpsql.sql.lower.aggregates.row_values import build_row_text, guard_missing_values
from dpsql.sql.lower.derived_tables import derive_column_info
from dpsql.sql.lower.number_types import round_to_decimal


def lower_count_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Lower COUNT over the rows of all units."""
    items, argument = _split_argument(over, node)
    if items is None:
        return over.add_count(node, *_select_count_statistic(over, argument))
    expr = _lower_distinct_values(over, items)
    is_unit = derive_column_info(expr, over.input).is_unit
    return over.add_statistic(node, "count_units" if is_unit else "count_distinct", None if is_unit else expr)


def lower_count_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    """Lower COUNT over the rows of one unit, or over released or public rows."""
    items, argument = _split_argument(over, node)
    if items is None:
        return over.add_exact_aggregate(node, *_select_count_statistic(over, argument))
    return over.add_exact_aggregate(node, "count_distinct", _lower_distinct_values(over, items))


def _split_argument(over: GroupedRows, node: exp.AggFunc) -> tuple[exp.Distinct | None, exp.Expr | None]:
    """Return the DISTINCT values that COUNT counts, or else its argument, if it has one."""
    (argument,) = over.source.take_arguments(node, "this", big_int=(True,))
    return (argument, None) if type(argument) is exp.Distinct else (None, argument)


def _lower_distinct_values(over: GroupedRows, node: exp.Distinct) -> Expr:
    (items,) = over.source.take_arguments(node, "expressions")
    row = len(items) == 1 and type(items[0]) is exp.Tuple
    values = over.source.take_arguments(items[0], "expressions")[0] if row else items
    if not values:
        over.source.refuse(node, "distinct", "COUNT(DISTINCT …) takes one or more columns")
    arguments = [over.lower_argument(value) for value in values]
    if row:
        return build_row_text(over.scope.scalars, node, arguments)
    if len(arguments) == 1:
        return round_to_decimal(arguments[0])
    return guard_missing_values(
        over.scope.scalars, node, arguments, build_row_text(over.scope.scalars, node, arguments)
    )


def _select_count_statistic(over: GroupedRows, node: exp.Expr | None) -> tuple[str, Expr | None]:
    """Return the statistic that counts rows, or those where an expression is not NULL."""
    if type(node) is exp.Star:
        over.source.take_arguments(node)
    if node is None or type(node) is exp.Star:
        return "count_rows", None
    expr = over.lower_argument(node)
    constant = isinstance(expr, Literal) and expr.value is not None
    return ("count_rows", None) if constant else ("count", expr)


COUNT = AggregateCall(
    forms=(CallForm("COUNT", ("COUNT",)),),
    nodes=(exp.Count,),
    signature="COUNT(*), COUNT(x), COUNT(DISTINCT x), COUNT(DISTINCT x, y), COUNT(DISTINCT (x, y))",
    says=(
        "The number of rows; of rows where x is not NULL; or of distinct values, which for the "
        "unit's column are privacy units. With several columns, the number of distinct rows "
        "without NULL; with a row (x, y), of distinct rows."
    ),
    arity=(0, 1),
    across=lower_count_across,
    within=lower_count_within,
    distinct=True,
    window=True,
    accepted=(
        "SELECT COUNT(*), COUNT(age) FROM visits",
        "SELECT COUNT(DISTINCT patient_id), COUNT(DISTINCT note) FROM visits",
        "SELECT AVG(n) FROM (SELECT LEAST(COUNT(DISTINCT plan), 3) AS n FROM visits GROUP BY patient_id)",
        "SELECT COUNT(DISTINCT age) FILTER (WHERE cost > 10) FROM visits",
        "SELECT COUNT(DISTINCT patient_id) FILTER (WHERE cost > 10) FROM visits",
        "SELECT COUNT(DISTINCT (plan, age)), COUNT(DISTINCT (plan, note)) FROM visits",
    ),
    refused={
        "SELECT COUNT(DISTINCT ()) FROM visits": "distinct",
        "SELECT COUNT(SUM(age)) FROM visits": "nested_aggregate",
    },
)
