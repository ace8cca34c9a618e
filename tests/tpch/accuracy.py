"""How far a noisy answer is from the exact one.

Rows are matched by the columns that name their group. The relative error of a cell is |noisy - exact| /
|exact|; that of an answer is the median over all numbers of the groups which are in both. What is missing
shows in the share of groups.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpsql.engine.query_run import QueryRun
from dpsql.planning.choose import compute_predicted_std
from dpsql.results.result import Result

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a group that is in both answers; `scale` and `ends` are of its noise, None if it is derived."""

    group: Row
    column: int
    noisy: float
    exact: float
    scale: float | None
    ends: tuple[float, float] | None

    @property
    def error(self) -> float:
        """The relative error; infinite where the exact number is 0 and the noisy one is not."""
        off = abs(self.noisy - self.exact)
        return off / abs(self.exact) if self.exact else math.inf * off if off else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """An answer beside the exact one: how many groups each has, how many are in both, and the numbers of these.

    Of what is `clamped` intervals and scales are about a sum in which each unit counts up to a learnt point.
    """

    exact: int
    released: int
    both: int
    cells: tuple[Cell, ...]
    clamped: bool = False

    @property
    def error(self) -> float | None:
        """The median relative error, None where no group is in both."""
        return statistics.median(cell.error for cell in self.cells) if self.cells else None


def compare(
    result: Result, exact: Sequence[Row], keys: Sequence[int], confidence: float = 0.95
) -> Comparison:
    """Both answers, with intervals of that confidence about the noisy numbers."""
    groups = {_group(row, keys): row for row in exact}
    found = [place for place, row in enumerate(result.rows) if _group(row, keys) in groups]
    ends = result.intervals(confidence)
    cells = [
        Cell(group, column, float(noisy), float(groups[group][column]), scale, around)
        for place in found
        for group in (_group(result.rows[place], keys),)
        for column, (noisy, scale, around) in enumerate(
            zip(result.rows[place], result.scales[place], ends[place], strict=True)
        )
        if column not in keys and noisy is not None and groups[group][column] is not None
    ]
    clamped = any("clamp" in each for each in result.receipt.mechanisms)
    return Comparison(len(exact), len(result.rows), len(found), tuple(cells), clamped)


def _group(row: Row, keys: Sequence[int]) -> Row:
    return tuple(_plain(row[key]) for key in keys)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float, Decimal)) else value


def expected(prepared: QueryRun) -> dict[tuple[int, str], float]:
    """The standard deviation of each aggregate's noise as it is expected, by release."""
    return {
        (place, item.name): compute_predicted_std(release.plan, item)
        for place, release in enumerate(prepared.releases)
        for item in release.release.aggregations
        if item.rank is None
    }
