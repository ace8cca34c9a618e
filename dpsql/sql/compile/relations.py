"""Emit relations: sources with their columns and unit identifiers, joins, and conditions.

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
from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.plan.expressions import Column, Expr, iterate_columns
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
    get_unit_source,
    is_private,
    list_private_scans,
)
from dpsql.plan.steps import find_sampling_rate
from dpsql.plan.tables import Link, Scan, UnitKind
from dpsql.plan.types import Type, Value, find_common_type
from dpsql.policy.names import quote_identifier
from dpsql.sql.compile import group_keys
from dpsql.sql.compile.columns import name_group_key, name_value
from dpsql.sql.compile.compiler import Compiler, emit_column
from dpsql.sql.compile.lattice import emit_scan_points, find_offered_point
from dpsql.sql.compile.per_unit_aggregates import (
    emit_per_unit_aggregate,
    emit_public_aggregate,
    rewrite_placed_aggregates,
)
from dpsql.sql.compile.scan_conditions import (
    StoredConditions,
    emit_partition_conditions,
    emit_sample_condition,
    emit_stored_conditions,
    split_conjuncts,
)
from dpsql.sql.compile.unit_windows import emit_unit_window, rewrite_group_frames, rewrite_ignore_nulls

_NONE = StoredConditions()
_FEW = 100
"""Rows of constants up to which they are written one by one."""

UNIT, OWNER, KEY, VALUE = '"#unit_id"', '"#owner"', '"#key"', '"#value"'


def emit_rows(
    compiler: Compiler,
    analysis: Analysis,
    values: Measure | None = None,
    ordered: Measure | None = None,
    *,
    all_places: bool = False,
) -> str:
    """Return the query for the rows: the unit as `unit_id`, the keys as `group_key_1` and so on, the measures as `value_1` and so on.

    These are values, or lattice points where scans offer them: `lattice.emit_measure_total` adds up either.
    Where the `values` of a measure are counted, it alone, with one form for each value; where its values
    are put in order, it alone as `value`. With `all_places` there are rows too that `group_keys.emit_having_clause` leaves out.
    """
    release, units = analysis.release, analysis.bound.per_unit
    items = [
        f"{group_keys.emit_group_key(compiler, key, analysis)} AS {name_group_key(release, key)}"
        for key in release.keys
    ]
    offered = list(group_keys.emit_domain_indices(compiler, release))
    if values is not None:
        read = [values.expr]
        items.append(f"{compiler.emit_canonical_value(values.expr)} AS {VALUE}")
    elif ordered is not None:
        read = [ordered.expr]
        items.append(f"{_emit_aggregated_value(compiler, ordered)} AS value")
    else:
        summed = [(index, part) for index, part in enumerate(analysis.measures) if part.counts_rows]
        points = {index: find_offered_point(part, index) for index, part in summed}
        items += [
            f"{points[index] or _emit_aggregated_value(compiler, part)} AS {name_value(index)}"
            for index, part in summed
        ]
        read = [part.expr for index, part in summed if points[index] is None]
        offered += emit_scan_points(compiler, analysis)
    present = [
        group_keys.emit_key_condition(compiler, key, analysis)
        for key in release.keys
        if not (all_places and group_keys.find_indexed_column(compiler, key, release.input) is not None)
    ]
    where = [text for text in present if text is not None]
    rate = find_sampling_rate(release.input)
    if units:
        name = name_unit_column(release.input)
        items.insert(0, f"{name} AS unit_id")
        where.insert(0, f"{name} IS NOT NULL")
        if rate is not None:
            where.append(emit_sample_condition(compiler, name, rate))
    elif rate is not None:
        raise TypeError("only units with identifiers can be sampled")
    read += [
        key.expr
        for key in release.keys
        if group_keys.find_indexed_column(compiler, key, release.input) is None
    ]
    block = _SelectBlock.from_relation(compiler, release.input, read, units=units, offered=offered)
    source, conditions = block.emit_relation(release.input)
    return _emit_select(items, source, [*conditions, *where])


def name_unit_column(relation: Relation) -> str:
    """Return the name of the column with a row's privacy unit."""
    return f"{quote_identifier(get_unit_source(relation).alias)}.{UNIT}"


def emit_from_clause(
    compiler: Compiler, relation: Relation, read: Iterable[Expr], above: OuterSource | None = None
) -> tuple[str, list[str]]:
    """Return the FROM text and the conditions of a relation, of whose columns `read` are needed."""
    return _SelectBlock.from_relation(compiler, relation, read, units=False, above=above).emit_relation(
        relation
    )


def emit_multiplicity(compiler: Compiler, join: Join) -> str:
    """Return the query for the most rows of a join's public side that one row can be equal to.

    Keys are compared as the join compares them: cleaned, and in the common type of both sides, in
    which keys that differ as stored may be equal. Only IS NOT DISTINCT FROM finds NULL equal to NULL.
    """
    alike = _list_null_safe_pairs(join)
    equal, same = ([_emit_compared_key(*pair) for pair in pairs] for pairs in (join.on, alike))
    source, _ = emit_from_clause(compiler, join.right, [theirs for _, theirs in (*join.on, *alike)])
    if not equal and not same:
        return f"SELECT COUNT(*) FROM {source}"
    there = " AND ".join(f"{text} IS NOT NULL" for text in equal) or "TRUE"
    return (
        f"SELECT COALESCE(MAX(row_count), 0) FROM (SELECT COUNT(*) AS row_count FROM {source} "
        f"WHERE {there} GROUP BY {', '.join((*equal, *same))})"
    )


def _emit_compared_key(ours: Expr, theirs: Column) -> str:
    """Return a column as a join compares it."""
    shared = find_common_type((ours.type, theirs.type)) or theirs.type
    text = f"CAST({emit_column(theirs)} AS {shared.value})"
    return f"{text} + 0" if shared is Type.DOUBLE else text  # -0.0 equals 0.0


def _list_null_safe_pairs(join: Join) -> list[tuple[Expr, Column]]:
    """List the values on the left that IS NOT DISTINCT FROM of the join's condition compares with columns on the right."""
    found: list[tuple[Expr, Column]] = []
    for part in () if join.condition is None else intervals.iterate_conjuncts(join.condition):
        if part.function.name != "is_not_distinct":
            continue
        for ours, theirs in (part.arguments, part.arguments[::-1]):
            if not isinstance(theirs, Column) or theirs.source != join.right.alias:
                continue
            if all(column.source != join.right.alias for column in iterate_columns(ours)):
                found.append((ours, theirs))
    return found


def _emit_aggregated_value(compiler: Compiler, measure: Measure) -> str:
    return compiler.emit_number_or_null(measure.expr)


def _emit_select(items: Iterable[str], source: str, conditions: Iterable[str], distinct: str = "") -> str:
    text = f"SELECT {distinct}{', '.join(items) or '1'} FROM {source}"
    where = " AND ".join(conditions)
    return f"{text} WHERE {where}" if where else text


class OuterSource(Protocol):
    """The interface by which sources are read above the release boundary."""

    def emit_answer(self, answer: PublicSubquery) -> str:
        """Return the query of released or public values."""
        ...

    def emit_table(self, scan: Scan, read: Sequence[Column]) -> str:
        """Return the query of a public table's columns."""
        ...

    def with_grouping(self, source: PerUnitGroupBy) -> OuterSource:
        """Return how sources are read whose rows these groups are of."""
        ...


@dataclass(frozen=True, slots=True)
class _SelectBlock:
    """One SELECT: the columns that its expressions read, and the further columns of its scans, by alias."""

    compiler: Compiler
    read: tuple[Column, ...]
    units: bool
    offered: Sequence[tuple[str, str]] = ()
    above: OuterSource | None = None
    before: int = 0
    """The number of private tables read by earlier sides of set operations."""
    stored: StoredConditions = _NONE
    """The conditions that are written in scans."""

    @classmethod
    def from_relation(
        cls,
        compiler: Compiler,
        relation: Relation,
        read: Iterable[Expr],
        *,
        units: bool,
        offered: Sequence[tuple[str, str]] = (),
        above: OuterSource | None = None,
        before: int = 0,
    ) -> _SelectBlock:
        """Return the block over a relation whose SELECT list reads these expressions."""
        stored = emit_stored_conditions(compiler, relation, units=units) if above is None else _NONE
        parts = (
            part for expr in (*read, *_iterate_conditions(relation, stored)) for part in iterate_columns(expr)
        )
        return cls(compiler, tuple(dict.fromkeys(parts)), units, offered, above, before, stored)

    def emit_relation(self, relation: Relation) -> tuple[str, list[str]]:
        """Return the FROM text and the conditions."""
        match relation:
            case Filter():
                source, conditions = self.emit_relation(relation.input)
                return source, [
                    *conditions,
                    *map(self.compiler.emit_expression, _list_remaining_conditions(relation, self.stored)),
                ]
            case SemiJoin():
                source, conditions = self.emit_relation(relation.input)
                return source, [*conditions, self._emit_semi_join(relation)]
            case Join():
                left, conditions = self.emit_relation(relation.left)
                right = self.emit_source(relation.right)
                on = [
                    f"{self.compiler.emit_expression(ours)} = {emit_column(theirs)}"
                    for ours, theirs in relation.on
                ]
                on += (
                    [self.compiler.emit_expression(relation.condition)]
                    if relation.condition is not None
                    else []
                )
                if self.units and is_private(relation.right) and not relation.proven:
                    on.append(f"{name_unit_column(relation.left)} = {name_unit_column(relation.right)}")
                # Not CROSS JOIN, so that a LEFT one keeps its rows.
                return (
                    f"{left}\n    {relation.kind.value} JOIN {right} ON {' AND '.join(on) or 'TRUE'}",
                    conditions,
                )
            case _:
                return self.emit_source(relation), []

    def emit_source(self, source: Source) -> str:
        """Return a source under its alias, with the columns that are read and the unit."""
        units = self.units and is_private(source)
        match source:
            case Scan():
                body = self._emit_scan(source)
            case Project():
                distinct = "DISTINCT " if source.distinct else ""
                items = [
                    self.compiler.emit_canonical_value(item)
                    if distinct
                    else self.compiler.emit_expression(item)
                    for item in source.items
                ]
                named = _alias_items(items, source.columns)
                body = self._emit_derived_table(source.input, source.items, named, distinct, units=units)
            case PerUnitGroupBy():
                placed = (
                    rewrite_placed_aggregates(source, self.compiler.dialect.functions.numbered_row_aggregates)
                    if is_private(source)
                    else None
                )
                if placed is not None:
                    return self.emit_source(placed)
                body = self._emit_groups(source, units=units)
            case PerUnitWindows():
                other = _rewrite_windows(self.compiler, source)
                if other is not None:
                    return self.emit_source(other)
                body = self._emit_windows(source)
            case SetOperation():
                count = len(list_private_scans(source.left))
                sides = (
                    self._emit_side(source, side, units=units, before=before)
                    for side, before in ((source.left, 0), (source.right, count))
                )
                body = f" {source.kind.value} ".join(sides)
            case PublicSubquery():
                body = (
                    _emit_pending_rows(self.compiler, source)
                    if self.above is None
                    else self.above.emit_answer(source)
                )
            case Values():
                body = emit_constant_rows(self.compiler, source)
        return f"({body}) AS {quote_identifier(source.alias)}"

    def _emit_scan(self, scan: Scan) -> str:
        """Return the columns of a table that the query reads, cleaned."""
        read = {part.name: part for part in self.read if part.source == scan.alias}
        if self.above is not None:
            return self.above.emit_table(scan, tuple(read.values()))
        items = [
            f"{self.compiler.dialect.columns.emit_bounded_column(part)} AS {quote_identifier(part.name)}"
            for part in read.values()
        ]
        values = [self.compiler.dialect.columns.emit_bounded_column(part) for part in read.values()]
        items += [item for alias, item in self.offered if alias == scan.alias]
        stored = [text for alias, text in self.stored.scan_conditions if alias == scan.alias]
        if not (self.units and scan.unit.is_known):
            # Row ids are only emitted if they are needed, since not every engine has them. They are not if a joined
            # table gives the unit: such a scan has no partition filters.
            owned = scan.unit.kind is UnitKind.COLUMN and scan.unit.is_known
            unit, source = (
                _emit_owned_table(self.compiler, scan)
                if owned
                else ("", self.compiler.dialect.queries.quote_table_name(scan.table))
            )
            return _emit_select(
                items,
                _emit_unnested_table(self.compiler, scan),
                [*emit_partition_conditions(self.compiler, scan, unit, source), *stored],
            )
        unit, source = _emit_owned_table(self.compiler, scan, values=values)
        if self.before and scan.unit.kind is UnitKind.ROW:
            unit = self.compiler.dialect.hashes.emit_row_id(values, self.before)
        rows = _emit_owned_table(self.compiler, scan, _emit_unnested_table(self.compiler, scan), values)[1]
        conditions = [*emit_partition_conditions(self.compiler, scan, unit, source), *stored]
        return _emit_select([*items, f"{unit} AS {UNIT}"], rows, conditions)

    def _emit_semi_join(self, relation: SemiJoin) -> str:
        on = [self.compiler.emit_expression(relation.on)]
        if self.units and is_private(relation.right):
            on.append(f"{name_unit_column(relation.right)} = {name_unit_column(relation.input)}")
        block = _SelectBlock.from_relation(
            self.compiler, relation.right, [relation.on], units=self.units, above=self.above
        )
        right = block.emit_source(relation.right)
        return f"{'NOT ' * relation.anti}EXISTS ({_emit_select((), right, on)})"

    def _emit_derived_table(
        self,
        relation: Relation,
        read: Iterable[Expr],
        items: Iterable[str],
        distinct: str = "",
        *,
        units: bool,
        above: OuterSource | None = None,
        before: int = 0,
    ) -> str:
        block = _SelectBlock.from_relation(
            self.compiler, relation, read, units=units, above=above or self.above, before=self.before + before
        )
        source, conditions = block.emit_relation(relation)
        return _emit_select(
            [*items, *([f"{name_unit_column(relation)} AS {UNIT}"] if units else [])],
            source,
            conditions,
            distinct,
        )

    def _emit_groups(self, source: PerUnitGroupBy, *, units: bool) -> str:
        arguments = [expr for item in source.aggregates for expr in item.arguments]
        named = list(source.columns)
        items = _alias_items([self.compiler.emit_canonical_value(key) for key in source.keys], named)
        pairs = zip(source.aggregates, named[len(items) :], strict=True)
        if is_private(source):
            known = intervals.derive_known_intervals(source.input)
            texts = [emit_per_unit_aggregate(self.compiler, item, name, known) for item, name in pairs]
        else:
            texts = [emit_public_aggregate(self.compiler, item, name) for item, name in pairs]
        items += _alias_items(texts, named[len(items) :])
        above = None if self.above is None else self.above.with_grouping(source)
        text = self._emit_derived_table(
            source.input, [*source.keys, *arguments], items, units=units, above=above
        )
        # The unit is the last item.
        by = [*range(1, len(source.keys) + 1), *([len(items) + 1] if units else [])]
        return f"{text} GROUP BY {', '.join(map(str, by))}" if by else text

    def _emit_windows(self, source: PerUnitWindows) -> str:
        """Return the items in one form for each value, and windows over these: equal rows are alike in all that follows."""
        named = source.columns[: len(source.items)]
        items = _alias_items(map(self.compiler.emit_canonical_value, source.items), named)
        rows = self._emit_derived_table(source.input, source.items, items, units=True)
        unit = f"{quote_identifier(source.alias)}.{UNIT}"
        own = [f"{emit_column(name)} AS {quote_identifier(name.name)}" for name in named]
        over = zip(source.windows, source.columns[len(named) :], strict=True)
        own += [
            f"{emit_unit_window(self.compiler, item, name, unit, named)} AS {quote_identifier(name.name)}"
            for item, name in over
        ]
        return _emit_select([*own, f"{unit} AS {UNIT}"], f"({rows}) AS {quote_identifier(source.alias)}", ())

    def _emit_side(self, operation: SetOperation, side: Source, *, units: bool, before: int) -> str:
        if isinstance(side, Scan):
            raise TypeError("a side must have the columns of the whole")
        items = []
        for ours, theirs in zip(operation.columns, side.columns, strict=True):
            text = (
                emit_column(theirs)
                if operation.kind is SetKind.UNION_ALL
                else self.compiler.emit_canonical_value(theirs)
            )
            items.append(text if ours.type is theirs.type else self.compiler.emit_cast(text, ours.type))
        return self._emit_derived_table(
            side, side.columns, _alias_items(items, operation.columns), units=units, before=before
        )


def emit_constant_rows(compiler: Compiler, source: Values) -> str:
    """Return the query of rows of constants; of no row at all, no row."""
    kinds = [column.type for column in source.columns]
    if len(source.rows) > _FEW and compiler.dialect.capabilities.unnests_constant_lists:
        lists = (
            f"UNNEST({_emit_list(compiler, [row[place] for row in source.rows], column.type)}) AS {quote_identifier(column.name)}"
            for place, column in enumerate(source.columns)
        )
        return f"SELECT {', '.join(lists)}"
    rows = source.rows or ((None,) * len(kinds),)
    texts = [
        f"({', '.join(compiler.emit_cast(compiler.emit_constant(value), kind) for value, kind in zip(row, kinds, strict=True))})"
        for row in rows
    ]
    names = ", ".join(quote_identifier(column.name) for column in source.columns)
    return (
        f"SELECT * FROM (VALUES {', '.join(texts)}) AS listed({names}){'' if source.rows else ' WHERE FALSE'}"
    )


def _emit_list(compiler: Compiler, values: Sequence[Value], kind: Type) -> str:
    """Return the values of a column as a list, numbers, texts and days as one text: the engine plans each constant for itself."""
    if kind in (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.DATE):
        written: Callable[[Value], str] = (
            _quote_list_item if kind is Type.VARCHAR else str if kind is Type.DATE else repr
        )
        listed = ", ".join("NULL" if value is None else written(value) for value in values)
        return f"CAST({compiler.emit_constant(f'[{listed}]')} AS {kind.value}[])"
    return f"[{', '.join(compiler.emit_cast(compiler.emit_constant(value), kind) for value in values)}]"


def _rewrite_windows(compiler: Compiler, source: PerUnitWindows) -> Project | None:
    """Return the windows by others, where the engine does not have all of them; None where it has."""
    rewrites = (
        (compiler.dialect.capabilities.supports_ignore_nulls, rewrite_ignore_nulls),
        (compiler.dialect.capabilities.supports_groups_frames, rewrite_group_frames),
    )
    found = (rewrite(source) for has, rewrite in rewrites if not has)
    return next((other for other in found if other is not None), None)


def _quote_list_item(value: Value) -> str:
    """Return a text as an element of a list that is written as one text."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _emit_pending_rows(compiler: Compiler, source: PublicSubquery) -> str:
    """Return a placeholder for rows that are answered before the text is sent; until then the text is only shown."""
    return f"{emit_constant_rows(compiler, Values((), source.alias, source.columns))} /* released before */"


def _emit_unnested_table(compiler: Compiler, scan: Scan) -> str:
    """Return the table, or its rows once for each element of its lists.

    Claim: a row is there at most as often as the product of the most elements of its lists, and each time with its unit.
    Why: a list is cut to its first elements, at least one, before it is unnested, or is a list of NULL alone; the other
    columns are repeated.
    Source: McSherry 2009, Theorem 5 (a transformation that makes k rows of one is k-stable).
    """
    text = compiler.dialect.queries.quote_table_name(scan.table)
    for item in scan.unnested:
        text = f"({compiler.dialect.lists.emit_list_elements(text, item)}) AS {quote_identifier(scan.table)}"
    return text


def emit_crossings(compiler: Compiler, ours: Scan, theirs: Scan, on: Sequence[tuple[Column, Column]]) -> str:
    """Return the query of how many rows have the key of a row of another unit, for the data's owner alone: it counts exactly."""
    sides = []
    for scan, keys in ((ours, [key for key, _ in on]), (theirs, [key for _, key in on])):
        unit, source = _emit_owned_table(
            compiler, scan, values=[compiler.dialect.columns.emit_widened_column(key) for key in keys]
        )
        items = [
            f"{compiler.dialect.columns.emit_widened_column(key)} AS {_name_key_column(place)}"
            for place, key in enumerate(keys)
        ]
        sides.append(_emit_select([*items, f"{unit} AS {UNIT}"], source, [f"{unit} IS NOT NULL"]))
    equal = [f"ours.{_name_key_column(place)} = theirs.{_name_key_column(place)}" for place in range(len(on))]
    crossing = _emit_select((), f"({sides[1]}) AS theirs", [*equal, f"theirs.{UNIT} <> ours.{UNIT}"])
    return f"SELECT COUNT(*) FROM ({sides[0]}) AS ours WHERE EXISTS ({crossing})"


def emit_count_without_unit(compiler: Compiler, scan: Scan) -> str | None:
    """Return the query that counts the rows without a privacy unit, for the data's owner alone; None where each row is a unit."""
    table, link = compiler.dialect.queries.quote_table_name(scan.table), scan.unit.link
    if link is not None:
        equal = [
            f"{compiler.dialect.columns.emit_widened_column(ours)} = {OWNER}.{_name_key_column(place)}"
            for place, (ours, _) in enumerate(link.pairs)
        ]
        owners = _emit_select((), _emit_owner_table(compiler, link), [*equal, f"{OWNER}.{UNIT} IS NOT NULL"])
        return f"SELECT COUNT(*) FROM {table} WHERE NOT EXISTS ({owners})"
    if scan.unit.column is None:
        return None
    return f"SELECT COUNT(*) FROM {table} WHERE {compiler.dialect.columns.emit_unit_id(scan.unit.column)} IS NULL"


def emit_unit_row_counts(compiler: Compiler, scan: Scan) -> str | None:
    """Return the query of the number of rows `n` of each privacy unit, for the data's owner alone; None where each row is a unit."""
    if scan.unit.link is None and scan.unit.column is None:
        return None
    unit, source = _emit_owned_table(compiler, scan)
    return (
        f"{_emit_select([f'{unit} AS {UNIT}', 'COUNT(*) AS n'], source, [f'{unit} IS NOT NULL'])} GROUP BY 1"
    )


def _emit_owned_table(
    compiler: Compiler, scan: Scan, table: str | None = None, values: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the id of the unit of a table's rows, and the table joined to the owner table that holds the id.

    `values` are the columns that are read of a table whose rows are units.
    """
    link, table = scan.unit.link, table or compiler.dialect.queries.quote_table_name(scan.table)
    if link is not None:
        on = (
            f"{compiler.dialect.columns.emit_widened_column(ours)} = {OWNER}.{_name_key_column(place)}"
            for place, (ours, _) in enumerate(link.pairs)
        )
        return f"{OWNER}.{UNIT}", f"{table} JOIN {_emit_owner_table(compiler, link)} ON {' AND '.join(on)}"
    if scan.unit.column is not None:
        return compiler.dialect.columns.emit_unit_id(scan.unit.column), table
    return compiler.dialect.hashes.emit_row_id(values), table


def _emit_owner_table(compiler: Compiler, link: Link) -> str:
    unit, source = _emit_owned_table(compiler, link.owner)
    keys = (
        f"{compiler.dialect.columns.emit_widened_column(key)} AS {_name_key_column(place)}"
        for place, (_, key) in enumerate(link.pairs)
    )
    return f"({_emit_select([*keys, f'{unit} AS {UNIT}'], source, ())}) AS {OWNER}"


def _name_key_column(place: int) -> str:
    """Return the name of one column of a link's key."""
    return KEY if place == 0 else quote_identifier(f"#key{place}")


def _alias_items(items: Iterable[str], named: Iterable[Column]) -> list[str]:
    return [f"{item} AS {quote_identifier(name.name)}" for item, name in zip(items, named, strict=False)]


def _iterate_conditions(relation: Relation, stored: StoredConditions) -> Iterator[Expr]:
    """Yield the expressions in the conditions of a block, except for those that are emitted in scans."""
    match relation:
        case Filter():
            yield from _list_remaining_conditions(relation, stored)
            yield from _iterate_conditions(relation.input, stored)
        case SemiJoin():
            yield relation.on
            yield from _iterate_conditions(relation.input, stored)
        case Join():
            for ours, theirs in relation.on:
                yield from (ours, theirs)
            if relation.condition is not None:
                yield relation.condition
            yield from _iterate_conditions(relation.left, stored)
        case _:
            return


def _list_remaining_conditions(relation: Filter, stored: StoredConditions) -> list[Expr]:
    """List the conditions of a filter that are not emitted in scans."""
    parts = list(split_conjuncts(relation.predicate))
    left = [part for part in parts if part not in stored.replaced_conditions]
    return left if len(left) < len(parts) else [relation.predicate]
