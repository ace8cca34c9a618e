"""Emits the outer query, which is above the release boundary and reads released and public values only.

It runs on a scratch engine that holds the released tables and copies of public tables, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.plan.dependencies import steps
from dpsql.plan.expr import Column, Expr, Released, Scalar, walk, windowed
from dpsql.plan.nodes import (
    Filter,
    Join,
    OuterQuery,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetOperation,
    Source,
    released_columns,
)
from dpsql.plan.provenance import branches, provenance
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.sql.emit.dialect import dialect
from dpsql.sql.emit.over_groups import leaves_out
from dpsql.sql.emit.relations import source_of
from dpsql.sql.emit.scalars import cast, column, identifier, ordered, write

ORDINAL, BRANCH, OCCUPIED = "#", "#branch", "#occupied"
DRAW, DRAWS = "#draw", "#draws"
"""The column with the number of a simulated table, and the table of these numbers."""


def null_sum(name: str) -> str:
    """The name of the column that says where a sum is over no unit."""
    return f"#null {name}"


@dataclass(frozen=True, slots=True)
class Copies:
    """Reads releases from the tables that `released` names, and public tables from copies.

    `columns` collects, for each table that is read, which columns its copy must have, and `ends`, for each
    release, which ends of intervals must stand beside its aggregates. Of the `doubtful` releases some groups may be
    empty: where these are left out, as `omits` says, `occupied` collects the release, whose table must say which groups
    are kept. Within aggregates that leave them out, `over_groups`, all others do so too. The `sums` of a release are those
    that are NULL where no unit is counted; `null_sums` collects the releases whose tables must say where. `simulated` tables
    are many in one, of which a query reads that of a draw: see `emit_simulations`.
    """

    released: Mapping[Release, str]
    doubtful: frozenset[Release] = frozenset()
    sums: Mapping[Release, Sequence[str]] = field(default_factory=dict)
    omits: bool = True
    over_groups: bool = False
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    ends: dict[Release, dict[Released, None]] = field(default_factory=dict)
    occupied: dict[Release, None] = field(default_factory=dict)
    null_sums: dict[Release, Sequence[str]] = field(default_factory=dict)
    simulated: bool = False

    def release(self, release: Release, read: Sequence[Expr]) -> str:
        """The released table, of which these expressions are read; of simulated ones that of a draw."""
        parts = (part for expr in read for part in walk(expr))
        found = (part for part in parts if isinstance(part, Released) and part.end_of is not None)
        self.ends.setdefault(release, {}).update(dict.fromkeys(found))
        table = identifier(self.released[release])
        if not self.simulated:
            return table
        draw = identifier(DRAW)
        return f"(SELECT * FROM {table} WHERE {draw} = {identifier(DRAWS)}.{draw}) AS {table}"

    def row_by_row(self, release: Release, read: Sequence[Expr]) -> str:
        """As `release`, for rows that are shown one by one: sums over no unit are NULL."""
        table = self.release(release, read)
        names = {part.name for expr in read for part in walk(expr) if isinstance(part, Released)}
        sums = [name for name in self.sums.get(release, ()) if name in names]
        if not sums or any(map(windowed, read)):
            return table
        self.null_sums[release] = self.sums[release]
        nulls = (
            f"CASE WHEN NOT {identifier(null_sum(name))} THEN {identifier(name)} END AS {identifier(name)}"
            for name in sums
        )
        return f"(SELECT * REPLACE ({', '.join(nulls)}) FROM {table}) AS {table}"

    def group_conditions(self, release: Release) -> list[str]:
        """The condition on the groups that are read."""
        if not self.omits or release not in self.doubtful:
            return []
        self.occupied[release] = None
        return [identifier(OCCUPIED)]

    def grouping(self, source: PerUnitGroupBy) -> Copies:
        """As the groups of `source` read releases, with all that they are made of."""
        if self.over_groups:
            return self
        omits = leaves_out(source)
        return replace(self, omits=omits, over_groups=omits)

    def of_step(self, step: Scalar | PublicSubquery) -> Copies:
        """As a subquery reads releases: a histogram with all groups, among which each has its place."""
        whole = isinstance(step, Scalar) and step.type is Type.LIST
        return replace(self, omits=False) if whole else self

    def answer(self, answer: PublicSubquery) -> str:
        """The query, with its outputs under the names of the answer's columns."""
        return emit_outer_query(answer.outer, self, [column.name for column in answer.columns])

    def table(self, scan: Scan, read: Sequence[Column]) -> str:
        """The query of a copy's columns."""
        self.columns.setdefault(scan.table, {}).update({column.name: column for column in read})
        items = ", ".join(identifier(column.name) for column in read)
        return f"SELECT {items or '1'} FROM {identifier(scan.table)}"


@dataclass(frozen=True, slots=True)
class Originals:
    """Reads public tables as they are: for queries on nothing private, which the database itself answers."""

    def release(self, release: Release, read: Sequence[Expr]) -> str:
        """Never called: nothing is released."""
        raise LookupError(release, read)

    row_by_row = release

    def group_conditions(self, release: Release) -> list[str]:
        """Never called: nothing is released."""
        raise LookupError(release)

    def grouping(self, _: PerUnitGroupBy) -> Originals:
        """The same."""
        return self

    def of_step(self, _: Scalar | PublicSubquery) -> Originals:
        """The same."""
        return self

    def answer(self, answer: PublicSubquery) -> str:
        """The query, with its outputs under the names of the answer's columns."""
        return emit_outer_query(answer.outer, self, [column.name for column in answer.columns])

    def table(self, scan: Scan, read: Sequence[Column]) -> str:
        """The query of a table's cleaned columns."""
        return emit_copy(scan.table, read)


def unchanged(outer: OuterQuery) -> tuple[int, ...] | None:
    """The places of the released columns that are the outputs, None where more is done with a release.

    Such rows need no engine, where nothing has to be answered before the release.
    """
    if not isinstance(outer.source, Release) or outer != OuterQuery(outer.source, outer.outputs):
        return None
    if steps(outer) != (outer.source,):
        return None
    places = {column.name: place for place, column in enumerate(released_columns(outer.source))}
    found = [
        places.get(item.expr.name) if isinstance(item.expr, Released) else None for item in outer.outputs
    ]
    return None if None in found else tuple(place for place in found if place is not None)


def emit_copy(table: str, columns: Sequence[Column]) -> str:
    """The query of a public table's columns, cleaned, in this order."""
    items = ", ".join(f"{dialect().clean(column)} AS {identifier(column.name)}" for column in columns)
    return f"SELECT {items or '1'} FROM {dialect().table_name(table)}"


def emit_outer_query(
    outer: OuterQuery, above: Copies | Originals, names: Sequence[str] = (), *, traced: bool = False
) -> str:
    """The query of a plan's outputs, as `names` or else as o0, o1 and so on.

    Where each row comes from one released row, `traced` adds the ordinal of that row and its branch.
    """
    named = names or [f"o{index}" for index in range(len(outer.outputs))]
    items = [
        f"{write(output.expr)} AS {identifier(name)}"
        for output, name in zip(outer.outputs, named, strict=True)
    ]
    traced = traced and provenance(outer) is not None
    source, conditions = _source(outer, above, traced=traced)
    conditions += [write(outer.having)] if outer.having is not None else []
    order = list(map(ordered, outer.order))
    released = isinstance(outer.source, Release)
    if traced:
        items += [identifier(ORDINAL), f"{0 if released else identifier(BRANCH)} AS {identifier(BRANCH)}"]
    if (released or (traced and _joins(outer.source))) and not outer.distinct:
        order.append(identifier(ORDINAL))
    lines = [f"SELECT {'DISTINCT ' * outer.distinct}{', '.join(items)}", f"FROM {source}"]
    if conditions:
        lines.append(f"WHERE {' AND '.join(conditions)}")
    if outer.qualify is not None:
        lines.append(f"QUALIFY {write(outer.qualify)}")
    if order and (traced or outer.order or outer.limit is not None or outer.offset):
        lines.append(f"ORDER BY {', '.join(order)}")
    if outer.limit is not None:
        lines.append(f"LIMIT {outer.limit}")
    if outer.offset:
        lines.append(f"OFFSET {outer.offset}")
    return "\n".join(lines)


def emit_simulations(outer: OuterQuery, above: Copies, noisy: Sequence[int]) -> str:
    """The query for each draw of simulated tables: the number of the draw, and the outputs, as DOUBLE where `noisy`.

    Where each row comes from one released row, its ordinal and branch follow.
    """
    items = [
        f"TRY_CAST(o{place} AS DOUBLE) AS o{place}" if place in noisy else f"o{place}"
        for place in range(len(outer.outputs))
    ]
    if provenance(outer) is not None:
        items += [identifier(ORDINAL), identifier(BRANCH)]
    draws, draw = identifier(DRAWS), identifier(DRAW)
    query = emit_outer_query(outer, above, traced=True)
    return f"SELECT {draws}.{draw}, {', '.join(items)} FROM {draws}, LATERAL (\n{query}\n) AS {identifier('#rows')}"


def _source(outer: OuterQuery, above: Copies | Originals, *, traced: bool) -> tuple[str, list[str]]:
    read: list[Expr] = [output.expr for output in outer.outputs]
    read += [item.expr for item in outer.order]
    read += [part for part in (outer.having, outer.qualify) if part is not None]
    if isinstance(outer.source, Release):
        reading = above.row_by_row if traced else above.release
        return reading(outer.source, read), above.group_conditions(outer.source)
    if traced:
        return _traced(outer.source, above)
    return source_of(outer.source, read, above)


def _traced(relation: Relation, above: Copies | Originals) -> tuple[str, list[str]]:
    """The FROM text and the conditions of a traced relation, with the origins of its rows."""
    match relation:
        case Filter():
            source, conditions = _traced(relation.input, above)
            return source, [*conditions, write(relation.predicate)]
        case PublicSubquery():
            names = [column.name for column in relation.columns]
            return (
                f"({emit_outer_query(relation.outer, above, names, traced=True)}) AS {identifier(relation.alias)}",
                [],
            )
        case Project():
            source, conditions = _traced(relation.input, above)
            items = map(write, relation.items)
            text = _with_origins(items, relation.columns, source, conditions, identifier(BRANCH))
            return f"({text}) AS {identifier(relation.alias)}", []
        case SetOperation(left=left, right=right):
            sides = (_side(relation, left, 0, above), _side(relation, right, branches(left), above))
            return f"({' UNION ALL '.join(sides)}) AS {identifier(relation.alias)}", []
        case Join(left=left, right=PerUnitGroupBy() as right):
            source, conditions = _traced(left, above)
            on = [f"{write(ours)} = {column(theirs)}" for ours, theirs in relation.on]
            beside, _ = source_of(right, right.columns, above)
            return f"{source}\n    LEFT JOIN {beside} ON {' AND '.join(on)}", conditions
        case _:
            raise TypeError("only what keeps rows as they are is traced")


def _joins(source: Release | Relation) -> bool:
    """Whether a source is a join, which keeps no order."""
    return isinstance(source, Join) or (isinstance(source, Filter) and _joins(source.input))


def _side(operation: SetOperation, side: Source, first: int, above: Copies | Originals) -> str:
    """One side of a UNION ALL, whose branches are numbered from `first` on."""
    if isinstance(side, Scan):
        raise TypeError("a side has the columns of the whole")
    source, conditions = _traced(side, above)
    items = (
        column(theirs) if ours.type is theirs.type else cast(column(theirs), ours.type)
        for ours, theirs in zip(operation.columns, side.columns, strict=True)
    )
    return _with_origins(items, operation.columns, source, conditions, f"{identifier(BRANCH)} + {first}")


def _with_origins(
    items: Iterable[str], named: Iterable[Column], source: str, conditions: Sequence[str], branch: str
) -> str:
    """The query of items, by the names of columns, beside the origins of their rows."""
    listed = [f"{item} AS {identifier(name.name)}" for item, name in zip(items, named, strict=True)]
    listed += [identifier(ORDINAL), f"{branch} AS {identifier(BRANCH)}"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(listed)} FROM {source}{where}"
