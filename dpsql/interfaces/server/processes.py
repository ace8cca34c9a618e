"""Processes that answer queries in parallel, since one interpreter runs one thread of Python at a time.

Claim: whichever process answers, an analyst is charged and limited as by one process, and every answered query is in the audit
log.
Why: only the server's process has turns, limits, sessions, users and the audit log; all processes share the ledger, whose
charges are made one after the other under a lock of its store.

Claim: a process that ends during a charged query leaves a failure in the ledger, like an engine that fails.
Why: a row may need more memory than there is, so that the system kills the process. Its pipe ends with it, and the thread that
waits for the reply records the failure before the client gets an error.
"""

from __future__ import annotations

import atexit
import multiprocessing
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.server.connections import (
    CONFIDENCE,
    AnswerMessage,
    Call,
    Interrupt,
    ProcessSetup,
    Reply,
    make_process_ended_error,
    serve_calls,
)
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.results.json_format import IntervalMatrix
from dpsql.results.rendering import Ends
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    from dpsql.ledger import RemainingBudget

_END_SECONDS = 60.0
"""Seconds that a process may take to end after its last answer."""


class _ProcessHandle:
    """One process, with a thread in this one that receives its replies."""

    def __init__(self, setup: ProcessSetup) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve_calls, args=(theirs, setup), name="dpsql engine")
        self._process.start()
        theirs.close()  # so that this end closes when the process ends
        self._send_lock, self._lock = threading.Lock(), threading.Lock()
        self._numbers = count(1)
        self._futures = dict[int, Future[Any]]()
        self.dropped_results = deque[int]()
        self.has_ended = False

    def wait_until_started(self) -> None:
        """Wait until the process takes calls. Raises the error that kept it from starting."""
        try:
            reply: Reply = self._pipe.recv()
        except (EOFError, OSError):
            reply = Reply(0, error=json_format.write_error(make_process_ended_error()))
        if reply.error is not None:
            self._process.join()
            raise json_format.read_error(reply.error)
        threading.Thread(target=self._read_replies, name="dpsql replies", daemon=True).start()

    @property
    def call_count(self) -> int:
        """Return the number of running calls."""
        return len(self._futures)

    def send_call(self, method: str, analyst: str, arguments: tuple[Any, ...]) -> tuple[int, Future[Any]]:
        """Send a call. The future has the value or raises the error, which is `process_ended` if the process has ended."""
        future: Future[Any] = Future()
        dropped = tuple(self.dropped_results.popleft() for _ in range(len(self.dropped_results)))
        with self._lock:
            number = next(self._numbers)
            if self.has_ended:
                raise make_process_ended_error()
            self._futures[number] = future
        try:
            self._send_message(Call(number, method, analyst, arguments, dropped))
        except BaseException:
            with self._lock:
                self._futures.pop(number, None)
            raise
        return number, future

    def interrupt_call(self, number: int, *, by_owner: bool) -> None:
        """Interrupt a running call, which replies all the same."""
        if number in self._futures:
            self._send_message(Interrupt(number, by_owner))

    def _send_message(self, message: Call | Interrupt | None) -> None:
        failed = False
        try:
            with self._send_lock:
                self._pipe.send(message)
        except OSError:
            failed = True
        if failed:
            raise make_process_ended_error()

    def _read_replies(self) -> None:
        while True:
            try:
                reply: Reply = self._pipe.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                future = self._futures.pop(reply.number, None)
            if future is None:
                continue
            if reply.error is None:
                future.set_result(reply.value)
            else:
                future.set_exception(json_format.read_error(reply.error))
        with self._lock:
            self.has_ended = True
            left, self._futures = self._futures, {}
        for future in left.values():
            future.set_exception(make_process_ended_error())
        with self._send_lock:
            self._pipe.close()

    def close(self) -> None:
        """End the process after its running calls."""
        with suppress(OperationalError):  # it has already ended
            self._send_message(None)
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@dataclass(frozen=True, slots=True)
class PlanHandle:
    """A plan that a process keeps under a number, with everything that is needed to plan it again."""

    process: _ProcessHandle
    number: int
    columns: tuple[tuple[str, str], ...]
    question: tuple[str, Parameters, QueryOptions]


FailureRecorder = Callable[[str, str, datetime], None]
"""A function that records the failure of an analyst's query that was charged since a time, after its process has ended."""


class ProcessPool:
    """The processes of a server; one that ends unexpectedly is started again when it is needed."""

    def __init__(self, setup: ProcessSetup, record_lost: FailureRecorder | None = None) -> None:
        self._setup, self.record_lost = setup, record_lost
        self._lock = threading.Lock()
        self._closed = False
        self._processes = list[_ProcessHandle]()
        atexit.register(self.close)
        try:
            for _ in range(setup.processes):
                self._processes.append(_ProcessHandle(setup))
            for each in self._processes:
                each.wait_until_started()
        except BaseException:
            self.close()
            raise

    def create_query_runner(self, analyst: str) -> ProcessQueryRunner:
        """Return a runner of one statement of an analyst."""
        return ProcessQueryRunner(self, analyst)

    def select_idlest_process(self) -> _ProcessHandle:
        """Return the process with the fewest running calls. Raises OperationalError (`reload`) if all were closed."""
        with self._lock:
            if self._closed:
                raise OperationalError(
                    "the server could not reopen its data",
                    code="reload",
                    hint="the owner's log has the reason",
                )
            for place, each in enumerate(self._processes):
                if each.has_ended:
                    begun = _ProcessHandle(self._setup)
                    begun.wait_until_started()
                    self._processes[place] = begun
            return min(self._processes, key=lambda each: each.call_count)

    def close(self) -> None:
        """End all processes after their running calls."""
        with self._lock:
            self._closed = True
            processes, self._processes = self._processes, []
        for each in processes:
            each.close()
        atexit.unregister(self.close)


class ProcessQueryRunner:
    """The runner of one statement in a process; see `ProcessPool`."""

    def __init__(self, processes: ProcessPool, analyst: str) -> None:
        self._processes, self._analyst = processes, analyst
        self._lock = threading.Lock()
        self._call: tuple[_ProcessHandle, int] | None = None
        self._remaining_budgets: tuple[RemainingBudget, ...] = ()

    def cancel(self) -> None:
        """Cancel the running call for its client; see `Engine.cancel`."""
        self._interrupt_call(by_owner=False)

    def stop(self) -> None:
        """Stop the running call for the owner; see `Engine.stop`."""
        self._interrupt_call(by_owner=True)

    def _interrupt_call(self, *, by_owner: bool) -> None:
        with self._lock:
            call = self._call
        if call is not None:
            call[0].interrupt_call(call[1], by_owner=by_owner)

    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> PlanHandle:
        """Plan a query; see `QueryRunner.plan`."""
        process, question = self._processes.select_idlest_process(), (sql, parameters, options)
        number, columns = self._call_process(process, "plan", question)
        return PlanHandle(process, number, columns, question)

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Answer a query; see `QueryRunner.query`."""
        process, question = self._processes.select_idlest_process(), (sql, parameters, options)
        return self._build_result(process, self._run_question(process, "query", question, question))

    def answer(self, planned: PlanHandle) -> Result:
        """Answer a planned query in the process that has the plan, or in another if that has ended."""
        process = planned.process
        if process.has_ended:
            sql, parameters, options = planned.question
            return self.query(sql, parameters, **options)
        question = planned.question
        return self._build_result(
            process, self._run_question(process, "answer", (planned.number, *question), question)
        )

    def remaining_budget(self, receipt: Receipt) -> Sequence[RemainingBudget]:
        """Return the budgets that were left when the answer was given."""
        del receipt
        return self._remaining_budgets

    def _run_question(
        self,
        process: _ProcessHandle,
        method: str,
        arguments: tuple[Any, ...],
        question: tuple[str, Parameters, QueryOptions],
    ) -> AnswerMessage:
        """Run a call that may be charged; if its process ends meanwhile, that is recorded as a failure."""
        begun = datetime.now(UTC)
        try:
            found: AnswerMessage = self._call_process(process, method, arguments)
        except OperationalError as error:
            if error.code == "process_ended" and self._processes.record_lost is not None:
                self._processes.record_lost(self._analyst, question[0], begun)
            raise
        return found

    def _call_process(self, process: _ProcessHandle, method: str, arguments: tuple[Any, ...]) -> Any:
        number, future = process.send_call(method, self._analyst, arguments)
        with self._lock:
            self._call = process, number
        try:
            return future.result()
        finally:
            with self._lock:
                self._call = None

    def _build_result(self, process: _ProcessHandle, found: AnswerMessage) -> Result:
        self._remaining_budgets = found.remaining_budgets
        intervals = _ProcessIntervals(process, self._analyst, found.number, {CONFIDENCE: found.intervals})
        weakref.finalize(intervals, process.dropped_results.append, found.number)
        return Result(
            columns=found.columns,
            types=found.types,
            rows=found.rows,
            scales=found.scales,
            receipt=found.receipt,
            _interval_of=intervals,
            _bounded=found.bounded,
            _counts=found.counts,
            _branches=found.branches,
            _compute_notices=partial(_get_notices, found.notices),
        )


def _get_notices(notices: tuple[str, ...], _: Result) -> tuple[str, ...]:
    return notices


class _ProcessIntervals:
    """The intervals of an answer, which its process computes for other confidences."""

    def __init__(
        self, process: _ProcessHandle, analyst: str, number: int, known: dict[float, IntervalMatrix]
    ) -> None:
        self._process, self._analyst, self._number, self._known = process, analyst, number, known

    def __call__(self, row: int, column: int, confidence: float) -> Ends:
        """Return the interval of a cell. Raises ProgrammingError (`not_found`) if the process that has the answer has ended."""
        if confidence not in self._known:
            self._known[confidence] = self._fetch_intervals(confidence)
        return self._known[confidence][row][column]

    def _fetch_intervals(self, confidence: float) -> IntervalMatrix:
        found: IntervalMatrix | None = None
        if not self._process.has_ended:
            _, future = self._process.send_call("intervals", self._analyst, (self._number, confidence))
            found = future.result()
        if found is None:
            raise ProgrammingError(
                "the server no longer has this answer",
                code="not_found",
                hint="run the query again with these confidences; the stored answer is free",
            )
        return found
