"""The HTTP API: authorize each request, pass it to its handler, and answer with JSON or Arrow."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.http import page
from dpsql.interfaces.server.http.access import NOBODY, Authenticator, require_room
from dpsql.interfaces.server.http.answers import AnswerCache
from dpsql.interfaces.server.http.calls import Access, ApiCall, ApiContext, ApiRoute, RequestRunner
from dpsql.interfaces.server.http.metrics import Metrics
from dpsql.interfaces.server.http.openapi import ROUTES
from dpsql.interfaces.server.http.requests import get_peer, read_body
from dpsql.interfaces.server.http.responses import get_status, to_json_response
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.users import User
from dpsql.results import json_format

if TYPE_CHECKING:
    from dpsql.interfaces.server.http.oidc import OidcProvider


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
        self.context = ApiContext(
            service,
            log,
            Authenticator(service, log, provider),
            RequestRunner(service),
            AnswerCache(),
            Metrics(),
            connections,
        )
        self.app = Starlette(
            routes=[
                *(Route(each.path, self._make_endpoint(each), methods=[each.method]) for each in ROUTES),
                Route("/", self._get_page_file, methods=["GET"]),
                Route("/page/{name}", self._get_page_file, methods=["GET"]),
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
        self.context.metrics.count_response(route.path, response.status_code, seconds)
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
        self.context.metrics.count_response("", found, 0)
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
