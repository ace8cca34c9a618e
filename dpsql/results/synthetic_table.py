"""Synthetic tables, and streams of counting queries over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.errors import DataError, InterfaceError, QueryRejected
from dpsql.plan.types import Value
from dpsql.results.local_table import MOST_LISTED
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    import pandas

    from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
    from dpsql.privacy.synthesis.workload import Counts


# A synthetic table, from the analyst's side: synthetic rows, their distance from the private ones, and a receipt.


@dataclass(frozen=True, slots=True)
class WorkloadError:
    """The distance of the marginals of a synthetic table from those of the private rows, compared with noisy counts.

    The private rows are those that are counted: of each unit at most as many as the policy allows.

    All distances are sums of absolute differences over the cells of a marginal, in rows. `distance` is the released, noisy sum
    over the workload. `direct` is its expected value if the same loss were spent on a noisy count of each cell of each marginal.
    `rows` is the number of synthetic rows.
    """

    rows: int
    marginals: int
    distance: int
    direct: float
    half_width: Callable[[float], int] = field(repr=False, compare=False)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that holds the mean distance of a marginal, in rows, with this probability.

        Raises:
            DataError: unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError("a confidence must lie between 0 and 1", hint="interval(0.95)")
        width = self.half_width(confidence)
        low, high = self.distance - width, self.distance + width
        return max(0, low) / self.marginals, max(0, high) / self.marginals

    @property
    def mean(self) -> float:
        """Return the mean distance of a marginal, in rows; it is noisy."""
        return max(0, self.distance) / self.marginals

    @property
    def direct_mean(self) -> float:
        """Return the mean distance of a marginal that is expected of noisy counts, in rows."""
        return self.direct / self.marginals

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"mean distance of {self.marginals} marginal{'s' * (self.marginals != 1)}: {self.mean:,.0f} rows (95%: {low:,.0f} to {high:,.0f}) "
            f"of {self.rows:,}; noisy counts at the same loss: {self.direct_mean:,.0f}"
        )


@dataclass(frozen=True, slots=True)
class SyntheticTable:
    """Synthetic rows, in which each column has only public values. All queries over them are free.

    `cells` has each combination that occurs, followed by the number of its rows. `error` is the distance of the table from the
    private rows; it is None for the hypothesis of a stream. `receipt` is the record of the charge.

    The accuracy of marginals outside the workload is not known: the rows are made as if columns were independent, except for what
    was measured.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    cells: tuple[tuple[Value, ...], ...]
    error: WorkloadError | None
    receipt: Receipt
    name: str = "synthetic"
    _connect: Callable[[SyntheticTable], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def rows(self) -> list[tuple[Value, ...]]:
        """Return all rows, equal ones next to each other.

        Raises:
            DataError: if there are more than ten million.
        """
        if len(self) > MOST_LISTED:
            raise DataError(
                f"the table has {len(self):,} rows, too many to list",
                hint="use .cells, which has each combination with its number of rows",
            )
        return [
            tuple(keys)
            for *keys, number in self.cells
            for _ in range(int(number))  # type: ignore[arg-type]  # the last column is a count
        ]

    @property
    def result(self) -> Result:
        """Return the rows as a result, with its `df`, `pl` and `to_arrow_table`."""
        rows = tuple(self.rows)
        scales = ((None,) * len(self.columns),) * len(rows)
        return Result(self.columns, self.types, rows, scales, self.receipt, _no_interval)

    def df(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self.result.df()

    def query(self, sql: str) -> Result:
        """Return the answer to a SELECT on the table `synthetic`: exact for these rows, and free."""
        if self._connect is None:
            raise InterfaceError("this table was not made by a connection", hint="con.synthetic(…)")
        with self._connect(self) as con:
            found: Result = con.query(sql)
        return found

    def __len__(self) -> int:
        return sum(int(row[-1]) for row in self.cells)  # type: ignore[arg-type, misc]

    def __str__(self) -> str:
        head = f"synthetic table ({', '.join(self.columns)}): {len(self):,} rows"
        return head if self.error is None else f"{head}\n{self.error}"


def _no_interval(_row: int, _column: int, _confidence: float) -> None:
    """Return no interval: a synthetic value has none."""


# A stream of counting queries, from the analyst's side.


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """A count of rows. `counted` is True if the hypothesis was wrong, so that the rows were counted, with noise.

    The exact count is between `low` and `high` with 95% probability. For an answer of the hypothesis these are the errors at
    which it would still not have been called wrong.
    """

    value: int
    counted: bool
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Counting queries over the rows that a stream was opened with; see `Connection.stream`.

    Each answer is free, because the loss of the whole stream was charged when it was opened. The stream ends when its hypothesis
    was wrong `updates` times. It also ends, and its table with it, when the budget that paid for it is renewed or reset. Answers
    need not agree with each other, because the hypothesis changes.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    receipt: Receipt
    _domains: tuple[Sequence[Value], ...] = field(repr=False)
    _answer: Callable[[Cells], StreamedCount] = field(repr=False)
    _running: RunningStream = field(repr=False)
    _cells: Callable[[str], Iterable[int]] = field(repr=False)
    _table: Callable[[Counts], SyntheticTable] = field(repr=False)

    @property
    def left(self) -> int:
        """Return how many times the hypothesis may still be wrong."""
        return self._running.updates_left

    def count(self, condition: str | None = None, /, **values: Value | Sequence[Value]) -> StreamAnswer:
        """Return the number of rows that satisfy a condition and have these values: `count("age < 40", plan="A", ward=[1, 2])`.

        Args:
            condition: What may follow WHERE, over the columns of the stream.
            **values: The value of a column, or a list of values.

        Raises:
            OperationalError: (`stream_ended`) if the stream has ended.
            QueryRejected: if the condition is not one.
            DataError: for a value that the column cannot have.
        """
        found = self._answer(self._select_cells(condition, values))
        mechanism = self._running.mechanism
        from_rows = found.counted or found.repeated
        width = mechanism.count.compute_half_width(0.95) if from_rows else mechanism.bound_error(0.95)
        return StreamAnswer(
            found.value, found.counted, max(0, found.value - width), max(0, found.value + width)
        )

    def table(self) -> SyntheticTable:
        """Return the hypothesis as a synthetic table, free.

        Raises:
            OperationalError: (`stream_ended`) if the budget that paid for the stream was renewed or reset.
        """
        return self._table(self._running.round_hypothesis())

    def _select_cells(self, condition: str | None, values: Mapping[str, Value | Sequence[Value]]) -> Cells:
        import numpy as np

        shape = tuple(map(len, self._domains))
        chosen = np.ones(shape, bool)
        if condition is not None:
            if not isinstance(condition, str):
                raise QueryRejected("a condition must be text", code="condition")
            places = np.array(sorted(self._cells(condition)), np.int64)
            size = math.prod(shape)
            if len(places) and not (places[0] >= 0 and places[-1] < size):
                raise QueryRejected("this is not a condition", code="condition", text=condition)
            chosen = np.zeros(size, bool)
            chosen[places] = True
            chosen = chosen.reshape(shape)
        for name, wanted in values.items():
            if name not in self.columns:
                raise DataError(
                    f"the stream has no column {name}", hint=f"the columns are: {', '.join(self.columns)}"
                )
            axis = self.columns.index(name)
            many = isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes))
            listed: list[Value] = list(wanted) if many else [wanted]  # type: ignore[arg-type, list-item]
            allowed = np.zeros(shape[axis], bool)
            for value in listed:
                allowed[self._get_place(axis, value)] = True
            width = [1] * len(shape)
            width[axis] = shape[axis]
            chosen = chosen & allowed.reshape(width)
        return chosen

    def _get_place(self, axis: int, value: Value) -> int:
        for place, known in enumerate(self._domains[axis]):
            if known is value or (known is not None and value is not None and known == value):
                return place
        raise DataError(
            f"{self.columns[axis]} has no value {value!r} in the stream", hint="the policy lists its values"
        )
