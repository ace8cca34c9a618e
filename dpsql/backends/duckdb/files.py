"""Tables that lie in files: Parquet, CSV, JSON and Arrow, alone, in folders or by a pattern; and those of SQLite and DuckDB files.

Claim: once a database of files is open, no value of a row decides over the type of a column or makes a statement fail.
Why: the types of Parquet and Arrow stand in the file; those of a CSV file are the policy's, a column that it does not
declare is text, its first line alone decides over separator and columns, and its texts are cast only after they were read,
since the optimizer would make the cast a part of the reading. The columns of JSON files are those of the
policy, and what SQLite holds is read as texts are. All that a value could make fail is read
through when the file is opened, before anybody asks: all but Parquet files are read into memory, and of Parquet every column
whose decoding looks at values. A Parquet file that changed since is refused before a charge.
Source: attacks A25, the type channel, and A44, one cell of a file; DuckDB's documentation, "Reading Parquet files" and "CSV import".
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from dpsql.backends.duckdb import sqlite_files
from dpsql.backends.quoting import identifier, literal
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.workers import interruptible

_SEPARATORS = ",;\t|"
_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN"})
"""Types that Parquet stores as they are: decoding them looks at no value."""
_AS_TYPE = {
    "integer": "CASE WHEN regexp_full_match({0}, '\\s*[-+]?[0-9]+\\s*') THEN TRY_CAST({0} AS BIGINT) END",
    **{
        name: f"TRY_CAST({{0}} AS {name.upper()})"
        for name in ("double", "date", "timestamp", "time", "uuid", "boolean")
    },
}
"""How a text of a CSV file is read as a type of the policy: what is none of the type is NULL."""
_DECODED = "SELECT COUNT(*), {} FROM {}"
_HOLDS_NAN = "can_have_nan = true"
"""What a file says of the least and the greatest value of its parts does not count NaN. An engine that goes by it leaves
out rows, or takes all, by the values of other people's rows beside them.
"""
_PATTERN = frozenset("*?[")
_PLACE = re.compile(
    r"[\w ]+ Error: (?:CSV Error on Line: (?P<csv>\d+)|(?:Malformed JSON|JSON transform error) in file \"(?P<file>[^\"]*)\","
    r"(?P<malformed> at byte \d+)? in (?P<kind>line|record/value) (?P<record>\d+):)"
)
"""Where a file cannot be read, as the engine's messages begin."""

_T = TypeVar("_T")
Types = Mapping[str, str]
"""The policy's types of a table's columns, by their names in any case."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files: how they are named, how a table is made of them, and whether the engine goes on reading them.

    `make` raises whatever the engine does for a file that it cannot read. Files that are not `typed` hold texts; of
    those that are not `checked` nobody has looked at the bytes of texts. A file of several tables is one for the table of its
    name; `tables` lists them where such a file may be a database by itself. What has to be `named` is passed over in a folder.
    """

    name: str
    suffixes: tuple[str, ...]
    make: Callable[[duckdb.DuckDBPyConnection, str, Sequence[Path], Types], None]
    stays: bool = False
    typed: bool = True
    checked: bool = True
    several: bool = False
    named: bool = False
    tables: Callable[[Path], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table in files of one format: where its owner says that it lies, and each file as it was when it was opened."""

    source: str
    format: Format
    files: tuple[Path, ...]
    marks: tuple[str, ...] = field(repr=False)

    @property
    def changed(self) -> bool:
        """Whether a file that the engine goes on reading is another by now."""
        return self.format.stays and tuple(map(_mark, self.files)) != self.marks


def tables_of(path: str | Path) -> dict[str, FileTable]:
    """The tables that a file or a folder holds, by name; none where it is not one of those.

    A file has one table, of its own name without the ending. In a folder each file is a table, and so is each folder
    with Parquet files below it. Raises OperationalError where two tables have one name.
    """
    place = Path(path)
    if not place.is_dir():
        if _PATTERN & set(str(path)) and not place.exists():
            raise ProgrammingError(
                f"{path} names no table", code="source", hint=f'{{"name": {str(path)!r}}} gives it a name'
            )
        found = _format(place)
        if found is None or (found.several and found.tables is None):
            return {}
        table = table_of(path)
        listed = found.tables
        names = [_stem(place)] if listed is None else _read(table, lambda: listed(table.files[0]))
        return dict.fromkeys(names, table)
    tables: dict[str, FileTable] = {}
    for entry in sorted(place.iterdir()):
        known = _format(entry)
        if entry.name.startswith(".") or not (entry.is_dir() or (known is not None and not known.named)):
            continue
        if entry.is_dir() and not any(entry.rglob("*.parquet")):
            continue
        name = _stem(entry)
        if name.casefold() in map(str.casefold, tables):
            raise OperationalError(f"{path} has two tables of the name {name}", code="source")
        tables[name] = table_of(entry)
    if not tables:
        raise OperationalError(
            f"the folder {path} has no files that can be read",
            code="no_database",
            hint=f"tables end in {_endings()}",
        )
    return tables


def table_of(source: str | Path) -> FileTable:
    """The table in a file, in all Parquet files below a folder, or in the files of a pattern.

    Raises OperationalError where there is none, or files of several formats.
    """
    if "\0" in str(source):
        raise OperationalError("no file has NUL in its name", code="no_database")
    place = Path(source)
    if place.is_dir():
        found = sorted(place.rglob("*.parquet"))
    elif _PATTERN & set(str(source)) and not place.exists():
        found = sorted(Path(place.anchor or ".").glob(str(place.relative_to(place.anchor))))
    else:
        found = [place]
    files = tuple(Path(os.path.realpath(each)) for each in found)
    if not files or not all(file.is_file() for file in files):
        raise OperationalError(f"there is no file {source}", code="no_database")
    formats = {_format(file) for file in files}
    kind = next(iter(formats))
    if kind is None or len(formats) > 1:
        raise OperationalError(
            f"{source} is not of one format that can be read",
            code="source",
            hint=f"files end in {_endings()}",
        )
    if kind.several and len(files) > 1:
        raise OperationalError(
            f"{source} names several {kind.name} files, each of which has tables of its own",
            code="source",
            hint="name one of them",
        )
    return FileTable(os.path.realpath(place), kind, files, tuple(map(_mark, files)))


def make(connection: duckdb.DuckDBPyConnection, name: str, table: FileTable, types: Types) -> None:
    """Makes a table of files under a name. Raises OperationalError, without the engine's words, where it cannot be read."""
    _read(
        table,
        lambda: interruptible(connection, lambda: table.format.make(connection, name, table.files, types)),
    )


def _read(table: FileTable, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except Error:
        raise
    except Exception as error:  # noqa: BLE001  (what a file cannot be read for may quote what stands in it)
        file, place = _unreadable(table, str(error))
    raise OperationalError(
        f"{file} cannot be read as {table.format.name}{place}",
        code="source",
        hint=_HINTS.get(table.format.name),
    )


def _unreadable(table: FileTable, message: str) -> tuple[str, str]:
    """Return the file that cannot be read, and the place in it, by the engine's message, and nothing else of that."""
    found = _PLACE.match(message)
    if found is None:
        return table.source, ""
    file = next((str(file) for file in table.files if f"file = {file}\n" in message), table.source)
    if found["csv"]:
        return file, f", at line {found['csv']}"
    # The engine counts a record that it cannot parse as read.
    number = int(found["record"]) - (found["malformed"] is not None)
    return found["file"], f", at {'line' if found['kind'] == 'line' else 'record'} {number}"


def paths(tables: Mapping[str, FileTable]) -> list[str]:
    """The files that the engine goes on reading."""
    return [str(file) for table in tables.values() if table.format.stays for file in table.files]


def suggested_types(name: str, table: FileTable) -> list[tuple[str, str]]:
    """The columns of files of texts with the types that some of their rows, or their schema, suggest: for an owner who writes a policy."""

    def described() -> list[tuple[Any, ...]]:
        if table.format.name == "JSON":
            return _described_json(table.files)
        if table.format.name == "SQLite":
            return sqlite_files.described(table.files[0], name)
        separator, names = _header(table.files[0])
        with duckdb.connect() as connection:
            return connection.execute(
                f"DESCRIBE FROM {_csv(table.files, separator)}, names = {_list(names)})"
            ).fetchall()

    return [(str(column), str(kind)) for column, kind, *_ in _read(table, described)]


def unread_texts(name: str, table: FileTable, types: Types) -> dict[str, int]:
    """Count the texts of each column that are none of the policy's type, for the data's owner alone.

    Such a text is read as NULL. Blank ones are left out, as missing values are written so. Files that state their types have none.
    """
    if table.format.typed:
        return {}
    with duckdb.connect() as scratch:
        _read(table, lambda: table.format.make(scratch, name, table.files, dict.fromkeys(types, "varchar")))
        stored = [str(column) for column, *_ in scratch.execute(f"DESCRIBE {identifier(name)}").fetchall()]
        typed = [column for column in stored if types.get(column) in _AS_TYPE]
        counts = [
            f"COUNT(*) FILTER (WHERE trim({identifier(column)}) <> '' AND ({_AS_TYPE[types[column]].format(identifier(column))}) IS NULL)"
            for column in typed
        ]
        found = (
            scratch.execute(f"SELECT {', '.join([*counts, '0'])} FROM {identifier(name)}").fetchone() or ()
        )
    return {column: int(many) for column, many in zip(typed, found, strict=False) if many}


def _make_parquet(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], _: Types) -> None:
    """A view on the files: the engine reads of them what a statement needs."""
    parts = any("=" in part for file in files for part in file.parts[:-1])
    options = f"hive_partitioning = {str(parts).lower()}, hive_types_autocast = false, {_HOLDS_NAN}"
    rows = f"read_parquet({_list(map(str, files))}, {options})"
    connection.execute(f"CREATE VIEW {identifier(name)} AS SELECT * FROM {rows}")
    columns = connection.execute(f"DESCRIBE {identifier(name)}").fetchall()
    alike = len({_schema(connection, file) for file in files}) == 1
    decoded = [column for column, kind, *_ in columns if not alike or kind not in _WHOLE]
    if decoded:
        looked_at = ", ".join(f"BIT_XOR(hash({identifier(column)}))" for column in decoded)
        connection.execute(_DECODED.format(looked_at, identifier(name))).fetchall()


def _schema(connection: duckdb.DuckDBPyConnection, file: Path) -> tuple[Any, ...]:
    described = connection.execute(f"DESCRIBE FROM read_parquet({_list([str(file)])})").fetchall()
    return tuple((column, kind) for column, kind, *_ in described)


def _make_csv(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], types: Types) -> None:
    """A table in memory, with the policy's types. Every line has to have the columns of the first."""
    separator, names = _header(files[0])
    if any(_header(file) != (separator, names) for file in files[1:]):
        raise ValueError("the files have other columns")
    columns = "{" + ", ".join(f"{literal(column)}: 'VARCHAR'" for column in names) + "}"
    rows = f"{_csv(files, separator)}, auto_detect = false, columns = {columns})"
    connection.execute(f"CREATE TABLE {identifier(name)} AS {_typed(names, types, rows)}")


def _typed(names: Sequence[str], types: Types, rows: str) -> str:
    """Return the query of columns of texts that reads each as the policy's type.

    The optimizer pushes a cast into the reader of a file, where one text that is none of the type ends the reading. It
    cannot push it below a common table expression that is materialized.
    """
    columns = ", ".join(
        _AS_TYPE.get(types.get(column, ""), "{0}").format(identifier(column)) + f" AS {identifier(column)}"
        for column in names
    )
    return f'WITH "#texts" AS MATERIALIZED (SELECT * FROM {rows}) SELECT {columns} FROM "#texts"'


def _make_json(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], types: Types) -> None:
    """A table in memory with the columns that the policy declares, as it spells them; without any, as the rows have them."""
    names = [column for column in types if "." not in column] or [
        str(column) for column, *_ in _described_json(files)
    ]
    columns = "{" + ", ".join(f"{literal(column)}: 'VARCHAR'" for column in names) + "}"
    for number, file in enumerate(files):
        rows = f"read_json({literal(str(file))}, format = {literal(_json_format(file))}, records = true, columns = {columns})"
        into = f"INSERT INTO {identifier(name)}" if number else f"CREATE TABLE {identifier(name)} AS"
        connection.execute(f"{into} {_typed(names, types, rows)}")


def _described_json(files: Sequence[Path]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        rows = (
            f"read_json({literal(str(files[0]))}, format = {literal(_json_format(files[0]))}, records = true)"
        )
        return connection.execute(f"DESCRIBE FROM {rows}").fetchall()


def _json_format(file: Path) -> str:
    """Whether a JSON file is one list of records or has one after another, by its first character alone."""
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    with opened(file, "rt", encoding="utf-8-sig") as lines:
        return "array" if lines.read(1 << 16).lstrip().startswith("[") else "newline_delimited"


def _make_sqlite(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], types: Types
) -> None:
    """A table in memory, of the file's table of that name."""
    names = sqlite_files.columns(files[0], name)
    texts = identifier("#rows")
    connection.execute(
        f"CREATE TEMP TABLE {texts} ({', '.join(f'{identifier(column)} VARCHAR' for column in names)})"
    )
    handed = ", ".join("UNNEST(CAST(? AS VARCHAR[]))" for _ in names)
    for batch in sqlite_files.batches(files[0], name):
        connection.execute(f"INSERT INTO {texts} SELECT {handed}", batch)
    connection.execute(f"CREATE TABLE {identifier(name)} AS {_typed(names, types, texts)}")
    connection.execute(f"DROP TABLE {texts}")


def _make_duckdb(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], _: Types) -> None:
    """A table in memory, of the file's table of that name: a view there may read anything."""
    connection.execute(f'ATTACH {literal(str(files[0]))} AS "#file" (TYPE duckdb, READ_ONLY)')
    try:
        found = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '#file' AND NOT temporary"
            " AND schema_name = 'main' AND lower(table_name) = lower(?)",
            [name],
        ).fetchall()
        if len(found) != 1:
            raise LookupError(name)
        ((schema, table),) = found
        source = f'"#file".{identifier(schema)}.{identifier(table)}'
        connection.execute(f"CREATE TABLE {identifier(name)} AS SELECT * FROM {source}")
    finally:
        connection.execute('DETACH "#file"')


def _csv(files: Sequence[Path], separator: str) -> str:
    """The call that reads the files, up to its further options."""
    return f"read_csv({_list(map(str, files))}, header = true, delim = {literal(separator)}, quote = '\"', escape = '\"'"


def _header(file: Path) -> tuple[str, list[str]]:
    """The separator and the columns of a CSV file, by its first line alone."""
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    with opened(file, "rb") as lines:  # so that no byte after the first line is decoded
        first = lines.readline(1 << 20).decode("utf-8-sig").partition("\r")[0]
    separator = max(_SEPARATORS, key=first.count)
    names = next(csv.reader([first], delimiter=separator), [])
    if not all(name.strip() for name in names) or len({name.casefold() for name in names}) < max(
        1, len(names)
    ):
        raise ValueError("the first line does not name the columns")
    return separator, names


def _make_arrow(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], _: Types) -> None:
    """A table in memory."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise ProgrammingError("Arrow files need pyarrow", code="extra", hint="pip install pyarrow") from None
    found = []
    for file in files:
        with pyarrow.memory_map(str(file)) as mapped:
            found.append(pyarrow.ipc.open_file(mapped).read_all())
    connection.register("#read", pyarrow.concat_tables(found))
    connection.execute(f'CREATE TABLE {identifier(name)} AS SELECT * FROM "#read"')
    connection.unregister("#read")


FORMATS = (
    Format("Parquet", (".parquet", ".pq"), _make_parquet, stays=True),
    Format("CSV", (".csv", ".tsv", ".csv.gz", ".tsv.gz"), _make_csv, typed=False),
    Format("JSON", (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), _make_json, typed=False),
    Format("JSON", (".json", ".json.gz"), _make_json, typed=False, named=True),
    Format("Arrow IPC", (".arrow", ".feather", ".ipc"), _make_arrow),
    Format(
        "SQLite",
        (".sqlite", ".sqlite3"),
        _make_sqlite,
        typed=False,
        several=True,
        named=True,
        tables=sqlite_files.tables,
    ),
    Format("DuckDB", (".duckdb",), _make_duckdb, checked=False, several=True, named=True),
)
_HINTS = {
    "CSV": 'the first line names the columns, and every line has as many; texts with separators stand in "…", in UTF-8',
    "Parquet": "is each file whole, and its text UTF-8?",
    "JSON": 'one list of records, or a record in each line, {"name": value, …}, in UTF-8',
    "SQLite": "has it a table of that name, no view, with texts in UTF-8?",
    "DuckDB": "has it a table of that name, no view, and is it closed in every program that writes to it?",
}


def _format(file: Path) -> Format | None:
    name = file.name.lower()
    return next((each for each in FORMATS if name.endswith(each.suffixes)), None)


def _stem(file: Path) -> str:
    """The name of the table in a file."""
    if file.is_dir():
        return file.name
    found = _format(file)
    suffixes = () if found is None else found.suffixes
    longest = max((suffix for suffix in suffixes if file.name.lower().endswith(suffix)), key=len, default="")
    return file.name[: len(file.name) - len(longest)]


def _endings() -> str:
    return ", ".join(suffix for each in FORMATS for suffix in each.suffixes if not suffix.endswith(".gz"))


def _mark(file: Path) -> str:
    """What changes when a file does; empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _list(texts: Iterator[str] | Sequence[str]) -> str:
    return "[" + ", ".join(map(literal, texts)) + "]"
