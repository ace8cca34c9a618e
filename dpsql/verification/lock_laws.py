"""Laws of settings and of the lock: what dpsql sets on a connection holds, and nothing behind it is in reach."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.duckdb import UNSOUND, DuckDBBackend
from dpsql.backends.duckdb.settings import MEANING, find_changed_settings, list_known_meaning
from dpsql.backends.duckdb.versions import supports
from dpsql.verification.law import Law, LawBroken, Part, require

CLOSED = {
    "enable_external_access": False,
    "allowed_directories": [],
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}
STAYS_OPEN = {"schema", "search_path", "enable_progress_bar", "disabled_optimizers"}
"""What a statement may still set: where names are looked up, what is printed, and how a plan is optimised."""
OWN_FILES = [
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM glob('{file}')",
    "SELECT * FROM glob('*')",
    "SELECT * FROM '{file}'",
    "ATTACH '{file}' AS again (READ_ONLY)",
    "COPY (SELECT 1) TO '{file}'",
    "COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '{file}.wal'",
    "COPY (SELECT 1) TO '{file}.wal.checkpoint'",
    "COPY (SELECT 1) TO '{file}.tmp/x.csv'",
    "COPY (SELECT 1) TO ':memory:'",
    "COPY (SELECT 1) TO ':memory:.wal'",
    "COPY (SELECT 1) TO '.tmp/x.csv'",
    "ATTACH '.tmp/x.duckdb' AS another",
    "CREATE PERSISTENT SECRET leak (TYPE http)",
]
"""Files that DuckDB leaves open even without external access: the database's own, its log, spilled rows."""
PRAGMAS = {
    "PRAGMA enable_progress_bar": True,
    "PRAGMA add_parquet_key('x', '0123456789012345')": True,
    "PRAGMA disable_optimizer": not supports("locked_pragmas"),
    "PRAGMA enable_profiling": not supports("locked_pragmas"),
    "CALL enable_logging()": not supports("locked_pragmas"),
    "PRAGMA enable_profiling = 'json'": False,
    "PRAGMA profiling_output = '{file}.profile'": False,
    "PRAGMA log_query_path = '{file}.log'": False,
    "CALL enable_logging(storage = 'file', storage_config = {{'path': '{file}.log'}})": False,
    "PRAGMA import_database('{file}')": False,
    "INSTALL httpfs": False,
    "LOAD httpfs": False,
    "EXPORT DATABASE '{file}.export'": False,
}
"""Statements that open a file or switch something, and whether a locked connection may accept them."""


@contextmanager
def open_file() -> Iterator[tuple[DuckDBBackend, Path]]:
    """Open a database file as dpsql opens it, in a folder that nothing else uses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.duckdb"
        with duckdb.connect(str(path)) as made:
            made.execute("CREATE TABLE people AS SELECT 30 AS age")
        backend = DuckDBBackend(str(path))
        try:
            yield backend, path
        finally:
            backend.close()


def query(backend: DuckDBBackend, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that got past the whitelist."""
    return backend._runner.connection.execute(sql).fetchall()  # noqa: SLF001  (what no caller may do is tried)


def check_defaults() -> None:
    """Check that a new connection passes, and that another value of each known setting of meaning does not."""
    names = list_known_meaning()
    with duckdb.connect() as plain:
        settings = dict(plain.execute("SELECT name, value FROM duckdb_settings()").fetchall())
        values = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in names)
        found = plain.execute(f"SELECT {values}").fetchall()[0]
    changed = find_changed_settings(settings | dict(zip(names, found, strict=True)))
    require(not changed, f"a new connection has other settings: {changed}")
    for name in names:
        require(find_changed_settings({name: "another value"}), f"another value of {name} passes")


def check_read_back(name: str, value: Any) -> None:
    """Check that a setting of the lock is what was set."""
    with open_file() as (backend, _):
        ((found,),) = query(backend, f"SELECT current_setting('{name}')")
    require(found == value, f"{name} is {found}")


def check_optimizer() -> None:
    """Check that the unsound optimizer is disabled."""
    with open_file() as (backend, _):
        ((found,),) = query(backend, "SELECT current_setting('disabled_optimizers')")
    require(found == UNSOUND, f"the disabled optimizers are {found!r}")
    if not UNSOUND:
        with duckdb.connect() as plain:
            known = {name for (name,) in plain.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
        require("common_subplan" not in known, "the optimizer common_subplan exists")


def check_statement(statement: str) -> None:
    """Check that a statement fails behind the lock, and that it neither writes a file nor opens the lock."""
    with open_file() as (backend, path):
        before = list_contents(path.parent)
        try:
            query(backend, statement.format(file=path))
        except duckdb.Error:
            accepted = False
        else:
            accepted = True
            with suppress(duckdb.Error):
                query(backend, "PRAGMA disable_profiling")  # which would print every further statement
        require(list_contents(path.parent) == before, f"{statement} wrote a file")
        require(not accepted or PRAGMAS.get(statement), f"{statement} is accepted")
        for name, value in CLOSED.items():
            ((found,),) = query(backend, f"SELECT current_setting('{name}')")
            require(found == value, f"{statement} changed {name}")


def check_settings_are_locked() -> None:
    """Check that no setting changes by SET, RESET or PRAGMA, except harmless ones."""
    with open_file() as (backend, _):
        settings = query(backend, "SELECT name, value FROM duckdb_settings()")
        require(len(settings) > 100, "the engine lists fewer than 100 settings")
        for name, value in [*settings, *((name, MEANING[name]) for name in list_known_meaning())]:
            if name in STAYS_OPEN:
                continue
            text = str(value).replace("'", "''")
            for change in (
                *(f"SET {level} {name} = '{text}'" for level in ("", "GLOBAL", "SESSION")),
                f"RESET {name}",
                f"SET {name} = 1",
                f"PRAGMA {name} = '{text}'",
            ):
                try:
                    query(backend, change)
                except duckdb.Error:
                    continue
                raise LawBroken(f"{change} is accepted")


def check_threads() -> None:
    """Check that several threads that open and close one file get locked connections that show bound plans."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(6) as pool:
        path = Path(folder) / "people.duckdb"
        with duckdb.connect(str(path)) as made:
            made.execute("CREATE TABLE people AS SELECT 30 AS age")
        for _ in range(5):
            for found in pool.map(lambda _: _open_and_close(path), range(6)):
                require(found, "a connection shows no bound plans")


def _open_and_close(path: Path) -> bool:
    backend = DuckDBBackend(str(path))
    try:
        return backend.find_origin("people") is not None
    finally:
        backend.close()


def list_contents(folder: Path) -> dict[str, bytes]:
    """Return each file below a folder with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _list_locks() -> Iterator[Part]:
    yield "defaults", check_defaults
    yield "optimizer", check_optimizer
    yield "several threads", check_threads
    yield "all settings", check_settings_are_locked
    for name, value in CLOSED.items():
        yield name, partial(check_read_back, name, value)
    for statement in (*OWN_FILES, *PRAGMAS):
        yield statement, partial(check_statement, statement)


LAWS = (
    Law(
        "duckdb",
        "lock",
        "settings are read back as they were set, and no statement opens the lock",
        _list_locks,
    ),
)
