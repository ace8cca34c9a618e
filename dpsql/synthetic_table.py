"""A synthetic table as an analyst has it: invented rows, how far they are from the real ones, and a receipt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.errors import DataError, InterfaceError
from dpsql.local_table import MOST_LISTED
from dpsql.plan.types import Value
from dpsql.result import Receipt, Result

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class WorkloadError:
    """How far the marginals of a synthetic table are from those of the private rows, beside what noise alone would do.

    The private rows are those that count: of each unit at most as many as the policy lets count.

    All distances are sums of absolute differences over the cells of a marginal, in rows. `distance` is the sum over the workload
    as it was released, with noise; `direct` is what is expected of it if the same loss were spent on a noisy count in each
    cell of each marginal. `rows` is the number of synthetic rows.
    """

    rows: int
    marginals: int
    distance: int
    direct: float
    half_width: Callable[[float], int] = field(repr=False, compare=False)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the mean distance of a marginal lies with that probability, in rows. DataError unless 0 < confidence < 1."""
        if not 0 < confidence < 1:
            raise DataError("a confidence must lie between 0 and 1", hint="interval(0.95)")
        width = self.half_width(confidence)
        low, high = self.distance - width, self.distance + width
        return max(0, low) / self.marginals, max(0, high) / self.marginals

    @property
    def mean(self) -> float:
        """The mean distance of a marginal, in rows; noisy."""
        return max(0, self.distance) / self.marginals

    @property
    def direct_mean(self) -> float:
        """The mean distance of a marginal that is expected of noisy counts, in rows."""
        return self.direct / self.marginals

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"mean distance of {self.marginals} marginal{'s' * (self.marginals != 1)}: {self.mean:,.0f} rows (95%: {low:,.0f} to {high:,.0f}) "
            f"of {self.rows:,}; noisy counts at the same loss: {self.direct_mean:,.0f}"
        )


@dataclass(frozen=True, slots=True)
class SyntheticTable:
    """Invented rows, in all of which each column has a public value. All that is asked of them is free.

    `cells` has each combination that occurs, with the number of its rows last. `error` says how far the table is from the
    private rows, and is None for the hypothesis of a stream; `receipt` what was charged for it.

    What marginals outside of the workload look like is not known: rows are made as if columns were independent but for what
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
        """All rows, those that are alike one after another. Raises DataError where there are more than ten million."""
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
        """The rows as a result, with its `df`, `pl` and `to_arrow_table`."""
        rows = tuple(self.rows)
        scales = ((None,) * len(self.columns),) * len(rows)
        return Result(self.columns, self.types, rows, scales, self.receipt, _no_interval)

    def df(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame."""
        return self.result.df()

    def query(self, sql: str) -> Result:
        """The answer to a SELECT on the table `synthetic`: exact for these rows, and free."""
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
    """A synthetic value has no interval of its own."""
