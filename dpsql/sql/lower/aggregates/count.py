"""Counts of rows, values and conditions, and BOOL_AND and BOOL_OR, which follow from counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    GroupedRows,
    ReleasedGroups,
    build_conditional_value,
    lower_single_argument,
    refuse_distinct,
    refuses,
)
from dpsql.sql.lower.derived_tables import derive_column_info
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.rejection import QueryText

# Rows of values as texts, so that distinct rows can be counted.


_COLON, _NULL = Literal(":", Type.VARCHAR), Literal("-", Type.VARCHAR)


class CallBuilder(Protocol):
    """Builds typed calls of functions."""

    def build_call(self, node: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """Build the call of a function."""
        ...


def build_row_text(scalars: CallBuilder, node: exp.Expr, values: Sequence[Expr]) -> Expr:
    """Build the text of a row of values; of one value that is a text, as of several.

    Claim: two rows have the same text if and only if all their values are the same, where NULL is the same as NULL.
    Why: each value is preceded by its number of characters, and NULL is a sign that is not a number, so that a text can be read
    back in one way only. Each number, date and truth value has one spelling; 0.0 and -0.0 have the same.
    Source: ISO/IEC 9075-2, <distinct predicate>.
    """
    parts = [_build_value_text(scalars, node, value) for value in values]
    return reduce(lambda left, right: scalars.build_call(node, "||", left, right), parts)


def guard_missing_values(scalars: Scalars, node: exp.Expr, values: Sequence[Expr], row: Expr) -> Expr:
    """Return a row's text, NULL where one of its values is."""
    for value in values:
        missing = scalars.build_call(node, "is_null", value)
        row = scalars.build_call(node, "case", missing, Literal(None, Type.NULL), row)
    return row


def _build_value_text(scalars: CallBuilder, node: exp.Expr, value: Expr) -> Expr:
    if value.type is Type.NULL:
        return _NULL
    # 0.0 and -0.0 are equal.
    one = (
        scalars.build_call(node, "add", value, Literal(0.0, Type.DOUBLE))
        if value.type is Type.DOUBLE
        else value
    )
    text = one if value.type is Type.VARCHAR else scalars.build_call(node, "cast_varchar", one)
    size = scalars.build_call(node, "cast_varchar", scalars.build_call(node, "length", text))
    whole = scalars.build_call(node, "||", scalars.build_call(node, "||", size, _COLON), text)
    return scalars.build_call(node, "coalesce", whole, _NULL)


# COUNT_IF(condition): the number of rows in which a condition is true.


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


# BOOL_AND(x) and BOOL_OR(x): whether x is true in all rows of a group, or in one.
#
# Over the rows of one unit, released rows and public ones they are the least and the greatest truth value. Over rows of all
# units a single row would decide them, which noise cannot hide; so the number of rows in which x is false is released instead.


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


# COUNT(*), COUNT(x), COUNT(DISTINCT x): numbers of rows, of values, and of privacy units.


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


# APPROX_COUNT_DISTINCT(x): COUNT(DISTINCT x), which is counted exactly before its noise.


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
