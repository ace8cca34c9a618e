"""DuckDB as dpsql opens it: to read, and no more."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from worlds import close_all, connected, engine_of

from dpsql.backends.duckdb import UNSOUND, DuckDBBackend
from dpsql.backends.duckdb.statements import compute_statement_shape
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.errors import BackendError, OperationalError

POLICY = {
    "budget": {"epsilon": 1},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}


def test_file_is_opened_read_only(tmp_path: Path) -> None:
    """A statement that changes the owner's database fails on the connection itself."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people AS SELECT 30 AS age")
    connection = connected(str(path), POLICY)
    for change in ("DELETE FROM people", "CREATE TABLE more (x INTEGER)", "DROP TABLE people"):
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            engine_of(connection).execute(change)
    close_all()


@pytest.mark.parametrize("before", ["", "filter_pushdown", UNSOUND, f"unused_columns,{UNSOUND}".strip(",")])
def test_unsound_optimizer_never_runs(before: str) -> None:
    """What the owner has disabled stays disabled, and nothing enables it for another connection."""
    setting = "SELECT current_setting('disabled_optimizers')"
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        owner.execute(f"SET disabled_optimizers = '{before}'")
        for run in (
            lambda sql: DuckDBBackend(owner).run_statement(sql).reveal(),
            lambda sql: DuckDBBackend(owner).read_public_rows(sql)[0],
            lambda sql: owner.cursor().execute(sql).fetchall(),
        ):
            ((disabled,),) = run(setting)
            assert {*filter(None, (UNSOUND, *before.split(",")))} == {*filter(None, disabled.split(","))}
    for backend in (DuckDBBackend(":memory:"), DuckDBBackend({"people": pa.table({"age": [30]})})):
        assert backend.run_statement(setting).reveal() == [(UNSOUND,)]
        backend.close()
    with ScratchDatabase() as scratch:
        assert scratch.run_query(setting)[0] == [(UNSOUND,)]


@pytest.mark.skipif(not UNSOUND, reason="this DuckDB does not have the optimizer")
def test_locked_unsound_optimizer_is_refused() -> None:
    """It is refused at connect, and before a charge if it is enabled and locked later."""
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        connection = connected(owner, POLICY)
        connection.query("SELECT COUNT(*) FROM people", epsilon=0.1)
        owner.execute("RESET disabled_optimizers")
        owner.execute("SET lock_configuration = true")
        for ask in (
            lambda: connection.query("SELECT SUM(age) FROM people", epsilon=0.1),
            lambda: connected(owner, POLICY).engine.catalog,
        ):
            with pytest.raises(OperationalError) as caught:
                ask()
            assert caught.value.code == "setting"
        assert len(connection.engine.ledger.list_entries()) == 1
    with duckdb.connect(config={"disabled_optimizers": UNSOUND}) as owner:
        owner.execute("SET lock_configuration = true")
        assert DuckDBBackend(owner).run_statement("SELECT 1").reveal() == [(1,)]


def test_connection_of_the_owner_prints_no_progress() -> None:
    """DuckDB's progress bar would stand among the answers; the owner's own queries may print it."""
    setting = "SELECT current_setting('enable_progress_bar')"
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        backend = DuckDBBackend(owner)
        for told in (True, False):
            owner.execute(f"SET enable_progress_bar = {told}")
            assert backend.read_public_rows(setting) == ([(False,)], ["BOOLEAN"])
            assert backend.run_statement(setting).reveal() == [(False,)]
            assert backend.read_public_number("SELECT 3") == 3
            assert owner.execute(setting).fetchall() == [(told,)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 1", "SELECT 2147483647"),
        ("SELECT 'it''s', 2.5e0", "SELECT '', 1e-7"),
        ("SELECT x1 FROM t WHERE x1 > 3", "SELECT x1 FROM t WHERE x1 > 77"),
    ],
)
def test_statements_with_other_constants_have_one_shape(one: str, other: str) -> None:
    """Texts, and numbers of one type, are constants."""
    assert compute_statement_shape(one) == compute_statement_shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 2147483647", "SELECT 2147483648"),
        ("SELECT 1", "SELECT 1e0"),
        ("SELECT 1.5", "SELECT 1.55"),
        ("SELECT 'a'", "SELECT 1"),
        ("SELECT x1 FROM t", "SELECT x2 FROM t"),
        ("""SELECT "it's 1" FROM t""", """SELECT "it's 2" FROM t"""),
        ("""SELECT "a'b", 'c' FROM t""", """SELECT "a'd", 'c' FROM t"""),
        ("SELECT [1, 2]", "SELECT [1, 2, 3]"),
        (f"SELECT {2**127 - 1}", f"SELECT {2**127}"),
    ],
)
def test_statements_with_other_names_or_types_have_other_shapes(one: str, other: str) -> None:
    """The engine may bind them otherwise."""
    assert compute_statement_shape(one) != compute_statement_shape(other)


def test_temporary_tables_of_a_file_end_with_their_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end even where they cannot be dropped; other statements need no transaction."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people AS SELECT 30 AS age")
    backend, number = DuckDBBackend(str(path)), "SELECT txid_current()"
    quietly = backend._runner.execute_quietly
    monkeypatch.setattr(
        backend._runner, "execute_quietly", lambda sql: sql.startswith("DROP") or quietly(sql)
    )
    with backend.open_snapshot():
        assert backend.run_statement(number).reveal() != backend.run_statement(number).reveal()
        with backend.stage_tables([('"#ages"', "SELECT age FROM people")]):
            assert backend.run_statement(number).reveal() == backend.run_statement(number).reveal()
            assert backend.run_statement('SELECT age FROM "#ages"').reveal() == [(30,)]
        with pytest.raises(BackendError):
            backend.run_statement('SELECT age FROM "#ages"')
    backend.close()
