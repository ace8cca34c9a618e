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
from dpsql.server.protocol.backend import error
from dpsql.server.protocol.conversation import Conversation
from dpsql.server.protocol.failure import Failed, Failure
from dpsql.server.protocol.frontend import MOST
from dpsql.server.protocol.scram import Verifier
from dpsql.server.protocol.tasks import (
    Cancel,
    DescribeStatement,
    InferTypes,
    LoggedIn,
    LogIn,
    LookUp,
    ReadText,
    Reject,
    RunStatement,
    StartTLS,
    Task,
)
from dpsql.server.service import Service
from dpsql.server.session import Session
from dpsql.server.settings import of_startup
from dpsql.server.sockets import Log, log, network, no_port, require_private
from dpsql.server.users import User

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
_CROWDED = error(
    Failure("53300", "sorry, too many logins are under way already", "try again later", severity="FATAL")
)


class Listener:
    """The server on a port, from `start` to `stop`."""

    def __init__(
        self,
        service: Service,
        *,
        tls: ssl.SSLContext | None = None,
        encrypted: bool = False,
        log: Log = log,
    ) -> None:
        self.service, self.tls, self.encrypted, self.log = service, tls, encrypted, log
        # Logins have threads of their own: they wait for nobody's query.
        self._logins = ThreadPoolExecutor(2, "dpsql login")
        self.clients = set[Client]()
        self.sessions = dict[int, tuple[bytes, Client]]()
        self._secret = service.users.secret()
        self._server: asyncio.Server | None = None
        self.stopping = False

    async def start(
        self, host: str = "localhost", port: int = PORT, *, in_the_clear: bool = False
    ) -> list[int]:
        """Listens, and returns the ports. Raises ProgrammingError where passwords would cross a network unencrypted."""
        require_private(host, tls=self.tls is not None, in_the_clear=in_the_clear)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._logins, lambda: self.service.catalogue)  # before anybody asks for it
        try:
            self._server = await loop.create_server(partial(Client, self), host, port, backlog=1_000)
        except OSError as error:
            raise no_port(host, port, error, "--port") from None
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
            client.end()
        while any(client.working for client in self.clients):  # noqa: ASYNC110  (stopped, and recorded as they end)
            await asyncio.sleep(0.05)
        self._logins.shutdown(wait=True)

    async def find(self, name: str) -> tuple[User | None, Verifier]:
        """The user of a name with what proves the password: of unknown names as of known ones."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._logins, self.service.find, name)
        mock = Verifier.mock(name, self._secret)
        return (None, mock) if found is None else found

    async def note(self, event: str, **facts: Any) -> None:
        """Appends an event to the audit log, in a thread of the logins."""
        work = partial(self.service.audit.note, event, **facts)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    async def note_refused_login(self, name: str, peer: str) -> None:
        """Notes a failed login; that it cannot be noted lets nobody in, and goes to the log of the process."""
        work = partial(self._note_refused_login, name, peer)
        await asyncio.get_running_loop().run_in_executor(self._logins, work)

    def _note_refused_login(self, name: str, peer: str) -> None:
        known = self.service.find(name) is not None
        try:
            self.service.audit.login_refused(name if known else None, "postgresql", peer)
        except Error as error:
            self.log("audit failed", code=error.code, message=error.message)

    def cancel(self, process: int, key: bytes) -> None:
        """Cancels what a session runs, for who has its key."""
        expected, client = self.sessions.get(process, (b"", None))
        if client is not None and hmac.compare_digest(expected, key):
            client.cancel()

    def has_room_for(self, user: User) -> bool:
        """Whether a user may have one more session: a person has at most as many as are left to others, and owners some more."""
        limits, names = self.service.limits, [client.user_name for _, client in self.sessions.values()]
        if user.role.owns:
            return len(names) < limits.connections + limits.owner_connections
        return names.count(user.name) < limits.connections - len(names)

    def has_login_for(self, network: str) -> bool:
        """Whether a connection from a network may log in: it has at most as many logins under way as it leaves to others."""
        pending = [client.network for client in self.clients if not client.conversation.logged_in]
        return pending.count(network) < self.service.limits.logins - len(pending)

    def silent_login(self, network: str) -> Client | None:
        """The connection from a network that has waited longest for its login, and at least `SILENT_SECONDS`, if one has.

        Whoever holds all places of a network with logins that do not go on keeps nobody out for longer.
        """
        pending = [
            client
            for client in self.clients
            if client.network == network and not client.working and not client.conversation.logged_in
        ]
        oldest = min(pending, key=lambda client: client.began, default=None)
        return None if oldest is None or time.monotonic() - oldest.began < SILENT_SECONDS else oldest


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._limits = listener.service.limits
        self.conversation = Conversation(tls=listener.tls is not None, encrypted=listener.encrypted)
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._user: User | None = None
        self._verifier: Verifier | None = None
        self._process = 0
        self.working = False
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._peer = self.network = ""
        self.began = time.monotonic()
        self._stopping: Failure | None = None

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        if not isinstance(transport, asyncio.Transport):
            raise InternalError("a connection over TCP can be read and written")
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.network = network(self._peer)
        made = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._listener.has_login_for(self.network):
            self._listener.log("refused", peer=self._peer, reason="too many logins")
            silent = self._listener.silent_login(self.network)
            if silent is None:
                transport.write(_CROWDED)
                transport.close()
                return
            self._listener.clients.discard(silent)
            silent.abort()
        self._listener.clients.add(self)
        self._timer = asyncio.get_running_loop().call_later(self._limits.login_seconds, self.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._transport is None or self._transport.is_closing():
            return
        self.conversation.receive(data)
        if self._has_much_unread:
            self._transport.pause_reading()  # until what is there is handled
        if self._holds("input", self._input()):
            self._pump()

    @property
    def user_name(self) -> str:
        """Whose session it is; empty before the login."""
        return "" if self._session is None else self._session.user.name

    @property
    def _has_much_unread(self) -> bool:
        most = _UNREAD if self.conversation.logged_in else _UNREAD_AT_LOGIN
        return self.conversation.unread > most

    def pause_writing(self) -> None:
        """The client reads slower than it is answered."""
        self._paused = True
        self._slow = asyncio.get_running_loop().call_later(self._limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._paused = False
        if self._slow is not None:
            self._slow.cancel()
        self._hold_output()
        self._pump()

    def eof_received(self) -> bool:
        """The client has closed its side, and the connection ends."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        del error
        if self._session is not None:
            self._session.leave()
        for timer in (self._timer, self._slow, self._idle):
            if timer is not None:
                timer.cancel()
        self._listener.sessions.pop(self._process, None)
        self._listener.service.activity.leave(self._process)
        self._transport = None
        if self._session is not None:
            self._listener.log("logout", user=self._session.user.name, peer=self._peer)
        if not self.working:
            self._listener.clients.discard(self)

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

    def end(self) -> None:
        """Ends the connection and its statement at once, for the owner."""
        if self._session is not None:
            self._session.stop()
        self.abort()

    def stop(self) -> None:
        """Ends the connection after the statement that it has sent."""
        self._stopping = _STOPPING
        self._pump()

    def disconnect(self) -> None:
        """Ends the connection, after the statement that runs or waits."""
        self._stopping = _ENDED
        self._pump()

    def _await_statement(self) -> None:
        """Sets or unsets the limit of time in which the client has to ask."""
        state = self.conversation.idle_in
        if state is None or self._session is None or self._transport is None:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            return
        if self._idle is not None:  # bytes that are no statement yet lengthen nothing
            return
        own = self._session.settings.idle_limits(in_transaction=state != "I")
        limits = {
            reason: seconds for reason, seconds in (*own, (_IDLE, self._limits.idle_seconds)) if seconds
        }
        if limits:
            reason = min(limits, key=limits.__getitem__)
            self._idle = asyncio.get_running_loop().call_later(limits[reason], self._end_idle, reason)

    def _end_idle(self, reason: str) -> None:
        self._stopping = Failure(*_IDLE_FAILURES[reason], severity="FATAL")
        self._pump()

    # Work.

    def _pump(self) -> None:
        """Handles what has arrived up to the next task."""
        if self.working or self._paused or self._transport is None or self._transport.is_closing():
            return
        if self._stopping is not None and not self.conversation.waiting and not self.conversation.closing:
            self.conversation.fail(self._stopping)
        task = self.conversation.step()
        self._write()
        self._holds("input", self._input())
        if task is not None:
            self.working = True
            self._task = asyncio.get_running_loop().create_task(self._work(task))
            if isinstance(task, StartTLS):
                self._transport.pause_reading()  # what comes now is for TLS
        elif self.conversation.closing:
            self._transport.close()
        elif self.conversation.behind:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._pump)
        elif not isinstance(task, StartTLS) and not self._has_much_unread:
            self._transport.resume_reading()
        self._await_statement()

    def _write(self) -> None:
        data = self.conversation.take()
        if data and self._transport is not None:
            self._transport.write(data)
            self._hold_output()

    def _hold_output(self) -> None:
        """Enters what the client has not read yet as its person's; where that is too much, the connection ends."""
        if self._session is None or self._transport is None:
            return
        self._holds("output", self._transport.get_write_buffer_size() if self._paused else 0)

    def _input(self) -> int:
        """The bytes that are received and not read yet, of which little is not entered."""
        unread = self.conversation.unread
        return unread if unread > _UNCOUNTED else 0

    def _holds(self, what: str, size: int) -> bool:
        """Enters what the connection holds as its person's; where that is too much, the connection ends."""
        if self._session is None or self._session.memory.fits(what, size):
            return True
        self._listener.log("refused", user=self.user_name, peer=self._peer, reason="too much unread")
        self.abort()
        return False

    async def _work(self, task: Task) -> None:
        try:
            await self._done(task)
        except Exception as error:  # noqa: BLE001  (its words may be of anything)
            self._listener.log("failure", peer=self._peer, error=type(error).__name__)
            self.conversation.fail(Failure("XX000", "the server has failed", severity="FATAL"))
        finally:
            self.working = False
            if self._transport is None:
                self._listener.clients.discard(self)
        self._write()
        self._pump()

    async def _done(self, task: Task) -> None:
        match task:
            case StartTLS():
                await self._start_tls()
            case Cancel(process, key):
                self._listener.cancel(process, key)
                self.conversation.cancelled()
            case LookUp(name):
                self._user, self._verifier = await self._listener.find(name)
                self.conversation.looked_up(self._verifier, known=self._user is not None)
            case Reject(name):
                delay = self._listener.service.failed_logins.delay(name)
                self._listener.log("login refused", user=name, peer=self._peer, delay=delay)
                await self._listener.note_refused_login(name, self._peer)
                await asyncio.sleep(delay)
                self.conversation.rejected()
            case LogIn(_, parameters):
                await self._log_in(parameters)
            case ReadText() if self._session is not None:
                self.conversation.was_read(await self._session.read(task))
            case InferTypes() if self._session is not None:
                self.conversation.inferred(await self._session.infer(task))
            case DescribeStatement() if self._session is not None:
                self.conversation.described(await self._session.describe(task))
            case RunStatement() if self._session is not None:
                await self._run(self._session, task)

    async def _start_tls(self) -> None:
        if self._transport is None or self._listener.tls is None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._transport = await loop.start_tls(
                self._transport,
                self,
                self._listener.tls,
                server_side=True,
                ssl_handshake_timeout=self._limits.login_seconds,
            )
        except (OSError, ssl.SSLError, ConnectionError):
            self._listener.log("tls refused", peer=self._peer)
            self.abort()
            return
        self.conversation.tls_started()

    def _connected(self) -> asyncio.Transport | None:
        return self._transport

    async def _log_in(self, parameters: dict[str, str]) -> None:
        if self._user is None or self._transport is None:
            return
        if not self._listener.has_room_for(self._user):
            self._listener.log(
                "refused", user=self._user.name, peer=self._peer, reason="too many connections"
            )
            self.conversation.fail(_TOO_MANY)
            return
        session = Session(self._listener.service, self._user, self._peer)
        try:
            session.settings.begin(of_startup(parameters))
        except Failed as error:
            failure = error.failure
            self.conversation.fail(Failure(failure.sqlstate, failure.message, failure.hint, severity="FATAL"))
            return
        self._listener.service.failed_logins.forgive(self._user.name)
        failed: Error | None = None
        try:
            await self._listener.note(
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
            self.conversation.fail(Failure("58030", failed.message, failed.hint, severity="FATAL"))
            return
        transport = self._connected()
        if transport is None:  # it has left meanwhile
            return
        if not self._listener.has_room_for(self._user):  # others came meanwhile
            self.conversation.fail(_TOO_MANY)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._session = session
        self._process = self._listener.service.activity.enter(
            self._user,
            session.running,
            door="postgresql",
            peer=self._peer,
            disconnect=self.disconnect,
            application=lambda: session.settings.get("application_name"),
            verifier=self._verifier,
        )
        key = secrets.token_bytes(4)
        self._listener.sessions[self._process] = (key, self)
        tls = transport.get_extra_info("ssl_object") is not None
        self._listener.log(
            "login", user=self._user.name, role=self._user.role.value, peer=self._peer, tls=tls
        )
        self.conversation.logged(LoggedIn(session.settings.reported(), self._process, key, session.memory))

    async def _run(self, session: Session, task: RunStatement) -> None:
        begun = time.monotonic()
        found = await session.run(task)
        facts = (
            {"sqlstate": found.sqlstate} if isinstance(found, Failure) else {"answer": found.tag.split()[0]}
        )
        self._listener.log(
            "statement",
            user=session.user.name,
            peer=self._peer,
            seconds=round(time.monotonic() - begun, 3),
            **facts,
        )
        self.conversation.answered(found)
