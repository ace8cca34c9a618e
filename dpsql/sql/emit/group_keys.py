"""Emits group keys. A value of a declared domain is grouped by its index in the domain.

Claim: rows have equal indices if and only if they have equal keys; index 0 is the key NULL.
Why: the values of a domain differ; any other value, and NULL, has index 0. Small integers are grouped faster than texts,
and the engine looks up each entry of a column's dictionary once, not each row, if the look-up cannot fail: hence TRY_CAST.
Source: DuckDB's documentation, "List functions" (list_position: from 1, and 0 where there is none).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.analysis.analyse import Analysis
from dpsql.analysis.domains import nullable
from dpsql.backends.dialect import CALENDAR
from dpsql.plan.expr import Column, Expr
from dpsql.plan.nodes import Key, Relation, Release, optional_sources
from dpsql.plan.types import Type
from dpsql.sql.emit.dialect import dialect
from dpsql.sql.emit.scalars import constant, identifier, write

MOST_PLACES = 64
"""Of a longer list, a look-up by comparing one by one is no gain."""
_PLACED = frozenset({Type.VARCHAR, Type.INTEGER, Type.DATE, Type.TIME, Type.UUID})
"""Types whose values are equal only if they are the same: 0.0 and -0.0 are not."""


def indexed_column(key: Key, relation: Relation) -> Column | None:
    """The column by whose place in its domain a key is grouped, or None where it is grouped as it is."""
    column = key.expr
    if not dialect().places:
        return None
    if not isinstance(column, Column) or not column.facts.stored or column.type not in _PLACED:
        return None
    if not 0 < len(column.facts.domain or ()) <= MOST_PLACES:
        return None
    # Where a LEFT JOIN finds no row there is no place either, but NULL.
    return None if column.source in optional_sources(relation) else column


def domain_index(column: Column) -> str:
    """The place of a table's column, as it is stored, in its domain."""
    listed = f"list_position({_domain(column)}, {dialect().widened(column)})"
    return f"TRY_CAST(GREATEST({listed}, 0) AS UTINYINT)"


def domain_indices(release: Release) -> Iterator[tuple[str, str]]:
    """What scans offer besides their columns, each with the alias: the places of keys in their domains."""
    for key in release.keys:
        column = indexed_column(key, release.input)
        if column is not None:
            yield column.source, f"{domain_index(column)} AS {index_name(key)}"


def index_name(key: Key) -> str:
    """The name under which a scan offers the place of a key; no column of a table has it."""
    return identifier(f"#{key.name}")


def key_text(key: Key, analysis: Analysis) -> str:
    """The key that rows are grouped by."""
    column = indexed_column(key, analysis.release.input)
    return grouped(key.expr) if column is None else f"{identifier(column.source)}.{index_name(key)}"


def key_present(key: Key, analysis: Analysis) -> str | None:
    """The condition that leaves rows out whose key is NULL, where the policy says so."""
    if nullable(key.expr):
        return None
    text = key_text(key, analysis)
    return f"{text} IS NOT NULL" if indexed_column(key, analysis.release.input) is None else f"{text} > 0"


def groups_present(analysis: Analysis) -> str:
    """HAVING, of rows that are grouped without `key_present` of places: an engine would look these up twice for each row.

    It looks at a group's count, or an engine would make a condition on rows of it.
    """
    places = [
        f"{key.name} > 0"
        for key in analysis.release.keys
        if not nullable(key.expr) and indexed_column(key, analysis.release.input) is not None
    ]
    return f"\n  HAVING CASE WHEN COUNT(*) > 0 THEN {' AND '.join(places)} END" if places else ""


def key_values(analysis: Analysis) -> dict[str, str]:
    """For each key that is grouped by its place, by name, the SQL of its value."""
    found = {key.name: indexed_column(key, analysis.release.input) for key in analysis.release.keys}
    return {
        name: f"list_extract({_domain(column)}, CAST({name} AS BIGINT))"
        for name, column in found.items()
        if column is not None
    }


def grouped(expr: Expr) -> str:
    """A group key with one form for each value: equal keys must not differ in how they are shown.

    -0.0 becomes 0.0, NaN NULL, and so does a day or moment that Python's calendar cannot hold.
    """
    text = write(expr)
    if expr.type is Type.DOUBLE:
        return f"NULLIF({text} + 0, {dialect().nan})"
    if expr.type in CALENDAR and not (isinstance(expr, Column) and expr.facts.stored):
        low, high = map(constant, CALENDAR[expr.type])
        return f"CASE WHEN {text} BETWEEN {low} AND {high} THEN {text} END"
    return dialect().by_bytes(text) if expr.type is Type.VARCHAR else text


def _domain(column: Column) -> str:
    return f"[{', '.join(map(constant, column.facts.domain or ()))}]"
