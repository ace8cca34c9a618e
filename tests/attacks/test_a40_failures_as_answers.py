"""A40: failures counted as answers.

A query that fails while it runs says one bit of the data; asked again and again with other predicates it reads a value
out, at any price.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from postgres import running
from worlds import engine_of, person, spent, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.errors import BackendError, IntegrityError, OperationalError, PolicyError, ProgrammingError
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting import Pure

SECRET = 41
ONE = Pure(Fraction(1))
BUDGETS = {name: Budget("pure", Fraction(100), Fraction(0)) for name in ("people", "visits")}


def leaking(**policy: Any) -> Connection:
    """A world whose engine fails where a condition on one person's age holds: what no query should bring about."""
    connection = world(person(1, age=SECRET), person(2), **policy)
    database = engine_of(connection)
    database.execute("ALTER TABLE people RENAME TO hidden")
    database.execute(
        "CREATE VIEW people AS SELECT * REPLACE"
        f" (CASE WHEN age = {SECRET} THEN CAST('x' || age AS INTEGER) ELSE age END AS age) FROM hidden"
    )
    return connection


def fails(connection: Connection, low: int, high: int) -> bool:
    """Whether a question about ages in a range fails: the attacker's bit. Raises where it is refused."""
    try:
        connection.query(f"SELECT SUM(age) FROM people WHERE age + 0 BETWEEN {low} AND {high}", epsilon=1e-3)
    except BackendError:
        return True
    return False


def test_careless_ledger_allows_queries_for_failures() -> None:
    """The attack works where failures do not count: as many are had as there is budget for."""
    connection = leaking(max_failures=10**6)
    assert all(fails(connection, 0, 110 - step) for step in range(8))
    assert spent(connection) == 8


@pytest.mark.parametrize("most", [1, 3])
def test_table_is_locked_after_several_failures(most: int) -> None:
    """The charges stay, each failure is an entry, and the next query is refused before its charge."""
    connection = leaking(**({} if most == 3 else {"max_failures": most}))
    ledger = connection.engine.ledger
    for step in range(most):
        assert not connection.budget()["people"].locked
        assert fails(connection, 0, 110 - step)
    assert (spent(connection), connection.budget()["people"].failures) == (most, most)
    for _ in range(2):
        with pytest.raises(OperationalError) as caught:
            fails(connection, 0, 50)
        assert caught.value.code == "table_locked"
        assert "dpsql ledger unlock" in str(caught.value.hint)
    assert connection.budget()["people"].locked
    assert spent(connection) == most
    with pytest.raises(OperationalError, match="the table people is locked"):
        connection.reserve(epsilon=1)
    failures = [entry for entry in ledger.list_entries() if entry.kind == "failure"]
    assert [entry.failures for entry in failures] == list(range(1, most + 1))
    assert [entry.charge for entry in failures] == [entry.id - 1 for entry in failures]
    assert {(entry.table, entry.analyst, entry.details["failure"]) for entry in failures} == {
        ("people", "ana", "backend")
    }
    ledger.unlock("people", by="olga", reason="the view was mended")
    assert not connection.budget()["people"].locked
    assert fails(connection, 0, 110)
    assert ledger.verify() == ledger.read_head()


def test_stored_answers_outlive_a_lock() -> None:
    """A locked table is not read, and a replay reads nothing."""
    connection = leaking(max_failures=1)
    rows = connection.query("SELECT COUNT(*) AS n FROM people", epsilon=1).rows
    assert fails(connection, 0, 110)
    assert connection.query("SELECT COUNT(*) AS n FROM people", epsilon=1).rows == rows
    with pytest.raises(OperationalError):
        connection.query("SELECT COUNT(*) AS n FROM people", epsilon=2)


def test_failing_noise_counts_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error between the engine's answer and the release depends on the data as well."""
    connection = world(person(1), max_failures=1)

    def broken(*_: object) -> None:
        raise ValueError

    with monkeypatch.context() as patch:
        patch.setattr("dpsql.engine.release.exact_release.draw_release", broken)
        with pytest.raises(dpsql.InternalError):
            connection.query("SELECT COUNT(*) FROM people")
    with pytest.raises(OperationalError, match="failed once"):
        connection.query("SELECT COUNT(*) FROM people")


def test_failing_post_processing_locks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads released values alone; else an analyst could lock a table for all others."""
    connection = world(person(1), max_failures=1)

    def out_of_range(*_: object) -> None:
        raise OperationalError("out of range", code="post_processing")

    monkeypatch.setattr("dpsql.engine.postprocess.answer.PostProcessor.compute_rows", out_of_range)
    for _ in range(2):
        with pytest.raises(OperationalError, match="out of range"):
            connection.query("SELECT COUNT(*) + 1 AS n FROM people", replay=False)
    assert (spent(connection), connection.budget()["people"].failures) == (2, 0)


@pytest.fixture(params=["file", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where a ledger is kept."""
    if request.param == "file":
        return tmp_path / "a.ledger"
    return request.getfixturevalue("url")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database server's."""
    with running() as server:
        yield server.url


def test_lock_is_in_the_chain(target: Any) -> None:
    """It outlives the process and a budget's reset, is of one table, and an edit of it is found."""

    def failed(ledger: Any, *tables: str) -> None:
        (entry, *_) = ledger.charge({"people": ONE, "visits": ONE}, analyst="ana", query="q")
        ledger.record_failure(tables, entry, analyst="ana", query="q", code="backend")

    with closing(open_ledger(target, BUDGETS, max_failures={"people": 2})) as ledger:
        failed(ledger, "people", "visits")
        failed(ledger, "people")
        ledger.reset("people", by="olga", reason="a new study")
    with closing(open_ledger(target, BUDGETS, max_failures={"people": 2})) as ledger:
        assert [(state.failures, state.locked) for state in ledger.list_states()] == [(2, True), (1, False)]
        ledger.charge({"visits": ONE}, analyst="ana", query="q")
        with pytest.raises(OperationalError, match="the table people is locked"):
            ledger.charge({"people": ONE, "visits": ONE}, analyst="ana", query="q")
        with pytest.raises(ProgrammingError, match="an unlock needs a reason"):
            ledger.unlock("people", by="olga", reason=" ")
        with pytest.raises(PolicyError, match="no budget for table others"):
            ledger.unlock("others", by="olga", reason="curiosity")
        entry = ledger.unlock("people", by="olga", reason="mended")
        assert (entry.kind, entry.analyst, entry.details) == ("unlock", "olga", {"reason": "mended"})
        ledger.charge({"people": ONE}, analyst="ana", query="q")
    with closing(LedgerReader.open(target)) as history:
        history.verify()
        assert [each.table for each in history.list_last_entries(10, kind="failure")] == [
            "people",
            "visits",
            "people",
        ]
    if isinstance(target, Path):
        with closing(sqlite3.connect(target)) as file, file:
            file.execute("UPDATE entries SET failures = NULL WHERE table_name = 'visits'")
        with pytest.raises(IntegrityError, match="of the ledger was changed"):
            open_ledger(target, BUDGETS)
