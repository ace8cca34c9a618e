"""The relational operators of a plan, as frozen classes that validate themselves when they are built.

Relations are below the release boundary. A private row belongs to one privacy unit, and depends on rows of that unit and
on public rows only. `Release` is the boundary: it aggregates across units and adds noise. `OuterQuery` is above the
boundary and reads released values only, so it costs no privacy loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.plan.expressions import Column, Expr, Order, ReleasedColumn, WindowCall, has_window
from dpsql.plan.tables import Link, Scan, Unit, UnitKind
from dpsql.plan.types import TaggedEnum, Type, Value


@dataclass(frozen=True, slots=True)
class Project:
    """SELECT below the boundary: the `items` of each row of `input`, named `columns`; with `distinct`, once per unit.

    `once` is for the time of lowering alone: equal rows of several units are to be one, which a release counts, and no
    relation holds.
    """

    tag: ClassVar[str] = "Project"

    input: Relation
    alias: str
    items: tuple[Expr, ...]
    columns: tuple[Column, ...]
    distinct: bool = False
    once: bool = False

    def __post_init__(self) -> None:
        _check_columns(self.alias, self.columns, len(self.items))
        _check_names(self.columns)
        _check_no_windows(self.items)


@dataclass(frozen=True, slots=True)
class PerUnitAggregate:
    """An exact aggregate over the rows of one unit in one group, by its name in the registry.

    `order_by` is the sort expression of an aggregate that takes the argument of one row, as ARG_MAX does; `rank` the share
    of the values below a quantile.
    """

    tag: ClassVar[str] = "Within"

    function: str
    argument: Expr | None
    order_by: Expr | None = None
    rank: Fraction | None = None

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Return the expressions that it reads."""
        return tuple(expr for expr in (self.argument, self.order_by) if expr is not None)


@dataclass(frozen=True, slots=True)
class PerUnitGroupBy:
    """GROUP BY below the boundary: one row per unit and group, with `keys` and `aggregates` named `columns`."""

    tag: ClassVar[str] = "Grouped"

    input: Relation
    alias: str
    keys: tuple[Expr, ...]
    aggregates: tuple[PerUnitAggregate, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_columns(self.alias, self.columns, len(self.keys) + len(self.aggregates))
        _check_names(self.columns)
        _check_no_windows((*self.keys, *(expr for item in self.aggregates for expr in item.arguments)))


@dataclass(frozen=True, slots=True)
class PerUnitWindows:
    """Window functions below the boundary: the `items` of each row of `input`, and `windows` over them.

    A window holds rows of one unit only, whatever else its partition is; the emitted SQL partitions by the unit. Its
    expressions read the items, by their names in `columns`.
    """

    tag: ClassVar[str] = "Windows"

    input: Relation
    alias: str
    items: tuple[Expr, ...]
    windows: tuple[WindowCall, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_columns(self.alias, self.columns, len(self.items) + len(self.windows))
        _check_names(self.columns)
        read = [part for window in self.windows for part in (*window.arguments, *window.partition)]
        _check_no_windows(
            (*self.items, *read, *(item.expr for window in self.windows for item in window.order))
        )
        if not is_private(self.input) or any(
            scan.unit.kind is UnitKind.ROW for scan in list_scans(self.input)
        ):
            raise ValueError("windows within a unit need rows of units with an identifier")


class SetKind(TaggedEnum):
    """The set operations. Columns match by position; a private row matches rows of its own unit only."""

    UNION_ALL = "UNION ALL", "UNION_ALL"
    UNION = "UNION", "UNION"
    INTERSECT = "INTERSECT", "INTERSECT"
    EXCEPT = "EXCEPT", "EXCEPT"


@dataclass(frozen=True, slots=True)
class SetOperation:
    """A set operation of `left` and `right`, whose columns match by position; `once` as of `Project`."""

    tag: ClassVar[str] = "SetOperation"

    left: Source
    right: Source
    alias: str
    kind: SetKind
    columns: tuple[Column, ...]
    once: bool = False

    def __post_init__(self) -> None:
        if is_private(self.left) != is_private(self.right):
            raise ValueError("either both sides of a set operation have privacy units, or neither has")
        scanned = list_private_scans(self)
        kinds = {scan.unit.kind for scan in scanned}
        once = len({scan.table for scan in scanned}) == len(scanned)
        if UnitKind.ROW in kinds and not (len(kinds) == 1 and once):
            raise ValueError("where each row is a unit, both sides must be such rows, each read only once")
        for side in (self.left, self.right):
            if isinstance(side, Scan) or len(side.columns) != len(self.columns):
                raise ValueError("both sides of a set operation must have the columns of the whole")
        _check_columns(self.alias, self.columns, len(self.columns))
        _check_names(self.columns)


@dataclass(frozen=True, slots=True)
class PublicSubquery:
    """A subquery over released or public values, whose rows are public; its columns are named `columns`."""

    tag: ClassVar[str] = "Answer"

    outer: OuterQuery
    alias: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_columns(self.alias, self.columns, len(self.outer.outputs))


@dataclass(frozen=True, slots=True)
class Values:
    """Public constant rows: a VALUES list of the query, or the answer of an earlier step."""

    tag: ClassVar[str] = "Values"

    rows: tuple[tuple[Value, ...], ...]
    alias: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_columns(self.alias, self.columns, len(self.columns))


Source = Scan | Project | PerUnitGroupBy | PerUnitWindows | SetOperation | PublicSubquery | Values
"""A relation with a name of its own in the query."""


def _check_columns(alias: str, columns: tuple[Column, ...], wanted: int) -> None:
    names = {column.name for column in columns}
    if len(columns) != wanted or len(names) != wanted or any(column.source != alias for column in columns):
        raise ValueError("a derived table must have one column of its own for each item")


def _check_no_windows(exprs: Iterable[Expr]) -> None:
    """Raise ValueError for a window function: below the boundary an expression reads one row."""
    if any(map(has_window, exprs)):
        raise ValueError("window functions are only allowed in the outputs of released or public rows")


def _check_names(columns: tuple[Column, ...]) -> None:
    if any(column.name.startswith("#") for column in columns):
        raise ValueError("names that begin with # are reserved for emitted SQL")


class JoinKind(TaggedEnum):
    """The kinds of join. Each keeps the unit of the row on the left."""

    INNER = "INNER", "INNER"
    LEFT = "LEFT", "LEFT"


@dataclass(frozen=True, slots=True)
class Join:
    """A join of `left` and `right` on equal pairs `on` and a further condition `condition`.

    If both sides are private, only rows of the same unit are joined. The emitted SQL enforces this, unless `proven` says
    that a pair of `on` identifies the unit.
    """

    tag: ClassVar[str] = "Join"

    left: Relation
    right: Source
    kind: JoinKind
    on: tuple[tuple[Expr, Column], ...]
    condition: Expr | None = None
    proven: bool = False

    def __post_init__(self) -> None:
        if any(column.source != self.right.alias for _, column in self.on):
            raise ValueError("the second of each pair must be a column of the right side")
        if is_private(self.right) and not (is_private(self.left) and self.on):
            raise ValueError("private rows can only be joined to private rows on the identity of their unit")
        _check_no_windows(
            (*(ours for ours, _ in self.on), *(() if self.condition is None else (self.condition,)))
        )
        if self.condition is not None and self.condition.type not in (Type.BOOLEAN, Type.NULL):
            raise ValueError("a join condition must be boolean")


@dataclass(frozen=True, slots=True)
class Filter:
    """WHERE: the rows of `input` for which `predicate` is true."""

    tag: ClassVar[str] = "Filter"

    input: Relation
    predicate: Expr

    def __post_init__(self) -> None:
        if self.predicate.type not in (Type.BOOLEAN, Type.NULL):
            raise ValueError("a predicate must be boolean")
        _check_no_windows([self.predicate])


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """EXISTS and IN: the rows of `input` for which some row of `right` makes `on` true.

    If `right` is private, only its rows of the same unit count. With `anti`, the other rows: NOT EXISTS and NOT IN.
    """

    tag: ClassVar[str] = "Matching"

    input: Relation
    right: Source
    on: Expr
    anti: bool = False

    def __post_init__(self) -> None:
        if is_private(self.right) and not is_private(self.input):
            raise ValueError("only private rows can be matched with private rows")
        _check_no_windows([self.on])


Relation = Source | Join | Filter | SemiJoin
"""A relation below the boundary: each row belongs to one privacy unit, or is public."""


@dataclass(frozen=True, slots=True)
class Key:
    """A group key, released as the column `name`."""

    tag: ClassVar[str] = "Key"

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate across units, by its name in the registry, released as the column `name`.

    `rank` is the level of a quantile, from 0 to 1. `interval_end` is -1 or 1 for the lower or upper end of the quantile's
    confidence interval, and 0 for the quantile itself.
    """

    tag: ClassVar[str] = "Aggregation"

    name: str
    function: str
    argument: Expr | None
    type: Type
    rank: Fraction | None = None
    interval_end: int = 0


@dataclass(frozen=True, slots=True)
class TopK:
    """ORDER BY an aggregate LIMIT k: the keys of the `count` groups with the greatest, or least, aggregate, in that order.

    The aggregate itself is not released.
    """

    tag: ClassVar[str] = "Top"

    count: int
    descending: bool


@dataclass(frozen=True, slots=True)
class Release:
    """The release boundary: groups `input` by `keys` and aggregates across privacy units, with noise.

    `max_groups` is the query's own bound on the groups of a unit. With `top`, only the keys of the top k groups are
    released. With `all_public_rows`, a public row has a group even if no private row can be joined to it.
    """

    tag: ClassVar[str] = "Release"

    input: Relation
    keys: tuple[Key, ...]
    aggregations: tuple[Aggregation, ...]
    max_groups: int | None = None
    top: TopK | None = None
    all_public_rows: bool = False

    def __hash__(self) -> int:
        # The hash leaves out the input: a release is a key of many dictionaries, and a statement has few.
        return hash((self.keys, self.aggregations))

    def __post_init__(self) -> None:
        _check_no_windows(key.expr for key in self.keys)
        _check_no_windows(item.argument for item in self.aggregations if item.argument is not None)


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result."""

    tag: ClassVar[str] = "Output"

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class OuterQuery:
    """The query above the boundary: SELECT, HAVING, QUALIFY, ORDER BY and LIMIT over released or public rows. It is free.

    Over a `Release` its expressions read `ReleasedColumn` columns; over a public relation, the columns of its sources.
    `qualify` filters by window functions over the rows that `having` keeps.
    """

    tag: ClassVar[str] = "Post"

    source: Release | Relation
    outputs: tuple[Output, ...]
    having: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    distinct: bool = False
    qualify: Expr | None = None

    def __post_init__(self) -> None:
        _check_no_windows([] if self.having is None else [self.having])
        if not isinstance(self.source, Release) and is_private(self.source):
            raise ValueError("only private rows can be released")

    @property
    def release(self) -> Release:
        """Return the release that the query reads; TypeError if it reads a relation."""
        if not isinstance(self.source, Release):
            raise TypeError("the query must read exactly one release")
        return self.source


def list_inputs(relation: Relation) -> tuple[Relation, ...]:
    """List the direct inputs of a relation, in the order of the query."""
    match relation:
        case Scan() | PublicSubquery() | Values():
            return ()
        case Filter() | Project() | PerUnitGroupBy() | PerUnitWindows():
            return (relation.input,)
        case SemiJoin():
            return (relation.input, relation.right)
        case Join() | SetOperation():
            return (relation.left, relation.right)


def list_scans(relation: Relation) -> tuple[Scan, ...]:
    """List the scans of a relation, including those in derived tables, in the order of the query."""
    if isinstance(relation, Scan):
        return (relation,)
    return tuple(scan for part in list_inputs(relation) for scan in list_scans(part))


def has_public_subquery(relation: Relation) -> bool:
    """Return whether some rows come from a subquery that is answered before the relation is read."""
    return isinstance(relation, PublicSubquery) or any(map(has_public_subquery, list_inputs(relation)))


def iterate_public_groups(relation: Relation) -> Iterator[PerUnitGroupBy]:
    """Yield the groups of public rows that a relation reads, without those that they read themselves."""
    if isinstance(relation, PerUnitGroupBy) and not is_private(relation):
        yield relation
    else:
        for part in list_inputs(relation):
            yield from iterate_public_groups(part)


def is_private(relation: Relation) -> bool:
    """Return whether the rows belong to privacy units."""
    if isinstance(relation, Scan):
        return relation.unit.private
    return any(map(is_private, list_inputs(relation)))


def find_place(column: Column, columns: Sequence[Column]) -> int:
    """Return the place of a column among those of its source, by its name: what is known of it may differ, as in a condition."""
    return [known.name for known in columns].index(column.name)


def iterate_sources(relation: Relation) -> Iterator[Source]:
    """Yield the sources whose columns are visible in the rows of a relation."""
    match relation:
        case Filter() | SemiJoin():
            yield from iterate_sources(relation.input)
        case Join():
            yield from iterate_sources(relation.left)
            yield relation.right
        case _:
            yield relation


def get_unit_source(relation: Relation) -> Source:
    """Return the source whose privacy unit the rows of a private relation have."""
    for source in iterate_sources(relation):
        if is_private(source) and not (isinstance(source, Scan) and not source.unit.is_known):
            return source
    raise ValueError("no source holds the privacy unit of the rows")


def list_optional_aliases(relation: Relation) -> frozenset[str]:
    """List the aliases of the sources on the nullable side of a LEFT JOIN."""
    match relation:
        case Filter() | SemiJoin():
            return list_optional_aliases(relation.input)
        case Join(left=left, right=right, kind=JoinKind.LEFT):
            return list_optional_aliases(left) | {right.alias}
        case Join(left=left):
            return list_optional_aliases(left)
        case _:
            return frozenset()


def get_unit_type(relation: Relation) -> Type:
    """Return the type of the unit identifiers of a private relation."""
    match get_unit_source(relation):
        case Scan(unit=Unit(link=Link(owner=owner))):
            return get_unit_type(owner)
        case Scan(unit=Unit(column=Column() as column)):
            return column.type
        case (
            Project(input=inner)
            | PerUnitGroupBy(input=inner)
            | PerUnitWindows(input=inner)
            | SetOperation(left=inner)
        ):
            return get_unit_type(inner)
        case _:
            return Type.INTEGER


def list_private_scans(relation: Relation) -> tuple[Scan, ...]:
    """List the scans of private tables."""
    return tuple(scan for scan in list_scans(relation) if scan.unit.private)


def list_private_tables(relation: Relation) -> tuple[str, ...]:
    """List the private tables that a relation depends on, including the owners of links."""
    tables: dict[str, None] = {}
    for scan in list_private_scans(relation):
        reader: Scan | None = scan
        while reader is not None:
            tables[reader.table] = None
            reader = None if reader.unit.link is None else reader.unit.link.owner
    return tuple(tables)


def reads_a_table_twice(relation: Relation) -> bool:
    """Return whether a relation reads some table more than once, the owners of links included."""
    read: list[str] = []
    for scan in list_scans(relation):
        reader: Scan | None = scan
        while reader is not None:
            read.append(reader.table)
            reader = None if reader.unit.link is None else reader.unit.link.owner
    return len(read) > len(set(read))


def list_released_columns(release: Release) -> tuple[ReleasedColumn, ...]:
    """List the columns of the released table: keys, then aggregates."""
    keys = tuple(ReleasedColumn(key.name, key.expr.type) for key in release.keys)
    if release.top is not None:
        return keys
    return (*keys, *(ReleasedColumn(item.name, item.type) for item in release.aggregations))
