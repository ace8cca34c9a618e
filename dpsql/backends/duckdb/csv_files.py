"""CSV files: the line of names, the engine's reader for plain files, and one for files as other programs write them.

Claim: the cells of one line depend on that line alone, whichever of the two readers reads the file.
Why: separator, names and number of columns come from the policy and from the line of names. The engine's reader is strict, and so is the
other: a quotation mark that is left open, or a line of another length, ends the reading with its number unless the policy says `ragged`. Both read
what the engine's reader reads alike, so it does not matter that a file is tried with that one first.
Source: RFC 4180; DuckDB's documentation, "CSV import"; `tests/backends/test_messy_files.py` compares the two.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TextIO, cast

import duckdb

from dpsql.backends.duckdb.cells import build_typed_query
from dpsql.policy.names import normalize_name, quote_identifier, quote_literal
from dpsql.policy.readings import SEPARATORS, FileReading, TableReading

_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_WIDE = frozenset({"cp932", "big5", "gb18030"})
"""Encodings in which a broken letter may take a following `|` with it, though no other separator and no end of a line."""
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*", re.IGNORECASE)
_LONGEST_LINE = 1 << 20
_ROWS = 10_000
"""Rows that are handed over at a time."""


class UnreadableLineError(ValueError):
    """A line of a file that cannot be read: its number, and why, without any of its text."""

    def __init__(self, line: int, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.line, self.reason, self.hint = line, reason, hint
        self.file: Path | None = None


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """What the line of names says of a CSV file: its number (0: the file has none), the separator and the distinct names."""

    line: int
    separator: str
    names: tuple[str, ...]

    @property
    def first_line(self) -> int:
        """Return the number of the line with the first row."""
        return self.line + 1


def open_bytes(file: Path) -> BinaryIO:
    """Open a file for reading its bytes, decompressed."""
    return cast("BinaryIO", gzip.open(file, "rb")) if file.suffix.lower() == ".gz" else file.open("rb")


@contextmanager
def open_text(file: Path, encoding: str | None, *, strict: bool = True) -> Iterator[TextIO]:
    """Open a file as text, whose line ends are kept. What is no letter is U+FFFD, or an error where nobody states the encoding."""
    found = encoding or detect_mark(file)
    errors = "strict" if found is None and strict else "replace"
    name = "utf-8-sig" if found in (None, "utf-8") else str(found)
    with open_bytes(file) as raw, io.TextIOWrapper(raw, encoding=name, errors=errors, newline="") as text:
        yield text


def detect_mark(file: Path) -> str | None:
    """Return the encoding that a file's first bytes state; None for UTF-8."""
    with open_bytes(file) as raw:
        first = raw.read(2)
    return next((name for mark, name in _MARKS if first == mark), None)


def read_header(file: Path, reading: FileReading) -> CsvHeader:
    """Read the line of names. Raises UnreadableLineError if it does not name the columns."""
    if reading.names is not None:
        return CsvHeader(0, reading.separator or ",", reading.names)
    number = reading.header or 1
    with open_text(file, reading.encoding, strict=False) as lines:  # which decodes more than the line
        first = lines.readline(_LONGEST_LINE)
        marked = _SEPARATOR_LINE.fullmatch(first) if reading.header is None else None
        for _ in range(number - 1 if marked is None else 1):
            first = lines.readline(_LONGEST_LINE)
        number += marked is not None
    if "\N{REPLACEMENT CHARACTER}" in first and reading.encoding is None:
        raise UnreadableLineError(number, "it is not UTF-8", _ENCODING_HINT)
    text = first.rstrip("\r\n")
    found = str(marked[1]) if marked else max(SEPARATORS, key=text.count)
    separator = reading.separator or found
    if separator == "|" and reading.encoding in _WIDE:
        raise UnreadableLineError(number, f"the separator | is not read in {reading.encoding}")
    cells = split_cells(text, separator, number)
    if cells is None or not any(cell and cell.strip() for cell in cells):
        raise UnreadableLineError(
            number, "it names no columns", "if a later line names them, write `file: {header: 3}` in the policy's table, with its number"
        )  # fmt: skip
    return CsvHeader(number, separator, name_columns(cells))


def name_columns(cells: Sequence[str | None]) -> tuple[str, ...]:
    """Return distinct names of columns: one without a name is called by its place, and a second one of a name gets a number.

    >>> name_columns(["", "cost", "Cost", "cost_2"])
    ('column1', 'cost', 'Cost_3', 'cost_2')
    """
    given = [(cell or "").strip() or f"column{place}" for place, cell in enumerate(cells, 1)]
    folded, used, names = [normalize_name(name) for name in given], set[str](), list[str]()
    for name in given:
        found, number = name, 2
        while normalize_name(found) in used or (found != name and normalize_name(found) in folded):
            found, number = f"{name}_{number}", number + 1
        used.add(normalize_name(found))
        names.append(found)
    return tuple(names)


def make_csv(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], reading: TableReading
) -> None:
    """Make a table in memory, as the policy declares its columns."""
    headers = []
    for file in files:
        with _name_file(file):
            headers.append(read_header(file, reading.file))
    other = next(
        (file for file, header in zip(files, headers, strict=True) if header.names != headers[0].names), None
    )
    if other is not None:
        raise UnreadableLineError(headers[0].line, f"{other.name} has other columns than {files[0].name}")
    if is_plain(reading.file, files, headers):
        try:
            _make_plain(connection, name, files, headers[0], reading)
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            connection.execute(f"DROP TABLE IF EXISTS {quote_identifier(name)}")
        else:
            return
    with stage_texts(connection, headers[0].names) as texts:
        for file, header in zip(files, headers, strict=True):
            with _name_file(file):
                insert_rows(connection, texts, iterate_rows(file, header, reading.file))
        connection.execute(
            f"CREATE TABLE {quote_identifier(name)} AS {build_typed_query(headers[0].names, reading, texts)}"
        )


@contextmanager
def _name_file(file: Path) -> Iterator[None]:
    """Let an error of the enclosed work say of which file it is."""
    try:
        yield
    except UnreadableLineError as error:
        error.file = error.file or file
        raise


def is_plain(reading: FileReading, files: Sequence[Path], headers: Sequence[CsvHeader]) -> bool:
    """Return whether the engine's reader can be tried: a file in UTF-8 whose first line is that of the names."""
    if reading.encoding is not None or reading.ragged or any(header.line > 1 for header in headers):
        return False
    if len({header.separator for header in headers}) > 1:
        return False
    return not any(map(detect_mark, files))


def _make_plain(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    files: Sequence[Path],
    header: CsvHeader,
    reading: TableReading,
) -> None:
    columns = "{" + ", ".join(f"{quote_literal(column)}: 'VARCHAR'" for column in header.names) + "}"
    listed = "[" + ", ".join(quote_literal(str(file)) for file in files) + "]"
    rows = (
        f"read_csv({listed}, header = {str(header.line == 1).lower()}, delim = {quote_literal(header.separator)}, quote = '\"', escape = '\"', "
        f"auto_detect = false, columns = {columns})"
    )
    connection.execute(
        f"CREATE TABLE {quote_identifier(name)} AS {build_typed_query(header.names, reading, rows)}"
    )


# The reader of files as other programs write them.


@contextmanager
def stage_texts(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> Iterator[str]:
    """Create a temporary table of texts for the enclosed work; yield its quoted name."""
    texts = quote_identifier("#rows")
    listed = ", ".join(f"{quote_identifier(column)} VARCHAR" for column in names)
    connection.execute(f"CREATE TEMP TABLE {texts} ({listed})")
    try:
        yield texts
    finally:
        connection.execute(f"DROP TABLE {texts}")


def insert_rows(
    connection: duckdb.DuckDBPyConnection, texts: str, rows: Iterator[Sequence[str | None]]
) -> None:
    """Insert rows of texts into a table, in order, some at a time."""
    while batch := list(islice(rows, _ROWS)):
        insert_columns(connection, texts, [list(column) for column in zip(*batch, strict=True)])


def insert_columns(
    connection: duckdb.DuckDBPyConnection, texts: str, columns: Sequence[list[str | None]]
) -> None:
    """Insert rows, given by columns of texts, into a table."""
    handed = ", ".join("UNNEST(CAST(? AS VARCHAR[]))" for _ in columns)
    connection.execute(f"INSERT INTO {texts} SELECT {handed}", columns)


def iterate_rows(file: Path, header: CsvHeader, reading: FileReading) -> Iterator[list[str | None]]:
    """Yield the cells of each row after the line of names; an empty cell is None.

    Raises UnreadableLineError for a line that cannot be read.
    """
    width, number = len(header.names), header.line
    with open_text(file, reading.encoding) as lines:
        try:
            for _ in range(header.line):
                lines.readline()
            while line := lines.readline():
                number += 1
                start, text = number, line.rstrip("\r\n")
                while (cells := split_cells(text, header.separator, start)) is None:
                    further = _read_to_quotation_mark(lines)
                    if further is None:
                        raise UnreadableLineError(start, "a quotation mark is not closed", _QUOTE_HINT)
                    number += len(further)
                    text += line[len(line.rstrip("\r\n")) :] + "".join(further).rstrip("\r\n")
                    line = further[-1]
                if not text and width > 1:
                    continue
                yield _fit_cells(cells, width, start, header, reading)
        except UnicodeDecodeError:
            raise _make_encoding_error(file) from None


def _read_to_quotation_mark(lines: TextIO) -> list[str] | None:
    """Return the lines up to the next one with a quotation mark; None if there is none."""
    found = list[str]()
    while line := lines.readline():
        found.append(line)
        if '"' in line:
            return found
    return None


def _fit_cells(
    cells: list[str | None], width: int, number: int, header: CsvHeader, reading: FileReading
) -> list[str | None]:
    """Return the cells of a row of the table's width."""
    if len(cells) == width:
        return cells
    if reading.ragged:
        return (cells + [None] * width)[:width]
    named = "the policy names" if header.line == 0 else f"line {header.line} names"
    found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    place = f", from column {header.names[len(cells)]} on" if len(cells) < width else ""
    raise UnreadableLineError(
        number,
        f"it has {found}, and {named} {width}{place}",
        (
            f"if line {number} names the columns, write `file: {{header: {number}}}` in the policy's table; else "
            if number <= header.line + _FEW and len(cells) > width
            else ""
        )
        + "put texts with separators between quotation marks, or write `file: {ragged: true}`: missing cells are then NULL,"
        " and further ones are not read",
    )


def split_cells(line: str, separator: str, number: int) -> list[str | None] | None:
    """Return the cells of a line without its end, or None if a quotation mark is still open.

    >>> split_cells('1,"a ""b"", c",,x"y', ",", 1)
    ['1', 'a "b", c', None, 'x"y']
    """
    if '"' not in line:
        return [cell or None for cell in line.split(separator)]
    cells, place = list[str | None](), 0
    while place <= len(line):
        start = place
        while line[start : start + 1] == " ":
            start += 1
        if line[start : start + 1] != '"':
            end = line.find(separator, place)
            end = len(line) if end < 0 else end
            cells.append(line[place:end] or None)
            place = end + 1
            continue
        end = start + 1
        while (end := line.find('"', end)) >= 0 and line[end + 1 : end + 2] == '"':
            end += 2
        if end < 0:
            return None
        cells.append(line[start + 1 : end].replace('""', '"') or None)
        place = end + 1
        while line[place : place + 1] == " ":
            place += 1
        if place < len(line) and line[place] != separator:
            raise UnreadableLineError(
                number, "a quotation mark stands within a text that is quoted", _QUOTE_HINT
            )
        place += 1
    return cells


def _make_encoding_error(file: Path) -> UnreadableLineError:
    """Return the error of a file that is not UTF-8, with the first line that is not."""
    with open_bytes(file) as raw:
        for number, line in enumerate(raw, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return UnreadableLineError(number, "it is not UTF-8", _ENCODING_HINT)
    return UnreadableLineError(1, "the file is not UTF-8", _ENCODING_HINT)


_FEW = 20
"""Lines in which a title may stand above the names."""
_ENCODING_HINT = "write the file's encoding in the policy's table, such as `file: {encoding: cp1252}` for Excel in Western Europe"
_QUOTE_HINT = 'a text with a quotation mark is written "a ""b"" c"'
