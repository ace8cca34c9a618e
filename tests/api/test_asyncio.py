"""`Connection.aquery`: the event loop goes on, and a task that is cancelled before its query begins is not charged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from small_study import write_study

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine import relative_targets

SQL = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Connection]:
    """The small study."""
    database, policy = write_study(tmp_path)
    with dpsql.connect(database, policy=policy, epsilon=0.1) as opened:
        yield opened


def charges(connection: Connection) -> int:
    """The charges of the only table."""
    return sum(state.queries for state in connection.budget().values())


def test_answers_are_those_of_query(con: Connection) -> None:
    """Several at once, with parameters and options; an error is the query's own, with its place."""

    async def asked() -> list[dpsql.Result]:
        return await asyncio.gather(
            con.aquery(SQL),
            con.aquery("SELECT COUNT(*) AS n FROM visits WHERE cost > ?", [100], epsilon=0.2),
            con.aquery(SQL),
        )

    first, second, third = asyncio.run(asked())
    assert first.rows == third.rows == con.query(SQL).rows
    assert second.receipt.entries
    assert charges(con) == 2
    with pytest.raises(dpsql.QueryRejected) as caught:
        asyncio.run(con.aquery("SELECT nothing FROM visits"))
    assert caught.value.position is not None


class Slow:
    """Queries that begin, and wait until they may go on."""

    def __init__(self) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        answer = relative_targets.answer_query

        def slow(*arguments: Any) -> dpsql.Result:
            self.began.set()
            assert self.may_go_on.wait(30)
            return answer(*arguments)

        self.patch = mock.patch.object(relative_targets, "answer_query", slow)


def test_a_waiting_query_can_be_cancelled_at_no_charge(con: Connection) -> None:
    """The first query has begun, so it ends and is charged although its task is cancelled; the second one never starts."""
    slow = Slow()

    async def asked() -> None:
        first = asyncio.create_task(con.aquery(SQL))
        assert await asyncio.to_thread(slow.began.wait, 30)
        second = asyncio.create_task(con.aquery("SELECT SUM(cost) AS s FROM visits"))
        await asyncio.sleep(0.01)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        slow.may_go_on.set()

    with slow.patch:
        asyncio.run(asked())
        con.close()
    with pytest.raises(dpsql.InterfaceError):
        asyncio.run(con.aquery(SQL))


def test_a_cancelled_running_query_is_charged_and_replayed_free(tmp_path: Path) -> None:
    """After the connection that a cancelled task used is closed."""
    database, policy = write_study(tmp_path)
    con = dpsql.connect(database, policy=policy, epsilon=0.1)
    test_a_waiting_query_can_be_cancelled_at_no_charge(con)
    with dpsql.connect(database, policy=policy, epsilon=0.1) as again:
        assert not again.query(SQL).receipt.entries
        assert charges(again) == 1
