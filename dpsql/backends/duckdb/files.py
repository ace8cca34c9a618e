"""Tables that lie in files: Parquet, CSV, Excel, JSON and Arrow, alone, in folders or by a pattern; and those of SQLite and DuckDB files.

Claim: once a database of files is open, no value of a row decides over the type of a column or makes a statement fail.
Why: the types of Parquet and Arrow stand in the file; those of a CSV file are the policy's, a column that it does not
declare is text, its line of names alone decides over separator and columns, and its texts are cast only after they were read,
since the optimizer would make the cast a part of the reading (`cells.py`). The columns of JSON files are those of the
policy, and what SQLite holds is read as texts are. All that a value could make fail is read
through when the file is opened, before anybody asks: all but Parquet files are read into memory, and of Parquet every column
whose decoding looks at values. A Parquet file that changed since is refused before a charge.
Source: attacks A25, the type channel, and A44, one cell of a file; DuckDB's documentation, "Reading Parquet files" and "CSV import".
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from dpsql.backends.duckdb import sources, workbooks
from dpsql.backends.duckdb.cells import PLAIN, build_cell, build_typed_query
from dpsql.backends.duckdb.csv_files import UnreadableLineError, insert_columns, make_csv, stage_texts
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.ledger.workers import run_interruptibly
from dpsql.policy.names import quote_identifier, quote_literal
from dpsql.policy.readings import TableReading

_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN"})
"""Types that Parquet stores as they are: decoding them looks at no value."""
_DECODED = "SELECT COUNT(*), {} FROM {}"
_HOLDS_NAN = "can_have_nan = true"
"""What a file says of the least and the greatest value of its parts does not count NaN. An engine that goes by it leaves
out rows, or takes all, by the values of other people's rows beside them.
"""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
"""Addresses of object stores and servers: s3://bucket/…, and s3:/bucket/… once it was a path."""
_LAKES = {"Delta Lake": "_delta_log", "Apache Iceberg": "metadata/*.metadata.json", "Apache Hudi": ".hoodie"}
"""Table formats by what their folders hold."""
_PATTERN = frozenset("*?[")
_PLACE = re.compile(
    r"[\w ]+ Error: (?:(?:Malformed JSON|JSON transform error) in file \"(?P<file>[^\"]*)\","
    r"(?P<malformed> at byte \d+)? in (?P<kind>line|record/value) (?P<record>\d+):)"
)
"""Where a file cannot be read, as the engine's messages begin."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files: how they are named, how a table is made of them, and whether the engine goes on reading them.

    `make_table` raises whatever the engine does for a file that it cannot read. Files that are not `has_types` hold texts; of
    those that are not `has_checked_texts` nobody has looked at the bytes of texts. A file of several tables is one for the table of its
    name; `list_tables` lists them where such a file may be a database by itself. What has to be `needs_name` is passed over in a folder.
    """

    name: str
    suffixes: tuple[str, ...]
    make_table: Callable[[duckdb.DuckDBPyConnection, str, Sequence[Path], TableReading], None]
    is_read_lazily: bool = False
    has_types: bool = True
    has_checked_texts: bool = True
    has_several_tables: bool = False
    needs_name: bool = False
    line: str = "line"
    list_tables: Callable[[Path], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table in files of one format: where its owner says that it lies, and each file as it was when it was opened."""

    source: str
    format: FileFormat
    files: tuple[Path, ...]
    marks: tuple[str, ...] = field(repr=False)

    @property
    def has_changed(self) -> bool:
        """Return whether a file that the engine goes on reading is another by now."""
        return self.format.is_read_lazily and tuple(map(_compute_file_mark, self.files)) != self.marks


def refuse_unread_places(place: str | Path) -> None:
    """Raise ProgrammingError (`source`) for places that are not read: object stores, and folders of table formats.

    A folder of Delta Lake, Iceberg or Hudi has files with removed and former rows, so its Parquet files are not the table.
    """
    scheme = _SCHEME.match(str(place))
    if scheme is not None:
        raise ProgrammingError(
            f"files of {scheme[1]}: are not read: dpsql opens files of this machine only",
            code="source",
            hint="copy them into a folder and name that; or make a table of them in Spark or PostgreSQL, and connect to it",
        )
    folder = Path(place)
    if not folder.is_dir():
        return
    for name, inside in _LAKES.items():
        if next(folder.rglob(inside), None) is not None:
            raise ProgrammingError(
                f"{place} is a table of {name}, whose files also hold removed and former rows",
                code="source",
                hint="save its present rows as Parquet files into another folder; Spark reads tables of Delta Lake and Iceberg in place",
            )


def find_file_tables(path: str | Path) -> dict[str, FileTable]:
    """Return the tables that a file or a folder holds, by name; none if it is not one of those.

    A file has one table, of its own name without the ending. In a folder each file is a table, and so is each folder
    with Parquet files below it; a folder of folders such as `year=2024` is one table. Raises OperationalError where two tables have one name.
    """
    refuse_unread_places(path)
    place = Path(path)
    if not place.is_dir():
        if _PATTERN & set(str(path)) and not place.exists():
            raise ProgrammingError(
                f"the table of {path} needs a name", code="source", hint=f'pass {{"name": {str(path)!r}}}'
            )
        found = _find_format(place)
        if found is None or (found.has_several_tables and found.list_tables is None):
            return {}
        table = resolve_file_table(path)
        listed = found.list_tables
        names = (
            [_get_table_name(place)]
            if listed is None
            else read_guarded(table, lambda: listed(table.files[0]))
        )
        return dict.fromkeys(names, table)
    tables: dict[str, FileTable] = {}
    if _is_partitioned(place):
        return {_get_table_name(place): resolve_file_table(place)}
    for entry in sorted(place.iterdir()):
        known = _find_format(entry)
        if entry.name.startswith(".") or not (entry.is_dir() or (known is not None and not known.needs_name)):
            continue
        if entry.is_dir() and not any(entry.rglob("*.parquet")):
            continue
        name = _get_table_name(entry)
        if name.casefold() in map(str.casefold, tables):
            raise OperationalError(f"{path} has two tables named {name}", code="source")
        tables[name] = resolve_file_table(entry)
    if not tables:
        raise OperationalError(
            f"the folder {path} has no readable files",
            code="no_database",
            hint=f"files of tables end in {_format_endings()}",
        )
    return tables


def _is_partitioned(folder: Path) -> bool:
    """Return whether a folder is one table whose folders name values: it has nothing but folders such as `year=2024`."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "_"))]
    return bool(entries) and all(entry.is_dir() and "=" in entry.name for entry in entries)


def resolve_file_table(source: str | Path) -> FileTable:
    """Return the table in a file, in all Parquet files below a folder, or in the files of a pattern.

    Raises OperationalError where there is none, or files of several formats.
    """
    if "\0" in str(source):
        raise OperationalError("a file name cannot contain NUL", code="no_database")
    refuse_unread_places(source)
    place = Path(source)
    if place.is_dir():
        found = sorted(place.rglob("*.parquet"))
    elif _PATTERN & set(str(source)) and not place.exists():
        found = sorted(Path(place.anchor or ".").glob(str(place.relative_to(place.anchor))))
    else:
        found = [place]
    files = tuple(Path(os.path.realpath(each)) for each in found)
    for folder in {file.parent for file in files if not place.is_dir()}:
        if any((folder / inside).exists() for inside in ("_delta_log", ".hoodie")):
            refuse_unread_places(folder)
    if not files or not all(file.is_file() for file in files):
        raise OperationalError(f"the file {source} does not exist", code="no_database")
    formats = {_find_format(file) for file in files}
    kind = next(iter(formats))
    if kind is None or len(formats) > 1:
        raise OperationalError(
            f"the format of {source} is unknown or mixed",
            code="source",
            hint=f"files end in {_format_endings()}",
        )
    if kind.has_several_tables and len(files) > 1:
        raise OperationalError(
            f"{source} matches several {kind.name} files, each with tables of its own",
            code="source",
            hint="name one of them",
        )
    return FileTable(os.path.realpath(place), kind, files, tuple(map(_compute_file_mark, files)))


def make_file_table(
    connection: duckdb.DuckDBPyConnection, name: str, table: FileTable, reading: TableReading
) -> None:
    """Make a table of files under a name. Raises OperationalError, without the engine's words, if it cannot be read."""
    read_guarded(
        table,
        lambda: run_interruptibly(
            connection, lambda: table.format.make_table(connection, name, table.files, reading)
        ),
    )


def read_guarded(table: FileTable, read: Callable[[], _T]) -> _T:
    """Return what is read of files. Raises OperationalError (`source`), without the engine's words, if they cannot be read."""
    hint = _HINTS.get(table.format.name)
    try:
        return read()
    except Error:
        raise
    except UnreadableLineError as error:
        file, hint = error.file or table.source, error.hint or hint
        place = f", at {table.format.line} {error.line}: {error.reason}"
    except Exception as error:  # noqa: BLE001  (what a file cannot be read for may quote what stands in it)
        file, place = _locate_read_failure(table, str(error))
    raise OperationalError(f"cannot read {file} as {table.format.name}{place}", code="source", hint=hint)


def _locate_read_failure(table: FileTable, message: str) -> tuple[str, str]:
    """Return the file that cannot be read, and the place in it, by the engine's message, and nothing else of that."""
    found = _PLACE.match(message)
    if found is None:
        return table.source, ""
    # The engine counts a record that it cannot parse as read.
    number = int(found["record"]) - (found["malformed"] is not None)
    return found["file"], f", at {'line' if found['kind'] == 'line' else 'record'} {number}"


def list_lazy_paths(tables: Mapping[str, FileTable]) -> list[str]:
    """Return the files that the engine goes on reading."""
    return [str(file) for table in tables.values() if table.format.is_read_lazily for file in table.files]


def _make_parquet(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], reading: TableReading
) -> None:
    """Make a view on the files, of which the engine reads the parts that a statement needs.

    Values in names of folders are texts, and are read as the policy declares their columns.
    """
    keys = {part.partition("=")[0] for file in files for part in file.parts[:-1] if "=" in part}
    options = f"hive_partitioning = {str(bool(keys)).lower()}, hive_types_autocast = false, {_HOLDS_NAN}"
    rows = f"read_parquet({_quote_list(map(str, files))}, {options})"
    named = [str(column) for column, *_ in connection.execute(f"DESCRIBE FROM {rows}").fetchall()]
    read = ", ".join(
        f"{build_cell(reading.find_cell(column), quote_identifier(column))} AS {quote_identifier(column)}"
        for column in named
        if column in keys and reading.find_cell(column).kind in PLAIN
    )
    selected = f"* REPLACE ({read})" if read else "*"
    connection.execute(f"CREATE VIEW {quote_identifier(name)} AS SELECT {selected} FROM {rows}")
    columns = connection.execute(f"DESCRIBE {quote_identifier(name)}").fetchall()
    alike = len({_read_parquet_schema(connection, file) for file in files}) == 1
    decoded = [column for column, kind, *_ in columns if not alike or kind not in _WHOLE]
    if decoded:
        looked_at = ", ".join(f"BIT_XOR(hash({quote_identifier(column)}))" for column in decoded)
        connection.execute(_DECODED.format(looked_at, quote_identifier(name))).fetchall()


def _read_parquet_schema(connection: duckdb.DuckDBPyConnection, file: Path) -> tuple[Any, ...]:
    described = connection.execute(f"DESCRIBE FROM read_parquet({_quote_list([str(file)])})").fetchall()
    return tuple((column, kind) for column, kind, *_ in described)


def _make_json(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], reading: TableReading
) -> None:
    """Make a table in memory with the columns that the policy declares, as it spells them; without any, as the rows have them."""
    names = [column for column in reading.cells if "." not in column] or [
        str(column) for column, *_ in describe_json_columns(files)
    ]
    columns = "{" + ", ".join(f"{quote_literal(column)}: 'VARCHAR'" for column in names) + "}"
    for number, file in enumerate(files):
        rows = f"read_json({quote_literal(str(file))}, format = {quote_literal(_detect_json_format(file))}, records = true, columns = {columns})"
        into = (
            f"INSERT INTO {quote_identifier(name)}" if number else f"CREATE TABLE {quote_identifier(name)} AS"
        )
        connection.execute(f"{into} {build_typed_query(names, reading, rows)}")


def describe_json_columns(files: Sequence[Path]) -> list[tuple[Any, ...]]:
    """Return the columns of JSON records and the types that the engine gives to them."""
    with duckdb.connect() as connection:
        rows = f"read_json({quote_literal(str(files[0]))}, format = {quote_literal(_detect_json_format(files[0]))}, records = true)"
        return connection.execute(f"DESCRIBE FROM {rows}").fetchall()


def _detect_json_format(file: Path) -> str:
    """Return whether a JSON file is one list of records or has one after another, by its first character alone."""
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    with opened(file, "rt", encoding="utf-8-sig") as lines:
        return "array" if lines.read(1 << 16).lstrip().startswith("[") else "newline_delimited"


def _make_sqlite(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], reading: TableReading
) -> None:
    """Make a table in memory of the file's table of that name."""
    names = sources.list_columns(files[0], name)
    with stage_texts(connection, names) as texts:
        for batch in sources.iterate_batches(files[0], name):
            insert_columns(connection, texts, batch)
        connection.execute(
            f"CREATE TABLE {quote_identifier(name)} AS {build_typed_query(names, reading, texts)}"
        )


def _make_duckdb(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], _: TableReading
) -> None:
    """Make a table in memory of the file's table of that name: a view there may read anything."""
    connection.execute(f'ATTACH {quote_literal(str(files[0]))} AS "#file" (TYPE duckdb, READ_ONLY)')
    try:
        found = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '#file' AND NOT temporary"
            " AND schema_name = 'main' AND lower(table_name) = lower(?)",
            [name],
        ).fetchall()
        if len(found) != 1:
            raise LookupError(name)
        ((schema, table),) = found
        source = f'"#file".{quote_identifier(schema)}.{quote_identifier(table)}'
        connection.execute(f"CREATE TABLE {quote_identifier(name)} AS SELECT * FROM {source}")
    finally:
        connection.execute('DETACH "#file"')


def _make_arrow(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], _: TableReading
) -> None:
    """Make a table in memory."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise ProgrammingError(
            "Arrow files require pyarrow", code="extra", hint="pip install pyarrow"
        ) from None
    found = []
    for file in files:
        with pyarrow.memory_map(str(file)) as mapped:
            found.append(pyarrow.ipc.open_file(mapped).read_all())
    connection.register("#read", pyarrow.concat_tables(found))
    connection.execute(f'CREATE TABLE {quote_identifier(name)} AS SELECT * FROM "#read"')
    connection.unregister("#read")


FORMATS = (
    FileFormat("Parquet", (".parquet", ".pq"), _make_parquet, is_read_lazily=True),
    FileFormat("CSV", (".csv", ".tsv", ".csv.gz", ".tsv.gz"), make_csv, has_types=False),
    FileFormat(
        "Excel",
        (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
        workbooks.make_workbook,
        has_types=False,
        has_several_tables=True,
        needs_name=True,
        line="row",
        list_tables=workbooks.list_sheets,
    ),
    FileFormat("JSON", (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), _make_json, has_types=False),
    FileFormat("JSON", (".json", ".json.gz"), _make_json, has_types=False, needs_name=True),
    FileFormat("Arrow IPC", (".arrow", ".feather", ".ipc"), _make_arrow),
    FileFormat(
        "SQLite",
        (".sqlite", ".sqlite3"),
        _make_sqlite,
        has_types=False,
        has_several_tables=True,
        needs_name=True,
        list_tables=sources.list_tables,
    ),
    FileFormat(
        "DuckDB",
        (".duckdb",),
        _make_duckdb,
        has_checked_texts=False,
        has_several_tables=True,
        needs_name=True,
    ),
)
_HINTS = {
    "CSV": 'the first line names the columns, and every line has as many; texts with separators stand in "…", in UTF-8',
    "Excel": "is it an Excel workbook without a password, whose row of names comes first?",
    "Parquet": "is each file whole, and its text UTF-8?",
    "JSON": 'one list of records, or a record in each line, {"name": value, …}, in UTF-8',
    "SQLite": "has it a table of that name, no view, with texts in UTF-8?",
    "DuckDB": "has it a table of that name, no view, and is it closed in every program that writes to it?",
}


def _find_format(file: Path) -> FileFormat | None:
    name = file.name.lower()
    return next((each for each in FORMATS if name.endswith(each.suffixes)), None)


def _get_table_name(file: Path) -> str:
    """Return the name of the table in a file."""
    if file.is_dir():
        return file.name
    found = _find_format(file)
    suffixes = () if found is None else found.suffixes
    longest = max((suffix for suffix in suffixes if file.name.lower().endswith(suffix)), key=len, default="")
    return file.name[: len(file.name) - len(longest)]


def _format_endings() -> str:
    return ", ".join(suffix for each in FORMATS for suffix in each.suffixes if not suffix.endswith(".gz"))


def _compute_file_mark(file: Path) -> str:
    """Return a mark that changes when a file does; empty if there is no file."""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _quote_list(texts: Iterator[str] | Sequence[str]) -> str:
    return "[" + ", ".join(map(quote_literal, texts)) + "]"
