"""Turns: the numbers of running and waiting statements of one analyst are limited over both protocols."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from dpsql.errors import OperationalError
from dpsql.interfaces.server.limits import Lane, Limits, Turns
from dpsql.interfaces.server.metrics import Metrics
from dpsql.interfaces.server.protocol.errors import to_failure
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.users import Role, User


def test_statements_beyond_a_user_s_limit_are_refused() -> None:
    """Of ana one runs and two wait; a fourth is refused, bob's is not, and after the three there is room again."""

    async def crowd() -> OperationalError:
        turns, end = Turns(Limits(workers=2, running_per_user=1, waiting_per_user=2)), asyncio.Event()

        async def statement(analyst: str) -> None:
            async with turns.wait_for_turn(analyst):
                await end.wait()

        three = [asyncio.create_task(statement("ana")) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(OperationalError) as refused:
            await statement("ana")
        async with turns.wait_for_turn("bob"):
            end.set()
        await asyncio.gather(*three)
        await statement("ana")
        return refused.value

    error = asyncio.run(asyncio.wait_for(crowd(), 20))  # else a statement too many waits without end
    assert error.code == "too_many_statements"
    assert to_failure(error, "").sqlstate == "53400"


class _Asked:
    """As much of a service as a statement's turn needs."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.turns, self.threads = limits, Turns(limits), dict.fromkeys(Lane)
        self.metrics = Metrics()


def test_answers_and_errors_wait_for_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are due at the same points of time; a statement that is cancelled before its turn is not waited for."""
    slept, held, turns = list[float](), list[int](), list[Turns]()
    asleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        held.append(turns[0].count_statements()[1])
        await asleep(0)

    def refused() -> None:
        raise OperationalError("no", code="no")

    async def work() -> None:
        service: Any = _Asked(Limits(workers=1, answer_grid=1_000.0))
        turns.append(service.turns)
        user = User("ana", Role.analyst, datetime.now(UTC))
        running = StatementRunner(service, user, "http")
        assert await running.run_work(lambda: 3) == 3
        with pytest.raises(OperationalError, match="no"):
            await running.run_work(refused)
        assert held == [1, 1]  # others wait as long for it, whatever it took
        assert len(slept) == 2
        assert all(0 < seconds <= 1_000 for seconds in slept)
        async with service.turns.wait_for_turn("bob"):
            waits = asyncio.ensure_future(running.run_work(lambda: 4))
            await asleep(0.01)
            running.cancel()
            with pytest.raises(CancelledBeforeTurn):
                await waits
        assert len(slept) == 2

    monkeypatch.setattr("dpsql.interfaces.server.statement_runs.asyncio.sleep", noted)
    asyncio.run(work())


def test_one_lookup_of_a_user_runs_at_a_time() -> None:
    """Four slow looks of ana's take one place of the two; without a place for bob he would wait for them."""

    async def look() -> None:
        turns, end = Turns(Limits(lookup_workers=2)), asyncio.Event()

        async def slowly() -> None:
            async with turns.wait_for_turn("ana", lane=Lane.lookup):
                await end.wait()

        four = [asyncio.create_task(slowly()) for _ in range(4)]
        await asyncio.sleep(0)
        async with turns.wait_for_turn("bob", lane=Lane.lookup):
            assert turns.count_statements() == (5, 2)
            end.set()
        await asyncio.gather(*four)

    asyncio.run(asyncio.wait_for(look(), 20))


def test_owners_have_workers_of_their_own() -> None:
    async def ask() -> None:
        turns, end = Turns(Limits(workers=1, owner_workers=1)), asyncio.Event()

        async def slowly(person: str, *, owner: bool) -> None:
            async with turns.wait_for_turn(person, owner=owner):
                await end.wait()

        asked = [asyncio.create_task(slowly(name, owner=False)) for name in ("ana", "bob")]
        await asyncio.sleep(0)
        asked += [asyncio.create_task(slowly(name, owner=True)) for name in ("olga", "otto")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns.count_statements() == (4, 2)
        end.set()
        await asyncio.gather(*asked)

    asyncio.run(asyncio.wait_for(ask(), 20))
