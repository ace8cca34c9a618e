"""A6, the engine's error text: it quotes values, so none of it reaches the caller, by no way."""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pytest
from attacks.naive import Naive
from worlds import engine_of, person, spent, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import UNSOUND
from dpsql.backends.duckdb.settings import MEANING, list_known_meaning
from dpsql.errors import BackendError

SECRET = "Alice Q. Archibald"
TEXT = f"Conversion Error: Could not convert string '{SECRET}' to INT32"
CONSTANT = "the database engine failed while it ran the query; the charge stays"
SQL = "SELECT COUNT(*) FROM people"


@dataclass
class Failing:
    """A connection to a database that fails as an engine does, on the statement or on its rows."""

    raised: Callable[[], BaseException]
    on_fetch: bool = False
    asked: list[str] = field(default_factory=list)

    def execute(self, sql: str) -> Any:
        """Fails if the statement reads private rows, unless it is to fail later; to bind it does not fail."""
        if sql.startswith("DESCRIBE"):
            return self
        self.asked.append(sql)
        if "people" in sql and not self.on_fetch:
            raise self.raised()
        return self

    def extract_statements(self, text: str) -> list[str]:
        """The parser does not fail."""
        return [text]

    def fetchall(self) -> Any:
        """Fails if the last statement reads private rows."""
        if "people" in self.asked[-1]:
            raise self.raised()
        if "integer_division" in self.asked[-1]:
            return [tuple(MEANING[name] for name in list_known_meaning())]
        if "disabled_optimizers" in self.asked[-1]:
            return [(UNSOUND,)]
        return [(len(self.asked),)]


def nested() -> BaseException:
    """An engine error with a cause of its own."""
    error = duckdb.InvalidInputException("outer")
    error.__cause__ = ValueError(SECRET)
    return error


RAISED: dict[str, Callable[[], BaseException]] = {
    "conversion": lambda: duckdb.ConversionException(TEXT),
    "internal": lambda: duckdb.InternalException(TEXT),
    "memory": lambda: MemoryError(TEXT),
    "python": lambda: ValueError(TEXT),
    "nested": nested,
    "unicode": lambda: UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
}


def caught(connection: Connection, sql: str = SQL) -> BackendError:
    """The BackendError of a query."""
    with pytest.raises(BackendError) as found:
        connection.query(sql)
    return found.value


def everything(error: BaseException) -> str:
    """All that a debugger or a careless log could show of an error, locals of every frame included."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True, compact=False)
    return "\n".join(
        [*shown.format(chain=True), repr(error), str(error), repr(error.args), repr(vars(error))]
    )


@pytest.mark.parametrize("on_fetch", [False, True], ids=["execute", "fetch"])
@pytest.mark.parametrize("kind", RAISED)
def test_failure_has_constant_text_and_keeps_its_charge(
    kind: str, on_fetch: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Every failure has one text, no cause, no context, and no value in any frame, log or stream."""
    connection = world(person(1))
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(connection.engine.backend._runner, "connection", Failing(RAISED[kind], on_fetch))
    error = caught(connection)
    assert error.message == CONSTANT
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not getattr(error, "__notes__", [])
    for shown in (everything(error), caplog.text, *capfd.readouterr()):
        assert SECRET not in shown
    assert not any(isinstance(each, duckdb.Error) for each in gc.get_referents(error))
    assert spent(connection) == 1


def test_engine_connection_passes_on_no_words_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to the engine replaces the error by itself, though the stage that reads would, too."""
    backend = world(person(1)).engine.backend
    monkeypatch.setattr(backend._runner, "connection", Failing(RAISED["conversion"], on_fetch=True))
    with pytest.raises(dpsql.DatabaseError) as failed:
        backend.run_statement("SELECT 1 FROM people")
    assert str(failed.value.message) == CONSTANT


def test_post_processed_query_is_charged_before_its_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that sort or compute on rows are charged no later than others."""
    connection = world(person(1))
    monkeypatch.setattr(
        connection.engine.backend._runner, "connection", Failing(RAISED["python"], on_fetch=True)
    )
    caught(connection, f"{SQL} ORDER BY 1")
    caught(connection, SQL.replace("COUNT(*)", "COUNT(*) + 1"))
    assert spent(connection) == 2


def test_failure_of_the_backend_s_own_code_is_recorded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python error around the engine, as of too little memory for its rows, is reported, charged and counted like the engine's own."""
    for number, raised in enumerate((MemoryError, RuntimeError, ValueError), 1):
        connection = world(person(1))

        def failing(_: str, raised: type[Exception] = raised) -> Any:
            raise raised(SECRET)

        monkeypatch.setattr(connection.engine.backend, "run_statement", failing)
        error = caught(connection)
        assert (error.message, error.__cause__, error.__context__) == (CONSTANT, None, None), number
        assert SECRET not in everything(error)
        assert spent(connection) == 1
        assert [entry.kind for entry in connection.engine.ledger.list_entries()] == ["charge", "failure"]


def test_all_failures_raise_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, code, hint and arguments of two failures are equal."""
    connection = world(person(1), max_failures=len(RAISED))
    shown = set()
    for raised in RAISED.values():
        monkeypatch.setattr(connection.engine.backend._runner, "connection", Failing(raised))
        error = caught(connection)
        shown.add((str(error), error.code, error.hint, error.args, error.position, error.text))
    assert len(shown) == 1


def test_real_failure_is_hidden_like_a_simulated_one() -> None:
    """A view that fails on a row's value: the engine names the value, the analyst's error does not."""
    connection = world(person(1, word="1"), person(2, word=SECRET))
    database = engine_of(connection)
    with pytest.raises(duckdb.ConversionException, match=SECRET):
        database.execute("SELECT SUM(CAST(word AS INTEGER)) FROM people").fetchall()
    database.execute("ALTER TABLE people RENAME TO hidden")
    database.execute("CREATE VIEW people AS SELECT * REPLACE (CAST(word AS INTEGER) AS age) FROM hidden")
    error = caught(connection, "SELECT SUM(age) FROM people")
    assert error.message == CONSTANT
    assert SECRET not in everything(error)
    assert spent(connection) == 1


def test_careless_engine_passes_its_error_on() -> None:
    """The attack works where the engine's words pass: the error quotes a row."""
    naive = Naive(world(person(1, word="1"), person(2, word=SECRET)))
    with pytest.raises(duckdb.ConversionException, match=SECRET):
        naive.query("SELECT SUM(CAST(word AS INTEGER)) FROM people")


def test_open_transaction_of_the_owner_continues() -> None:
    """Within the owner's own transaction a query is answered, and the transaction goes on."""
    connection = world(person(1))
    database = engine_of(connection)
    database.execute("BEGIN; DELETE FROM people")
    assert len(connection.query(SQL)) == 1
    with pytest.raises(dpsql.QueryRejected):
        connection.query("SELECT HISTOGRAM(cost) FROM people")
    assert database.execute("SELECT COUNT(*) FROM people").fetchone() == (0,)
    database.execute("ROLLBACK")
    assert database.execute("SELECT COUNT(*) FROM people").fetchone() == (1,)


def test_error_within_another_handler_has_no_context_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query within the analyst's own error handler has his error as its context and nothing else."""
    connection = world(person(1))
    monkeypatch.setattr(connection.engine.backend._runner, "connection", Failing(RAISED["conversion"]))
    mine = KeyError("mine")
    context: list[BaseException | None] = []

    def ask_while_handling() -> None:
        try:
            raise mine
        except KeyError:
            context.append(caught(connection).__context__)

    ask_while_handling()
    assert context[0] in (None, mine)
    assert SECRET not in everything(mine)
