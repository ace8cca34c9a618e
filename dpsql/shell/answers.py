"""An answer as a table for people, with each noisy value beside its 95% interval, or as data."""

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

from dpsql.rendering import CONFIDENCE, spread
from dpsql.result import Result
from dpsql.shell.view import View, printable, table

if TYPE_CHECKING:
    import pyarrow
    from rich.table import Table


class Format(Enum):
    """How an answer is written: `table` and `markdown` round to the noise, `csv` and `json` do not."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"

    @classmethod
    def of(cls, path: Path) -> Format | None:
        """The format that a file's ending stands for, None where it stands for none."""
        return {".csv": cls.CSV, ".json": cls.JSON, ".md": cls.MARKDOWN}.get(path.suffix.lower())


def written(result: Result, style: Format, view: View, expanded: str = "off") -> str:
    """The answer in a format, without what it cost.

    A table has each row as lines where `expanded` is "on", and, where it is "auto", if it is wider than the view.
    """
    match style:
        case Format.TABLE:
            if expanded == "on" or (expanded == "auto" and _too_wide(result, view)):
                return _records(result, view)
            return view.show(as_table(result))
        case Format.CSV:
            return _csv(result)
        case Format.JSON:
            return _json(result)
        case Format.MARKDOWN:
            return _markdown(result)


def as_table(result: Result) -> Table:
    """A table in which a column headed ±95% stands right of each noisy one."""
    names, columns, numbers = spread(result.rendered())
    right = [index for index, number in enumerate(numbers) if number]
    return table(names, list(zip(*columns, strict=True)), right=right)


def _too_wide(result: Result, view: View) -> bool:
    from rich.cells import cell_len

    names, columns, _ = spread(result.rendered())
    widths = [
        max(cell_len(printable(cell)) for cell in (name, *cells))
        for name, cells in zip(names, columns, strict=True)
    ]
    return view.fit and sum(widths) + 2 * (len(widths) - 1) > view.width


def _records(result: Result, view: View) -> str:
    """Each row as a group of lines, a column a line, each noisy value with its half-width."""
    from rich.table import Table
    from rich.text import Text

    columns, parts = result.rendered(), list[Any]()
    for row in range(len(result.rows)):
        lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        lines.add_column(style="bold", no_wrap=True)
        lines.add_column(overflow="fold")
        for column in columns:
            half = "" if column.halves is None else column.halves[row].strip()
            text = f"{column.cells[row].strip()} ± {half}" if half else column.cells[row].strip()
            if half.startswith("["):
                text = f"{column.cells[row].strip()} in {half}"
            lines.add_row(Text(printable(column.name)), Text(printable(text)))
        title = f"─ row {row + 1} "
        parts += [title + "─" * max(min(view.columns, view.width) - len(title), 0), lines]
    if not parts:
        return textwrap.fill(f"no row of {', '.join(map(printable, result.columns))}", view.columns)
    return view.show(*parts)


def listed(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    style: Format,
    view: View,
    *,
    numbers: Sequence[int] = (),
    rules: Sequence[str] = (),
) -> str:
    """Public rows, of the catalogue, in a format; `rules` are sentences that follow a table alone."""
    match style:
        case Format.TABLE:
            return view.show(table(heads, [list(map(str, row)) for row in rows], right=numbers), *rules)
        case Format.CSV:
            return _csv_text(heads, rows)
        case Format.JSON:
            data = [dict(zip(heads, row, strict=True)) for row in rows]
            return json.dumps(data, indent=2, ensure_ascii=False)
        case Format.MARKDOWN:
            return _markdown_text([heads, ["---"] * len(heads), *rows])


def _markdown(result: Result) -> str:
    names, columns, numbers = spread(result.rendered())
    lines = [names, ["---:" if number else "---" for number in numbers]]
    lines += [list(row) for row in zip(*columns, strict=True)]
    return _markdown_text(lines)


def _markdown_text(lines: Sequence[Sequence[Any]]) -> str:
    return "\n".join(
        f"| {' | '.join(printable(str(cell).strip()).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )


def _csv(result: Result) -> str:
    return _csv_text(*flat(result))


def _csv_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_in_csv, names))
    writer.writerows([_in_csv(_plain(cell)) for cell in row] for row in rows)
    return out.getvalue().rstrip("\n")


def _in_csv(value: Any) -> Any:
    r"""A value that neither steers a terminal nor is a formula to a spreadsheet.

    Of texts the control characters but tabs and line ends are written as escapes; one that a spreadsheet would
    compute has an apostrophe before it, which says there that it is text.

    >>> _in_csv("a\x1b[2J\nb"), _in_csv("=1+1"), _in_csv("-3.5"), _in_csv(-3.5)
    ('a\\x1b[2J\nb', "'=1+1", '-3.5', -3.5)
    """
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
    if isinstance(text, Decimal):
        return f"{text:f}"
    if not isinstance(text, str):
        return text
    escaped = "".join(char if char in "\t\n" or category(char) != "Cc" else repr(char)[1:-1] for char in text)
    return (
        f"'{escaped}" if escaped.startswith(("=", "+", "-", "@", "\t")) and not _number(escaped) else escaped
    )


def _number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) is not None


def _json(result: Result) -> str:
    names, rows = flat(result)
    data = {
        "columns": names,
        "rows": [dict(zip(names, map(_plain, row), strict=True)) for row in rows],
        "notices": list(result.notices),
        "receipt": result.receipt.to_dict(),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=float)


def flat(result: Result) -> tuple[list[str], list[list[Any]]]:
    """Names and rows as data: after each noisy column `x` come `x_low` and `x_high`.

    A name that occurs twice is numbered: `x`, `x_2`.
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
    return _distinct(names), rows


def arrow_table(result: Result) -> pyarrow.Table:
    """The rows as an Arrow table with the ends of intervals, whose columns are named as in `flat`.

    Raises ImportError without pyarrow, DataError for a value that has no place in it.
    """
    numbered = replace(result, columns=tuple(map(str, range(len(result.columns)))))
    table = numbered.to_arrow_table(intervals=True)
    parts = (name.partition("_") for name in table.column_names)
    return table.rename_columns(
        _distinct([result.columns[int(place)] + line + end for place, line, end in parts])
    )


def _distinct(names: Sequence[str]) -> list[str]:
    taken: list[str] = []
    for name in names:
        number, fresh = 1, name
        while fresh in taken:
            number += 1
            fresh = f"{name}_{number}"
        taken.append(fresh)
    return taken


def _plain(value: Any) -> Any:
    """A value as JSON and CSV hold it; what is no finite number is null. The keys of a map are texts."""
    if isinstance(value, dict):
        return {str(key): _plain(count) for key, count in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value
