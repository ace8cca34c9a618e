"""Assign partition filters to the scans of a release, from the conditions that its rows must satisfy.

Claim: a partition filter removes no row that counts, and the release reads only partitions in the charged box.
Why: outside the ranges that are found for a column, and for NULL, some condition is not true; and all rows of a unit are
in the partition that a joined table gives for it (`propagate`). Only the answer rests on this. The privacy guarantee rests
on the emitted scan, which drops rows outside its ranges and rows of units with several values
(`sql.emit.partition_filters`), so that what is read is what is charged, whatever the conditions mean.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parallel composition).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from dpsql.analysis.partitions.constraint import make_partition_filter, with_positions
from dpsql.analysis.partitions.dimension import Dimension
from dpsql.analysis.partitions.predicates import find_possible_positions
from dpsql.analysis.partitions.propagate import list_source_filters, propagate_filters
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
    SetOperation,
    Source,
    list_private_scans,
    list_private_tables,
)
from dpsql.plan.tables import PartitionFilter, Scan, UnitKind
from dpsql.policy import normalize_name
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box

Conditions = tuple[Expr, ...]
"""Conditions that each counted row satisfies."""


def with_partition_filters(release: Release) -> Release:
    """Return the release with partition filters on its scans."""
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
