"""DuckDB as dpsql opens it: to read, and no more."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from worlds import close_all, connected, engine_of

from dpsql.backends.duckdb import UNSOUND, DuckDBBackend
from dpsql.backends.scratch import Scratch
from dpsql.errors import BackendError, OperationalError

POLICY = {
    "budget": {"epsilon": 1},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}


def test_a_file_is_opened_to_read(tmp_path: Path) -> None:
    """A statement that changes the owner's database fails on the connection itself."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people AS SELECT 30 AS age")
    connection = connected(str(path), POLICY)
    for change in ("DELETE FROM people", "CREATE TABLE more (x INTEGER)", "DROP TABLE people"):
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            engine_of(connection).execute(change)
    close_all()


@pytest.mark.parametrize("before", ["", "filter_pushdown", "common_subplan", "unused_columns,common_subplan"])
def test_no_statement_runs_with_the_unsound_optimizer(before: str) -> None:
    """An owner's connection is left as it was."""
    setting = "SELECT current_setting('disabled_optimizers')"
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        owner.execute(f"SET disabled_optimizers = '{before}'")
        for run in (
            lambda sql: DuckDBBackend(owner).run(sql).reveal(),
            lambda sql: DuckDBBackend(owner).public_rows(sql)[0],
        ):
            ((disabled,),) = run(setting)
            assert {UNSOUND, *filter(None, before.split(","))} == set(disabled.split(","))
            assert owner.execute(setting).fetchall() == [(before,)]
    for backend in (DuckDBBackend(":memory:"), DuckDBBackend({"people": pa.table({"age": [30]})})):
        assert backend.run(setting).reveal() == [(UNSOUND,)]
        backend.close()
    with Scratch() as scratch:
        assert scratch.query(setting)[0] == [(UNSOUND,)]


def test_the_owner_s_optimizers_are_back_after_a_failure() -> None:
    """In a transaction that the failure has aborted, and that is still open."""
    with duckdb.connect() as owner:
        owner.execute("BEGIN")
        with pytest.raises(BackendError):
            DuckDBBackend(owner).run("SELECT CAST('x' AS INTEGER)")
        owner.execute("ROLLBACK")
        assert owner.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [("",)]


def test_a_locked_configuration_with_the_unsound_optimizer_is_refused() -> None:
    """It cannot be disabled there."""
    with duckdb.connect() as owner:
        owner.execute("SET lock_configuration = true")
        with pytest.raises(OperationalError) as caught:
            DuckDBBackend(owner).run("SELECT 1")
    assert caught.value.code == "setting"
    with duckdb.connect(config={"disabled_optimizers": UNSOUND}) as owner:
        owner.execute("SET lock_configuration = true")
        assert DuckDBBackend(owner).run("SELECT 1").reveal() == [(1,)]


def test_an_owner_s_connection_prints_no_progress_and_is_left_as_it_was() -> None:
    """What DuckDB says of how far a query is would stand among the answers; it may print it in its own queries."""
    setting = "SELECT current_setting('enable_progress_bar')"
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        backend = DuckDBBackend(owner)
        for told in (True, False):
            owner.execute(f"SET enable_progress_bar = {told}")
            assert backend.public_rows(setting) == ([(False,)], ["BOOLEAN"])
            assert backend.run(setting).reveal() == [(False,)]
            assert backend.public_number("SELECT 3") == 3
            assert owner.execute(setting).fetchall() == [(told,)]
