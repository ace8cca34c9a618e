"""Plans to engine SQL: one statement that bounds contributions and adds up exact integers.

The statement depends on the plan, the policy and public metadata alone, so it is the same on all
neighbouring databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis, Measure
from dpsql.analysis.blocks import ROWS, UNITS, Statistic
from dpsql.analysis.stability import Bound
from dpsql.plan.nodes import private_scans
from dpsql.plan.tables import UnitKind
from dpsql.sql.keys import shown
from dpsql.sql.lattice_text import point
from dpsql.sql.rows import VALUE, rows

# Names that no table of the policy has: a common table expression would hide a table of its name.
CONTRIBUTION, EXCESS, RANKED = '"#contribution"', '"#excess"', '"#ranked"'
_NAMES = {Moment.COUNT: "c", Moment.TOTAL: "t"}


@dataclass(frozen=True, slots=True)
class Statement:
    """Engine SQL whose result has the group keys first, then the `statistics`, in lattice steps."""

    sql: str
    keys: int
    statistics: tuple[Statistic, ...]


def emit(analysis: Analysis) -> Statement:
    """The one statement that reads private rows for a release."""
    keys = [key.name for key in analysis.release.keys]
    sums = tuple(_sums(analysis))
    if analysis.bound.per_unit:
        body, counts = _per_unit(analysis, keys), {"units": UNITS, "n": ROWS}
    else:
        body, counts = _per_row(analysis, keys), {"n": ROWS}
    values = tuple((Moment.DISTINCT, index) for index, part in enumerate(analysis.measures) if part.distinct)
    if values:
        body = _with_values(analysis, keys, body, [*counts, *_sum_names(analysis)])
    texts = shown(analysis)
    if texts:
        read = [*counts, *_sum_names(analysis), *(f"d{index}" for _, index in values)]
        items = [*(f"{texts.get(key, key)} AS {key}" for key in keys), *read]
        body = f"SELECT {', '.join(items)}\nFROM ({body})"
    if keys:
        body += f"\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"
    return Statement(body, len(keys), (*counts.values(), *sums, *values))


def _sums(analysis: Analysis) -> Iterable[Statistic]:
    for index, measure in _summed(analysis):
        yield (Moment.COUNT, index)
        if measure.lattice is not None:
            yield (Moment.TOTAL, index)


def _summed(analysis: Analysis) -> Iterable[tuple[int, Measure]]:
    """The measures whose rows are counted, with their numbers."""
    return ((index, measure) for index, measure in enumerate(analysis.measures) if measure.rows)


def _sum_names(analysis: Analysis) -> list[str]:
    return [f"{_NAMES[moment]}{index}" for moment, index in _sums(analysis)]


def _per_row(analysis: Analysis, keys: list[str]) -> str:
    """Each row is a unit: aggregated as it comes."""
    lines = [
        f"SELECT {', '.join([*keys, 'COUNT(*) AS n', *_row_aggregates(analysis)])}",
        f"FROM ({rows(analysis)})",
    ]
    return "\n".join([*lines, *_grouping(keys, analysis.bound.min_frequency)])


def _row_aggregates(analysis: Analysis) -> Iterable[str]:
    for index, measure in _summed(analysis):
        yield f"COUNT(x{index}) AS c{index}"
        if measure.lattice is not None:
            yield f"SUM({_point(measure, f'x{index}')}) AS t{index}"


def _grouping(keys: list[str], min_frequency: int) -> Iterable[str]:
    if keys:
        yield f"GROUP BY {', '.join(keys)}"
        if min_frequency > 1:
            yield f"HAVING COUNT(*) >= {min_frequency}"


def _per_unit(analysis: Analysis, keys: list[str]) -> str:
    """Rows are first aggregated by unit and group, then bounded, then added up over units."""
    bound = analysis.bound
    contribution = (
        f"SELECT {', '.join(['u', *keys, 'COUNT(*) AS n', *_row_aggregates(analysis)])}\n"
        f"  FROM ({rows(analysis)})\n  GROUP BY {', '.join(['u', *keys])}"
    )
    ctes = [f"{CONTRIBUTION} AS (\n  {contribution}\n)"]
    if keys:
        ctes += _ranking(analysis, bound, keys)
        source = _bounded(bound, ", ".join([*keys, *_sum_names(analysis)]))
    else:
        listed = ", ".join([*_sum_names(analysis), f"LEAST(n, {bound.rows}) AS m"])
        source = f"SELECT {listed} FROM {CONTRIBUTION}"
    totals = ["COUNT(*) AS units", "SUM(m) AS n", *_unit_aggregates(analysis)]
    return "\n".join(
        [
            f"WITH {', '.join(ctes)}",
            f"SELECT {', '.join([*keys, *totals])}",
            f"FROM ({source})",
            "WHERE m > 0",
            *_grouping(keys, bound.min_frequency),
        ]
    )


def _with_values(analysis: Analysis, keys: Sequence[str], body: str, read: Sequence[str]) -> str:
    """The groups, each with the numbers of values that are counted beside its rows."""
    items = [*(f"g.{name}" for name in (*keys, *read))]
    lines = [f"FROM ({body}) AS g"]
    for index, measure in enumerate(analysis.measures):
        if measure.distinct:
            # A group of the other rows may have no value at all.
            items.append(f"COALESCE(v{index}.d, 0) AS d{index}")
            on = " AND ".join(f"g.{key} IS NOT DISTINCT FROM v{index}.{key}" for key in keys)
            lines.append(f"LEFT JOIN ({_values(analysis, measure, keys)}) AS v{index} ON {on or 'TRUE'}")
    return "\n".join([f"SELECT {', '.join(items)}", *lines])


def _values(analysis: Analysis, measure: Measure, keys: Sequence[str]) -> str:
    """How many values each group has, of each unit as many pairs of a group and a value as its rows that count."""
    by = f" GROUP BY {', '.join(keys)}" * bool(keys)
    counted = ", ".join([*keys, f"COUNT(DISTINCT {VALUE}) AS d"])
    source = f"SELECT * FROM ({rows(analysis, measure)}) WHERE {VALUE} IS NOT NULL"
    if not analysis.bound.per_unit:
        return f"SELECT {counted} FROM ({source}){by}"
    pair = [*keys, VALUE]
    grouped = (
        f"SELECT {', '.join(['u', *pair])}, 1 AS n\n  FROM ({source})\n  GROUP BY {', '.join(['u', *pair])}"
    )
    bound = replace(analysis.bound, limited=False)
    ctes = [f"{CONTRIBUTION} AS (\n  {grouped}\n)", *_ranking(analysis, bound, pair)]
    return (
        f"WITH {', '.join(ctes)}\nSELECT {counted} FROM ({_bounded(bound, ', '.join(pair))}) WHERE m > 0{by}"
    )


def _ranking(analysis: Analysis, bound: Bound, keys: Sequence[str]) -> list[str]:
    """The units that pass a bound, and their groups in the order in which these count."""
    return [f"{EXCESS} AS (\n  {_excess(bound)}\n)", f"{RANKED} AS (\n  {_ranked(analysis, keys)}\n)"]


def _excess(bound: Bound) -> str:
    """The units that pass a bound: few, where the owner has chosen it well, and they alone are ranked."""
    passed = [f"SUM(n) > {bound.rows}", *([f"COUNT(*) > {bound.groups}"] if bound.limited else [])]
    return f"SELECT u FROM {CONTRIBUTION} GROUP BY u HAVING {' OR '.join(passed)}"


def _ranked(analysis: Analysis, keys: Sequence[str]) -> str:
    """The groups of these units, in an order that depends on the unit's own rows alone."""
    by_column = private_scans(analysis.release.input)[0].unit.kind is UnitKind.COLUMN
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
    for index, measure in _summed(analysis):
        count = f"LEAST(c{index}, m)"
        yield f"SUM({count}) AS c{index}"
        if measure.lattice is not None:
            low, high = measure.lattice.low, measure.lattice.high
            yield f"SUM(LEAST(GREATEST(t{index}, {count} * ({low})), {count} * ({high}))) AS t{index}"


def _point(measure: Measure, name: str) -> str:
    if measure.lattice is None:
        raise TypeError("only measures with a lattice are added up")
    return point(measure.expr, measure.lattice, name, measure.interval)
