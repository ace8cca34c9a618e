"""The relational plan, validated when built.

`Scan`, `Join` and `Filter` stand below the release boundary, where rows belong to privacy units.
`Release` is the boundary. `Post` stands above it and sees released values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dpsql.plan.expr import Column, Expr, Released
from dpsql.plan.types import Type


class UnitKind(Enum):
    """Whom a row of a table belongs to."""

    PUBLIC = "public"
    ROW = "row"
    COLUMN = "column"


@dataclass(frozen=True, slots=True)
class Unit:
    """The privacy unit of a table: nobody, each row for itself, or the unit whose id `column` holds."""

    kind: UnitKind
    column: Column | None = None

    @property
    def private(self) -> bool:
        """Whether anybody is to be protected."""
        return self.kind is not UnitKind.PUBLIC


@dataclass(frozen=True, slots=True)
class Contribution:
    """The owner's contribution bounds of a private table, enforced by the engine, never trusted.

    `rows` is the most rows of a unit that count, `groups` the most groups (None: as many as rows),
    `constant` the columns that hold one value for a unit, `min_frequency` the fewest distinct units
    behind a released group.
    """

    rows: int
    groups: int | None = None
    constant: frozenset[str] = frozenset()
    min_frequency: int = 1


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads the table `table`, known in the query as `alias`."""

    table: str
    alias: str
    unit: Unit
    contribution: Contribution | None = None

    def __post_init__(self) -> None:
        if self.unit.private != (self.contribution is not None):
            raise ValueError("a scan has contribution bounds if and only if it is private")


class JoinKind(Enum):
    """The joins that keep every row with its unit."""

    INNER = "INNER"
    LEFT = "LEFT"


@dataclass(frozen=True, slots=True)
class Join:
    """Joins public rows to `left` where every pair of `on` is equal."""

    left: Relation
    right: Scan
    kind: JoinKind
    on: tuple[tuple[Expr, Column], ...]

    def __post_init__(self) -> None:
        if self.right.unit.private or not self.on:
            raise ValueError("the right side of a join is public and joined on equality")
        if any(column.source != self.right.alias for _, column in self.on):
            raise ValueError("the second of each pair is a column of the right side")


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which `predicate` is true."""

    input: Relation
    predicate: Expr

    def __post_init__(self) -> None:
        if self.predicate.type not in (Type.BOOLEAN, Type.NULL):
            raise ValueError("a predicate is boolean")


Relation = Scan | Join | Filter
"""A relation whose rows each belong to one privacy unit, or to nobody."""


@dataclass(frozen=True, slots=True)
class Key:
    """A group key, released as the column `name`."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate of the registry, by its name there, released as the column `name`."""

    name: str
    function: str
    argument: Expr | None
    type: Type


@dataclass(frozen=True, slots=True)
class Release:
    """The release boundary: groups `input` by `keys` and aggregates across privacy units.

    `max_groups` is the query's own, smaller contribution bound.
    """

    input: Relation
    keys: tuple[Key, ...]
    aggregations: tuple[Aggregation, ...]
    max_groups: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Order:
    """One ORDER BY item over released columns."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Post:
    """What the query does with the release: free of charge, for it reads released values alone."""

    release: Release
    outputs: tuple[Output, ...]
    having: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0


def scans(relation: Relation) -> tuple[Scan, ...]:
    """The scans of a relation, in the order in which the query names them."""
    match relation:
        case Scan():
            return (relation,)
        case Filter():
            return scans(relation.input)
        case Join():
            return (*scans(relation.left), relation.right)


def private_scan(relation: Relation) -> Scan:
    """The one private table of a relation."""
    (scan,) = (scan for scan in scans(relation) if scan.unit.private)
    return scan


def released_columns(release: Release) -> tuple[Released, ...]:
    """The columns of the released table: keys, then aggregates."""
    keys = (Released(key.name, key.expr.type) for key in release.keys)
    return (*keys, *(Released(item.name, item.type) for item in release.aggregations))
