"""What the units of each group have, by the grid of a clamp, in engine SQL.

Claim: each pair of a unit and a group in which rows of it count is on one rung, that of the least point
which is no less than what it has there; of all such pairs none is left out.
Why: the rung is found by comparing whole numbers with the grid, by halves; pairs are those whose rows count,
whatever becomes of their group.
Source: Knuth 1998, "The art of computer programming", volume 3, section 6.2.1 (binary search).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.analysis.analyse import Analysis
from dpsql.analysis.clamps import Amount, Clamp
from dpsql.analysis.rungs import Ladder

COUNTED = '"#counted"'
"""The common table expression with one row for each pair: the keys, its rows `m`, and `c0`, `t0` and so on.

Where a clamp is of groups, also `g`, the place of the group among those of the unit."""


def rungs(analysis: Analysis, keys: Sequence[str], clamp: Clamp, ladder: Ladder, name: str) -> str:
    """The query for a ladder: the group keys, then the list of its rungs under `name`.

    A rung is the index of its point, how many pairs there are, and the totals that `Rungs` tells of.
    """
    amount, summed = _amounts(analysis, clamp, ladder)
    place = f"{_rung(amount, clamp.grid)} AS b"
    sums = ", ".join(f"SUM({text}) AS s{index}" for index, text in enumerate(summed))
    found = ", ".join(f"s{index}" for index in range(len(summed)))
    by = ", ".join(keys)
    grouped = f"SELECT {', '.join([*keys, place, 'COUNT(*) AS n', sums])} FROM {COUNTED}\n  GROUP BY {', '.join([*keys, 'b'])}"
    listed = f"LIST([b::HUGEINT, n::HUGEINT, {found}] ORDER BY b) AS {name}"
    return f"SELECT {', '.join([*keys, listed])} FROM (\n  {grouped})" + f" GROUP BY {by}" * bool(keys)


def _amounts(analysis: Analysis, clamp: Clamp, ladder: Ladder) -> tuple[str, tuple[str, ...]]:
    """What is compared with the grid, and what is added up, as whole numbers."""
    if clamp.amount is Amount.GROUPS:
        first = ", ".join(str(point + 1) for point in (0, *clamp.grid[:-1]))
        return "g", (f"CAST(g IN ({first}) AS INTEGER)",)
    if clamp.total is not None:
        side = f"COALESCE(t{clamp.total}, 0)"
        amount = f"GREATEST({'-' * (ladder.sign < 0)}{side}, 0)"
        return amount, (amount,)
    if ladder.measure is None:
        return "m", ("m",)
    count = f"c{ladder.measure}"
    if analysis.measures[ladder.measure].lattice is None:
        return count, (count, "0", "0")
    total = f"COALESCE(t{ladder.measure}, 0)"
    return count, (count, total, f"{total} // GREATEST({count}, 1)")


def _rung(amount: str, grid: Sequence[int], first: int = 0) -> str:
    """The index of the first point that is no less than an amount; the last one's where all are less."""
    if len(grid) == 1:
        return str(first)
    half = (len(grid) - 1) // 2
    low, high = grid[: half + 1], grid[half + 1 :]
    return (
        f"CASE WHEN {amount} <= {low[-1]} THEN {_rung(amount, low, first)} "
        f"ELSE {_rung(amount, high, first + half + 1)} END"
    )
