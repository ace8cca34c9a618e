"""LIST(DISTINCT x) and STRING_AGG(DISTINCT x, ','): the values of a column, as one list or text.

Claim: it is the plan of SELECT DISTINCT x, whose rows are put into one value. It is as private as that query, and is charged as one
release of the statement.
Why: this module builds the release of that query, which later stages analyze, charge and verify like any other. What is built from
its rows takes the place of a scalar subquery's value in the statement. Without DISTINCT it would have a value for each private row,
and is refused.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits, is_float
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.plan.expressions import UNIT_IDENTITY, Call, Expr, Function, Literal, ReleasedColumn, Scalar
from dpsql.plan.interval import make_constant_size
from dpsql.plan.nodes import Key, OuterQuery, Output, Release
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import AggregateCall, CallForm, ReleasedGroups, refuses
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.unit_checks import refuse_units

CONDITION = "condition"
"""Where a node holds the condition of FILTER."""
_COUNTED = "count each value: SELECT x, COUNT(*) … GROUP BY x"
_LONGEST = 2**17
"""The most bytes of a text of all values; a longer one is NULL."""
_DIRECTIONS = {
    (descending, first): f"{'DESC' if descending else 'ASC'} {'NULLS FIRST' if first else 'NULLS LAST'}"
    for descending in (False, True)
    for first in (False, True)
}
_LISTS = {
    key: Function(
        f"list_of_rows {direction}".lower(),
        "the rows as a list",
        lambda _: Type.LIST,
        f"MAP(RANGE(COUNT(*)), LIST({{0}} ORDER BY {{0}} {direction}))",
        "no value is computed, and no number comes twice",
    )
    for key, direction in _DIRECTIONS.items()
}
"""All rows of a released table as one value, by their numbers, which is the only output of its query."""
_VALUES = Function(
    "list_of_numbered", "the values of a map", lambda _: Type.LIST, "MAP_VALUES({0})", "no value is computed"
)
_TEXTS = {
    key: Function(
        f"text_of_rows {direction}".lower(),
        "the rows as a text",
        lambda _: Type.VARCHAR,
        f"CASE WHEN STRLEN(STRING_AGG({{0}}, {{1}} ORDER BY {{0}} {direction})) <= {_LONGEST} "
        f"THEN STRING_AGG({{0}}, {{1}} ORDER BY {{0}} {direction}) END",
        "texts are joined",
        size=lambda _, __: make_constant_size(_LONGEST),
    )
    for key, direction in _DIRECTIONS.items()
}


@dataclass(frozen=True, slots=True)
class _ListCall:
    """The argument of a call with DISTINCT, and the direction of its order."""

    argument: exp.Expr
    descending: bool = False
    nulls_first: bool = False


def _read_call(over: ReleasedGroups, node: exp.AggFunc) -> _ListCall:
    """Return the argument and the order of a call. Raises QueryRejected without DISTINCT, and for an order by another value."""
    text, name = over.source, over.source.get_function_name(node)
    (inner,) = text.take_arguments(node, "this", separator=(node.args.get("separator"),))
    item: exp.Expr | None = None
    if type(inner) is exp.Order:
        inner, items = text.take_arguments(inner, "this", "expressions")
        if len(items) != 1:
            text.refuse(node, "aggregate", f"{name} takes one expression in ORDER BY", _COUNTED)
        (item,) = items
    if type(inner) is not exp.Distinct:
        text.refuse(
            node, "aggregate", f"{name} is not supported: it would release the value of each row", _COUNTED
        )
    values, on = text.take_arguments(inner, "expressions", "on")
    if on is not None or len(values) != 1 or values[0].find(exp.Query):
        text.refuse(node, "aggregate", f"{name}(DISTINCT …) takes one column or expression", _COUNTED)
    if item is None:
        return _ListCall(values[0])
    ordered, descending, first = text.take_arguments(item, "this", "desc", "nulls_first")
    if over.lower_argument(ordered) != over.lower_argument(values[0]):
        text.refuse(
            node,
            "aggregate",
            f"{name}(DISTINCT x) can only be ordered by x",
            "write LIST(DISTINCT x ORDER BY x)",
        )
    return _ListCall(values[0], bool(descending), bool(first))


def _build_release(over: ReleasedGroups, node: exp.AggFunc, call: _ListCall, *, text: bool) -> Release:
    """Build the release of the distinct values; of a text, without NULL."""
    name, scalars = over.source.get_function_name(node), over.scope.scalars
    value = over.lower_argument(call.argument)
    if over.keys or over.select.args.get("group"):
        over.source.refuse(
            node,
            "aggregate",
            f"{name} is not supported with GROUP BY: each group would need its own release",
            "release the values as rows: SELECT DISTINCT k, x FROM …",
        )
    if value.type in (Type.NULL, Type.LIST) or (text and value.type is not Type.VARCHAR):
        over.source.refuse(node, "type", f"{name} does not take {value.type}", _COUNTED)
    if find_injective_identity(value, over.input) == UNIT_IDENTITY:
        refuse_units(over.source, node, value, over.input)
    condition = node.meta.get(CONDITION)
    conditions = [] if condition is None else [over.lower_argument(condition)]
    if text:
        conditions.append(scalars.build_call(node, "not", scalars.build_call(node, "is_null", value)))
    rows = build_filter(over.input, conditions) if conditions else over.input
    return Release(rows, (Key("k0", value),), (), over.scope.context.max_groups)


def _build_key(value: Expr) -> ReleasedColumn:
    return ReleasedColumn("k0", value.type, decimal=find_decimal_digits(value), float32=is_float(value))


def lower_list(over: ReleasedGroups, node: exp.AggFunc) -> Call:
    """Return the list of the distinct values of all rows, in their order."""
    call = _read_call(over, node)
    release = _build_release(over, node, call, text=False)
    listed = Call(_LISTS[call.descending, call.nulls_first], (_build_key(release.keys[0].expr),), Type.LIST)
    numbered = Scalar(OuterQuery(release, (Output("list", listed),)), Type.LIST)
    return Call(_VALUES, (numbered,), Type.LIST)


def lower_joined_text(over: ReleasedGroups, node: exp.AggFunc) -> Scalar:
    """Return the distinct texts of all rows as one, in their order, with a separator between them."""
    call = _read_call(over, node)
    separator = node.args.get("separator")
    between = Literal(",", Type.VARCHAR) if separator is None else over.lower_argument(separator)
    if not isinstance(between, Literal) or not isinstance(between.value, str):
        over.source.refuse(
            node, "constant", "the separator must be a constant text", "write STRING_AGG(DISTINCT x, ', ')"
        )
    release = _build_release(over, node, call, text=True)
    parts = (_build_key(release.keys[0].expr), between)
    joined = Call(_TEXTS[call.descending, call.nulls_first], parts, Type.VARCHAR)
    return Scalar(OuterQuery(release, (Output("text", joined),)), Type.VARCHAR)


_WITHIN = refuses(
    "released_only",
    "{name} is only supported across privacy units",
    "over released rows, return the rows: SELECT x …",
)


def _list_examples(name: str) -> dict[str, str]:
    return {
        f"SELECT {name}(plan) FROM visits": "aggregate",
        f"SELECT {name}(DISTINCT plan ORDER BY cost) FROM visits": "aggregate",
        f"SELECT plan, {name}(DISTINCT note) FROM visits GROUP BY plan": "aggregate",
        f"SELECT COUNT(l) FROM (SELECT {name}(DISTINCT plan) AS l FROM visits GROUP BY patient_id)": "released_only",
    }


LIST_OF_VALUES = AggregateCall(
    forms=(CallForm("LISTED", ("LIST", "ARRAY_AGG"), "(DISTINCT {k})"),),
    nodes=(exp.ArrayAgg,),
    signature="LIST(DISTINCT x ORDER BY x)",
    says="The list of the values that SELECT DISTINCT x shows; without GROUP BY.",
    across=lower_list,
    within=_WITHIN,
    separate=True,
    distinct=True,
    accepted=(
        "SELECT LIST(DISTINCT plan ORDER BY plan), COUNT(*) FROM visits",
        "SELECT ARRAY_AGG(DISTINCT note ORDER BY note) FILTER (WHERE note IS NOT NULL) FROM visits",
    ),
    refused={**_list_examples("LIST"), "SELECT LIST(DISTINCT patient_id) FROM visits": "group_by_unit"},
)
JOINED_TEXT = AggregateCall(
    forms=(CallForm("LISTED", ("STRING_AGG", "LISTAGG", "GROUP_CONCAT"), "(DISTINCT {k})"),),
    nodes=(exp.GroupConcat,),
    signature="STRING_AGG(DISTINCT x, ',' ORDER BY x)",
    says="The texts that SELECT DISTINCT x shows as one text, without NULL; without GROUP BY.",
    across=lower_joined_text,
    within=_WITHIN,
    separate=True,
    distinct=True,
    accepted=(
        "SELECT STRING_AGG(DISTINCT plan, ', ' ORDER BY plan), COUNT(*) FROM visits",
        "SELECT STRING_AGG(DISTINCT note, '; ' ORDER BY note DESC) FROM visits WHERE cost > 10",
    ),
    refused={**_list_examples("STRING_AGG"), "SELECT STRING_AGG(DISTINCT age) FROM visits": "type"},
)
