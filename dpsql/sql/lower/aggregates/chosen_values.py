"""ANY_VALUE, MODE and ARG_MAX: aggregates whose result is one of the values of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.number_types import find_decimal_digits
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import (
    Column,
    ColumnInfo,
    Expr,
    Order,
    ReleasedColumn,
    Scalar,
    substitute_columns,
    walk,
)
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import (
    Aggregation,
    Key,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Relation,
    Release,
    TopK,
    Values,
)
from dpsql.plan.provenance import find_provenance, is_unfiltered
from dpsql.plan.types import Type
from dpsql.planning.group_selection import SCORES
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    ReleasedGroups,
    guard_by_count,
    lower_single_argument,
    refuse_distinct,
    refuses,
)
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.statement_context import PublicGroupsRequirement
from dpsql.sql.parse.dialect import ADDED_NODES

# ORDER BY an aggregate LIMIT n, if only keys are selected: the best groups are selected, and no aggregate is released.


MOST = 100
"""The most groups that are selected one by one."""


def rewrite_as_top_k(outer: OuterQuery) -> OuterQuery | None:
    """Return the query with its best groups selected, if that is all it asks for; None for any other.

    The statement outputs only keys, and orders by one aggregate that is a sum over units. Its groups must be public.
    """
    if not isinstance(outer.source, Release):
        return None
    release = outer.source
    if len(release.aggregations) != 1 or not release.keys or len(outer.order) != 1 or not outer.limit:
        return None
    (item,), (order,) = release.aggregations, outer.order
    ordered = order.expr == ReleasedColumn(item.name, item.type)
    further = outer.having or outer.qualify or outer.offset or outer.distinct or outer.limit > MOST
    if not ordered or further or any(_reads_statistic(output.expr, item.name) for output in outer.outputs):
        return None
    if not SCORES.issuperset(AGGREGATES[item.function].moments) or len(AGGREGATES[item.function].moments) > 1:
        return None
    top = TopK(outer.limit, order.descending)
    return replace(outer, source=replace(release, top=top), order=())


def _reads_statistic(expr: Expr, name: str) -> bool:
    return any(isinstance(part, ReleasedColumn) and part.name == name for part in walk(expr))


# ANY_VALUE(x): the value that all rows of a group share, if the group keys determine it.


_INSTEAD = "add x to GROUP BY; or count each value: SELECT x, COUNT(*) … GROUP BY x"


def lower_any_value(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    """Return the value of a determined expression. Raises QueryRejected with code "exact_only" for any other.

    In other groups it would be the value of some row, which is not released.
    """
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


# MODE(x) of all units: the most frequent value is selected, and its frequency is not released.


_ROWS = "write SELECT x FROM … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1"


def lower_mode(over: ReleasedGroups, node: exp.AggFunc) -> Scalar:
    """Return the value of a MODE over the rows of a SELECT.

    Raises QueryRejected with code "mode" next to group keys, and for an argument with a subquery.

    Claim: it is the plan of (SELECT x FROM … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1) without NULLs. It is as private as that
    query, and is charged as one release of the statement.
    Why: this module builds that query, which later stages analyze, charge and verify like any other: if its values are public, its
    best group is selected; else it has the value with the greatest noisy count among those that are released, and is NULL without
    any. It takes the place of a scalar subquery in the statement.
    Source: McKenna, Sheldon 2020, "Permute-and-flip"; Dwork, Roth 2014, Theorem 3.10 (exponential mechanism).
    """
    value, release = build_value_counts(over, node, "mode", _ROWS)
    count = ReleasedColumn(release.aggregations[0].name, Type.INTEGER)
    key = ReleasedColumn(release.keys[0].name, value.type, decimal=find_decimal_digits(value))
    order = Order(count, descending=True, nulls_first=False)

    def refuse() -> NoReturn:
        over.source.refuse(node, "mode", "MODE of real numbers takes a list of values in the policy", _ROWS)

    if value.type is Type.DOUBLE:  # hardly two rows have the same one, so that none would be released
        over.scope.context.requirements.append(PublicGroupsRequirement(release, refuse))
    return Scalar(OuterQuery(release, (Output("mode", key),), order=(order,), limit=1), value.type)


def build_value_counts(
    over: ReleasedGroups, node: exp.AggFunc, code: str, instead: str
) -> tuple[Expr, Release]:
    """Return the argument of a call over all rows of a SELECT, and the release of the rows of each of its values without NULL."""
    name = over.source.get_function_name(node)
    (argument,) = over.source.take_arguments(node, "this")
    if argument is None or type(argument) is exp.Distinct or argument.find(exp.Query):
        over.source.refuse(node, code, f"{name} takes one column or expression, without a subquery", instead)
    value = over.lower_argument(argument)
    if over.keys or over.select.args.get("group"):
        over.source.refuse(
            node,
            code,
            f"{name} is not supported with GROUP BY: each group would need its own release",
            "count the values, SELECT k, x, COUNT(*) AS n … GROUP BY k, x, and rank the counts, "
            "which costs nothing",
        )
    if value.type is Type.NULL:
        over.source.refuse(node, code, f"{name} takes values other than NULL", instead)
    scalars = over.scope.scalars
    there = scalars.build_call(argument, "not", scalars.build_call(argument, "is_null", value))
    rows = Aggregation("a0", "count_rows", None, Type.INTEGER)
    release = Release(
        build_filter(over.input, [there]), (Key("k0", value),), (rows,), over.scope.context.max_groups
    )
    return value, release


MODE = AggregateCall(
    forms=(CallForm("UNFILTERED", ("MODE",), "({k})"),),
    nodes=(exp.Mode,),
    signature="MODE(x)",
    says="The most frequent value: selected among public ones, else the one with the greatest noisy count.",
    across=lower_mode,
    within=refuses(
        "mode",
        "{name} is only supported over private rows of several privacy units",
        "select the most frequent value: SELECT x … GROUP BY x ORDER BY COUNT(*) DESC LIMIT 1",
    ),
    filters=False,
    separate=True,
    accepted=(
        "SELECT MODE(plan) FROM visits",
        "SELECT MODE(plan), COUNT(*) FROM visits WHERE cost > 10",
        "SELECT MODE(note) FROM visits",
    ),
    refused={
        "SELECT plan, MODE(age) FROM visits GROUP BY plan": "mode",
        "SELECT MODE(plan) FILTER (WHERE cost > 10) FROM visits": "aggregate",
        "SELECT COUNT(m) FROM (SELECT MODE(plan) AS m FROM visits GROUP BY patient_id)": "mode",
    },
)


# ARG_MAX(x, y) and ARG_MIN(x, y): the x of the row that is best by y, of exact groups.


BEST = frozenset({"arg_max", "arg_min", "max"})
"""The aggregates that select one row by a score and compute nothing from the others; a hidden group may have the least score, never the greatest."""


@dataclass(frozen=True, slots=True)
class BestGroup:
    """A statement that selects the best group of `release` and returns its key, whose index is `key_index`.

    Its groups must be public, and NULL must not be a value of that key.
    """

    outer: OuterQuery
    release: Release
    key_index: int


def find_best_group(outer: OuterQuery) -> BestGroup | None:
    """Return a statement that is one ARG_MAX or ARG_MIN of released groups, with the group selected; None for any other.

    Claim: without noise it gives the result of the statement, a key of the groups that are best by n.
    Why: ARG_MAX(k, n) skips groups without a key, and n is a value of the group; it takes the first of the other groups by n.
    The statement reads nothing else of the release, so nothing else has to agree with it, and the other aggregates of the
    release are not measured.
    Source: Dwork, Roth 2014, Theorem 3.10 (exponential mechanism).

    Across units they would show one row's value. Over groups, if a statement asks for nothing else about them, they select the best
    group.
    """
    groups = outer.source
    if (
        not isinstance(groups, PerUnitGroupBy)
        or groups.keys
        or len(groups.aggregates) != 1
        or _has_further_clauses(outer)
    ):
        return None
    (item,), (column,) = groups.aggregates, groups.columns
    read = _find_read_release(item, groups.input)
    if read is None:
        return None
    release, key, score = read
    place = [known.name for known in release.keys].index(key.name)
    missing = build_function_call("is_null", release.keys[place].expr)
    there = None if missing is None else build_function_call("not", missing)
    if there is None:
        return None
    release = replace(
        release,
        input=build_filter(release.input, [there]),
        aggregations=tuple(known for known in release.aggregations if known.name == score.name),
    )
    order = Order(score, descending=item.function == "arg_max", nulls_first=False)
    found = rewrite_as_top_k(OuterQuery(release, (Output("best", key),), order=(order,), limit=1))
    if found is None:
        return None
    value: dict[Column, Expr] = {column: Scalar(found, key.type)}
    outputs = (Output(output.name, substitute_columns(output.expr, value)) for output in outer.outputs)
    one_row = Values(((1,),), groups.alias, (Column(groups.alias, "#", ColumnInfo(Type.INTEGER, "")),))
    return BestGroup(replace(outer, source=one_row, outputs=tuple(outputs)), found.release, place)


def _has_further_clauses(outer: OuterQuery) -> bool:
    """Return whether a statement asks for more than the outputs of its one row, or for other subqueries in them."""
    other = any(isinstance(part, Scalar) for output in outer.outputs for part in walk(output.expr))
    return other or any((outer.having, outer.qualify, outer.order, outer.limit is not None, outer.offset))


def _find_read_release(
    item: PerUnitAggregate, source: Relation
) -> tuple[Release, ReleasedColumn, ReleasedColumn] | None:
    """Find the release whose groups ARG_MAX or ARG_MIN compares, the key that it returns, and the value that it compares."""
    if item.argument is None or item.order_by is None:
        return None
    asked = OuterQuery(source, (Output("key", item.argument), Output("score", item.order_by)))
    found = find_provenance(asked) or ()
    if len(found) != 1 or not is_unfiltered(asked):
        return None
    (trace,) = found
    key, score = trace.outputs
    if not isinstance(key, ReleasedColumn) or not isinstance(score, ReleasedColumn):
        return None
    if key.name not in {known.name for known in trace.release.keys}:
        return None
    return trace.release, key, score


def _lower_arg_aggregate(over: ExactGroups, node: exp.AggFunc, function: str) -> Expr:
    """Return the x of one of the rows; a list of several, as in DuckDB, is refused."""
    text, signature = over.source, WITHIN[function].signature
    if node.args.get("count") is not None:
        text.refuse(
            node,
            "aggregate",
            f"{signature} cannot return a list of several values",
            "over released or public rows write SELECT x … ORDER BY y DESC LIMIT n",
        )
    arguments = text.take_arguments(node, "this", "expression")
    if any(argument is None for argument in arguments):
        text.refuse(node, "syntax", f"{signature}: an argument is missing")
    if any(type(argument) is exp.Distinct for argument in arguments):
        refuse_distinct(text, node)
    value, by = map(over.lower_argument, arguments)
    return over.add_exact_aggregate(node, function, value, by)


def _define_arg_aggregate(
    names: tuple[str, ...], node: type[exp.Expr], which: str, order: str
) -> AggregateCall:
    name, bare, by, *_ = names
    return AggregateCall(
        forms=(CallForm("BEST", names, "({k}, {x})"),),
        nodes=(node,),
        signature=WITHIN[name.lower()].signature,
        says=f"The x of the row with the {which} y; over groups of all units, the best group is selected.",
        arity=(2,),
        across=refuses(
            "exact_only",
            f"{name} across privacy units would release one row's value",
            f"select the best group: SELECT {name}(k, s) FROM (SELECT k, SUM(x) AS s … GROUP BY k), "
            f"or SELECT k … GROUP BY k ORDER BY SUM(x) {order} LIMIT 1",
        ),
        within=partial(_lower_arg_aggregate, function=name.lower()),
        accepted=(
            f"SELECT p, COUNT(*) FROM (SELECT {name}(plan, cost) AS p FROM visits GROUP BY patient_id) GROUP BY p",
            f"SELECT {by}(plan, n) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)",
            f"SELECT {bare}(plan, n) FILTER (WHERE n > 3) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)",
        ),
        refused={
            f"SELECT {name}(plan, cost) FROM visits": "exact_only",
            f"SELECT COUNT(p) FROM (SELECT {name}(plan, cost, 2) AS p FROM visits GROUP BY patient_id)": "aggregate",
        },
    )


ARG_MAX = _define_arg_aggregate(("ARG_MAX", "ARGMAX", "MAX_BY", "CHOOSE"), exp.ArgMax, "greatest", "DESC")
ARG_MIN = _define_arg_aggregate(("ARG_MIN", "ARGMIN", "MIN_BY"), exp.ArgMin, "least", "ASC")
