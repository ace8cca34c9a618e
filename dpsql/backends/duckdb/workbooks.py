"""Sheets of Excel workbooks, read by `python-calamine` as texts.

Claim: no cell of a sheet decides over a column's type or whether the workbook opens.
Why: a cell has a type of its own, so each is written as a text, as the policy declares its column, and then read as the texts of a CSV file
are. What the workbook's own formulas could not compute is blank or a text that is no number.
Source: ECMA-376, part 1, section 18.3.1.4 (a cell); the documentation of python-calamine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.duckdb.cells import build_typed_query
from dpsql.backends.duckdb.csv_files import UnreadableLineError, insert_rows, name_columns, stage_texts
from dpsql.errors import ProgrammingError
from dpsql.policy.names import normalize_name, quote_identifier
from dpsql.policy.readings import CellReading, FileReading, TableReading
from dpsql.version import write_pip_command


def make_workbook(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], reading: TableReading
) -> None:
    """Make a table in memory of a sheet: the one that the policy names, the one with the table's name, or the only one."""
    names, rows = read_sheet(files[0], name, reading)
    with stage_texts(connection, names) as texts:
        insert_rows(connection, texts, rows)
        connection.execute(
            f"CREATE TABLE {quote_identifier(name)} AS {build_typed_query(names, reading, texts)}"
        )


def list_sheets(file: Path) -> list[str]:
    """Return the names of the tables in a workbook: those of its sheets, or the file's if it has one sheet only."""
    sheets = [str(name) for name in _open_workbook(file).sheet_names]
    return sheets if len(sheets) > 1 else [file.stem]


def read_sheet(
    file: Path, table: str, reading: TableReading
) -> tuple[tuple[str, ...], Iterator[list[str | None]]]:
    """Return the columns of a table's sheet, and its rows as texts."""
    workbook = _open_workbook(file)
    sheets = [str(name) for name in workbook.sheet_names]
    wanted = reading.file.sheet or table
    found = [name for name in sheets if normalize_name(name) == normalize_name(wanted)]
    if not found and reading.file.sheet is None and len(sheets) == 1:
        found = sheets
    if len(found) != 1:
        listed = ", ".join(sheets[:10])
        raise ProgrammingError(
            f"the workbook {file.name} has no sheet {wanted}; its sheets are {listed}",
            code="source",
            hint=f"write `file: {{sheet: {sheets[0] if sheets else '…'}}}` in the policy's table",
        )
    rows = workbook.get_sheet_by_name(found[0]).to_python(skip_empty_area=False)
    header = 0 if reading.file.names is not None else reading.file.header or 1
    named = reading.file.names or _read_names(rows, header)
    cells = [reading.find_cell(column) for column in named]
    return named, _iterate_rows(rows, header, cells, reading.file)


def _read_names(rows: Sequence[Sequence[Any]], header: int) -> tuple[str, ...]:
    first = list(rows[header - 1]) if header <= len(rows) else []
    if not any(str(cell).strip() for cell in first):
        raise UnreadableLineError(
            header, "it names no columns", "write `file: {header: 3}` in the policy's table, with the number of the row that names them"
        )  # fmt: skip
    return name_columns([_write_text(cell, CellReading("varchar")) for cell in first])


def _iterate_rows(
    rows: Sequence[Sequence[Any]], header: int, cells: Sequence[CellReading], reading: FileReading
) -> Iterator[list[str | None]]:
    for number, row in enumerate(rows[header:], header + 1):
        if all(cell in ("", None) for cell in row):
            continue
        if len(row) > len(cells) and not reading.ragged and any(cell != "" for cell in row[len(cells) :]):
            raise UnreadableLineError(
                number,
                f"it has {len(row)} cells, and there are {len(cells)} columns",
                "write `file: {ragged: true}` in the policy's table: further cells are then not read",
            )
        found = [_write_text(cell, kind) for cell, kind in zip(row, cells, strict=False)]
        yield found + [None] * (len(cells) - len(found))


def _write_text(value: Any, cell: CellReading) -> str | None:
    """Return a cell as the text that the column's reading takes for its value; a blank one is None.

    >>> _write_text(12.5, CellReading("double", decimal=",")), _write_text(7.0, CellReading("varchar"))
    ('12,5', '7')
    """
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case int() | float():
            number = str(int(value)) if value == value // 1 and abs(value) < 1e15 else repr(value)
            return number.replace(".", cell.decimal or ".")
        case datetime() | date() | time():
            try:
                return value.strftime(cell.formats[0]) if cell.formats else str(value)
            except ValueError:
                return str(value)
        case timedelta():
            return str(value)
    return str(value)


def _open_workbook(file: Path) -> Any:
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise ProgrammingError(
            "Excel workbooks require python-calamine",
            code="extra",
            hint=f"{write_pip_command('excel')}; or save the sheet as CSV",
        ) from None  # fmt: skip
    return CalamineWorkbook.from_path(str(file))
