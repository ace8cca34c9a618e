"""A randomized table, from the analyst's side, and estimates from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import DataError
from dpsql.plan.types import Value
from dpsql.results.result import Receipt

if TYPE_CHECKING:
    from dpsql.privacy.local import Estimate


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
