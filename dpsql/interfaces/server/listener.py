"""The sockets: a conversation for each connection, its tasks done, within limits of time, size and number."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dpsql.errors import Error, InternalError
from dpsql.interfaces.server.protocol.backend import error_response
from dpsql.interfaces.server.protocol.conversation import Conversation
from dpsql.interfaces.server.protocol.failure import Failure, StatementError
from dpsql.interfaces.server.protocol.frontend import MOST
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.interfaces.server.protocol.tasks import (
    CancelStatement,
    DescribeStatement,
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
from dpsql.interfaces.server.settings import parse_startup_settings
from dpsql.interfaces.server.sockets import Log, get_network, log_event, make_port_error, require_encryption
from dpsql.interfaces.server.users import User

PORT = 5439
_UNREAD = MOST + 65_536
_UNREAD_AT_LOGIN = 65_536
_UNCOUNTED = 65_536
"""Bytes of a session's unfinished message that are not entered in what its person's sessions hold."""
SILENT_SECONDS = 1.0
"""Seconds that a login may say nothing before another one from the same network takes its place."""
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
    """The server on a port, from `start` to `stop`."""

    def __init__(
        self,
        service: Service,
        *,
        tls: ssl.SSLContext | None = None,
        requires_tls: bool = False,
        log: Log = log_event,
    ) -> None:
        self.service, self.tls, self.requires_tls, self.log = service, tls, requires_tls, log
        # Logins have threads of their own: they wait for nobody's query.
        self._logins = ThreadPoolExecutor(2, "dpsql login")
        self.clients = set[PgConnection]()
        self.sessions = dict[int, tuple[bytes, PgConnection]]()
        self._secret = service.users.get_server_secret()
        self._server: asyncio.Server | None = None
        self.stopping = False

    async def start(
        self, host: str = "localhost", port: int = PORT, *, in_the_clear: bool = False
    ) -> list[int]:
        """Listens, and returns the ports. Raises ProgrammingError where passwords would cross a network unencrypted."""
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
        """Takes no more connections, waits for the answers that are under way, and ends all sessions."""
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
        """The user of a name with what proves the password: of unknown names as of known ones."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._logins, self.service.find_user, name)
        mock = Verifier.make_mock(name, self._secret)
        return (None, mock) if found is None else found

    async def note_event(self, event: str, **facts: Any) -> None:
        """Appends an event to the audit log, in a thread of the logins."""
        work = partial(self.service.audit.note_event, event, **facts)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    async def note_refused_login(self, name: str, peer: str) -> None:
        """Notes a failed login; that it cannot be noted lets nobody in, and goes to the log of the process."""
        work = partial(self._note_refused_login, name, peer)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    def _note_refused_login(self, name: str, peer: str) -> None:
        known = self.service.find_user(name) is not None
        try:
            self.service.audit.note_refused_login(name if known else None, "postgresql", peer)
        except Error as error:
            self.log("audit failed", code=error.code, message=error.message)

    def cancel_by_key(self, process: int, key: bytes) -> None:
        """Cancels what a session runs, for who has its key."""
        expected, client = self.sessions.get(process, (b"", None))
        if client is not None and hmac.compare_digest(expected, key):
            client.cancel()

    def has_room_for(self, user: User) -> bool:
        """Whether a user may have one more session: a person has at most as many as are left to others, and owners some more."""
        limits, names = self.service.limits, [client.user_name for _, client in self.sessions.values()]
        if user.role.is_owner:
            return len(names) < limits.connections + limits.owner_connections
        return names.count(user.name) < limits.connections - len(names)

    def has_room_for_login(self, network: str) -> bool:
        """Whether a connection from a network may log in: it has at most as many logins under way as it leaves to others."""
        pending = [client.network for client in self.clients if not client.conversation.is_logged_in]
        return pending.count(network) < self.service.limits.logins - len(pending)

    def find_silent_login(self, network: str) -> PgConnection | None:
        """The connection from a network that has waited longest for its login, and at least `SILENT_SECONDS`, if one has.

        Whoever holds all places of a network with logins that do not go on keeps nobody out for longer.
        """
        pending = [
            client
            for client in self.clients
            if client.network == network and not client.is_working and not client.conversation.is_logged_in
        ]
        oldest = min(pending, key=lambda client: client.connected_at, default=None)
        return None if oldest is None or time.monotonic() - oldest.connected_at < SILENT_SECONDS else oldest


class PgConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: PgServer) -> None:
        self._server = server
        self._limits = server.service.limits
        self.conversation = Conversation(tls=server.tls is not None, requires_tls=server.requires_tls)
        self._transport: asyncio.Transport | None = None
        self._session: PgSession | None = None
        self._user: User | None = None
        self._verifier: Verifier | None = None
        self._process = 0
        self.is_working = False
        self._is_writing_paused = False
        self._login_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._peer = self.network = ""
        self.connected_at = time.monotonic()
        self._end_reason: Failure | None = None

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        if not isinstance(transport, asyncio.Transport):
            raise InternalError("a connection over TCP can be read and written")
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.network = get_network(self._peer)
        made = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._server.has_room_for_login(self.network):
            self._server.log("refused", peer=self._peer, reason="too many logins")
            silent = self._server.find_silent_login(self.network)
            if silent is None:
                transport.write(_CROWDED)
                transport.close()
                return
            self._server.clients.discard(silent)
            silent.abort()
        self._server.clients.add(self)
        self._login_timer = asyncio.get_running_loop().call_later(self._limits.login_seconds, self.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._transport is None or self._transport.is_closing():
            return
        self.conversation.receive_bytes(data)
        if self._has_much_unread:
            self._transport.pause_reading()  # until what is there is handled
        if self._try_hold_bytes("input", self._count_input_bytes()):
            self._handle_messages()

    @property
    def user_name(self) -> str:
        """Whose session it is; empty before the login."""
        return "" if self._session is None else self._session.user.name

    @property
    def _has_much_unread(self) -> bool:
        most = _UNREAD if self.conversation.is_logged_in else _UNREAD_AT_LOGIN
        return self.conversation.unread_bytes > most

    def pause_writing(self) -> None:
        """The client reads slower than it is answered."""
        self._is_writing_paused = True
        self._write_timer = asyncio.get_running_loop().call_later(self._limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_writing_paused = False
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._hold_output()
        self._handle_messages()

    def eof_received(self) -> bool:
        """The client has closed its side, and the connection ends."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        del error
        if self._session is not None:
            self._session.close_session()
        for timer in (self._login_timer, self._write_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._server.sessions.pop(self._process, None)
        self._server.service.activity.remove_client(self._process)
        self._transport = None
        if self._session is not None:
            self._server.log("logout", user=self._session.user.name, peer=self._peer)
        if not self.is_working:
            self._server.clients.discard(self)

    # The listener's side.

    def cancel(self) -> None:
        """Cancels the statement that runs or waits."""
        if self._session is not None:
            self._session.cancel()

    def abort(self) -> None:
        """Ends the connection at once."""
        self.cancel()
        if self._transport is not None:
            self._transport.abort()

    def stop_and_abort(self) -> None:
        """Ends the connection and its statement at once, for the owner."""
        if self._session is not None:
            self._session.stop()
        self.abort()

    def stop(self) -> None:
        """Ends the connection after the statement that it has sent."""
        self._end_reason = _STOPPING
        self._handle_messages()

    def disconnect(self) -> None:
        """Ends the connection, after the statement that runs or waits."""
        self._end_reason = _ENDED
        self._handle_messages()

    def _limit_idle_time(self) -> None:
        """Sets or unsets the limit of time in which the client has to ask."""
        state = self.conversation.idle_status
        if state is None or self._session is None or self._transport is None:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
            return
        if self._idle_timer is not None:  # bytes that are no statement yet lengthen nothing
            return
        own = self._session.settings.list_idle_limits(in_transaction=state != "I")
        limits = {
            reason: seconds for reason, seconds in (*own, (_IDLE, self._limits.idle_seconds)) if seconds
        }
        if limits:
            reason = min(limits, key=limits.__getitem__)
            self._idle_timer = asyncio.get_running_loop().call_later(
                limits[reason], self._disconnect_idle, reason
            )

    def _disconnect_idle(self, reason: str) -> None:
        self._end_reason = Failure(*_IDLE_FAILURES[reason], severity="FATAL")
        self._handle_messages()

    # Work.

    def _handle_messages(self) -> None:
        """Handles what has arrived up to the next task."""
        if (
            self.is_working
            or self._is_writing_paused
            or self._transport is None
            or self._transport.is_closing()
        ):
            return
        if (
            self._end_reason is not None
            and not self.conversation.is_waiting
            and not self.conversation.is_closing
        ):
            self.conversation.close_with_failure(self._end_reason)
        task = self.conversation.step()
        self._write_output()
        self._try_hold_bytes("input", self._count_input_bytes())
        if task is not None:
            self.is_working = True
            self._task = asyncio.get_running_loop().create_task(self._run_task(task))
            if isinstance(task, StartTLS):
                self._transport.pause_reading()  # what comes now is for TLS
        elif self.conversation.is_closing:
            self._transport.close()
        elif self.conversation.has_more_messages:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._handle_messages)
        elif not isinstance(task, StartTLS) and not self._has_much_unread:
            self._transport.resume_reading()
        self._limit_idle_time()

    def _write_output(self) -> None:
        data = self.conversation.take_output()
        if data and self._transport is not None:
            self._transport.write(data)
            self._hold_output()

    def _hold_output(self) -> None:
        """Enters what the client has not read yet as its person's; where that is too much, the connection ends."""
        if self._session is None or self._transport is None:
            return
        self._try_hold_bytes(
            "output", self._transport.get_write_buffer_size() if self._is_writing_paused else 0
        )

    def _count_input_bytes(self) -> int:
        """The bytes that are received and not read yet, of which little is not entered."""
        unread = self.conversation.unread_bytes
        return unread if unread > _UNCOUNTED else 0

    def _try_hold_bytes(self, what: str, size: int) -> bool:
        """Enters what the connection holds as its person's; where that is too much, the connection ends."""
        if self._session is None or self._session.memory.try_hold_bytes(what, size):
            return True
        self._server.log("refused", user=self.user_name, peer=self._peer, reason="too much unread")
        self.abort()
        return False

    async def _run_task(self, task: Task) -> None:
        try:
            await self._perform_task(task)
        except Exception as error:  # noqa: BLE001  (its words may be of anything)
            self._server.log("failure", peer=self._peer, error=type(error).__name__)
            self.conversation.close_with_failure(Failure("XX000", "the server has failed", severity="FATAL"))
        finally:
            self.is_working = False
            if self._transport is None:
                self._server.clients.discard(self)
        self._write_output()
        self._handle_messages()

    async def _perform_task(self, task: Task) -> None:
        match task:
            case StartTLS():
                await self._start_tls()
            case CancelStatement(process, key):
                self._server.cancel_by_key(process, key)
                self.conversation.confirm_cancel()
            case LookUpUser(name):
                self._user, self._verifier = await self._server.find_user(name)
                self.conversation.receive_verifier(self._verifier, known=self._user is not None)
            case RejectLogin(name):
                delay = self._server.service.failed_logins.note_failure(name)
                self._server.log("login refused", user=name, peer=self._peer, delay=delay)
                await self._server.note_refused_login(name, self._peer)
                await asyncio.sleep(delay)
                self.conversation.reject_login()
            case LogIn(_, parameters):
                await self._log_in(parameters)
            case ReadText() if self._session is not None:
                self.conversation.receive_statements(await self._session.read_text(task))
            case InferTypes() if self._session is not None:
                self.conversation.receive_types(await self._session.infer_types(task))
            case DescribeStatement() if self._session is not None:
                self.conversation.receive_description(await self._session.describe_statement(task))
            case RunStatement() if self._session is not None:
                await self._run_statement(self._session, task)

    async def _start_tls(self) -> None:
        if self._transport is None or self._server.tls is None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._transport = await loop.start_tls(
                self._transport,
                self,
                self._server.tls,
                server_side=True,
                ssl_handshake_timeout=self._limits.login_seconds,
            )
        except (OSError, ssl.SSLError, ConnectionError):
            self._server.log("tls refused", peer=self._peer)
            self.abort()
            return
        self.conversation.confirm_tls()

    def _get_transport(self) -> asyncio.Transport | None:
        return self._transport

    async def _log_in(self, parameters: dict[str, str]) -> None:
        if self._user is None or self._transport is None:
            return
        if not self._server.has_room_for(self._user):
            self._server.log("refused", user=self._user.name, peer=self._peer, reason="too many connections")
            self.conversation.close_with_failure(_TOO_MANY)
            return
        session = PgSession(self._server.service, self._user, self._peer)
        try:
            session.settings.set_startup_values(parse_startup_settings(parameters))
        except StatementError as error:
            failure = error.failure
            self.conversation.close_with_failure(
                Failure(failure.sqlstate, failure.message, failure.hint, severity="FATAL")
            )
            return
        self._server.service.failed_logins.reset_failures(self._user.name)
        failed: Error | None = None
        try:
            await self._server.note_event(
                "login",
                user=self._user.name,
                role=self._user.role.value,
                door="postgresql",
                peer=self._peer,
                method="password",
            )
        except Error as error:
            failed = error
        if failed is not None:
            self.conversation.close_with_failure(
                Failure("58030", failed.message, failed.hint, severity="FATAL")
            )
            return
        transport = self._get_transport()
        if transport is None:  # it has left meanwhile
            return
        if not self._server.has_room_for(self._user):  # others came meanwhile
            self.conversation.close_with_failure(_TOO_MANY)
            return
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._session = session
        self._process = self._server.service.activity.register_client(
            self._user,
            session.runner,
            door="postgresql",
            peer=self._peer,
            disconnect=self.disconnect,
            application=lambda: session.settings.get_value("application_name"),
            verifier=self._verifier,
        )
        key = secrets.token_bytes(4)
        self._server.sessions[self._process] = (key, self)
        tls = transport.get_extra_info("ssl_object") is not None
        self._server.log("login", user=self._user.name, role=self._user.role.value, peer=self._peer, tls=tls)
        self.conversation.accept_login(
            LoginResult(session.settings.get_reported(), self._process, key, session.memory)
        )

    async def _run_statement(self, session: PgSession, task: RunStatement) -> None:
        begun = time.monotonic()
        found = await session.run_statement(task)
        facts = (
            {"sqlstate": found.sqlstate} if isinstance(found, Failure) else {"answer": found.tag.split()[0]}
        )
        self._server.log(
            "statement",
            user=session.user.name,
            peer=self._peer,
            seconds=round(time.monotonic() - begun, 3),
            **facts,
        )
        self.conversation.receive_answer(found)
