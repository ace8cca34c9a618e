"""What a query returns: rows with intervals and a receipt, or the explanation of a query."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dpsql.errors import DataError
from dpsql.plan.types import AnswerValue, Row, parse_decimal_type
from dpsql.policy.request.loss import format_rounded
from dpsql.results.optional import make_missing_library_error
from dpsql.results.rendering import (
    CONFIDENCE,
    Ends,
    NoisyCell,
    RenderedColumn,
    expand_columns,
    format_html_table,
    format_html_text,
    format_table,
    format_value,
    render_column,
)

if TYPE_CHECKING:
    import altair
    import matplotlib.figure
    import pandas
    import polars
    import pyarrow

    from dpsql.results.charts import IntervalPlot


# The answer to a query: rows, the noise in them, and a receipt.


IntervalOf = Callable[[int, int, float], Ends]
"""(row, column, confidence) to the interval of a cell; None where the cell is no noisy aggregate."""

_PANDAS = {
    "BIGINT": "Int64",
    "DOUBLE": "float64",
    "DECIMAL": "float64",
    "VARCHAR": "string",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "datetime64[us]",
}
"""The dtype of each engine type. By default pandas derives it from the values, and from whether one is NULL."""


MOST_PRINTED = 50
"""Rows that `print` and a notebook show."""
_WRITTEN_IF_TRUE = frozenset({"explained", "constants"})


@dataclass(frozen=True, slots=True)
class Receipt:
    """The record of a query, for the owner's files: nothing in it depends on private data, except released values.

    Attributes:
        plan: The digest of the plan.
        mechanisms: Each noisy statistic with its mechanism.
        loss: The event that the accountant charged; None if nothing was charged.
        entries: The entries of the ledger.
        target: The requested accuracy, with the ε that was found for it; None if the query set its loss.
        replayed: The ids of the earlier entries that paid for a replayed answer.
        refined: The ids of the earlier entries that paid for an answer that was refined to less noise.
        notices: What the answer lacks of the question.
        explained: True if nothing was answered or charged: mechanisms and loss are then those that an answer would have. It is
            only written if it is true.
        constants: The day and the moment of `current_date` and `now()`. They are only written if the statement names them.
    """

    query: str
    plan: str
    analyst: str
    privacy_unit: str
    neighbors: str
    data_version: str
    policy: str
    mechanisms: tuple[dict[str, Any], ...]
    loss: dict[str, Any] | None
    entries: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    target: dict[str, str] | None = None
    replayed: tuple[int, ...] = ()
    refined: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()
    explained: bool = False
    constants: dict[str, str] = field(default_factory=dict)

    @property
    def is_of_session(self) -> bool:
        """Return whether the statement read only tables of its session, so that nothing was planned."""
        return not self.plan

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as data that JSON can hold."""
        return {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value
            for name in self.__dataclass_fields__
            if name not in _WRITTEN_IF_TRUE or getattr(self, name)
        }

    def to_json(self) -> str:
        """Return the receipt as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The answer to a query: frozen, public, and free to use in any way. It can be printed, pickled, and shown in a notebook.

    Attributes:
        columns: The names of the columns.
        types: The engine types of the columns.
        rows: The rows, as tuples of values.
        scales: The standard deviation of the noise of each cell, in the value's own units. It is None for keys, and for values
            that are computed from several aggregates, or from one other than by a factor and a shift.
        receipt: The record of the query.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[Row, ...]
    scales: tuple[tuple[float | None, ...], ...]
    receipt: Receipt
    _interval_of: IntervalOf = field(repr=False, compare=False)
    _bounded: tuple[bool, ...] = field(default=(), repr=False, compare=False)
    _counts: tuple[bool, ...] = field(default=(), repr=False, compare=False)
    _branches: tuple[int, ...] = field(default=(), repr=False, compare=False)
    _compute_notices: Callable[[Result], tuple[str, ...]] | None = field(
        default=None, repr=False, compare=False
    )

    def intervals(self, confidence: float = 0.95) -> tuple[tuple[Ends, ...], ...]:
        """Return, for each cell, an interval that holds the true value with probability `confidence`.

        The true value is that of the answer without noise. An interval covers the loss of a privately chosen clamp: either this is
        small compared with the noise, or the interval is extended by it. It does not cover the loss of the policy's bounds.

        - Values that are computed from several aggregates of one row, or from one other than by a factor and a shift, have simulated
          intervals, up to a confidence of 0.99996. So may values with the noise of a count that selected their group. An end is
          infinite if the noise leaves it open.
        - Values that are computed from several rows or releases, such as a share of the total, are simulated with all of them, up to
          a confidence of 0.997.
        - Quantiles have an interval if their ends were released with them, up to a confidence of 0.95.
        - If noisy values select among the rows, as ORDER BY with LIMIT does, intervals are wider, so that those of the selected rows
          hold.

        Args:
            confidence: A probability between 0 and 1.

        Returns:
            The intervals, row by row; None for keys, for NULL, and for values where noise decides which values are read, as in a
            maximum.

        Raises:
            DataError: unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError("a confidence must lie between 0 and 1", hint="intervals(0.95)")
        return tuple(
            tuple(self._interval_of(row, column, confidence) for column in range(len(self.columns)))
            for row in range(len(self.rows))
        )

    @property
    def notices(self) -> tuple[str, ...]:
        """Return what needs attention in the answer, such as groups that are not shown, and values that are mostly noise.

        The notices follow from the statement, the policy and the answer itself.
        """
        return (
            *self.receipt.notices,
            *(() if self._compute_notices is None else self._compute_notices(self)),
        )

    @property
    def branches(self) -> tuple[int, ...]:
        """Return, for each row, the part of a UNION ALL of releases that it comes from; empty if rows have several origins."""
        return self._branches

    @property
    def bounded_columns(self) -> tuple[bool, ...]:
        """Return, for each column, whether its cells have intervals; empty if no column can have any."""
        return self._bounded

    @property
    def count_columns(self) -> tuple[bool, ...]:
        """Return, for each column, whether it is a noisy count; empty if no column can be one."""
        return self._counts

    def with_interval_columns(self, confidence: float) -> Result:
        """Return the answer with two more columns, the ends of the interval, after each column that has intervals."""
        found = self.intervals(confidence)
        parts: list[tuple[str, str, tuple[AnswerValue, ...]]] = []
        for place, (name, kind, values) in enumerate(
            zip(self.columns, self.types, self._split_columns(), strict=True)
        ):
            parts.append((name, kind, values))
            if any(self._bounded[place : place + 1]):
                ends = [row[place] or (None, None) for row in found]
                parts += [(f"{name}_low", "DOUBLE", tuple(low for low, _ in ends))]
                parts += [(f"{name}_high", "DOUBLE", tuple(high for _, high in ends))]
        columns, types, series = zip(*parts, strict=True)
        taken = {name for name in columns if columns.count(name) > 1} - {
            name for name in self.columns if self.columns.count(name) > 1
        }
        if taken:
            raise DataError(
                f"there is a column called {min(taken)} already", hint="give the column another name with AS"
            )
        rows = tuple(zip(*series, strict=True)) if self.rows else ()
        scales = ((None,) * len(columns),) * len(rows)
        return Result(columns, types, rows, scales, self.receipt, get_no_interval)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def df(self, *, intervals: bool = False, confidence: float = 0.95) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame.

        The dtypes follow from `types` alone. NULL is NaN in DOUBLE and DECIMAL, whose dtype is float64 as in DuckDB; NaT in
        TIMESTAMP; None in DATE; and NA in whole numbers, booleans and texts, whose dtypes also hold all 64 bits of a number.

        Args:
            intervals: Add the columns n_low and n_high, with the ends of the interval, after each column n that has intervals.
            confidence: The confidence of these intervals.

        Raises:
            ImportError: without pandas.
            DataError: if the answer already has a column of such a name.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise make_missing_library_error("df()", "pandas", "pandas") from None
        if intervals:
            return self.with_interval_columns(confidence).df()
        frame = pandas.DataFrame(
            {
                index: pandas.Series(list(values), dtype=_PANDAS.get(kind.partition("(")[0], "object"))
                for index, (values, kind) in enumerate(zip(self._split_columns(), self.types, strict=True))
            }
        )
        frame.columns = pandas.Index(self.columns)
        return frame

    def to_arrow_table(self, *, intervals: bool = False, confidence: float = 0.95) -> pyarrow.Table:
        """Return the rows as an Arrow table; the arguments are those of `df`.

        Raises:
            ImportError: without pyarrow.
            DataError: for days that Python's dates cannot hold, which are texts in `rows`.
        """
        try:
            import pyarrow
        except ModuleNotFoundError:
            raise make_missing_library_error("to_arrow_table()", "pyarrow") from None
        if intervals:
            return self.with_interval_columns(confidence).to_arrow_table()
        types = {
            "BIGINT": pyarrow.int64(),
            "DOUBLE": pyarrow.float64(),
            "VARCHAR": pyarrow.string(),
            "BOOLEAN": pyarrow.bool_(),
            "DATE": pyarrow.date32(),
            "TIMESTAMP": pyarrow.timestamp("us"),
            "TIME": pyarrow.time64("us"),
            "UUID": pyarrow.string(),
            "BLOB": pyarrow.binary(),
        }
        types |= {f"{kind}[]": pyarrow.list_(of) for kind, of in types.items()}
        types |= {f"MAP({kind}, BIGINT)": pyarrow.map_(of, pyarrow.int64()) for kind, of in types.items()}
        try:
            arrays = [
                pyarrow.array(
                    [_to_arrow(value) for value in values],
                    types.get(kind) if digits is None else pyarrow.decimal128(*digits),
                )
                for values, kind in zip(self._split_columns(), self.types, strict=True)
                for digits in [parse_decimal_type(kind)]
            ]
        except pyarrow.ArrowException:
            raise DataError(
                "an Arrow column of its type cannot hold a value of the answer",
                hint="read it from result.rows, where a date before the year 1 or after 9999 is text",
            ) from None
        return pyarrow.Table.from_arrays(arrays, names=list(self.columns))

    def pl(self, *, intervals: bool = False, confidence: float = 0.95) -> polars.DataFrame:
        """Return the rows as a polars DataFrame; the arguments are those of `df`.

        Raises:
            ImportError: without polars and pyarrow.
        """
        try:
            import polars
            import pyarrow  # noqa: F401  (what polars reads)
        except ModuleNotFoundError as error:
            raise make_missing_library_error("pl()", error.name or "polars", "polars") from None
        frame = polars.from_arrow(self.to_arrow_table(intervals=intervals, confidence=confidence))
        if not isinstance(frame, polars.DataFrame):
            raise TypeError("polars made a series of a table")
        return frame

    def _split_columns(self) -> Sequence[tuple[AnswerValue, ...]]:
        return list(zip(*self.rows, strict=True)) if self.rows else [() for _ in self.columns]

    @property
    def displayed(self) -> tuple[Row, ...]:
        """Return the rows as they are displayed: a noisy count below zero is shown as 0, while `rows` has its value."""
        counts = self._counts or (False,) * len(self.columns)
        return tuple(
            tuple(
                _clip_count(value) if count or isinstance(value, dict) else value
                for value, count in zip(row, counts, strict=True)
            )
            for row in self.rows
        )

    def texts(self) -> list[list[str]]:
        """Return each cell as text: numbers are rounded to their noise, while years and other short keys stay as they are."""
        short = [_is_short(column) for column in self._split_columns()]
        return [
            [
                str(value) if key and scale is None and value is not None else format_value(value, scale)
                for value, scale, key in zip(row, scales, short, strict=True)
            ]
            for row, scales in zip(self.displayed, self.scales, strict=True)
        ]

    def render_columns(self) -> list[RenderedColumn]:
        """Return the columns as they are displayed: aligned texts, and the half-widths of the 95% intervals of noisy columns."""
        texts, displayed, intervals = self.texts(), self.displayed, self.intervals(CONFIDENCE)
        return [
            render_column(
                name,
                kind,
                [row[place] for row in texts],
                [
                    NoisyCell(row[place], scales[place], ends[place])
                    for row, scales, ends in zip(displayed, self.scales, intervals, strict=True)
                ],
            )
            for place, (name, kind) in enumerate(zip(self.columns, self.types, strict=True))
        ]

    def plot(
        self,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        *,
        confidence: float = 0.95,
        title: str | None = None,
    ) -> matplotlib.figure.Figure:
        """Draw noisy columns with their intervals, one pane each, with matplotlib.

        `res.plot().savefig("visits.png")` writes the figure to a file.

        Args:
            x: The columns that name the rows, by default all without intervals. A single column of numbers or days is an axis;
                other columns are labels.
            y: The columns to draw, by default all with intervals.
            confidence: The confidence of the intervals.
            title: The title of the figure.

        Raises:
            DataError: if a column does not exist or has no intervals, or if there are no rows or too many to read.
            ProgrammingError: (`plot_unavailable`) without matplotlib.
        """
        from dpsql.results.charts import draw_interval_figure

        figure: matplotlib.figure.Figure = draw_interval_figure(self._lay_out_plot(x, y, confidence, title))
        return figure

    def chart(
        self,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        *,
        confidence: float = 0.95,
        title: str | None = None,
    ) -> altair.Chart:
        """Draw the same as `plot` as an Altair chart, in which a notebook shows the values and intervals under the pointer.

        The chart holds released values and their intervals, nothing else.

        Args:
            x: As for `plot`.
            y: As for `plot`.
            confidence: As for `plot`.
            title: As for `plot`.

        Raises:
            DataError: as `plot` does.
            ProgrammingError: (`plot_unavailable`) without Altair.
        """
        from dpsql.results.charts import draw_interval_chart

        chart: altair.Chart = draw_interval_chart(self._lay_out_plot(x, y, confidence, title))
        return chart

    def _lay_out_plot(
        self,
        x: str | Sequence[str] | None,
        y: str | Sequence[str] | None,
        confidence: float,
        title: str | None,
    ) -> IntervalPlot:
        """Return the plot of noisy columns over keys; the errors are those of `plot`."""
        from dpsql.results.charts import IntervalPlot

        found = self.intervals(confidence)
        bounded = {name for place, name in enumerate(self.columns) if any(row[place] for row in found)}
        keys = self._resolve_columns(x, [name for name in self.columns if name not in bounded])
        drawn = self._resolve_columns(y, [name for name in self.columns if name in bounded])
        for place in drawn:
            if self.columns[place] not in bounded:
                raise DataError(
                    f"the column {self.columns[place]} has no intervals to draw",
                    hint="pass a noisy column as y",
                )
        panes = [
            (
                self.columns[place],
                [(row[place], ends[place]) for row, ends in zip(self.rows, found, strict=True)],
            )
            for place in drawn
        ]
        return IntervalPlot.from_columns(
            [self.columns[place] for place in keys],
            [tuple(row[place] for place in keys) for row in self.rows],
            panes,
            confidence,
            title,
        )

    def _resolve_columns(self, named: str | Sequence[str] | None, default: Sequence[str]) -> list[int]:
        names = default if named is None else [named] if isinstance(named, str) else named
        for name in names:
            if name not in self.columns:
                raise DataError(
                    f"there is no column {name}", hint=f"the columns are: {', '.join(self.columns)}"
                )
        return [self.columns.index(name) for name in names]

    def _limit_rows(self) -> tuple[Result, str]:
        """Return the result with the rows that are printed, and a line about the others."""
        if len(self) <= MOST_PRINTED:
            return self, ""
        cut = replace(self, rows=self.rows[:MOST_PRINTED], scales=self.scales[:MOST_PRINTED])
        return cut, f"… and {len(self) - MOST_PRINTED:,} more rows"

    def __str__(self) -> str:
        cut, more = self._limit_rows()
        names, columns, numbers = expand_columns(cut.render_columns())
        lines = format_table(names, list(zip(*columns, strict=True)), numbers)
        return "\n".join([*lines, *filter(None, [more]), *self.notices])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        cut, more = self._limit_rows()
        names, columns, numbers = expand_columns(cut.render_columns())
        table = format_html_table(names, list(zip(*columns, strict=True)), numbers)
        remarks = "".join(f"<p>{html.escape(line)}</p>" for line in filter(None, [more, *self.notices]))
        return f"{table}{remarks}"


def get_no_interval(_row: int, _column: int, _confidence: float) -> None:
    """Return no interval, for exact columns and for those that are ends of intervals."""


def _to_arrow(value: Any) -> Any:
    """Convert a value for Arrow; a UUID becomes text."""
    if isinstance(value, dict):
        return [(_to_arrow(key), count) for key, count in value.items()]
    return str(value) if isinstance(value, UUID) else value


def _clip_count(value: Any) -> Any:
    """Return a count, or a map of counts, with negative counts raised to 0."""
    if isinstance(value, dict):
        return {key: _clip_count(count) for key, count in value.items()}
    return 0 if isinstance(value, int) and value < 0 else value


def _is_short(column: Sequence[AnswerValue]) -> bool:
    """Return whether a column holds whole numbers of at most four digits, which are read without separators."""
    return all(value is None or (type(value) is int and abs(value) < 10_000) for value in column)


# The explanation of a query: the lines of its plan, its receipt, its notices and its price.


@dataclass(frozen=True, slots=True)
class QueryCharge:
    """What a query would be charged: an ε, or the most for an answer in steps, to each of these accounts."""

    epsilon: Fraction
    accounts: tuple[str, ...]
    steps: bool = False

    def __str__(self) -> str:
        most = "at most " if self.steps else ""
        return f"{most}ε {format_rounded(self.epsilon, 6, up=True)}, charged to {' and '.join(self.accounts)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplainedQuery:
    """The plan of a query with its proofs and its price, line by line; `receipt` is that of an answer, uncharged.

    `notices` say what needs attention in the statement; `price` is None for a free query.
    """

    lines: tuple[str, ...]
    receipt: Receipt
    price: QueryCharge | None = None
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return format_html_text(str(self))

    def to_result(self) -> Result:
        """Return the explanation as a result with one text column."""
        rows = tuple((line,) for line in self.lines)
        return Result(
            ("plan",), ("VARCHAR",), rows, tuple((None,) for _ in rows), self.receipt, lambda *_: None
        )
