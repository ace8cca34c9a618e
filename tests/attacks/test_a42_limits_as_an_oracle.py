"""A42: time limits as an oracle.

One person's row makes a statement slow; a limit that the analyst sets ends it there and not without the row, at any price and
without a failure. A client's limit ends nothing after a charge, and whatever else does is a failure.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from interfaces.server.conftest import Served, serving
from worlds import person, spent, world

from dpsql.api.connection import Connection
from dpsql.backends import Exact
from dpsql.engine import charging
from dpsql.errors import OperationalError
from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.statement_runs import compute_grid_delay
from dpsql.ledger.reader import LedgerReader

SECRET = 41
NUMBERS = itertools.count()
BACKEND_WAITS = charging.run_after_charge.__code__
"""Where Ctrl-C is heard: elsewhere the presses that are left over would end the test."""
ENDED = (KeyboardInterrupt, OperationalError)
LIMIT = 2.0
"""Seconds of a client's limit at a server: twenty times what it takes from a question to its charge, before which it would end it."""
_ROW = f"age + 0 = {SECRET}"


class Engine:
    """An engine that works a while on the row with the secret, and may be interrupted as engines are."""

    def __init__(self, inner: Any, *, slow: bool, deaf: bool = False, seconds: float = 20) -> None:
        self.begun, self._interrupted = threading.Event(), threading.Event()
        self._run, self._slow, self._deaf, self._seconds = inner.run_statement, slow, deaf, seconds
        inner.run_statement, inner.interrupt = self.run, self.interrupt

    def run(self, sql: str) -> Exact:
        self.begun.set()
        if self._slow and self._interrupted.wait(self._seconds) and not self._deaf:
            raise OperationalError("the query was cancelled while it ran", code="cancelled")
        return self._run(sql)

    def interrupt(self) -> None:
        if self.begun.is_set():
            self._interrupted.set()


def opened(*, slow: bool, **options: Any) -> tuple[Connection, Engine]:
    """A world in which the secret row is there or not, and what runs its statements."""
    connection = world(person(1, age=SECRET if slow else 30), person(2))
    return connection, Engine(connection.engine.backend, slow=slow, **options)


def question() -> str:
    """A question that was not asked before."""
    return f"SELECT COUNT(*) AS n FROM people WHERE {_ROW} OR age > {110 + next(NUMBERS)}"


def failures(connection: Connection) -> list[str]:
    """What the ledger says of how statements have failed."""
    entries = connection.engine.ledger.list_entries()
    return [str(entry.details["failure"]) for entry in entries if entry.kind == "failure"]


@contextmanager
def during(
    engine: Engine, act: Callable[[], object], *, times: int = 1, every: float = 0.05
) -> Iterator[None]:
    """Does something while a statement runs on private rows, from another thread."""
    engine.begun.clear()
    engine._interrupted.clear()

    def acting() -> None:
        engine.begun.wait(20)
        for _ in range(times):
            time.sleep(every)
            act()

    def press(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is BACKEND_WAITS:
                raise KeyboardInterrupt
            frame = frame.f_back

    thread = threading.Thread(target=acting)
    heard = signal.signal(signal.SIGINT, press)
    thread.start()
    try:
        yield
    finally:
        engine.begun.set()
        thread.join()
        signal.signal(signal.SIGINT, heard)


@pytest.mark.parametrize("slow", [False, True])
def test_client_cannot_cancel_after_the_charge(slow: bool) -> None:
    """Neighbours: the answer comes, late where the row is there, and the ledger has a charge and nothing else."""
    connection, engine = opened(slow=slow, seconds=0.5)
    for _ in range(5):
        with during(engine, connection.engine.cancel, times=3):
            result = connection.query(question(), epsilon=1e-3)
        assert len(result.rows) == 1
        assert not engine._interrupted.is_set()
        connection.engine.stops.reset_requests()
    assert (spent(connection), failures(connection)) == (5, [])


def test_careless_limits_distinguish_neighbours() -> None:
    """The attack works where a limit stops a charged statement and nothing counts as a failure."""
    told = list[bool]()
    for slow in (False, True):
        connection, engine = opened(slow=slow)
        backend = connection.engine.backend
        with during(engine, backend.interrupt):
            try:
                backend.run_statement(f"SELECT COUNT(*) FROM people WHERE {_ROW}")
            except OperationalError:
                told.append(True)
            else:
                told.append(False)
        assert failures(connection) == []
    assert told == [False, True]


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_cancelled_statement_before_the_charge_costs_nothing(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, engine = opened(slow=True)
    bound = charging.require_bindable

    def late(engine: Any, prepared: Any) -> None:
        bound(engine, prepared)
        getattr(engine, how)()

    monkeypatch.setattr(charging, "require_bindable", late)
    with pytest.raises(OperationalError) as ended:
        connection.query(question(), epsilon=1e-3)
    assert (ended.value.code, ended.value.charged) == ({"cancel": "cancelled", "stop": "stopped"}[how], False)
    assert not engine.begun.is_set()
    assert (spent(connection), failures(connection)) == (0, [])


def test_steps_of_a_statement_are_cancelled_together() -> None:
    """A percent target takes several charges: a client who cancels between two of them would see how long the first took."""
    connection = world(*[person(number, cost=50.0) for number in range(400)])
    cancel = connection.engine.cancel
    inner = connection.engine.ledger.charge
    calls = list[str]()

    def charge(*arguments: Any, **options: Any) -> Any:
        found = inner(*arguments, **options)
        calls.append("charge")
        cancel()
        return found

    connection.engine.ledger.charge = charge  # type: ignore[method-assign]
    result = connection.query("SELECT COUNT(*) AS n FROM people", target_error="10%")
    assert len(calls) > 1
    assert len({entry["id"] for entry in result.receipt.entries}) == len(calls)


@pytest.mark.parametrize("deaf", [False, True])
def test_owner_s_limit_is_a_failure(deaf: bool) -> None:
    """The engine need not stop: an answer after the limit is a failure. Three lock the table."""
    for slow in (False, True):
        connection, engine = opened(slow=slow, deaf=deaf)
        for number in range(3):
            connection.engine.stops.reset_requests()
            if not slow:
                connection.query(question(), epsilon=1e-3)
                continue
            with during(engine, connection.engine.stop), pytest.raises(OperationalError) as ended:
                connection.query(question(), epsilon=1e-3)
            assert (ended.value.code, ended.value.charged) == ("stopped", True)
            assert len(failures(connection)) == number + 1
        assert set(failures(connection)) == ({"stopped"} if slow else set())
        assert connection.budget()["people"].locked is slow
        connection.close()


@pytest.mark.parametrize(("how", "times"), [("ctrl-c", 1), ("ctrl-c", 200), ("interrupt", 1)])
def test_ending_a_statement_in_process_is_a_failure(how: str, times: int) -> None:
    """Ctrl-C, pressed as often as one likes, and a watchdog's `interrupt`; the table is locked after three."""
    connection, engine = opened(slow=True)

    def end() -> None:
        if how == "interrupt":
            connection.engine.backend.interrupt()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    for number in range(3):
        every = 0.0005 if times > 1 else 0.05
        with during(engine, end, times=times, every=every), pytest.raises(ENDED) as ended:
            connection.query(question(), epsilon=1e-3)
        assert ended.value.charged  # type: ignore[union-attr]
        assert isinstance(ended.value, KeyboardInterrupt) or ended.value.code == "cancelled"
        assert failures(connection) == ["cancelled"] * (number + 1)
    with pytest.raises(OperationalError, match="the table people is locked"):
        connection.query(question(), epsilon=1e-3)


def test_timed_out_task_leaves_its_statement_running() -> None:
    """The answer is stored, and a repeated query is free, whatever the rows are; nothing has failed."""
    for slow in (False, True):
        connection, _ = opened(slow=slow, seconds=2)
        sql, patience = question(), 0.2 if slow else 60

        async def asked(
            connection: Connection = connection, sql: str = sql, patience: float = patience
        ) -> bool:
            try:
                await asyncio.wait_for(connection.aquery(sql, epsilon=1e-3), patience)
            except TimeoutError:
                return False
            return True

        assert asyncio.run(asked()) is not slow
        result = asyncio.run(connection.aquery(sql, epsilon=1e-3))
        assert not result.receipt.entries
        assert (spent(connection), failures(connection)) == (1, [])
        connection.close()


# Over the wire.


@contextmanager
def slowed(folder: Path, *, slow: bool, seconds: float, **limits: Any) -> Iterator[tuple[Served, Engine]]:
    """A server whose engine is slow for ana, or not."""
    with serving(folder, limits=Limits(**limits)) as served:
        service = served.service
        connection = service.connections._opener("ana")
        engine = Engine(connection.engine.backend, slow=slow, seconds=seconds)
        plain = service.connections._opener
        service.connections._opener = lambda name: connection if name == "ana" else plain(name)
        service.connections._idle.clear()
        yield served, engine


def told(served: Served, engine: Engine, how: str) -> tuple[str, Any]:
    """What a client is told of a statement that it wants to end: its SQLSTATE or status, and the number of charges."""
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost < {next(NUMBERS)}"
    if how == "seconds":
        answer = served.ask("/v1/query", {"sql": sql, "epsilon": 0.1, "seconds": LIMIT}, token=served.token())
        return str(answer.status), served.spent()
    options = "-c dpsql.epsilon=0.1" + f" -c statement_timeout={LIMIT * 1000:.0f}ms" * (how == "timeout")
    with (
        psycopg.connect(served.dsn(options=f"'{options}'"), autocommit=True) as client,
        during(engine, client.cancel_safe if how == "cancel" else lambda: None),
    ):
        try:
            return str(len(client.execute(sql).fetchall())), served.spent()
        except psycopg.Error as error:
            return str(error.sqlstate), served.spent()


@pytest.mark.parametrize("how", ["timeout", "cancel", "seconds"])
def test_server_client_sees_the_same_on_neighbours(tmp_path: Path, how: str) -> None:
    """`statement_timeout`, CancelRequest and HTTP's `seconds`: the answer, late where the row is there."""
    found = list[Any]()
    for slow in (False, True):
        folder = tmp_path / str(slow)
        folder.mkdir()
        with slowed(folder, slow=slow, seconds=1 if how == "cancel" else LIMIT + 0.5) as (served, engine):
            found.append(told(served, engine, how))
            with served.service.connections.acquire_connection("ana") as connection:
                assert failures(connection) == []
    assert found[0] == found[1]
    assert found[0][0] in ("1", "200")


@pytest.mark.parametrize("how", ["timeout", "seconds"])
def test_server_owner_ends_a_long_statement_as_a_failure(tmp_path: Path, how: str) -> None:
    with slowed(tmp_path, slow=True, seconds=20, statement_seconds=LIMIT + 0.3) as (served, engine):
        assert told(served, engine, how)[0] in ("57014", "504")
        with served.service.connections.acquire_connection("ana") as connection:
            assert failures(connection) == ["stopped"]
        assert served.audit[-1].name in ("failed", "refused")


def test_stopping_server_ends_a_statement_as_a_failure(tmp_path: Path) -> None:
    """The client loses its connection where the row is there, and has its answer where not."""
    with slowed(tmp_path, slow=True, seconds=20, drain_seconds=0.2) as (served, engine):
        client = psycopg.connect(served.dsn(options="'-c dpsql.epsilon=0.1'"), autocommit=True)
        lost = list[psycopg.Error]()

        def ask() -> None:
            try:
                client.execute("SELECT COUNT(*) FROM visits")
            except psycopg.Error as error:
                lost.append(error)

        asked = threading.Thread(target=ask)
        asked.start()
        assert engine.begun.wait(20)
    asked.join()
    assert lost
    history = LedgerReader.open(str(tmp_path / "clinic.ledger"), None)
    assert [entry.details["failure"] for entry in history.list_last_entries(10, kind="failure")] == [
        "stopped"
    ]
    history.close()


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5, 20])
def test_limit_within_a_grid_step_takes_one_step(tmp_path: Path, seconds: float) -> None:
    """An answer beyond the limit is reported within the same step, whatever the rows are, as a failure."""
    with slowed(tmp_path, slow=True, seconds=seconds, statement_seconds=LIMIT + 0.5, answer_grid=4.0) as (
        served,
        engine,
    ):
        begun = time.monotonic()
        state, _ = told(served, engine, "seconds")
        taken = time.monotonic() - begun
        assert state == ("504" if seconds > 1 else "200")
        assert 4.0 <= taken < 7.5
        with served.service.connections.acquire_connection("ana") as connection:
            assert failures(connection) == (["stopped"] if seconds > 1 else [])
    assert compute_grid_delay(taken, 4.0) < 4.0
