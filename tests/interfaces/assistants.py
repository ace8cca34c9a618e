"""Assistants as the SDK's own client: over standard input and output, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from interfaces.server.conftest import Served, serving

needs_sdk = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None and not os.environ.get("CI"), reason="mcp is not installed"
)
"""Skips a test where the SDK is missing, but not in CI."""

COUNT = "SELECT COUNT(*) AS n FROM visits"
BY_PLAN = "SELECT plan, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY plan"


@dataclass(frozen=True)
class Said:
    """What a call returned: its text, its data, and whether it is an error."""

    text: str
    data: dict[str, Any]
    is_error: bool

    @property
    def code(self) -> str:
        """The code of an error."""
        assert self.is_error, self.text
        return str(self.data["error"]["code"])


class Assistant:
    """One client of a server."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Said:
        """Call a tool, and compare the data of the two forms in which it is returned."""
        found = await self.client.call_tool(tool, arguments)
        (content,) = found.content
        return Said(content.text, found.structured_content, bool(found.is_error))

    async def query(self, sql: str = COUNT, **arguments: Any) -> Said:
        """Ask a question."""
        return await self.call("query", sql=sql, **arguments)


Connect = Callable[[], AbstractAsyncContextManager[Assistant]]


def run(connect: Connect, work: Callable[[Assistant], Coroutine[Any, Any, Any]]) -> Any:
    """What a piece of work with one client returns."""

    async def run_connected() -> Any:
        async with connect() as assistant:
            return await work(assistant)

    return asyncio.run(run_connected())


def ask(connect: Connect, tool: str, **arguments: Any) -> Said:
    """What one call of a client of its own returns."""
    found = run(connect, lambda assistant: assistant.call(tool, **arguments))
    assert isinstance(found, Said)
    return found


def over_streams(arguments: Sequence[object], mode: str = "auto") -> Connect:
    """A client that starts `dpsql mcp` with these arguments."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = [
        "-c",
        "from dpsql.interfaces.cli import main; main()",
        "mcp",
        *(str(each) for each in arguments),
    ]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}

    @asynccontextmanager
    async def connect() -> AsyncIterator[Assistant]:
        server = StdioServerParameters(command=sys.executable, args=command, env=environment)
        transport = stdio_client(server, errlog=subprocess.DEVNULL)  # type: ignore[arg-type]
        async with Client(transport, mode=mode, read_timeout_seconds=60) as client:
            yield Assistant(client)

    return connect


def over_http(served: Served, user: str = "ana", *, token: str | None = None, mode: str = "auto") -> Connect:
    """A client of a server, with a token of a user."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    secret = served.token(user) if token is None else token

    @asynccontextmanager
    async def connect() -> AsyncIterator[Assistant]:
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{served.http}/mcp", http_client=http)
            async with Client(transport, mode=mode, read_timeout_seconds=60) as client:
                yield Assistant(client)

    return connect


@contextmanager
def serving_assistants(
    folder: Path, *, max_epsilon: str | None = None, budget: str | None = None, **options: Any
) -> Any:
    """A server with the path of assistants, until the end."""
    from dpsql.interfaces.mcp.allowances import AllowanceStore, AssistantLimits
    from dpsql.interfaces.mcp.calls import AssistantCalls
    from dpsql.interfaces.mcp.serving import AssistantEndpoint

    store = AllowanceStore(folder / "clinic.assistants")
    limits = AssistantLimits(
        None if max_epsilon is None else Fraction(max_epsilon), None if budget is None else Fraction(budget)
    )

    def make_endpoint(service: Any, log: Any) -> Any:
        return AssistantEndpoint(AssistantCalls(service, limits, store, log))

    try:
        with serving(folder, assistants=make_endpoint, **options) as served:
            yield served
    finally:
        store.close()
