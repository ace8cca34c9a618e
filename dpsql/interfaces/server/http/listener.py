"""The sockets of the HTTP API: uvicorn's HTTP/1.1 on the event loop that all servers share, within limits of number and time.

uvicorn's own server is not used: it takes the process' signals, and has no time limit for incomplete requests.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dpsql.errors import InternalError, ProgrammingError
from dpsql.interfaces.server.http.api import HttpApi, RouteMaker
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log, get_network, log_event, make_port_error, require_encryption
from dpsql.results import json_format

if TYPE_CHECKING:
    from dpsql.interfaces.server.http.oidc import OidcProvider


PORT = 8439
_MOST_HEADER = 16_384
_IDLE_SECONDS = 30
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class HttpServer:
    """The HTTP API on a port, from `start` to `stop`."""

    def __init__(
        self,
        service: Service,
        *,
        tls: ssl.SSLContext | None = None,
        log: Log = log_event,
        provider: OidcProvider | None = None,
        more_routes: RouteMaker | None = None,
    ) -> None:
        self.service, self.tls, self.log = service, tls, log
        self.api = HttpApi(
            service, log, connections=lambda: len(self.clients), provider=provider, more_routes=more_routes
        )
        for name in ("uvicorn.error", "uvicorn.access"):
            # The API logs every failure, without the words of exceptions.
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [logging.NullHandler()], False
        self.config = uvicorn.Config(
            self.api.app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            h11_max_incomplete_event_size=_MOST_HEADER,
        )
        self.config.load()
        self.state = ServerState()
        self.clients = set[HttpConnection]()
        self.extra_clients = dict[HttpConnection, None]()
        """The connections beyond the limits, oldest first: only those whose next request is an owner's stay."""
        self._server: asyncio.Server | None = None

    async def start(
        self, host: str = "localhost", port: int = PORT, *, in_the_clear: bool = False
    ) -> list[int]:
        """Listen, and return the ports. Raises ProgrammingError if tokens would cross a network unencrypted."""
        require_encryption(host, tls=self.tls is not None, in_the_clear=in_the_clear)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: HttpConnection(self), host, port, backlog=1_000)
        except OSError as error:
            raise make_port_error(host, port, error, "--http-port") from None
        return sorted({each.getsockname()[1] for each in self._server.sockets})

    async def stop(self) -> None:
        """Accept no more connections, wait for running requests, and end all connections."""
        self.api.begin_stop()
        if self._server is not None:
            self._server.close()
        for client in (*self.clients, *self.extra_clients):
            client.close_after_response()
        end = time.monotonic() + self.service.limits.drain_seconds
        while (self.clients or self.extra_clients or self.state.tasks) and time.monotonic() < end:  # noqa: ASYNC110  (once, at the end)
            await asyncio.sleep(0.05)
        for client in (*self.clients, *self.extra_clients):
            client.abort()
        self.api.stop_statements()
        while self.state.tasks:  # noqa: ASYNC110  (stopped, and recorded as they end)
            await asyncio.sleep(0.05)
        self.api.close()

    def has_room_for(self, address: str) -> bool:
        """Return whether a network may connect: it has at most as many connections as it leaves to others."""
        own = sum(client.network == address for client in self.clients)
        return own < self.service.limits.connections - len(self.clients)

    def admit_extra_client(self, client: HttpConnection) -> bool:
        """Admit a connection beyond the limits, in place of the oldest one that is not an owner's, and return whether that succeeded."""
        if len(self.extra_clients) >= self.service.limits.owner_connections:
            oldest = next((each for each in self.extra_clients if not each.is_owners), None)
            if oldest is None:
                return False
            del self.extra_clients[oldest]
            oldest.refuse_connection()
        self.extra_clients[client] = None
        return True


class HttpConnection(asyncio.Protocol):
    """One connection up to the end of the TLS handshake; it is counted until it ends."""

    def __init__(self, server: HttpServer) -> None:
        self.server, self.network = server, ""
        self._transport: asyncio.Transport | None = None
        self._protocol: HttpProtocol | None = None
        self._handshake: asyncio.Task[None] | None = None
        self.is_owners = False
        """Whether an owner has sent a request; owners may use a connection beyond the limits."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit a client, or refuse it beyond the limits."""
        if not isinstance(transport, asyncio.Transport):
            raise InternalError("a connection over TCP can be read and written")
        server = self.server
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._transport, self.network = transport, get_network(peer)
        has_room = server.has_room_for(self.network)
        if not has_room and not server.admit_extra_client(self):
            server.log("refused", peer=peer, reason="too many connections", door="http")
            if server.tls is None:
                transport.write(_REFUSED)
            transport.close()
            return
        if has_room:
            server.clients.add(self)
        conversation = HttpProtocol(server.config, server.state, {} if has_room else {"late": self})
        conversation.set_connection(self)
        if server.tls is None:
            transport.set_protocol(conversation)
            conversation.connection_made(transport)
            self._protocol = conversation
        else:
            transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(
                self._start_tls(transport, conversation, server.tls, peer)
            )

    async def _start_tls(
        self, transport: asyncio.Transport, protocol: HttpProtocol, tls: ssl.SSLContext, peer: str
    ) -> None:
        loop, found = asyncio.get_running_loop(), None
        try:
            found = await loop.start_tls(
                transport,
                protocol,
                tls,
                server_side=True,
                ssl_handshake_timeout=self.server.service.limits.login_seconds,
            )
        except (OSError, ssl.SSLError):
            self.server.log("tls refused", peer=peer, door="http")
        if found is None:
            transport.abort()
            self.forget_connection()
            return
        self._transport, self._protocol = found, protocol
        protocol.connection_made(found)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget a connection that ended before its first byte."""
        del error
        self.forget_connection()

    def forget_connection(self) -> None:
        """Count a connection that has ended no longer."""
        self.server.clients.discard(self)
        self.server.extra_clients.pop(self, None)

    def close_after_response(self) -> None:
        """End the connection after the running response."""
        if self._protocol is None:
            self.abort()
        else:
            self._protocol.shutdown()

    def refuse_connection(self) -> None:
        """End the connection, with an answer if no response is running."""
        if self._protocol is not None and self._transport is not None and self._protocol.is_at_rest:
            self._transport.write(_REFUSED)
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        if self._handshake is not None and self._protocol is None:
            self.forget_connection()


class HttpProtocol(H11Protocol):
    """The requests of one connection: time limits apply to receiving each request and to reading each response."""

    _connection: HttpConnection
    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _early_data = b""
    _is_open = _is_lost = False

    def set_connection(self, connection: HttpConnection) -> None:
        """Set the connection that the requests belong to."""
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with the requests of an open connection, after its TLS handshake if there is one."""
        if self._is_lost:  # at the end of the handshake
            return
        super().connection_made(transport)
        self._is_open = True
        self._limit_request_time()
        if self._early_data:
            early, self._early_data = self._early_data, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, which may arrive before `connection_made` at the end of a handshake."""
        if not self._is_open:
            self._early_data += data
            return
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._limit_request_time()

    @property
    def is_at_rest(self) -> bool:
        """Return whether no response is running."""
        return self.cycle is None or self.cycle.response_complete

    def _limit_request_time(self) -> None:
        """Limit the time while a request is incomplete; a complete one has the limits of the API."""
        waiting = self.is_at_rest
        if waiting and self._request_timer is None:
            seconds = self._connection.server.service.limits.login_seconds
            self._request_timer = self.loop.call_later(seconds, self._abort_transport)
        elif not waiting:
            self._cancel_request_timer()

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _abort_transport(self) -> None:
        self.transport.abort()

    def pause_writing(self) -> None:
        """Limit the time in which the client has to read its response."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(
            self._connection.server.service.limits.write_seconds, self._abort_transport
        )

    def resume_writing(self) -> None:
        """End the time limit of a client that has read its response."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def on_response_complete(self) -> None:
        """Wait for the next request, which may come within `_IDLE_SECONDS`; uvicorn counts them."""
        super().on_response_complete()
        self._cancel_request_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP with an error like the API's, and end the connection."""
        del msg
        body = json_format.write_error(ProgrammingError("this is not an HTTP/1.1 request", code="request"))
        text = _encode_error(body)
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
            + f"Content-Length: {len(text)}\r\n\r\n".encode("ascii")
            + text
        )
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything of a connection that has ended; a running request goes on."""
        self._is_lost = True
        self._cancel_request_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self._is_open:
            super().connection_lost(exc)
        self._connection.forget_connection()


def _encode_error(error: dict[str, Any]) -> bytes:
    import json

    return json.dumps({"error": error}).encode("ascii")
