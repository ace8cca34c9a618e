"""Where units lie by one table confines the scans of others that are joined to it.

Claim: a scan that is filtered here loses no row that counts.
Why: below the boundary the rows of a unit depend on rows of that unit alone (`sql.rows`): private tables are joined,
matched and put together within a unit. A filtered scan has rows of no unit that lies elsewhere, so neither has what
needs a row of that scan for each of its own: an inner join, INTERSECT, what has a match by EXISTS or IN, and of a LEFT
JOIN, NOT EXISTS and EXCEPT what needs one of their left side's. Hence no row counts that is made of such a unit, and
whatever is read of it besides, more or less, makes no other. For the left side of a LEFT JOIN, NOT EXISTS and EXCEPT
nothing follows from the right; of both sides of a union, no more than both say.

Which rows are read rests on none of that: a scan sees for itself to where units lie (`sql.confined`). So on
neighbours that differ in a unit which is not in the box that is charged, the same rows are read, whatever is joined.
Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto

from dpsql.analysis.partitions.constraint import intersected, renamed, united
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    PerUnitGroupBy,
    Project,
    Relation,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    inputs,
    private_scans,
    unit_type,
)
from dpsql.plan.tables import PartitionFilter, PartitionSource, Scan, UnitKind

Filters = Mapping[str, PartitionFilter]
"""Where units lie by the rolls of tables, by dimension."""
SOURCE = "#roll"
"""What a roll's columns are columns of, whatever the query calls its table."""


class _Rows(Enum):
    """Of which side a unit with rows in a join, a matching or a set operation must have rows."""

    BOTH = auto()
    LEFT = auto()
    EITHER = auto()


def propagated(relation: Relation) -> Relation:
    """The relation with each scan filtered to where units lie that have rows in all that they need."""
    filtered = any(scan.partition_filters for scan in private_scans(relation))
    return _confined(relation, {}) if filtered else relation


def filters_on_source(table: str, scan: Scan) -> tuple[PartitionFilter, ...]:
    """Where units lie whose rows a scan reads, as the account of a table calls it whose source it looks at.

    The roll's other units decide nothing: whatever it says of them, the scan does not read them.
    """
    return tuple(_of_table(side, table, SOURCE) for side in _by_rolls(scan).values())


def _by_rolls(scan: Scan) -> Filters:
    """What confines a scan, as the account of any other table calls it."""
    unit = scan.unit.column
    own = None if unit is None else PartitionSource(scan.table, replace(unit, source=SOURCE))
    sides = (renamed(side, SOURCE, side.source or own) for side in scan.partition_filters)
    return {side.dimension: side for side in sides if side.source is not None}


def _of_table(side: PartitionFilter, table: str, source: str) -> PartitionFilter:
    """What a source says, as the account of a table calls it, which may be the roll's own."""
    own = side.source is not None and side.source.table == table
    return renamed(side, source, None) if own else side


def _needed(relation: Join | SemiJoin | SetOperation) -> _Rows:
    match relation:
        case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
            return _Rows.BOTH
        case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
            return _Rows.EITHER
        case _:
            return _Rows.LEFT


def _located(relation: Relation) -> Filters:
    """Where units lie that have a row in a relation."""
    match relation:
        case Scan(unit=unit) if unit.kind is UnitKind.COLUMN:
            return _by_rolls(relation)
        case Filter() | Project() | PerUnitGroupBy():
            return _located(relation.input)
        case Join() | SemiJoin() | SetOperation():
            left, right = map(_located, inputs(relation))
            needed = _needed(relation)
            if needed is _Rows.EITHER:
                return {name: united(side, right[name]) for name, side in left.items() if name in right}
            return _met(left, right) if needed is _Rows.BOTH else left
        case _:
            return {}


def _confined(relation: Relation, located: Filters) -> Relation:
    """The relation, of which no units count but those that lie there."""
    match relation:
        case Filter():
            return replace(relation, input=_confined(relation.input, located))
        case SemiJoin():
            of_left, of_right = _beside(relation, located)
            left, right = _confined(relation.input, of_left), _source(relation.right, of_right)
            return replace(relation, input=left, right=right)
        case Join():
            of_left, of_right = _beside(relation, located)
            left, right = _confined(relation.left, of_left), _source(relation.right, of_right)
            return replace(relation, left=left, right=right)
        case _:
            return _source(relation, located)


def _source(source: Source, located: Filters) -> Source:
    match source:
        case Scan():
            return _scan(source, located)
        case Project() | PerUnitGroupBy():
            return replace(source, input=_confined(source.input, located))
        case SetOperation():
            of_left, of_right = _beside(source, located)
            return replace(source, left=_source(source.left, of_left), right=_source(source.right, of_right))
        case _:
            return source


def _beside(relation: Join | SemiJoin | SetOperation, located: Filters) -> tuple[Filters, Filters]:
    """Where units of each side lie of which rows count, given where those of the whole do."""
    left, right = map(_located, inputs(relation))
    needed = _needed(relation)
    return (
        _met(located, right) if needed is _Rows.BOTH else located,
        located if needed is _Rows.EITHER else _met(located, left),
    )


def _scan(scan: Scan, located: Filters) -> Scan:
    """The scan, filtered where it knows whom its rows belong to, and ids are those of the source."""
    if scan.unit.kind is not UnitKind.COLUMN or not scan.unit.known:
        return scan
    found: Filters = {side.dimension: side for side in scan.partition_filters}
    for side in located.values():
        if side.source is None or side.source.unit.type is not unit_type(scan):
            continue  # ids would have to be converted, which might fail
        # What a table says of its own units confines each of its scans as its own conditions do.
        here = _of_table(side, scan.table, scan.alias)
        found = _met(found, {here.dimension: here})
    inherited_last = sorted(found.values(), key=lambda side: (side.source is not None, side.dimension))
    return replace(scan, partition_filters=tuple(inherited_last))


def _met(some: Filters, others: Filters) -> Filters:
    """What is said by both together."""
    shared = {name: intersected(side, others[name]) for name, side in some.items() if name in others}
    return {**some, **others, **shared}
