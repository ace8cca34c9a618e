"""Emit a release with clamps in stages: contributions once, as temporary tables, then histograms, then clamped sums.

Claim: for any points that are chosen, the sums are those that the histograms of the whole statement give, and the histograms
of all units are those of its groups, added up.
Why: both read the same unit-group pairs. A contribution is in an interval up to the chosen point if and only if it is no
more than the chosen threshold, and of the last point there is nothing beyond; so the totals of both parts are all that
`compute_clamped_series` reads. Across groups, each unit has one row in `UNITS`. For a clamp on groups, a unit has a group of the next
rank after a point if and only if it has more groups than the point; and each group of a unit with no more has a rank up
to the point, so that ranks are needed of the other units alone.
Source: McSherry 2009, "Privacy integrated queries", section 2.3 (adaptive composition: a later query may depend on the
choice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.nodes import Values
from dpsql.planning.clamp_histogram import ClampedSum, ClampTarget, list_clamp_targets
from dpsql.planning.clamping import Amount, Clamp
from dpsql.sql.compile.columns import name_group_keys
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.contribution_bounds import (
    GROUPS,
    Summand,
    build_clamp_summands,
    emit_counted_pairs,
    emit_group_order,
    emit_interval_counts,
    emit_plain_pairs,
    emit_unit_totals,
)
from dpsql.sql.compile.relations import emit_constant_rows

PAIRS, UNITS = '"#pairs"', '"#units"'
"""The temporary tables: one row per unit-group pair, with its counted rows `m` and contributions; and one row per unit,
with its contributions to all its groups, and their number."""
SELECTED = '"#selected"'
"""The keys of the selected groups, which are released, so that the statement only depends on released values."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The queries of temporary tables, by their names, in order; and the query of the histograms of all clamps over them.

    The latter has the index of a clamp target, the index of an interval, and the number of units (or pairs) in it.
    """

    tables: tuple[tuple[str, str], ...]
    histograms: str


def emit_stages(
    compiler: Compiler,
    analysis: Analysis,
    clamps: Sequence[Clamp],
    pairs: tuple[Sequence[str], str],
    held: Sequence[str],
) -> Stages:
    """Return the stages of a release by group; `pairs` are the common table expressions and the query of its pairs.

    Where the groups of all units are put in order anyway, pairs have what is known of their units, and no other table does.
    """
    keys = name_group_keys(analysis.release)
    ctes, source = pairs
    alone = compiler.dialect.capabilities.ranks_all_groups
    query = (
        emit_counted_pairs(compiler, analysis, clamps, source, held)
        if alone
        else emit_plain_pairs(compiler, keys, clamps, source, held)
    )
    tables = [(PAIRS, f"WITH {', '.join(ctes)}\n{query}")]
    totals = [f"{text} AS {name}" for name, text in emit_unit_totals(compiler, analysis, clamps).items()]
    totals += [f"COUNT(*) AS {GROUPS}" for clamp in clamps if clamp.amount is Amount.GROUPS]
    if totals and not alone:
        tables.append((UNITS, f"SELECT unit_id, {', '.join(totals)} FROM {PAIRS} GROUP BY unit_id"))
    histograms = [
        _emit_histogram(compiler, analysis, clamps[target.clamp], target, index)
        for index, target in _list_selection_targets(clamps)
    ]
    return Stages(tuple(tables), "\nUNION ALL ".join(histograms))


def _list_selection_targets(clamps: Sequence[Clamp]) -> list[tuple[int, ClampTarget]]:
    """List the targets by which clamps are chosen: the first of each clamp, or one for each side of a total."""
    found: list[tuple[int, ClampTarget]] = []
    for index, target in enumerate(list_clamp_targets(clamps)):
        if sum(known.clamp == target.clamp for _, known in found) < len(clamps[target.clamp].sides):
            found.append((index, target))
    return found


def _emit_histogram(
    compiler: Compiler, analysis: Analysis, clamp: Clamp, target: ClampTarget, index: int
) -> str:
    compared, of_units = GROUPS, True
    if clamp.amount is not Amount.GROUPS:
        (compared, _), of_units = build_clamp_summands(compiler, analysis, clamp, target), clamp.across_groups
    source = _emit_unit_rows(compiler) if of_units else PAIRS
    return f"SELECT {index} AS target_index, {emit_interval_counts(compiler, compared, clamp, source)}"


def _emit_unit_rows(compiler: Compiler) -> str:
    """Return one row for each unit: its first pair, if there is no table of units."""
    return (
        compiler.dialect.queries.emit_derived_table(f"SELECT * FROM {PAIRS} WHERE group_rank = 1", UNITS)
        if compiler.dialect.capabilities.ranks_all_groups
        else UNITS
    )


def emit_clamped_sums(
    compiler: Compiler, analysis: Analysis, clamps: Sequence[Clamp]
) -> dict[ClampedSum, str]:
    """Return the sums from which the contributions of units to a group are known, clamped to the points that are chosen so far."""
    apart = {clamp.total for clamp in clamps} - {None}
    return {
        ClampedSum(index, place): text
        for index, target in enumerate(list_clamp_targets(clamps))
        if clamps[target.clamp].chosen
        for place, text in _emit_target_sums(compiler, analysis, clamps[target.clamp], target).items()
        if target.measure not in apart or place in (1, 2)  # a total that has its own clamp is not read here
    }


def _emit_target_sums(
    compiler: Compiler, analysis: Analysis, clamp: Clamp, target: ClampTarget
) -> dict[int, str]:
    """Return the sums of a target that `compute_clamped_series` reads, by interval.

    Beyond the point these are the subdivisions and as many times the mean, up to the point the rest.
    """
    compared, summed = build_clamp_summands(compiler, analysis, clamp, target)
    chosen = clamp.chosen[clamp.sides.index(target.side)]
    point = compiler.dialect.integers.emit_threshold(clamp.thresholds[chosen])
    within = "TRUE" if chosen == len(clamp.grid) - 1 else f"{compared} <= {point}"
    beyond = (1, 4) if clamp.amount is not Amount.GROUPS else ()
    # A CASE computes the text for these rows alone: the divisions beyond the point take long, and are few.
    return {
        place: Summand(
            f"CASE WHEN {'NOT ' * (place in beyond)}({within}) THEN {part.text} END", part.max_magnitude
        ).emit_sum(compiler)
        for place, part in enumerate(summed[:-1], start=1)
    }


def emit_clamped_groups(
    compiler: Compiler,
    analysis: Analysis,
    clamps: Sequence[Clamp],
    totals: Sequence[str],
    selected: Values | None = None,
) -> str:
    """Return the query of the groups: their keys and these totals. With `selected`, only the groups with these keys are read."""
    keys = name_group_keys(analysis.release)
    across = (
        any(clamp.across_groups and clamp.chosen for clamp in clamps)
        and not compiler.dialect.capabilities.ranks_all_groups
    )
    source = _emit_ranked_pairs(compiler, analysis, keys, clamps)
    if across:
        source = f"{source} JOIN {UNITS} USING (unit_id)"
    if selected is not None:
        on = " AND ".join(f"{PAIRS}.{key} IS NOT DISTINCT FROM {SELECTED}.{key}" for key in keys)
        source = f"{source}\nSEMI JOIN ({emit_constant_rows(compiler, selected)}) AS {SELECTED} ON {on}"
    grouped = f"\nGROUP BY {', '.join(keys)}" * bool(keys)
    return f"SELECT {', '.join([*keys, *totals])}\nFROM {source}{grouped}"


def _emit_ranked_pairs(
    compiler: Compiler, analysis: Analysis, keys: Sequence[str], clamps: Sequence[Clamp]
) -> str:
    """Return the pairs, with the rank of the group among those of the unit if a clamp on groups leaves groups of some unit out."""
    for clamp in () if compiler.dialect.capabilities.ranks_all_groups else clamps:
        if clamp.amount is Amount.GROUPS and clamp.chosen and clamp.points[0] < clamp.upper_limit:
            few, many = (
                compiler.dialect.queries.emit_semi_join(
                    PAIRS, f"(SELECT unit_id FROM {UNITS} WHERE {GROUPS} {compared} {clamp.points[0]})"
                )
                for compared in ("<=", ">")
            )
            rank = f"ROW_NUMBER() OVER ({emit_group_order(compiler, analysis, keys)})"
            return f"(\n  SELECT *, 1 AS group_rank FROM {few}\n  UNION ALL SELECT *, {rank} AS group_rank FROM {many}\n) AS {PAIRS}"
    return PAIRS
