"""The HTTP API: one table of routes with their OpenAPI description, and the application that authorizes and answers requests."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.http import handlers, page
from dpsql.interfaces.server.http.access import NOBODY, Authenticator, require_room
from dpsql.interfaces.server.http.bodies import (
    AddressBody,
    AnswerBody,
    BudgetsBody,
    CallerBody,
    CellIntervals,
    CodeBody,
    CombineBody,
    EndedBody,
    EntriesBody,
    ErrorBody,
    ExplanationBody,
    HealthBody,
    HistoryBody,
    IssuerBody,
    LoginBody,
    PolicyBody,
    QueryBody,
    QuoteBody,
    ReceiptBody,
    SessionBody,
    StatementsBody,
    UsersBody,
    WordsBody,
)
from dpsql.interfaces.server.http.calls import (
    Access,
    AnswerCache,
    ApiCall,
    ApiContext,
    ApiRoute,
    RequestRunner,
)
from dpsql.interfaces.server.http.messages import ARROW, get_peer, get_status, read_body, to_json_response
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.users import User
from dpsql.results import json_format
from dpsql.version import VERSION

if TYPE_CHECKING:
    from dpsql.interfaces.server.http.oidc import OidcProvider


# The routes of the HTTP API in one table, and the OpenAPI description that follows from it.


async def get_openapi(_: ApiCall[None]) -> Response:
    """Return this description."""
    return to_json_response(DOCUMENT)


ROUTES = (
    ApiRoute("POST", "/v1/query", handlers.answer_query, "Answer a SELECT privately and charge it.",
             QueryBody, AnswerBody, has_arrow=True),
    ApiRoute("POST", "/v1/combine", handlers.combine_releases,
             "Compute the most accurate answer from stored releases, at no charge.",
             CombineBody, AnswerBody, has_arrow=True),
    ApiRoute("POST", "/v1/explain", handlers.explain_query, "Show the plan, its proofs and its price, at no charge.",
             QueryBody, ExplanationBody),
    ApiRoute("POST", "/v1/price", handlers.compute_quote, "Compute the joint charge of queries, at no charge.",
             QuoteBody),
    ApiRoute("GET", "/v1/answers/{answer}/intervals", handlers.compute_intervals,
             "Compute the intervals of a recent answer at another confidence, at no charge.",
             answer=CellIntervals, query=("confidence",)),
    ApiRoute("GET", "/v1/budget", handlers.list_budgets,
             "List the budgets of tables and the caller's own budgets; all budgets for owners and auditors.",
             answer=BudgetsBody, query=("all",)),
    ApiRoute("GET", "/v1/history", handlers.list_history, "List the caller's charges, newest first.",
             answer=HistoryBody, query=("limit",)),
    ApiRoute("GET", "/v1/receipts/{entry}", handlers.get_receipt,
             "Return the ledger's entries of one of the caller's charges.", answer=ReceiptBody),
    ApiRoute("GET", "/v1/entries", handlers.list_entries,
             "List the ledger's entries, newest first, for owners and auditors.",
             answer=EntriesBody, query=("limit",)),
    ApiRoute("GET", "/v1/catalogue", handlers.describe_schema,
             "List tables, columns, bounds and public values, from the policy."),
    ApiRoute("GET", "/v1/words", handlers.list_words, "List keywords and functions, for editors.",
             answer=WordsBody),
    ApiRoute("GET", "/v1/login", handlers.get_issuer, "Return the OpenID Connect issuer, or null.",
             answer=IssuerBody, access=Access.logins),
    ApiRoute("POST", "/v1/login", handlers.begin_issuer_login,
             "Start a login: return the issuer's login address. `binder` is the SHA-256 digest of the client's"
             " secret, in base64url.", LoginBody, AddressBody, access=Access.logins),
    ApiRoute("POST", "/v1/login/code", handlers.begin_session_by_code,
             "Open a session with the issuer's state and code and the client's secret.",
             CodeBody, SessionBody, access=Access.logins),
    ApiRoute("POST", "/v1/session", handlers.begin_session,
             "Open a session with a name and password, as a substitute for a token; it expires after some hours.",
             answer=SessionBody, access=Access.passwords),
    ApiRoute("GET", "/v1/session", handlers.get_session, "Return the caller.", answer=CallerBody),
    ApiRoute("DELETE", "/v1/session", handlers.end_session, "End the session.", answer=CallerBody),
    ApiRoute("GET", "/v1/users", handlers.list_users,
             "List users and tokens, without secrets, for owners and auditors.", answer=UsersBody),
    ApiRoute("GET", "/v1/statements", handlers.list_statements,
             "List statements and connections: the caller's, and all for owners and auditors.",
             answer=StatementsBody),
    ApiRoute("DELETE", "/v1/statements/{pid}", handlers.stop_statement,
             "Stop one of the caller's statements, or any statement for owners.", answer=EndedBody),
    ApiRoute("GET", "/v1/policy", handlers.get_policy, "Return the server's policy, for owners and auditors.",
             answer=PolicyBody),
    ApiRoute("POST", "/v1/reload", handlers.reload_policy, "Reload the policy, the data and the users, for owners.",
             answer=PolicyBody),
    ApiRoute("GET", "/metrics", handlers.render_metrics, "Return metrics for monitoring, for owners and auditors.",
             answer=None),
    ApiRoute("GET", "/health", handlers.get_health, "Return whether the server accepts queries.",
             answer=HealthBody, access=Access.everybody),
    ApiRoute("GET", "/v1/openapi.json", get_openapi, "Return this description.", access=Access.everybody),
)  # fmt: skip
"""Every request that programs send; the web page has its own files besides."""


def build_document() -> dict[str, Any]:
    """Return the OpenAPI description of the routes, with the JSON schemas of their bodies."""
    models: set[type[BaseModel]] = {ErrorBody}
    models |= {route.body for route in ROUTES if route.body is not None}
    models |= {route.answer for route in ROUTES if route.answer is not None}
    _, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpsql",
            "version": VERSION,
            "description": "SQL over private data, answered with differential privacy. Exact numbers are strings, such as 1/10.",
        },
        "security": [{"token": []}, {"password": []}],
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
            "schemas": definitions["$defs"],
        },
        "paths": paths,
    }


def _describe_route(route: ApiRoute) -> dict[str, Any]:
    names = [
        *((name, "path") for name in re.findall(r"{(\w+)}", route.path)),
        *((name, "query") for name in route.query),
    ]
    found: dict[str, Any] = {"summary": route.summary}
    if names:
        found["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for name, place in names
        ]
    if route.access in (Access.everybody, Access.logins):
        found["security"] = []
    elif route.access is Access.passwords:
        found["security"] = [{"password": []}]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _describe_json(route.body)}
    content = {"text/plain": {}} if route.answer is None else _describe_json(route.answer)
    if route.has_arrow:
        content[ARROW] = {}
    return {
        **found,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": _describe_json(ErrorBody)},
        },
    }


def _describe_json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


DOCUMENT = build_document()


# The HTTP API: authorize each request, pass it to its handler, and answer with JSON or Arrow.


RouteMaker = Callable[[ApiContext], Iterable[BaseRoute]]
"""A function that returns further routes, which authenticate their requests themselves."""


class HttpApi:
    """The API of a service. `app` is the ASGI application, without sockets."""

    def __init__(
        self,
        service: Service,
        log: Log,
        *,
        connections: Callable[[], int] = lambda: 0,
        provider: OidcProvider | None = None,
        more_routes: RouteMaker | None = None,
    ) -> None:
        self.context = ApiContext(
            service,
            log,
            Authenticator(service, log, provider),
            RequestRunner(service),
            AnswerCache(),
            connections,
        )
        self.app = Starlette(
            routes=[
                *(Route(each.path, self._make_endpoint(each), methods=[each.method]) for each in ROUTES),
                Route("/", self._get_page_file, methods=["GET"]),
                Route("/page/{name}", self._get_page_file, methods=["GET"]),
                *(() if more_routes is None else more_routes(self.context)),
            ],
            exception_handlers={HTTPException: self._refuse_unknown_path},
        )
        # A redirect would be to the host that a client names, and unencrypted behind a proxy.
        self.app.router.redirect_slashes = False

    def begin_stop(self) -> None:
        """Refuse further requests, because the server stops."""
        self.context.is_stopping = True

    def stop_statements(self) -> None:
        """Stop all running and waiting statements."""
        self.context.runner.stop_statements()

    def close(self) -> None:
        """Wait for running lookups of users."""
        self.context.authenticator.close()

    def _make_endpoint(self, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
        async def handle_request(request: Request) -> Response:
            if route.access is Access.everybody:
                return await route.handler(ApiCall(self.context, request, NOBODY, None))
            return await self._handle_request(route, request)

        return handle_request

    async def _handle_request(self, route: ApiRoute, request: Request) -> Response:
        """Answer a request, log and count it; whatever fails is answered with an error of dpsql's."""
        begun, peer = time.monotonic(), get_peer(request)
        facts: dict[str, Any] = {}
        try:
            response = await self._call_handler(route, request, facts)
        except Error as error:
            response = _make_error_response(error, getattr(request.state, "sql", None))
            facts["code"] = error.code
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            self.context.log("failure", peer=peer, error=type(error).__name__, door="http")
            response = _make_error_response(
                json_format.make_unforeseen_error(getattr(error, "charged", None))
            )
            facts["code"] = "internal"
        seconds = time.monotonic() - begun
        self.context.service.metrics.count_response(route.path, response.status_code, seconds)
        self.context.log(
            "request",
            route=route.path,
            status=response.status_code,
            peer=peer,
            seconds=round(seconds, 3),
            **facts,
        )
        return response

    async def _call_handler(self, route: ApiRoute, request: Request, facts: dict[str, Any]) -> Response:
        """Authenticate the caller, then read the body, then call the handler; the user is added to `facts`."""
        if self.context.is_stopping:
            raise OperationalError("the server is stopping", code="stopping", hint="try again later")
        user, session = await self._authenticate_request(route, request)
        require_room(request, user)
        if user is not NOBODY:
            facts["user"] = user.name
        body = None
        if route.body is not None:
            body = await read_body(request, route.body, self.context.service.limits.login_seconds)
        return await route.handler(ApiCall(self.context, request, user, body, session))

    async def _authenticate_request(self, route: ApiRoute, request: Request) -> tuple[User, str]:
        """Return the user, and the secret of the session that the request began, if it did."""
        if route.access is Access.logins:
            return NOBODY, ""
        proof, peer = request.headers.getlist("authorization"), get_peer(request)
        if route.access is Access.passwords:
            return await self.context.authenticator.begin_session(proof, peer)
        return await self.context.authenticator.authenticate_request(proof, peer), ""

    async def _refuse_unknown_path(self, request: Request, error: Exception) -> Response:
        """Answer a request with an unknown path or method, which Starlette refuses."""
        del request
        found = error.status_code if isinstance(error, HTTPException) else 500
        code, message = {
            404: ("not_found", "unknown path"),
            405: ("method", "this path does not support this method"),
        }.get(found, ("request", "malformed request"))
        self.context.service.metrics.count_response("", found, 0)
        body = json_format.write_error(
            ProgrammingError(message, code=code, hint="GET /v1/openapi.json lists all paths")
        )
        return to_json_response({"error": body}, found)

    async def _get_page_file(self, request: Request) -> Response:
        """Return a file of the web page, which is the same for all users."""
        found = page.FILES.get(str(request.path_params.get("name", "index.html")))
        if found is None:
            return await self._refuse_unknown_path(request, HTTPException(404))
        return Response(found.content, headers=page.HEADERS, media_type=found.type)


def _make_error_response(error: Error, sql: str | None = None) -> Response:
    number = get_status(error)
    response = to_json_response({"error": json_format.write_error(error, sql)}, number)
    if number == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="dpsql"'
    if number in (401, 408, 413, 415, 503):
        response.headers["Connection"] = "close"  # the rest of a body is not read
    return response
