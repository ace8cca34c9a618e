"""A44: one cell decides whether a file opens.

Claim: a cell that is none of its column's type is read as NULL, and the file opens, whatever the other columns are.
Why: files are read as texts, and the engine's optimizer cannot carry the cast of a text into the reader of the file.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.backends.duckdb import DuckDBBackend, csv_files
from dpsql.backends.duckdb.files import make_file_table, resolve_file_table
from dpsql.policy.engine_types import POLICY_TYPES
from dpsql.policy.names import NameMap
from dpsql.policy.readings import CellReading, FileReading, TableReading

_READ = {
    "integer": ("12", 12),
    "double": ("12.5", 12.5),
    "varchar": ("x y", "x y"),
    "date": ("2024-02-29", "2024-02-29"),
    "timestamp": ("2024-02-29 12:30:00", "2024-02-29 12:30:00"),
    "time": ("12:30:00", "12:30:00"),
    "boolean": ("true", True),
    "uuid": ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000a"),
}
"""For each type that a text of a file is read as, a text and its value."""
_BROKEN = ("n/a", "", "99999999999999999999x", "2024-13-41", "1e999z", "ø")
_PAIRS = list(itertools.combinations_with_replacement(sorted(_READ), 2))


def _csv(path: Path, rows: list[list[str]]) -> Path:
    path = path.with_suffix(".csv")
    path.write_text("a,b\n" + "".join(f'"{a}","{b}"\n' for a, b in rows))
    return path


def _lines(path: Path, rows: list[list[str]]) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in rows))
    return path


def _array(path: Path, rows: list[list[str]]) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps([{"a": a, "b": b} for a, b in rows]))
    return path


def _sqlite(path: Path, rows: list[list[str]]) -> Path:
    path = path.with_suffix(".sqlite")
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (a, b)")
        made.executemany("INSERT INTO t VALUES (?, ?)", rows)
        made.commit()
    return path


_FORMATS = [_csv, _lines, _array, _sqlite]


def _rows(kinds: tuple[str, str]) -> Iterator[tuple[list[list[str]], list[tuple[Any, Any]]]]:
    """Rows of texts with a broken cell on either side, and as what they are to be read."""
    whole = [_READ[kind][0] for kind in kinds]
    values = tuple(_READ[kind][1] for kind in kinds)
    for broken, place in itertools.product(_BROKEN, range(2)):
        row, read = list(whole), list(values)
        row[place] = broken
        read[place] = broken if kinds[place] == "varchar" else None
        yield [whole, row, whole], [values, tuple(read), values]


def _reading(kinds: Mapping[str, str]) -> TableReading:
    return TableReading(NameMap({column: CellReading(kind) for column, kind in kinds.items()}))


def _opened(
    connection: duckdb.DuckDBPyConnection, path: Path, kinds: tuple[str, str]
) -> list[tuple[Any, ...]]:
    """The rows of a file's table, moments as texts."""
    connection.execute("DROP TABLE IF EXISTS t")
    make_file_table(connection, "t", resolve_file_table(path), _reading(dict(zip("ab", kinds, strict=True))))
    shown = (
        name if kind in ("integer", "double", "boolean") else f"CAST({name} AS VARCHAR)"
        for name, kind in zip("ab", kinds, strict=True)
    )
    return connection.execute(f"SELECT {', '.join(shown)} FROM t").fetchall()


def _same(read: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """An empty cell of a CSV file may be NULL: only JSON and SQLite tell it from an empty text."""
    return [tuple(value or None for value in row) for row in read] == [
        tuple(value or None for value in row) for row in expected
    ]


def test_every_file_type_is_tried() -> None:
    """All types of a policy but bytes, which no file of texts has."""
    assert set(_READ) == {kind.name for kind in POLICY_TYPES} - {"blob"}


@pytest.mark.parametrize("written", _FORMATS, ids=lambda each: each.__name__[1:])
@pytest.mark.parametrize("kinds", _PAIRS, ids="-".join)
def test_broken_cell_is_null_and_the_file_opens(tmp_path: Path, kinds: tuple[str, str], written: Any) -> None:
    """A broken cell is NULL in a column of each type, alone and with all others."""
    with duckdb.connect() as connection:
        for rows, expected in _rows(kinds):
            assert _same(_opened(connection, written(tmp_path / "t", rows), kinds), expected), (rows, kinds)


def _disable_pushdown(connection: duckdb.DuckDBPyConnection) -> None:
    """Disable the optimizers that move work into readers, whichever this version has."""
    names = [
        name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall() if "pushdown" in name
    ]
    connection.execute(f"SET disabled_optimizers = '{','.join(names)}'")


def _choices() -> Mapping[str, list[str]]:
    """Which optimizers are disabled: none, all, each, and all but each."""
    with duckdb.connect() as connection:
        names = [name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()]
    return {
        "none": [],
        "all": names,
        **{f"no {name}": [name] for name in names},
        **{f"only {name}": [other for other in names if other != name] for name in names},
    }


@pytest.mark.parametrize("written", _FORMATS, ids=lambda each: each.__name__[1:])
def test_no_optimizer_decides_whether_a_file_opens(tmp_path: Path, written: Any) -> None:
    """Each one off, each one alone, all and none."""
    files = []
    for kind in ("integer", "double", "date"):
        rows, expected = next(iter(_rows((kind, "double"))))
        (tmp_path / kind).mkdir()
        files.append((written(tmp_path / kind / "t", rows), (kind, "double"), expected))
    for name, disabled in _choices().items():
        with duckdb.connect() as connection:
            connection.execute(f"SET disabled_optimizers = '{','.join(disabled)}'")
            for path, kinds, expected in files:
                assert _same(_opened(connection, path, kinds), expected), (name, kinds)


@pytest.mark.parametrize("pushes", [True, False])
def test_engines_reader_reads_a_broken_cell_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pushes: bool
) -> None:
    """The other reader, which would take over, hides no failure of this one."""
    monkeypatch.setattr(csv_files, "iterate_rows", None)
    rows, expected = next(iter(_rows(("double", "double"))))
    with duckdb.connect() as connection:
        if not pushes:
            _disable_pushdown(connection)
        assert _same(_opened(connection, _csv(tmp_path / "t", rows), ("double", "double")), expected)


@pytest.mark.parametrize("disabled", ["", "type_pushdown"])
def test_cast_over_the_reader_fails_on_one_cell(tmp_path: Path, disabled: str) -> None:
    """The attack works on a cast over the reader: the optimizer moves the type into the reader."""
    path = _csv(tmp_path / "t", [["1", "12.5"], ["2", "n/a"]])
    rows = f"read_csv('{path}', auto_detect = false, header = true, columns = {{a: 'VARCHAR', b: 'VARCHAR'}})"
    with duckdb.connect() as connection:
        connection.execute(f"SET disabled_optimizers = '{disabled}'")
        careless = f"SELECT a, TRY_CAST(b AS DOUBLE) FROM {rows}"
        if disabled:
            assert connection.execute(careless).fetchall() == [("1", 12.5), ("2", None)]
            return
        with pytest.raises(duckdb.Error):
            connection.execute(careless).fetchall()


_DECLARED = {
    "integer": (CellReading("integer", decimal=","), "1.234", 1234),
    "double": (CellReading("double", decimal=",", null_values=("-99",)), "1.234,5", 1234.5),
    "date": (CellReading("date", ("%d.%m.%Y", "%m/%d/%y")), "29.02.2024", "2024-02-29"),
    "timestamp": (CellReading("timestamp", ("%d.%m.%Y %H:%M",)), "29.02.2024 12:30", "2024-02-29 12:30:00"),
    "time": (CellReading("time", ("%I:%M %p",)), "12:30 PM", "12:30:00"),
    "varchar": (CellReading("varchar", null_values=("NA",)), "x y", "x y"),
}
"""For each type, a reading that a policy may declare, a text and its value."""
_ODD = (
    *(
        "n/a",
        "",
        "99999999999999999999",
        "9" * 400,
        "1e999",
        "-",
        "--",
        "(1",
        "1)",
        "EUR",
        "%d",
        "{0}",
        "\\",
        "'",
        "ø\u202f",
        "\x01",
    ),
    *(
        "31.02.2024",
        "99.99.9999",
        "00.00.0000",
        "29.02.99999",
        "infinity",
        "epoch",
        "NaN",
        "12:60 PM",
        "-99",
        "NA",
        "1,2,3",
    ),
)


@pytest.mark.parametrize("written", _FORMATS, ids=lambda each: each.__name__[1:])
@pytest.mark.parametrize(
    "file", [FileReading(), FileReading(encoding="latin-1", ragged=True)], ids=["plain", "other"]
)
@pytest.mark.parametrize("kind", _DECLARED)
def test_no_declared_reading_decides_whether_a_file_opens(
    tmp_path: Path, kind: str, file: FileReading, written: Any
) -> None:
    """Each option of a column and of a file, with odd cells: the file opens, and the other cells are as they were."""
    cell, text, value = _DECLARED[kind]
    rows = [row for odd in _ODD for row in ([text, "1"], [odd, "1"], [text, "1"])]
    reading = TableReading(NameMap({"a": cell, "b": CellReading("integer")}), file)
    for pushes in (True, False):
        with duckdb.connect() as connection:
            if not pushes:
                _disable_pushdown(connection)
            make_file_table(connection, "t", resolve_file_table(written(tmp_path / "t", rows)), reading)
            shown = "a" if kind in ("integer", "double", "varchar") else "CAST(a AS VARCHAR)"
            found = connection.execute(f"SELECT {shown}, b FROM t").fetchall()
        assert found[::3] == found[2::3] == [(value, 1)] * len(_ODD)
        assert [b for _, b in found] == [1] * len(found)


def test_broken_cell_does_not_change_other_answers(tmp_path: Path) -> None:
    """The person with the odd cell is one of many in an analyst's query."""
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**12},
        "max_epsilon": 10**10,
        "tables": {
            "t": {
                "unit": "a",
                "rows_per_unit": 1,
                "columns": {"a": {"type": "varchar"}, "b": {"type": "double", "bounds": [0, 100]}},
            }
        },
    }
    path = _csv(tmp_path / "t", [["1", "12.5"], ["2", "n/a"]])
    with dpsql.connect(path, policy=policy, ledger=":memory:", epsilon=10**9) as opened:
        assert opened.query("SELECT COUNT(*), COUNT(b), SUM(b) FROM t").rows == ((2, 1, pytest.approx(12.5)),)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("t.csv", "a,b\n" + "1,2\n" * 5000 + "secret,2,3\n1,2\n", "line 5002"),
        ("t.csv", b"a,b\n1,2\n1,secret\xff\n", "line 3"),
        ("t.csv", 'a,b\n1,2\n1,"secret" CSV Error on Line: 77\n', "line 3"),
        ("t.jsonl", '{"a": 1}\n' * 300 + '{"a": "secret",,}\n', "line 301"),
        ("t.jsonl", '{"a": 1}\n' * 300 + '["secret"]\n', "line 301"),
        ("t.json", '[{"a": 1}, {"a": "secret",,}]', "record 2"),
        ("t.json", '[{"a": 1}, {"a": 1}, ["secret"]]', "record 3"),
    ],
    ids=["too wide", "not UTF-8", "after a quote", "malformed line", "a list", "malformed", "no record"],
)
def test_unreadable_line_is_named(tmp_path: Path, name: str, text: str | bytes, place: str) -> None:
    """The owner finds the line by its number; its content is not shown."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(dpsql.OperationalError) as caught:
        DuckDBBackend({"t": path}, readings={"t": _reading({"a": "varchar"})})
    assert f"cannot read {path} as " in str(caught.value)
    assert place in str(caught.value)
    message = str(caught.value).replace(str(path), "")  # which has a number of its own
    assert "secret" not in message
    assert "77" not in message


def test_unreadable_file_of_several_is_named(tmp_path: Path) -> None:
    """A pattern names many."""
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("a,b\n1,2\n" + "1\n" * (number == 1))
    with pytest.raises(dpsql.OperationalError, match=r"1\.csv as CSV, at line 3"):
        DuckDBBackend({"t": str(tmp_path / "*.csv")})
