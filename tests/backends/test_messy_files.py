"""Files as other programs write them: encodings, titles, names, ragged lines, decimal signs, formats of dates, workbooks."""

from __future__ import annotations

import datetime as dt
import gzip
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.backends.duckdb import DuckDBBackend, csv_files
from dpsql.backends.duckdb.cells import build_cell
from dpsql.backends.duckdb.files import make_file_table, resolve_file_table
from dpsql.policy.names import NameMap
from dpsql.policy.readings import ENCODINGS, CellReading, FileReading, TableReading


def _read(
    path: Path, file: Mapping[str, Any] | None = None, **cells: CellReading
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and rows of a file's table."""
    with duckdb.connect() as connection:
        reading = TableReading(NameMap(cells), FileReading.model_validate(file or {}))
        make_file_table(connection, "t", resolve_file_table(path), reading)
        cursor = connection.execute("SELECT * FROM t")
        return [str(column[0]) for column in cursor.description or ()], cursor.fetchall()


def _written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le"])
def test_encodings(tmp_path: Path, encoding: str, ending: str) -> None:
    """Marks at the start of a file are enough for UTF-8 and UTF-16; others are declared."""
    text = 'name,note\r\nMüller,"a\r\nb"\r\nØre,x\r\n'.encode(encoding)
    path = _written(tmp_path / f"t.csv{ending}", gzip.compress(text) if ending else text)
    file = {} if encoding in ("utf-8", "utf-8-sig", "utf-16") else {"encoding": encoding}
    assert _read(path, file) == (["name", "note"], [("Müller", "a\r\nb"), ("Øre", "x")])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_byte_decides_whether_a_file_of_a_declared_encoding_opens(tmp_path: Path, encoding: str) -> None:
    """Each byte within a cell is read as some letter, and the rows around it as they are."""
    wide = encoding.startswith("utf-16")
    cells = [bytes([byte, 0xD8]) if wide else bytes([byte]) for byte in range(256)]
    if not wide:
        cells = [
            cell for cell in cells if cell.decode(encoding, errors="replace") not in ("\n", "\r", ",", '"')
        ]
    start, rest = "a,b\n".encode(encoding), [f"{row},".encode(encoding) for row in range(len(cells))]
    marks = len("".encode(encoding))
    text = start + b"".join(
        row[marks:] + cell + "\n".encode(encoding)[marks:] for row, cell in zip(rest, cells, strict=True)
    )
    columns, rows = _read(_written(tmp_path / "t.csv", text), {"encoding": encoding})
    assert columns == ["a", "b"]
    assert [row[0] for row in rows] == [str(row) for row in range(len(cells))]


def test_unstated_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    """Not guessed: letters would be others. The error names the line and the key."""
    path = _written(tmp_path / "t.csv", "a,b\n1,x\n2,Müller\n".encode("latin-1"))
    with pytest.raises(dpsql.OperationalError, match="at line 3: it is not UTF-8") as caught:
        _read(path)
    assert "encoding: cp1252" in str(caught.value.hint)


def test_names_of_columns(tmp_path: Path) -> None:
    """A title above the names, a column without a name, names twice, no names at all, and the line that Excel takes."""
    rows = "0;7;1\n1;8;2\n"
    path = tmp_path / "t.csv"
    expected = [("0", "7", "1"), ("1", "8", "2")]
    assert _read(_written(path, f"Export, of 2026\n\n;cost;Cost\n{rows}"), {"header": 3}) == (
        ["column1", "cost", "Cost_2"],
        expected,
    )
    assert _read(_written(path, f"sep=;\na;b;c\n{rows}")) == (["a", "b", "c"], expected)
    names = {"names": ["x", "y", "z"], "separator": ";"}
    assert _read(_written(path, rows), names) == (["x", "y", "z"], expected)
    with pytest.raises(
        dpsql.OperationalError, match=r"at line 2: it has 3 cells, and line 1 names 1"
    ) as caught:
        _read(_written(path, "Export\na,b,c\n1,2,3\n"))
    assert "file: {header: 2}" in str(caught.value.hint)
    with pytest.raises(dpsql.OperationalError, match="at line 1: it names no columns"):
        _read(_written(path, f"\na;b;c\n{rows}"))


def test_ragged_lines(tmp_path: Path) -> None:
    """Refused with the line and the column from which cells are missing; or read, where the policy says so."""
    path = _written(tmp_path / "t.csv", "a,b,c\n1,2,3\n4\n5,6,7,8\n")
    with pytest.raises(
        dpsql.OperationalError, match="at line 3: it has 1 cell, and line 1 names 3, from column b on"
    ):
        _read(path)
    assert _read(path, {"ragged": True})[1] == [("1", "2", "3"), ("4", None, None), ("5", "6", "7")]
    open_mark = _written(path, 'a,b\n1,2\n3,"x\n4,5\n')
    for file in ({}, {"ragged": True}):  # else somebody's cell would take in the rows of others
        with pytest.raises(dpsql.OperationalError, match="at line 3: a quotation mark is not closed"):
            _read(open_mark, file)


@pytest.mark.parametrize("ends", [["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"], ["\n", "\r\n", "\r"]])
def test_line_ends(tmp_path: Path, ends: list[str]) -> None:
    """Those of all systems, also mixed in one file."""
    lines = ["a,b", *(f"{number},x" for number in range(9))]
    text = "".join(line + ends[place % len(ends)] for place, line in enumerate(lines))
    assert _read(_written(tmp_path / "t.csv", text))[1] == [(str(number), "x") for number in range(9)]


def _draw_cell(random_: random.Random) -> str:
    text = "".join(random_.choice('ab ,"\n;x\u00e9') for _ in range(random_.randrange(4)))
    quoted = '"' + text.replace('"', '""') + '"'
    plain = text.replace(",", "").replace("\n", "").lstrip(' "')
    return random_.choice([quoted, f" {quoted}", f"{quoted}  ", plain, ""])


@pytest.mark.parametrize("seed", range(20))
def test_both_readers_read_a_file_alike(tmp_path: Path, seed: int) -> None:
    """A file that the engine's reader takes has the same rows for the other one, so it does not matter which of them reads it."""
    random_ = random.Random(seed)
    width, tried = random_.randrange(1, 4), 0
    for _ in range(50):
        rows = [",".join(_draw_cell(random_) for _ in range(width)) for _ in range(random_.randrange(6))]
        text = ",".join("pqr"[:width]) + "\n" + "".join(f"{row}\n" for row in rows)
        path = _written(tmp_path / "t.csv", text)
        header = csv_files.read_header(path, FileReading())
        with duckdb.connect() as connection:
            try:
                csv_files._make_plain(connection, "t", [path], header, TableReading())
            except duckdb.Error:
                continue
            theirs = connection.execute("FROM t").fetchall()
        tried += 1
        ours = [tuple(row) for row in csv_files.iterate_rows(path, header, FileReading())]
        assert ours == theirs, text
    assert tried > 10


_NUMBERS = {
    ",": {
        "1.234,50": 1234.5, "1234,5": 1234.5, "1 234,5": 1234.5, "1\u00a0234,5": 1234.5, "1'234,5": 1234.5, "12,50 €": 12.5,
        "12,50\u00a0€": 12.5, "-3,5": -3.5, "3,5-": -3.5, "\u22123,5": -3.5, "EUR 5": 5.0, ",5": 0.5, "7": 7.0, "1,5e3": 1500.0,
        "1.5": None, "1.23,4": None, "1,2,3": None, "12 %": None, "--1": None, "-1-": None, "x": None, "": None, "1.2345": None,
    },
    ".": {
        "1,234.50": 1234.5, "$1,234": 1234.0, "(12.50)": -12.5, "$ -3": -3.0, "1.5": 1.5, ".5": 0.5, "1,5": None, "1e3": 1000.0,
        "1,2345": None, "12 apples": None,
    },
}  # fmt: skip
"""Texts of numbers by their decimal sign, with their values."""


@pytest.mark.parametrize("sign", [",", "."])
def test_numbers_as_people_write_them(sign: str) -> None:
    """Thousands in groups of three, a currency, a sign before or behind; all else is NULL."""
    with duckdb.connect() as connection:
        for text, value in _NUMBERS[sign].items():
            double, whole = (
                build_cell(CellReading(kind, decimal=sign), "t") for kind in ("double", "integer")
            )
            found = connection.execute(
                f"SELECT {double}, {whole} FROM (SELECT ?::VARCHAR AS t)", [text]
            ).fetchone()
            counted = None if value is None or value != int(value) or "e" in text else int(value)
            assert found == (value, counted), text


_DAY = dt.date(2025, 10, 8)
_MOMENT = dt.datetime(2025, 10, 8, 12, 30)


@pytest.mark.parametrize(
    ("kind", "formats", "texts"),
    [
        (
            "date",
            ("%d.%m.%Y",),
            {"08.10.2025": _DAY, "8.10.2025": _DAY, "08.10.25": None, "31.02.2025": None},
        ),
        ("date", ("%d.%m.%Y", "%m/%d/%y"), {"08.10.2025": _DAY, "10/08/25": _DAY, "2025-10-08": None}),
        ("date", ("%d%b%Y",), {"08OCT2025": _DAY, "8oct2025": _DAY, "08OKT2025": None}),
        ("date", ("%Y%m%d",), {"20251008": _DAY, "251008": None}),
        ("timestamp", ("%d%b%Y:%H:%M:%S",), {"08OCT2025:12:30:00": _MOMENT, "": None}),
        ("timestamp", ("%Y-%m-%dT%H:%M:%SZ",), {"2025-10-08T12:30:00Z": _MOMENT, "2025-10-08": None}),
        ("time", ("%I:%M %p",), {"12:30 PM": dt.time(12, 30), "25:00 PM": None}),
    ],
)
def test_formats_of_dates(kind: str, formats: tuple[str, ...], texts: Mapping[str, object]) -> None:
    """The first format that reads a text; a year of two digits is none of four."""
    with duckdb.connect() as connection:
        for text, value in texts.items():
            sql = f"SELECT {build_cell(CellReading(kind, formats), 't')} FROM (SELECT ?::VARCHAR AS t)"
            assert connection.execute(sql, [text]).fetchone() == (value,), text


def test_null_values(tmp_path: Path) -> None:
    """Texts and numbers that stand for a missing value, in a column of texts and in one of numbers."""
    path = _written(tmp_path / "t.csv", "a,b\nNA,-99\nNAB, -99\nx,-9\n")
    cells = {
        "a": CellReading("varchar", null_values=("NA",)),
        "b": CellReading("integer", null_values=("-99",)),
    }
    assert _read(path, None, **cells)[1] == [(None, None), ("NAB", None), ("x", -9)]


def test_policy_says_how_a_file_is_written(tmp_path: Path) -> None:
    """All keys in one policy, with an answer."""
    rows = "".join(
        f"{number % 40};{number % 7},50 €;{1 + number % 28:02}.01.2026;NA\r\n" for number in range(400)
    )
    (tmp_path / "t.csv").write_bytes(f"Kosten für 2026\r\nid;preis;tag;art\r\n{rows}".encode("cp1252"))
    policy = tmp_path / "t.yaml"
    policy.write_text(
        """
version: 1
privacy_unit: person
budget: {epsilon: 1e9}
max_epsilon: 1e8
tables:
  t:
    source: t.csv
    file: {encoding: windows-1252, header: 2}
    unit: id
    rows_per_unit: 10
    columns:
      preis: {type: double, decimal: ",", bounds: [0, 10]}
      tag: {type: date, format: "%d.%m.%Y", bounds: [2026-01-01, 2026-12-31]}
      art: {type: varchar, null_values: [NA]}
""",
        encoding="utf-8",
    )
    with dpsql.connect(policy=policy, ledger=":memory:", epsilon=1e7) as opened:
        ((n, total, days, kinds),) = opened.query(
            "SELECT COUNT(*), SUM(preis), COUNT(tag), COUNT(art) FROM t WHERE tag < DATE '2026-02-01'"
        ).rows
    assert (n, days, kinds) == (400, 400, 0)
    assert total == pytest.approx(sum(number % 7 + 0.5 for number in range(400)), rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("file: {encoding: klingon}", "unknown_choice"),
        ("file: {header: 2, names: [a], separator: ','}", "header_and_names"),
        ("file: {names: [a]}", "missing_key"),
        ("columns: {a: {type: integer, format: '%d'}}", "format"),
        ("columns: {a: {type: date, format: 'DD.MM.YYYY'}}", "format"),
        ("columns: {a: {type: date, format: '%d.%m.%Q'}}", "format"),
        ("columns: {a: {type: date, format: '%H:%M'}}", "format"),
        ("columns: {a: {type: timestamp, format: '%Y-%m-%d %H:%M %z'}}", "format"),
        ("columns: {a: {type: date, decimal: ','}}", "decimal"),
        ("columns: {a: {type: varchar, null_values: [No]}}", "null_values"),
    ],
)
def test_policy_with_wrong_keys_is_refused(keys: str, code: str) -> None:
    """With the line, before any file is read."""
    text = f"version: 1\nprivacy_unit: person\nbudget: {{epsilon: 1}}\ntables:\n  t:\n    unit: row\n    {keys}\n"
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.connect({"t": "t.csv"}, policy=text, ledger=":memory:")
    assert code in str(caught.value.code)
    if "DD.MM" in keys:
        assert 'write "%d.%m.%Y"' in str(caught.value)


def test_keys_of_texts_are_refused_where_no_file_of_texts_is(tmp_path: Path) -> None:
    """They would have no effect there."""
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {"t": {"unit": "row", "columns": {"a": {"type": "date", "format": "%d.%m.%Y"}}}},
    }
    with duckdb.connect() as made:
        made.execute(f"COPY (SELECT DATE '2026-01-01' AS a) TO '{tmp_path / 't.parquet'}'")
    with pytest.raises(dpsql.ProgrammingError, match=r"t: a\.format is only valid for files of texts"):
        dpsql.connect(tmp_path / "t.parquet", policy=policy, ledger=":memory:")


@pytest.mark.parametrize(
    "address", ["s3://bucket/t.parquet", "gs://bucket/t", "abfss://a@b/t.csv", "hdfs://host/t"]
)
def test_object_stores_are_named(address: str) -> None:
    """With what to do, wherever the address stands."""
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {"t": {"unit": "row"}},
    }
    named = {**policy, "tables": {"t": {"unit": "row", "source": address}}}
    for database, rules in ((address, policy), ({"t": address}, policy), (None, named)):
        with pytest.raises(
            dpsql.ProgrammingError, match=f"files of {address.partition(':')[0]}: are not read"
        ) as caught:
            dpsql.connect(database, policy=rules, ledger=":memory:")
        assert "copy them into a folder" in str(caught.value.hint)


@pytest.mark.parametrize("inside", ["_delta_log/0.json", "metadata/1.metadata.json", ".hoodie/x"])
def test_folders_of_table_formats_are_refused(tmp_path: Path, inside: str) -> None:
    """Their Parquet files hold removed rows as well: alone, in a folder of tables, and by a pattern of the files."""
    folder = tmp_path / "shop" / "orders"
    (folder / inside).parent.mkdir(parents=True)
    (folder / inside).write_text("{}")
    with duckdb.connect() as made:
        made.execute(f"COPY (SELECT 1 AS a) TO '{folder / 'part.parquet'}'")
    for source in (folder, tmp_path / "shop", *([] if "metadata" in inside else [f"{folder}/*.parquet"])):
        with pytest.raises(dpsql.ProgrammingError, match="removed and former rows"):
            DuckDBBackend({"orders": source} if "*" in str(source) else source)


def test_data_frames_of_spark_are_refused_with_what_to_save() -> None:
    """They are plans, which Spark computes anew each time."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1},
        "tables": {"t": {"unit": "row"}},
    }
    with pytest.raises(dpsql.ProgrammingError, match="the table t is a data frame of Spark") as caught:
        dpsql.connect({"t": frame}, policy=policy, ledger=":memory:")
    assert 'frame.write.saveAsTable("t")' in str(caught.value.hint)


def test_values_in_names_of_folders_are_read_as_declared(tmp_path: Path) -> None:
    """They are texts, and one that is none of the type is NULL; a condition on them reads the same rows."""
    for year in ("2024", "2025", "x"):
        folder = tmp_path / "t" / f"year={year}"
        folder.mkdir(parents=True)
        with duckdb.connect() as made:
            made.execute(f"COPY (SELECT i AS id FROM range(10) t(i)) TO '{folder / 'part.parquet'}'")
    columns: dict[str, Any] = {"year": {"type": "integer", "bounds": [2000, 2030]}}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**10},
        "tables": {"t": {"unit": "id", "rows_per_unit": 3, "columns": columns}},
    }
    for kind in ("integer", "varchar"):
        columns["year"] = {**columns["year"], "type": kind} if kind == "integer" else {"type": kind}
        year = "2025" if kind == "integer" else "'2025'"
        with dpsql.connect(tmp_path / "t", policy=policy, ledger=":memory:", epsilon=10**8) as opened:
            assert opened.query(f"SELECT COUNT(*) FROM t WHERE year = {year}").rows == ((10,),)
            missing = opened.query("SELECT COUNT(*) FROM t WHERE year IS NULL").rows
            assert missing == ((10 if kind == "integer" else 0,),)


def test_workbooks(tmp_path: Path) -> None:
    """A sheet by its name or the table's: numbers, dates, texts, formulas without a value, and rows above the names."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Visits"
    for row in (
        ["Export"], [], ["id", "day", "cost", "note", None], [1, dt.datetime(2025, 10, 8), 12.5, "x", None],
        [2, "09.10.2025", "1.234,50", 7, None], [], ["p3", 1e12, "n/a", True, None],
    ):  # fmt: skip
        sheet.append(row)
    for value in (1e12, -5, 3e9):
        sheet.append([4, value])
        sheet.cell(sheet.max_row, 2).number_format = "dd.mm.yyyy"
    book.create_sheet("Other")
    book.save(tmp_path / "visits.xlsx")
    cells = {
        "id": CellReading("integer"),
        "day": CellReading("date", ("%d.%m.%Y",)),
        "cost": CellReading("double", decimal=","),
    }
    for file in ({"header": 3, "sheet": "Visits"},):
        columns, rows = _read(tmp_path / "visits.xlsx", file, **cells)
        assert columns[:4] == ["id", "day", "cost", "note"]
        assert [row[:4] for row in rows[:3]] == [
            (1, _DAY, 12.5, "x"),
            (2, dt.date(2025, 10, 9), 1234.5, "7"),
            (None, None, None, "true"),
        ]
        assert len(rows) == 6
    with pytest.raises(dpsql.ProgrammingError, match="has no sheet t; its sheets are Visits, Other"):
        _read(tmp_path / "visits.xlsx")
