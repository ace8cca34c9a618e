"""Joins on declared links: private rows that are joined on all columns of a foreign key of the policy.

Claim: each joined row depends on rows of one privacy unit, whatever the data are; and it is the row that the same SQL gives
in the engine, if the declaration is true.
Why: the engine only joins rows of equal units, since the equality of units is added wherever the condition does not imply it.
If rows with equal keys have one unit, that equality removes nothing. Bounds on the number of rows use the declaration in the
same way as `rows_per_unit`: the emitted SQL drops the rows beyond them.
Source: McSherry 2009, "Privacy integrated queries", section 3.2, on joins within a unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.plan.expressions import Column, Expr
from dpsql.plan.nodes import (
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    iterate_sources,
    list_private_scans,
)
from dpsql.plan.tables import Scan, UnitKind
from dpsql.policy import normalize_name


def is_link_key_pair(ours: Expr, theirs: Expr) -> bool:
    """Return whether equal columns are the same part of a declared key."""
    return (
        isinstance(ours, Column)
        and isinstance(theirs, Column)
        and bool(ours.facts.link_keys & theirs.facts.link_keys)
    )


def covers_declared_link(on: Iterable[tuple[Expr, Expr]]) -> bool:
    """Return whether pairs of equal columns cover a declared key, with one source on each side."""
    met: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = {}
    for ours, theirs in on:
        if isinstance(ours, Column) and isinstance(theirs, Column) and ours.type is theirs.type:
            for table, keys, key in ours.facts.link_keys & theirs.facts.link_keys:
                met.setdefault((ours.source, theirs.source, table, keys), set()).add(key)
    return any(found == set(keys) for (_, _, _, keys), found in met.items())


def suggest_link_declaration(on: Sequence[tuple[Expr, Expr]], left: Relation, right: Relation) -> str | None:
    """Return the declaration, as YAML, by which the owner could allow a join on these pairs; None if there is none."""
    pairs = [(_find_stored_column(ours, left), _find_stored_column(theirs, right)) for ours, theirs in on]
    found = {(ours, theirs): None for ours, theirs in pairs if ours is not None and theirs is not None}
    tables = {(ours[0].table, theirs[0].table) for ours, theirs in found}
    rows = any(scan.unit.kind is UnitKind.ROW for side in (left, right) for scan in list_private_scans(side))
    if len(tables) != 1 or rows:
        return None
    ((there, here),) = tables
    names = [(ours[1], theirs[1]) for ours, theirs in found]
    columns = ", ".join(_quote_yaml_name(name) for _, name in names)
    references = ", ".join(_quote_yaml_name(f"{there}.{name}") for name, _ in names)
    return (
        f"if rows of equal {' and '.join(name for _, name in names)} always belong to one privacy unit, the owner of the "
        f"data can declare so in the table {here}: `links: [{{columns: [{columns}], references: [{references}]}}]`"
    )


def combine_hints(*hints: str | None) -> str | None:
    """Return several hints as one."""
    return "; or, ".join(hint for hint in hints if hint is not None) or None


def _quote_yaml_name(name: str) -> str:
    """Return a name as YAML holds it in a list."""
    plain = name.replace("_", "a").replace(".", "a").isalnum() and name.isascii()
    return name if plain else "'" + name.replace("'", "''") + "'"


def _find_stored_column(expr: Expr, relation: Relation) -> tuple[Scan, str] | None:
    """Find the column of a private table that an expression is, as the table has it."""
    if not isinstance(expr, Column):
        return None
    source = next((source for source in iterate_sources(relation) if source.alias == expr.source), None)
    match source:
        case Scan() if source.unit.private:
            return source, expr.name
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [normalize_name(known.name) for known in source.columns].index(normalize_name(expr.name))
            items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
            return _find_stored_column(items[place], source.input) if place < len(items) else None
        case _:
            return None
