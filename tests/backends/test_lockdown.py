"""The engine behind the whitelist is locked: no file, no spill, no setting, no macro in a function's place.

Claim: on every kind of database that dpsql opens, the owner's tables answer, and a statement that got past
the whitelist would find the locks of `LOCKED` closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest
from worlds import connected, engine_of

from dpsql.api.connection import Connection
from dpsql.backends.duckdb import LOCKED, DuckDBBackend, connect_with, lock_down
from dpsql.backends.duckdb.versions import supports
from dpsql.errors import BackendError, OperationalError
from dpsql.verification.lock_laws import CLOSED, OWN_FILES, STAYS_OPEN

NO_NOISE = 10**15
AGES = list(range(20, 80))
POLICY = {
    "budget": {"epsilon": 10**30},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}


def written(folder: Path) -> str:
    """A DuckDB file with the people in it."""
    path = folder / "people.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people (age INTEGER)")
        made.executemany("INSERT INTO people VALUES (?)", [[age] for age in AGES])
    return str(path)


KINDS: dict[str, Callable[[Path], Any]] = {
    "path": written,
    "pandas": lambda _: {"people": pandas.DataFrame({"age": AGES})},
    "polars": lambda _: {"people": polars.DataFrame({"age": AGES})},
    "arrow": lambda _: {"people": pyarrow.table({"age": AGES})},
}


@pytest.fixture(scope="module", params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A connection to people in a database that dpsql opens itself, from an empty working folder."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with connected(KINDS[request.param](folder), POLICY) as connection:
            yield connection


def run(connection: Connection, sql: str) -> list[Any]:
    """What a statement would give that got past the whitelist."""
    return engine_of(connection).execute(sql).fetchall()


def test_registered_tables_are_answered_behind_the_lock(own: Connection) -> None:
    """Tables of a file and frames of each library are read behind the lock, repeatedly."""
    for _ in range(2):
        assert own.query("SELECT COUNT(*), SUM(age) FROM people", epsilon=NO_NOISE).rows == (
            (len(AGES), sum(AGES)),
        )


def test_seal_disables_progress_output() -> None:
    """Whether DuckDB prints its progress depends on the program that it is in; sealed, it never does."""
    with connect_with(LOCKED) as engine:
        engine.execute("SET enable_progress_bar = true")
        lock_down(engine)
        assert engine.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


@pytest.mark.skipif(not supports("allowed_configs"), reason="a locked configuration accepts no setting")
def test_allowed_settings_only_close_more(own: Connection) -> None:
    """The settings that may change under the lock are those that `lock_down` closes."""
    ((allowed,),) = run(own, "SELECT current_setting('allowed_configs')")
    assert {*allowed} == {"disabled_filesystems", "disabled_optimizers", "enable_progress_bar"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("setting", "value"), CLOSED.items(), ids=CLOSED)
def test_each_lock_is_closed(own: Connection, setting: str, value: Any) -> None:
    """No file, folder, extension, secret, spilled row or variable of the program is in reach."""
    assert run(own, f"SELECT current_setting('{setting}')") == [(value,)]


def test_memory_is_bounded(own: Connection) -> None:
    """The engine takes at most four fifths of the machine's memory, and that is stated, not a default."""
    with connect_with({"memory_limit": "80%"}) as plain:
        limit = plain.execute("SELECT current_setting('memory_limit')").fetchall()
    assert run(own, "SELECT current_setting('memory_limit')") == limit
    assert LOCKED["memory_limit"] == "80%"


def test_no_setting_can_be_changed(own: Connection) -> None:
    """None of DuckDB's settings changes by SET, RESET or PRAGMA at any level, except harmless ones."""
    settings = run(own, "SELECT name, value FROM duckdb_settings()")
    assert len(settings) > 100
    for name, value in settings:
        text = str(value).replace("'", "''")
        for change in (
            *(f"SET {level} {name} = '{text}'" for level in ("", "GLOBAL", "SESSION", "LOCAL")),
            *(f"RESET {level} {name}" for level in ("", "GLOBAL", "SESSION")),
            *(f"SET {name} = {other}" for other in (0, 1, "'x'", "[]")),
            *(f"PRAGMA {name}{given}" for given in ("", f" = '{text}'", "('x')")),
        ):
            if name not in STAYS_OPEN:
                with pytest.raises(duckdb.Error):
                    run(own, change)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("statement", OWN_FILES)
def test_own_database_file_is_out_of_reach(own: Connection, statement: str) -> None:
    """The database's file cannot be read by name, nor can its log or a temporary file be written."""
    folder = Path.cwd()
    for place in (".tmp", "people.duckdb.tmp"):
        (folder / place).mkdir(exist_ok=True)
    before = contents(folder)
    with pytest.raises(duckdb.Error):
        run(own, statement.format(file=folder / "people.duckdb"))
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Each file below a folder with what it holds."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_unsealed_engine_reads_files(tmp_path: Path) -> None:
    """The attack works where only external access is off: the file is read, though not written."""
    path = written(tmp_path)
    locks = {name: LOCKED[name] for name in ("enable_external_access", "lock_configuration")}
    with duckdb.connect(path, read_only=True, config=locks) as plain:
        ((content,),) = plain.execute(f"SELECT content FROM read_blob('{path}')").fetchall()
        assert content == Path(path).read_bytes()
        if supports("allowed_configs"):  # DuckDB 1.x also writes the log here
            with pytest.raises(duckdb.BinderException, match="belongs to an attached database"):
                plain.execute(f"COPY (SELECT 'evil') TO '{path}.wal'")


LARGE = "SELECT COUNT(*) FROM (SELECT word, COUNT(*) FROM words GROUP BY word)"


def test_sealed_engine_does_not_spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that needs more memory than there is fails with constant text; it writes no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(LOCKED, "memory_limit", "30MB")
    path = str(tmp_path / "words.duckdb")
    with duckdb.connect(path) as made:
        made.execute("CREATE TABLE words AS SELECT hash(i)::VARCHAR AS word FROM range(500_000) AS r(i)")
    before = contents(tmp_path)
    backend = DuckDBBackend(path)
    with pytest.raises(BackendError):
        backend.run_statement(LARGE)
    assert backend.run_statement("SELECT COUNT(*) FROM words").reveal() == [(500_000,)]
    assert contents(tmp_path) == before
    backend.close()
    with duckdb.connect(path, config={"memory_limit": "30MB"}) as plain:
        assert plain.execute(LARGE).fetchall() == [(500_000,)], "it does not need that much memory"


def test_two_connections_share_one_lock(tmp_path: Path) -> None:
    """A file that is open already, with the same locks, is opened again, whichever was first."""
    path = written(tmp_path)
    with (
        connect_with(LOCKED, path, read_only=True) as plain,
        connected(path, POLICY) as first,
        connected(path, POLICY) as second,
    ):
        assert plain.execute("SELECT COUNT(*) FROM people").fetchall() == [(len(AGES),)]
        for connection in (first, second):
            assert connection.query("SELECT COUNT(*) FROM people", epsilon=NO_NOISE).rows == ((len(AGES),),)
        with pytest.raises(duckdb.Error):
            plain.execute(f"SELECT * FROM read_blob('{path}')")


SHADOWS = [
    "least(a, b) AS 10**6",
    "GREATEST(a, b) AS 10**6",
    "sum(a) AS 10**6",
    "count_star() AS 10**6",
    '"+"(a, b) AS 10**6',
    "hash(a) AS 0",
    "lower(a) AS 'x'",
]
HARMLESS = "own(a) AS a + 1"


@pytest.mark.parametrize("macro", SHADOWS)
def test_macro_named_like_a_function_is_refused(tmp_path: Path, macro: str) -> None:
    """A database with a macro named like a function of DuckDB's is refused, whether file or connection."""
    path = written(tmp_path)
    with duckdb.connect(path) as made:
        made.execute(f"CREATE MACRO {HARMLESS}")
        connected(made, POLICY)
        made.execute(f"CREATE MACRO {macro}")
        with pytest.raises(OperationalError) as caught:
            connected(made, POLICY)
        assert caught.value.code == "shadowed"
    with pytest.raises(OperationalError) as caught:
        connected(path, POLICY)
    assert caught.value.code == "shadowed"


def test_macro_replaces_a_function_without_the_check() -> None:
    """The attack works on an unchecked engine: a macro decides the clamp of a sum."""
    with duckdb.connect() as plain:
        for macro in SHADOWS:
            plain.execute(f"CREATE TEMP MACRO {macro}")
        assert plain.execute("SELECT LEAST(1, 2), 1 + 2, COUNT(*)").fetchall() == [(10**6, 10**6, 10**6)]
