"""Emit group keys. A value of a declared domain is grouped by its index in the domain.

Claim: rows have equal indices if and only if they have equal keys; index 0 is the key NULL.
Why: the values of a domain differ; any other value, and NULL, has index 0. Small integers are grouped faster than texts,
and the engine looks up each entry of a column's dictionary once, not each row, if the look-up cannot fail: hence TRY_CAST.
Source: DuckDB's documentation, "List functions" (list_position: from 1, and 0 where there is none).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.analysis.domains import is_nullable
from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.expressions import Column
from dpsql.plan.nodes import Key, Relation, Release, list_optional_aliases
from dpsql.plan.types import Type
from dpsql.policy.names import quote_identifier
from dpsql.sql.compile.columns import name_group_key
from dpsql.sql.compile.compiler import Compiler

MOST_PLACES = 64
"""In a longer list, comparing one value after another is no faster."""
_PLACED = frozenset({Type.VARCHAR, Type.INTEGER, Type.DATE, Type.TIME, Type.UUID})
"""Types whose values are equal only if they are the same: 0.0 and -0.0 are not."""


def find_indexed_column(compiler: Compiler, key: Key, relation: Relation) -> Column | None:
    """Return the column whose index in its domain stands for a key; None if the key is grouped by its value."""
    column = key.expr
    if not compiler.dialect.capabilities.groups_by_domain_index:
        return None
    if not isinstance(column, Column) or not column.facts.is_stored or column.type not in _PLACED:
        return None
    if not 0 < len(column.facts.domain or ()) <= MOST_PLACES:
        return None
    # A LEFT JOIN pads an unmatched row with NULL, which has no index.
    return None if column.source in list_optional_aliases(relation) else column


def emit_domain_index(compiler: Compiler, column: Column) -> str:
    """Return the index in its domain of a stored column."""
    listed = f"list_position({_emit_domain(compiler, column)}, {compiler.dialect.columns.emit_widened_column(column)})"
    return f"TRY_CAST(GREATEST({listed}, 0) AS UTINYINT)"


def emit_domain_indices(compiler: Compiler, release: Release) -> Iterator[tuple[str, str]]:
    """Yield the columns that scans add, each with its alias: the indices of keys in their domains."""
    for key in release.keys:
        column = find_indexed_column(compiler, key, release.input)
        if column is not None:
            yield column.source, f"{emit_domain_index(compiler, column)} AS {name_index_column(release, key)}"


def name_index_column(release: Release, key: Key) -> str:
    """Return the name under which a scan offers the place of a key; no column of a table has it."""
    return quote_identifier(f"#{name_group_key(release, key)}_index")


def emit_group_key(compiler: Compiler, key: Key, analysis: Analysis) -> str:
    """Return the key that rows are grouped by."""
    column = find_indexed_column(compiler, key, analysis.release.input)
    return (
        compiler.emit_canonical_value(key.expr)
        if column is None
        else f"{quote_identifier(column.source)}.{name_index_column(analysis.release, key)}"
    )


def emit_key_condition(compiler: Compiler, key: Key, analysis: Analysis) -> str | None:
    """Return the condition that excludes rows with a NULL key, if the policy declares the key as not nullable."""
    if is_nullable(key.expr):
        return None
    text = emit_group_key(compiler, key, analysis)
    return (
        f"{text} IS NOT NULL"
        if find_indexed_column(compiler, key, analysis.release.input) is None
        else f"{text} > 0"
    )


def emit_having_clause(compiler: Compiler, analysis: Analysis) -> str:
    """Return HAVING for rows that are grouped without `emit_key_condition` on indices: an engine would look these up twice per row.

    It looks at a group's count, or an engine would make a condition on rows of it.
    """
    places = [
        f"{name_group_key(analysis.release, key)} > 0"
        for key in analysis.release.keys
        if not is_nullable(key.expr)
        and find_indexed_column(compiler, key, analysis.release.input) is not None
    ]
    return f"\n  HAVING CASE WHEN COUNT(*) > 0 THEN {' AND '.join(places)} END" if places else ""


def emit_key_values(compiler: Compiler, analysis: Analysis) -> dict[str, str]:
    """Return the SQL of the value of each key that is grouped by its index, by name."""
    found = {
        name_group_key(analysis.release, key): find_indexed_column(compiler, key, analysis.release.input)
        for key in analysis.release.keys
    }
    return {
        name: f"list_extract({_emit_domain(compiler, column)}, CAST({name} AS BIGINT))"
        for name, column in found.items()
        if column is not None
    }


def _emit_domain(compiler: Compiler, column: Column) -> str:
    return f"[{', '.join(map(compiler.emit_constant, column.facts.domain or ()))}]"
