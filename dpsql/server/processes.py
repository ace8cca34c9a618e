"""Processes that answer questions beside each other, as one interpreter runs one thread of Python at a time.

Claim: whichever process answers, an analyst is charged and limited as by one process, and nothing is answered that the audit
log does not hold.
Why: turns, limits, sessions, users and the audit log are of the server's process alone; the others share what is durable,
the ledger, whose charges are made one after the other under a lock of its store, whoever makes them.

Claim: a process that ends amid a charged question leaves a failure in the ledger, as an engine that fails does.
Why: a row may need more memory than there is, and the system ends the process for it. Its pipe ends with it, and who waited for
the reply has the failure recorded before the client is told.
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
from dpsql.rendering import Ends
from dpsql.request.parameters import Parameters
from dpsql.request.query import QueryOptions
from dpsql.result import Receipt, Result
from dpsql.server.engine_process import CONFIDENCE, Answered, Call, Interrupt, Reply, Setup, gone, serve
from dpsql.wire import failures
from dpsql.wire.answers import Matrix

if TYPE_CHECKING:
    from dpsql.ledger import BudgetLeft

_END_SECONDS = 60.0
"""How long a process may take to end, after the last answer was waited for."""


class _Process:
    """One process, with a thread here that takes its replies."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, setup), name="dpsql engine")
        self._process.start()
        theirs.close()  # so that this end is told when the process ends
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._numbers = count(1)
        self._waiting = dict[int, Future[Any]]()
        self.dropped = deque[int]()
        self.ended = False

    def started(self) -> None:
        """Waits until it can be asked. Raises what kept it from starting."""
        try:
            reply: Reply = self._pipe.recv()
        except (EOFError, OSError):
            reply = Reply(0, error=failures.written(gone()))
        if reply.error is not None:
            self._process.join()
            raise failures.read(reply.error)
        threading.Thread(target=self._listen, name="dpsql replies", daemon=True).start()

    @property
    def busy(self) -> int:
        """How many calls it works on."""
        return len(self._waiting)

    def begin(self, method: str, analyst: str, arguments: tuple[Any, ...]) -> tuple[int, Future[Any]]:
        """Sends a call. The future has the value, or raises the error, `process_ended` where nobody knows."""
        future: Future[Any] = Future()
        dropped = tuple(self.dropped.popleft() for _ in range(len(self.dropped)))
        with self._lock:
            number = next(self._numbers)
            if self.ended:
                raise gone()
            self._waiting[number] = future
        try:
            self._send(Call(number, method, analyst, arguments, dropped))
        except BaseException:
            with self._lock:
                self._waiting.pop(number, None)
            raise
        return number, future

    def interrupt(self, number: int, *, by_owner: bool) -> None:
        """Asks to end what runs for a call, which replies all the same."""
        if number in self._waiting:
            self._send(Interrupt(number, by_owner))

    def _send(self, message: Call | Interrupt | None) -> None:
        failed = False
        try:
            with self._sending:
                self._pipe.send(message)
        except OSError:
            failed = True
        if failed:
            raise gone()

    def _listen(self) -> None:
        while True:
            try:
                reply: Reply = self._pipe.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                future = self._waiting.pop(reply.number, None)
            if future is None:
                continue
            if reply.error is None:
                future.set_result(reply.value)
            else:
                future.set_exception(failures.read(reply.error))
        with self._lock:
            self.ended = True
            left, self._waiting = self._waiting, {}
        for future in left.values():
            future.set_exception(gone())
        with self._sending:
            self._pipe.close()

    def close(self) -> None:
        """Ends it after what it works on."""
        with suppress(OperationalError):  # it has ended by itself
            self._send(None)
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@dataclass(frozen=True, slots=True)
class PlannedElsewhere:
    """A plan that a process keeps under a number, and what it takes to plan it again."""

    process: _Process
    number: int
    columns: tuple[tuple[str, str], ...]
    question: tuple[str, Parameters, QueryOptions]


Lost = Callable[[str, str, datetime], None]
"""Records failures of an analyst's question, by its text, that was charged since a time, where its process has ended."""


class Processes:
    """The processes of a server; one that ends unasked is started again when it is needed."""

    def __init__(self, setup: Setup, record_lost: Lost | None = None) -> None:
        self._setup, self.record_lost = setup, record_lost
        self._lock = threading.Lock()
        self._closed = False
        self._processes = list[_Process]()
        atexit.register(self.close)
        try:
            for _ in range(setup.processes):
                self._processes.append(_Process(setup))
            for each in self._processes:
                each.started()
        except BaseException:
            self.close()
            raise

    def asker(self, analyst: str) -> ProcessAsker:
        """What answers one statement of an analyst's."""
        return ProcessAsker(self, analyst)

    def idlest(self) -> _Process:
        """The process with the least to do. Raises OperationalError (`reload`) where all were closed."""
        with self._lock:
            if self._closed:
                raise OperationalError(
                    "the server has not opened its data again", code="reload", hint="its owner's log says why"
                )
            for place, each in enumerate(self._processes):
                if each.ended:
                    begun = _Process(self._setup)
                    begun.started()
                    self._processes[place] = begun
            return min(self._processes, key=lambda each: each.busy)

    def close(self) -> None:
        """Ends all, after what they work on."""
        with self._lock:
            self._closed = True
            processes, self._processes = self._processes, []
        for each in processes:
            each.close()
        atexit.unregister(self.close)


class ProcessAsker:
    """An `Asker` of one statement; see `Processes`."""

    def __init__(self, processes: Processes, analyst: str) -> None:
        self._processes, self._analyst = processes, analyst
        self._lock = threading.Lock()
        self._call: tuple[_Process, int] | None = None
        self._left: tuple[BudgetLeft, ...] = ()

    def cancel(self) -> None:
        """As `Engine.cancel`."""
        self._interrupt(by_owner=False)

    def stop(self) -> None:
        """As `Engine.stop`."""
        self._interrupt(by_owner=True)

    def _interrupt(self, *, by_owner: bool) -> None:
        with self._lock:
            call = self._call
        if call is not None:
            call[0].interrupt(call[1], by_owner=by_owner)

    def plan(
        self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]
    ) -> PlannedElsewhere:
        """As `Asker.plan`."""
        process, question = self._processes.idlest(), (sql, parameters, options)
        number, columns = self._called(process, "plan", question)
        return PlannedElsewhere(process, number, columns, question)

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """As `Asker.query`."""
        process, question = self._processes.idlest(), (sql, parameters, options)
        return self._result(process, self._asked(process, "query", question, question))

    def answer(self, planned: PlannedElsewhere) -> Result:
        """As `Asker.answer`: by the process that has the plan, or by another where that has ended."""
        process = planned.process
        if process.ended:
            sql, parameters, options = planned.question
            return self.query(sql, parameters, **options)
        question = planned.question
        return self._result(process, self._asked(process, "answer", (planned.number, *question), question))

    def left(self, receipt: Receipt) -> Sequence[BudgetLeft]:
        """As `Asker.left`: what was left when the answer was given."""
        del receipt
        return self._left

    def _asked(
        self,
        process: _Process,
        method: str,
        arguments: tuple[Any, ...],
        question: tuple[str, Parameters, QueryOptions],
    ) -> Answered:
        """As `_called`, of what may be charged: a process that ends meanwhile is a failure."""
        begun = datetime.now(UTC)
        try:
            found: Answered = self._called(process, method, arguments)
        except OperationalError as error:
            if error.code == "process_ended" and self._processes.record_lost is not None:
                self._processes.record_lost(self._analyst, question[0], begun)
            raise
        return found

    def _called(self, process: _Process, method: str, arguments: tuple[Any, ...]) -> Any:
        number, future = process.begin(method, self._analyst, arguments)
        with self._lock:
            self._call = process, number
        try:
            return future.result()
        finally:
            with self._lock:
                self._call = None

    def _result(self, process: _Process, found: Answered) -> Result:
        self._left = found.left
        intervals = _Intervals(process, self._analyst, found.number, {CONFIDENCE: found.intervals})
        weakref.finalize(intervals, process.dropped.append, found.number)
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
            _noticed=partial(_noticed, found.notices),
        )


def _noticed(notices: tuple[str, ...], _: Result) -> tuple[str, ...]:
    return notices


class _Intervals:
    """The intervals of an answer, which its process works out for confidences that did not come with it."""

    def __init__(self, process: _Process, analyst: str, number: int, known: dict[float, Matrix]) -> None:
        self._process, self._analyst, self._number, self._known = process, analyst, number, known

    def __call__(self, row: int, column: int, confidence: float) -> Ends:
        """The interval of a cell. Raises ProgrammingError (`not_found`) where the answer is gone with its process."""
        if confidence not in self._known:
            self._known[confidence] = self._asked(confidence)
        return self._known[confidence][row][column]

    def _asked(self, confidence: float) -> Matrix:
        found: Matrix | None = None
        if not self._process.ended:
            _, future = self._process.begin("intervals", self._analyst, (self._number, confidence))
            found = future.result()
        if found is None:
            raise ProgrammingError(
                "the server no longer has this answer",
                code="not_found",
                hint="ask the query again, free, with the confidences",
            )
        return found
