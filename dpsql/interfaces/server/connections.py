"""Engine connections: a pool by analyst, in this process and in the processes that answer queries for a server."""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dpsql.api.connect import connect
from dpsql.api.connection import Connection
from dpsql.api.opening import SharedLedger
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.ledger.workers import mark_as_worker
from dpsql.policy import Policy
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.results.json_format import IntervalMatrix

if TYPE_CHECKING:
    from dpsql.engine.engine import Engine
    from dpsql.engine.query_run import QueryRun
    from dpsql.ledger import RemainingBudget
    from dpsql.results.result import Receipt, Result


# A pool of the engine connections of a process, by analyst.


class ConnectionPool:
    """A pool of engine connections, each for one statement at a time and kept open for the analyst's next statement."""

    def __init__(self, opener: Callable[[str], Connection], limit: int) -> None:
        self._opener, self._limit = opener, limit
        self._idle = dict[int, tuple[str, Connection]]()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def acquire_connection(self, analyst: str) -> Iterator[Connection]:
        """Yield a connection for an analyst's statement. Raises OperationalError (`reload`) if the pool is closed."""
        if self._closed:
            raise OperationalError(
                "the server could not reopen its data", code="reload", hint="the owner's log has the reason"
            )
        connection = self._take_idle(analyst) or self._opener(analyst)
        try:
            yield connection
        finally:
            for old in self._return_connection(analyst, connection):
                old.close()

    def _take_idle(self, analyst: str) -> Connection | None:
        with self._lock:
            for key, (whose, connection) in reversed(self._idle.items()):
                if whose == analyst:
                    del self._idle[key]
                    return connection
        return None

    def _return_connection(self, analyst: str, connection: Connection) -> list[Connection]:
        """Keep a connection, and return the excess ones, longest unused first."""
        with self._lock:
            if self._closed:
                return [connection]
            self._idle[id(connection)] = (analyst, connection)
            surplus = list(self._idle)[: max(0, len(self._idle) - self._limit)]
            return [self._idle.pop(key)[1] for key in surplus]

    def close(self) -> None:
        """Close all idle connections; others are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for _, connection in idle.values():
            connection.close()


def open_connection(
    database: str | dict[str, str] | None, policy: Policy, ledger: SharedLedger, analyst: str
) -> Connection:
    """Open an engine connection of an analyst. Raises OperationalError (`restart`) if the ledger was opened without the analyst's budget."""
    try:
        made = connect(database, policy=policy, ledger=ledger, analyst=analyst)
    except ProgrammingError as error:
        if error.code != "shared_ledger":
            raise
    else:
        made.disable_session_tables()  # it answers one user's session after another's
        return made
    raise OperationalError(
        f"the user {analyst} was added after the server was started",
        code="restart",
        hint="the owner sends SIGHUP to the server, which then opens the ledger with the budgets of all users",
    )


# The protocol of query runners: a connection in this process or in another one.


class PlannedQuery(Protocol):
    """A query that is planned and not charged yet."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the answer's columns, with their engine types."""
        ...


class QueryRunner(Protocol):
    """The runner of one analyst's queries, one at a time."""

    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> PlannedQuery:
        """Plan a query; see `Connection.plan`."""
        ...

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Answer a query; see `Connection.query`."""
        ...

    def answer(self, planned: Any) -> Result:
        """Answer a planned query, also one that another runner of the same analyst planned; see `Connection.answer`."""
        ...

    def remaining_budget(self, receipt: Receipt) -> Sequence[RemainingBudget]:
        """Return the budgets that the last answer left; see `Connection.remaining_budget`."""
        ...


# A process that answers queries for a server, with engine connections of its own and the same ledger.


CONFIDENCE = 0.95
"""The confidence of the intervals that are sent with every answer."""
_MOST_PLANS = 64
"""The largest number of plans of described statements that are kept; an older one is planned again."""


@dataclass(frozen=True, slots=True)
class ProcessSetup:
    """The options of a process; `processes` is the number of parallel processes."""

    database: str | dict[str, str] | None
    policy: Policy
    analysts: tuple[str, ...]
    ledger: str
    ledger_key: bytes | str | Path | None
    anchor: str | Path | None
    processes: int
    workers: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a `method` of `CallHandlers` for an analyst; `dropped_results` are results that are no longer referenced."""

    number: int
    method: str
    analyst: str
    arguments: tuple[Any, ...]
    dropped_results: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A request to stop a running call, for its client or for the owner."""

    number: int
    by_owner: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call: `value`, or an error written by `dpsql.results.json_format`."""

    number: int
    value: Any = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """An answer without the function for intervals at other confidences, which stays in this process under `number`."""

    number: int
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    scales: tuple[tuple[float | None, ...], ...]
    receipt: Receipt
    bounded: tuple[bool, ...]
    counts: tuple[bool, ...]
    branches: tuple[int, ...]
    intervals: IntervalMatrix
    notices: tuple[str, ...]
    remaining_budgets: tuple[RemainingBudget, ...]


@dataclass(slots=True)
class CallHandlers:
    """The callable methods; plans and results are kept by number, each for its analyst only."""

    results: dict[int, tuple[str, Result]] = field(default_factory=dict)
    plans: OrderedDict[int, tuple[str, QueryRun]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Any = field(default_factory=lambda: count(1))

    def plan_query(
        self, connection: Connection, sql: str, parameters: Parameters, options: Mapping[str, Any]
    ) -> tuple[int, tuple[tuple[str, str], ...]]:
        """Plan a query; return the number of the plan and the columns of its answer."""
        planned = connection.plan(sql, parameters, **options)
        with self._lock:
            number = next(self._numbers)
            self.plans[number] = connection.engine.analyst, planned
            while len(self.plans) > _MOST_PLANS:
                self.plans.popitem(last=False)
        return number, planned.columns

    def run_query(
        self, connection: Connection, sql: str, parameters: Parameters, options: Mapping[str, Any]
    ) -> AnswerMessage:
        """Run a query and return its answer."""
        return self._build_answer(connection, connection.query(sql, parameters, **options))

    def run_planned_query(
        self,
        connection: Connection,
        number: int,
        sql: str,
        parameters: Parameters,
        options: Mapping[str, Any],
    ) -> AnswerMessage:
        """Run the plan of a number, which is planned again if it was dropped."""
        with self._lock:
            analyst, planned = self.plans.pop(number, ("", None))
        if planned is None or analyst != connection.engine.analyst:
            return self.run_query(connection, sql, parameters, options)
        return self._build_answer(connection, connection.answer(planned))

    def find_intervals(self, connection: Connection, number: int, confidence: float) -> IntervalMatrix | None:
        """Return the intervals of an answer at a confidence, or None if the answer was dropped."""
        analyst, result = self.results.get(number, ("", None))
        if result is None or analyst != connection.engine.analyst:
            return None
        return result.intervals(confidence)

    def _build_answer(self, connection: Connection, result: Result) -> AnswerMessage:
        try:
            return self._store_result(connection, result)
        except Exception as error:
            error.__dict__["charged"] = bool(result.receipt.entries)
            raise

    def _store_result(self, connection: Connection, result: Result) -> AnswerMessage:
        number = next(self._numbers)
        found = AnswerMessage(
            number,
            result.columns,
            result.types,
            result.rows,
            result.scales,
            result.receipt,
            result.bounded_columns,
            result.count_columns,
            result.branches,
            result.intervals(CONFIDENCE),
            result.notices[len(result.receipt.notices) :],
            connection.remaining_budget(result.receipt),
        )
        self.results[number] = connection.engine.analyst, result
        return found


def serve_calls(pipe: Pipe, setup: ProcessSetup) -> None:
    """Answer calls until the pipe ends. Signals of the server are ignored; the process ends after its last call.

    It receives calls through a pipe, answers each in a thread, and ends with the pipe. It has no ports, users or audit log: the
    server's process decides who may run queries and when, and records them. Its answers are released values in a `Result`; exact
    values stay in this process.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        process = _EngineProcess(pipe, setup)
    except Error as error:
        pipe.send(Reply(0, error=json_format.write_error(error)))
        return
    except Exception as error:  # noqa: BLE001  (its words may quote private values)
        pipe.send(
            Reply(
                0,
                error=json_format.write_error(json_format.make_unforeseen_error(None))
                | {"hint": type(error).__name__},
            )
        )
        return
    pipe.send(Reply(0))
    process.take_calls()
    os._exit(0)  # no client waits for a statement that still runs; charges are durable


class _EngineProcess:
    """The connections of this process, and their running calls."""

    def __init__(self, pipe: Pipe, setup: ProcessSetup) -> None:
        from dpsql.api.opening import SharedLedger
        from dpsql.backends.duckdb.settings import use_part

        use_part(setup.processes)
        self._pipe, self._send_lock = pipe, threading.Lock()
        self._ledger = SharedLedger(
            setup.ledger,
            policy=setup.policy,
            analysts=setup.analysts,
            ledger_key=setup.ledger_key,
            anchor=setup.anchor,
        )
        opened = partial(open_connection, setup.database, setup.policy, self._ledger)
        self._connections = ConnectionPool(opened, setup.workers * 4)
        self._handlers = CallHandlers()
        self._workers = ThreadPoolExecutor(setup.workers, "dpsql query", mark_as_worker)
        self._running: dict[int, Engine] = {}
        self._lock = threading.Lock()
        with self._connections.acquire_connection(setup.analysts[0]):
            pass

    def take_calls(self) -> None:
        """Take calls until the server ends, and wait for the taken ones."""
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                break  # the server was killed
            if message is None:
                break
            if isinstance(message, Interrupt):
                with self._lock:
                    engine = self._running.get(message.number)
                    if engine is not None:
                        (engine.stop if message.by_owner else engine.cancel)()
            else:
                self._workers.submit(self._answer_call, message)
        self._workers.shutdown(wait=True)
        self._connections.close()
        self._ledger.close()

    def _answer_call(self, call: Call) -> None:
        for number in call.dropped_results:
            self._handlers.results.pop(number, None)
        try:
            reply = Reply(call.number, self._execute_call(call))
        except Error as error:
            reply = Reply(call.number, error=json_format.write_error(error))
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            charged = getattr(error, "charged", None)
            reply = Reply(
                call.number, error=json_format.write_error(json_format.make_unforeseen_error(charged))
            )
        try:
            with self._send_lock:
                self._pipe.send(reply)
        except (OSError, ValueError):
            return  # the server is gone

    def _execute_call(self, call: Call) -> Any:
        method = _METHODS[call.method]
        with self._connections.acquire_connection(call.analyst) as connection:
            connection.engine.stops.reset_requests()
            with self._lock:
                self._running[call.number] = connection.engine
            try:
                return method(self._handlers, connection, *call.arguments)
            finally:
                with self._lock:  # a later interrupt would hit another user's statement
                    del self._running[call.number]


_METHODS: Mapping[str, Callable[..., Any]] = {
    "plan": CallHandlers.plan_query,
    "query": CallHandlers.run_query,
    "answer": CallHandlers.run_planned_query,
    "intervals": CallHandlers.find_intervals,
}


def make_process_ended_error() -> OperationalError:
    """Return the error for a call whose process has ended."""
    error = OperationalError(
        "a server process ended while it ran this statement; any charge stands",
        code="process_ended",
        hint="run it again; a stored answer is free",
    )
    error.charged = None
    return error
