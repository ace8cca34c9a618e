"""Propagate partition filters from one table to the scans that are joined to it.

Claim: a propagated filter removes no row that counts.
Why: below the boundary, the rows of a unit depend on rows of that unit only (`sql.emit.relations`): joins, semi-joins and
set operations of private tables are per unit. A filtered scan has no rows of units in other partitions. So such units
have no rows in an inner join, INTERSECT, EXISTS or IN with it on either side, nor in a LEFT JOIN, NOT EXISTS or EXCEPT with
it on the left. Their rows do not count, and removing more of them changes nothing. From the right side of a LEFT JOIN, NOT
EXISTS or EXCEPT nothing follows for the left; a union has the union of the filters of both sides.

The privacy guarantee does not rest on this: each emitted scan checks the partitions of its units itself
(`sql.emit.partition_filters`). So neighbors that differ in a unit outside the charged box read the same rows.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto

from dpsql.analysis.partitions.constraint import intersect_filters, merge_filters, with_source
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    get_unit_type,
    list_inputs,
    list_private_scans,
)
from dpsql.plan.tables import PartitionFilter, PartitionSource, Scan, UnitKind

Filters = Mapping[str, PartitionFilter]
"""Partition filters with their sources, by dimension."""
SOURCE = "#roll"
"""The alias of the columns of a partition source, whatever the query calls its table."""


class _NeededSides(Enum):
    """The sides in which a unit must have rows to have rows in a join, semi-join or set operation."""

    BOTH = auto()
    LEFT = auto()
    EITHER = auto()


def propagate_filters(relation: Relation) -> Relation:
    """Return the relation with filters propagated to all its scans."""
    filtered = any(scan.partition_filters for scan in list_private_scans(relation))
    return _filter_relation(relation, {}) if filtered else relation


def list_source_filters(table: str, scan: Scan) -> tuple[PartitionFilter, ...]:
    """List the filters of a scan under the dimensions of the account of `table`, which is a partition source of the scan.

    Rows of the source for units outside the filters do not matter: the scan does not read these units.
    """
    return tuple(_to_table_filter(side, table, SOURCE) for side in _derive_source_filters(scan).values())


def _derive_source_filters(scan: Scan) -> Filters:
    """Derive the filters of a scan under the dimensions of the accounts of other tables."""
    unit = scan.unit.column
    own = None if unit is None else PartitionSource(scan.table, replace(unit, source=SOURCE))
    sides = (with_source(side, SOURCE, side.source or own) for side in scan.partition_filters)
    return {side.dimension: side for side in sides if side.source is not None}


def _to_table_filter(side: PartitionFilter, table: str, source: str) -> PartitionFilter:
    """Return a filter under the dimensions of the account of `table`, which may be its source."""
    own = side.source is not None and side.source.table == table
    return with_source(side, source, None) if own else side


def _get_needed_sides(relation: Join | SemiJoin | SetOperation) -> _NeededSides:
    match relation:
        case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
            return _NeededSides.BOTH
        case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
            return _NeededSides.EITHER
        case _:
            return _NeededSides.LEFT


def _derive_unit_filters(relation: Relation) -> Filters:
    """Derive the filters that hold for all units with a row in a relation."""
    match relation:
        case Scan(unit=unit) if unit.kind is UnitKind.COLUMN:
            return _derive_source_filters(relation)
        case Filter() | Project() | PerUnitGroupBy() | PerUnitWindows():
            return _derive_unit_filters(relation.input)
        case Join() | SemiJoin() | SetOperation():
            left, right = map(_derive_unit_filters, list_inputs(relation))
            needed = _get_needed_sides(relation)
            if needed is _NeededSides.EITHER:
                return {
                    name: merge_filters(side, right[name]) for name, side in left.items() if name in right
                }
            return _combine_filters(left, right) if needed is _NeededSides.BOTH else left
        case _:
            return {}


def _filter_relation(relation: Relation, located: Filters) -> Relation:
    """Return the relation with filters on its scans, given the filters of its units."""
    match relation:
        case Filter():
            return replace(relation, input=_filter_relation(relation.input, located))
        case SemiJoin():
            of_left, of_right = _derive_side_filters(relation, located)
            left, right = _filter_relation(relation.input, of_left), _filter_source(relation.right, of_right)
            return replace(relation, input=left, right=right)
        case Join():
            of_left, of_right = _derive_side_filters(relation, located)
            left, right = _filter_relation(relation.left, of_left), _filter_source(relation.right, of_right)
            return replace(relation, left=left, right=right)
        case _:
            return _filter_source(relation, located)


def _filter_source(source: Source, located: Filters) -> Source:
    match source:
        case Scan():
            return _filter_scan(source, located)
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            return replace(source, input=_filter_relation(source.input, located))
        case SetOperation():
            of_left, of_right = _derive_side_filters(source, located)
            return replace(
                source,
                left=_filter_source(source.left, of_left),
                right=_filter_source(source.right, of_right),
            )
        case _:
            return source


def _derive_side_filters(
    relation: Join | SemiJoin | SetOperation, located: Filters
) -> tuple[Filters, Filters]:
    """Derive the filters of the units of each side, given those of the whole."""
    left, right = map(_derive_unit_filters, list_inputs(relation))
    needed = _get_needed_sides(relation)
    return (
        _combine_filters(located, right) if needed is _NeededSides.BOTH else located,
        located if needed is _NeededSides.EITHER else _combine_filters(located, left),
    )


def _filter_scan(scan: Scan, located: Filters) -> Scan:
    """Return the scan with further filters, if it has the unit's identifier, in the type of the source."""
    if scan.unit.kind is not UnitKind.COLUMN or not scan.unit.is_known:
        return scan
    found: Filters = {side.dimension: side for side in scan.partition_filters}
    for side in located.values():
        if side.source is None or side.source.unit.type is not get_unit_type(scan):
            continue  # identifiers would have to be converted, which might fail
        # A filter whose source is the scan's own table is a filter on its own column.
        here = _to_table_filter(side, scan.table, scan.alias)
        found = _combine_filters(found, {here.dimension: here})
    inherited_last = sorted(found.values(), key=lambda side: (side.source is not None, side.dimension))
    return replace(scan, partition_filters=tuple(inherited_last))


def _combine_filters(some: Filters, others: Filters) -> Filters:
    """Return the filters of both together."""
    shared = {name: intersect_filters(side, others[name]) for name, side in some.items() if name in others}
    return {**some, **others, **shared}
