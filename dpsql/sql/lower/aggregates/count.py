"""COUNT(*), COUNT(x), COUNT(DISTINCT x): numbers of rows, of values, and of privacy units."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expr import Expr, Literal
from dpsql.sql.lower.aggregates.base import AcrossUnits, AggregateCall, ExactGroups, Form, Rows
from dpsql.sql.lower.aggregates.row_values import present, row_value
from dpsql.sql.lower.decimals import exactly
from dpsql.sql.lower.derived import facts_of


def count_across(over: AcrossUnits, node: exp.AggFunc) -> Expr:
    """COUNT over the rows of all units."""
    items, argument = _argument(over, node)
    if items is None:
        return over.counted(node, *_counted(over, argument))
    expr = _distinct(over, items)
    is_unit = facts_of(expr, over.input).is_unit
    return over.released(node, "count_units" if is_unit else "count_distinct", None if is_unit else expr)


def count_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    """COUNT over the rows of one unit, over released rows or public ones."""
    items, argument = _argument(over, node)
    if items is None:
        return over.exact(node, *_counted(over, argument))
    return over.exact(node, "count_distinct", _distinct(over, items))


def _argument(over: Rows, node: exp.AggFunc) -> tuple[exp.Distinct | None, exp.Expr | None]:
    """What COUNT is of: DISTINCT values, or else its argument, if there is one."""
    (argument,) = over.source.take(node, "this", big_int=(True,))
    return (argument, None) if type(argument) is exp.Distinct else (None, argument)


def _distinct(over: Rows, node: exp.Distinct) -> Expr:
    (items,) = over.source.take(node, "expressions")
    row = len(items) == 1 and type(items[0]) is exp.Tuple
    values = over.source.take(items[0], "expressions")[0] if row else items
    if not values:
        over.source.refuse(node, "distinct", "COUNT(DISTINCT …) takes one column or several")
    arguments = [over.argument(value) for value in values]
    if row:
        return row_value(over.scope.scalars, node, arguments)
    if len(arguments) == 1:
        return exactly(arguments[0])
    return present(over.scope.scalars, node, arguments, row_value(over.scope.scalars, node, arguments))


def _counted(over: Rows, node: exp.Expr | None) -> tuple[str, Expr | None]:
    """The statistic that counts rows, or those where an expression is not NULL."""
    if type(node) is exp.Star:
        over.source.take(node)
    if node is None or type(node) is exp.Star:
        return "count_rows", None
    expr = over.argument(node)
    constant = isinstance(expr, Literal) and expr.value is not None
    return ("count_rows", None) if constant else ("count", expr)


COUNT = AggregateCall(
    forms=(Form("COUNT", ("COUNT",)),),
    nodes=(exp.Count,),
    signature="COUNT(*), COUNT(x), COUNT(DISTINCT x), COUNT(DISTINCT x, y), COUNT(DISTINCT (x, y))",
    says="The number of rows, of rows in which x is not NULL, or of distinct values; of the unit's column, of units. "
    "Of several columns, of distinct rows without NULL; of a row (x, y), of distinct rows.",
    arity=(0, 1),
    across=count_across,
    within=count_within,
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
