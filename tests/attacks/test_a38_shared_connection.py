"""A38: threads that share a connection take each other's answers, and what was charged for them is lost.

The connection stays usable, and each charge has its answer: threads wait for each other. That another thread may be
amid a question holds for two connections of dpsql on one of the owner's, too, which is one to the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from worlds import person, world

import dpsql
from dpsql.api.connection import Connection

CROWD, EACH, HANGS = 4, 3, 60
SQL = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"


def crowded(work: Callable[[int], Any]) -> list[Any]:
    """What the work returns, or raises, in each of some threads that begin at once."""
    found, meet = list[Any](), threading.Barrier(CROWD)

    def run(number: int) -> None:
        meet.wait(HANGS)
        try:
            found.append(work(number))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
        assert not thread.is_alive()
    return found


@pytest.fixture
def shared() -> Connection:
    """A connection to thirty people."""
    return world(*[person(number, city=("Bonn", "Kiel")[number % 2]) for number in range(30)])


@pytest.fixture(params=["connection", "database"])
def asking(request: pytest.FixtureRequest, shared: Connection) -> list[Connection]:
    """A connection for each thread: one and the same, or several on the same connection of the owner's."""
    if request.param == "connection":
        return [shared] * CROWD
    engine = shared.engine
    kinds = type(engine.backend)
    opened: Any = engine.backend
    return [
        Connection(
            type(engine)(
                engine.policy, kinds(opened._runner.connection), engine.ledger, "ana", engine.entropy
            )
        )
        for _ in range(CROWD)
    ]


def test_each_charge_has_its_answer(asking: list[Connection]) -> None:
    """There are as many entries as answers, each for its own query, and the connection goes on."""

    def ask(number: int) -> list[tuple[Any, ...]]:
        rows = []
        for turn in range(EACH):
            cursor = asking[number].cursor()
            cursor.execute(
                f"SELECT COUNT(*) + {number * EACH + turn} AS n FROM people", epsilon=1, replay=False
            )
            rows += cursor.fetchall()
        return rows

    found = crowded(ask)
    assert [each for each in found if isinstance(each, BaseException)] == []
    assert sum(map(len, found)) == CROWD * EACH
    assert asking[0].engine.ledger.read_head().entries == CROWD * EACH
    assert asking[0].query(SQL, epsilon=1).columns == ("city", "n")


def test_one_query_runs_at_a_time(asking: list[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    """While one query is between its charge and its answer, no other reaches the engine."""
    backend = type(asking[0].engine.backend)
    whole, inside, seen = backend.run_statement, list[int](), list[int]()

    def run(self: Any, sql: str) -> Any:
        inside.append(1)
        seen.append(len(inside))
        threading.Event().wait(0.02)
        try:
            return whole(self, sql)
        finally:
            inside.pop()

    monkeypatch.setattr(backend, "run_statement", run)
    answers = crowded(lambda number: asking[number].query(SQL, epsilon=1, replay=False))
    assert [each for each in answers if isinstance(each, BaseException)] == []
    assert seen == [1] * CROWD


def test_refused_or_interrupted_query_blocks_nobody(shared: Connection) -> None:
    """The next thread's query is answered, however a query ends."""
    with pytest.raises(dpsql.QueryRejected):
        shared.query("SELECT city FROM people", epsilon=1)
    engine: Any = shared.engine.backend
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(_: str) -> None:
            raise KeyboardInterrupt

        patch.setattr(engine, "run_statement", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shared.query(SQL, epsilon=1, replay=False)
    answers = crowded(lambda _: shared.query(SQL, epsilon=1, replay=False))
    assert [each for each in answers if isinstance(each, BaseException)] == []


def test_rows_of_a_shared_cursor_are_fetched_once(shared: Connection) -> None:
    """Each row of an answer is one thread's."""
    cursor = shared.execute("SELECT city, member, COUNT(*) AS n FROM people GROUP BY city, member", epsilon=1)
    whole = list(cursor.result.rows)

    def fetch(_: int) -> list[Any]:
        rows = []
        while (row := cursor.fetchone()) is not None:
            rows.append(row)
        return rows

    fetched = [row for rows in crowded(fetch) for row in rows]
    assert sorted(map(repr, fetched)) == sorted(map(repr, whole))


def test_careless_connection_mixes_rows_of_threads() -> None:
    """The attack works on the engine's own connection: a fetch returns the rows of the last query."""
    database, meet, calls = duckdb.connect(), threading.Barrier(CROWD), threading.Lock()

    def ask(number: int) -> bool:
        with calls:
            database.execute(f"SELECT {number}")
        meet.wait(HANGS)
        with calls:
            return bool(database.fetchall() == [(number,)])

    assert crowded(ask).count(True) <= 1
