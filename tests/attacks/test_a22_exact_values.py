"""A22, logs, representations and tracebacks: no exact value leaves the engine by any of them."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import re
import traceback
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from worlds import connected, engine_of, person, prepared, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends import Exact

ROWS, TOTAL = 7919, 7919 * 77
SQL = "SELECT COUNT(*), SUM(age) FROM people"
GROUPED = "SELECT word, COUNT(*), AVG(age) FROM people GROUP BY word"
SECRET = "Xanthippe"
_HEXADECIMAL = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{32,}\b")
"""Addresses and digests: between their letters a number may stand by chance, in a traceback once in a thousand times."""


@pytest.fixture(scope="module")
def crowd() -> Connection:
    """7,919 rows of age 77 and one of a name that nobody else has."""
    database = engine_of(world())
    database.execute(
        f"INSERT INTO people (id, age, word) SELECT i, 77, 'many' FROM range({ROWS - 1}) AS r(i)"
    )
    database.execute(f"INSERT INTO people (id, age, word) VALUES (-1, 77, '{SECRET}')")
    columns = {"age": {"type": "integer", "bounds": [0, 110]}, "word": {"type": "varchar"}}
    policy = {
        "budget": {"epsilon": 1000, "delta": 1e-6},
        "tables": {"people": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    return connected(database, policy)


def exact_of(connection: Connection, sql: str) -> Exact:
    """The exact rows on their way to the noise."""
    return connection.engine.backend.run_statement(prepared(connection, sql).statement.sql)


def shows(text: str) -> bool:
    """Whether a text holds one of the values that are nobody's business."""
    numbers = "|".join((str(ROWS), f"{ROWS:,}", str(TOTAL), f"{TOTAL:,}"))
    readable = _HEXADECIMAL.sub(" ", text)
    return SECRET in text or re.search(rf"(?<![\d.,])({numbers})(?![\d,]|\.\d)", readable) is not None


WRITERS: dict[str, Callable[[Exact], str]] = {
    "repr": repr,
    "str": str,
    "ascii": ascii,
    "format": format,
    "f-string": lambda exact: f"{exact} {exact!r} {exact!s}",
    "percent": lambda exact: "%s %r" % (exact, exact),  # noqa: UP031
    "in a list": lambda exact: repr([exact, {"x": exact}]),
    "pprint": pprint.pformat,
    "dir": lambda exact: repr(dir(exact)),
    "json": lambda exact: json.dumps(exact, default=repr),
    "bool": lambda exact: repr((bool(exact), exact == Exact([]), hash(exact) == id(exact))),
}


@pytest.mark.parametrize("sql", [SQL, GROUPED])
@pytest.mark.parametrize("writer", WRITERS)
def test_exact_value_has_no_text(writer: str, sql: str, crowd: Connection) -> None:
    """No conversion to text shows a value, though the rows are there."""
    exact = exact_of(crowd, sql)
    assert shows(repr(exact.reveal()))
    assert not shows(WRITERS[writer](exact))


@pytest.mark.parametrize(
    "way",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda e: pickle.dumps([e], 0),
        json.dumps,
        vars,
        len,
        iter,
        list,
        sorted,
    ],
    ids=["pickle", "copy", "deepcopy", "old pickle", "json", "vars", "len", "iter", "list", "sorted"],
)
def test_exact_value_cannot_be_copied(way: Callable[[Any], Any], crowd: Connection) -> None:
    """Pickling, copying, iterating and measuring all fail, and the failure shows nothing."""
    with pytest.raises((dpsql.InternalError, TypeError)) as caught:
        way(exact_of(crowd, SQL))
    assert not shows("".join(traceback.format_exception(caught.value)))


def test_exact_values_cannot_be_compared() -> None:
    """Two exact values with equal rows are neither equal nor ordered."""
    assert Exact([(1,)]) != Exact([(1,)])
    with pytest.raises(TypeError):
        assert Exact([(1,)]) < Exact([(2,)])  # type: ignore[operator]


@pytest.fixture
def every_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All records of all loggers at DEBUG and below, formatted with their arguments, but for the process's number."""
    lines: list[str] = []
    monkeypatch.setattr(logging, "logProcesses", False)  # which may be any

    class Everything(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {record.args} {vars(record)}")

    handler = Everything(0)
    root, before = logging.getLogger(), logging.getLogger().level
    names = [root, *(logging.getLogger(name) for name in list(logging.Logger.manager.loggerDict))]
    levels = [(logger, logger.level) for logger in names]
    root.addHandler(handler)
    for logger in names:
        logger.setLevel(1)
    yield lines
    root.removeHandler(handler)
    for logger, level in levels:
        logger.setLevel(level)
    root.setLevel(before)


def test_logs_hold_no_exact_value(
    crowd: Connection, every_log: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """No logger at its lowest level and no stream has an exact value or a hidden key."""
    logging.getLogger("dpsql").debug("heard")
    for sql in (SQL, GROUPED, f"EXPLAIN {SQL}"):
        result = crowd.query(sql, epsilon=0.05)
        public = f"{result} {result!r} {result.receipt.to_json()} {result._repr_html_()} {result.intervals()}"
        assert not shows(public.replace(sql, ""))
    assert any("heard" in line for line in every_log)
    assert not any(shows(line) for line in every_log)
    assert not any(shows(text) for text in capfd.readouterr())


class Broken:
    """A source of entropy that fails, once the exact rows have been read."""

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """Fails."""
        raise OSError(f"no entropy for {count} words")


def frames(error: BaseException | None) -> str:
    """A traceback as a shell prints it that shows the locals of each frame."""
    if error is None:
        return ""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(shown.format(chain=True))


@pytest.mark.parametrize("sql", [SQL, GROUPED])
def test_failure_after_the_read_shows_no_locals(sql: str, crowd: Connection) -> None:
    """If noise cannot be drawn, the error is dpsql's own, and its frames hold no exact value."""
    broken = crowd.engine.__class__(
        crowd.engine.policy, crowd.engine.backend, crowd.engine.ledger, "ana", Broken()
    )
    with pytest.raises(dpsql.Error) as caught:
        dpsql.Connection(broken).query(sql, epsilon=1)
    assert not shows(frames(caught.value))
    assert not shows(frames(caught.value.__context__))


@pytest.fixture
def staged() -> Connection:
    """A hundred people with 7,919 rows, of whose groups contributions are read first and clamped sums then."""
    database = engine_of(world())
    database.execute(
        f"INSERT INTO people (id, city, cost) SELECT i % 100, '{SECRET}', 1 FROM range({ROWS}) AS r(i)"
    )
    columns = {"city": {"type": "varchar"}, "cost": {"type": "double", "bounds": [0, 9]}}
    table = {"unit": "id", "rows_per_unit": 100, "columns": columns}
    return connected(database, {"budget": {"epsilon": 1000, "delta": 1e-6}, "tables": {"people": table}})


def test_failure_between_two_reads_shows_no_locals(
    staged: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing second read, of groups for selected clamps, shows nothing of the first."""
    sql = "SELECT city, COUNT(*), SUM(cost) FROM people GROUP BY city"
    assert prepared(staged, sql).single_release.statement.stages is not None
    run, reads = staged.engine.backend.run_statement, []

    def failing(statement: str) -> Exact:
        # Not the statement: the last one has the keys of the selected groups, and this list is in a frame of the test.
        reads.append(len(reads))
        if len(reads) > 2:
            raise dpsql.BackendError
        return run(statement)

    monkeypatch.setattr(staged.engine.backend, "run_statement", failing)
    with pytest.raises(dpsql.BackendError) as caught:
        staged.query(sql, epsilon=10)
    assert len(reads) == 3
    assert not shows(frames(caught.value))
    assert not shows(frames(caught.value.__context__))


def test_engine_failure_shows_no_locals(crowd: Connection) -> None:
    """The traceback of a BackendError, with all locals: the statement, but no value."""
    with pytest.raises(dpsql.BackendError) as caught:
        crowd.engine.backend.run_statement("SELECT CAST(word AS INTEGER) FROM people ORDER BY word")
    text = frames(caught.value) + "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert "BackendError" in text
    assert not shows(text)


def test_locals_show_plain_exact_values() -> None:
    """The attack works where exact rows are plain values: a frame that holds one shows it in its traceback."""

    def careless() -> None:
        revealed = Exact([(SECRET,)]).reveal()
        raise ValueError(len(revealed))

    with pytest.raises(ValueError) as caught:
        careless()
    assert shows(frames(caught.value))


def test_result_refers_to_no_exact_value(crowd: Connection) -> None:
    """No chain of references from an analyst's result leads to an exact value."""
    import gc

    result = crowd.query(GROUPED)
    seen: set[int] = set()
    pending: list[Any] = [result.rows, result.scales, result.receipt, result._interval_of]
    while pending:
        part = pending.pop()
        if id(part) in seen or isinstance(part, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(part))
        assert not isinstance(part, Exact)
        pending += gc.get_referents(part)
    assert any(part == id(result.rows) for part in seen)


def test_worlds_hold_the_people() -> None:
    """The worlds of these tests hold the people that they declare."""
    (row,) = engine_of(world(person(1))).execute("SELECT COUNT(*) FROM people").fetchall()
    assert row == (1,)
