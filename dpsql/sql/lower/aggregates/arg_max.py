"""ARG_MAX(x, y) and ARG_MIN(x, y): the x of the row that is best by y, of exact groups.

Across units they would show one row's value. Over groups, if a statement asks for nothing else about them, they select the
best group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

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
from dpsql.plan.nodes import OuterQuery, Output, PerUnitAggregate, PerUnitGroupBy, Relation, Release, Values
from dpsql.plan.provenance import find_provenance, is_unfiltered
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import AggregateCall, CallForm, ExactGroups, refuse_distinct, refuses
from dpsql.sql.lower.joins import build_filter
from dpsql.sql.lower.top_k import rewrite_as_top_k

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
