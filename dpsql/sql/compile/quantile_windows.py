"""Emit the windows of values around the ranks of quantiles.

Claim: a window has every value whose penalty is below the cutoff, the number of all values, and the number before it.
Why: values are counted in bins of neighboring points; a bin is dropped only if the penalty of all its values is at least
the cutoff.
Source: Blum, Floyd, Pratt, Rivest, Tarjan 1973, "Time bounds for selection" (partition before looking).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpsql.analysis.release_analysis import Analysis, Lattice, Measure
from dpsql.plan.interval import get_date_at, get_time_at, get_timestamp_at
from dpsql.plan.types import Type
from dpsql.planning.quantiles import QuantileSelection
from dpsql.sql.compile.columns import name_window
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.contribution_bounds import CONTRIBUTION, emit_bounded_groups
from dpsql.sql.compile.lattice import emit_lattice_point
from dpsql.sql.compile.relations import emit_rows

_POINTS, _BINS = '"#points"', '"#bins"'
_BITS = 14
"""At most 2^14 bins a group: fewer than rows, and each a small part of them."""


def emit_quantile_windows(
    compiler: Compiler,
    analysis: Analysis,
    keys: Sequence[str],
    asked: Sequence[tuple[int, QuantileSelection]],
) -> str:
    """Return the query for windows of one measure: the group keys, then window_1, window_2 and so on by their numbers.

    A window is a list: how many values the group has, how many lie before the first point, then each
    point and the number of values at it.
    """
    measure = analysis.measures[asked[0][1].measure]
    ctes, points = _emit_points(compiler, analysis, measure, keys)
    width = max(0, asked[0][1].lattice.width.bit_length() - _BITS)
    by = ", ".join(keys)
    parted = f"PARTITION BY {by}" * bool(keys)
    binned = _emit_bin(compiler, "point", width)
    counted = compiler.dialect.queries.emit_derived_table(
        f"\n    SELECT {', '.join([*keys, f'{binned} AS bin', 'COUNT(*) AS bin_values'])}\n"
        f"    FROM {points} GROUP BY {', '.join([*keys, 'bin'])}"
    )
    ctes.append(
        f"{_BINS} AS (\n  SELECT *, SUM(bin_values) OVER ({parted} ORDER BY bin) AS values_up_to, SUM(bin_values) OVER ({parted}) AS total_values FROM {counted})"
    )
    items, joined = [f"groups.{key} AS {key}" for key in keys], []
    for index, quantile in asked:
        name = f"near_{index + 1}"
        items.append(f"{name}.rank_window AS {name_window(index)}")
        on = " AND ".join(f"groups.{key} IS NOT DISTINCT FROM {name}.{key}" for key in keys)
        joined.append(
            f"JOIN ({_emit_window(compiler, quantile, keys, width, points)}) AS {name} ON {on or 'TRUE'}"
        )
    groups = f"SELECT DISTINCT {by} FROM {_BINS}" if keys else "SELECT 1"
    return "\n".join(
        [f"WITH {', '.join(ctes)}", f"SELECT {', '.join(items)} FROM ({groups}) AS groups", *joined]
    )


def _emit_bin(compiler: Compiler, at: str, width: int) -> str:
    """Return the bin of a point by a shift, since its distance from the lowest point may exceed 64 bits."""
    return compiler.dialect.integers.emit_right_shift(at, width)


def _emit_wide_integer(compiler: Compiler, number: int) -> str:
    return compiler.dialect.integers.to_wide_int(str(number))


def _emit_window(
    compiler: Compiler, quantile: QuantileSelection, keys: Sequence[str], width: int, points: str
) -> str:
    offset = _emit_offset(compiler, quantile)
    near = (
        f"SELECT {', '.join([*keys, 'bin', 'total_values', 'values_up_to - bin_values AS values_before'])} FROM {_BINS} "
        f"WHERE values_up_to * {_emit_wide_integer(compiler, quantile.steps_per_row)} >= {offset} - {_emit_wide_integer(compiler, quantile.cutoff)} "
        f"AND (values_up_to - bin_values) * {_emit_wide_integer(compiler, quantile.steps_per_row)} <= {offset} + {_emit_wide_integer(compiler, quantile.cutoff)}"
    )
    on = [f"points.{key} IS NOT DISTINCT FROM near_bins.{key}" for key in keys]
    on.append(f"{_emit_bin(compiler, 'points.point', width)} = near_bins.bin")
    named = [f"points.{key} AS {key}" for key in keys]
    run = (
        f"SELECT {', '.join([*named, 'points.point AS point', 'COUNT(*) AS point_values', 'MIN(near_bins.total_values) AS total_values', 'MIN(near_bins.values_before) AS values_before'])}\n"
        f"    FROM {points} AS points JOIN ({near}) AS near_bins ON {' AND '.join(on)}\n"
        f"    GROUP BY {', '.join([*(f'points.{key}' for key in keys), 'points.point'])}"
    )
    by = f" GROUP BY {', '.join(keys)}" * bool(keys)
    return compiler.dialect.lists.emit_packed_window(keys, run, by, "rank_window")


def _emit_offset(compiler: Compiler, quantile: QuantileSelection) -> str:
    """Return `QuantileSelection.compute_offset` for `total` values."""
    if not quantile.shift:
        direction = "-" if quantile.interval_end < 0 else "+"
        return (
            f"total_values * {_emit_wide_integer(compiler, quantile.steps_below)}"
            + f" {direction} {_emit_wide_integer(compiler, quantile.reach)}" * bool(quantile.interval_end)
        )
    moved = f"LEAST(total_values * {_emit_wide_integer(compiler, quantile.steps_per_row // 2)}, {_emit_wide_integer(compiler, quantile.shift)} + total_values * {_emit_wide_integer(compiler, quantile.least_growth)})"
    inside = f"GREATEST(total_values * {_emit_wide_integer(compiler, quantile.steps_to_end)}, {moved})"
    return (
        inside
        if quantile.rank < Fraction(1, 2)
        else f"total_values * {_emit_wide_integer(compiler, quantile.steps_per_row)} - {inside}"
    )


def _emit_points(
    compiler: Compiler, analysis: Analysis, measure: Measure, keys: Sequence[str]
) -> tuple[list[str], str]:
    """Return the common table expressions for a table with one row per counted value, the keys and `p`; and its name."""
    source = f"SELECT {', '.join([*(['unit_id'] * analysis.bound.per_unit), *keys, f'{_emit_value_point(compiler, measure)} AS point'])}"
    source += f"\n  FROM {compiler.dialect.queries.emit_derived_table(emit_rows(compiler, analysis, ordered=measure))}"
    found = compiler.dialect.queries.emit_derived_table(f"\n  {source}")
    if not analysis.bound.per_unit:
        return compiler.emit_shared_cte(_POINTS, f"SELECT * FROM {found} WHERE point IS NOT NULL")
    bound = analysis.bound
    values = f"{compiler.dialect.lists.emit_value_list_aggregate('point')} AS sorted_points"
    contribution = (
        f"SELECT {', '.join(['unit_id', *keys, f'{compiler.dialect.integers.emit_count()} AS unit_rows', values])}\n"
        f"  FROM {found}\n  GROUP BY {', '.join(['unit_id', *keys])}"
    )
    columns = ", ".join([*keys, "sorted_points"])
    if keys:
        ctes, counted = emit_bounded_groups(
            compiler, analysis, bound, keys=keys, columns=columns, contribution=contribution, often=True
        )
    else:
        ctes, held = compiler.emit_shared_cte(CONTRIBUTION, contribution)
        counted = f"SELECT {columns}, LEAST(unit_rows, {bound.rows}) AS counted_rows FROM {held}"
    # If a unit has more values than count, evenly spaced ones of its sorted values.
    some = compiler.dialect.lists.emit_evenly_spaced_elements("sorted_points", "counted_rows")
    ctes.append(
        f"{_POINTS} AS (\n  SELECT {', '.join([*keys, f'{some} AS point'])} FROM {compiler.dialect.queries.emit_derived_table(counted)} WHERE counted_rows > 0 AND sorted_points IS NOT NULL)"
    )
    return ctes, _POINTS


def _emit_value_point(compiler: Compiler, measure: Measure) -> str:
    """Return the point of a value, or NULL if it has none."""
    lattice = measure.quantile_lattice
    if lattice is None:
        raise TypeError("only measures with a lattice can have quantiles")
    match measure.expr.type:
        case Type.DATE:
            return _emit_clamped_point(
                compiler, compiler.dialect.points.emit_day_number("value"), lattice, get_date_at
            )
        case Type.TIMESTAMP:
            return _emit_clamped_point(
                compiler, compiler.dialect.points.emit_epoch_microseconds("value"), lattice, get_timestamp_at
            )
        case Type.TIME:
            return _emit_clamped_point(
                compiler, compiler.dialect.points.emit_epoch_microseconds("value"), lattice, get_time_at
            )
        case _:
            return emit_lattice_point(compiler, measure.expr, lattice, "value", measure.interval)


def _emit_clamped_point(
    compiler: Compiler, place: str, lattice: Lattice, at: Callable[[Fraction], dt.date | dt.time]
) -> str:
    """Return the index of a day or timestamp, where each is a point; values beyond the ends, infinite ones included, are moved to them."""
    low, high = (compiler.emit_constant(at(Fraction(end))) for end in (lattice.low, lattice.high))
    return (
        f"CASE WHEN value < {low} THEN {lattice.low} WHEN value > {high} THEN {lattice.high} ELSE {place} END"
    )
