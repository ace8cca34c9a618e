"""A14, reading without paying: an answer that follows from the policy alone is free, and reads no private row."""

from __future__ import annotations

from typing import NoReturn

import pytest
from worlds import person, spent, world

FREE = [
    "SELECT city FROM people GROUP BY city",
    "SELECT city, member FROM people GROUP BY city, member",
]


@pytest.mark.parametrize("sql", FREE)
def test_uncharged_query_reads_nothing(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public keys alone are answered while the engine refuses to run anything: no failure could tell."""
    connection = world(person(1))

    def refuse(_: str) -> NoReturn:
        raise AssertionError("a private row was read")

    monkeypatch.setattr(connection.engine.backend, "run_statement", refuse)
    assert len(connection.query(sql)) > 1
    assert spent(connection) == 0


def test_charged_query_reads_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: a count does run on the engine."""
    connection = world(person(1))
    statements: list[str] = []
    run = connection.engine.backend.run_statement
    monkeypatch.setattr(
        connection.engine.backend, "run_statement", lambda sql: statements.append(sql) or run(sql)
    )
    connection.query("SELECT city, COUNT(*) FROM people GROUP BY city")
    assert len(statements) == 1
