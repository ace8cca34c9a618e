"""The sockets of the PostgreSQL protocol: a conversation for each connection, within limits of time, size and number."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from dpsql.errors import Error, InternalError
from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.protocol.conversation import Conversation
from dpsql.interfaces.server.protocol.errors import Failure, StatementError
from dpsql.interfaces.server.protocol.messages import MOST, error_response
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    CancelStatement,
    DescribeStatement,
    FoundVerifier,
    InferTypes,
    LogIn,
    LoginResult,
    LookUpUser,
    ReadText,
    RejectLogin,
    RunStatement,
    StartTLS,
    Task,
)
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.session import PgSession
from dpsql.interfaces.server.settings import Settings, parse_startup_settings
from dpsql.interfaces.server.sockets import Log, get_network, log_event, make_port_error, require_encryption
from dpsql.interfaces.server.users import User

PORT = 5439
_UNREAD = MOST + 65_536
_UNREAD_AT_LOGIN = 65_536
_UNCOUNTED = 65_536
"""Bytes of an unfinished message that are not counted in the memory of the user's sessions."""
SILENT_SECONDS = 1.0
"""Seconds of an unfinished login after which another one from the same network may take its place."""
_IDLE, _IDLE_IN_TRANSACTION = "idle_session_timeout", "idle_in_transaction_session_timeout"
_IDLE_FAILURES = {
    _IDLE: ("57P05", "terminating connection due to idle-session timeout"),
    _IDLE_IN_TRANSACTION: ("25P03", "terminating connection due to idle-in-transaction timeout"),
}
_STOPPING = Failure("57P01", "terminating connection: the server is stopping", severity="FATAL")
_ENDED = Failure("57P01", "terminating connection due to administrator command", severity="FATAL")
_TOO_MANY = Failure("53300", "sorry, too many clients already", "try again later", severity="FATAL")
_CROWDED = error_response(
    Failure("53300", "sorry, too many logins are under way already", "try again later", severity="FATAL")
)


class PgServer:
    """The server on a port, from `start` to `stop`; it owns the connections and their sessions by number."""

    def __init__(
        self,
        service: Service,
        *,
        tls: ssl.SSLContext | None = None,
        requires_tls: bool = False,
        log: Log = log_event,
    ) -> None:
        self.service, self.tls, self.requires_tls, self.log = service, tls, requires_tls, log
        # Logins have their own threads, so that they wait for no query.
        self._logins = ThreadPoolExecutor(2, "dpsql login")
        self.clients = set[PgConnection]()
        self.sessions = dict[int, tuple[bytes, PgConnection]]()
        self._secret = service.users.get_server_secret()
        self._server: asyncio.Server | None = None
        self.stopping = False

    async def start(
        self, host: str = "localhost", port: int = PORT, *, in_the_clear: bool = False
    ) -> list[int]:
        """Listen, and return the ports. Raises ProgrammingError if passwords would cross a network unencrypted."""
        require_encryption(host, tls=self.tls is not None, in_the_clear=in_the_clear)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            self._logins, lambda: self.service.pg_catalog
        )  # before anybody asks for it
        try:
            self._server = await loop.create_server(partial(PgConnection, self), host, port, backlog=1_000)
        except OSError as error:
            raise make_port_error(host, port, error, "--port") from None
        return sorted({each.getsockname()[1] for each in self._server.sockets})

    async def stop(self) -> None:
        """Accept no more connections, wait for running statements, and end all sessions."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        for client in list(self.clients):
            client.stop()
        end = time.monotonic() + self.service.limits.drain_seconds
        while self.clients and time.monotonic() < end:  # noqa: ASYNC110  (once, at the end)
            await asyncio.sleep(0.05)
        for client in list(self.clients):
            client.stop_and_abort()
        while any(client.is_working for client in self.clients):  # noqa: ASYNC110  (stopped, and recorded as they end)
            await asyncio.sleep(0.05)
        self._logins.shutdown(wait=True)

    async def find_user(self, name: str) -> tuple[User | None, Verifier]:
        """Return the user of a name with the password verifier, or None with a made-up verifier."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._logins, self.service.find_user, name)
        mock = Verifier.make_mock(name, self._secret)
        return (None, mock) if found is None else found

    async def note_event(self, event: str, **facts: Any) -> None:
        """Append an event to the audit log, in a thread of the logins."""
        work = partial(self.service.audit.note_event, event, **facts)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    async def note_refused_login(self, name: str, peer: str) -> None:
        """Record a failed login; if that fails, the log of the process says so."""
        work = partial(self._note_refused_login, name, peer)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    def _note_refused_login(self, name: str, peer: str) -> None:
        known = self.service.find_user(name) is not None
        try:
            self.service.audit.note_refused_login(name if known else None, "postgresql", peer)
        except Error as error:
            self.log("audit failed", code=error.code, message=error.message)

    def cancel_by_key(self, process: int, key: bytes) -> None:
        """Cancel the statement of a session for a client that has the session's key."""
        expected, client = self.sessions.get(process, (b"", None))
        if client is not None and hmac.compare_digest(expected, key):
            client.cancel()

    def has_room_for(self, user: User) -> bool:
        """Return whether a user may have one more session.

        A user has at most as many as are left to others; owners have some more.
        """
        limits, names = self.service.limits, [client.user_name for _, client in self.sessions.values()]
        if user.role.is_owner:
            return len(names) < limits.connections + limits.owner_connections
        return names.count(user.name) < limits.connections - len(names)

    def has_room_for_login(self, network: str) -> bool:
        """Return whether a network may begin one more login: it has at most as many unfinished ones as it leaves to others."""
        pending = [client.network for client in self.clients if not client.conversation.is_logged_in]
        return pending.count(network) < self.service.limits.logins - len(pending)

    def find_silent_login(self, network: str) -> PgConnection | None:
        """Return the oldest unfinished login of a network, if it is at least `SILENT_SECONDS` old.

        So a client that holds all places of its network with silent logins keeps others out for no longer.
        """
        pending = [
            client
            for client in self.clients
            if client.network == network and not client.is_working and not client.conversation.is_logged_in
        ]
        oldest = min(pending, key=lambda client: client.connected_at, default=None)
        return None if oldest is None or time.monotonic() - oldest.connected_at < SILENT_SECONDS else oldest


class ConnectionTimers:
    """The time limits of a connection: for its login, for reading its output, and for its next statement."""

    def __init__(self, limits: Limits, abort: Callable[[], None], end: Callable[[Failure], None]) -> None:
        self._limits, self._abort, self._end = limits, abort, end
        self._login: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def limit_login_time(self) -> None:
        """Abort the connection unless `accept_login` is called in time."""
        self._login = asyncio.get_running_loop().call_later(self._limits.login_seconds, self._abort)

    def accept_login(self) -> None:
        """End the time limit of the login."""
        _cancel_timer(self._login)

    def limit_write_time(self) -> None:
        """Abort the connection unless its client reads its output in time."""
        self._write = asyncio.get_running_loop().call_later(self._limits.write_seconds, self._abort)

    def accept_reading(self) -> None:
        """End the time limit of a client that has read its output."""
        _cancel_timer(self._write)

    def limit_idle_time(self, status: str | None, settings: Settings | None) -> None:
        """Start or end the time limit of an idle client; `status` is None for a client that is not idle."""
        if status is None or settings is None:
            _cancel_timer(self._idle)
            self._idle = None
            return
        if self._idle is not None:  # an incomplete message does not extend the time
            return
        own = settings.list_idle_limits(in_transaction=status != "I")
        limits = {
            reason: seconds for reason, seconds in (*own, (_IDLE, self._limits.idle_seconds)) if seconds
        }
        if limits:
            reason = min(limits, key=limits.__getitem__)
            failure = Failure(*_IDLE_FAILURES[reason], severity="FATAL")
            self._idle = asyncio.get_running_loop().call_later(limits[reason], self._end, failure)

    def cancel_all(self) -> None:
        """End all time limits."""
        for timer in (self._login, self._write, self._idle):
            _cancel_timer(timer)


def _cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class ClientTasks:
    """The tasks of one connection's conversation, and the user and session that they belong to."""

    def __init__(self, server: PgServer, connection: PgConnection) -> None:
        self._server, self._connection = server, connection
        self._user: User | None = None
        self._verifier: Verifier | None = None
        self._process = 0
        self.session: PgSession | None = None

    async def perform_task(self, task: Task[Any]) -> None:
        """Do a task, and give its result to the conversation."""
        conversation = self._connection.conversation
        match task:
            case StartTLS():
                if await self._connection.start_tls():
                    conversation.complete_task(task, None)
            case CancelStatement(process, key):
                self._server.cancel_by_key(process, key)
                conversation.complete_task(task, None)
            case LookUpUser(name):
                self._user, self._verifier = await self._server.find_user(name)
                conversation.complete_task(task, FoundVerifier(self._verifier, self._user is not None))
            case RejectLogin(name):
                await self._reject_login(name)
                conversation.complete_task(task, None)
            case LogIn(_, parameters) if self._user is not None:
                conversation.complete_task(task, await self._log_in(self._user, parameters))
            case _ if self.session is not None:
                await self._perform_session_task(self.session, task)

    async def _perform_session_task(self, session: PgSession, task: Task[Any]) -> None:
        conversation = self._connection.conversation
        match task:
            case ReadText():
                conversation.complete_task(task, await session.read_text(task))
            case InferTypes():
                conversation.complete_task(task, await session.infer_types(task))
            case DescribeStatement():
                conversation.complete_task(task, await session.describe_statement(task))
            case RunStatement():
                conversation.complete_task(task, await self._run_statement(session, task))

    def close(self) -> None:
        """Close the session of a client that has left."""
        self._server.sessions.pop(self._process, None)
        self._server.service.activity.remove_client(self._process)
        if self.session is not None:
            self.session.close_session()
            self._server.log("logout", user=self.session.user.name, peer=self._connection.peer)

    async def _reject_login(self, name: str) -> None:
        peer = self._connection.peer
        delay = self._server.service.failed_logins.note_failure(name)
        self._server.log("login refused", user=name, peer=peer, delay=delay)
        await self._server.note_refused_login(name, peer)
        await asyncio.sleep(delay)

    async def _log_in(self, user: User, parameters: dict[str, str]) -> LoginResult | Failure:
        """Open the session of a user who proved the password, if there is room and the audit log can be written."""
        peer = self._connection.peer
        if not self._server.has_room_for(user):
            self._server.log("refused", user=user.name, peer=peer, reason="too many connections")
            return _TOO_MANY
        session = PgSession(self._server.service, user, peer)
        try:
            session.settings.set_startup_values(parse_startup_settings(parameters))
        except StatementError as error:
            return replace(error.failure, severity="FATAL")
        self._server.service.failed_logins.reset_failures(user.name)
        try:
            await self._server.note_event(
                "login",
                user=user.name,
                role=user.role.value,
                door="postgresql",
                peer=peer,
                method="password",
            )
        except Error as error:
            return Failure("58030", error.message, error.hint, severity="FATAL")
        if self._connection.is_lost:  # the client left meanwhile
            return _ENDED
        if not self._server.has_room_for(user):  # others logged in meanwhile
            return _TOO_MANY
        return self._open_session(user, session)

    def _open_session(self, user: User, session: PgSession) -> LoginResult:
        """Register a session, so that it is listed and can be cancelled."""
        self.session = session
        self._process = self._server.service.activity.register_client(
            user,
            session.runner,
            door="postgresql",
            peer=self._connection.peer,
            disconnect=self._connection.disconnect,
            application=lambda: session.settings.get_value("application_name"),
            verifier=self._verifier,
        )
        key = secrets.token_bytes(4)
        self._server.sessions[self._process] = (key, self._connection)
        self._connection.accept_login(user)
        return LoginResult(session.settings.get_reported(), self._process, key, session.memory)

    async def _run_statement(self, session: PgSession, task: RunStatement) -> Answer | Failure:
        begun = time.monotonic()
        found = await session.run_statement(task)
        facts = (
            {"sqlstate": found.sqlstate} if isinstance(found, Failure) else {"answer": found.tag.split()[0]}
        )
        self._server.log(
            "statement",
            user=session.user.name,
            peer=self._connection.peer,
            seconds=round(time.monotonic() - begun, 3),
            **facts,
        )
        return found


class PgConnection(asyncio.Protocol):
    """One connection: its socket, read and written as its conversation goes on."""

    def __init__(self, server: PgServer) -> None:
        self._server = server
        self.conversation = Conversation(tls=server.tls is not None, requires_tls=server.requires_tls)
        self._timers = ConnectionTimers(server.service.limits, self.abort, self._end_with_failure)
        self._tasks = ClientTasks(server, self)
        self._transport: asyncio.Transport | None = None
        self.is_working = False
        self._is_writing_paused = False
        self._task: asyncio.Task[None] | None = None
        self.peer = self.network = ""
        self.connected_at = time.monotonic()
        self._end_reason: Failure | None = None

    # Calls of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit a client, or refuse it if too many logins of its network are unfinished."""
        if not isinstance(transport, asyncio.Transport):
            raise InternalError("a connection over TCP can be read and written")
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.network = get_network(self.peer)
        made = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._server.has_room_for_login(self.network):
            self._server.log("refused", peer=self.peer, reason="too many logins")
            silent = self._server.find_silent_login(self.network)
            if silent is None:
                transport.write(_CROWDED)
                transport.close()
                return
            self._server.clients.discard(silent)
            silent.abort()
        self._server.clients.add(self)
        self._timers.limit_login_time()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._transport is None or self._transport.is_closing():
            return
        self.conversation.receive_bytes(data)
        if self._has_much_unread:
            self._transport.pause_reading()  # until the received bytes are handled
        if self._try_hold_bytes("input", self._count_input_bytes()):
            self._handle_messages()

    def pause_writing(self) -> None:
        """Limit the time in which the client has to read its output."""
        self._is_writing_paused = True
        self._timers.limit_write_time()

    def resume_writing(self) -> None:
        """Go on after the client has read its output."""
        self._is_writing_paused = False
        self._timers.accept_reading()
        self._hold_output()
        self._handle_messages()

    def eof_received(self) -> bool:
        """End the connection when the client closes its side."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything of a connection that has ended."""
        del error
        self._timers.cancel_all()
        self._tasks.close()
        self._transport = None
        if not self.is_working:
            self._server.clients.discard(self)

    # Calls of the server.

    @property
    def user_name(self) -> str:
        """Return the user of the session, or an empty text before the login."""
        session = self._tasks.session
        return "" if session is None else session.user.name

    @property
    def is_lost(self) -> bool:
        """Return whether the connection has ended."""
        return self._transport is None

    def cancel(self) -> None:
        """Cancel the running or waiting statement."""
        if self._tasks.session is not None:
            self._tasks.session.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        self.cancel()
        if self._transport is not None:
            self._transport.abort()

    def stop_and_abort(self) -> None:
        """End the connection and its statement at once, for the owner."""
        if self._tasks.session is not None:
            self._tasks.session.stop()
        self.abort()

    def stop(self) -> None:
        """End the connection after its running statement, because the server stops."""
        self._end_with_failure(_STOPPING)

    def disconnect(self) -> None:
        """End the connection after its running or waiting statement."""
        self._end_with_failure(_ENDED)

    def accept_login(self, user: User) -> None:
        """End the time limit of the login, and log it."""
        self._timers.accept_login()
        transport = self._transport
        tls = transport is not None and transport.get_extra_info("ssl_object") is not None
        self._server.log("login", user=user.name, role=user.role.value, peer=self.peer, tls=tls)

    async def start_tls(self) -> bool:
        """Encrypt the connection, and return whether that succeeded."""
        if self._transport is None or self._server.tls is None:
            return False
        loop = asyncio.get_running_loop()
        try:
            self._transport = await loop.start_tls(
                self._transport,
                self,
                self._server.tls,
                server_side=True,
                ssl_handshake_timeout=self._server.service.limits.login_seconds,
            )
        except (OSError, ssl.SSLError, ConnectionError):
            self._server.log("tls refused", peer=self.peer)
            self.abort()
            return False
        return True

    # Work.

    def _end_with_failure(self, reason: Failure) -> None:
        self._end_reason = reason
        self._handle_messages()

    def _handle_messages(self) -> None:
        """Handle received messages up to the next task."""
        transport, conversation = self._transport, self.conversation
        if self.is_working or self._is_writing_paused or transport is None or transport.is_closing():
            return
        if self._end_reason is not None and not conversation.is_waiting and not conversation.is_closing:
            conversation.close_with_failure(self._end_reason)
        task = conversation.step()
        self._write_output()
        self._try_hold_bytes("input", self._count_input_bytes())
        if task is not None:
            self.is_working = True
            self._task = asyncio.get_running_loop().create_task(self._run_task(task))
            if isinstance(task, StartTLS):
                transport.pause_reading()  # the next bytes belong to TLS
        elif conversation.is_closing:
            transport.close()
        elif conversation.has_more_messages:
            transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._handle_messages)
        elif not self._has_much_unread:
            transport.resume_reading()
        session = self._tasks.session
        is_idle = session is not None and self._transport is not None
        self._timers.limit_idle_time(
            conversation.idle_status if is_idle else None, None if session is None else session.settings
        )

    async def _run_task(self, task: Task[Any]) -> None:
        try:
            await self._tasks.perform_task(task)
        except Exception as error:  # noqa: BLE001  (its words may quote private values)
            self._server.log("failure", peer=self.peer, error=type(error).__name__)
            self.conversation.close_with_failure(Failure("XX000", "the server has failed", severity="FATAL"))
        finally:
            self.is_working = False
            if self._transport is None:
                self._server.clients.discard(self)
        self._write_output()
        self._handle_messages()

    def _write_output(self) -> None:
        data = self.conversation.take_output()
        if data and self._transport is not None:
            self._transport.write(data)
            self._hold_output()

    # Memory.

    @property
    def _has_much_unread(self) -> bool:
        most = _UNREAD if self.conversation.is_logged_in else _UNREAD_AT_LOGIN
        return self.conversation.unread_bytes > most

    def _count_input_bytes(self) -> int:
        """Return the bytes that are received and not read yet, or 0 if they are few."""
        unread = self.conversation.unread_bytes
        return unread if unread > _UNCOUNTED else 0

    def _hold_output(self) -> None:
        """Enter the output that the client has not read yet in the user's memory."""
        if self._transport is not None:
            self._try_hold_bytes(
                "output", self._transport.get_write_buffer_size() if self._is_writing_paused else 0
            )

    def _try_hold_bytes(self, what: str, size: int) -> bool:
        """Enter what the connection holds in the user's memory; if that is too much, end the connection."""
        session = self._tasks.session
        if session is None or session.memory.try_hold_bytes(what, size):
            return True
        self._server.log("refused", user=self.user_name, peer=self.peer, reason="too much unread")
        self.abort()
        return False
