"""The API: each request is held against who asks, runs in its turn, and is answered with JSON or Arrow.

Whatever a request brings reaches private data through `Connection.query` alone, as at the other door.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dpsql.engine.advice import advice
from dpsql.engine.description import Description
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.ledger.reader import LedgerReader
from dpsql.request.loss import amount
from dpsql.request.query import QueryOptions
from dpsql.server.asking import Asker
from dpsql.server.audit import Caller, Outcome
from dpsql.server.http import openapi, page
from dpsql.server.http.access import Access
from dpsql.server.http.answers import Answers
from dpsql.server.http.metrics import CONTENT_TYPE, Metrics
from dpsql.server.http.requests import (
    ARROW,
    QueryRequest,
    body_of,
    code_request,
    confidence_of,
    form_of,
    limit_of,
    login_request,
    number_in_path,
    number_of,
    peer_of,
    price_request,
    query_request,
)
from dpsql.server.http.responses import HEADERS, as_arrow, as_json, dumped, entry_of, full_entry, statement_of
from dpsql.server.http.statuses import status
from dpsql.server.http.web_sessions import LONGEST
from dpsql.server.running import NotBegun, Running
from dpsql.server.service import Lane, Service, reload
from dpsql.server.sockets import Log
from dpsql.server.users import Role, User
from dpsql.shell.completion import KEYWORDS, functions
from dpsql.shell.costs import charged
from dpsql.sql.read.stated import stated
from dpsql.wire import answers as wire
from dpsql.wire import failures, records

if TYPE_CHECKING:
    from dpsql.connection import Connection
    from dpsql.ledger.protocol import Entry
    from dpsql.result import Result
    from dpsql.server.http.oidc import Provider

_T = TypeVar("_T")
_NO_DIGITS = "there is no entry of this number among your charges"

Handler = Callable[["Api", Request, User], Awaitable[Response]]


class Api:
    """The application over a service. `app` is what speaks HTTP's requests and responses, without sockets."""

    def __init__(
        self,
        service: Service,
        log: Log,
        *,
        connections: Callable[[], int] = lambda: 0,
        provider: Provider | None = None,
    ) -> None:
        self.service, self._log, self._connections = service, log, connections
        self.access, self.answers, self.metrics = Access(service, log, provider), Answers(), Metrics()
        self.stopping = False
        self._running = set[Running]()
        routes = [
            _Route("/v1/query", "POST", Api._query),
            _Route("/v1/combine", "POST", Api._combine),
            _Route("/v1/explain", "POST", Api._explain),
            _Route("/v1/price", "POST", Api._price),
            _Route("/v1/budget", "GET", Api._budget),
            _Route("/v1/history", "GET", Api._history),
            _Route("/v1/receipts/{entry}", "GET", Api._receipt),
            _Route("/v1/answers/{answer}/intervals", "GET", Api._intervals),
            _Route("/v1/catalogue", "GET", Api._catalogue),
            _Route("/v1/words", "GET", Api._words),
            _Route("/v1/session", "POST", Api._begin),
            _Route("/v1/login", "GET", Api._logins, anonymous=True),
            _Route("/v1/login", "POST", Api._begin_elsewhere, anonymous=True),
            _Route("/v1/login/code", "POST", Api._begin_by_code, anonymous=True),
            _Route("/v1/session", "GET", Api._session),
            _Route("/v1/session", "DELETE", Api._end),
            _Route("/v1/entries", "GET", Api._entries),
            _Route("/v1/users", "GET", Api._users),
            _Route("/v1/statements", "GET", Api._statements),
            _Route("/v1/statements/{pid}", "DELETE", Api._end_statement),
            _Route("/v1/policy", "GET", Api._policy),
            _Route("/v1/reload", "POST", Api._reload),
            _Route("/metrics", "GET", Api._metrics),
        ]
        self.app = Starlette(
            routes=[
                *(Route(each.path, self._answering(each), methods=[each.method]) for each in routes),
                Route("/health", self._health, methods=["GET"]),
                Route("/v1/openapi.json", self._openapi, methods=["GET"]),
                Route("/", self._file, methods=["GET"]),
                Route("/page/{name}", self._file, methods=["GET"]),
            ],
            exception_handlers={HTTPException: self._unknown},
        )
        # A redirect would be to the host that a client names, and unencrypted behind a proxy.
        self.app.router.redirect_slashes = False

    def stop(self) -> None:
        """Ends all that runs or waits, as the server stops."""
        for running in self._running:
            running.stop()

    # What every request goes through.

    def _answering(self, route: _Route) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._answered(route, request)

        return endpoint

    async def _answered(self, route: _Route, request: Request) -> Response:
        begun, peer = time.monotonic(), peer_of(request)
        facts: dict[str, Any] = {}
        try:
            self._require_serving()
            proof = request.headers.getlist("authorization")
            if route.anonymous:
                _require_room(request, _NOBODY)
                response = await route.handler(self, request, _NOBODY)
            else:
                if route.handler is Api._begin:
                    user, request.state.session = await self.access.begin(proof, peer)
                else:
                    user = await self.access.user(proof, peer)
                _require_room(request, user)
                facts["user"] = user.name
                response = await route.handler(self, request, user)
        except Error as error:
            response = self._failed(error, getattr(request.state, "sql", None))
            facts["code"] = error.code
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            self._log("failure", peer=peer, error=type(error).__name__, door="http")
            response = self._failed(failures.unforeseen(getattr(error, "charged", None)))
            facts["code"] = "internal"
        seconds = time.monotonic() - begun
        self.metrics.note(route.path, response.status_code, seconds)
        self._log(
            "request",
            route=route.path,
            status=response.status_code,
            peer=peer,
            seconds=round(seconds, 3),
            **facts,
        )
        return response

    def _require_serving(self) -> None:
        if self.stopping:
            raise OperationalError("the server is stopping", code="stopping", hint="try again later")

    def _failed(self, error: Error, sql: str | None = None) -> Response:
        number = status(error)
        response = as_json({"error": failures.written(error, sql)}, number)
        if number == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="dpsql"'
        if number in (401, 408, 413, 415, 503):
            response.headers["Connection"] = "close"  # the rest of a body is not read
        return response

    async def _unknown(self, request: Request, error: Exception) -> Response:
        """What Starlette itself refuses: a path or a method."""
        del request
        found = error.status_code if isinstance(error, HTTPException) else 500
        code, message = {
            404: ("not_found", "there is no such path"),
            405: ("method", "this path does not take this method"),
        }.get(found, ("request", "the request is not understood"))
        self.metrics.note("", found, 0)
        body = failures.written(ProgrammingError(message, code=code, hint="GET /v1/openapi.json lists all"))
        return as_json({"error": body}, found)

    async def _run(
        self,
        request: Request,
        running: Running,
        work: Callable[[], _T],
        seconds: float | None = None,
        lane: Lane = Lane.asking,
    ) -> _T:
        """What `work` gives in its turn. A client that leaves meanwhile is not waited for, and loses no paid answer."""
        self._running.add(running)
        running.text = getattr(request.state, "sql", request.url.path)
        activity = self.service.activity
        number = activity.enter(
            running.user, running, door="http", peer=peer_of(request), disconnect=lambda: None
        )
        task = asyncio.ensure_future(running.run(work, seconds, lane))
        watch = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                running.leave()
            return await task
        except NotBegun:
            pass
        finally:
            watch.cancel()
            self._running.discard(running)
            activity.leave(number)
        raise OperationalError(
            "the query was cancelled before it began; nothing was charged", code="not_begun"
        )

    # Queries.

    async def _query(self, request: Request, user: User) -> Response:
        asked, form = query_request(await self._body(request)), form_of(request)
        request.state.sql = asked.sql
        _require_asking(user)
        running, peer = Running(self.service, user), peer_of(request)

        def ask(asker: Asker) -> bytes:
            terms = self._terms(asked)
            with self._audited(user, peer, "query") as outcome:
                result = asker.query(asked.sql, asked.parameters, **terms)
                outcome.answered(result)
            loss = self.service.loss(asked.sql, terms.get("dialect") or "duckdb", terms.get("epsilon"))
            return self._document(user, asked, loss, (asker, result, form))

        body = await self._run(request, running, lambda: running.asking(ask), asked.seconds)
        return Response(body, headers=HEADERS, media_type=form)

    async def _combine(self, request: Request, user: User) -> Response:
        asked, form = query_request(await self._body(request)), form_of(request)
        request.state.sql = asked.sql
        _require_asking(user)
        if unknown := asked.options.keys() - {"max_groups", "dialect"}:
            raise ProgrammingError(
                f"stored releases are combined whatever their {min(unknown)}", code="argument"
            )
        running, peer = Running(self.service, user), peer_of(request)

        def ask(connection: Connection) -> bytes:
            options = asked.options
            with self._audited(user, peer, "combine") as outcome:
                result = connection.combine(
                    asked.sql,
                    asked.parameters,
                    max_groups=options.get("max_groups"),
                    dialect=options.get("dialect"),
                )
                outcome.answered(result)
            return self._document(user, asked, None, (connection, result, form))

        body = await self._run(request, running, lambda: running.with_connection(ask), asked.seconds)
        return Response(body, headers=HEADERS, media_type=form)

    def _audited(self, user: User, peer: str, what: str) -> AbstractContextManager[Outcome]:
        """Notes in the audit log who asks, and what comes of it."""
        caller = Caller(user.name, self.service.policy.analyst(user.name), "http", peer)
        return self.service.audit.asking(caller, what)

    def _terms(self, asked: QueryRequest) -> QueryOptions:
        """The options of a query, with the default loss where neither they nor the text state one."""
        default = self.service.epsilon if asked.default_epsilon is None else asked.default_epsilon
        if default is None or asked.options.keys() & {"epsilon", "target_error"}:
            return asked.options
        said = stated(asked.sql, asked.options.get("dialect") or "duckdb")
        if said.epsilon is not None or said.target_error is not None:
            return asked.options
        return {**asked.options, "epsilon": default}

    def _document(
        self, user: User, asked: QueryRequest, loss: Any, answered: tuple[Asker, Result, str]
    ) -> bytes:
        asker, result, form = answered
        try:
            beside = {
                "answer": self.answers.keep(user.name, result),
                "cost": charged(
                    result.receipt, None if loss is None else amount(loss), asker.left(result.receipt)
                ).splitlines(),
            }
            if form == ARROW:
                return as_arrow(result, {**beside, **wire.written_beside(result, asked.confidences)})
            return dumped({**beside, **wire.written(result, asked.confidences)})
        except Exception as error:
            error.__dict__["charged"] = bool(result.receipt.entries)
            raise

    async def _explain(self, request: Request, user: User) -> Response:
        asked = query_request(await self._body(request))
        request.state.sql = asked.sql
        _require_asking(user)
        running, peer = Running(self.service, user), peer_of(request)

        def ask(connection: Connection) -> Any:
            with self._audited(user, peer, "explain"):
                explained = connection.explain(asked.sql, asked.parameters, **self._terms(asked))
            return wire.written_explanation(explained)

        return as_json(await self._run(request, running, lambda: running.with_connection(ask), asked.seconds))

    async def _price(self, request: Request, user: User) -> Response:
        asked = price_request(await self._body(request))
        if len(asked.queries) == 1:
            request.state.sql = asked.queries[0]
        _require_asking(user)
        running, peer = Running(self.service, user), peer_of(request)
        loss = self.service.epsilon if asked.epsilon is None else asked.epsilon

        def ask(connection: Connection) -> Any:
            with self._audited(user, peer, "price"):
                found = connection.budget(asked.queries, epsilon=loss, dialect=asked.dialect)
            return {**records.written(found), "fits": found.fits}

        return as_json(await self._run(request, running, lambda: running.with_connection(ask)))

    # What is known without a query.

    async def _budget(self, request: Request, user: User) -> Response:
        everyone = request.query_params.get("all", "") in ("1", "true")
        if everyone and not user.role.oversees:
            raise _forbidden(f"{user.name} is {user.role.value}, who sees the own budget and those of tables")
        running = Running(self.service, user)

        def states(connection: Connection) -> Any:
            found = connection.engine.ledger.states() if everyone else connection.budget().values()
            return {"budgets": [{"name": state.name, **records.written(state)} for state in found]}

        return as_json(
            await self._run(request, running, lambda: running.with_connection(states), lane=Lane.looking)
        )

    # Sessions of the web page.

    async def _begin(self, request: Request, user: User) -> Response:
        return as_json({"session": request.state.session, "seconds": LONGEST, **self._who(user)})

    async def _logins(self, _: Request, __: User) -> Response:
        """By what one may log in, beside passwords and tokens."""
        provider = self.access.provider
        return as_json({"issuer": None if provider is None else provider.name})

    async def _begin_elsewhere(self, request: Request, _: User) -> Response:
        binder = login_request(await self._body(request))
        return as_json({"address": await self.access.address(binder, peer_of(request))})

    async def _begin_by_code(self, request: Request, _: User) -> Response:
        state, code, secret = code_request(await self._body(request))
        user, session = await self.access.begin_by_code(state, code, secret, peer_of(request))
        return as_json({"session": session, "seconds": LONGEST, **self._who(user)})

    async def _session(self, _: Request, user: User) -> Response:
        return as_json(self._who(user))

    async def _end(self, request: Request, user: User) -> Response:
        self.access.end(request.headers.getlist("authorization"))
        return as_json(self._who(user))

    def _who(self, user: User) -> dict[str, Any]:
        default = self.service.epsilon
        if default is None and self.service.policy.default_epsilon is not None:
            default = str(self.service.policy.default_epsilon)
        return {
            "user": user.name,
            "role": user.role.value,
            "asks": user.role.asks,
            "oversees": user.role.oversees,
            "default_epsilon": default,
        }

    # What owners and auditors see.

    async def _entries(self, request: Request, user: User) -> Response:
        _require_overseeing(user)
        most = limit_of(request)

        def entries() -> Any:
            with closing(self._reader()) as history:
                found = history.last(most)
            return {"entries": [full_entry(each) for each in reversed(found)]}

        return as_json(await self._look(request, user, entries))

    async def _users(self, request: Request, user: User) -> Response:
        _require_overseeing(user)

        def listed() -> Any:
            store = self.service.users
            return {
                "users": [
                    {"name": each.name, "role": each.role.value, "created": each.created.isoformat()}
                    for each in store.list()
                ],
                "tokens": [
                    {
                        "id": each.id,
                        "user": each.user,
                        "name": each.label,
                        "created": each.created.isoformat(),
                        "expires": each.expires.isoformat(),
                    }
                    for each in store.tokens()
                ],
            }

        return as_json(await self._look(request, user, listed))

    async def _policy(self, _: Request, user: User) -> Response:
        _require_overseeing(user)
        policy = self.service.policy
        return as_json(
            {
                "digest": policy.digest(),
                "advice": list(advice(policy)),
                "policy": policy.model_dump(mode="json", exclude_defaults=True),
            }
        )

    async def _reload(self, request: Request, user: User) -> Response:
        if not user.role.owns:
            raise _forbidden(f"{user.name} is {user.role.value}; this is for owners")
        await reload(self.service, self._log, user.name)
        return await self._policy(request, user)

    # What runs.

    async def _statements(self, _: Request, user: User) -> Response:
        return as_json({"statements": [statement_of(each) for each in self.service.activity.seen_by(user)]})

    async def _end_statement(self, request: Request, user: User) -> Response:
        number = number_in_path(request, "pid")
        found = None if number is None else self.service.activity.of(user, number)
        if found is None:
            raise ProgrammingError(
                "there is no statement of this number that you may end",
                code="not_found",
                hint="GET /v1/statements lists them",
            )

        def end() -> Any:
            self.service.end(found, user, session=False)
            return {"ended": found.number}

        return as_json(await self._look(request, user, end))

    async def _look(self, request: Request, user: User, work: Callable[[], _T]) -> _T:
        """What `work` gives that reaches no private rows, in a turn among its like."""
        return await self._run(request, Running(self.service, user), work, lane=Lane.looking)

    async def _history(self, request: Request, user: User) -> Response:
        most, analyst = limit_of(request), self.service.policy.analyst(user.name)

        def entries() -> Any:
            with closing(self._reader()) as history:
                found = history.last(most, analyst=analyst, kind="charge")
            return {"history": [entry_of(each) for each in reversed(found)]}

        return as_json(await self._look(request, user, entries))

    async def _receipt(self, request: Request, user: User) -> Response:
        number = number_in_path(request, "entry")
        if number is None:
            raise ProgrammingError(_NO_DIGITS, code="not_found", hint="GET /v1/history lists them")
        analyst = self.service.policy.analyst(user.name)

        def entries() -> list[Entry]:
            with closing(self._reader()) as history:
                return history.charge(number)

        found = await self._look(request, user, entries)
        if not found or (not user.role.oversees and any(each.analyst != analyst for each in found)):
            raise ProgrammingError(_NO_DIGITS, code="not_found", hint="GET /v1/history lists them")
        return as_json(
            {
                "entries": [{**entry_of(each), "digest": each.digest} for each in found],
                "details": dict(found[0].details),
            }
        )

    def _reader(self) -> LedgerReader:
        return LedgerReader.open(self.service.ledger, self.service.ledger_key)

    async def _intervals(self, request: Request, user: User) -> Response:
        confidence = confidence_of(number_of(request.query_params.get("confidence", "0.95")))
        number = str(request.path_params["answer"])
        found = await self._run(
            request,
            Running(self.service, user),
            lambda: wire.written_intervals(self.answers.intervals(user.name, number, confidence)),
        )
        return as_json({"confidence": confidence, "ends": found})

    async def _catalogue(self, request: Request, user: User) -> Response:
        running = Running(self.service, user)

        def described(connection: Connection) -> Any:
            return records.written(Description.of(self.service.policy, connection.engine.catalog))

        return as_json(
            await self._run(request, running, lambda: running.with_connection(described), lane=Lane.looking)
        )

    async def _words(self, _: Request, __: User) -> Response:
        """What an editor completes and highlights, beside the names of the catalogue."""
        return as_json({"keywords": list(KEYWORDS), "functions": list(functions())})

    async def _metrics(self, _: Request, user: User) -> Response:
        _require_overseeing(user)
        asking, running = self.service.turns.counts()
        gauges = {
            "dpsql_statements_running": ("Statements that run, of both doors.", float(running)),
            "dpsql_statements_waiting": ("Statements that wait for their turn.", float(asking - running)),
            "dpsql_http_connections": ("Open connections of the HTTP API.", float(self._connections())),
            "dpsql_http_logins_refused_total": (
                "Requests without a valid token or password.",
                float(self.access.failures),
            ),
        }
        return Response(self.metrics.text(gauges), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    # What anybody may know.

    async def _health(self, _: Request) -> Response:
        return as_json({"status": "stopping" if self.stopping else "ok"}, 503 if self.stopping else 200)

    async def _openapi(self, _: Request) -> Response:
        return as_json(openapi.DOCUMENT)

    async def _file(self, request: Request) -> Response:
        """A file of the web page, which is the same for everybody."""
        found = page.FILES.get(str(request.path_params.get("name", "index.html")))
        if found is None:
            return await self._unknown(request, HTTPException(404))
        return Response(found.content, headers=page.HEADERS, media_type=found.type)

    async def _body(self, request: Request) -> Any:
        return await body_of(request, self.service.limits.login_seconds)


class _Route:
    """A path with its method and who answers it."""

    def __init__(self, path: str, method: str, handler: Handler, *, anonymous: bool = False) -> None:
        self.path, self.method, self.handler, self.anonymous = path, method, handler, anonymous


_NOBODY = User("", Role.auditor, datetime.min.replace(tzinfo=UTC))
"""Whom a login has before it succeeds."""


async def _gone(request: Request) -> None:
    """Returns when the client has left, or was answered."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _require_asking(user: User) -> None:
    if not user.role.asks:
        raise _forbidden(f"{user.name} is {user.role.value}, who asks nothing")


def _require_room(request: Request, user: User) -> None:
    """Raises OperationalError (`busy`) where a connection beyond the limits is not an owner's."""
    late = getattr(request.state, "late", None)
    if late is None:
        return
    if not user.role.owns:
        raise OperationalError("the server has too many connections", code="busy", hint="try again later")
    late.is_owners = True


def _require_overseeing(user: User) -> None:
    if not user.role.oversees:
        raise _forbidden(f"{user.name} is {user.role.value}; this is for owners and auditors")


def _forbidden(message: str) -> ProgrammingError:
    return ProgrammingError(message, code="forbidden")
