"""A stream of counting queries, from the analyst's side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.errors import DataError, QueryRejected
from dpsql.plan.types import Value
from dpsql.results.result import Receipt
from dpsql.results.synthetic_table import SyntheticTable

if TYPE_CHECKING:
    from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
    from dpsql.privacy.synthesis.workload import Counts


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
