"""Emits relations: sources with their columns and unit identifiers, joins, and conditions.

Claim: every row belongs to the unit in its column `#unit`, and depends on rows of that unit and on public rows only.
Why: tables give a row its unit; joins, semi-joins and set operations of private sources are on equal units, and groups
and distinct rows are per unit.
Source: McSherry 2009, "Privacy integrated queries", section 3.2; Wilson et al. 2020, "Differentially
private SQL with bounded user contribution", section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpsql.analysis import intervals
from dpsql.analysis.analyse import Analysis, Measurand
from dpsql.plan.expr import Column, Expr, columns
from dpsql.plan.nodes import (
    Filter,
    Join,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    Values,
    is_private,
    private_scans,
    unit_source,
)
from dpsql.plan.sampling import sampling_rate
from dpsql.plan.tables import Link, Scan, UnitKind
from dpsql.plan.types import Type, Value, common
from dpsql.sql.emit import group_keys
from dpsql.sql.emit.dialect import dialect
from dpsql.sql.emit.frames_of_groups import over_ranks
from dpsql.sql.emit.non_null_windows import without_nulls
from dpsql.sql.emit.partition_filters import partition_conditions
from dpsql.sql.emit.per_unit_aggregates import per_unit_aggregate, public_aggregate
from dpsql.sql.emit.ranked import by_places
from dpsql.sql.emit.sample import in_sample
from dpsql.sql.emit.scalars import cast, column, constant, identifier, number_or_null, write
from dpsql.sql.emit.scan_points import offered_point, scan_points
from dpsql.sql.emit.stored_conditions import Stored, conjuncts, stored_conditions
from dpsql.sql.emit.unit_windows import unit_window

_NONE = Stored()
_FEW = 100
"""Rows of constants up to which they are written one by one."""

UNIT, OWNER, KEY, VALUE = '"#unit"', '"#owner"', '"#key"', '"#value"'


def rows(
    analysis: Analysis,
    values: Measurand | None = None,
    ordered: Measurand | None = None,
    *,
    all_places: bool = False,
) -> str:
    """The query for the rows: the unit as `u`, each key under its name, the measures as `x0`, `x1` and so on.

    These are values, or lattice points where scans offer them: `unit_sums.total` adds up either.
    Where the `values` of a measure are counted, it alone, with one form for each value; where its values
    are put in order, it alone as `x`. With `all_places` there are rows too that `group_keys.groups_present` leaves out.
    """
    release, units = analysis.release, analysis.bound.per_unit
    items = [f"{group_keys.key_text(key, analysis)} AS {key.name}" for key in release.keys]
    offered = list(group_keys.domain_indices(release))
    if values is not None:
        read = [values.expr]
        items.append(f"{group_keys.grouped(values.expr)} AS {VALUE}")
    elif ordered is not None:
        read = [ordered.expr]
        items.append(f"{_aggregated(ordered)} AS x")
    else:
        summed = [(index, part) for index, part in enumerate(analysis.measures) if part.counts_rows]
        points = {index: offered_point(part, index) for index, part in summed}
        items += [f"{points[index] or _aggregated(part)} AS x{index}" for index, part in summed]
        read = [part.expr for index, part in summed if points[index] is None]
        offered += scan_points(analysis)
    present = [
        group_keys.key_present(key, analysis)
        for key in release.keys
        if not (all_places and group_keys.indexed_column(key, release.input) is not None)
    ]
    where = [text for text in present if text is not None]
    rate = sampling_rate(release.input)
    if units:
        name = unit_of(release.input)
        items.insert(0, f"{name} AS u")
        where.insert(0, f"{name} IS NOT NULL")
        if rate is not None:
            where.append(in_sample(name, rate))
    elif rate is not None:
        raise TypeError("units are sampled by their identifiers")
    read += [key.expr for key in release.keys if group_keys.indexed_column(key, release.input) is None]
    block = _Block.of(release.input, read, units=units, offered=offered)
    source, conditions = block.relation(release.input)
    return _select(items, source, [*conditions, *where])


def unit_of(relation: Relation) -> str:
    """The column that says whom a row belongs to."""
    return f"{identifier(unit_source(relation).alias)}.{UNIT}"


def source_of(relation: Relation, read: Iterable[Expr], above: Above | None = None) -> tuple[str, list[str]]:
    """The FROM text and the conditions of a relation, of whose columns `read` are needed."""
    return _Block.of(relation, read, units=False, above=above).relation(relation)


def emit_multiplicity(join: Join) -> str:
    """The query for the most rows of a join's public side that one row can be equal to.

    Keys are compared as the join compares them: cleaned, and in the common type of both sides, in
    which keys that differ as stored may be equal.
    """
    compared = []
    for ours, theirs in join.on:
        shared = common((ours.type, theirs.type)) or theirs.type
        text = f"CAST({column(theirs)} AS {shared.value})"
        compared.append(f"{text} + 0" if shared is Type.DOUBLE else text)  # -0.0 equals 0.0
    source, _ = source_of(join.right, [theirs for _, theirs in join.on])
    if not compared:
        return f"SELECT COUNT(*) FROM {source}"
    there = " AND ".join(f"{text} IS NOT NULL" for text in compared)
    return (
        f"SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM {source} "
        f"WHERE {there} GROUP BY {', '.join(compared)})"
    )


def _aggregated(measure: Measurand) -> str:
    return number_or_null(measure.expr)


def _select(items: Iterable[str], source: str, conditions: Iterable[str], distinct: str = "") -> str:
    text = f"SELECT {distinct}{', '.join(items) or '1'} FROM {source}"
    where = " AND ".join(conditions)
    return f"{text} WHERE {where}" if where else text


class Above(Protocol):
    """How sources are read above the release boundary."""

    def answer(self, answer: PublicSubquery) -> str:
        """The query of released or public values."""
        ...

    def table(self, scan: Scan, read: Sequence[Column]) -> str:
        """The query of a public table's columns."""
        ...

    def grouping(self, source: PerUnitGroupBy) -> Above:
        """How sources are read whose rows these groups are of."""
        ...


@dataclass(frozen=True, slots=True)
class _Block:
    """One SELECT: the columns that its expressions read, and what its scans offer besides, each item with their alias."""

    read: tuple[Column, ...]
    units: bool
    offered: Sequence[tuple[str, str]] = ()
    above: Above | None = None
    before: int = 0
    """How many private tables are read on sides of set operations before."""
    stored: Stored = _NONE
    """The conditions that are written in scans."""

    @classmethod
    def of(
        cls,
        relation: Relation,
        read: Iterable[Expr],
        *,
        units: bool,
        offered: Sequence[tuple[str, str]] = (),
        above: Above | None = None,
        before: int = 0,
    ) -> _Block:
        """The block over a relation whose SELECT list reads these expressions."""
        stored = stored_conditions(relation, units=units) if above is None else _NONE
        parts = (part for expr in (*read, *_conditions(relation, stored)) for part in columns(expr))
        return cls(tuple(dict.fromkeys(parts)), units, offered, above, before, stored)

    def relation(self, relation: Relation) -> tuple[str, list[str]]:
        """The FROM text and the conditions."""
        match relation:
            case Filter():
                source, conditions = self.relation(relation.input)
                return source, [*conditions, *map(write, _left(relation, self.stored))]
            case SemiJoin():
                source, conditions = self.relation(relation.input)
                return source, [*conditions, self._matching(relation)]
            case Join():
                left, conditions = self.relation(relation.left)
                right = self.source(relation.right)
                on = [f"{write(ours)} = {column(theirs)}" for ours, theirs in relation.on]
                on += [write(relation.also)] if relation.also is not None else []
                if self.units and is_private(relation.right) and not relation.proven:
                    on.append(f"{unit_of(relation.left)} = {unit_of(relation.right)}")
                # Not CROSS JOIN, so that a LEFT one keeps its rows.
                return (
                    f"{left}\n    {relation.kind.value} JOIN {right} ON {' AND '.join(on) or 'TRUE'}",
                    conditions,
                )
            case _:
                return self.source(relation), []

    def source(self, source: Source) -> str:
        """A source under its alias, with the columns that are read and the unit."""
        units = self.units and is_private(source)
        match source:
            case Scan():
                body = self._scan(source)
            case Project():
                distinct = "DISTINCT " if source.distinct else ""
                items = [group_keys.grouped(item) if distinct else write(item) for item in source.items]
                named = _named(items, source.columns)
                body = self._derived(source.input, source.items, named, distinct, units=units)
            case PerUnitGroupBy():
                placed = by_places(source, dialect().by_place) if is_private(source) else None
                if placed is not None:
                    return self.source(placed)
                body = self._grouped(source, units=units)
            case PerUnitWindows():
                other = _rewritten(source)
                if other is not None:
                    return self.source(other)
                body = self._windows(source)
            case SetOperation():
                count = len(private_scans(source.left))
                sides = (
                    self._side(source, side, units=units, before=before)
                    for side, before in ((source.left, 0), (source.right, count))
                )
                body = f" {source.kind.value} ".join(sides)
            case PublicSubquery():
                body = _pending(source) if self.above is None else self.above.answer(source)
            case Values():
                body = constant_rows(source)
        return f"({body}) AS {identifier(source.alias)}"

    def _scan(self, scan: Scan) -> str:
        """The columns of a table that the query reads, cleaned."""
        read = {part.name: part for part in self.read if part.source == scan.alias}
        if self.above is not None:
            return self.above.table(scan, tuple(read.values()))
        items = [f"{dialect().clean(part)} AS {identifier(part.name)}" for part in read.values()]
        values = [dialect().clean(part) for part in read.values()]
        items += [item for alias, item in self.offered if alias == scan.alias]
        stored = [text for alias, text in self.stored.written if alias == scan.alias]
        if not (self.units and scan.unit.known):
            # Ids of rows are not asked for where nothing needs them: not every engine has them. Nothing does where a joined
            # table gives the unit: such a scan has no partition filters.
            owned = scan.unit.kind is UnitKind.COLUMN and scan.unit.known
            unit, source = _owned(scan) if owned else ("", dialect().table_name(scan.table))
            return _select(items, _table(scan), [*partition_conditions(scan, unit, source), *stored])
        unit, source = _owned(scan, values=values)
        if self.before and scan.unit.kind is UnitKind.ROW:
            unit = dialect().row_id(values, self.before)
        rows = _owned(scan, _table(scan), values)[1]
        conditions = [*partition_conditions(scan, unit, source), *stored]
        return _select([*items, f"{unit} AS {UNIT}"], rows, conditions)

    def _matching(self, relation: SemiJoin) -> str:
        on = [write(relation.on)]
        if self.units and is_private(relation.right):
            on.append(f"{unit_of(relation.right)} = {unit_of(relation.input)}")
        block = _Block.of(relation.right, [relation.on], units=self.units, above=self.above)
        right = block.source(relation.right)
        return f"{'NOT ' * relation.anti}EXISTS ({_select((), right, on)})"

    def _derived(
        self,
        relation: Relation,
        read: Iterable[Expr],
        items: Iterable[str],
        distinct: str = "",
        *,
        units: bool,
        above: Above | None = None,
        before: int = 0,
    ) -> str:
        block = _Block.of(relation, read, units=units, above=above or self.above, before=self.before + before)
        source, conditions = block.relation(relation)
        return _select(
            [*items, *([f"{unit_of(relation)} AS {UNIT}"] if units else [])], source, conditions, distinct
        )

    def _grouped(self, source: PerUnitGroupBy, *, units: bool) -> str:
        arguments = [expr for item in source.aggregates for expr in item.arguments]
        named = list(source.columns)
        items = _named([group_keys.grouped(key) for key in source.keys], named)
        pairs = zip(source.aggregates, named[len(items) :], strict=True)
        if is_private(source):
            known = intervals.conditions(source.input)
            texts = [per_unit_aggregate(item, name, known) for item, name in pairs]
        else:
            texts = [public_aggregate(item, name) for item, name in pairs]
        items += _named(texts, named[len(items) :])
        above = None if self.above is None else self.above.grouping(source)
        text = self._derived(source.input, [*source.keys, *arguments], items, units=units, above=above)
        # The unit is the last item.
        by = [*range(1, len(source.keys) + 1), *([len(items) + 1] if units else [])]
        return f"{text} GROUP BY {', '.join(map(str, by))}" if by else text

    def _windows(self, source: PerUnitWindows) -> str:
        """The items in one form for each value, and windows over these: equal rows are alike in all that follows."""
        named = source.columns[: len(source.items)]
        items = _named(map(group_keys.grouped, source.items), named)
        rows = self._derived(source.input, source.items, items, units=True)
        unit = f"{identifier(source.alias)}.{UNIT}"
        own = [f"{column(name)} AS {identifier(name.name)}" for name in named]
        over = zip(source.windows, source.columns[len(named) :], strict=True)
        own += [f"{unit_window(item, name, unit, named)} AS {identifier(name.name)}" for item, name in over]
        return _select([*own, f"{unit} AS {UNIT}"], f"({rows}) AS {identifier(source.alias)}", ())

    def _side(self, operation: SetOperation, side: Source, *, units: bool, before: int) -> str:
        if isinstance(side, Scan):
            raise TypeError("a side has the columns of the whole")
        items = []
        for ours, theirs in zip(operation.columns, side.columns, strict=True):
            text = column(theirs) if operation.kind is SetKind.UNION_ALL else group_keys.grouped(theirs)
            items.append(text if ours.type is theirs.type else cast(text, ours.type))
        return self._derived(side, side.columns, _named(items, operation.columns), units=units, before=before)


def constant_rows(source: Values) -> str:
    """The query of rows of constants; of no row at all, no row."""
    kinds = [column.type for column in source.columns]
    if len(source.rows) > _FEW and dialect().lists:
        lists = (
            f"UNNEST({_list([row[place] for row in source.rows], column.type)}) AS {identifier(column.name)}"
            for place, column in enumerate(source.columns)
        )
        return f"SELECT {', '.join(lists)}"
    rows = source.rows or ((None,) * len(kinds),)
    texts = [
        f"({', '.join(cast(constant(value), kind) for value, kind in zip(row, kinds, strict=True))})"
        for row in rows
    ]
    names = ", ".join(identifier(column.name) for column in source.columns)
    return f"SELECT * FROM (VALUES {', '.join(texts)}) AS v({names}){'' if source.rows else ' WHERE FALSE'}"


def _list(values: Sequence[Value], kind: Type) -> str:
    """The values of a column as a list, numbers, texts and days as one text: the engine plans each constant for itself."""
    if kind in (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.DATE):
        written: Callable[[Value], str] = (
            _quoted if kind is Type.VARCHAR else str if kind is Type.DATE else repr
        )
        listed = ", ".join("NULL" if value is None else written(value) for value in values)
        return f"CAST({constant(f'[{listed}]')} AS {kind.value}[])"
    return f"[{', '.join(cast(constant(value), kind) for value in values)}]"


def _rewritten(source: PerUnitWindows) -> Project | None:
    """The windows by others, where the engine does not have all of them; None where it has."""
    rewrites = ((dialect().ignores_nulls, without_nulls), (dialect().frames_of_groups, over_ranks))
    found = (rewrite(source) for has, rewrite in rewrites if not has)
    return next((other for other in found if other is not None), None)


def _quoted(value: Value) -> str:
    """A text as an element of a list that is written as one text."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _pending(source: PublicSubquery) -> str:
    """In place of rows that are answered before the text is sent: until then it is only looked at."""
    return f"{constant_rows(Values((), source.alias, source.columns))} /* released before */"


def _table(scan: Scan) -> str:
    """The table, or its rows once for each element of its lists.

    Claim: a row is there at most as often as the product of the most elements of its lists, and each time with its unit.
    Why: a list is cut to its first elements, at least one, before it is unnested, or is a list of NULL alone; the other
    columns are repeated.
    Source: McSherry 2009, Theorem 5 (a transformation that makes k rows of one is k-stable).
    """
    text = dialect().table_name(scan.table)
    for item in scan.unnested:
        text = f"({dialect().elements(text, item)}) AS {identifier(scan.table)}"
    return text


def emit_crossings(ours: Scan, theirs: Scan, on: Sequence[tuple[Column, Column]]) -> str:
    """The query of how many rows have the key of a row of another unit, for the data's owner alone: it counts exactly."""
    sides = []
    for scan, keys in ((ours, [key for key, _ in on]), (theirs, [key for _, key in on])):
        unit, source = _owned(scan, values=[dialect().widened(key) for key in keys])
        items = [f"{dialect().widened(key)} AS {_key(place)}" for place, key in enumerate(keys)]
        sides.append(_select([*items, f"{unit} AS {UNIT}"], source, [f"{unit} IS NOT NULL"]))
    equal = [f"a.{_key(place)} = b.{_key(place)}" for place in range(len(on))]
    crossing = _select((), f"({sides[1]}) AS b", [*equal, f"b.{UNIT} <> a.{UNIT}"])
    return f"SELECT COUNT(*) FROM ({sides[0]}) AS a WHERE EXISTS ({crossing})"


def emit_without_unit(scan: Scan) -> str | None:
    """Return the query that counts the rows without a privacy unit, for the data's owner alone; None where each row is a unit."""
    table, link = dialect().table_name(scan.table), scan.unit.link
    if link is not None:
        equal = [
            f"{dialect().widened(ours)} = {OWNER}.{_key(place)}" for place, (ours, _) in enumerate(link.pairs)
        ]
        owners = _select((), _owner(link), [*equal, f"{OWNER}.{UNIT} IS NOT NULL"])
        return f"SELECT COUNT(*) FROM {table} WHERE NOT EXISTS ({owners})"
    if scan.unit.column is None:
        return None
    return f"SELECT COUNT(*) FROM {table} WHERE {dialect().unit_id(scan.unit.column)} IS NULL"


def _owned(scan: Scan, table: str | None = None, values: Sequence[str] = ()) -> tuple[str, str]:
    """The id of the unit of a table's rows, and the table, or what stands for it, joined to where the id is looked up.

    `values` are the columns that are read of a table whose rows are units.
    """
    link, table = scan.unit.link, table or dialect().table_name(scan.table)
    if link is not None:
        on = (
            f"{dialect().widened(ours)} = {OWNER}.{_key(place)}" for place, (ours, _) in enumerate(link.pairs)
        )
        return f"{OWNER}.{UNIT}", f"{table} JOIN {_owner(link)} ON {' AND '.join(on)}"
    if scan.unit.column is not None:
        return dialect().unit_id(scan.unit.column), table
    return dialect().row_id(values), table


def _owner(link: Link) -> str:
    unit, source = _owned(link.owner)
    keys = (f"{dialect().widened(key)} AS {_key(place)}" for place, (_, key) in enumerate(link.pairs))
    return f"({_select([*keys, f'{unit} AS {UNIT}'], source, ())}) AS {OWNER}"


def _key(place: int) -> str:
    """The name of one column of a link's key."""
    return KEY if place == 0 else identifier(f"#key{place}")


def _named(items: Iterable[str], named: Iterable[Column]) -> list[str]:
    return [f"{item} AS {identifier(name.name)}" for item, name in zip(items, named, strict=False)]


def _conditions(relation: Relation, stored: Stored) -> Iterator[Expr]:
    """The expressions in the conditions of a block, but for those that are written in scans."""
    match relation:
        case Filter():
            yield from _left(relation, stored)
            yield from _conditions(relation.input, stored)
        case SemiJoin():
            yield relation.on
            yield from _conditions(relation.input, stored)
        case Join():
            for ours, theirs in relation.on:
                yield from (ours, theirs)
            if relation.also is not None:
                yield relation.also
            yield from _conditions(relation.left, stored)
        case _:
            return


def _left(relation: Filter, stored: Stored) -> list[Expr]:
    """The conditions of a filter that are written beside the scans."""
    parts = list(conjuncts(relation.predicate))
    left = [part for part in parts if part not in stored.replaced]
    return left if len(left) < len(parts) else [relation.predicate]
