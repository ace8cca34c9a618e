"""Plans to engine SQL: one statement that bounds contributions and adds up exact integers.

The statement depends on the plan, the policy and public metadata alone, so it is the same on all
neighbouring databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis, Measure
from dpsql.analysis.blocks import ROWS, UNITS, Statistic
from dpsql.analysis.domains import nullable
from dpsql.analysis.stability import Bound
from dpsql.plan.expr import Column, Expr, columns
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import Filter, Join, Key, Post, Relation, Scan, UnitKind, private_scan
from dpsql.plan.types import Type, common
from dpsql.sql.clean import CALENDAR, NAN, clean, confine
from dpsql.sql.scalar_text import MAX_INTEGER, column, constant, identifier, write

UNIT = "#unit"
# Names that no table of the policy has: a common table expression would hide a table of its name.
CONTRIBUTION, EXCESS, RANKED = '"#contribution"', '"#excess"', '"#ranked"'
RELEASED = "released"
ORDINAL = "#"


@dataclass(frozen=True, slots=True)
class Statement:
    """Engine SQL whose result has the group keys first, then the `statistics`, in lattice steps."""

    sql: str
    keys: int
    statistics: tuple[Statistic, ...]


def emit(analysis: Analysis) -> Statement:
    """The one statement that reads private rows for a release."""
    keys = [key.name for key in analysis.release.keys]
    sums = [*_sums(analysis)]
    if analysis.bound.per_unit:
        body = _per_unit(analysis, keys)
        statistics: list[Statistic] = [UNITS, ROWS]
    else:
        body = _per_row(analysis, keys)
        statistics = [ROWS]
    return Statement(body, len(keys), (*statistics, *sums))


def _sums(analysis: Analysis) -> Iterable[Statistic]:
    for index, measure in enumerate(analysis.measures):
        yield (Moment.COUNT, index)
        if measure.lattice is not None:
            yield (Moment.TOTAL, index)


def _per_row(analysis: Analysis, keys: list[str]) -> str:
    """Each row is a unit: aggregated as it comes, by keys as they are, then by keys in their domain.

    Totals of totals are the same, and the domain is looked up once for each group instead of each row.
    """
    late = {key.name: key.expr for key in analysis.release.keys if _confined_late(key.expr, analysis)}
    aggregates = ["COUNT(*) AS n", *_row_aggregates(analysis)]
    if not late:
        lines = [f"SELECT {', '.join([*keys, *aggregates])}", f"FROM ({_rows(analysis)})"]
        return "\n".join([*lines, *_grouping(keys, "COUNT(*)", analysis.bound.min_frequency)])
    raw = ", ".join(f"raw_{key}" for key in keys)
    shown = [
        f"{confine(f'raw_{key}', late[key].facts) if key in late else f'raw_{key}'} AS {key}" for key in keys
    ]
    excluded = [
        f"{confine(f'raw_{name}', key.facts)} IS NOT NULL" for name, key in late.items() if not nullable(key)
    ]
    totals = [f"SUM({name}) AS {name}" for name in ("n", *_sum_names(analysis))]
    lines = [
        f"SELECT {', '.join([*shown, *totals])}",
        f"FROM (SELECT {', '.join([raw, *aggregates])}",
        f"  FROM ({_rows(_unconfined(analysis, late))})",
        f"  GROUP BY {raw})",
        *([f"WHERE {' AND '.join(excluded)}"] if excluded else []),
    ]
    return "\n".join([*lines, *_grouping(keys, "SUM(n)", analysis.bound.min_frequency)])


def _confined_late(key: Expr, analysis: Analysis) -> TypeGuard[Column]:
    """Whether a key is a column with a domain that the query uses for nothing else."""
    if not isinstance(key, Column) or key.facts.domain is None:
        return False
    return sum((part.source, part.name) == (key.source, key.name) for part in _columns(analysis)) == 1


def _unconfined(analysis: Analysis, late: Mapping[str, Column]) -> Analysis:
    """The analysis with these keys read as they are, under raw names."""
    keys = []
    for key in analysis.release.keys:
        expr = key.expr
        if key.name in late:
            facts = replace(late[key.name].facts, domain=None, interval=ANYWHERE, nullable=True)
            expr = replace(late[key.name], facts=facts)
        keys.append(Key(f"raw_{key.name}", expr))
    return replace(analysis, release=replace(analysis.release, keys=tuple(keys)))


def _sum_names(analysis: Analysis) -> list[str]:
    return [f"{_NAMES[moment]}{index}" for moment, index in _sums(analysis)]


def _row_aggregates(analysis: Analysis) -> Iterable[str]:
    for index, measure in enumerate(analysis.measures):
        yield f"COUNT(x{index}) AS c{index}"
        if measure.lattice is not None:
            yield f"SUM({_lattice(measure, f'x{index}')}) AS t{index}"


def _grouping(keys: list[str], units: str, min_frequency: int) -> Iterable[str]:
    if keys:
        yield f"GROUP BY {', '.join(keys)}"
        if min_frequency > 1:
            yield f"HAVING {units} >= {min_frequency}"
        yield f"ORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"


def _per_unit(analysis: Analysis, keys: list[str]) -> str:
    """Rows are first aggregated by unit and group, then bounded, then added up over units."""
    bound = analysis.bound
    one_group = bound.constant_keys or not keys
    group_by = ["u"] if one_group else ["u", *keys]
    # Where the owner says that keys are constant for a unit, the engine makes it so.
    shown = [f"MIN({key}) AS {key}" for key in keys] if one_group else keys
    contribution = (
        f"SELECT u, {', '.join([*shown, 'COUNT(*) AS n', *_row_aggregates(analysis)])}\n"
        f"  FROM ({_rows(analysis)})\n  GROUP BY {', '.join(group_by)}"
    )
    ctes = [f"{CONTRIBUTION} AS (\n  {contribution}\n)"]
    kept = [*keys, *_sum_names(analysis)]
    if one_group:
        source = f"SELECT {', '.join([*kept, f'LEAST(n, {bound.rows}) AS m'])} FROM {CONTRIBUTION}"
    else:
        ctes += [f"{EXCESS} AS (\n  {_excess(bound)}\n)", f"{RANKED} AS (\n  {_ranked(analysis, keys)}\n)"]
        source = _bounded(bound, ", ".join(kept))
    totals = ["COUNT(*) AS units", "SUM(m) AS n", *_unit_aggregates(analysis)]
    return "\n".join(
        [
            f"WITH {', '.join(ctes)}",
            f"SELECT {', '.join([*keys, *totals])}",
            f"FROM ({source})",
            "WHERE m > 0",
            *_grouping(keys, "COUNT(*)", bound.min_frequency),
        ]
    )


_NAMES = {Moment.COUNT: "c", Moment.TOTAL: "t"}


def _excess(bound: Bound) -> str:
    """The units that pass a bound: few, where the owner has chosen it well, and they alone are ranked."""
    passed = [f"SUM(n) > {bound.rows}", *([f"COUNT(*) > {bound.groups}"] if bound.limited else [])]
    return f"SELECT u FROM {CONTRIBUTION} GROUP BY u HAVING {' OR '.join(passed)}"


def _ranked(analysis: Analysis, keys: list[str]) -> str:
    """The groups of these units, in an order that depends on the unit's own rows alone."""
    by_column = private_scan(analysis.release.input).unit.kind is UnitKind.COLUMN
    # Hashed twice: one hash of several values keeps traces of each, and would favour some keys.
    # A row's number is no property of the row: other rows' would change if one were removed.
    seed = ", ".join(["u", *keys] if by_column else keys)
    return (
        f"SELECT *, ROW_NUMBER() OVER w AS place, SUM(n) OVER w AS upto FROM {CONTRIBUTION} SEMI JOIN {EXCESS} USING (u)\n"
        f"  WINDOW w AS (PARTITION BY u ORDER BY HASH(HASH({seed})), {', '.join(keys)} ROWS UNBOUNDED PRECEDING)"
    )


def _bounded(bound: Bound, kept: str) -> str:
    """All groups with the number of rows that count, m: the first rows in rank order, then none."""
    allowed = f"LEAST(n, GREATEST(0, {bound.rows} - (upto - n)))"
    ranked = f"SELECT {kept}, {allowed} AS m FROM {RANKED}"
    if bound.limited:
        ranked += f" WHERE place <= {bound.groups}"
    return f"SELECT {kept}, n AS m FROM {CONTRIBUTION} ANTI JOIN {EXCESS} USING (u)\n  UNION ALL {ranked}"


def _unit_aggregates(analysis: Analysis) -> Iterable[str]:
    for index, measure in enumerate(analysis.measures):
        count = f"LEAST(c{index}, m)"
        yield f"SUM({count}) AS c{index}"
        if measure.lattice is not None:
            low, high = measure.lattice.low, measure.lattice.high
            yield f"SUM(LEAST(GREATEST(t{index}, {count} * ({low})), {count} * ({high}))) AS t{index}"


def _rows(analysis: Analysis) -> str:
    """The rows of the relation: the unit, the keys, the measures."""
    release, bound = analysis.release, analysis.bound
    items = [f"{_key(key.expr)} AS {key.name}" for key in release.keys]
    items += [f"{_measured(measure)} AS x{index}" for index, measure in enumerate(analysis.measures)]
    where = [f"{_key(key.expr)} IS NOT NULL" for key in release.keys if not nullable(key.expr)]
    if bound.per_unit:
        unit = private_scan(release.input)
        name = f"{identifier(unit.alias)}.{identifier(UNIT)}"
        items.insert(0, f"{name} AS u")
        where.insert(0, f"{name} IS NOT NULL")
    source, conditions = _relation(analysis, release.input)
    conditions = [*conditions, *where]
    text = f"SELECT {', '.join(items) or '1'} FROM {source}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text


def _key(expr: Expr) -> str:
    """A group key with one form for each value: equal keys must not differ in how they are shown.

    -0.0 becomes 0.0, NaN NULL, and so does a day or moment that Python's calendar cannot hold.
    """
    text = write(expr)
    if expr.type is Type.DOUBLE:
        return f"NULLIF({text} + 0, {NAN})"
    if expr.type.temporal and not isinstance(expr, Column):
        low, high = map(constant, CALENDAR[expr.type])
        return f"CASE WHEN {text} BETWEEN {low} AND {high} THEN {text} END"
    return f'({text} COLLATE "binary")' if expr.type is Type.VARCHAR else text


def _measured(measure: Measure) -> str:
    text = write(measure.expr)
    computed = measure.expr.type is Type.DOUBLE and not isinstance(measure.expr, Column)
    return f"NULLIF({text}, {NAN})" if computed else text


def _lattice(measure: Measure, name: str) -> str:
    """The lattice point of a value that is not NaN, clamped unless it was when it was read."""
    lattice = measure.lattice
    if lattice is None:
        raise TypeError("only measures with a lattice are added up")
    if lattice.exponent == 0 and measure.expr.type is Type.INTEGER:
        point = name
    else:
        point = f"CAST({name} * {constant(float(1 / lattice.step))} AS BIGINT)"
    if isinstance(measure.expr, Column) and measure.expr.facts.interval == measure.interval:
        return point
    low, high = (constant(float(end)) for end in lattice.interval.ends)
    if measure.expr.type is Type.INTEGER:
        low, high = (constant(max(-MAX_INTEGER, min(MAX_INTEGER, int(end)))) for end in lattice.interval.ends)
    clamped = f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {point}"
    return f"{clamped} WHEN {name} < {low} THEN {lattice.low} WHEN {name} > {high} THEN {lattice.high} END"


def _relation(analysis: Analysis, relation: Relation) -> tuple[str, list[str]]:
    """The FROM text and the conditions of a relation."""
    match relation:
        case Scan():
            return _scan(analysis, relation), []
        case Filter():
            source, conditions = _relation(analysis, relation.input)
            return source, [*conditions, write(relation.predicate)]
        case Join():
            left, conditions = _relation(analysis, relation.left)
            on = " AND ".join(f"{write(ours)} = {column(theirs)}" for ours, theirs in relation.on)
            right = _scan(analysis, relation.right)
            return f"{left}\n    {relation.kind.value} JOIN {right} ON {on}", conditions


def _scan(analysis: Analysis, scan: Scan) -> str:
    """The columns of a table that the query reads, cleaned, under the table's alias."""
    used = {part.name: part for part in _columns(analysis) if part.source == scan.alias}
    items = _cleaned(used.values())
    if scan.unit.private and analysis.bound.per_unit:
        unit = "ROW_NUMBER() OVER ()" if scan.unit.column is None else identifier(scan.unit.column.name)
        items.append(f"{unit} AS {identifier(UNIT)}")
    return f"(SELECT {', '.join(items) or '1'} FROM {identifier(scan.table)}) AS {identifier(scan.alias)}"


def _cleaned(used: Iterable[Column]) -> list[str]:
    return [f"{clean(part)} AS {identifier(part.name)}" for part in used]


def emit_multiplicity(join: Join) -> str:
    """The query for the most rows of a join's public side that one row can be equal to.

    Keys are compared as the join compares them: cleaned, and in the common type of both sides, in
    which keys that differ as stored may be equal.
    """
    keys = []
    for ours, theirs in join.on:
        shared = common((ours.type, theirs.type)) or theirs.type
        text = f"CAST({column(theirs)} AS {shared.value})"
        keys.append(f"{text} + 0" if shared is Type.DOUBLE else text)  # -0.0 equals 0.0
    used = {theirs.name: theirs for _, theirs in join.on}
    source = f"(SELECT {', '.join(_cleaned(used.values()))} FROM {identifier(join.right.table)})"
    present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    return (
        f"SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM {source} AS {identifier(join.right.alias)} "
        f"WHERE {present} GROUP BY {', '.join(keys)})"
    )


def _columns(analysis: Analysis) -> Iterable[Column]:
    for key in analysis.release.keys:
        yield from columns(key.expr)
    for measure in analysis.measures:
        yield from columns(measure.expr)
    yield from _relation_columns(analysis.release.input)


def _relation_columns(relation: Relation) -> Iterable[Column]:
    match relation:
        case Scan():
            return
        case Filter():
            yield from columns(relation.predicate)
            yield from _relation_columns(relation.input)
        case Join():
            for ours, theirs in relation.on:
                yield from columns(ours)
                yield theirs
            yield from _relation_columns(relation.left)


def emit_post(post: Post) -> str:
    """The SQL that runs on the released table alone: outputs, then the ordinal of the released row."""
    outputs = [f"{write(output.expr)} AS o{index}" for index, output in enumerate(post.outputs)]
    lines = [f"SELECT {', '.join([*outputs, identifier(ORDINAL)])}", f"FROM {RELEASED}"]
    if post.having is not None:
        lines.append(f"WHERE {write(post.having)}")
    order = [
        f"{write(item.expr)} {'DESC' if item.descending else 'ASC'} NULLS {'FIRST' if item.nulls_first else 'LAST'}"
        for item in post.order
    ]
    lines.append(f"ORDER BY {', '.join([*order, identifier(ORDINAL)])}")
    if post.limit is not None:
        lines.append(f"LIMIT {post.limit}")
    if post.offset:
        lines.append(f"OFFSET {post.offset}")
    return "\n".join(lines)
