"""Emits the engine SQL of a release: one statement that bounds contributions and sums exact integers.

The statement depends on the plan, the policy and public metadata only, so it is the same on all neighboring databases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis, Measurand
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.plan.expr import Column, Facts
from dpsql.plan.nodes import Values
from dpsql.plan.types import Type, Value
from dpsql.planning.clamp_histogram import ClampedSum, clamp_targets
from dpsql.planning.clamping import Clamp
from dpsql.planning.quantiles import QuantileSelection
from dpsql.planning.statistics import UNITS, Statistic, most_pairs
from dpsql.planning.top_k import TopKSelection
from dpsql.sql.emit.bounding import CONTRIBUTION, limited
from dpsql.sql.emit.clamp_histograms import COUNTED, counted_pairs, orders_groups
from dpsql.sql.emit.dialect import common, dialect, holding, written_in
from dpsql.sql.emit.group_keys import groups_present, key_values
from dpsql.sql.emit.joint_intervals import MOST_JOINT, most_joint_intervals, with_histograms
from dpsql.sql.emit.quantile_windows import windows
from dpsql.sql.emit.relations import VALUE, rows
from dpsql.sql.emit.sample import PLACEHOLDER, sampled_by
from dpsql.sql.emit.stages import SELECTED, Stages, clamped_groups, clamped_sums, stages
from dpsql.sql.emit.top_k_scores import SCORE, scores_query
from dpsql.sql.emit.unit_sums import UnitSums, added


@dataclass(frozen=True, slots=True)
class Statement:
    """Engine SQL and the names of its columns, by what they hold, in the order of the text.

    `moments` are exact statistics in lattice steps, by their columns. `histograms` are read by
    `planning.clamp_histogram.ClampHistogram`, one for each of its targets, `windows` by `planning.quantiles.Window`, one
    for each quantile. A top-k statement has the `score` of each group and nothing else. With `stages`, its rows are read
    in stages instead, from which `emit_sums` gives the groups, with `clamped` sums in place of histograms. `held` are the
    temporary tables that the text reads, by their names with their queries, on an engine that holds rows in them. Rows of
    several sets of keys say in `left_out` which keys theirs leaves out.
    """

    sql: str
    keys: tuple[str, ...]
    moments: Mapping[str, Statistic] = field(default_factory=dict, hash=False)
    histograms: tuple[str, ...] = ()
    clamped: Mapping[str, ClampedSum] = field(default_factory=dict, hash=False)
    windows: tuple[str, ...] = ()
    score: str | None = None
    stages: Stages | None = field(default=None, hash=False)
    held: tuple[tuple[str, str], ...] = field(default=(), hash=False)
    left_out: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        score = () if self.score is None else (self.score,)
        left_out = () if self.left_out is None else (self.left_out,)
        read = (*self.moments, *self.histograms, *self.clamped, *self.windows)
        return (*self.keys, *read, *score, *left_out)

    def named(self, row: Sequence[Any]) -> dict[str, Any]:
        """A row of the result, by the names of its columns."""
        return dict(zip(self.columns, row, strict=True))


def emit(
    analysis: Analysis,
    quantiles: Sequence[QuantileSelection] = (),
    top_k: TopKSelection | None = None,
    clamps: Sequence[Clamp] = (),
    target: Dialect = DUCKDB,
    *,
    counted: Container[int] | None = None,
    secret: str = PLACEHOLDER,
) -> Statement:
    """The only statement that reads private rows for a release, in the dialect `target`.

    It counts the values of the `counted` measures, or of all. Where units are sampled, the `secret` decides which.

    Its result has a window for each of the `quantiles`, and histograms for the `clamps`; with `top_k`, only scores. With
    clamps by group, it also has their stages, where the engine can have temporary tables. Raises QueryRejected, with code
    `engine` or `engine_function`, for what the engine of the dialect cannot be asked for.
    """
    target.require(analysis.release)
    with written_in(target), sampled_by(secret), holding() as held:
        statement = _emitted(UnitSums(analysis, counted), quantiles, top_k, clamps)
    for text in (statement.sql, *(query for _, query in held)):
        target.require_text(text)
    return replace(statement, held=tuple(held))


def _emitted(
    sums: UnitSums,
    quantiles: Sequence[QuantileSelection],
    top_k: TopKSelection | None,
    clamps: Sequence[Clamp],
) -> Statement:
    analysis = sums.analysis
    if top_k is not None:
        names = tuple(key.name for key in analysis.release.keys)
        return Statement(scores_query(analysis, top_k), names, score=SCORE)
    keys = [key.name for key in analysis.release.keys]
    if not analysis.bound.per_unit:
        return _finished(analysis, _per_row(sums, keys), quantiles, sums.moments)
    histograms = tuple(f"s{index}" for index in range(len(clamp_targets(clamps))))
    body = _per_unit(sums, keys, clamps)
    whole = _finished(analysis, body, quantiles, sums.moments, histograms)
    whole = replace(whole, histograms=histograms)
    if not clamps or not _in_stages(analysis, clamps):
        return whole
    with holding() as before:
        ctes, source = _pairs(sums, keys, clamps)
    made = stages(analysis, keys, clamps, (ctes, source), sums.held)
    return replace(whole, stages=replace(made, tables=(*before, *made.tables)))


def _in_stages(analysis: Analysis, clamps: Sequence[Clamp]) -> bool:
    """Whether a release is read in stages: not where one statement has few joint intervals, and no groups or held rows.

    With many, one statement adds all its sums up by the intervals of each clamp: so its work is quadratic in their number.
    """
    few = most_joint_intervals(analysis, clamps) <= MOST_JOINT
    return dialect().stages and not (few and (dialect().holds or not analysis.release.keys))


def emit_sums(
    analysis: Analysis,
    quantiles: Sequence[QuantileSelection] = (),
    clamps: Sequence[Clamp] = (),
    selected: Sequence[tuple[Value, ...]] | None = None,
    unclamped: Container[Statistic] = (),
    *,
    target: Dialect = DUCKDB,
    secret: str = PLACEHOLDER,
) -> Statement:
    """The last stage of a release: its groups, clamped to the points that are chosen so far, as the statement has them.

    Of the moments without a clamp it has the `unclamped` ones and the numbers of units. With `selected`, only the groups
    with these keys: see `reads_selected`.
    """
    with written_in(target), sampled_by(secret), holding() as held:
        statement = _emitted_sums(analysis, quantiles, clamps, selected, unclamped)
    return replace(statement, held=tuple(held))


def _emitted_sums(
    analysis: Analysis,
    quantiles: Sequence[QuantileSelection],
    clamps: Sequence[Clamp],
    selected: Sequence[tuple[Value, ...]] | None,
    unclamped: Container[Statistic],
) -> Statement:
    keys, whole = [key.name for key in analysis.release.keys], UnitSums(analysis)
    sums = clamped_sums(analysis, clamps)
    clamped = {f"s{part.target}_{part.place}": part for part in sums}
    moments = {name: part for name, part in whole.moments.items() if part == UNITS or part in unclamped}
    summed = whole.of_units
    totals = [
        *(f"{summed[name].sum} AS {name}" for name in moments),
        *(f"{sums[part]} AS {name}" for name, part in clamped.items()),
    ]
    values = None
    if selected is not None:
        columns = tuple(Column(SELECTED, key.name, Facts(key.expr.type, "")) for key in analysis.release.keys)
        values = Values(tuple(selected), SELECTED, columns)
    body = clamped_groups(analysis, keys, clamps, totals, values)
    return replace(_finished(analysis, body, quantiles, moments, clamped), clamped=clamped)


def reads_selected(analysis: Analysis, quantiles: Sequence[QuantileSelection]) -> bool:
    """Whether the sums of a release can be read for its selected groups alone.

    Distinct values and quantiles are of groups that they read themselves, and the keys must be such as constants of the
    engine compare with: whole numbers and texts that no index stands for.
    """
    comparable = all(key.expr.type in (Type.INTEGER, Type.VARCHAR) for key in analysis.release.keys)
    beside = quantiles or any(part.counts_distinct or part.sums_distinct for part in analysis.measures)
    return comparable and not beside and not key_values(analysis)


def _finished(
    analysis: Analysis,
    body: str,
    quantiles: Sequence[QuantileSelection],
    totals: Mapping[str, Statistic],
    steps: Iterable[str] = (),
) -> Statement:
    """The statement whose groups `body` gives, with distinct values and windows beside them, in the order of the keys.

    `totals` are the columns of its moments, `steps` those of what clamps are chosen or computed from.
    """
    keys = [key.name for key in analysis.release.keys]
    values = {
        f"d{index}": (Moment.DISTINCT, index)
        for index, part in enumerate(analysis.measures)
        if part.counts_distinct
    } | {
        f"e{index}": (Moment.DISTINCT_TOTAL, index)
        for index, part in enumerate(analysis.measures)
        if part.sums_distinct
    }
    moments: dict[str, Statistic] = {**totals, **values}
    read = [*totals, *steps]
    if values:
        body = _with_values(analysis, keys, body, read)
        # Histograms stand after all moments.
        read = [*moments, *steps]
    near = [f"w{index}" for index in range(len(quantiles))]
    if quantiles:
        body = _with_windows(analysis, keys, body, read, quantiles)
        read += near
        # The windows of a measure stand together, and quantiles of one measure may be apart in the query.
        body = f"SELECT {', '.join([*keys, *read])}\nFROM {dialect().derived(body)}"
    texts = key_values(analysis)
    if texts or (values and steps):
        items = [*(f"{texts.get(key, key)} AS {key}" for key in keys), *read]
        body = f"SELECT {', '.join(items)}\nFROM {dialect().derived(body)}"
    if keys and analysis.domains is None:
        body += f"\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"
    return Statement(body, tuple(keys), moments, windows=tuple(near))


def _per_row(sums: UnitSums, keys: list[str]) -> str:
    """Each row is a unit: rows are aggregated directly."""
    analysis = sums.analysis
    lines = [
        f"SELECT {', '.join([*keys, 'COUNT(*) AS n', *sums.of_rows])}",
        f"FROM {_rows(analysis)}",
    ]
    return "\n".join([*lines, *_grouping(keys, analysis.bound.min_frequency)])


def _rows(analysis: Analysis, *, all_places: bool = False) -> str:
    """The rows in FROM. What is more than a column is clamped, which reads it several times: it is computed once."""
    computed = any(part.counts_rows and not isinstance(part.expr, Column) for part in analysis.measures)
    return dialect().derived(rows(analysis, all_places=all_places), once=computed)


def _grouping(keys: Sequence[str], min_frequency: int) -> Iterable[str]:
    if keys:
        yield f"GROUP BY {', '.join(keys)}"
        if min_frequency > 1:
            yield f"HAVING COUNT(*) >= {min_frequency}"


def _per_unit(sums: UnitSums, keys: list[str], clamps: Sequence[Clamp]) -> str:
    """Rows are aggregated by unit and group, then bounded, then summed over units."""
    analysis = sums.analysis
    ctes, source = _pairs(sums, keys, clamps)
    if clamps:
        pairs = counted_pairs(analysis, keys, clamps, source, sums.held)
        ctes.append(f"{COUNTED} AS (\n  {pairs}\n)")
        return f"WITH {', '.join(ctes)}\n{with_histograms(sums, keys, clamps)}"
    summed = {**sums.of_units, **dict(sums.limited())}
    totals = [f"{part.sum} AS {name}" for name, part in summed.items()]
    return "\n".join(
        [
            f"WITH {', '.join(ctes)}",
            f"SELECT {', '.join([*keys, *totals])}",
            f"FROM {dialect().derived(source)}",
            "WHERE m > 0",
            *_grouping(keys, analysis.bound.min_frequency),
        ]
    )


def _pairs(sums: UnitSums, keys: list[str], clamps: Sequence[Clamp]) -> tuple[list[str], str]:
    """The common table expressions and the query of the unit-group pairs with their counted rows."""
    analysis, bound = sums.analysis, sums.analysis.bound
    contribution = (
        f"SELECT {', '.join(['u', *keys, 'COUNT(*) AS n', *sums.of_rows])}\n"
        f"  FROM {_rows(analysis, all_places=True)}\n  GROUP BY {', '.join(['u', *keys])}{groups_present(analysis)}"
    )
    if not keys:
        listed = ", ".join([*sums.names, f"LEAST(n, {bound.rows}) AS m"])
        ctes, source = common(CONTRIBUTION, contribution)
        return ctes, f"SELECT {listed} FROM {source}"
    names = [*(["u"] if orders_groups(clamps) else []), *keys, *sums.names]
    # Of a unit, the groups that count are the first ones.
    ranks = ["place AS g"] * (orders_groups(clamps) and dialect().ranks_all)
    return limited(analysis, bound, keys, ", ".join([*names, *ranks]), contribution)


def _with_values(analysis: Analysis, keys: Sequence[str], body: str, read: Sequence[str]) -> str:
    """The groups, joined with their numbers of distinct values, and with their totals."""
    # A group of the rows may have no value.
    parts = [
        (f"COALESCE({{0}}.d, 0) AS d{index}", _values(analysis, measure, keys))
        for index, measure in enumerate(analysis.measures)
        if measure.counts_distinct
    ]
    parts += [
        (f"COALESCE({{0}}.e, 0) AS e{index}", _values(analysis, measure, keys, total=True))
        for index, measure in enumerate(analysis.measures)
        if measure.sums_distinct
    ]
    return _joined(keys, body, read, parts)


def _with_windows(
    analysis: Analysis,
    keys: Sequence[str],
    body: str,
    read: Sequence[str],
    quantiles: Sequence[QuantileSelection],
) -> str:
    """The groups, joined with the windows of values near the ranks of the quantiles."""
    measures = dict.fromkeys(part.measure for part in quantiles)
    parts = []
    for measure in measures:
        asked = [(index, part) for index, part in enumerate(quantiles) if part.measure == measure]
        items = ", ".join(f"{{0}}.w{index}" for index, _ in asked)
        parts.append((items, windows(analysis, keys, asked)))
    return _joined(keys, body, read, parts)


def _joined(keys: Sequence[str], body: str, read: Sequence[str], parts: Sequence[tuple[str, str]]) -> str:
    """A full join of the groups of `body` with the groups of further queries.

    So the counted rows of a group do not decide whether its values are released, which would raise the sensitivity.
    """
    texts = {key: f"g.{key}" for key in keys}
    items, lines = [f"g.{name}" for name in read], [f"FROM ({body}) AS g"]
    for index, (item, query) in enumerate(parts):
        name = f"v{index}"
        items.append(item.format(name))
        on = [(text, f"{name}.{key}") for key, text in texts.items()]
        lines.append(
            dialect().outer_join(query, name, on) if keys else f"LEFT JOIN ({query}) AS {name} ON TRUE"
        )
        texts = {key: f"COALESCE({text}, {name}.{key})" for key, text in texts.items()}
    named = [f"{text} AS {key}" for key, text in texts.items()]
    return "\n".join([f"SELECT {', '.join([*named, *items])}", *lines])


def _values(analysis: Analysis, measure: Measurand, keys: Sequence[str], *, total: bool = False) -> str:
    """The numbers of distinct values of each group, of limited pairs of group and value of each unit; or their totals."""
    by = f" GROUP BY {', '.join(keys)}" * bool(keys)
    ctes, source = _limited_values(analysis, measure, keys)
    if total:
        # Each value once, before it is put on the lattice, where several may have one point.
        source = dialect().derived(f"SELECT DISTINCT {', '.join([*keys, VALUE])} FROM {source}")
        counted = ", ".join([*keys, f"{added(measure, VALUE)} AS e"])
    else:
        counted = ", ".join([*keys, f"COUNT(DISTINCT {VALUE}) AS d"])
    return f"{ctes}SELECT {counted} FROM {source}{by}"


def _limited_values(analysis: Analysis, measure: Measurand, keys: Sequence[str]) -> tuple[str, str]:
    """The common table expressions and the source of the pairs of group and value that count, of all units."""
    source = f"SELECT * FROM {dialect().derived(rows(analysis, measure))} WHERE {VALUE} IS NOT NULL"
    if not analysis.bound.per_unit:
        return "", dialect().derived(source)
    pair = [*keys, VALUE]
    grouped = f"SELECT {', '.join(['u', *pair])}, 1 AS n\n  FROM {dialect().derived(source)}\n  GROUP BY {', '.join(['u', *pair])}"
    pairs = most_pairs(measure.most_distinct, analysis.bound)
    bound = replace(analysis.bound, limits_groups=False, rows=pairs)
    ctes, counted = limited(analysis, bound, pair, ", ".join(pair), grouped)
    return f"WITH {', '.join(ctes)}\n", f"{dialect().derived(counted)} WHERE m > 0"
