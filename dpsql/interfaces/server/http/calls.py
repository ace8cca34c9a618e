"""The calls of the HTTP API: what each handler gets and shares, and how its work is run in its turn."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.server.http.access import Authenticator
from dpsql.interfaces.server.http.bodies import RecordBody, RequestBody
from dpsql.interfaces.server.http.messages import get_peer, wait_for_disconnect
from dpsql.interfaces.server.limits import Lane
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.users import User
from dpsql.results.json_format import IntervalMatrix
from dpsql.results.result import Result

if TYPE_CHECKING:
    from dpsql.api.connection import Connection


# Keep the latest answers of each user, to compute intervals at other confidences at no charge.


MOST_ANSWERS = 16
"""The largest number of answers kept for one user."""
MOST_CELLS = 100_000
"""The largest number of cells of one kept answer, and of all answers kept for one user."""
MOST_CONFIDENCES = 16
"""The largest number of confidences for one answer, each of which is remembered."""


@dataclass(slots=True)
class _CachedAnswer:
    result: Result
    lock: threading.Lock = field(default_factory=threading.Lock)
    confidences: set[float] = field(default_factory=set)


class AnswerCache:
    """A cache of answers by user and id; an id is 128 random bits.

    Answers are kept in memory, for the user who received them. After an answer is dropped, the same query can be run again at no
    charge.
    """

    def __init__(self) -> None:
        self._entries = dict[str, OrderedDict[str, _CachedAnswer]]()
        self._lock = threading.Lock()

    def keep_answer(self, user: str, result: Result) -> str | None:
        """Keep an answer and return its id, or None if it is too large."""
        if _count_cells(result) > MOST_CELLS:
            return None
        number = secrets.token_hex(16)
        with self._lock:
            own = self._entries.setdefault(user, OrderedDict())
            own[number] = _CachedAnswer(result)
            while (
                len(own) > MOST_ANSWERS
                or sum(_count_cells(each.result) for each in own.values()) > MOST_CELLS
            ):
                own.popitem(last=False)
        return number

    def get_intervals(self, user: str, number: str, confidence: float) -> IntervalMatrix:
        """Return the intervals of an answer. Raises ProgrammingError (`not_found`) if it is not kept or is another user's."""
        with self._lock:
            found = self._entries.get(user, OrderedDict()).get(number)
        if found is None:
            raise ProgrammingError(
                "the server no longer has this answer",
                code="not_found",
                hint="run the query again with these confidences; the stored answer is free",
            )
        with found.lock:
            if len(found.confidences | {confidence}) > MOST_CONFIDENCES:
                raise ProgrammingError(
                    f"intervals of one answer are available at {MOST_CONFIDENCES} confidences at most",
                    code="argument",
                )
            found.confidences.add(confidence)
            return found.result.intervals(confidence)


def _count_cells(result: Result) -> int:
    return len(result) * len(result.columns)


# The calls of the HTTP API: what each handler gets, and how its work is run in its turn.


_T = TypeVar("_T")
_Body = TypeVar("_Body", bound=RequestBody | None)


class RequestRunner:
    """The running statements of all requests: each is run in its turn, and all are stopped with the server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running = set[StatementRunner]()

    async def run_work(
        self,
        request: Request,
        runner: StatementRunner,
        work: Callable[[], _T],
        seconds: float | None = None,
        lane: Lane = Lane.query,
    ) -> _T:
        """Run `work` in its turn. If the client disconnects, waiting work is cancelled, but a charged answer is not lost."""
        self._running.add(runner)
        runner.text = getattr(request.state, "sql", request.url.path)
        activity = self._service.activity
        number = activity.register_client(
            runner.user, runner, door="http", peer=get_peer(request), disconnect=lambda: None
        )
        task = asyncio.ensure_future(runner.run_work(work, seconds, lane))
        watch = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                runner.cancel_waiting()
            return await task
        except CancelledBeforeTurn:
            pass
        finally:
            watch.cancel()
            self._running.discard(runner)
            activity.remove_client(number)
        raise OperationalError(
            "the query was cancelled before it began; nothing was charged", code="not_begun"
        )

    def stop_statements(self) -> None:
        """Stop all running and waiting statements when the server stops."""
        for running in self._running:
            running.stop()


@dataclass(slots=True)
class ApiContext:
    """What all handlers share."""

    service: Service
    log: Log
    authenticator: Authenticator
    runner: RequestRunner
    answers: AnswerCache
    count_connections: Callable[[], int]
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[_Body]):
    """One request with its user and its body; `session` is the secret of a session that it began."""

    context: ApiContext
    request: Request
    user: User
    body: _Body
    session: str = ""

    @property
    def service(self) -> Service:
        """Return the service that is asked."""
        return self.context.service

    @property
    def peer(self) -> str:
        """Return the client's address."""
        return get_peer(self.request)

    @property
    def analyst(self) -> str:
        """Return the analyst of the policy whose budget the user spends."""
        return self.service.policy.resolve_analyst_name(self.user.name)

    def note_sql(self, sql: str) -> None:
        """Remember the text of the query, for places in errors and for the list of running statements."""
        self.request.state.sql = sql

    async def run_with_connection(
        self,
        work: Callable[[Connection], _T],
        seconds: float | None = None,
        lane: Lane = Lane.query,
    ) -> _T:
        """Run `work` with an engine connection of the user in its turn."""
        runner = StatementRunner(self.service, self.user, "http")
        return await self.context.runner.run_work(
            self.request, runner, lambda: runner.run_with_connection(work), seconds, lane
        )

    async def run_lookup(self, work: Callable[[], _T]) -> _T:
        """Run work that reads no private rows, in its own lane."""
        runner = StatementRunner(self.service, self.user, "http")
        return await self.context.runner.run_work(self.request, runner, work, lane=Lane.lookup)


class Access(Enum):
    """Who may send a request."""

    everybody = "everybody"
    """Nobody logs in; answered also while the server stops, and neither logged nor counted."""
    logins = "logins"
    """Nobody has logged in yet."""
    passwords = "passwords"
    """A user with a name and password, for whom a session is begun."""
    users = "users"
    """A user with any proof."""


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A path and method with its handler, and what the OpenAPI description says of it."""

    method: str
    path: str
    handler: Callable[[ApiCall[Any]], Awaitable[Response]]
    summary: str
    body: type[RequestBody] | None = None
    answer: type[BaseModel] | None = RecordBody
    query: tuple[str, ...] = ()
    """The names of the parameters after the question mark."""
    access: Access = Access.users
    has_arrow: bool = False
    """Whether the answer may be an Arrow stream."""
