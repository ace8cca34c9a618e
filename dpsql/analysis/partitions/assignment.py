"""Assign partition filters to the scans of a release, and propagate them to the scans that are joined to these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import reduce

from dpsql.analysis.partitions.predicates import (
    Dimension,
    find_possible_positions,
    intersect_filters,
    make_partition_filter,
    merge_filters,
    with_positions,
    with_source,
)
from dpsql.plan.expressions import Call, Column, Expr, iterate_columns, substitute_columns
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    get_unit_type,
    list_inputs,
    list_private_scans,
    list_private_tables,
)
from dpsql.plan.tables import PartitionFilter, PartitionSource, Scan, UnitKind
from dpsql.policy import normalize_name
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box

# Propagate partition filters from one table to the scans that are joined to it.


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
    """Return the relation with filters propagated to all its scans.

    Claim: a propagated filter removes no row that counts.
    Why: below the boundary, the rows of a unit depend on rows of that unit only (`sql.compile.relations`): joins, semi-joins and set
    operations of private tables are per unit. A filtered scan has no rows of units in other partitions. So such units have no rows
    in an inner join, INTERSECT, EXISTS or IN with it on either side, nor in a LEFT JOIN, NOT EXISTS or EXCEPT with it on the left.
    Their rows do not count, and removing more of them changes nothing. From the right side of a LEFT JOIN, NOT EXISTS or EXCEPT
    nothing follows for the left; a union has the union of the filters of both sides.

    The privacy guarantee does not rest on this: each emitted scan checks the partitions of its units itself
    (`sql.compile.scan_conditions`). So neighbors that differ in a unit outside the charged box read the same rows.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
    """
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


# Assign partition filters to the scans of a release, from the conditions that its rows must satisfy.


Conditions = tuple[Expr, ...]
"""Conditions that each counted row satisfies."""


def with_partition_filters(release: Release) -> Release:
    """Return the release with partition filters on its scans.

    Claim: a partition filter removes no row that counts, and the release reads only partitions in the charged box.
    Why: outside the ranges that are found for a column, and for NULL, some condition is not true; and all rows of a unit are in the
    partition that a joined table gives for it (`propagate_filters`). Only the answer rests on this. The privacy guarantee rests on the
    emitted scan, which drops rows outside its ranges and rows of units with several values (`sql.compile.scan_conditions`), so that
    what is read is what is charged, whatever the conditions mean.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition).
    """
    return replace(release, input=propagate_filters(_assign_to_relation(release.input, ())))


def compute_boxes(release: Release) -> dict[str, Box]:
    """Compute the box of partitions that the release reads of each private table.

    It is the hull of the boxes of all scans of the table, and the whole table for the owner of a link. The table of a
    partition source is read where the scan that it filters is.
    """
    relation = release.input
    read: dict[str, list[Box]] = {table: [] for table in list_private_tables(relation)}
    for scan in list_private_scans(relation):
        read[scan.table].append(_compute_box(scan.partition_filters))
        for table in {side.source.table for side in scan.partition_filters if side.source is not None}:
            read[table].append(_compute_box(list_source_filters(table, scan)))
        link = scan.unit.link
        while link is not None:
            read[link.owner.table].append(WHOLE)
            link = link.owner.unit.link
    return {table: reduce(Box.compute_hull, found) for table, found in read.items()}


def _compute_box(sides: Iterable[PartitionFilter]) -> Box:
    return Box.from_sides({side.dimension: side.positions for side in sides})


def describe_box(box: Box, read: Iterable[Release]) -> str:
    """Return a box as text, from the filters of these releases; "" for a whole table.

    Its ranges are of values that the policy declares, which are public.
    """
    lines = {
        side.dimension: side
        for release in read
        for scan in list_private_scans(release.input)
        for side in scan.partition_filters
    }
    return " and ".join(
        str(with_positions(lines[name], places)) for name, places in box.sides if name in lines
    )


def _assign_to_relation(relation: Relation, said: Conditions) -> Relation:
    match relation:
        case Filter():
            return replace(
                relation,
                input=_assign_to_relation(relation.input, (*said, *_iterate_conjuncts(relation.predicate))),
            )
        case SemiJoin():
            on = tuple(_iterate_conjuncts(relation.on))
            left = said if relation.anti else (*said, *on)
            right = _assign_to_source(relation.right, on)
            return replace(relation, input=_assign_to_relation(relation.input, left), right=right)
        case Join():
            also = () if relation.condition is None else tuple(_iterate_conjuncts(relation.condition))
            # A LEFT JOIN keeps an unmatched row, for which conditions on the right side need not be true.
            left = (*said, *also) if relation.kind is JoinKind.INNER else said
            right = _assign_to_source(relation.right, (*said, *also))
            return replace(relation, left=_assign_to_relation(relation.left, left), right=right)
        case _:
            return _assign_to_source(relation, said)


def _assign_to_source(source: Source, said: Conditions) -> Source:
    match source:
        case Scan():
            return _assign_to_scan(source, said)
        case Project():
            inner = _push_down_conditions(said, dict(zip(source.columns, source.items, strict=True)))
            return replace(source, input=_assign_to_relation(source.input, inner))
        case PerUnitGroupBy():
            inner = _push_down_conditions(said, dict(zip(source.columns, source.keys, strict=False)))
            return replace(source, input=_assign_to_relation(source.input, inner))
        case PerUnitWindows():
            # Conditions on the result do not hold for the rows that windows read.
            return replace(source, input=_assign_to_relation(source.input, ()))
        case SetOperation():
            sides = (
                _assign_to_source(side, _push_down_to_side(source, side, said))
                for side in (source.left, source.right)
            )
            left, right = sides
            return replace(source, left=left, right=right)
        case _:
            return source


def _push_down_conditions(said: Conditions, items: Mapping[Column, Expr]) -> Conditions:
    """Return the conditions on the columns of a derived table, as conditions on its input."""
    return tuple(
        substitute_columns(condition, items)
        for condition in said
        if all(column in items for column in iterate_columns(condition))
    )


def _push_down_to_side(whole: SetOperation, side: Source, said: Conditions) -> Conditions:
    if isinstance(side, Scan):
        raise TypeError("a side must have the columns of the whole")
    pairs = zip(whole.columns, side.columns, strict=True)
    return _push_down_conditions(said, {ours: theirs for ours, theirs in pairs if ours.type is theirs.type})


def _iterate_conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Yield the conditions that all hold where a predicate is true."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for argument in predicate.arguments:
            yield from _iterate_conjuncts(argument)
    else:
        yield predicate


def _assign_to_scan(scan: Scan, said: Conditions) -> Scan:
    """Return the scan with partition filters, if the emitted SQL can ensure that each unit is in one partition."""
    if scan.contribution is None or not (scan.unit.kind is UnitKind.ROW or scan.unit.is_known):
        return scan
    read = {
        column.name: column
        for condition in said
        for column in iterate_columns(condition)
        if column.source == scan.alias and normalize_name(column.name) in scan.contribution.constant
    }
    sides = (_derive_partition_filter(column, said) for _, column in sorted(read.items()))
    return replace(scan, partition_filters=tuple(side for side in sides if side is not None))


def _derive_partition_filter(column: Column, said: Conditions) -> PartitionFilter | None:
    dimension = Dimension.from_column(column)
    places = None if dimension is None else find_possible_positions(said, dimension)
    if dimension is None or places is None or places == ((dimension.low, dimension.high),):
        return None
    return make_partition_filter(dimension, places)
