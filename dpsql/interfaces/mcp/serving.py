"""The protocol: a server of the official SDK over standard input and output, and as a path of the HTTP API, behind its tokens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.mcp.calls import AssistantCalls
from dpsql.interfaces.mcp.tools import INSTRUCTIONS, TOOLS, ToolSpec
from dpsql.interfaces.server.http.access import require_room
from dpsql.interfaces.server.http.calls import ApiContext
from dpsql.interfaces.server.http.messages import (
    HEADERS,
    MOST_BYTES,
    get_peer,
    get_status,
    read_body_bytes,
    to_json_response,
)
from dpsql.interfaces.server.users import User
from dpsql.results import json_format
from dpsql.version import VERSION

PATH = "/mcp"
_LEFT = 499
"""The status, in metrics and the log, of a request whose client left before its answer."""
_USER, _PEER = "dpsql.user", "dpsql.peer"
Identify = Callable[[Any], tuple[User, str]]
"""A function that returns the user and the address of a request of the protocol."""


def build_server(calls: AssistantCalls, identify: Identify) -> Server[Any]:
    """Return a server of the protocol whose tools are `calls`.

    It has no resources and no prompts: all that an assistant may know is the answer of a tool.
    """

    async def list_tools(_: Any, __: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[_to_tool(each) for each in TOOLS])

    async def call_tool(context: Any, asked: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        user, peer = identify(context)
        outcome = await calls.call_tool(asked.name, asked.arguments, user, peer)
        return mcp_types.CallToolResult(
            content=[mcp_types.TextContent(type="text", text=outcome.text)],
            structured_content=outcome.data,
            is_error=outcome.is_error,
        )

    for name in ("mcp", "sse_starlette"):
        # They may log a message's arguments; calls are logged without them.
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [logging.NullHandler()], False
    schemas: dict[str, Any] = {each.name: each.arguments.model_json_schema() for each in TOOLS}
    server = Server[Any](
        "dpsql",
        version=VERSION,
        title="dpsql: SQL with differential privacy",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=schemas.get,
    )
    # Traces of OpenTelemetry would carry names and times of calls to wherever a program exports them.
    server.middleware.clear()
    return server


@lru_cache
def _to_tool(spec: ToolSpec) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=spec.arguments.model_json_schema(),
        output_schema=spec.answer.model_json_schema(mode="serialization"),
        # A charge is never given back: clients ask a person before a tool that destroys.
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=spec.is_free,
            destructive_hint=not spec.is_free,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


async def serve_standard_streams(calls: AssistantCalls, user: User) -> None:
    """Serve one client over standard input and output until it closes them; `user` makes all calls."""
    server = build_server(calls, lambda _: (user, "stdio"))
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


class AssistantEndpoint:
    """The path of the HTTP API at which assistants call tools, from `start` to `stop`.

    Claim: a call is made by the user of the request's token, whatever the client says or sent before.
    Why: each request is authenticated by itself, as every request of the API; the server keeps no sessions of the protocol, so that
    there is none to take over. A request that names an origin comes from a page in a browser, and is refused unless that page is
    this server's.
    """

    def __init__(self, calls: AssistantCalls) -> None:
        self._calls = calls
        self._context: ApiContext | None = None
        self._sessions = StreamableHTTPSessionManager(
            build_server(calls, _identify_request), stateless=True, max_request_body_size=MOST_BYTES
        )
        self._ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def make_routes(self, context: ApiContext) -> tuple[BaseRoute, ...]:
        """Return the routes for `HttpServer`, whose users and log they share."""
        self._context = context
        return (Route(PATH, self),)

    async def start(self) -> list[int]:
        """Begin to answer; the port is that of the HTTP API."""
        begun = asyncio.Event()

        async def serve_sessions() -> None:
            async with self._sessions.run():
                begun.set()
                await self._ended.wait()

        self._serving = asyncio.ensure_future(serve_sessions())
        await begun.wait()
        return []

    async def stop(self) -> None:
        """Refuse further calls, wait for running statements, and end."""
        seconds = 0.0 if self._context is None else self._context.service.limits.drain_seconds
        await self._calls.stop(seconds)
        self._ended.set()
        if self._serving is not None:
            await self._serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; failures are errors of dpsql's."""
        context = self._context
        if context is None:
            raise RuntimeError("make_routes was not called")
        request, begun, status = Request(scope, receive), time.monotonic(), 0
        facts: dict[str, Any] = {}

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refusal: Error | None = None
        try:
            user = await self._admit_request(context, request)
            facts["user"] = user.name
            body = await read_body_bytes(request, context.service.limits.login_seconds)
            scope[_USER], scope[_PEER] = user, get_peer(request)
            await self._sessions.handle_request(scope, _replay_body(body, receive), send_noting_status)
        except Error as error:
            refusal = error
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            context.log("failure", peer=get_peer(request), error=type(error).__name__, door="mcp")
            refusal = json_format.make_unforeseen_error(None)
        if refusal is not None:
            facts["code"] = refusal.code
            if not status:
                await _make_error_response(refusal)(scope, receive, send_noting_status)
        status = status or _LEFT
        seconds = time.monotonic() - begun
        context.service.metrics.count_response(PATH, status, seconds)
        context.log(
            "request", route=PATH, status=status, peer=get_peer(request), seconds=round(seconds, 3), **facts
        )

    async def _admit_request(self, context: ApiContext, request: Request) -> User:
        """Return the user of a request. Raises Error if it is not to be answered."""
        if context.is_stopping:
            raise OperationalError("the server is stopping", code="stopping", hint="try again later")
        _require_no_other_origin(request)
        if request.method != "POST":
            raise ProgrammingError("this path takes POST only", code="method", hint="there are no sessions")
        user = await context.authenticator.authenticate_request(
            request.headers.getlist("authorization"), get_peer(request)
        )
        require_room(request, user)
        return user


def _identify_request(context: Any) -> tuple[User, str]:
    scope = context.request.scope
    return scope[_USER], scope[_PEER]


def _require_no_other_origin(request: Request) -> None:
    """Raise ProgrammingError (`forbidden`) for a request of a page that is not this server's."""
    origins, hosts = request.headers.getlist("origin"), request.headers.getlist("host")
    for each in origins:
        if len(hosts) != 1 or each.partition("://")[2] != hosts[0]:
            raise ProgrammingError("pages of other sites may not call tools", code="forbidden")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that has been read, and then what follows it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return parts.pop() if parts else await receive()

    return receive_again


def _make_error_response(error: Error) -> Response:
    number = get_status(error)
    response = to_json_response({"error": json_format.write_error(error)}, number)
    response.headers.update(HEADERS)
    if number == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="dpsql"'
    if number == 405:
        response.headers["Allow"] = "POST"
    if number in (401, 408, 413, 503):
        response.headers["Connection"] = "close"  # the rest of a body is not read
    return response
