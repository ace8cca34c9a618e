"""Randomized tables, and estimates of sums and counts from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import DataError, QueryRejected
from dpsql.plan.types import AnswerValue, Value
from dpsql.results.rendering import Ends
from dpsql.results.result import Receipt, Result
from dpsql.sql.parse.local_select import LocalOutput, LocalSelect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.privacy.local import Estimate


# A randomized table, from the analyst's side, and estimates from it.


MOST_LISTED = 10**7
"""Rows of a table that are listed at most."""


@dataclass(frozen=True, slots=True)
class LocalTable:
    """Rows whose values are randomized one by one: the table may be given to anyone.

    `cells` has each combination that occurs, followed by the number of its rows. `odds` has, for each column, the odds of the
    true value against each other value. Shares in the table are not those of the private rows: `estimate` corrects for the noise.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    cells: tuple[tuple[Value, ...], ...]
    odds: tuple[Fraction, ...]
    receipt: Receipt
    _changed_rows_bound: Callable[[float], int] = field(repr=False, compare=False)
    steps: tuple[float, ...] = ()
    """The distance of the lattice points to which each column's values were rounded; 0 for a column that was not rounded."""

    @property
    def rows(self) -> list[tuple[Value, ...]]:
        """Return all rows, equal ones next to each other.

        Raises:
            DataError: if there are more than ten million.
        """
        if len(self) > MOST_LISTED:
            raise DataError(
                f"the table has {len(self):,} rows, too many to list",
                hint="use .cells, which has each combination with its number of rows; estimates need no rows",
            )
        return [tuple(keys) for *keys, number in self.cells for _ in range(int(number))]  # type: ignore[arg-type]

    def __len__(self) -> int:
        return sum(int(row[-1]) for row in self.cells)  # type: ignore[arg-type, misc]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of possible values of each column."""
        return tuple(map(len, self.domains))

    @property
    def size(self) -> int:
        """Return the number of possible combinations of values."""
        return math.prod(self.shape)

    def find_value_places(self, values: Sequence[Value]) -> tuple[int, ...]:
        """Return the places of the values of a row in the lists of their columns' values."""
        return tuple(domain.index(value) for domain, value in zip(self.domains, values, strict=True))

    def bound_changed_rows(self, confidence: float) -> int:
        """Return the largest number of rows that were added or dropped, with this probability."""
        return self._changed_rows_bound(confidence)

    def estimate(self, *columns: str, confidence: float = 0.95) -> dict[tuple[Value, ...], Estimate]:
        """Return the share of each combination of values of these columns among the private rows, free.

        The intervals hold with about the stated probability, from some hundred rows on: they are normal intervals of the answers,
        extended by what added or dropped rows may change.

        Raises:
            DataError: for a column that does not exist, or an empty table.
        """
        import itertools

        import numpy as np
        from scipy.special import ndtri

        from dpsql.privacy.local import Estimate

        if not 0 < confidence < 1:
            raise DataError("a confidence must lie between 0 and 1", hint="confidence=0.95")
        places = [self._get_column_place(name) for name in columns]
        for name, place in zip(columns, places, strict=True):
            if self.get_step(place):
                raise DataError(
                    f"values of {name} were rounded to its bounds, so only their mean can be estimated",
                    hint=f"table.mean({name!r})",
                )
        if not places or len(set(places)) < len(places):
            raise DataError(
                "an estimate needs columns of the table, each once",
                hint=f"the columns are: {', '.join(self.columns)}",
            )
        total = len(self)
        if not total:
            raise DataError("the table has no rows")
        shape = [len(self.domains[place]) for place in places]
        known = [{value: at for at, value in enumerate(self.domains[place])} for place in places]
        found = np.zeros(shape)
        for row in self.cells:
            found[tuple(index[row[place]] for index, place in zip(known, places, strict=True))] += row[-1]
        mean, square = found / total, found / total
        for axis, place in enumerate(places):
            size, odds = shape[axis], float(self.odds[place])
            p, q = odds / (odds + size - 1), 1 / (odds + size - 1)
            # The share of a value is (answers - q)/(p - q); its square's mean follows from the squares of these weights.
            inside, outside = (1 - q) / (p - q), -q / (p - q)
            mean = inside * mean + outside * (mean.sum(axis=axis, keepdims=True) - mean)
            square = inside**2 * square + outside**2 * (square.sum(axis=axis, keepdims=True) - square)
        spread = float(ndtri((1 + confidence) / 2)) * np.sqrt(np.maximum(square - mean**2, 0) / total)
        off = spread + self._changed_rows_bound(0.999) / total
        values = itertools.product(*(self.domains[place] for place in places))
        ends = zip(mean.ravel(), off.ravel(), strict=True)
        return {
            key: Estimate(float(share), max(0.0, float(share - width)), min(1.0, float(share + width)))
            for key, (share, width) in zip(values, ends, strict=True)
        }

    def get_step(self, place: int) -> float:
        """Return the length of a step of the column at a place; 0 if its values were not rounded."""
        return self.steps[place] if self.steps else 0.0

    def mean(self, column: str, *, confidence: float = 0.95) -> Estimate:
        """Return the mean of a column that was rounded to its bounds; a missing value counts as the middle.

        Raises:
            DataError: for another column, or an empty table.
        """
        from scipy.special import ndtri

        from dpsql.privacy.local import Estimate

        place, rows = self._get_column_place(column), len(self)
        if not self.get_step(place) or not rows or not 0 < confidence < 1:
            raise DataError(
                f"{column} has no mean: only columns that were rounded to their bounds have one",
                hint="estimate(…) gives the shares of its values",
            )
        (low, high), odds = map(float, self.domains[place]), float(self.odds[place])  # type: ignore[arg-type]  # ends are numbers
        share = sum(int(row[-1]) for row in self.cells if row[place] == high) / rows  # type: ignore[arg-type, misc]  # the last is a count
        gap = (odds - 1) / (odds + 1)
        value = (share - 1 / (odds + 1)) / gap
        noise = float(ndtri((1 + confidence) / 2)) * math.sqrt(share * (1 - share) / rows) / gap
        width = noise + self._changed_rows_bound(0.999) / rows
        step = self.get_step(place) / 2
        return Estimate(
            low + value * (high - low),
            max(low, low + (value - width) * (high - low) - step),
            min(high, low + (value + width) * (high - low) + step),
        )

    def _get_column_place(self, name: str) -> int:
        if name not in self.columns:
            raise DataError(
                f"the table has no column {name}", hint=f"the columns are: {', '.join(self.columns)}"
            )
        return self.columns.index(name)


# Estimates of counts, sums and means from the rows of a randomized table, with their intervals.


_MOST_WORK = 50_000_000
"""Cells times groups times columns of an answer."""
_ROWS_OFF = 0.999


@dataclass(frozen=True, slots=True)
class _EstimatedCell:
    """A value, the standard deviation of its noise, the change that added or dropped rows may make, and its possible ends."""

    value: float | None
    std: float
    off: float
    low: float
    high: float
    known: bool = True

    def compute_interval(self, confidence: float) -> Ends:
        """Return the interval of the value at a confidence."""
        from scipy.special import ndtri

        if self.value is None:
            return None
        if not self.known:
            return self.low, self.high
        width = float(ndtri((1 + confidence) / 2)) * self.std + self.off
        return max(self.low, self.value - width), min(self.high, self.value + width)


@dataclass(frozen=True, slots=True)
class LocalStatistics:
    """Linear statistics of the private rows, estimated from the rows of a randomized table.

    Claim: the estimate of a sum of f over rows has no bias, except for rows that were added or dropped.
    Why: each column is randomized by a matrix of its own, whose inverse is applied to f along that column's axis. So the value
    that a randomized row is counted with has f of the true row as its mean.
    Source: Warner 1965; Kairouz, Bonawitz, Ramage 2016, "Discrete distribution estimation under local privacy".
    """

    table: LocalTable
    counts: NDArray[np.float64]

    @classmethod
    def from_table(cls, table: LocalTable) -> LocalStatistics:
        """Return the statistics of a table."""
        import numpy as np

        counts = np.zeros(table.shape)
        for row in table.cells:
            counts[table.find_value_places(row[:-1])] += float(row[-1])  # type: ignore[arg-type]  # the last column is a count
        return cls(table, counts)

    def estimate_sum(self, values: NDArray[np.float64]) -> tuple[float, float, float]:
        """Return the sum of a value of each cell over the private rows, the deviation of its noise, and the effect of changed rows.

        The deviation is that of rows drawn independently, which is not smaller.
        """
        import numpy as np

        weights = values.reshape(self.counts.shape)
        for axis, (size, odds) in enumerate(zip(self.counts.shape, self.table.odds, strict=True)):
            p, q = float(odds) / (float(odds) + size - 1), 1 / (float(odds) + size - 1)
            if size > 1:
                # With answers a and truths t: 1 for a = t, else 0, is the mean of (answers of t - q)/(p - q).
                weights = (weights - q * weights.sum(axis=axis, keepdims=True)) / (p - q)
        rows = max(len(self.table), 1)
        found = float((self.counts * weights).sum())
        spread = float((self.counts * weights**2).sum()) - found**2 / rows
        most = float(np.abs(values).max(initial=0.0))
        return found, max(spread, 0.0) ** 0.5, self.table.bound_changed_rows(_ROWS_OFF) * most


def estimate_answer(table: LocalTable, select: LocalSelect, cells: Result, receipt: Receipt) -> Result:
    """Return the answer to a SELECT over a randomized table; `cells` is the answer to `select.cells`.

    Raises QueryRejected (`local_query`) for a sum of values that are not numbers, and for too many groups.
    """
    groups: dict[tuple[Any, ...], list[Sequence[Any]]] = {} if select.keys else {(): []}
    for row in sorted(cells.rows, key=lambda row: row[0]):  # numbers of cells
        groups.setdefault(tuple(row[1 : 1 + select.keys]), []).append(row)
    statistics, size = LocalStatistics.from_table(table), table.size
    if len(groups) * len(select.outputs) * size > _MOST_WORK:
        raise QueryRejected(
            "there are too many groups to estimate", code="local_query", hint="group by fewer columns"
        )
    lines = [
        [_estimate_cell(statistics, select.keys, output, key, members) for output in select.outputs]
        for key, members in groups.items()
    ]
    for place, descending, nulls_first in reversed(select.order):
        missing = [line for line in lines if _get_sort_value(line[place]) is None]
        there = [line for line in lines if _get_sort_value(line[place]) is not None]
        there.sort(key=lambda line: _get_sort_value(line[place]), reverse=descending)
        lines = missing + there if nulls_first else there + missing
    return _build_result(select, lines[: select.limit], receipt, cells.types)


def _get_sort_value(cell: Any) -> Any:
    return cell.value if isinstance(cell, _EstimatedCell) else cell


def _estimate_cell(
    statistics: LocalStatistics,
    keys: int,
    output: LocalOutput,
    key: Sequence[Any],
    members: Sequence[Sequence[Any]],
) -> Any:
    """Return the key, or the estimate, of an output in a group of cells."""
    import numpy as np

    if output.function == "key":
        return key[output.place or 0]
    step = (
        0.0
        if output.column is None
        else statistics.table.get_step(statistics.table.columns.index(output.column)) / 2
    )
    counted, summed = np.zeros(statistics.table.size), np.zeros(statistics.table.size)
    values = list[float]()
    for row in members:
        value = 1 if output.place is None else row[1 + keys + output.place]
        if value is None:
            continue
        counted[row[0]] = 1
        if output.function != "rows":
            if isinstance(value, bool) or not _is_number(value):
                raise QueryRejected(
                    f"{output.name}: SUM and AVG need numbers",
                    code="local_query",
                    hint="convert a BOOLEAN to a number: CASE WHEN smoker THEN 1 ELSE 0 END",
                )
            summed[row[0]] = float(value)
            values.append(float(value))
    if output.function == "rows":
        found, std, off = statistics.estimate_sum(counted)
        return _EstimatedCell(found, std, off, 0.0, float("inf"))
    if output.function == "total":
        found, std, off = statistics.estimate_sum(summed)
        off += step * max(0.0, statistics.estimate_sum(counted)[0])
        return _EstimatedCell(found if values else None, std, off, -float("inf"), float("inf"))
    return _estimate_mean(statistics, counted, summed, values, step)


def _estimate_mean(
    statistics: LocalStatistics,
    counted: NDArray[np.float64],
    summed: NDArray[np.float64],
    values: Sequence[float],
    step: float,
) -> _EstimatedCell:
    """Return a ratio of two sums; `step` is the error of rounding to steps.

    The noise is that of the numerator less its share of the denominator.
    """
    total, _, _ = statistics.estimate_sum(summed)
    rows, std_of_rows, off_rows = statistics.estimate_sum(counted)
    if not values or rows <= 0:
        return _EstimatedCell(None, 0.0, 0.0, 0.0, 0.0)
    low, high = min(values), max(values)
    mean = min(max(total / rows, low), high)
    _, std, off = statistics.estimate_sum(summed - mean * counted)
    sure = rows > 3 * std_of_rows + off_rows
    least = max(rows - off_rows, 1e-300)
    return _EstimatedCell(mean, std / least, off / least + step, low, high, known=sure)


def _is_number(value: Any) -> bool:
    try:
        return float(value) == float(value) and not isinstance(value, str)
    except (TypeError, ValueError, OverflowError):
        return False


def _build_result(
    select: LocalSelect, lines: Sequence[Sequence[Any]], receipt: Receipt, types_of_cells: Sequence[str]
) -> Result:
    noisy = tuple(output.function != "key" for output in select.outputs)
    counts = tuple(output.function == "rows" for output in select.outputs)

    def compute_cell_interval(row: int, column: int, confidence: float) -> Ends:
        cell = lines[row][column]
        return cell.compute_interval(confidence) if isinstance(cell, _EstimatedCell) else None

    rows = tuple(
        tuple(_to_answered(cell, whole=whole) for cell, whole in zip(line, counts, strict=True))
        for line in lines
    )
    scales = tuple(
        tuple(
            cell.std if isinstance(cell, _EstimatedCell) and cell.value is not None else None for cell in line
        )
        for line in lines
    )
    names = tuple(output.name for output in select.outputs)
    types = tuple(
        "BIGINT"
        if whole
        else "DOUBLE"
        if output.function != "key"
        else types_of_cells[1 + (output.place or 0)]
        for output, whole in zip(select.outputs, counts, strict=True)
    )
    return Result(names, types, rows, scales, receipt, compute_cell_interval, noisy, counts)


def _to_answered(cell: Any, *, whole: bool) -> AnswerValue:
    if not isinstance(cell, _EstimatedCell):
        found: AnswerValue = cell
        return found
    return round(cell.value) if whole and cell.value is not None else cell.value
