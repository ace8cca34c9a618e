"""Turns: how many statements of one analyst run and wait, whichever door they came through."""

from __future__ import annotations

import asyncio

import pytest

from dpsql.errors import OperationalError
from dpsql.server.service import Limits, Turns
from dpsql.server.sqlstates import failure


def test_one_statement_too_many_is_refused_and_others_are_not() -> None:
    """Of ana one runs and two wait; a fourth is refused, bob's is not, and after the three there is room again."""

    async def crowd() -> OperationalError:
        turns, end = Turns(Limits(workers=2, running=1, waiting=2)), asyncio.Event()

        async def statement(analyst: str) -> None:
            async with turns.turn(analyst):
                await end.wait()

        three = [asyncio.create_task(statement("ana")) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(OperationalError) as refused:
            await statement("ana")
        async with turns.turn("bob"):
            end.set()
        await asyncio.gather(*three)
        await statement("ana")
        return refused.value

    error = asyncio.run(asyncio.wait_for(crowd(), 20))  # else a statement too many waits without end
    assert error.code == "too_many_statements"
    assert failure(error, "").sqlstate == "53400"
