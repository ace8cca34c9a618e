"""A query that is told to stop is no failure of the engine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb
import pytest
from worlds import close_all, connected, engine_of

from dpsql.api.connection import Connection
from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.duckdb.statements import find_cancellation
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.errors import BackendError, OperationalError
from dpsql.ledger.workers import run_interruptibly

POLICY = {
    "budget": {"epsilon": 10},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
COUNT = "SELECT COUNT(*) FROM people"
LONG = "SELECT COUNT(*) FROM range(1000000000) AS a, range(1000000) AS b WHERE hash(a.range, b.range) % 7 = 3"
RUNNING = threading.Event()
"""Set when the endless query begins."""


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Rows of people, which the engine takes for ever to count."""
    database = duckdb.connect()
    database.execute("CREATE TABLE people AS SELECT 30 AS age FROM range(10)")
    connection = connected(database, POLICY)
    backend, run = connection.engine.backend, type(connection.engine.backend).run_statement

    def endless(self: DuckDBBackend, sql: str) -> Exact:
        RUNNING.set()
        return run(self, LONG if "people" in sql else sql)

    monkeypatch.setattr(type(backend), "run_statement", endless)
    return connection


@contextmanager
def stopped(stop: Callable[[], object], *, repeated: bool = False, runs: bool = False) -> Iterator[None]:
    """Stops what runs, some time after it has begun; what may come too early is repeated until it has ended.

    Ctrl-C is heard here also where the tests were started in the background, which ignores it.
    """
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = threading.Event()

    def stopping() -> None:
        RUNNING.wait()
        while not ended.wait(0.3):
            stop()
            if not repeated:
                return

    (RUNNING.set if runs else RUNNING.clear)()
    thread = threading.Thread(target=stopping)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        RUNNING.set()
        thread.join()
        signal.signal(signal.SIGINT, heard)


def test_ctrl_c_is_an_interrupt(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The charge stays, no failure is reported, and the connection answers the next query."""
    with pytest.raises(KeyboardInterrupt), stopped(lambda: os.kill(os.getpid(), signal.SIGINT)):
        con.query(COUNT, epsilon=1)
    assert con.budget()["people"].spent_epsilon == 1
    monkeypatch.undo()
    assert con.query(COUNT, epsilon=2).receipt.entries
    close_all()


def test_second_ctrl_c_leaves_no_query_running() -> None:
    """The query has ended when the interrupt is raised, though Ctrl-C is pressed again while the engine stops."""
    begun, ended, told = threading.Event(), threading.Event(), list[int]()

    class Slow:
        """An engine that stops when it is interrupted for the third time; until then Ctrl-C is pressed again."""

        def interrupt(self) -> None:
            told.append(len(told))
            if len(told) < 3:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                ended.set()

    def work() -> None:
        begun.set()
        ended.wait()

    def pressing() -> None:
        begun.wait()
        time.sleep(0.3)  # until the main thread waits
        os.kill(os.getpid(), signal.SIGINT)

    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=pressing).start()
        with pytest.raises(KeyboardInterrupt):
            run_interruptibly(Slow(), work)  # type: ignore[arg-type]
        assert ended.is_set()
    finally:
        ended.set()
        signal.signal(signal.SIGINT, heard)
    assert len(told) >= 3


def test_program_may_cancel_a_query(con: Connection) -> None:
    """A watchdog's `interrupt` raises an error of dpsql's own that is none of the engine's."""
    with pytest.raises(OperationalError) as caught, stopped(engine_of(con).interrupt, repeated=True):
        con.query(COUNT, epsilon=1)
    assert caught.value.code == "cancelled"
    assert not isinstance(caught.value, BackendError)
    close_all()


def test_post_processing_is_cancelled() -> None:
    """Ctrl-C ends work above the release boundary, too."""
    with (
        ScratchDatabase() as scratch,
        pytest.raises(KeyboardInterrupt),
        stopped(lambda: os.kill(os.getpid(), signal.SIGINT), runs=True),
    ):
        scratch.run_query(LONG)


def test_other_errors_are_not_cancellations() -> None:
    """Nothing that an engine says of a failure passes for one, but what it says of Ctrl-C."""
    assert isinstance(find_cancellation(RuntimeError("Query interrupted")), KeyboardInterrupt)
    for error in (
        RuntimeError("Query interrupted by 17"),
        ValueError("Query interrupted"),
        duckdb.Error("x"),
    ):
        assert find_cancellation(error) is None
