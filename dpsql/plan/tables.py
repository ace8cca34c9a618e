"""The tables that a query reads, and whom their rows belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsql.plan.expr import Column
from dpsql.plan.tags import TaggedEnum
from dpsql.plan.types import Value


class UnitKind(TaggedEnum):
    """Whom a row of a table belongs to."""

    PUBLIC = "public", "PUBLIC"
    ROW = "row", "ROW"
    COLUMN = "column", "COLUMN"


@dataclass(frozen=True, slots=True)
class Link:
    """A row belongs to the unit of each row of `owner` whose `key` is equal to its `column`."""

    tag: ClassVar[str] = "Link"

    column: Column
    owner: Scan
    key: Column


@dataclass(frozen=True, slots=True)
class Unit:
    """The privacy unit of a table's rows: nobody, each row for itself, or one that has an id.

    The id is in `column`, or is found through `link`. Neither is given where the scan is joined to the
    owner of its link, whose unit the joined rows have.
    """

    tag: ClassVar[str] = "Unit"

    kind: UnitKind
    column: Column | None = None
    link: Link | None = None

    @property
    def private(self) -> bool:
        """Whether anybody is to be protected."""
        return self.kind is not UnitKind.PUBLIC

    @property
    def known(self) -> bool:
        """Whether the scan itself says whom its rows belong to."""
        return self.private and (self.kind is UnitKind.ROW or (self.column or self.link) is not None)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The owner's contribution bounds of a private table, enforced by the engine, never trusted.

    `rows` is the most rows of a unit that count, `groups` the most groups (None: as many as rows),
    `constant` the columns that hold one value for a unit, `min_frequency` the fewest distinct units
    behind a released group, `keys` the columns that other tables link to, so that no two rows share a
    value.
    """

    tag: ClassVar[str] = "Contribution"

    rows: int
    groups: int | None = None
    constant: frozenset[str] = frozenset()
    min_frequency: int = 1
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """A private table that says of its units, whose ids are in `unit`, where they lie."""

    tag: ClassVar[str] = "Roll"

    table: str
    unit: Column


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Of a scan, the rows whose `column` lies in one of the closed `ranges` of values, never NULL.

    `places` are the same ranges as numbers in the `dimension`, which is named by how the column is declared.
    Where `column` is one of a `roll`, another table than the scan's, rows of units that lie there by that table.
    """

    tag: ClassVar[str] = "Confined"

    column: Column
    ranges: tuple[tuple[Value, Value], ...]
    dimension: str
    positions: tuple[tuple[int | None, int | None], ...]
    source: PartitionSource | None = None

    @property
    def name(self) -> str:
        """The column in words, with its table where that is not the scan's."""
        return self.column.name if self.source is None else f"{self.source.table}.{self.column.name}"

    def __str__(self) -> str:
        texts = (f"{low}" if low == high else f"{low} to {high}" for low, high in self.ranges)
        return f"{self.name} {', '.join(texts)}"


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads the table `table`, known in the query as `alias`, where it is `confined`, of units that lie in one part."""

    tag: ClassVar[str] = "Scan"

    table: str
    alias: str
    unit: Unit
    contribution: Contribution | None = None
    partition_filters: tuple[PartitionFilter, ...] = ()

    def __post_init__(self) -> None:
        if self.unit.private != (self.contribution is not None):
            raise ValueError("a scan has contribution bounds if and only if it is private")
