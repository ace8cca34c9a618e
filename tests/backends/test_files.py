"""Tables in files: the answers are those of DuckDB's own reading, and no value decides over a type or an error."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.interfaces.cli.app import app

_NO_NOISE = 10**9
_ORDERS = """
    SELECT i % 40 AS who, CAST(i % 90 AS DOUBLE) AS price, CASE WHEN i % 11 > 0 THEN 'c' || i % 3 END AS kind,
        DATE '2024-01-01' + CAST(i % 50 AS INTEGER) AS day
    FROM range(400) AS t(i)
"""
_COLUMNS = {
    "who": {"type": "integer"},
    "price": {"type": "double", "bounds": [0, 100]},
    "kind": {"type": "varchar", "values": ["c0", "c1", "c2"]},
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
}
_SQL = "SELECT kind, COUNT(*) AS n, SUM(price) AS s, COUNT(DISTINCT who) AS w FROM orders WHERE day < '2024-02-01' GROUP BY kind ORDER BY kind"


def _policy(**columns: Any) -> dict[str, Any]:
    table = {"unit": "who", "rows_per_unit": 20, "columns": {**_COLUMNS, **columns}}
    return {
        "version": 1,
        "privacy_unit": "customer",
        "budget": {"epsilon": 10**12},
        "max_epsilon": 10**10,
        "tables": {"orders": table},
    }


def _connect(database: Any, **columns: Any) -> Connection:
    return dpsql.connect(database, policy=_policy(**columns), ledger=":memory:", epsilon=_NO_NOISE)


def _csv(path: Path, separator: str = ",") -> Path:
    duckdb.sql(_ORDERS).write_csv(str(path), sep=separator)
    return path


def _tsv_gz(path: Path) -> Path:
    text = _csv(path.with_suffix(".tsv"), "\t").read_bytes()
    path.with_suffix(".tsv").unlink()
    path.write_bytes(gzip.compress(text))
    return path


def _parquet(path: Path) -> Path:
    duckdb.sql(_ORDERS).write_parquet(str(path))
    return path


def _arrow(path: Path) -> Path:
    table = duckdb.sql(_ORDERS).to_arrow_table()
    with pyarrow.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    return path


def _folder(path: Path) -> Path:
    (path / "orders").mkdir(parents=True)
    duckdb.sql(
        f"COPY ({_ORDERS}) TO '{path}/orders' (FORMAT parquet, PARTITION_BY (kind), OVERWRITE_OR_IGNORE)"
    )
    return path


def _pattern(path: Path) -> dict[str, str]:
    path.mkdir()
    for half in range(2):
        duckdb.sql(f"FROM ({_ORDERS}) WHERE who % 2 = {half}").write_parquet(str(path / f"{half}.parquet"))
    return {"orders": str(path / "*.parquet")}


def _json(path: Path) -> Path:
    duckdb.sql(f"COPY ({_ORDERS}) TO '{path}' (FORMAT json, ARRAY {path.suffix == '.json'})")
    return path


def _sqlite(path: Path, *more: str) -> Path:
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE Orders (who INTEGER, price REAL, kind, day DATE)")
        made.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, CAST(? AS TEXT))",
            duckdb.sql(f"SELECT * REPLACE (day::VARCHAR AS day) FROM ({_ORDERS})").fetchall(),
        )
        for statement in more:
            made.execute(statement)
        made.commit()
    return path


def _attached(path: Path, *more: str) -> dict[str, Path]:
    with duckdb.connect(str(path)) as made:
        made.execute(f"CREATE TABLE orders AS {_ORDERS}")
        for statement in more:
            made.execute(statement)
    return {"orders": path}


@pytest.fixture(
    params=[
        (_csv, "orders.csv"),
        (lambda path: _csv(path, ";"), "orders.csv"),
        (_tsv_gz, "orders.tsv.gz"),
        (_parquet, "orders.parquet"),
        (_arrow, "orders.arrow"),
        (lambda path: {"orders": _parquet(path)}, "other.parquet"),
        (_folder, "data"),
        (_pattern, "many"),
        (_json, "orders.json"),
        (_json, "orders.jsonl"),
        (_sqlite, "any.sqlite"),
        (lambda path: {"orders": _sqlite(path)}, "other.sqlite"),
        (_attached, "other.duckdb"),
    ],
    ids=[
        "csv",
        "semicolons",
        "tsv.gz",
        "parquet",
        "arrow",
        "dict",
        "folder",
        "pattern",
        "json",
        "lines",
        "sqlite",
        "of sqlite",
        "of duckdb",
    ],
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The same table in files of each kind."""
    make, name = request.param
    return make(tmp_path / name)


def test_answers_match_those_of_a_table(database: Any) -> None:
    """Files of each format are read alone, in a folder, by a pattern, and with values in folder names."""
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE orders AS {_ORDERS}")
        theirs = plain.execute(_SQL).fetchall()
    with _connect(database) as opened:
        assert {row[0]: pytest.approx(row[1:]) for row in opened.query(_SQL).rows} == {
            row[0]: row[1:] for row in theirs
        }


def test_other_files_cannot_be_read(database: Any, tmp_path: Path) -> None:
    """Files beside the named ones stay closed, and none is written."""
    backend = DuckDBBackend(database)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"SELECT COUNT(*) FROM read_csv('{secret}')",
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        "SET enable_external_access = true",
        f"SET allowed_paths = ['{secret}']",
    ):
        with pytest.raises(duckdb.Error):
            backend._runner.connection.execute(sql)
    backend.close()


@pytest.mark.parametrize(
    "value", ["", "x", "1e999", "1.5", "99999999999999999999", "NULL", "2024-13-01", "\N{SNOWMAN}"]
)
def test_value_changes_no_type_and_raises_no_error(tmp_path: Path, value: str) -> None:
    """A row with any text is read; a value of another type than its column's is NULL."""
    path = _csv(tmp_path / "orders.csv")
    before = path.read_text()
    path.write_text(before + f"77,{value},c1,{value}\n{value},1,c1,2024-01-01\n")
    with _connect(path) as opened:
        assert opened.query("SELECT COUNT(price) FROM orders WHERE who < 40").rows == ((400,),)
        schema = opened.engine.backend.read_schema()
    path.write_text(before)
    with _connect(path) as opened:
        assert opened.engine.backend.read_schema() == schema


@pytest.mark.parametrize(
    "value", [None, "x", 1e999, 1.5, 10**30, True, {"a": [1]}, ["x"], "2024-13-01"], ids=str
)
def test_json_or_sqlite_value_changes_no_type_and_raises_no_error(tmp_path: Path, value: Any) -> None:
    """A value of another type than its column's is NULL, as in CSV files."""
    path = tmp_path / "orders.jsonl"
    _json(path)
    with path.open("a") as file:
        file.write(
            json.dumps({"who": 77, "price": value, "kind": "c1", "day": value, "PRICE": 3, "more": value})
            + "\n{}\n"
        )
    other = _sqlite(tmp_path / "orders.sqlite")
    with closing(sqlite3.connect(other)) as made:
        bound = str(value) if isinstance(value, dict | list | int) and value not in (0, 1) else value
        made.execute(
            "INSERT INTO orders VALUES (77, ?, ?, ?), (X'00FF', X'00FF', X'00FF', X'00FF')", (bound,) * 3
        )
        made.commit()
    for source in (path, other):
        with _connect(source) as opened:
            assert opened.query("SELECT COUNT(price) FROM orders WHERE who < 40").rows == ((400,),)
            ((_, columns),) = opened.engine.backend.read_schema().items()
            assert sorted(columns) == [
                ("day", "DATE"),
                ("kind", "VARCHAR"),
                ("price", "DOUBLE"),
                ("who", "BIGINT"),
            ]


@pytest.mark.parametrize(
    "make", [_sqlite, lambda path, *more: _attached(path, *more)["orders"]], ids=["sqlite", "duckdb"]
)
def test_views_of_other_databases_are_not_read(tmp_path: Path, make: Any) -> None:
    """A view may read anything; the tables beside it are read, and the file is unchanged."""
    path = make(
        tmp_path / f"any.{'sqlite' if make is _sqlite else 'duckdb'}",
        "CREATE VIEW fine AS SELECT * FROM orders",
    )
    before = path.read_bytes()
    for name in ("fine", "nothing", "sqlite_master"):
        with pytest.raises(dpsql.OperationalError) as caught:
            DuckDBBackend({name: path})
        assert caught.value.code == "source"
    backend = DuckDBBackend({"orders": path})
    with pytest.raises(duckdb.Error):
        backend._runner.connection.execute(f"ATTACH '{path}' AS again")
    assert list(backend.read_schema()) == ["orders"]
    assert backend._runner.connection.execute(
        "SELECT COUNT(*) FROM duckdb_databases() WHERE NOT internal"
    ).fetchone() == (1,)
    assert path.read_bytes() == before


def test_csv_ids_are_numbers_by_the_policy(tmp_path: Path) -> None:
    """01 and 1 are one customer then, and two where they are text."""
    path = tmp_path / "orders.csv"
    path.write_text(
        "who,price,kind,day\n" + "".join(f"{who},1,c1,2024-01-01\n" for who in ("1", "01", " 1", "1.5"))
    )
    for kind, units in (("integer", 1), ("varchar", 4)):
        with _connect(path, who={"type": kind}) as opened:
            assert opened.query("SELECT COUNT(DISTINCT who) FROM orders").rows == ((units,),)


def _broken_parquet(path: Path) -> Path:
    raw = pyarrow.array([b"c1", b"\xff\xfe"], pyarrow.binary())
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    table = pyarrow.table({"who": [1, 2], "price": [1.0, 2.0], "kind": texts, "day": [None, None]})
    pyarrow.parquet.write_table(
        table.cast(pyarrow.schema([*list(table.schema)[:3], ("day", pyarrow.date32())])), path
    )
    return path


def _written(text: str | bytes) -> Any:
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode()) and path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("orders.csv", _written("who,price\n1,2,3\n")),
        ("orders.csv", _written("who,price\n1,\xff\n".encode("latin-1"))),
        ("orders.csv", _written("\n1,2\n")),
        ("orders.csv.gz", _written(gzip.compress(b"who,price\n" + b"1,2\n" * 9999)[:20])),
        ("orders.parquet", _written("who,price\n1,2\n")),
        ("orders.parquet", _broken_parquet),
        ("orders.arrow", _written("no arrow")),
        ("orders.csv.gz", _written("no gzip")),
        ("orders.jsonl", _written('{"who": 1}\n{"who": 2,,}\n')),
        ("orders.json", _written("[1, 2]")),
        ("orders.sqlite", _written("no database" * 999)),
        (
            "orders.sqlite",
            lambda path: _sqlite(path, "INSERT INTO orders (kind) VALUES (CAST(X'FF' AS TEXT))"),
        ),
    ],
    ids=[
        "too wide",
        "not UTF-8",
        "no header",
        "a piece of a gzip",
        "no parquet",
        "text that is none",
        "no arrow",
        "no gzip",
        "no JSON",
        "no records",
        "no SQLite",
        "text of SQLite that is none",
    ],
)
def test_unreadable_file_is_refused_at_once(tmp_path: Path, name: str, make: Any) -> None:
    """The error comes before any query, with the file's name and no word of its content."""
    with pytest.raises(dpsql.OperationalError) as caught:
        DuckDBBackend(make(tmp_path / name))
    assert caught.value.code == "source"
    assert name in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_existing_file_name_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    """Files that were downloaded twice have such names."""
    path = _csv(tmp_path / "orders[1].csv")
    assert list(DuckDBBackend({"orders": path}).read_schema()) == ["orders"]


def test_folder_needs_tables_of_different_names(tmp_path: Path) -> None:
    """An empty folder and two tables of one name are refused; other files are skipped."""
    with pytest.raises(dpsql.OperationalError, match="no readable files"):
        DuckDBBackend(tmp_path)
    _csv(tmp_path / "orders.csv")
    (tmp_path / "readme.txt").write_text("…")
    (tmp_path / "receipts.json").write_text("{}")
    _sqlite(tmp_path / "other.sqlite")
    (tmp_path / "empty").mkdir()
    assert list(DuckDBBackend(tmp_path).read_schema()) == ["orders"]
    _parquet(tmp_path / "Orders.parquet")
    with pytest.raises(dpsql.OperationalError, match="two tables"):
        DuckDBBackend(tmp_path)


@pytest.mark.parametrize(
    "source", ["gone.parquet", {"orders": "gone/*.csv"}, {"orders": "policy.yaml"}, "a/*.csv"]
)
def test_missing_files_are_refused(source: Any) -> None:
    """The error says what to do."""
    with pytest.raises(dpsql.Error) as caught:
        DuckDBBackend(source)
    assert caught.value.code in {"no_database", "source"}


def test_changed_file_is_refused_before_a_charge(tmp_path: Path) -> None:
    """The engine goes on reading Parquet files; what was read into memory stays as it was."""
    parquet, table = _parquet(tmp_path / "orders.parquet"), _csv(tmp_path / "orders.csv")
    with _connect(parquet) as opened, _connect(table) as copied:
        for path in (parquet, table):
            path.write_bytes(path.read_bytes() + b"1,1,c1,2024-01-01\n")
        with pytest.raises(dpsql.OperationalError) as caught:
            opened.query(_SQL)
        assert caught.value.code == "source_changed"
        assert opened.budget()["orders"].spent.loss_fraction == 0
        assert copied.query("SELECT COUNT(*) FROM orders").rows == ((400,),)


def test_releases_belong_to_the_files_as_read(tmp_path: Path) -> None:
    """The same files answer again free; files that have changed are other data."""
    path, ledger = _csv(tmp_path / "orders.csv"), tmp_path / "orders.ledger"
    answers = []
    for change in ("", "", "1,1,c1,2024-01-01\n"):
        path.write_text(path.read_text() + change) if change else None
        with dpsql.connect(path, policy=_policy(), ledger=ledger, epsilon=1) as opened:
            answers.append(
                (opened.query("SELECT COUNT(*) FROM orders"), opened.budget()["orders"].spent.loss_fraction)
            )
    assert [float(spent) for _, spent in answers] == [1, 1, 2]
    assert answers[0][0].rows == answers[1][0].rows


def test_policy_gives_the_paths_of_its_tables(tmp_path: Path) -> None:
    """Paths are relative to the policy's folder, without a database or together with frames."""
    _csv(tmp_path / "elsewhere.csv")
    policy = _policy()
    policy["tables"]["orders"]["source"] = "elsewhere.csv"
    path = tmp_path / "shop.yaml"
    path.write_text(json.dumps(policy))
    with dpsql.connect(policy=path, epsilon=_NO_NOISE) as opened:
        assert opened.query("SELECT COUNT(*) FROM orders").rows == ((400,),)
    policy["tables"]["pub"] = {"public": True}
    path.write_text(json.dumps(policy))
    with dpsql.connect({"pub": pyarrow.table({"x": [1, 2]})}, policy=path, ledger=":memory:") as opened:
        assert opened.query("SELECT SUM(x) FROM pub", epsilon=1).rows == ((3,),)
    with pytest.raises(dpsql.ProgrammingError) as caught:
        dpsql.connect(tmp_path / "elsewhere.csv", policy=path)
    assert caught.value.code == "ambiguous"
    with pytest.raises(dpsql.ProgrammingError) as caught:
        dpsql.connect(policy=_policy(), ledger=":memory:")
    assert caught.value.code == "no_database"


def test_command_line_takes_files(tmp_path: Path) -> None:
    """init, check and query with a CSV file, a folder, and a policy that says where its tables lie."""
    _csv(tmp_path / "orders.csv")
    runner, path = CliRunner(), tmp_path / "orders.yaml"
    drafts = [
        runner.invoke(app, ["init", str(tmp_path / name), "-o", "-"]).stdout for name in ("orders.csv", "")
    ]
    for draft in drafts:
        assert "      price: {type: double}\n      kind: {type: varchar}\n      day: {type: date}" in draft
    path.write_text(json.dumps(_policy(who={"type": "integer"})))
    for arguments in (
        ["check", str(path), str(tmp_path / "orders.csv")],
        ["check", str(path), str(tmp_path)],
    ):
        assert runner.invoke(app, arguments).exit_code == 0
    commands = [
        "query",
        str(tmp_path / "orders.csv"),
        "SELECT COUNT(*) AS n FROM orders",
        "-e",
        str(_NO_NOISE),
        "-f",
        "csv",
    ]
    assert "\n400," in runner.invoke(app, commands).stdout.replace("\r", "")
    policy = _policy()
    policy["tables"]["orders"]["source"] = "orders.csv"
    path.write_text(json.dumps(policy))
    assert runner.invoke(app, ["check", str(path)]).exit_code == 0
    commands[1] = str(path)
    assert "\n400," in runner.invoke(app, [*commands, "--ledger", ":memory:"]).stdout.replace("\r", "")


@pytest.mark.parametrize("kind", [pyarrow.float32(), pyarrow.float64()], ids=str)
@pytest.mark.parametrize(
    ("condition", "without", "beside"), [("x > 100", 1_000, 1_001), ("x BETWEEN 0 AND 100", 1, 1)]
)
def test_nan_does_not_change_other_rows(
    condition: str, without: int, beside: int, kind: Any, tmp_path: Path
) -> None:
    """NaN is greater than all numbers, also where statistics put a part of a file between two numbers."""
    for values, expected in (([1.0], without), ([1.0, 200.0], beside)):
        path = tmp_path / f"{len(values)}.parquet"
        table = pyarrow.table({"x": pyarrow.array([*values, *[math.nan] * 1_000], kind)})
        pyarrow.parquet.write_table(table, path, write_page_index=True)
        backend = DuckDBBackend({"t": path})
        assert backend.run_statement(f"SELECT COUNT(*) FROM t WHERE {condition}").reveal() == [(expected,)]
        backend.close()


def test_draft_of_files_names_paths_and_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has a name, too; the types of a CSV file are guessed from its rows, and the draft says so."""
    _csv(tmp_path / "orders.csv")
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    draft = runner.invoke(app, ["init", ".", "-o", "-"]).stdout
    assert f'# The policy of "{tmp_path.name}"' in draft
    assert "column types were guessed from some rows of the files" in draft
    written = runner.invoke(app, ["init", "."])
    assert (written.exit_code, tmp_path.with_suffix(".yaml").is_file()) == (0, True)
    tmp_path.with_suffix(".yaml").unlink()
    missing = runner.invoke(app, ["query", ".", "SELECT COUNT(*) FROM orders", "-e", "1"])
    assert "no policy given for ., and " in str(missing.exception)
