"""Listed group keys, each of whose values is released, and keys whose values only follow from bounds.

A query that asks for keys and nothing else shows those that rows have. Of a whole table they are those that are listed,
which costs nothing; under conditions, and of joined tables, which of them have rows is measured by a count of units.

Claim: the answer depends on the plan alone.
Why: it reads expressions, what the policy declares of columns, and the conditions of the statement.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.analysis.domains import ListedValues, derive_listed_values
from dpsql.analysis.images import is_statically_computable
from dpsql.analysis.stability import PublicFacts
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns, substitute_columns
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    is_private,
    iterate_sources,
)
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type

PRESENT = Aggregation("present", "count_units", None, Type.INTEGER)
"""The count that measures which groups have rows, if a query selects only keys."""


def measures_presence(release: Release) -> bool:
    """Return whether groups are counted for no other reason than to tell which have rows."""
    return release.aggregations == (PRESENT,)


def reads_whole_table(release: Release, facts: PublicFacts) -> bool:
    """Return whether the rows of a release are those of a whole table, except for conditions on keys alone that are computed of the keys."""
    return _reads_whole_table(release.input, [key.expr for key in release.keys], facts)


def _reads_whole_table(relation: Relation, keys: Sequence[Expr], facts: PublicFacts) -> bool:
    match relation:
        case Scan():
            return True
        case Filter():
            read = {column for key in keys for column in iterate_columns(key)}
            known = read.issuperset(iterate_columns(relation.predicate)) and is_statically_computable(
                relation.predicate, facts
            )
            return known and _reads_whole_table(relation.input, keys, facts)
        case Project():
            items: dict[Column, Expr] = dict(zip(relation.columns, relation.items, strict=True))
            return _reads_whole_table(relation.input, [substitute_columns(key, items) for key in keys], facts)
        case _:
            return False


_CHOICES = frozenset({"coalesce", "nullif"})
"""Functions whose value is that of an argument."""


def has_unlisted_keys(release: Release) -> bool:
    """Return whether the values of a key of a release follow from bounds, and from no list."""
    if release.all_public_rows:
        return False
    stated = derive_listed_values(release.input)
    return not all(is_listed(key.expr, release.input, stated) for key in release.keys)


def is_listed(expr: Expr, relation: Relation, stated: ListedValues) -> bool:
    """Return whether the values of an expression are listed: by the policy, a condition, the query, a public table, or a calendar."""
    if isinstance(expr, Literal) or expr.type is Type.BOOLEAN or stated.get(expr) is not None:
        return True
    if isinstance(expr, Column):
        return _is_listed_column(expr, relation)
    if not isinstance(expr, Call):
        return False
    if expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        options = [otherwise, *(value for _, value in branches)]
        return all(is_listed(option, relation, stated) for option in options)
    times = {column for column in iterate_columns(expr) if column.type.temporal}
    if times and expr.function.name not in _CHOICES:
        return len(times) == 1  # parts of a calendar, such as months, but not the time between two days
    return all(is_listed(column, relation, stated) for column in iterate_columns(expr))


def _is_listed_column(column: Column, relation: Relation) -> bool:
    source = next((found for found in iterate_sources(relation) if found.alias == column.source), None)
    if not isinstance(source, (Project, PerUnitGroupBy, PerUnitWindows)):
        return column.facts.domain is not None or (source is not None and not is_private(source))
    exprs = source.keys if isinstance(source, PerUnitGroupBy) else source.items
    # By name: outside of a LEFT JOIN, a column of its right side has nullable facts.
    item = dict(zip((known.name for known in source.columns), exprs, strict=False)).get(column.name)
    inner = source.input
    return item is not None and is_listed(item, inner, derive_listed_values(inner))
