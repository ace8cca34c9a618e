"""The rows below the release boundary as engine SQL: the unit, the group keys, the measured values."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.analysis.analyse import Analysis, Measure
from dpsql.plan.expr import Column, columns
from dpsql.plan.nodes import Filter, Join, Relation, Scan, private_scan
from dpsql.plan.types import Type, common
from dpsql.sql import keys
from dpsql.sql.clean import NAN, clean
from dpsql.sql.scalar_text import column, identifier, write

UNIT = "#unit"


def rows(analysis: Analysis) -> str:
    """The query for the rows: the unit as `u`, each key under its name, the measures as `x0`, `x1` and so on."""
    release, bound = analysis.release, analysis.bound
    items = [f"{keys.read(key, analysis)} AS {key.name}" for key in release.keys]
    items += [f"{_measured(measure)} AS x{index}" for index, measure in enumerate(analysis.measures)]
    where = [text for key in release.keys if (text := keys.present(key, analysis)) is not None]
    if bound.per_unit:
        name = f"{identifier(private_scan(release.input).alias)}.{identifier(UNIT)}"
        items.insert(0, f"{name} AS u")
        where.insert(0, f"{name} IS NOT NULL")
    source, conditions = source_of(analysis, release.input)
    conditions = [*conditions, *where]
    text = f"SELECT {', '.join(items) or '1'} FROM {source}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text


def emit_multiplicity(join: Join) -> str:
    """The query for the most rows of a join's public side that one row can be equal to.

    Keys are compared as the join compares them: cleaned, and in the common type of both sides, in
    which keys that differ as stored may be equal.
    """
    compared = []
    for ours, theirs in join.on:
        shared = common((ours.type, theirs.type)) or theirs.type
        text = f"CAST({column(theirs)} AS {shared.value})"
        compared.append(f"{text} + 0" if shared is Type.DOUBLE else text)  # -0.0 equals 0.0
    used = {theirs.name: theirs for _, theirs in join.on}
    source = f"(SELECT {', '.join(_cleaned(used.values()))} FROM {identifier(join.right.table)})"
    there = " AND ".join(f"{text} IS NOT NULL" for text in compared)
    return (
        f"SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM {source} AS {identifier(join.right.alias)} "
        f"WHERE {there} GROUP BY {', '.join(compared)})"
    )


def _measured(measure: Measure) -> str:
    text = write(measure.expr)
    computed = measure.expr.type is Type.DOUBLE and not isinstance(measure.expr, Column)
    return f"NULLIF({text}, {NAN})" if computed else text


def source_of(analysis: Analysis, relation: Relation) -> tuple[str, list[str]]:
    """The FROM text and the conditions of a relation."""
    match relation:
        case Scan():
            return _scan(analysis, relation), []
        case Filter():
            source, conditions = source_of(analysis, relation.input)
            return source, [*conditions, write(relation.predicate)]
        case Join():
            left, conditions = source_of(analysis, relation.left)
            on = " AND ".join(f"{write(ours)} = {column(theirs)}" for ours, theirs in relation.on)
            right = _scan(analysis, relation.right)
            return f"{left}\n    {relation.kind.value} JOIN {right} ON {on}", conditions


def _scan(analysis: Analysis, scan: Scan) -> str:
    """The columns of a table that the query reads, cleaned, under the table's alias."""
    used = {part.name: part for part in _columns(analysis) if part.source == scan.alias}
    items = _cleaned(used.values())
    for key in analysis.release.keys:
        looked_up = keys.placed(key, analysis.release.input)
        if looked_up is not None and looked_up.source == scan.alias:
            items.append(f"{keys.place(looked_up)} AS {keys.place_name(key)}")
    if scan.unit.private and analysis.bound.per_unit:
        unit = "ROW_NUMBER() OVER ()" if scan.unit.column is None else identifier(scan.unit.column.name)
        items.append(f"{unit} AS {identifier(UNIT)}")
    return f"(SELECT {', '.join(items) or '1'} FROM {identifier(scan.table)}) AS {identifier(scan.alias)}"


def _cleaned(used: Iterable[Column]) -> list[str]:
    return [f"{clean(part)} AS {identifier(part.name)}" for part in used]


def _columns(analysis: Analysis) -> Iterable[Column]:
    """The columns whose cleaned values are read; of a key that is grouped by its place, none is."""
    for key in analysis.release.keys:
        if keys.placed(key, analysis.release.input) is None:
            yield from columns(key.expr)
    for measure in analysis.measures:
        yield from columns(measure.expr)
    yield from _relation_columns(analysis.release.input)


def _relation_columns(relation: Relation) -> Iterable[Column]:
    match relation:
        case Scan():
            return
        case Filter():
            yield from columns(relation.predicate)
            yield from _relation_columns(relation.input)
        case Join():
            for ours, theirs in relation.on:
                yield from columns(ours)
                yield theirs
            yield from _relation_columns(relation.left)
