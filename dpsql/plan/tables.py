"""Scans of tables: the privacy unit of their rows, contribution bounds, and partition filters."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.plan.expressions import Column
from dpsql.plan.types import TaggedEnum, Value


class UnitKind(TaggedEnum):
    """The kinds of rows of a table: public, privacy units themselves, or rows of a unit with an identifier."""

    PUBLIC = "public", "PUBLIC"
    ROW = "row", "ROW"
    COLUMN = "column", "COLUMN"


@dataclass(frozen=True, slots=True)
class Link:
    """A foreign key: a row belongs to the unit of the row of `owner` whose `key` equals its `column`.

    If the key has several columns, `rest` are the further pairs of a column and what it equals there.
    """

    tag: ClassVar[str] = "Link"

    column: Column
    owner: Scan
    key: Column
    rest: tuple[tuple[Column, Column], ...] = ()

    @property
    def pairs(self) -> tuple[tuple[Column, Column], ...]:
        """Return each column with the key's column that it equals."""
        return ((self.column, self.key), *self.rest)


@dataclass(frozen=True, slots=True)
class Unit:
    """The privacy unit of a table's rows.

    The unit's identifier is in `column`, or is found through `link`. A scan that is joined to the owner of its link has
    neither: the joined rows have the owner's unit.
    """

    tag: ClassVar[str] = "Unit"

    kind: UnitKind
    column: Column | None = None
    link: Link | None = None

    @property
    def private(self) -> bool:
        """Return whether the rows are protected."""
        return self.kind is not UnitKind.PUBLIC

    @property
    def is_known(self) -> bool:
        """Return whether the scan itself gives the unit of its rows."""
        return self.private and (self.kind is UnitKind.ROW or (self.column or self.link) is not None)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The declared contribution bounds of a private table. The emitted SQL enforces them.

    `rows` bounds the rows of a unit, `groups` its groups (None: as many as rows). `constant` are the columns with one
    value per unit. `min_frequency` is the least number of units of a released group. `keys` are the unique columns that
    other tables link to. `unique` are the keys that further declared links refer to, of one or several columns each.
    """

    tag: ClassVar[str] = "Contribution"

    rows: int
    groups: int | None = None
    constant: frozenset[str] = frozenset()
    min_frequency: int = 1
    keys: frozenset[str] = frozenset()
    unique: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """A private table whose columns give the partition of each unit; `unit` holds the unit's identifier."""

    tag: ClassVar[str] = "Roll"

    table: str
    unit: Column


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """A filter on a scan: the partition column `column` is in one of the closed `ranges`, and not NULL.

    `positions` are the same ranges as positions in the partition `dimension`. With a `source`, `column` is a column of
    that table, and the filter keeps the rows of units whose rows there are in the ranges.
    """

    tag: ClassVar[str] = "Confined"

    column: Column
    ranges: tuple[tuple[Value, Value], ...]
    dimension: str
    positions: tuple[tuple[int | None, int | None], ...]
    source: PartitionSource | None = None

    @property
    def name(self) -> str:
        """Return the column for people; qualified if it is a column of another table."""
        return self.column.name if self.source is None else f"{self.source.table}.{self.column.name}"

    def __str__(self) -> str:
        texts = (str(low) if low == high else f"{low!s} to {high!s}" for low, high in self.ranges)
        return f"{self.name} {', '.join(texts)}"


@dataclass(frozen=True, slots=True)
class UnnestedList:
    """A list column whose rows are repeated for each of the first `max_elements` elements.

    `stored` is the path to the list in the table; `column` is the column that holds the element. A row without elements is
    read once, with NULL for the element, where the join with the list is `outer`.
    """

    tag: ClassVar[str] = "Elements"

    stored: tuple[str, ...]
    column: Column
    max_elements: int
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads `table` under the name `alias`; with `partition_filters`, only the units in these partitions.

    With `unnested` lists, a row is read once for each combination of their elements. The contribution bounds are then those
    of these rows. With a `sample`, only the rows of units in a Poisson sample are read, in which each unit is with this
    probability; see `dpsql.plan.steps`.
    """

    tag: ClassVar[str] = "Scan"

    table: str
    alias: str
    unit: Unit
    contribution: Contribution | None = None
    partition_filters: tuple[PartitionFilter, ...] = ()
    unnested: tuple[UnnestedList, ...] = ()
    sample: Fraction | None = None

    def __post_init__(self) -> None:
        if self.unit.private != (self.contribution is not None):
            raise ValueError("a scan must have contribution bounds if it is private, and none otherwise")
        if self.unnested and self.unit.kind is not UnitKind.COLUMN:
            raise ValueError("only rows with a unit's identifier can be repeated")
        if self.sample is not None and not (self.unit.kind is UnitKind.COLUMN and 0 < self.sample < 1):
            raise ValueError(
                "only units with an identifier can be sampled, with a probability between 0 and 1"
            )
