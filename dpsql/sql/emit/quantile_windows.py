"""Emits the windows of values around the ranks of quantiles.

Claim: a window has every value whose penalty is below the cutoff, the number of all values, and the number before it.
Why: values are counted in bins of neighboring points; a bin is dropped only if the penalty of all its values is at least
the cutoff.
Source: Blum, Floyd, Pratt, Rivest, Tarjan 1973, "Time bounds for selection" (partition before looking).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpsql.analysis.analyse import Analysis, Measurand
from dpsql.analysis.lattice import Lattice
from dpsql.plan.interval import date_at, time_at, timestamp_at
from dpsql.plan.types import Type
from dpsql.planning.quantiles import QuantileSelection
from dpsql.sql.emit.bounding import CONTRIBUTION, limited
from dpsql.sql.emit.dialect import dialect, read_often
from dpsql.sql.emit.lattice import point
from dpsql.sql.emit.relations import rows
from dpsql.sql.emit.scalars import constant

_POINTS, _BINS = '"#points"', '"#bins"'
_BITS = 14
"""At most 2^14 bins a group: fewer than rows, and each a small part of them."""


def windows(analysis: Analysis, keys: Sequence[str], asked: Sequence[tuple[int, QuantileSelection]]) -> str:
    """The query for windows of one measure: the group keys, then w0, w1 and so on by their numbers.

    A window is a list: how many values the group has, how many lie before the first point, then each
    point and the number of values at it.
    """
    measure = analysis.measures[asked[0][1].measure]
    ctes, points = _points(analysis, measure, keys)
    width = max(0, asked[0][1].lattice.width.bit_length() - _BITS)
    by = ", ".join(keys)
    parted = f"PARTITION BY {by}" * bool(keys)
    binned = _bin("p", width)
    counted = dialect().derived(
        f"\n    SELECT {', '.join([*keys, f'{binned} AS b', 'COUNT(*) AS n'])}\n"
        f"    FROM {points} GROUP BY {', '.join([*keys, 'b'])}"
    )
    ctes.append(
        f"{_BINS} AS (\n  SELECT *, SUM(n) OVER ({parted} ORDER BY b) AS upto, SUM(n) OVER ({parted}) AS total FROM {counted})"
    )
    items, joined = [f"t.{key}" for key in keys], []
    for index, quantile in asked:
        name = f"r{index}"
        items.append(f"{name}.w AS w{index}")
        on = " AND ".join(f"t.{key} IS NOT DISTINCT FROM {name}.{key}" for key in keys)
        joined.append(f"JOIN ({_window(quantile, keys, width, points)}) AS {name} ON {on or 'TRUE'}")
    groups = f"SELECT DISTINCT {by} FROM {_BINS}" if keys else "SELECT 1"
    return "\n".join([f"WITH {', '.join(ctes)}", f"SELECT {', '.join(items)} FROM ({groups}) AS t", *joined])


def _bin(at: str, width: int) -> str:
    """The bin of a point: shifted as it is, since its distance from the lowest point may leave 64 bits."""
    return dialect().shifted(at, width)


def _wide(number: int) -> str:
    return dialect().wide(str(number))


def _window(quantile: QuantileSelection, keys: Sequence[str], width: int, points: str) -> str:
    offset = _offset(quantile)
    near = (
        f"SELECT {', '.join([*keys, 'b', 'total', 'upto - n AS before'])} FROM {_BINS} "
        f"WHERE upto * {_wide(quantile.steps_per_row)} >= {offset} - {_wide(quantile.cutoff)} "
        f"AND (upto - n) * {_wide(quantile.steps_per_row)} <= {offset} + {_wide(quantile.cutoff)}"
    )
    on = [f"p.{key} IS NOT DISTINCT FROM b.{key}" for key in keys]
    on.append(f"{_bin('p.p', width)} = b.b")
    named = [f"p.{key} AS {key}" for key in keys]
    run = (
        f"SELECT {', '.join([*named, 'p.p AS p', 'COUNT(*) AS n', 'MIN(b.total) AS total', 'MIN(b.before) AS before'])}\n"
        f"    FROM {points} AS p JOIN ({near}) AS b ON {' AND '.join(on)}\n"
        f"    GROUP BY {', '.join([*(f'p.{key}' for key in keys), 'p.p'])}"
    )
    by = f" GROUP BY {', '.join(keys)}" * bool(keys)
    return dialect().packed_window(keys, run, by, "w")


def _offset(quantile: QuantileSelection) -> str:
    """`QuantileSelection.offset` for the number of values `total`."""
    if not quantile.shift:
        direction = "-" if quantile.interval_end < 0 else "+"
        return f"total * {_wide(quantile.steps_below)}" + f" {direction} {_wide(quantile.reach)}" * bool(
            quantile.interval_end
        )
    moved = f"LEAST(total * {_wide(quantile.steps_per_row // 2)}, {_wide(quantile.shift)} + total * {_wide(quantile.least_growth)})"
    inside = f"GREATEST(total * {_wide(quantile.steps_to_end)}, {moved})"
    return inside if quantile.rank < Fraction(1, 2) else f"total * {_wide(quantile.steps_per_row)} - {inside}"


def _points(analysis: Analysis, measure: Measurand, keys: Sequence[str]) -> tuple[list[str], str]:
    """The common table expressions for a table with one row per counted value, the keys and `p`; and its name."""
    source = f"SELECT {', '.join([*(['u'] * analysis.bound.per_unit), *keys, f'{_point(measure)} AS p'])}"
    source += f"\n  FROM {dialect().derived(rows(analysis, ordered=measure))}"
    found = dialect().derived(f"\n  {source}")
    if not analysis.bound.per_unit:
        return read_often(_POINTS, f"SELECT * FROM {found} WHERE p IS NOT NULL")
    bound = analysis.bound
    values = f"{dialect().collected_values('p')} AS s"
    contribution = (
        f"SELECT {', '.join(['u', *keys, 'COUNT(*) AS n', values])}\n"
        f"  FROM {found}\n  GROUP BY {', '.join(['u', *keys])}"
    )
    columns = ", ".join([*keys, "s"])
    if keys:
        ctes, counted = limited(analysis, bound, keys, columns, contribution, often=True)
    else:
        ctes, held = read_often(CONTRIBUTION, contribution)
        counted = f"SELECT {columns}, LEAST(n, {bound.rows}) AS m FROM {held}"
    # If a unit has more values than count, evenly spaced ones of its sorted values.
    some = dialect().spread("s", "m")
    ctes.append(
        f"{_POINTS} AS (\n  SELECT {', '.join([*keys, f'{some} AS p'])} FROM {dialect().derived(counted)} WHERE m > 0 AND s IS NOT NULL)"
    )
    return ctes, _POINTS


def _point(measure: Measurand) -> str:
    """The point of a value, NULL where there is none."""
    lattice = measure.quantile_lattice
    if lattice is None:
        raise TypeError("only measures with a lattice have quantiles")
    match measure.expr.type:
        case Type.DATE:
            return _clamped(dialect().days("x"), lattice, date_at)
        case Type.TIMESTAMP:
            return _clamped(dialect().microseconds("x"), lattice, timestamp_at)
        case Type.TIME:
            return _clamped(dialect().microseconds("x"), lattice, time_at)
        case _:
            return point(measure.expr, lattice, "x", measure.interval)


def _clamped(place: str, lattice: Lattice, at: Callable[[Fraction], dt.date | dt.time]) -> str:
    """The place of a day or moment, each of which is a point; those beyond the ends, infinite ones too, are at the ends."""
    low, high = (constant(at(Fraction(end))) for end in (lattice.low, lattice.high))
    return f"CASE WHEN x < {low} THEN {lattice.low} WHEN x > {high} THEN {lattice.high} ELSE {place} END"
