"""Guesses from some rows of text files, for an owner who writes a policy: types, formats, encoding, the line of names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import duckdb

from dpsql.backends.duckdb import sources, workbooks
from dpsql.backends.duckdb.cells import build_cell
from dpsql.backends.duckdb.csv_files import (
    UnreadableLineError,
    iterate_rows,
    name_columns,
    open_bytes,
    open_text,
    read_header,
    split_cells,
)
from dpsql.backends.duckdb.files import FileTable, describe_json_columns, read_guarded
from dpsql.policy.names import quote_literal
from dpsql.policy.readings import SEPARATORS, CellReading, FileReading, ReadingProposal, TableReading

_ROWS = 1_000
"""Rows of which types and formats are guessed."""
_LINES = 20
"""Lines among which the one of the names is."""
_ENOUGH = 0.9
"""The share of the texts that a type must read."""
_MISSING = ("", "-", ".", "?", "NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN", "#N/A", "\\N", "NaT")
"""Words for missing values, which say nothing about a type."""
_KINDS = ("integer", "double", "date", "timestamp", "time", "uuid")
_DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d%b%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%d. %B %Y", "%b %d, %Y", "%B %d, %Y"),
)
_HOURS = (" %H:%M", " %H:%M:%S", ":%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M")
_FORMATS: Sequence[tuple[str, str]] = (
    *(("date", day) for day in _DAYS),
    *(("timestamp", day + hour) for day in _DAYS for hour in _HOURS),
    *(("time", hour) for hour in ("%I:%M %p", "%I:%M:%S %p", "%H.%M")),
)
_NUMBER = re.compile(r"\s*[-+]?[0-9]+([.,][0-9]+)*\s*|\s*[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}.*")
_LEADING_ZERO = re.compile(r"0[0-9]+")
_GROUPS = re.compile(r"-?[0-9]{1,3}([.,][0-9]{3})+")


def guess_file(table: FileTable) -> FileReading:
    """Guess how a CSV file is written, by its bytes and its first lines; of other files there is nothing to guess."""
    if table.format.name != "CSV":
        return FileReading()
    file = table.files[0]
    found = FileReading() if _is_utf8(table) else FileReading(encoding="cp1252")
    with open_text(file, found.encoding) as lines:
        first = [line.rstrip("\r\n") for line in islice(lines, _LINES)]
    if not first or first[0].lower().startswith("sep="):
        return found
    separator = max(SEPARATORS, key=lambda each: sum(line.count(each) for line in first))
    split = [_split_line(line, separator) for line in first]
    widths = Counter(len(cells) for cells in split if any(cells))
    width = max(widths, key=lambda each: (widths[each], each), default=1)
    number = next(
        (
            place
            for place, cells in enumerate(split, 1)
            if len(cells) == width and sum(map(bool, cells)) >= max(1, width - 1)
        ),
        1,
    )  # a title may be followed by separators, and the column of row numbers may have no name
    cells = split[number - 1]
    if _NUMBER.fullmatch(cells[0]) and 2 * sum(_NUMBER.fullmatch(cell) is not None for cell in cells) >= len(
        cells
    ):
        return found.model_copy(update={"separator": separator, "names": name_columns([""] * len(cells))})
    return found.model_copy(update={"header": number}) if number > 1 else found


def _split_line(line: str, separator: str) -> list[str]:
    """Return the cells of a line; none of one that ends within a quoted text."""
    try:
        return [(cell or "").strip() for cell in split_cells(line, separator, 1) or ()]
    except UnreadableLineError:
        return []


def _is_utf8(table: FileTable) -> bool:
    """Return whether all bytes of a file are UTF-8, or its first ones state another encoding."""
    if read_guarded(table, lambda: _find_mark(table)) is not None:
        return True
    try:
        with open_text(table.files[0], None) as lines:
            while lines.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _find_mark(table: FileTable) -> str | None:
    with open_bytes(table.files[0]) as raw:
        return "utf-16" if raw.read(2) in (b"\xff\xfe", b"\xfe\xff") else None


def guess_columns(
    name: str, table: FileTable, file: FileReading
) -> tuple[list[tuple[str, str]], ReadingProposal]:
    """Guess the engine type of each column of a text file, and what a policy says of how it is read."""
    found = read_guarded(table, lambda: _guess_columns(name, table, file))
    notes = dict(found.notes)
    return [(column, cell.kind.upper()) for column, cell in found.cells.items()], replace(found, notes=notes)


def _guess_columns(name: str, table: FileTable, file: FileReading) -> ReadingProposal:
    if table.format.name in ("JSON", "SQLite"):
        described: Sequence[tuple[Any, ...]] = (
            describe_json_columns(table.files)
            if table.format.name == "JSON"
            else sources.describe_columns(table.files[0], name)
        )
        return ReadingProposal(cells={str(column): CellReading(str(kind)) for column, kind, *_ in described})
    names, rows = _sample_rows(name, table, file)
    columns: Sequence[Sequence[str | None]] = list(zip(*rows, strict=True)) or [()] * len(names)
    cells, notes = dict[str, CellReading](), dict[str, str]()
    with duckdb.connect() as connection:
        for column, texts in zip(names, columns, strict=True):
            cells[column], note = guess_cell(connection, [text for text in texts if text is not None])
            notes |= {column: note} if note else {}
    return ReadingProposal(file, cells, notes)


def _sample_rows(
    name: str, table: FileTable, file: FileReading
) -> tuple[Sequence[str], list[list[str | None]]]:
    place, lenient = table.files[0], file.model_copy(update={"ragged": True})
    if table.format.name == "Excel":
        named, sheet = workbooks.read_sheet(place, name, TableReading(file=lenient))
        return named, list(islice(sheet, _ROWS))
    header = read_header(place, file)
    return header.names, list(islice(iterate_rows(place, header, lenient), _ROWS))


def guess_cell(connection: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> tuple[CellReading, str]:
    """Return how the texts of a column are read, and a note for its owner where they do not tell.

    >>> with duckdb.connect() as scratch:
    ...     [guess_cell(scratch, each)[0] for each in (["1,5", "n/a"], ["31.01.2026"], ["01234"])]
    [CellReading(kind='double', formats=(), decimal=',', null_values=()), CellReading(kind='date', formats=('%d.%m.%Y',), decimal=None, null_values=()), CellReading(kind='varchar', formats=(), decimal=None, null_values=())]
    """
    present = [text for text in texts if text.strip() not in _MISSING]
    if not present or any(map(_LEADING_ZERO.fullmatch, present)):
        return CellReading("varchar"), ""
    if {text.strip().lower() for text in present} <= {"true", "false"}:
        return CellReading("boolean"), ""
    # A date is also read of a text that goes on with a time of day.
    kinds = [kind for kind in _KINDS if not (kind == "date" and any(":" in text for text in present))]
    if (plain := next(_iterate_readable(connection, present, map(CellReading, kinds)), None)) is not None:
        grouped = plain.kind == "double" and all(map(_GROUPS.fullmatch, present))
        return plain, 'decimal: "," if 1.234 is more than a thousand' if grouped else ""
    signs = [CellReading(kind, decimal=sign) for sign in ",." for kind in ("integer", "double")]
    if numbers := list(_iterate_readable(connection, present, signs)):
        signed = {each.decimal for each in numbers}
        sure = len(signed) == 1
        return (
            numbers[0] if sure else CellReading(numbers[0].kind)
        ), "" if sure else 'decimal: "," if 1,234 is about one, decimal: "." if it is more than a thousand'
    days = [CellReading(kind, formats=(each,)) for kind, each in _FORMATS]
    if moments := list(_iterate_readable(connection, present, days)):
        if len(moments) == 1:
            return moments[0], ""
        listed = " or ".join(f'format: "{each.formats[0]}"' for each in moments)
        return CellReading(moments[0].kind), listed
    words = sorted({text.strip() for text in texts} & {"\\N", "NULL", "#N/A", "NA", "N/A", "n/a"})
    return CellReading(
        "varchar"
    ), f"null_values: [{', '.join(map(quote_yaml_text, words))}] if these are missing" if words else ""


def quote_yaml_text(text: str) -> str:
    """Return a YAML single-quoted scalar."""
    return quote_literal(text)


def _iterate_readable(
    connection: duckdb.DuckDBPyConnection,
    texts: Sequence[str],
    readings: Iterator[CellReading] | Sequence[CellReading],
) -> Iterator[CellReading]:
    """Yield those of some readings that read nearly all texts."""
    tried = list(readings)
    counts = ", ".join(f"COUNT({build_cell(each, 't')})" for each in tried)
    found = connection.execute(
        f"SELECT {counts} FROM (SELECT UNNEST(CAST(? AS VARCHAR[])) AS t)", [list(texts)]
    ).fetchone()
    for each, many in zip(tried, found or (), strict=True):
        if many >= _ENOUGH * len(texts):
            yield each


def guess_tables(
    files: Mapping[str, FileTable],
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, ReadingProposal]]:
    """Guess the columns of all text files of a database, and how each is read."""
    schema, proposals = dict[str, list[tuple[str, str]]](), dict[str, ReadingProposal]()
    for name, table in files.items():
        if not table.format.has_types:
            schema[name], proposals[name] = guess_columns(name, table, guess_file(table))
    return schema, proposals
