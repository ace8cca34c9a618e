"""The calls of the HTTP API: what each handler gets, and how its work is run in its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from dpsql.errors import OperationalError
from dpsql.interfaces.server.http.access import Authenticator
from dpsql.interfaces.server.http.answers import AnswerCache
from dpsql.interfaces.server.http.bodies import RecordBody, RequestBody
from dpsql.interfaces.server.http.metrics import Metrics
from dpsql.interfaces.server.http.requests import get_peer, wait_for_disconnect
from dpsql.interfaces.server.limits import Lane
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.users import User

if TYPE_CHECKING:
    from dpsql.api.connection import Connection

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
    metrics: Metrics
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
        runner = StatementRunner(self.service, self.user)
        return await self.context.runner.run_work(
            self.request, runner, lambda: runner.run_with_connection(work), seconds, lane
        )

    async def run_lookup(self, work: Callable[[], _T]) -> _T:
        """Run work that reads no private rows, in its own lane."""
        runner = StatementRunner(self.service, self.user)
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
