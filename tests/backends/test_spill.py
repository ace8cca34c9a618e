"""Temporary files: in a private folder of the owner's directory, bounded, removed, and nothing else of the file system."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from worlds import engine_of

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import LOCKED
from dpsql.backends.duckdb.settings import open_spill_folder
from dpsql.errors import BackendError, OperationalError, ProgrammingError

POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**6},
    "tables": {
        "t": {"unit": "u", "rows_per_unit": 20, "columns": {"x": {"type": "integer", "bounds": [0, 9]}}}
    },
}
ROWS = 1_500_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with so many units that their sums do not fit into the memory that the tests allow."""
    path = tmp_path_factory.mktemp("data") / "t.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute(f"CREATE TABLE t AS SELECT hash(i) AS u, i % 10 AS x FROM range({ROWS}) AS numbers(i)")
    return path


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with little memory."""
    monkeypatch.setitem(LOCKED, "memory_limit", "40MB")
    monkeypatch.setitem(LOCKED, "threads", 1)


def opened(database: Any, **options: Any) -> Connection:
    """A connection to the units of a file."""
    return dpsql.connect(database, policy=POLICY, ledger=":memory:", **options)


def folders(where: Path) -> list[Path]:
    """The folders for temporary files in a directory."""
    return sorted(where.glob(".dpsql-*"))


@pytest.mark.usefixtures("little")
def test_large_query_is_answered_with_a_spill_directory(database: Path, tmp_path: Path) -> None:
    """The query fails with a constant error without a directory."""
    with opened(database) as con, pytest.raises(BackendError):
        con.query("SELECT COUNT(*) FROM t", epsilon=10**5)
    with opened(database, temp_directory=tmp_path, temp_limit="1GB") as con:
        ((count,),) = con.query("SELECT COUNT(*) FROM t", epsilon=10**5).rows
    assert count == ROWS


def test_folder_is_private_shared_and_removed(database: Path, tmp_path: Path) -> None:
    """Connections on one file have one folder, which only this user may read, until the last of them closes."""
    first = opened(database, temp_directory=tmp_path)
    second = opened(database, temp_directory=tmp_path)
    (folder,) = folders(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    first.close()
    assert folders(tmp_path) == [folder]
    second.close()
    assert folders(tmp_path) == []


def test_unclosed_connection_leaves_no_folder(database: Path, tmp_path: Path) -> None:
    """The folder goes with the connection."""
    con = opened(database, temp_directory=tmp_path)
    con.engine.backend._spill_finalizer()  # type: ignore[attr-defined]
    assert folders(tmp_path) == []
    con.close()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_other_files_stay_closed(kind: str, database: Path, tmp_path: Path) -> None:
    """No other file is read or written, and no setting opens it again."""
    other = tmp_path / "other.csv"
    other.write_text("1\n2\n")
    frames = {"t": duckdb.sql("SELECT 1 AS u, 2 AS x").to_arrow_table()}
    place = tmp_path / "spill"
    place.mkdir()
    with opened(database if kind == "file" else frames, temp_directory=place, temp_limit="10MB") as con:
        engine = engine_of(con)
        for sql in (
            f"SELECT * FROM read_csv('{other}')",
            f"COPY (SELECT 1) TO '{tmp_path / 'new.csv'}'",
            f"SET temp_directory = '{tmp_path}'",
            "SET enable_external_access = true",
            "SET lock_configuration = false",
            "RESET allowed_directories",
        ):
            with pytest.raises(duckdb.Error):
                engine.execute(sql).fetchall()
        assert engine.execute("SELECT current_setting('max_temp_directory_size')").fetchall() == [
            ("9.5 MiB",)
        ]
        assert engine.execute("SELECT current_setting('temp_directory')").fetchone() == (
            str(*folders(place)),
        )


def test_default_connection_spills_nothing(database: Path) -> None:
    """By default no statement spills, and the engine has no file system."""
    with opened(database) as con:
        assert engine_of(con).execute("SELECT current_setting('temp_directory')").fetchall() == [("",)]
        assert folders(database.parent) == []


def test_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    """The folder of a process that is no more goes when the next one is made; that of a living one stays."""
    code = (
        "import os, sys; from dpsql.backends.duckdb.settings import open_spill_folder\n"
        "print(open_spill_folder(sys.argv[1], None, None).path, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True, text=True
    )
    (left,) = folders(tmp_path)
    assert str(left) == done.stdout.strip()
    ours = open_spill_folder(tmp_path, "1GB", None)
    assert folders(tmp_path) == [ours.path]
    another = open_spill_folder(tmp_path, "1GB", None)
    assert folders(tmp_path) == sorted([ours.path, another.path])
    for each in (ours, another):
        each.drop_user()
    assert folders(tmp_path) == []


def test_fork_does_not_remove_the_folder(tmp_path: Path) -> None:
    """A child's copy of a connection ends without taking the parent's files."""
    folder = open_spill_folder(tmp_path, None, None)
    folder.process = os.getpid() + 1
    folder.drop_user()
    assert folders(tmp_path) == [folder.path]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"temp_directory": "/nowhere/at/all"}, "temp_directory"),
        ({"temp_directory": ".", "temp_limit": "a lot"}, "temp_limit"),
        ({"temp_directory": ".", "temp_limit": "1GB'; SET x"}, "temp_limit"),
    ],
)
def test_invalid_directory_or_amount_is_refused(database: Path, options: dict[str, str], code: str) -> None:
    """The directory must exist, and the amount must be an amount."""
    with pytest.raises((OperationalError, ProgrammingError)) as caught:
        opened(database, **options)
    assert caught.value.code == code


def test_open_connection_keeps_its_owners_directory(tmp_path: Path) -> None:
    """The owner's setting is not changed."""
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE t AS SELECT 1 AS u, 2 AS x")
        with pytest.raises(dpsql.ProgrammingError) as caught:
            opened(owner, temp_directory=tmp_path)
    assert caught.value.code == "temp_directory"
    assert folders(tmp_path) == []
