"""The aggregates of SQL: one file for each idea, and one line in `AGGREGATE_CALLS`.

The grammar, completion, documents and refusals take what they say about aggregates from these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expressions import Expr
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    AggregateContext,
    CallForm,
    ExactGroups,
    Refusal,
    ReleasedGroups,
    refuse_unsupported,
)
from dpsql.sql.lower.aggregates.chosen_values import ANY_VALUE, ARG_MAX, ARG_MIN, MODE
from dpsql.sql.lower.aggregates.count import APPROX_COUNT_DISTINCT, BOOL_AND, BOOL_OR, COUNT, COUNT_IF
from dpsql.sql.lower.aggregates.derived_values import ENTROPY, MAD, WEIGHTED_MEAN
from dpsql.sql.lower.aggregates.histogram import HISTOGRAM
from dpsql.sql.lower.aggregates.lists import JOINED_TEXT, LIST_OF_VALUES
from dpsql.sql.lower.aggregates.quantiles import MAX, MEDIAN, MIN, QUANTILE_CONT, QUANTILE_DISC
from dpsql.sql.lower.aggregates.sums_and_means import AVG, GEOMEAN, SUM
from dpsql.sql.lower.aggregates.variance import VARIANCES

AGGREGATE_CALLS: tuple[AggregateCall, ...] = (
    COUNT,
    SUM,
    AVG,
    MIN,
    MAX,
    COUNT_IF,
    APPROX_COUNT_DISTINCT,
    GEOMEAN,
    *VARIANCES,
    MEDIAN,
    QUANTILE_CONT,
    QUANTILE_DISC,
    MODE,
    MAD,
    ENTROPY,
    WEIGHTED_MEAN,
    HISTOGRAM,
    LIST_OF_VALUES,
    JOINED_TEXT,
    ARG_MAX,
    ARG_MIN,
    ANY_VALUE,
    BOOL_AND,
    BOOL_OR,
)
BY_NODE: Mapping[type[exp.Expr], AggregateCall] = MappingProxyType(
    {node: entry for entry in AGGREGATE_CALLS for node in entry.nodes}
)


def lower_aggregate_across(over: ReleasedGroups, node: exp.AggFunc) -> tuple[Expr, bool]:
    """Lower a call over rows of all units, and return whether it is a release of its own. Raises QueryRejected."""
    entry = BY_NODE.get(type(node))
    if entry is None:
        refuse_unsupported(over.source, node, _list_signatures(AggregateContext.ACROSS_UNITS), across=True)
    if isinstance(entry.across, Refusal):
        _refuse_aggregate(over, node, entry.across)
    return entry.across(over, node), entry.separate


def lower_aggregate_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    """Lower a call over one unit's rows, released rows or public rows. Raises QueryRejected."""
    entry = BY_NODE.get(type(node))
    if entry is None:
        refuse_unsupported(over.source, node, _list_signatures(AggregateContext.WITHIN_UNIT), across=False)
    if isinstance(entry.within, Refusal):
        _refuse_aggregate(over, node, entry.within)
    return entry.within(over, node)


def iterate_distinct_spellings(entry: AggregateCall) -> Iterable[tuple[CallForm, str]]:
    """Yield the names of an aggregate with their forms, except for those that only differ in underscores."""
    seen: set[str] = set()
    for form in entry.forms:
        for name in form.names:
            bare = name.replace("_", "")
            if bare not in seen:
                yield form, name
            seen.add(bare)


def _list_signatures(context: AggregateContext) -> list[str]:
    return [entry.signature for entry in AGGREGATE_CALLS if context in entry.contexts]


def _refuse_aggregate(over: ReleasedGroups | ExactGroups, node: exp.AggFunc, why: Refusal) -> NoReturn:
    name = over.source.get_function_name(node)
    over.source.refuse(node, why.code, why.message.format(name=name), why.hint.format(name=name))
