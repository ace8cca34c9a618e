"""Emit the outer query, which is above the release boundary and only reads released and public values.

It runs on a scratch engine that holds the released tables and copies of public tables, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Call, Column, Expr, ReleasedColumn, Scalar, WindowCall, walk
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
    list_released_columns,
)
from dpsql.plan.provenance import count_branches, find_provenance, trace_conditions, trace_expression
from dpsql.plan.steps import list_steps
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy.names import quote_identifier
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, emit_column
from dpsql.sql.compile.relations import emit_from_clause

# Decide whether an aggregate over released groups excludes empty groups.


_ADD_UP = frozenset({Moment.ROWS, Moment.UNITS, Moment.COUNT, Moment.DISTINCT, Moment.TOTAL})


def needs_occupied_groups(source: PerUnitGroupBy) -> bool:
    """Return whether an empty group would change the result: it does not where released counts and sums are only added up.

    To these it adds nothing but noise, which is zero on average, and who is in a small group would be lost.
    """
    return not all(
        item.function == "sum" and item.argument is not None and _is_additive(item.argument, source)
        for item in source.aggregates
    )


def _is_additive(expr: Expr, source: PerUnitGroupBy) -> bool:
    found = trace_expression(expr, source.input)
    return found is not None and all(_is_count_or_sum(origin, release) for release, origin in found)


def _is_count_or_sum(expr: Expr, release: Release) -> bool:
    """Return whether an expression is a released count or sum."""
    name = expr.name if isinstance(expr, ReleasedColumn) else None
    named = (item for item in release.aggregations if item.name == name)
    return any(
        len(moments) == 1 and set(moments) <= _ADD_UP
        for moments in (AGGREGATES[item.function].moments for item in named)
    )


ReleasedSums = frozenset[tuple[Release, str]]
"""Sums by their release and name."""


def list_added_sums(source: PerUnitGroupBy) -> ReleasedSums:
    """Return the released columns that groups of released rows only add up, and read nowhere else.

    Claim: it is the same for their total, but for noise, whether such a sum over no values is NULL or a number near 0, unless all
    are NULL. Every other aggregate, condition and key tells one from the other.
    Why: SUM leaves NULL out. Noise is zero on average, and without it the total of small groups would be too small.
    Source: none but the definitions.
    """
    read: list[Expr] = [*source.keys]
    added = set[tuple[Release, Expr]]()
    for item in source.aggregates:
        if item.function == "sum" and item.argument is not None and _is_additive(item.argument, source):
            added.update(trace_expression(item.argument, source.input) or ())
        else:
            read += item.arguments
    others = {
        (release, part)
        for expr in read
        for release, origin in trace_expression(expr, source.input) or ()
        for part in walk(origin)
    }
    others |= {
        (release, part)
        for release, conditions in trace_conditions(source.input)
        for condition in conditions
        for part in walk(condition)
    }
    return frozenset(
        (release, part.name) for release, part in added - others if isinstance(part, ReleasedColumn)
    )


def list_running_totals(release: Release, read: Sequence[Expr]) -> ReleasedSums:
    """Return the released columns that expressions over a release only add up by windows, as `list_added_sums` does."""
    added, others = set[Expr](), set[Expr]()
    for part in {part for expr in read for part in walk(expr)}:
        if isinstance(part, WindowCall) and part.function == "sum":
            added.update(part.arguments)
    for expr in read:
        others.update(_iterate_reads_beside_totals(expr, set()))
    return frozenset((release, part.name) for part in added - others if isinstance(part, ReleasedColumn))


def _iterate_reads_beside_totals(expr: Expr, seen: set[int]) -> Iterator[Expr]:
    """Yield the parts of an expression, without the arguments of SUM over windows that are columns as they are."""
    if id(expr) in seen:  # a part of one expression, which outlives this
        return
    seen.add(id(expr))
    yield expr
    parts: Sequence[Expr] = expr.arguments if isinstance(expr, (Call, WindowCall)) else ()
    if isinstance(expr, WindowCall):
        if expr.function == "sum":
            parts = [part for part in parts if not isinstance(part, ReleasedColumn)]
        parts = [*parts, *expr.partition, *(item.expr for item in expr.order)]
    for part in parts:
        yield from _iterate_reads_beside_totals(part, seen)


# Emit the query that evaluates expressions over simulated released rows.


DRAWN, KEYS = "#drawn", "#keys"
PLACE, ROW = "#place", "#row"
"""The columns with the order of a simulated row, and with the released row that it simulates."""


def emit_simulated(
    exprs: Sequence[Expr], aggregates: Sequence[ReleasedColumn], keys: Sequence[ReleasedColumn]
) -> str:
    """Return each expression as DOUBLE over the aggregates in `DRAWN`, with NaN as NULL, and the keys in `KEYS`."""
    drawn = [f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END" for name in _quote_column_names(aggregates)]
    items = [
        f"{DUCKDB_COMPILER.emit_cast(text, item.type)} AS {quote_identifier(item.name)}"
        for text, item in zip(drawn, aggregates, strict=True)
    ]
    rows = f"(SELECT {', '.join([*items, quote_identifier(PLACE), quote_identifier(ROW)])} FROM {quote_identifier(DRAWN)})"
    values = [
        f"TRY_CAST({DUCKDB_COMPILER.emit_expression(expr)} AS DOUBLE) AS v{place}"
        for place, expr in enumerate(exprs)
    ]
    joined = f" JOIN {quote_identifier(KEYS)} USING ({quote_identifier(ROW)})" if keys else ""
    return f"SELECT {', '.join(values)} FROM {rows}{joined} ORDER BY {quote_identifier(PLACE)}"


def _quote_column_names(columns: Sequence[ReleasedColumn]) -> list[str]:
    return [quote_identifier(column.name) for column in columns]


ORDINAL, BRANCH, OCCUPIED = "#", "#branch", "#occupied"
DRAW, DRAWS = "#draw", "#draws"
"""The column with the number of a simulated table, and the table of these numbers."""


def name_null_column(name: str) -> str:
    """Return the name of the column that marks a sum over no unit."""
    return f"#null {name}"


@dataclass(frozen=True, slots=True)
class ReleasedTables:
    """Read releases from the tables that `released` names, and public tables from copies.

    `columns` collects, for each table that is read, which columns its copy must have, and `interval_ends`, for each
    release, which ends of intervals must stand beside its aggregates. Of the `possibly_empty` releases some groups may be
    empty: where these are left out, as `omits_empty` says, `occupied` collects the release, whose table must say which groups
    are kept. Within aggregates that leave them out, `over_groups`, all others do so too. The `sums` of a release are those
    that are NULL where no unit is counted; `null_sums` collects the releases whose tables must say where. `simulated` tables
    are many in one, of which a query reads that of a draw: see `emit_simulations`.
    """

    released: Mapping[Release, str]
    possibly_empty: frozenset[Release] = frozenset()
    sums: Mapping[Release, Sequence[str]] = field(default_factory=dict)
    added_sums: ReleasedSums = frozenset()
    omits_empty: bool = True
    over_groups: bool = False
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    interval_ends: dict[Release, dict[ReleasedColumn, None]] = field(default_factory=dict)
    occupied: dict[Release, None] = field(default_factory=dict)
    null_sums: dict[Release, Sequence[str]] = field(default_factory=dict)
    simulated: bool = False

    def emit_released_table(self, release: Release, read: Sequence[Expr]) -> str:
        """Return the released table with these expressions, its sums over no unit as NULL; for simulated releases, that of one draw."""
        parts = [part for expr in read for part in walk(expr) if isinstance(part, ReleasedColumn)]
        found = (part for part in parts if part.end_of is not None)
        self.interval_ends.setdefault(release, {}).update(dict.fromkeys(found))
        table, names = quote_identifier(self.released[release]), {part.name for part in parts}
        added = self.added_sums | list_running_totals(release, read)
        sums = [name for name in self.sums.get(release, ()) if name in names and (release, name) not in added]
        if sums:
            self.null_sums[release] = self.sums[release]
        elif not self.simulated:
            return table
        nulls = ", ".join(
            f"CASE WHEN NOT {quote_identifier(name_null_column(name))} THEN {quote_identifier(name)} END AS {quote_identifier(name)}"
            for name in sums
        )
        draw = quote_identifier(DRAW)
        of_draw = f" WHERE {draw} = {quote_identifier(DRAWS)}.{draw}" if self.simulated else ""
        return f"(SELECT *{f' REPLACE ({nulls})' * bool(sums)} FROM {table}{of_draw}) AS {table}"

    def emit_group_conditions(self, release: Release) -> list[str]:
        """Return the condition on the groups that are read."""
        if not self.omits_empty or release not in self.possibly_empty:
            return []
        self.occupied[release] = None
        return [quote_identifier(OCCUPIED)]

    def with_grouping(self, source: PerUnitGroupBy) -> ReleasedTables:
        """Return the tables as the groups of `source` read them: without empty groups, if these would change the result."""
        if self.over_groups:
            return self
        omits = needs_occupied_groups(source)
        return replace(self, omits_empty=omits, over_groups=omits, added_sums=list_added_sums(source))

    def with_step(self, step: Scalar | PublicSubquery) -> ReleasedTables:
        """Return the tables as a subquery reads them: a histogram reads all groups, since each group has an index in it."""
        whole = isinstance(step, Scalar) and step.type is Type.LIST
        return replace(self, omits_empty=False) if whole else self

    def emit_answer(self, answer: PublicSubquery) -> str:
        """Return the query, with its outputs under the names of the answer's columns."""
        return emit_outer_query(answer.outer, self, [column.name for column in answer.columns])

    def emit_table(self, scan: Scan, read: Sequence[Column]) -> str:
        """Return the query of a copy's columns."""
        self.columns.setdefault(scan.table, {}).update({column.name: column for column in read})
        items = ", ".join(quote_identifier(column.name) for column in read)
        return f"SELECT {items or '1'} FROM {quote_identifier(scan.table)}"


@dataclass(frozen=True, slots=True)
class OriginalTables:
    """Read the original public tables, for queries without private tables, which the database itself answers."""

    def emit_released_table(self, release: Release, read: Sequence[Expr]) -> str:
        """Raise: nothing is released here, so it is never called."""
        raise LookupError(release, read)

    def emit_group_conditions(self, release: Release) -> list[str]:
        """Raise: nothing is released here, so it is never called."""
        raise LookupError(release)

    def with_grouping(self, _: PerUnitGroupBy) -> OriginalTables:
        """Return the same."""
        return self

    def with_step(self, _: Scalar | PublicSubquery) -> OriginalTables:
        """Return the same."""
        return self

    def emit_answer(self, answer: PublicSubquery) -> str:
        """Return the query, with its outputs under the names of the answer's columns."""
        return emit_outer_query(answer.outer, self, [column.name for column in answer.columns])

    def emit_table(self, scan: Scan, read: Sequence[Column]) -> str:
        """Return the query of a table's cleaned columns."""
        return emit_copy(scan.table, read)


def find_unchanged_columns(outer: OuterQuery) -> tuple[int, ...] | None:
    """Return the places of the released columns that are the outputs, None where more is done with a release.

    Such rows need no engine, where nothing has to be answered before the release.
    """
    if not isinstance(outer.source, Release) or outer != OuterQuery(outer.source, outer.outputs):
        return None
    if list_steps(outer) != (outer.source,):
        return None
    places = {column.name: place for place, column in enumerate(list_released_columns(outer.source))}
    found = [
        places.get(item.expr.name) if isinstance(item.expr, ReleasedColumn) else None
        for item in outer.outputs
    ]
    return None if None in found else tuple(place for place in found if place is not None)


def emit_copy(table: str, columns: Sequence[Column]) -> str:
    """Return the query of a public table's columns, cleaned, in this order."""
    items = ", ".join(
        f"{DUCKDB_COMPILER.dialect.columns.emit_bounded_column(column)} AS {quote_identifier(column.name)}"
        for column in columns
    )
    return f"SELECT {items or '1'} FROM {DUCKDB_COMPILER.dialect.queries.quote_table_name(table)}"


def emit_outer_query(
    outer: OuterQuery,
    above: ReleasedTables | OriginalTables,
    names: Sequence[str] = (),
    *,
    traced: bool = False,
) -> str:
    """Return the query of a plan's outputs, as `names` or else as o0, o1 and so on.

    Where each row comes from one released row, `traced` adds the ordinal of that row and its branch.
    """
    named = names or [f"o{index}" for index in range(len(outer.outputs))]
    items = [
        f"{DUCKDB_COMPILER.emit_expression(output.expr)} AS {quote_identifier(name)}"
        for output, name in zip(outer.outputs, named, strict=True)
    ]
    traced = traced and find_provenance(outer) is not None
    source, conditions = _emit_outer_source(outer, above, traced=traced)
    conditions += [DUCKDB_COMPILER.emit_expression(outer.having)] if outer.having is not None else []
    order = list(map(DUCKDB_COMPILER.emit_order_item, outer.order))
    released = isinstance(outer.source, Release)
    if traced:
        items += [
            quote_identifier(ORDINAL),
            f"{0 if released else quote_identifier(BRANCH)} AS {quote_identifier(BRANCH)}",
        ]
    if (released or (traced and _is_join(outer.source))) and not outer.distinct:
        order.append(quote_identifier(ORDINAL))
    lines = [f"SELECT {'DISTINCT ' * outer.distinct}{', '.join(items)}", f"FROM {source}"]
    if conditions:
        lines.append(f"WHERE {' AND '.join(conditions)}")
    if outer.qualify is not None:
        lines.append(f"QUALIFY {DUCKDB_COMPILER.emit_expression(outer.qualify)}")
    if order and (traced or outer.order or outer.limit is not None or outer.offset):
        lines.append(f"ORDER BY {', '.join(order)}")
    if outer.limit is not None:
        lines.append(f"LIMIT {outer.limit}")
    if outer.offset:
        lines.append(f"OFFSET {outer.offset}")
    return "\n".join(lines)


def emit_simulations(outer: OuterQuery, above: ReleasedTables, noisy: Sequence[int]) -> str:
    """Return the query for each draw of simulated tables: the number of the draw, and the outputs, as DOUBLE where `noisy`.

    Where each row comes from one released row, its ordinal and branch follow.
    """
    items = [
        f"TRY_CAST(o{place} AS DOUBLE) AS o{place}" if place in noisy else f"o{place}"
        for place in range(len(outer.outputs))
    ]
    if find_provenance(outer) is not None:
        items += [quote_identifier(ORDINAL), quote_identifier(BRANCH)]
    draws, draw = quote_identifier(DRAWS), quote_identifier(DRAW)
    query = emit_outer_query(outer, above, traced=True)
    return f"SELECT {draws}.{draw}, {', '.join(items)} FROM {draws}, LATERAL (\n{query}\n) AS {quote_identifier('#rows')}"


def _emit_outer_source(
    outer: OuterQuery, above: ReleasedTables | OriginalTables, *, traced: bool
) -> tuple[str, list[str]]:
    read: list[Expr] = [output.expr for output in outer.outputs]
    read += [item.expr for item in outer.order]
    read += [part for part in (outer.having, outer.qualify) if part is not None]
    if isinstance(outer.source, Release):
        return above.emit_released_table(outer.source, read), above.emit_group_conditions(outer.source)
    if traced:
        return _emit_traced_source(outer.source, above)
    return emit_from_clause(DUCKDB_COMPILER, outer.source, read, above)


def _emit_traced_source(relation: Relation, above: ReleasedTables | OriginalTables) -> tuple[str, list[str]]:
    """Return the FROM text and the conditions of a traced relation, with the origins of its rows."""
    match relation:
        case Filter():
            source, conditions = _emit_traced_source(relation.input, above)
            return source, [*conditions, DUCKDB_COMPILER.emit_expression(relation.predicate)]
        case PublicSubquery():
            names = [column.name for column in relation.columns]
            return (
                f"({emit_outer_query(relation.outer, above, names, traced=True)}) AS {quote_identifier(relation.alias)}",
                [],
            )
        case Project():
            source, conditions = _emit_traced_source(relation.input, above)
            items = map(DUCKDB_COMPILER.emit_expression, relation.items)
            text = _emit_with_origins(items, relation.columns, source, conditions, quote_identifier(BRANCH))
            return f"({text}) AS {quote_identifier(relation.alias)}", []
        case SetOperation(left=left, right=right):
            sides = (
                _emit_traced_side(relation, left, 0, above),
                _emit_traced_side(relation, right, count_branches(left), above),
            )
            return f"({' UNION ALL '.join(sides)}) AS {quote_identifier(relation.alias)}", []
        case Join(left=left, right=PerUnitGroupBy() as right):
            source, conditions = _emit_traced_source(left, above)
            on = [
                f"{DUCKDB_COMPILER.emit_expression(ours)} = {emit_column(theirs)}"
                for ours, theirs in relation.on
            ]
            beside, _ = emit_from_clause(DUCKDB_COMPILER, right, right.columns, above)
            return f"{source}\n    LEFT JOIN {beside} ON {' AND '.join(on)}", conditions
        case _:
            raise TypeError("only relations that keep each row can be traced")


def _is_join(source: Release | Relation) -> bool:
    """Return whether a source is a join, which keeps no order."""
    return isinstance(source, Join) or (isinstance(source, Filter) and _is_join(source.input))


def _emit_traced_side(
    operation: SetOperation, side: Source, first: int, above: ReleasedTables | OriginalTables
) -> str:
    """Return one side of a UNION ALL, whose branches are numbered from `first` on."""
    if isinstance(side, Scan):
        raise TypeError("a side must have the columns of the whole")
    source, conditions = _emit_traced_source(side, above)
    items = (
        emit_column(theirs)
        if ours.type is theirs.type
        else DUCKDB_COMPILER.emit_cast(emit_column(theirs), ours.type)
        for ours, theirs in zip(operation.columns, side.columns, strict=True)
    )
    return _emit_with_origins(
        items, operation.columns, source, conditions, f"{quote_identifier(BRANCH)} + {first}"
    )


def _emit_with_origins(
    items: Iterable[str], named: Iterable[Column], source: str, conditions: Sequence[str], branch: str
) -> str:
    """Return the query of items by column name, together with the origins of their rows."""
    listed = [f"{item} AS {quote_identifier(name.name)}" for item, name in zip(items, named, strict=True)]
    listed += [quote_identifier(ORDINAL), f"{branch} AS {quote_identifier(BRANCH)}"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(listed)} FROM {source}{where}"
