"""Emit the enforcement of contribution bounds, and the histograms by which clamps of contributions are selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.nodes import list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.planning.clamp_histogram import ClampTarget
from dpsql.planning.clamping import Amount, Clamp
from dpsql.sql.compile.columns import name_group_keys, name_total, name_value_count
from dpsql.sql.compile.compiler import Compiler, emit_cte

# Emit the enforcement of contribution bounds.


# Names that no table of the policy has: a common table expression would hide a table of its name.
CONTRIBUTION, EXCESS, RANKED, LIMITED = '"#contribution"', '"#excess"', '"#ranked"', '"#limited"'


def emit_bounded_groups(
    compiler: Compiler,
    analysis: Analysis,
    bound: ContributionBound,
    *,
    keys: Sequence[str],
    columns: str,
    contribution: str,
    often: bool = False,
) -> tuple[list[str], str]:
    """Return the common table expressions and the query of the groups of `contribution` with their numbers of counted rows, m.

    `often` says that the statement reads these more than once. What is read more than once is held where the engine would
    compute it anew, of rows that may be others by then.

    Claim: of each unit at most as many rows and groups count as its bound allows; which ones depends on its own rows only.
    Why: the groups of a unit are sorted by a hash of its identifier and the keys, and the first ones count.
    Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
    """
    if compiler.dialect.capabilities.ranks_all_groups:
        ctes, source = emit_cte(CONTRIBUTION, contribution)
        ordered = _emit_ordered_groups(compiler, analysis, keys, source)
        # A unit within its bound has no group beyond it, and no more rows up to any group: so all of its groups and rows count.
        ranked = compiler.dialect.queries.emit_derived_table(ordered, RANKED)
        counted = _emit_counted_ranked_groups(compiler, bound, columns, ranked)
        if not often:
            return ctes, counted
        ctes, source = compiler.emit_shared_cte(LIMITED, f"WITH {', '.join(ctes)}\n  {counted}")
        return ctes, f"SELECT * FROM {source}"
    ctes, source = compiler.emit_shared_cte(CONTRIBUTION, contribution)
    return [*ctes, *_emit_ranking_ctes(compiler, analysis, bound, keys, source)], _emit_all_counted_groups(
        compiler, bound, columns, source
    )


def _emit_ranking_ctes(
    compiler: Compiler, analysis: Analysis, bound: ContributionBound, keys: Sequence[str], source: str
) -> list[str]:
    """Return the units of `source`, their contributions, that exceed a bound, and their groups in the order in which they count."""
    return [
        f"{EXCESS} AS (\n  {_emit_excess_units(bound, source)}\n)",
        f"{RANKED} AS (\n  {_emit_ranked_groups(compiler, analysis, keys, source)}\n)",
    ]


def _emit_excess_units(bound: ContributionBound, source: str) -> str:
    """Return the units that exceed a bound. Only they are ranked; with well-chosen bounds they are few."""
    passed = [
        f"SUM(unit_rows) > {bound.rows}",
        *([f"COUNT(*) > {bound.groups}"] if bound.limits_groups else []),
    ]
    return f"SELECT unit_id FROM {source} GROUP BY unit_id HAVING {' OR '.join(passed)}"


def _emit_ranked_groups(compiler: Compiler, analysis: Analysis, keys: Sequence[str], source: str) -> str:
    """Return the groups of these units, in an order that depends on the unit's own rows only."""
    return _emit_ordered_groups(
        compiler, analysis, keys, compiler.dialect.queries.emit_semi_join(source, EXCESS)
    )


def _emit_ordered_groups(compiler: Compiler, analysis: Analysis, keys: Sequence[str], source: str) -> str:
    """Return the groups with their places among those of the unit, and the rows up to each."""
    return (
        f"SELECT *, ROW_NUMBER() OVER by_unit AS group_rank, SUM(unit_rows) OVER by_unit AS rows_up_to FROM {source}\n"
        f"  WINDOW by_unit AS ({emit_group_order(compiler, analysis, keys)} ROWS UNBOUNDED PRECEDING)"
    )


def emit_group_order(compiler: Compiler, analysis: Analysis, keys: Sequence[str]) -> str:
    """Return the window over the groups of a unit, in the order in which they count."""
    by_column = list_private_scans(analysis.release.input)[0].unit.kind is UnitKind.COLUMN
    # The number of a row is not used: removing a row changes the numbers of others. A hash of its values is stable.
    seed = ["unit_id" if by_column else compiler.dialect.hashes.emit_row_hash("unit_id"), *keys]
    return (
        f"PARTITION BY unit_id ORDER BY {compiler.dialect.hashes.emit_shuffle_key(seed)}, {', '.join(keys)}"
    )


def _emit_all_counted_groups(compiler: Compiler, bound: ContributionBound, columns: str, source: str) -> str:
    """Return all groups of `source` with the number of counted rows, m: the rows of the first groups, up to the bound."""
    ranked = _emit_counted_ranked_groups(compiler, bound, columns, RANKED)
    return f"SELECT {columns}, unit_rows AS counted_rows FROM {compiler.dialect.queries.emit_semi_join(source, EXCESS, anti=True)}\n  UNION ALL {ranked}"


def _emit_counted_ranked_groups(
    compiler: Compiler, bound: ContributionBound, columns: str, ranked: str
) -> str:
    """Return the ranked groups within the bound, with their numbers of counted rows."""
    allowed = compiler.dialect.integers.to_narrow_int(
        f"LEAST(unit_rows, GREATEST(0, {bound.rows} - (rows_up_to - unit_rows)))", 0, bound.rows
    )
    counted = f"SELECT {columns}, {allowed} AS counted_rows FROM {ranked}"
    return counted + f" WHERE group_rank <= {bound.groups}" * bound.limits_groups


# Emit the histograms of contributions from which clamps are selected.


GROUPS = "unit_groups"
"""The number of the groups of a unit."""
COUNTED = '"#counted"'
"""The common table expression with one row per unit-group pair: the keys, its rows `m`, and `c0`, `t0` and so on.

For a clamp on groups or across groups it also has `g`, the rank of the group among those of the unit; across groups, also
the unit's contribution to all of them."""


class Summand(NamedTuple):
    """A whole number of each unit-group pair that is summed, and its largest size."""

    text: str
    max_magnitude: int

    def emit_sum(self, compiler: Compiler) -> str:
        """Return its sum over pairs, which cannot wrap."""
        return compiler.dialect.integers.emit_exact_sum(self.text, self.max_magnitude)


ONE, NOTHING = Summand("1", 1), Summand("0", 0)


def needs_group_ranks(clamps: Sequence[Clamp]) -> bool:
    """Return whether the groups of a unit are ranked, so that pairs need the unit's identifier."""
    return any(clamp.across_groups or clamp.amount is Amount.GROUPS for clamp in clamps)


def emit_counted_pairs(
    compiler: Compiler,
    analysis: Analysis,
    clamps: Sequence[Clamp],
    source: str,
    held: Sequence[str],
) -> str:
    """Return the query of the pairs of `source` with the columns `held`, and with totals over all groups of their units."""
    keys = name_group_keys(analysis.release)
    pairs = emit_plain_pairs(compiler, keys, clamps, source, held)
    windows = [
        f"{text} AS {name}"
        for name, text in emit_unit_totals(compiler, analysis, clamps, " OVER (PARTITION BY unit_id)").items()
    ]
    if needs_group_ranks(clamps):
        counts = any(clamp.amount is Amount.GROUPS for clamp in clamps)
        if not compiler.dialect.capabilities.ranks_all_groups:
            # If groups are not counted, any group of a unit may come first, and no hash is needed.
            order = (
                emit_group_order(compiler, analysis, keys)
                if counts
                else f"PARTITION BY unit_id ORDER BY {', '.join(keys)}"
            )
            windows.append(f"ROW_NUMBER() OVER ({order}) AS group_rank")
        windows += [f"COUNT(*) OVER (PARTITION BY unit_id) AS {GROUPS}"] * counts
        if windows:
            pairs = f"SELECT *, {', '.join(windows)}\n  FROM {compiler.dialect.queries.emit_derived_table(pairs, once=True)}"
    return pairs


def emit_plain_pairs(
    compiler: Compiler, keys: Sequence[str], clamps: Sequence[Clamp], source: str, held: Sequence[str]
) -> str:
    """Return the query of the pairs of `source` that have counted rows, with the columns `held`."""
    ordered = (
        ["unit_id", *(["group_rank"] if compiler.dialect.capabilities.ranks_all_groups else [])]
        if needs_group_ranks(clamps)
        else []
    )
    listed = [*ordered, *keys, "counted_rows", *held]
    return f"SELECT {', '.join(listed)}\n  FROM {compiler.dialect.queries.emit_derived_table(source)}\n  WHERE counted_rows > 0"


def emit_interval_index(compiler: Compiler, compared: str, clamp: Clamp) -> str:
    """Return the index of the interval that a contribution is in; -1 for none.

    Claim: each unit-group pair with counted rows is in exactly one interval: that of the least grid point that is at least its
    contribution, to this group or to all groups, or -1 if it contributes nothing. No such pair is missing.
    Why: the interval is found by binary search among integers; pairs are included whether or not their group is selected.
    Source: Knuth 1998, "The art of computer programming", volume 3, section 6.2.1 (binary search).
    """
    thresholds = list(map(compiler.dialect.integers.emit_threshold, clamp.thresholds))
    return f"CASE WHEN {compared} <= 0 THEN -1 ELSE {_emit_interval_search(compared, thresholds)} END"


def emit_interval_counts(compiler: Compiler, compared: str, clamp: Clamp, source: str) -> str:
    """Return the query of how many rows of `source` have their contribution in an interval: its index `b`, or -1 for none, and the number `n`.

    Claim: intervals are those of `emit_interval_index`.
    Why: of equal thresholds the first is that of a contribution up to them, and the last index has all beyond the last threshold.
    """
    ends, places = [0], [-1]
    for place, threshold in enumerate(clamp.thresholds):
        if threshold > ends[-1]:
            ends.append(threshold)
            places.append(place)
    items = compiler.dialect.points.emit_histogram_items(
        compared, [*ends, ends[-1] + 1], [*places, len(clamp.thresholds) - 1]
    )
    if items is not None:
        return f"{items} FROM {source}"
    return f"{emit_interval_index(compiler, compared, clamp)} AS interval_index, COUNT(*) AS pair_count FROM {source} GROUP BY interval_index"


def build_clamp_summands(
    compiler: Compiler, analysis: Analysis, clamp: Clamp, target: ClampTarget
) -> tuple[str, tuple[Summand, ...]]:
    """Build the integer that is compared with the grid, and the integers that are summed.

    Claim: the subdivisions of a unit in all its groups sum to at most a point, or for an l2 norm their squares do.
    Why: they are rounded down, and are in proportion to its contributions to the groups; the rows with a value are at most
    its rows.
    """
    amount = _emit_contribution(analysis, clamp, target.measure, target.side)
    if clamp.amount is Amount.GROUPS:
        return "group_rank", (
            ONE,
            _build_indicator("group_rank", (point + 1 for point in (0, *clamp.grid[:-1]))),
        )
    compared, times, units = amount, str(clamp.subdivisions), ONE
    if clamp.across_groups:
        compared, units = name_total_column(target.clamp, target.side), _build_indicator("group_rank", (1,))
        times = (
            _emit_norm_share(compiler, clamp, amount, compared)
            if clamp.euclidean
            else compiler.dialect.integers.emit_integer_quotient(
                f"{compiler.dialect.integers.to_wide_int(amount)} * {clamp.subdivisions}",
                f"GREATEST({compared}, 1)",
            )
        )
    parts = Summand(times, clamp.subdivisions)
    contribution = Summand(amount, _bound_contribution(analysis, clamp))
    if clamp.total is not None or target.measure is None:
        return compared, (parts, contribution, units)
    # The quotient of a sum over groups is not of 64 bits.
    narrow = clamp.euclidean or not clamp.across_groups
    return compared, (
        parts,
        contribution,
        *_build_total_and_mean(compiler, analysis, target.measure, parts, narrow=narrow),
        units,
    )


def emit_unit_totals(
    compiler: Compiler, analysis: Analysis, clamps: Sequence[Clamp], over: str = ""
) -> dict[str, str]:
    """Return the sums of a unit's contributions over its groups, or of their squares, for the clamps across groups, by name.

    It is a sum over the pairs of the unit, or with `over` over a window.
    Claim: a sum of squares does not overflow, and is at most the square of the greatest contribution.
    Why: each has at most twice `NORM_BITS`, and a unit has fewer than 2^33 groups. The contributions of a unit add up to at
    most the greatest, and so their squares to its square.
    """
    most = {place: clamp.upper_limit ** (1 + clamp.euclidean) for place, clamp in enumerate(clamps)}
    return {
        name_total_column(place, sign): compiler.dialect.integers.to_narrow_int(
            f"SUM({_emit_total_term(compiler, analysis, clamp, sign)}){over}", 0, most[place]
        )
        for place, clamp in enumerate(clamps)
        if clamp.across_groups
        for sign in clamp.sides
    }


def _emit_total_term(compiler: Compiler, analysis: Analysis, clamp: Clamp, sign: int) -> str:
    """Return the term that is added up over the groups of a unit: its contribution, or the square of it."""
    amount = _emit_contribution(analysis, clamp, clamp.measures[0], sign)
    if not clamp.euclidean:
        return amount
    held = compiler.dialect.integers.to_wide_int(
        compiler.dialect.integers.to_narrow_int(amount, 0, clamp.upper_limit), clamp.upper_limit**2
    )
    if clamp.norm_shift:
        held = compiler.dialect.integers.emit_integer_quotient(
            f"({held} + {2**clamp.norm_shift - 1})", str(2**clamp.norm_shift)
        )
    return f"({held}) * ({held})"


def _emit_norm_share(compiler: Compiler, clamp: Clamp, amount: str, squares: str) -> str:
    """Return the subdivisions of the point of a contribution to a group, for a unit with this sum of squares.

    Claim: the squares of a unit's subdivisions add up to at most the square of those of a point.
    Why: the norm is not too small: squares are of contributions that were rounded up, and the factor is greater than all
    rounding of five operations on DOUBLE, each of 2^-53. The subdivisions are a power of two, and are rounded down.
    """
    norm = f"SQRT({compiler.dialect.integers.to_double(f'GREATEST({squares}, 1)')}) * {compiler.emit_constant(2.0**clamp.norm_shift * (1 + 2.0**-50))}"
    part = f"LEAST({compiler.dialect.integers.to_double(amount)} / ({norm}), 1)"
    return compiler.dialect.integers.cast_double_to_int(
        f"FLOOR({part} * {compiler.emit_constant(float(clamp.subdivisions))})", clamp.subdivisions
    )


def bound_unit_total(analysis: Analysis, measure: Measure) -> int:
    """Return the largest absolute contribution of a unit to the total of a measure, in lattice steps."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice can be summed")
    return analysis.bound.rows * max(abs(measure.lattice.low), abs(measure.lattice.high), 1)


def _bound_contribution(analysis: Analysis, clamp: Clamp) -> int:
    """Return the greatest contribution of a unit to a group, whether a clamp limits it or not."""
    return (
        analysis.bound.rows
        if clamp.total is None
        else bound_unit_total(analysis, analysis.measures[clamp.total])
    )


def _build_total_and_mean(
    compiler: Compiler, analysis: Analysis, measure: int, times: Summand, *, narrow: bool
) -> tuple[Summand, Summand]:
    """Build the total of a measure, and its mean multiplied by `times`, rounded towards zero; `narrow` if it fits 64 bits.

    Claim: it is no less than as many times the least value, and no more than as many times the greatest.
    Why: the mean is neither, both are whole numbers, and rounding passes none.
    """
    if analysis.measures[measure].lattice is None:
        return NOTHING, NOTHING
    total = Summand(name_total(measure), bound_unit_total(analysis, analysis.measures[measure]))
    most = times.max_magnitude * total.max_magnitude
    product = most if narrow else None
    multiplied = f"{compiler.dialect.integers.to_wide_int(f'({times.text})', product)} * {total.text}"
    return total, Summand(
        compiler.dialect.integers.emit_integer_quotient(
            multiplied, f"GREATEST({name_value_count(measure)}, 1)", product
        ),
        most,
    )


def _emit_contribution(analysis: Analysis, clamp: Clamp, measure: int | None, sign: int) -> str:
    """Return the contribution of a unit to a group that is clamped, which is no less than 0."""
    if measure is None:
        return "counted_rows"
    if clamp.total is None:
        return name_value_count(measure)
    total = f"{'-' * (sign < 0)}{name_total(measure)}"
    return f"GREATEST({total}, 0)" if _has_other_side(analysis.measures[clamp.total], sign) else total


def _has_other_side(measure: Measure, sign: int) -> bool:
    """Return whether the total of a measure may have the other sign."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice can be summed")
    return measure.lattice.low < 0 if sign > 0 else measure.lattice.high > 0


def name_total_column(place: int, sign: int) -> str:
    """Return the name of the column with a unit's contribution to all its groups, by clamp and side."""
    return f"total_{'below' if sign < 0 else 'above'}_{place + 1}"


def _build_indicator(name: str, values: Iterable[int]) -> Summand:
    return Summand(f"CAST({name} IN ({', '.join(map(str, values))}) AS INTEGER)", 1)


def _emit_interval_search(amount: str, grid: Sequence[int | str], first: int = 0) -> str:
    """Return the index of the first point that is at least the amount, or of the last point."""
    if len(grid) == 1:
        return str(first)
    half = (len(grid) - 1) // 2
    low, high = grid[: half + 1], grid[half + 1 :]
    return (
        f"CASE WHEN {amount} <= {low[-1]} THEN {_emit_interval_search(amount, low, first)} "
        f"ELSE {_emit_interval_search(amount, high, first + half + 1)} END"
    )
