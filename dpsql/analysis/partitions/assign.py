"""Assigns partition filters to the scans of a release, from the conditions that its rows must satisfy.

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

from dpsql.accounting.partitions.boxes import WHOLE, Box
from dpsql.analysis.partitions.constraint import at_positions, partition_filter
from dpsql.analysis.partitions.dimension import Dimension
from dpsql.analysis.partitions.predicates import possible_positions
from dpsql.analysis.partitions.propagate import filters_on_source, propagated
from dpsql.plan.expr import Call, Column, Expr, columns, substituted
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
    private_scans,
    private_tables,
)
from dpsql.plan.tables import PartitionFilter, Scan, UnitKind
from dpsql.policy import fold

Conditions = tuple[Expr, ...]
"""Conditions that each counted row satisfies."""


def with_partition_filters(release: Release) -> Release:
    """The release with partition filters on its scans."""
    return replace(release, input=propagated(_relation(release.input, ())))


def boxes(release: Release) -> dict[str, Box]:
    """The box of partitions that the release reads of each private table.

    It is the hull of the boxes of all scans of the table, and the whole table for the owner of a link. The table of a
    partition source is read where the scan that it filters is.
    """
    relation = release.input
    read: dict[str, list[Box]] = {table: [] for table in private_tables(relation)}
    for scan in private_scans(relation):
        read[scan.table].append(_box(scan.partition_filters))
        for table in {side.source.table for side in scan.partition_filters if side.source is not None}:
            read[table].append(_box(filters_on_source(table, scan)))
        link = scan.unit.link
        while link is not None:
            read[link.owner.table].append(WHOLE)
            link = link.owner.unit.link
    return {table: reduce(Box.hull, found) for table, found in read.items()}


def _box(sides: Iterable[PartitionFilter]) -> Box:
    return Box.of({side.dimension: side.positions for side in sides})


def described(box: Box, read: Iterable[Release]) -> str:
    """A box as text, from the filters of these releases; "" for a whole table.

    Its ranges are of values that the policy declares, which are public.
    """
    lines = {
        side.dimension: side
        for release in read
        for scan in private_scans(release.input)
        for side in scan.partition_filters
    }
    return " and ".join(str(at_positions(lines[name], places)) for name, places in box.sides if name in lines)


def _relation(relation: Relation, said: Conditions) -> Relation:
    match relation:
        case Filter():
            return replace(relation, input=_relation(relation.input, (*said, *_split(relation.predicate))))
        case SemiJoin():
            on = tuple(_split(relation.on))
            left = said if relation.anti else (*said, *on)
            right = _source(relation.right, on)
            return replace(relation, input=_relation(relation.input, left), right=right)
        case Join():
            also = () if relation.also is None else tuple(_split(relation.also))
            # A LEFT JOIN keeps an unmatched row, for which conditions on the right side need not be true.
            left = (*said, *also) if relation.kind is JoinKind.INNER else said
            right = _source(relation.right, (*said, *also))
            return replace(relation, left=_relation(relation.left, left), right=right)
        case _:
            return _source(relation, said)


def _source(source: Source, said: Conditions) -> Source:
    match source:
        case Scan():
            return _scan(source, said)
        case Project():
            inner = _through(said, dict(zip(source.columns, source.items, strict=True)))
            return replace(source, input=_relation(source.input, inner))
        case PerUnitGroupBy():
            inner = _through(said, dict(zip(source.columns, source.keys, strict=False)))
            return replace(source, input=_relation(source.input, inner))
        case PerUnitWindows():
            # What is asked of the result says nothing of the rows that windows look at.
            return replace(source, input=_relation(source.input, ()))
        case SetOperation():
            sides = (_source(side, _by_position(source, side, said)) for side in (source.left, source.right))
            left, right = sides
            return replace(source, left=left, right=right)
        case _:
            return source


def _through(said: Conditions, items: Mapping[Column, Expr]) -> Conditions:
    """The conditions on the columns of a derived table, as conditions on its input."""
    return tuple(
        substituted(condition, items)
        for condition in said
        if all(column in items for column in columns(condition))
    )


def _by_position(whole: SetOperation, side: Source, said: Conditions) -> Conditions:
    if isinstance(side, Scan):
        raise TypeError("a side has the columns of the whole")
    pairs = zip(whole.columns, side.columns, strict=True)
    return _through(said, {ours: theirs for ours, theirs in pairs if ours.type is theirs.type})


def _split(predicate: Expr) -> Iterator[Expr]:
    """The conditions that all hold where a predicate is true."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for argument in predicate.arguments:
            yield from _split(argument)
    else:
        yield predicate


def _scan(scan: Scan, said: Conditions) -> Scan:
    """The scan with partition filters, if the emitted SQL can ensure that each unit is in one partition."""
    if scan.contribution is None or not (scan.unit.kind is UnitKind.ROW or scan.unit.known):
        return scan
    read = {
        column.name: column
        for condition in said
        for column in columns(condition)
        if column.source == scan.alias and fold(column.name) in scan.contribution.constant
    }
    sides = (_partition_filter(column, said) for _, column in sorted(read.items()))
    return replace(scan, partition_filters=tuple(side for side in sides if side is not None))


def _partition_filter(column: Column, said: Conditions) -> PartitionFilter | None:
    dimension = Dimension.of(column)
    places = None if dimension is None else possible_positions(said, dimension)
    if dimension is None or places is None or places == ((dimension.low, dimension.high),):
        return None
    return partition_filter(dimension, places)
