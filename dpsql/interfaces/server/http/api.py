"""The HTTP API: authorize each request, run it in its turn, and answer with JSON or Arrow.

Requests reach private data only through `Connection.query`, as in the PostgreSQL protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dpsql.engine.schema_description import Description
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.audit import Caller, Outcome
from dpsql.interfaces.server.connections import QueryRunner
from dpsql.interfaces.server.http import openapi, page
from dpsql.interfaces.server.http.access import (
    LONGEST,
    NOBODY,
    Authenticator,
    make_forbidden_error,
    require_auditor_role,
    require_query_role,
    require_room,
)
from dpsql.interfaces.server.http.answers import AnswerCache
from dpsql.interfaces.server.http.metrics import CONTENT_TYPE, Metrics, build_gauges
from dpsql.interfaces.server.http.requests import (
    ARROW,
    QueryRequest,
    get_peer,
    negotiate_media_type,
    parse_code_request,
    parse_confidence,
    parse_limit,
    parse_login_request,
    parse_number,
    parse_path_number,
    parse_query_request,
    parse_quote_request,
    read_body,
    wait_for_disconnect,
)
from dpsql.interfaces.server.http.responses import (
    HEADERS,
    get_status,
    to_arrow_bytes,
    to_entry_json,
    to_full_entry_json,
    to_json_response,
    to_policy_json,
    to_statement_json,
    to_token_json,
    to_user_json,
    write_json,
)
from dpsql.interfaces.server.service import Lane, Service, reload_service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.users import User
from dpsql.interfaces.shell.answers import format_charges
from dpsql.interfaces.shell.completion import KEYWORDS, list_functions
from dpsql.ledger.reader import LedgerReader
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.results import json_format as wire
from dpsql.sql.parse.stated_options import parse_stated_options

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.interfaces.server.http.oidc import OidcProvider
    from dpsql.ledger.protocol import Entry
    from dpsql.results.result import Result

_T = TypeVar("_T")
_NO_DIGITS = "none of your charges has this entry number"

Handler = Callable[["HttpApi", Request, User], Awaitable[Response]]


class HttpApi:
    """The API of a service. `app` is the ASGI application, without sockets."""

    def __init__(
        self,
        service: Service,
        log: Log,
        *,
        connections: Callable[[], int] = lambda: 0,
        provider: OidcProvider | None = None,
    ) -> None:
        self.service, self._log, self._connections = service, log, connections
        self.authenticator, self.answers, self.metrics = (
            Authenticator(service, log, provider),
            AnswerCache(),
            Metrics(),
        )
        self.is_stopping = False
        self._runners = set[StatementRunner]()
        routes = [
            _Route("/v1/query", "POST", HttpApi._answer_query),
            _Route("/v1/combine", "POST", HttpApi._combine_releases),
            _Route("/v1/explain", "POST", HttpApi._explain_query),
            _Route("/v1/price", "POST", HttpApi._compute_quote),
            _Route("/v1/budget", "GET", HttpApi._list_budgets),
            _Route("/v1/history", "GET", HttpApi._list_history),
            _Route("/v1/receipts/{entry}", "GET", HttpApi._get_receipt),
            _Route("/v1/answers/{answer}/intervals", "GET", HttpApi._get_intervals),
            _Route("/v1/catalogue", "GET", HttpApi._describe_schema),
            _Route("/v1/words", "GET", HttpApi._list_words),
            _Route("/v1/session", "POST", HttpApi._begin_session),
            _Route("/v1/login", "GET", HttpApi._get_issuer, anonymous=True),
            _Route("/v1/login", "POST", HttpApi._begin_issuer_login, anonymous=True),
            _Route("/v1/login/code", "POST", HttpApi._begin_session_by_code, anonymous=True),
            _Route("/v1/session", "GET", HttpApi._get_session),
            _Route("/v1/session", "DELETE", HttpApi._end_session),
            _Route("/v1/entries", "GET", HttpApi._list_entries),
            _Route("/v1/users", "GET", HttpApi._list_users),
            _Route("/v1/statements", "GET", HttpApi._list_statements),
            _Route("/v1/statements/{pid}", "DELETE", HttpApi._stop_statement),
            _Route("/v1/policy", "GET", HttpApi._get_policy),
            _Route("/v1/reload", "POST", HttpApi._reload_service),
            _Route("/metrics", "GET", HttpApi._render_metrics),
        ]
        self.app = Starlette(
            routes=[
                *(Route(each.path, self._make_endpoint(each), methods=[each.method]) for each in routes),
                Route("/health", self._get_health, methods=["GET"]),
                Route("/v1/openapi.json", self._get_openapi, methods=["GET"]),
                Route("/", self._get_page_file, methods=["GET"]),
                Route("/page/{name}", self._get_page_file, methods=["GET"]),
            ],
            exception_handlers={HTTPException: self._refuse_unknown_path},
        )
        # A redirect would be to the host that a client names, and unencrypted behind a proxy.
        self.app.router.redirect_slashes = False

    def stop_statements(self) -> None:
        """Stop all running and waiting statements when the server stops."""
        for running in self._runners:
            running.stop()

    # The path of every request.

    def _make_endpoint(self, route: _Route) -> Callable[[Request], Awaitable[Response]]:
        async def handle_request(request: Request) -> Response:
            return await self._handle_request(route, request)

        return handle_request

    async def _handle_request(self, route: _Route, request: Request) -> Response:
        begun, peer = time.monotonic(), get_peer(request)
        facts: dict[str, Any] = {}
        try:
            self._require_serving()
            proof = request.headers.getlist("authorization")
            if route.anonymous:
                require_room(request, NOBODY)
                response = await route.handler(self, request, NOBODY)
            else:
                if route.handler is HttpApi._begin_session:
                    user, request.state.session = await self.authenticator.begin_session(proof, peer)
                else:
                    user = await self.authenticator.authenticate_request(proof, peer)
                require_room(request, user)
                facts["user"] = user.name
                response = await route.handler(self, request, user)
        except Error as error:
            response = self._make_error_response(error, getattr(request.state, "sql", None))
            facts["code"] = error.code
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            self._log("failure", peer=peer, error=type(error).__name__, door="http")
            response = self._make_error_response(
                json_format.make_unforeseen_error(getattr(error, "charged", None))
            )
            facts["code"] = "internal"
        seconds = time.monotonic() - begun
        self.metrics.count_response(route.path, response.status_code, seconds)
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
        if self.is_stopping:
            raise OperationalError("the server is stopping", code="stopping", hint="try again later")

    def _make_error_response(self, error: Error, sql: str | None = None) -> Response:
        number = get_status(error)
        response = to_json_response({"error": json_format.write_error(error, sql)}, number)
        if number == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="dpsql"'
        if number in (401, 408, 413, 415, 503):
            response.headers["Connection"] = "close"  # the rest of a body is not read
        return response

    async def _refuse_unknown_path(self, request: Request, error: Exception) -> Response:
        """Answer a request with an unknown path or method, which Starlette refuses."""
        del request
        found = error.status_code if isinstance(error, HTTPException) else 500
        code, message = {
            404: ("not_found", "unknown path"),
            405: ("method", "this path does not support this method"),
        }.get(found, ("request", "malformed request"))
        self.metrics.count_response("", found, 0)
        body = json_format.write_error(
            ProgrammingError(message, code=code, hint="GET /v1/openapi.json lists all paths")
        )
        return to_json_response({"error": body}, found)

    async def _run_work(
        self,
        request: Request,
        runner: StatementRunner,
        work: Callable[[], _T],
        seconds: float | None = None,
        lane: Lane = Lane.query,
    ) -> _T:
        """Run `work` in its turn. If the client disconnects, waiting work is cancelled, but a charged answer is not lost."""
        self._runners.add(runner)
        runner.text = getattr(request.state, "sql", request.url.path)
        activity = self.service.activity
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
            self._runners.discard(runner)
            activity.remove_client(number)
        raise OperationalError(
            "the query was cancelled before it began; nothing was charged", code="not_begun"
        )

    # Queries.

    async def _answer_query(self, request: Request, user: User) -> Response:
        asked, form = parse_query_request(await self._read_body(request)), negotiate_media_type(request)
        request.state.sql = asked.sql
        require_query_role(user)
        running, peer = StatementRunner(self.service, user), get_peer(request)

        def run_query(query_runner: QueryRunner) -> bytes:
            terms = self._resolve_options(asked)
            with self._audit_request(user, peer, "query") as outcome:
                result = query_runner.query(asked.sql, asked.parameters, **terms)
                outcome.record_answer(result)
            loss = self.service.resolve_loss(
                asked.sql, terms.get("dialect") or "duckdb", terms.get("epsilon")
            )
            return self._serialize_answer(user, asked, loss, (query_runner, result, form))

        body = await self._run_work(
            request, running, lambda: running.run_with_query_runner(run_query), asked.seconds
        )
        return Response(body, headers=HEADERS, media_type=form)

    async def _combine_releases(self, request: Request, user: User) -> Response:
        asked, form = parse_query_request(await self._read_body(request)), negotiate_media_type(request)
        request.state.sql = asked.sql
        require_query_role(user)
        if unknown := asked.options.keys() - {"max_groups", "dialect"}:
            raise ProgrammingError(
                f"combine does not take {min(unknown)}; use only max_groups and dialect", code="argument"
            )
        running, peer = StatementRunner(self.service, user), get_peer(request)

        def run_combine(connection: Connection) -> bytes:
            options = asked.options
            with self._audit_request(user, peer, "combine") as outcome:
                result = connection.combine(
                    asked.sql,
                    asked.parameters,
                    max_groups=options.get("max_groups"),
                    dialect=options.get("dialect"),
                )
                outcome.record_answer(result)
            return self._serialize_answer(user, asked, None, (connection, result, form))

        body = await self._run_work(
            request, running, lambda: running.run_with_connection(run_combine), asked.seconds
        )
        return Response(body, headers=HEADERS, media_type=form)

    def _audit_request(self, user: User, peer: str, what: str) -> AbstractContextManager[Outcome]:
        """Record the caller and the outcome of a request in the audit log."""
        caller = Caller(user.name, self.service.policy.resolve_analyst_name(user.name), "http", peer)
        return self.service.audit.audit_request(caller, what)

    def _resolve_options(self, asked: QueryRequest) -> QueryOptions:
        """Return the options of a query, with the default loss if neither they nor the text state one."""
        default = self.service.epsilon if asked.default_epsilon is None else asked.default_epsilon
        if default is None or asked.options.keys() & {"epsilon", "target_error"}:
            return asked.options
        said = parse_stated_options(asked.sql, asked.options.get("dialect") or "duckdb")
        if said.epsilon is not None or said.target_error is not None:
            return asked.options
        return {**asked.options, "epsilon": default}

    def _serialize_answer(
        self, user: User, asked: QueryRequest, loss: Any, answered: tuple[QueryRunner, Result, str]
    ) -> bytes:
        asker, result, form = answered
        try:
            beside = {
                "answer": self.answers.keep_answer(user.name, result),
                "cost": format_charges(
                    result.receipt,
                    None if loss is None else parse_amount(loss),
                    asker.remaining_budget(result.receipt),
                ).splitlines(),
            }
            if form == ARROW:
                return to_arrow_bytes(
                    result, {**beside, **wire.write_all_but_rows(result, asked.confidences)}
                )
            return write_json({**beside, **wire.write_answer(result, asked.confidences)})
        except Exception as error:
            error.__dict__["charged"] = bool(result.receipt.entries)
            raise

    async def _explain_query(self, request: Request, user: User) -> Response:
        asked = parse_query_request(await self._read_body(request))
        request.state.sql = asked.sql
        require_query_role(user)
        running, peer = StatementRunner(self.service, user), get_peer(request)

        def run_explain(connection: Connection) -> Any:
            with self._audit_request(user, peer, "explain"):
                explained = connection.explain(asked.sql, asked.parameters, **self._resolve_options(asked))
            return wire.write_explanation(explained)

        return to_json_response(
            await self._run_work(
                request, running, lambda: running.run_with_connection(run_explain), asked.seconds
            )
        )

    async def _compute_quote(self, request: Request, user: User) -> Response:
        asked = parse_quote_request(await self._read_body(request))
        if len(asked.queries) == 1:
            request.state.sql = asked.queries[0]
        require_query_role(user)
        running, peer = StatementRunner(self.service, user), get_peer(request)
        loss = self.service.epsilon if asked.epsilon is None else asked.epsilon

        def run_quote(connection: Connection) -> Any:
            with self._audit_request(user, peer, "price"):
                found = connection.budget(asked.queries, epsilon=loss, dialect=asked.dialect)
            return {**json_format.write_record(found), "fits": found.fits}

        return to_json_response(
            await self._run_work(request, running, lambda: running.run_with_connection(run_quote))
        )

    # Budgets.

    async def _list_budgets(self, request: Request, user: User) -> Response:
        everyone = request.query_params.get("all", "") in ("1", "true")
        if everyone and not user.role.can_view_all:
            raise make_forbidden_error(
                f"{user.name} has the role {user.role.value}, which sees its own budget and those of tables only"
            )
        running = StatementRunner(self.service, user)

        def list_states(connection: Connection) -> Any:
            found = connection.engine.ledger.list_states() if everyone else connection.budget().values()
            return {"budgets": [{"name": state.name, **json_format.write_record(state)} for state in found]}

        return to_json_response(
            await self._run_work(
                request, running, lambda: running.run_with_connection(list_states), lane=Lane.lookup
            )
        )

    # Sessions of the web page.

    async def _begin_session(self, request: Request, user: User) -> Response:
        return to_json_response(
            {"session": request.state.session, "seconds": LONGEST, **self._describe_user(user)}
        )

    async def _get_issuer(self, _: Request, __: User) -> Response:
        """Return the OpenID Connect issuer, if there is one."""
        provider = self.authenticator.provider
        return to_json_response({"issuer": None if provider is None else provider.name})

    async def _begin_issuer_login(self, request: Request, _: User) -> Response:
        binder = parse_login_request(await self._read_body(request))
        return to_json_response(
            {"address": await self.authenticator.begin_issuer_login(binder, get_peer(request))}
        )

    async def _begin_session_by_code(self, request: Request, _: User) -> Response:
        state, code, secret = parse_code_request(await self._read_body(request))
        user, session = await self.authenticator.begin_session_by_code(state, code, secret, get_peer(request))
        return to_json_response({"session": session, "seconds": LONGEST, **self._describe_user(user)})

    async def _get_session(self, _: Request, user: User) -> Response:
        return to_json_response(self._describe_user(user))

    async def _end_session(self, request: Request, user: User) -> Response:
        self.authenticator.end_session(request.headers.getlist("authorization"))
        return to_json_response(self._describe_user(user))

    def _describe_user(self, user: User) -> dict[str, Any]:
        default = self.service.epsilon
        if default is None and self.service.policy.default_epsilon is not None:
            default = str(self.service.policy.default_epsilon)
        return {
            "user": user.name,
            "role": user.role.value,
            "asks": user.role.can_query,
            "oversees": user.role.can_view_all,
            "default_epsilon": default,
        }

    # Requests of owners and auditors.

    async def _list_entries(self, request: Request, user: User) -> Response:
        require_auditor_role(user)
        most = parse_limit(request)

        def read_entries() -> Any:
            with closing(self._open_ledger_reader()) as history:
                found = history.list_last_entries(most)
            return {"entries": [to_full_entry_json(each) for each in reversed(found)]}

        return to_json_response(await self._run_lookup(request, user, read_entries))

    async def _list_users(self, request: Request, user: User) -> Response:
        require_auditor_role(user)

        def list_users() -> Any:
            store = self.service.users
            return {
                "users": [to_user_json(each) for each in store.list_users()],
                "tokens": [to_token_json(each) for each in store.list_tokens()],
            }

        return to_json_response(await self._run_lookup(request, user, list_users))

    async def _get_policy(self, _: Request, user: User) -> Response:
        require_auditor_role(user)
        return to_json_response(to_policy_json(self.service.policy))

    async def _reload_service(self, request: Request, user: User) -> Response:
        if not user.role.is_owner:
            raise make_forbidden_error(f"{user.name} has the role {user.role.value}; only owners may do this")
        await reload_service(self.service, self._log, user.name)
        return await self._get_policy(request, user)

    # Running statements.

    async def _list_statements(self, _: Request, user: User) -> Response:
        rows = self.service.activity.list_visible_rows(user)
        return to_json_response({"statements": [to_statement_json(each) for each in rows]})

    async def _stop_statement(self, request: Request, user: User) -> Response:
        number = parse_path_number(request, "pid")
        found = None if number is None else self.service.activity.find_client(user, number)
        if found is None:
            raise ProgrammingError(
                "no statement that you may end has this number",
                code="not_found",
                hint="GET /v1/statements lists the statements",
            )

        def stop_statement() -> Any:
            self.service.stop_client(found, user, session=False)
            return {"ended": found.number}

        return to_json_response(await self._run_lookup(request, user, stop_statement))

    async def _run_lookup(self, request: Request, user: User, work: Callable[[], _T]) -> _T:
        """Run work that reads no private rows, in its own lane."""
        return await self._run_work(request, StatementRunner(self.service, user), work, lane=Lane.lookup)

    async def _list_history(self, request: Request, user: User) -> Response:
        most, analyst = parse_limit(request), self.service.policy.resolve_analyst_name(user.name)

        def read_entries() -> Any:
            with closing(self._open_ledger_reader()) as history:
                found = history.list_last_entries(most, analyst=analyst, kind="charge")
            return {"history": [to_entry_json(each) for each in reversed(found)]}

        return to_json_response(await self._run_lookup(request, user, read_entries))

    async def _get_receipt(self, request: Request, user: User) -> Response:
        number = parse_path_number(request, "entry")
        if number is None:
            raise ProgrammingError(_NO_DIGITS, code="not_found", hint="GET /v1/history lists your charges")
        analyst = self.service.policy.resolve_analyst_name(user.name)

        def read_entries() -> list[Entry]:
            with closing(self._open_ledger_reader()) as history:
                return history.list_charge_entries(number)

        found = await self._run_lookup(request, user, read_entries)
        if not found or (not user.role.can_view_all and any(each.analyst != analyst for each in found)):
            raise ProgrammingError(_NO_DIGITS, code="not_found", hint="GET /v1/history lists your charges")
        return to_json_response(
            {
                "entries": [{**to_entry_json(each), "digest": each.digest} for each in found],
                "details": dict(found[0].details),
            }
        )

    def _open_ledger_reader(self) -> LedgerReader:
        return LedgerReader.open(self.service.ledger, self.service.ledger_key)

    async def _get_intervals(self, request: Request, user: User) -> Response:
        confidence = parse_confidence(parse_number(request.query_params.get("confidence", "0.95")))
        number = str(request.path_params["answer"])
        found = await self._run_work(
            request,
            StatementRunner(self.service, user),
            lambda: wire.write_intervals(self.answers.get_intervals(user.name, number, confidence)),
        )
        return to_json_response({"confidence": confidence, "ends": found})

    async def _describe_schema(self, request: Request, user: User) -> Response:
        running = StatementRunner(self.service, user)

        def describe_schema(connection: Connection) -> Any:
            return json_format.write_record(
                Description.from_catalog(self.service.policy, connection.engine.catalog)
            )

        return to_json_response(
            await self._run_work(
                request, running, lambda: running.run_with_connection(describe_schema), lane=Lane.lookup
            )
        )

    async def _list_words(self, _: Request, __: User) -> Response:
        """Return the keywords and functions that an editor completes and highlights."""
        return to_json_response({"keywords": list(KEYWORDS), "functions": list(list_functions())})

    async def _render_metrics(self, _: Request, user: User) -> Response:
        require_auditor_role(user)
        asking, running = self.service.turns.count_statements()
        gauges = build_gauges(running, asking - running, self._connections(), self.authenticator.failures)
        return Response(self.metrics.render_text(gauges), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    # Public requests.

    async def _get_health(self, _: Request) -> Response:
        return to_json_response(
            {"status": "stopping" if self.is_stopping else "ok"}, 503 if self.is_stopping else 200
        )

    async def _get_openapi(self, _: Request) -> Response:
        return to_json_response(openapi.DOCUMENT)

    async def _get_page_file(self, request: Request) -> Response:
        """Return a file of the web page, which is the same for all users."""
        found = page.FILES.get(str(request.path_params.get("name", "index.html")))
        if found is None:
            return await self._refuse_unknown_path(request, HTTPException(404))
        return Response(found.content, headers=page.HEADERS, media_type=found.type)

    async def _read_body(self, request: Request) -> Any:
        return await read_body(request, self.service.limits.login_seconds)


class _Route:
    """A path with its method and handler."""

    def __init__(self, path: str, method: str, handler: Handler, *, anonymous: bool = False) -> None:
        self.path, self.method, self.handler, self.anonymous = path, method, handler, anonymous
