"""Format answers as tables with 95% intervals or as data, errors with their place, and charges."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import category
from uuid import UUID

from dpsql.errors import Error
from dpsql.policy.request.loss import format_rounded
from dpsql.privacy.accounting.accountants import get_accountant
from dpsql.results.rendering import (
    BUDGET_HEADS,
    CONFIDENCE,
    compute_remaining_percent,
    expand_columns,
    format_budget_cells,
)
from dpsql.results.result import Result

if TYPE_CHECKING:
    import pyarrow
    from rich.box import Box
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from dpsql.ledger.budget_state import BudgetState, RemainingBudget
    from dpsql.results.result import Receipt, Result


# Render rich text to a string: colored and wrapped for a terminal, plain otherwise.


_READABLE = 100
_UNBOUNDED = 10_000  # columns: output that is not for a terminal is never wrapped


@dataclass(frozen=True, slots=True)
class View:
    """How text is shown: colored or not, wrapped to the terminal's width or not."""

    color: bool = False
    fit: bool = False

    @classmethod
    def from_stream(cls, stream: TextIO) -> View:
        """Return the view for a stream: plain unless it is a terminal, without colors if NO_COLOR is set."""
        if not stream.isatty():
            return cls()
        return cls(not os.environ.get("NO_COLOR"), fit=True)

    @property
    def width(self) -> int:
        """Return the columns of the terminal, or no limit without one."""
        return shutil.get_terminal_size().columns if self.fit else _UNBOUNDED

    @property
    def columns(self) -> int:
        """Return the width of running text."""
        return min(_READABLE, shutil.get_terminal_size().columns) if self.fit else _READABLE

    def render_parts(self, *parts: RenderableType) -> str:
        """Render the parts one below the other, without space at the ends of lines."""
        from rich.console import Console

        out = io.StringIO()
        console = Console(
            file=out,
            force_terminal=self.color,
            no_color=not self.color,
            color_system="standard" if self.color else None,
            width=self.width,
            markup=False,
            highlight=False,
            emoji=False,
        )
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def render_table(made: Table, view: View) -> str:
    """Render a table, or each of its rows as lines if it is wider than the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if Console(width=_UNBOUNDED).measure(made).maximum <= view.width:
        return view.render_parts(made)
    parts: list[RenderableType] = []
    for row in zip(*(column.cells for column in made.columns), strict=True):
        lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        lines.add_column(style="bold", no_wrap=True)
        lines.add_column(overflow="fold")
        for column, cell in zip(made.columns, row, strict=True):
            lines.add_row(column.header, cell)
        parts += [*([Text("")] if parts else []), lines]
    return view.render_parts(*parts)


def build_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Table:
    """Build a table with a rule under its head; `right` are the columns to align right.

    The cells are plain text: control characters in them are shown as escapes.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=_make_rule_box(), header_style="bold", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
    )
    for index, name in enumerate(columns):
        made.add_column(
            Text(escape_unprintable(name)), justify="right" if index in right else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(escape_unprintable(cell)) for cell in row))
    return made


def make_bold(text: str) -> Text:
    """Return bold text."""
    from rich.text import Text

    return Text(text, style="bold")


def make_dim(text: str) -> Text:
    """Return dimmed text."""
    from rich.text import Text

    return Text(text, style="dim")


def escape_unprintable(text: str) -> str:
    r"""Return the text on one line, with control characters, which could control a terminal, as escapes.

    >>> escape_unprintable("a\x1b[2J\n")
    'a\\x1b[2J\\n'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _make_rule_box() -> Box:
    from rich.box import Box

    return Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


# Format errors for people: the code and message, the line with a caret, and the hint.


INTERRUPTED = "interrupted; any charge stands"


def format_unforeseen_error(error: BaseException) -> str:
    """Format an unexpected failure by its place in the code, without its message.

    The message, and the variables of a traceback, could quote private values.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:]]
    return (
        "error[internal]: unexpected failure in dpsql; any charge stands\n"
        f"hint: please report {type(error).__name__} at {' > '.join(places)}"
    )


def format_error(error: Error) -> str:
    """Format an error with its stable code, the line with a caret, and the hint.

    >>> print(format_error(Error("no such table", code="table", hint="did you mean visits?")))
    error[table]: no such table
    hint: did you mean visits?
    """
    return f"error[{error.code}]: {error}"


def highlight_error(text: str) -> Text:
    """Highlight the first word, the caret and the hint of an error's text."""
    from rich.text import Text

    highlighted = Text(text)
    highlighted.highlight_regex(re.compile(r"\Aerror(\[\w+\])?:"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^ +\^$"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^hint:"), style="bold cyan")
    return highlighted


def print_error(text: str) -> None:
    """Print an error's text to standard error, highlighted in a terminal."""
    print(View.from_stream(sys.stderr).render_parts(highlight_error(text)), file=sys.stderr, flush=True)


class AnswerFormat(Enum):
    """The format of an answer: `table` and `markdown` round values to the noise, `csv` and `json` do not."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"

    @classmethod
    def from_path(cls, path: Path) -> AnswerFormat | None:
        """Return the format of a file's ending, or None for another ending."""
        return {".csv": cls.CSV, ".json": cls.JSON, ".md": cls.MARKDOWN}.get(path.suffix.lower())


def format_answer(result: Result, style: AnswerFormat, view: View, expanded: str = "off") -> str:
    """Format an answer, without its charge.

    A table shows rows as lines if `expanded` is "on", or if it is "auto" and the table is wider than the view.
    """
    match style:
        case AnswerFormat.TABLE:
            if expanded == "on" or (expanded == "auto" and _is_too_wide(result, view)):
                return _render_records(result, view)
            return view.render_parts(build_result_table(result))
        case AnswerFormat.CSV:
            return _format_csv(result)
        case AnswerFormat.JSON:
            return _format_json(result)
        case AnswerFormat.MARKDOWN:
            return _format_markdown(result)


def build_result_table(result: Result) -> Table:
    """Build a table with a ±95% column to the right of each noisy column."""
    names, columns, numbers = expand_columns(result.render_columns())
    right = [index for index, number in enumerate(numbers) if number]
    return build_table(names, list(zip(*columns, strict=True)), right=right)


def _is_too_wide(result: Result, view: View) -> bool:
    from rich.cells import cell_len

    names, columns, _ = expand_columns(result.render_columns())
    widths = [
        max(cell_len(escape_unprintable(cell)) for cell in (name, *cells))
        for name, cells in zip(names, columns, strict=True)
    ]
    return view.fit and sum(widths) + 2 * (len(widths) - 1) > view.width


def _render_records(result: Result, view: View) -> str:
    """Format each row as lines, one per column, with the half-width of each noisy value."""
    from rich.table import Table
    from rich.text import Text

    columns, parts = result.render_columns(), list[Any]()
    for row in range(len(result.rows)):
        lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        lines.add_column(style="bold", no_wrap=True)
        lines.add_column(overflow="fold")
        for column in columns:
            half = "" if column.half_widths is None else column.half_widths[row].strip()
            text = f"{column.cells[row].strip()} ± {half}" if half else column.cells[row].strip()
            if half.startswith("["):
                text = f"{column.cells[row].strip()} in {half}"
            lines.add_row(Text(escape_unprintable(column.name)), Text(escape_unprintable(text)))
        title = f"─ row {row + 1} "
        parts += [title + "─" * max(min(view.columns, view.width) - len(title), 0), lines]
    if not parts:
        return textwrap.fill(
            f"no rows; columns: {', '.join(map(escape_unprintable, result.columns))}", view.columns
        )
    return view.render_parts(*parts)


def format_listing(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    style: AnswerFormat,
    view: View,
    *,
    numbers: Sequence[int] = (),
    rules: Sequence[str] = (),
) -> str:
    """Format a list of tables or columns; `rules` are sentences that follow in table format only."""
    match style:
        case AnswerFormat.TABLE:
            return view.render_parts(
                build_table(heads, [list(map(str, row)) for row in rows], right=numbers), *rules
            )
        case AnswerFormat.CSV:
            return _format_csv_rows(heads, rows)
        case AnswerFormat.JSON:
            data = [dict(zip(heads, row, strict=True)) for row in rows]
            return json.dumps(data, indent=2, ensure_ascii=False)
        case AnswerFormat.MARKDOWN:
            return _format_markdown_lines([heads, ["---"] * len(heads), *rows])


def _format_markdown(result: Result) -> str:
    names, columns, numbers = expand_columns(result.render_columns())
    lines = [names, ["---:" if number else "---" for number in numbers]]
    lines += [list(row) for row in zip(*columns, strict=True)]
    return _format_markdown_lines(lines)


def _format_markdown_lines(lines: Sequence[Sequence[Any]]) -> str:
    return "\n".join(
        f"| {' | '.join(escape_unprintable(str(cell).strip()).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )


def _format_csv(result: Result) -> str:
    return _format_csv_rows(*flatten_result(result))


def _format_csv_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_escape_csv_cell, names))
    writer.writerows([_escape_csv_cell(_to_plain_value(cell)) for cell in row] for row in rows)
    return out.getvalue().rstrip("\n")


def _escape_csv_cell(value: Any) -> Any:
    r"""Escape a cell so that it neither controls a terminal nor is a formula in a spreadsheet.

    Control characters other than tabs and line ends are written as escapes. A text that a spreadsheet would compute is prefixed
    with an apostrophe, which marks it as text there.

    >>> _escape_csv_cell("a\x1b[2J\nb"), _escape_csv_cell("=1+1"), _escape_csv_cell("-3.5"), _escape_csv_cell(-3.5)
    ('a\\x1b[2J\nb', "'=1+1", '-3.5', -3.5)
    """
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
    if isinstance(text, Decimal):
        return f"{text:f}"
    if not isinstance(text, str):
        return text
    escaped = "".join(char if char in "\t\n" or category(char) != "Cc" else repr(char)[1:-1] for char in text)
    return (
        f"'{escaped}"
        if escaped.startswith(("=", "+", "-", "@", "\t")) and not _is_number(escaped)
        else escaped
    )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) is not None


def _format_json(result: Result) -> str:
    names, rows = flatten_result(result)
    data = {
        "columns": names,
        "rows": [dict(zip(names, map(_to_plain_value, row), strict=True)) for row in rows],
        "notices": list(result.notices),
        "receipt": result.receipt.to_dict(),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=float)


def flatten_result(result: Result) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows as data, with columns `x_low` and `x_high` after each noisy column `x`.

    Repeated names are numbered: `x`, `x_2`.
    """
    intervals = result.intervals(CONFIDENCE)
    noisy = [any(row[index] is not None for row in intervals) for index in range(len(result.columns))]
    names: list[str] = []
    for name, has_interval in zip(result.columns, noisy, strict=True):
        names += [name, f"{name}_low", f"{name}_high"] if has_interval else [name]
    rows: list[list[Any]] = []
    for values, ends in zip(result.rows, intervals, strict=True):
        row: list[Any] = []
        for value, pair, has_interval in zip(values, ends, noisy, strict=True):
            row += [value, *(pair or (None, None))] if has_interval else [value]
        rows.append(row)
    return _make_names_unique(names), rows


def build_arrow_table(result: Result) -> pyarrow.Table:
    """Return the rows as an Arrow table with the ends of intervals, with column names as in `flatten_result`.

    Raises ImportError without pyarrow, and DataError for a value that Arrow cannot hold.
    """
    numbered = replace(result, columns=tuple(map(str, range(len(result.columns)))))
    table = numbered.to_arrow_table(intervals=True)
    parts = (name.partition("_") for name in table.column_names)
    return table.rename_columns(
        _make_names_unique([result.columns[int(place)] + line + end for place, line, end in parts])
    )


def _make_names_unique(names: Sequence[str]) -> list[str]:
    taken: list[str] = []
    for name in names:
        number, fresh = 1, name
        while fresh in taken:
            number += 1
            fresh = f"{name}_{number}"
        taken.append(fresh)
    return taken


def _to_plain_value(value: Any) -> Any:
    """Convert a value for JSON and CSV; a number that is not finite becomes null, and the keys of a map become texts."""
    if isinstance(value, dict):
        return {str(key): _to_plain_value(count) for key, count in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value


# Describe the charge of an answer and the remaining budget, which is rounded down.


def format_remarks(
    result: Result,
    epsilon: Fraction | None,
    states: Iterable[BudgetState],
    answered_at: datetime | None = None,
) -> str:
    """Return the lines under an answer: its notices, then its charge."""
    return "\n".join([*result.notices, format_charges(result.receipt, epsilon, states, answered_at)])


def format_charges(
    receipt: Receipt,
    epsilon: Fraction | None,
    states: Iterable[BudgetState | RemainingBudget],
    answered_at: datetime | None = None,
) -> str:
    """Return a line for each table with the charge and the remaining budget, and a line for replayed answers.

    `epsilon` is the requested loss; if it is unknown, the charge is in the accountant's own unit. A receipt with a target error
    holds the loss that was found for it. `answered_at` is the time of the replayed answer.
    """
    if receipt.target is not None:
        epsilon = Fraction(receipt.target["epsilon"])
    known = {(state.table, state.analyst): state for state in states}
    lines = list[str]()
    for account, entries in _group_by_account(receipt).items():
        state = known.get(account)
        if state is None:
            continue
        loss = sum((Fraction(entry["loss"]) for entry in entries), Fraction(0))
        delta = sum((Fraction(entry["delta"]) for entry in entries), Fraction(0))
        symbol = get_accountant(state.accountant).symbol
        parts = [] if symbol == "ε" or epsilon is None else [f"{symbol} {format_rounded(loss, up=True)}"]
        parts += [f"δ {format_rounded(delta, up=True)}"] if delta else []
        named = "ε" if symbol == "ε" or epsilon is not None else symbol
        price = f"{named} {format_rounded(loss if symbol == 'ε' or epsilon is None else epsilon, 6, up=True)}"
        parts += [f"in {len(entries)} steps"] if receipt.target is not None and len(entries) > 1 else []
        more = f" ({', '.join(parts)})" if parts else ""
        if "slice" in entries[0]:
            lines.append(f"charged to reservation {entries[0]['slice']} of {state.name}: {price}{more}")
        else:
            lines.append(f"charged to {state.name}: {price}{more}; {format_balance(state)}")
    if receipt.is_of_session:
        paid = ", ".join(map(str, receipt.replayed))
        lines.append("nothing was charged" + f": ledger entry {paid} paid for the table" * bool(paid))
    elif receipt.replayed:
        paid = ", ".join(map(str, receipt.replayed))
        free = "the rest is free" if receipt.entries else "nothing was charged"
        when = "" if answered_at is None else f" of {answered_at:%Y-%m-%d %H:%M} UTC"
        lines.append(f"{free}: an earlier answer{when} to the same question, ledger entry {paid}")
    return "\n".join(lines) or "nothing was charged: the answer follows from the policy"


def _group_by_account(receipt: Receipt) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Group the entries by table and analyst; a query answered in steps has several per account."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in receipt.entries:
        found.setdefault((entry["table"], entry.get("account", "")), []).append(entry)
    return found


def format_balance(state: BudgetState | RemainingBudget) -> str:
    """Describe the remaining budget.

    The percentage refers to the loss; the ε is that of the largest single query that still fits. Under `zcdp` or `gdp`, many
    small queries together may cost far more than that.
    """
    return f"{compute_remaining_percent(state)}% left, at most ε {format_rounded(state.remaining_epsilon)} in one query"


def describe_failures(states: Iterable[BudgetState], ledger: str) -> Iterator[str]:
    """Yield a line for each table with queries that failed while running, and the owner's commands for them."""
    for state in states:
        if state.analyst or not state.failures:
            continue
        times = "one query has" if state.failures == 1 else f"{state.failures} queries have"
        table = escape_unprintable(state.table)
        line = f"{table}: {times} failed while running; dpsql ledger show {ledger} --kind failure lists them"
        if state.locked:
            name = f'"{table}"' if state.key.is_shared else table
            line += (
                f', and the table is locked; unlock it with: dpsql ledger unlock {ledger} {name} --reason "…"'
            )
        yield line


def build_budget_table(states: Iterable[BudgetState]) -> Table:
    """Build a table of budgets with a line for each account."""
    states = tuple(states)
    heads = ("table", *BUDGET_HEADS)
    failed = any(state.failures for state in states)
    rows = [
        (
            *format_budget_cells(state),
            *((f"{state.failures}: locked" if state.locked else f"{state.failures}",) if failed else ()),
        )
        for state in states
    ]
    return build_table((*heads, "failures") if failed else heads, rows, right=range(1, 7))
