"""Emit the statement of a release, the scores of its groups, and the marginals of its counts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.nodes import Values
from dpsql.plan.types import Type, Value
from dpsql.planning.clamp_histogram import ClampedSum, list_clamp_targets
from dpsql.planning.clamping import Clamp
from dpsql.planning.group_selection import TopKSelection
from dpsql.planning.quantiles import QuantileSelection
from dpsql.planning.statistics import ROWS, UNITS, Statistic, bound_counted_pairs
from dpsql.sql.compile.columns import name_group_keys, name_histogram, name_value, name_window
from dpsql.sql.compile.compiler import Compiler, emit_cte
from dpsql.sql.compile.contribution_bounds import (
    CONTRIBUTION,
    COUNTED,
    emit_bounded_groups,
    emit_counted_pairs,
    needs_group_ranks,
)
from dpsql.sql.compile.group_keys import emit_having_clause, emit_key_values
from dpsql.sql.compile.joint_intervals import MOST_JOINT, bound_joint_intervals, emit_histograms
from dpsql.sql.compile.lattice import UnitSums, emit_measure_total, emit_point_sum
from dpsql.sql.compile.quantile_windows import emit_quantile_windows
from dpsql.sql.compile.relations import VALUE, emit_rows
from dpsql.sql.compile.staged_statement import (
    SELECTED,
    Stages,
    emit_clamped_groups,
    emit_clamped_sums,
    emit_stages,
)

# Emit the scores of groups for top-k selection, with the contribution of each unit clamped.


SCORE = "score"
"""The column of a group's score."""


def emit_scores(compiler: Compiler, analysis: Analysis, top_k: TopKSelection) -> str:
    """Return the query for the group keys and the score of each group that has rows."""
    (item,) = analysis.release.aggregations
    (moment,) = AGGREGATES[item.function].moments
    keys = name_group_keys(analysis.release)
    by = ", ".join(keys)
    share = f"LEAST(GREATEST({_emit_unit_score(compiler, analysis, moment)}, {top_k.low}), {top_k.high})"
    if analysis.bound.per_unit:
        source = f"SELECT {by}, {share} AS unit_score\n  FROM {compiler.dialect.queries.emit_derived_table(emit_rows(compiler, analysis))}\n  GROUP BY unit_id, {by}"
        body = f"SELECT {by}, SUM(unit_score) AS score\nFROM {compiler.dialect.queries.emit_derived_table(source)}\nGROUP BY {by}"
    else:
        body = f"SELECT {by}, {_emit_unit_score(compiler, analysis, moment)} AS score\nFROM {compiler.dialect.queries.emit_derived_table(emit_rows(compiler, analysis))}\nGROUP BY {by}"
    texts = emit_key_values(compiler, analysis)
    if texts:
        body = f"SELECT {', '.join(f'{texts.get(key, key)} AS {key}' for key in keys)}, score\nFROM {compiler.dialect.queries.emit_derived_table(body)}"
    return f"{body}\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"


def _emit_unit_score(compiler: Compiler, analysis: Analysis, moment: Moment) -> str:
    match moment:
        case Moment.ROWS:
            return "COUNT(*)"
        case Moment.UNITS:
            return "1" if analysis.bound.per_unit else "COUNT(*)"
        case Moment.COUNT:
            return f"COUNT({name_value(0)})"
        case _:
            return f"COALESCE({emit_measure_total(compiler, analysis.measures[0], 0)}, 0)"


# Emit the engine SQL of a release: one statement that bounds contributions and sums exact integers.


@dataclass(frozen=True, slots=True)
class ReleaseStatement:
    """Engine SQL and the names of its columns by content, in the order of the text.

    `moments` are exact statistics in lattice steps, by their columns. `histograms` are read by
    `planning.clamp_histogram.ClampHistogram`, one for each of its targets, `windows` by `planning.quantiles.RankWindow`, one
    for each quantile. A top-k statement has the `score` of each group and nothing else. With `stages`, its rows are read
    in stages instead, from which `emit_sums` gives the groups, with `clamped_sums` sums in place of histograms. `held_queries` are the
    temporary tables that the text reads, by their names with their queries, on an engine that holds rows in them. Rows of
    several sets of keys say in `left_out` which keys theirs leaves out.
    """

    sql: str
    keys: tuple[str, ...]
    moments: Mapping[str, Statistic] = field(default_factory=dict, hash=False)
    histograms: tuple[str, ...] = ()
    clamped_sums: Mapping[str, ClampedSum] = field(default_factory=dict, hash=False)
    windows: tuple[str, ...] = ()
    score: str | None = None
    stages: Stages | None = field(default=None, hash=False)
    held_queries: tuple[tuple[str, str], ...] = field(default=(), hash=False)
    left_out: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        score = () if self.score is None else (self.score,)
        left_out = () if self.left_out is None else (self.left_out,)
        read = (*self.moments, *self.histograms, *self.clamped_sums, *self.windows)
        return (*self.keys, *read, *score, *left_out)

    def label_row(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row of the result, by the names of its columns."""
        return dict(zip(self.columns, row, strict=True))


def emit_release(
    compiler: Compiler,
    analysis: Analysis,
    quantiles: Sequence[QuantileSelection] = (),
    top_k: TopKSelection | None = None,
    clamps: Sequence[Clamp] = (),
    *,
    counted: Container[int] | None = None,
) -> ReleaseStatement:
    """Return the only statement that reads private rows for a release, in the dialect of the compiler.

    It counts the values of the `counted` measures, or of all. Where units are sampled, its secret decides which.

    Its result has a window for each of the `quantiles`, and histograms for the `clamps`; with `top_k`, only scores. With
    clamps by group, it also has their stages, where the engine can have temporary tables. Raises QueryRejected, with code
    `engine` or `engine_function`, for what the engine of the dialect cannot be asked for.

    The statement depends on the plan, the policy and public metadata only, so it is the same on all neighboring databases.
    """
    compiler.dialect.support.require_supported_release(analysis.release)
    held = list[tuple[str, str]]()
    compiler = replace(compiler, held=held)
    statement = _emit_release(UnitSums(compiler, analysis, counted), quantiles, top_k, clamps)
    for text in (statement.sql, *(query for _, query in held)):
        compiler.dialect.support.require_readable_sql(text)
    return replace(statement, held_queries=tuple(held))


def _emit_release(
    sums: UnitSums,
    quantiles: Sequence[QuantileSelection],
    top_k: TopKSelection | None,
    clamps: Sequence[Clamp],
) -> ReleaseStatement:
    compiler, analysis, keys = sums.compiler, sums.analysis, name_group_keys(sums.analysis.release)
    if top_k is not None:
        return ReleaseStatement(emit_scores(compiler, analysis, top_k), tuple(keys), score=SCORE)
    if not analysis.bound.per_unit:
        return _finish_statement(compiler, analysis, _emit_per_row(sums), quantiles, sums.moments)
    histograms = tuple(name_histogram(index) for index in range(len(list_clamp_targets(clamps))))
    body = _emit_per_unit(sums, clamps)
    whole = _finish_statement(compiler, analysis, body, quantiles, sums.moments, steps=histograms)
    whole = replace(whole, histograms=histograms)
    if not clamps or not _needs_stages(compiler, analysis, clamps):
        return whole
    before = list[tuple[str, str]]()
    ctes, source = _emit_pairs(replace(sums, compiler=replace(compiler, held=before)), clamps)
    made = emit_stages(compiler, analysis, clamps, (ctes, source), sums.pair_columns)
    return replace(whole, stages=replace(made, tables=(*before, *made.tables)))


def _needs_stages(compiler: Compiler, analysis: Analysis, clamps: Sequence[Clamp]) -> bool:
    """Return whether a release is read in stages: with many joint intervals, or with keys where the engine reads rows anew.

    With many, one statement adds all its sums up by the intervals of each clamp: so its work is quadratic in their number.
    """
    few = bound_joint_intervals(analysis, clamps) <= MOST_JOINT
    return compiler.dialect.capabilities.supports_stages and not (
        few and (compiler.dialect.capabilities.materializes_ctes or not analysis.release.keys)
    )


def emit_sums(
    compiler: Compiler,
    analysis: Analysis,
    quantiles: Sequence[QuantileSelection] = (),
    clamps: Sequence[Clamp] = (),
    *,
    selected: Sequence[tuple[Value, ...]] | None = None,
    unclamped: Container[Statistic] = (),
) -> ReleaseStatement:
    """Return the last stage of a release: its groups, clamped to the points that are chosen so far, as the statement has them.

    Of the moments without a clamp it has the `unclamped` ones and the numbers of units. With `selected`, only the groups
    with these keys: see `can_read_selected`.
    """
    held = list[tuple[str, str]]()
    whole = UnitSums(replace(compiler, held=held), analysis)
    statement = _emit_sums(whole, quantiles, clamps, selected, unclamped)
    return replace(statement, held_queries=tuple(held))


def _emit_sums(
    whole: UnitSums,
    quantiles: Sequence[QuantileSelection],
    clamps: Sequence[Clamp],
    selected: Sequence[tuple[Value, ...]] | None,
    unclamped: Container[Statistic],
) -> ReleaseStatement:
    compiler, analysis = whole.compiler, whole.analysis
    sums = emit_clamped_sums(compiler, analysis, clamps)
    clamped = {f"clamped_{part.target + 1}_{part.place}": part for part in sums}
    moments = {name: part for name, part in whole.moments.items() if part == UNITS or part in unclamped}
    summed = whole.pair_summands
    totals = [
        *(f"{summed[name].emit_sum(compiler)} AS {name}" for name in moments),
        *(f"{sums[part]} AS {name}" for name, part in clamped.items()),
    ]
    values = None
    if selected is not None:
        columns = tuple(
            Column(SELECTED, name, ColumnInfo(key.expr.type, ""))
            for name, key in zip(name_group_keys(analysis.release), analysis.release.keys, strict=True)
        )
        values = Values(tuple(selected), SELECTED, columns)
    body = emit_clamped_groups(compiler, analysis, clamps, totals, values)
    return replace(
        _finish_statement(compiler, analysis, body, quantiles, moments, steps=clamped), clamped_sums=clamped
    )


def can_read_selected(compiler: Compiler, analysis: Analysis, quantiles: Sequence[QuantileSelection]) -> bool:
    """Return whether the sums of a release can be read for its selected groups alone.

    Distinct values and quantiles read their groups for themselves. The keys must be whole numbers or texts that no index stands for,
    since the engine compares them with constants.
    """
    comparable = all(key.expr.type in (Type.INTEGER, Type.VARCHAR) for key in analysis.release.keys)
    beside = quantiles or any(part.counts_distinct or part.sums_distinct for part in analysis.measures)
    return comparable and not beside and not emit_key_values(compiler, analysis)


def _finish_statement(
    compiler: Compiler,
    analysis: Analysis,
    body: str,
    quantiles: Sequence[QuantileSelection],
    totals: Mapping[str, Statistic],
    *,
    steps: Iterable[str] = (),
) -> ReleaseStatement:
    """Return the statement over the groups of `body`, joined with distinct values and windows, ordered by the keys.

    `totals` are the columns of its moments, `steps` those of what clamps are chosen or computed from.
    """
    keys = name_group_keys(analysis.release)
    values = {
        f"distinct_count_{index + 1}": (Moment.DISTINCT, index)
        for index, part in enumerate(analysis.measures)
        if part.counts_distinct
    } | {
        f"distinct_total_{index + 1}": (Moment.DISTINCT_TOTAL, index)
        for index, part in enumerate(analysis.measures)
        if part.sums_distinct
    }
    moments: dict[str, Statistic] = {**totals, **values}
    read = [*totals, *steps]
    if values:
        body = _join_distinct_values(compiler, analysis, keys, body, read)
        # Histograms stand after all moments.
        read = [*moments, *steps]
    near = [name_window(index) for index in range(len(quantiles))]
    if quantiles:
        body = _join_quantile_windows(compiler, analysis, body, read, quantiles)
        read += near
        # The windows of a measure are adjacent, although its quantiles may be apart in the query.
        body = f"SELECT {', '.join([*keys, *read])}\nFROM {compiler.dialect.queries.emit_derived_table(body)}"
    texts = emit_key_values(compiler, analysis)
    if texts or (values and steps):
        items = [*(f"{texts.get(key, key)} AS {key}" for key in keys), *read]
        body = f"SELECT {', '.join(items)}\nFROM {compiler.dialect.queries.emit_derived_table(body)}"
    if keys and analysis.domains is None:
        body += f"\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"
    return ReleaseStatement(body, tuple(keys), moments, windows=tuple(near))


def _emit_per_row(sums: UnitSums) -> str:
    """Return the groups of a release whose rows are units: rows are aggregated directly."""
    compiler, analysis, keys = sums.compiler, sums.analysis, name_group_keys(sums.analysis.release)
    lines = [
        f"SELECT {', '.join([*keys, 'COUNT(*) AS row_count', *sums.row_sums])}",
        f"FROM {_emit_row_source(compiler, analysis)}",
    ]
    return "\n".join([*lines, *_emit_grouping(keys, analysis.bound.min_frequency)])


def _emit_row_source(compiler: Compiler, analysis: Analysis, *, all_places: bool = False) -> str:
    """Return the FROM rows; clamped expressions that are read several times are computed once."""
    computed = any(part.counts_rows and not isinstance(part.expr, Column) for part in analysis.measures)
    return compiler.dialect.queries.emit_derived_table(
        emit_rows(compiler, analysis, all_places=all_places), once=computed
    )


def _emit_grouping(keys: Sequence[str], min_frequency: int) -> Iterable[str]:
    if keys:
        yield f"GROUP BY {', '.join(keys)}"
        if min_frequency > 1:
            yield f"HAVING COUNT(*) >= {min_frequency}"


def _emit_per_unit(sums: UnitSums, clamps: Sequence[Clamp]) -> str:
    """Aggregate rows by unit and group, bound them, and sum them over units."""
    compiler, analysis, keys = sums.compiler, sums.analysis, name_group_keys(sums.analysis.release)
    ctes, source = _emit_pairs(sums, clamps)
    if clamps:
        pairs = emit_counted_pairs(compiler, analysis, clamps, source, sums.pair_columns)
        ctes.append(f"{COUNTED} AS (\n  {pairs}\n)")
        return f"WITH {', '.join(ctes)}\n{emit_histograms(sums, clamps)}"
    summed = {**sums.pair_summands, **dict(sums.iterate_limited_sums())}
    totals = [f"{part.emit_sum(compiler)} AS {name}" for name, part in summed.items()]
    return "\n".join(
        [
            f"WITH {', '.join(ctes)}",
            f"SELECT {', '.join([*keys, *totals])}",
            f"FROM {compiler.dialect.queries.emit_derived_table(source)}",
            "WHERE counted_rows > 0",
            *_emit_grouping(keys, analysis.bound.min_frequency),
        ]
    )


def _emit_pairs(sums: UnitSums, clamps: Sequence[Clamp]) -> tuple[list[str], str]:
    """Return the common table expressions and the query of the unit-group pairs with their counted rows."""
    compiler, analysis, keys = sums.compiler, sums.analysis, name_group_keys(sums.analysis.release)
    bound = analysis.bound
    contribution = (
        f"SELECT {', '.join(['unit_id', *keys, f'{sums.compiler.dialect.integers.emit_count()} AS unit_rows', *sums.row_sums])}\n"
        f"  FROM {_emit_row_source(compiler, analysis, all_places=True)}\n  GROUP BY {', '.join(['unit_id', *keys])}{emit_having_clause(compiler, analysis)}"
    )
    if not keys:
        listed = ", ".join([*sums.names, f"LEAST(unit_rows, {bound.rows}) AS counted_rows"])
        ctes, source = emit_cte(CONTRIBUTION, contribution)
        return ctes, f"SELECT {listed} FROM {source}"
    names = [*(["unit_id"] if needs_group_ranks(clamps) else []), *keys, *sums.names]
    # The first groups of a unit count.
    ranks = ["group_rank"] * (needs_group_ranks(clamps) and compiler.dialect.capabilities.ranks_all_groups)
    return emit_bounded_groups(
        compiler, analysis, bound, keys=keys, columns=", ".join([*names, *ranks]), contribution=contribution
    )


def _join_distinct_values(
    compiler: Compiler, analysis: Analysis, keys: Sequence[str], body: str, read: Sequence[str]
) -> str:
    """Return the groups, joined with their numbers of distinct values, and with their totals."""
    # A group of the rows may have no value.
    parts = [
        (
            f"COALESCE({{0}}.distinct_count, 0) AS distinct_count_{index + 1}",
            _emit_distinct_values(compiler, analysis, measure, keys),
        )
        for index, measure in enumerate(analysis.measures)
        if measure.counts_distinct
    ]
    parts += [
        (
            f"COALESCE({{0}}.distinct_total, 0) AS distinct_total_{index + 1}",
            _emit_distinct_values(compiler, analysis, measure, keys, total=True),
        )
        for index, measure in enumerate(analysis.measures)
        if measure.sums_distinct
    ]
    return _join_groups(compiler, keys, body, read, parts)


def _join_quantile_windows(
    compiler: Compiler,
    analysis: Analysis,
    body: str,
    read: Sequence[str],
    quantiles: Sequence[QuantileSelection],
) -> str:
    """Return the groups, joined with the windows of values near the ranks of the quantiles."""
    keys = name_group_keys(analysis.release)
    measures = dict.fromkeys(part.measure for part in quantiles)
    parts = []
    for measure in measures:
        asked = [(index, part) for index, part in enumerate(quantiles) if part.measure == measure]
        items = ", ".join(f"{{0}}.{name_window(index)}" for index, _ in asked)
        parts.append((items, emit_quantile_windows(compiler, analysis, keys, asked)))
    return _join_groups(compiler, keys, body, read, parts)


def _join_groups(
    compiler: Compiler, keys: Sequence[str], body: str, read: Sequence[str], parts: Sequence[tuple[str, str]]
) -> str:
    """Return a full join of the groups of `body` with the groups of further queries.

    So the counted rows of a group do not decide whether its values are released, which would raise the sensitivity.
    """
    texts = {key: f"counted_groups.{key}" for key in keys}
    items, lines = [f"counted_groups.{name}" for name in read], [f"FROM ({body}) AS counted_groups"]
    for index, (item, query) in enumerate(parts):
        name = f"joined_{index + 1}"
        items.append(item.format(name))
        on = [(text, f"{name}.{key}") for key, text in texts.items()]
        lines.append(
            compiler.dialect.queries.emit_full_join(query, name, on)
            if keys
            else f"LEFT JOIN ({query}) AS {name} ON TRUE"
        )
        texts = {key: f"COALESCE({text}, {name}.{key})" for key, text in texts.items()}
    named = [f"{text} AS {key}" for key, text in texts.items()]
    return "\n".join([f"SELECT {', '.join([*named, *items])}", *lines])


def _emit_distinct_values(
    compiler: Compiler, analysis: Analysis, measure: Measure, keys: Sequence[str], *, total: bool = False
) -> str:
    """Return the numbers of distinct values of each group, over the limited pairs of group and value of each unit; or their totals."""
    by = f" GROUP BY {', '.join(keys)}" * bool(keys)
    ctes, source = _emit_limited_values(compiler, analysis, measure, keys)
    if total:
        # Each value once, before it is put on the lattice, where several may have one point.
        source = compiler.dialect.queries.emit_derived_table(
            f"SELECT DISTINCT {', '.join([*keys, VALUE])} FROM {source}"
        )
        counted = ", ".join([*keys, f"{emit_point_sum(compiler, measure, VALUE)} AS distinct_total"])
    else:
        counted = ", ".join([*keys, f"COUNT(DISTINCT {VALUE}) AS distinct_count"])
    return f"{ctes}SELECT {counted} FROM {source}{by}"


def _emit_limited_values(
    compiler: Compiler, analysis: Analysis, measure: Measure, keys: Sequence[str]
) -> tuple[str, str]:
    """Return the common table expressions and the source of the counted pairs of group and value of all units."""
    source = f"SELECT * FROM {compiler.dialect.queries.emit_derived_table(emit_rows(compiler, analysis, measure))} WHERE {VALUE} IS NOT NULL"
    if not analysis.bound.per_unit:
        return "", compiler.dialect.queries.emit_derived_table(source)
    pair = [*keys, VALUE]
    grouped = f"SELECT {', '.join(['unit_id', *pair])}, 1 AS unit_rows\n  FROM {compiler.dialect.queries.emit_derived_table(source)}\n  GROUP BY {', '.join(['unit_id', *pair])}"
    pairs = bound_counted_pairs(measure.most_distinct, analysis.bound)
    bound = replace(analysis.bound, limits_groups=False, rows=pairs)
    ctes, counted = emit_bounded_groups(
        compiler, analysis, bound, keys=pair, columns=", ".join(pair), contribution=grouped
    )
    return (
        f"WITH {', '.join(ctes)}\n",
        f"{compiler.dialect.queries.emit_derived_table(counted)} WHERE counted_rows > 0",
    )


# Emit the marginals of a count by several keys: sums of the statement's groups by some sets of its keys.


LEFT_OUT = "left_out"
"""The column with a bit for each key that a set leaves out, the first key's the lowest."""


def emit_marginals(
    compiler: Compiler, counted: ReleaseStatement, sets: Sequence[Sequence[int]]
) -> ReleaseStatement:
    """Return the statement whose rows are the groups by each set of keys, by their places, with their numbers of rows.

    Claim: the numbers are those of the marginals of the groups of the statement, cell by cell, and the text is the same on all
    neighboring databases.
    Why: GROUPING SETS is the union of one GROUP BY for each set. What a statement counts is added up, and no row is read but its
    own. A sum of counts of rows is at most the number of rows, so it overflows nowhere.
    Source: ISO/IEC 9075-2, <grouping sets specification>, <grouping operation>.
    """
    (rows,) = (name for name, statistic in counted.moments.items() if statistic == ROWS)
    bits = [f"CAST(GROUPING({key}) AS BIGINT) * {1 << place}" for place, key in enumerate(counted.keys)]
    listed = ", ".join(f"({', '.join(counted.keys[place] for place in part)})" for part in sets)
    items = [*counted.keys, f"SUM({rows}) AS {rows}", f"{' + '.join(bits)} AS {LEFT_OUT}"]
    text = f"SELECT {', '.join(items)}\nFROM {compiler.dialect.queries.emit_derived_table(counted.sql)}\nGROUP BY GROUPING SETS ({listed})"
    compiler.dialect.support.require_readable_sql(text)
    return replace(counted, sql=text, moments={rows: ROWS}, left_out=LEFT_OUT)
