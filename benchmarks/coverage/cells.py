"""The cells of answers beside the truth: which are held by their interval, and how far they are off."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Group = tuple[str, ...]
Truth = Mapping[Group, tuple[float | None, ...]]
FAR = 3
"""A value is far off if the truth is more than so many half-widths from it."""
_NEAR = 1e-9
"""What sums of floats in another order may differ by, in parts of the truth."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of an answer; `value` is None where its group or the number is missing, `ends` where it has no interval.

    `kind` names its aggregate.
    """

    truth: float
    value: float | None
    ends: tuple[float, float] | None = None
    kind: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the truth; None without an interval."""
        if self.ends is None:
            return None
        low, high = self.ends
        near = _NEAR * abs(self.truth)
        return low - near <= self.truth <= high + near

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None without an interval."""
        return None if self.ends is None else (self.ends[1] - self.ends[0]) / 2

    @property
    def far(self) -> bool:
        """Whether the value is further from the truth than three half-widths, of whole numbers at least one each.

        At a large loss most counts are exact, and the interval is a point: one that is off by one is not far off.
        """
        half = self.half_width
        if half is None or self.value is None:
            return False
        least = 1 if all(float(each).is_integer() for each in (self.value, self.truth)) else 0
        return abs(self.value - self.truth) > FAR * max(half, least) + _NEAR * abs(self.truth)

    @property
    def error(self) -> float | None:
        """The relative error, 1 for a missing number; None where the truth is 0."""
        if not self.truth:
            return None
        return 1.0 if self.value is None else abs(self.value - self.truth) / abs(self.truth)


@dataclass(frozen=True, slots=True)
class Tally:
    """What many cells are together: numbers of cells, and medians, which are NaN of none.

    `missing` are cells of groups that are not shown, or NULL, `bare` those without an interval. `error` is the median
    relative error of all cells, of a missing one 1, `shown_error` that of cells which are shown, `width` the median
    of half-widths in parts of the truth.
    """

    cells: int
    missing: int
    bare: int
    held: int
    far: int
    error: float
    shown_error: float
    width: float

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Tally:
        """That of some cells.

        >>> found = Tally.of([Cell(100, 90, (80, 100)), Cell(10, 20, (19, 21)), Cell(5, None)])
        >>> found.cells, found.missing, found.held, found.far, found.error, found.shown_error
        (3, 1, 1, 1, 1.0, 0.55)
        """
        known = list(cells)
        shown = [cell for cell in known if cell.value is not None]
        widths = [
            cell.half_width / abs(cell.truth) for cell in shown if cell.half_width is not None and cell.truth
        ]
        return cls(
            cells=len(known),
            missing=len(known) - len(shown),
            bare=sum(cell.ends is None for cell in shown),
            held=sum(cell.held is True for cell in shown),
            far=sum(cell.far for cell in shown),
            error=_median(cell.error for cell in known),
            shown_error=_median(cell.error for cell in shown),
            width=_median(widths),
        )

    @property
    def bounded(self) -> int:
        """How many cells have an interval."""
        return self.cells - self.missing - self.bare

    @property
    def held_share(self) -> float:
        """The share of intervals that hold the truth; NaN of none."""
        return self.held / self.bounded if self.bounded else math.nan

    @property
    def far_share(self) -> float:
        """The share of cells with an interval that are far off; NaN of none."""
        return self.far / self.bounded if self.bounded else math.nan


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else math.nan


def truth_of(rows: Sequence[Sequence[Any]], keys: int) -> Truth:
    """The numbers of each group, by the texts of its keys, which are the first columns."""
    return {group(row, keys): tuple(map(number, row[keys:])) for row in rows}


def group(row: Sequence[Any], keys: int) -> Group:
    """The keys of a row as texts."""
    return tuple(map(str, row[:keys]))


def number(value: Any) -> float | None:
    """A value as a number; None for NULL and for what is not finite."""
    found = math.nan if value is None else float(value)
    return found if math.isfinite(found) else None


def cells_of(
    truth: Truth,
    rows: Sequence[Sequence[Any]],
    intervals: Sequence[Sequence[tuple[float, float] | None]],
    kinds: Sequence[str] = (),
) -> list[Cell]:
    """The cells of one answer: one for each number of the exact answer.

    Groups that nobody is in are left out, and numbers that are NULL in the exact answer.
    """
    keys = len(next(iter(truth), ()))
    found = {group(row, keys): place for place, row in enumerate(rows)}
    cells = []
    for names, numbers in truth.items():
        place = found.get(names)
        for column, exact in enumerate(numbers, keys):
            if exact is not None:
                value = None if place is None else number(rows[place][column])
                ends = None if place is None or value is None else intervals[place][column]
                kind = kinds[column - keys] if kinds else ""
                cells.append(Cell(exact, value, ends, kind))
    return cells
