"""Format an answer as a table with 95% intervals, or as data."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category
from uuid import UUID

from dpsql.interfaces.shell.view import View, build_table, escape_unprintable
from dpsql.results.rendering import CONFIDENCE, expand_columns
from dpsql.results.result import Result

if TYPE_CHECKING:
    import pyarrow
    from rich.table import Table


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
