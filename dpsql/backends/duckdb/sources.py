"""Tables from outside DuckDB: data frames and SQLite files."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


# Frames whose columns say what they hold, whatever they hold.


UNTYPED = "OBJECT"
"""The engine type that the schema gives to such a column: its text is read as the policy says."""


UNCHECKED = "VARCHAR of a frame"
"""The engine type that the catalog gives to a text column whose bytes nobody has looked at."""


ZONED = "TIMESTAMP WITH TIME ZONE of a frame"
"""The engine type that the catalog gives to moments that the engine may fail to read: in seconds, some are too great."""


def to_typed_frame(frame: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the frame with columns of objects and categories as text, and these columns' names; moments have no zone.

    The engine guesses the type of a pandas column of Python objects from some of its values, and shows the categories of a
    categorical one in its type. One row could then change a type, a plan or an error.

    Claim: the engine type of each column of a typed frame depends on its dtype alone, and reading it cannot fail on a value.
    Why: columns of objects and of categories become text, each value for itself; all others have a type.
    Source: attack A25, the type channel.
    """
    frame = _drop_time_zones(frame)
    pandas = sys.modules.get("pandas")  # whoever passes a pandas frame has imported it
    if pandas is None or not isinstance(frame, pandas.DataFrame):
        return frame, ()
    loose, rewritten = [], frame.copy(deep=False)
    for place, (name, dtype) in enumerate(frame.dtypes.items()):
        untyped = str(dtype) == "object" or isinstance(dtype, pandas.CategoricalDtype)
        if untyped or isinstance(dtype, pandas.StringDtype):  # whose texts may be no text to the engine
            rewritten.isetitem(place, _to_text_series(frame.iloc[:, place]))
        if isinstance(dtype, pandas.DatetimeTZDtype):
            rewritten.isetitem(place, frame.iloc[:, place].dt.tz_convert(None))
        if untyped:
            loose.append(str(name))
    return rewritten, tuple(loose)


def _drop_time_zones(frame: Any) -> Any:
    """Convert moments with a zone in a table of Arrow or of Polars to UTC, in the same unit, so that none is too great."""
    pyarrow, polars = sys.modules.get("pyarrow"), sys.modules.get("polars")
    if polars is not None and isinstance(frame, polars.DataFrame):
        zoned = any(getattr(dtype, "time_zone", None) is not None for dtype in frame.dtypes)
        frame = frame.to_arrow() if zoned else frame  # as the engine does itself
        pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(frame, pyarrow.Table):
        return frame
    for place, field in enumerate(frame.schema):
        if pyarrow.types.is_timestamp(field.type) and field.type.tz is not None:
            bare = frame.column(place).cast(pyarrow.timestamp(field.type.unit))
            frame = frame.set_column(place, field.name, bare)
    return frame


def _to_text_series(column: pandas.Series[Any]) -> pandas.Series[Any]:
    import pandas

    values = [_to_text(value) for value in _list_values(column)]
    return pandas.Series(values, index=column.index, dtype="string")


def _list_values(column: pandas.Series[Any]) -> list[Any]:
    if getattr(column.dtype, "storage", None) != "pyarrow":
        return list(column.astype(object))
    import pyarrow

    raw = pyarrow.array(column.array).cast(pyarrow.large_binary()).to_pylist()
    return [None if value is None else value.decode(errors="replace") for value in raw]


def _to_text(value: Any) -> str | None:
    try:
        if value is None or value != value:  # noqa: PLR0124  (NaN and NaT are not equal to themselves)
            return None
        return str(value).encode(errors="replace").decode()
    except Exception:  # noqa: BLE001  (an object that cannot say what it is, as pandas.NA, is nothing)
        return None


# Tables of SQLite files, read by Python's own module into memory: DuckDB's extension would come from the network.


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql LIKE 'CREATE TABLE%' ORDER BY name"
_KINDS = (
    ("INT", "BIGINT"),
    ("BOOL", "BOOLEAN"),
    ("DATETIME", "TIMESTAMP"),
    ("TIMESTAMP", "TIMESTAMP"),
    ("DATE", "DATE"),
    *((word, "DOUBLE") for word in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")),
)
_ROWS = 10_000
"""Rows that are handed over at a time."""


def list_tables(file: Path) -> list[str]:
    """Return the names of the file's own tables. Raises sqlite3.Error for a file of another program."""
    with closing(_open_file(file)) as connection:
        return [str(name) for (name,) in connection.execute(_TABLES)]


def list_columns(file: Path, table: str) -> list[str]:
    """Return the columns of a table. Raises LookupError if there is none of that name."""
    with closing(_open_file(file)) as connection:
        return _list_columns(connection, table)


def describe_columns(file: Path, table: str) -> list[tuple[str, str]]:
    """Return the columns of a table with the types that their declarations suggest, which bind no value.

    >>> [_suggest_type(kind) for kind in ("INTEGER", "varchar(9)", "Double Precision", "DATETIME", "")]
    ['BIGINT', 'VARCHAR', 'DOUBLE', 'TIMESTAMP', 'VARCHAR']
    """
    with closing(_open_file(file)) as connection:
        kinds = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (table,)).fetchall())
        return [(name, _suggest_type(str(kinds[name]))) for name in _list_columns(connection, table)]


def _suggest_type(declared: str) -> str:
    return next((kind for word, kind in _KINDS if word in declared.upper()), "VARCHAR")


def iterate_batches(file: Path, table: str) -> Iterator[list[list[str | None]]]:
    """Yield the rows of a table, some at a time: each column as a list of texts.

    Claim: no value decides over a column's type or makes a statement fail later, and nothing of the file is run.
    Why: SQLite gives any value in any column, so each is taken as a text and read as a CSV file's texts are, by the policy's types.
    The file is opened read-only, and of it tables alone are read: no view, no virtual table, no trigger.
    Source: SQLite's documentation, "Datatypes In SQLite" and "Uniform Resource Identifiers".
    """
    with closing(_open_file(file)) as connection:
        listed = ", ".join(_quote_identifier(name) for name in _list_columns(connection, table))
        cursor = connection.execute(f"SELECT {listed} FROM {_quote_identifier(table)}")
        while rows := cursor.fetchmany(_ROWS):
            yield [list(map(_decode_sqlite_text, column)) for column in zip(*rows, strict=True)]


def _open_file(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,)
    )
    names = [str(name) for (name,) in found]
    if not names or table.lower() not in (name.lower() for (name,) in connection.execute(_TABLES)):
        raise LookupError(table)
    return names


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _decode_sqlite_text(value: Any) -> str | None:
    """Return a value as text; bytes have none."""
    return None if value is None or isinstance(value, bytes) else str(value)
