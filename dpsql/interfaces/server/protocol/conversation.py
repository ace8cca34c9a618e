"""One connection as a state machine: bytes in, tasks and bytes out; its login, and then its queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dpsql.interfaces.server.protocol import messages
from dpsql.interfaces.server.protocol.errors import Failure, ProtocolError, StatementError
from dpsql.interfaces.server.protocol.messages import (
    MOST,
    MOST_AT_STARTUP,
    CancelRequest,
    GSSRequest,
    Message,
    MessageBuffer,
    Password,
    SSLRequest,
    Startup,
    Terminate,
)
from dpsql.interfaces.server.protocol.queries import MOST_READ_HERE, QueryExchange
from dpsql.interfaces.server.protocol.scram import MECHANISM, ScramExchange
from dpsql.interfaces.server.protocol.tasks import (
    CancelStatement,
    FoundVerifier,
    LogIn,
    LoginResult,
    LookUpUser,
    PendingTask,
    RejectLogin,
    StartTLS,
    Task,
)

# The beginning of a connection: encryption, the startup packet, and the proof of the password by SCRAM.


class LoginExchange:
    """The messages of a client up to its login: `accept` takes the session of a user who proved the password.

    `offers_tls` says whether TLS is offered, `requires_tls` whether it is required.
    """

    def __init__(
        self, out: bytearray, accept: Callable[[LoginResult], None], *, offers_tls: bool, requires_tls: bool
    ) -> None:
        self._out, self._accept = out, accept
        self._offers_tls, self._requires_tls = offers_tls, requires_tls
        self._is_encrypted = False
        self._asked_gss = False
        self._startup: Startup | None = None
        self._scram: ScramExchange | None = None
        self._was_challenged = False

    @property
    def is_started(self) -> bool:
        """Return whether the startup packet was received."""
        return self._startup is not None

    @property
    def user(self) -> str:
        """Return the user name that the client claims, or an empty text before it does."""
        return "" if self._startup is None else self._startup.parameters.get("user", "")

    def handle_first_message(
        self, message: SSLRequest | GSSRequest | Startup, unread: int
    ) -> PendingTask[Any] | None:
        """Handle a message before the login; `unread` is the number of bytes that were received after it."""
        match message:
            case SSLRequest() if self._offers_tls and not self._is_encrypted:
                # Bytes after the request are not encrypted, and must not be treated as encrypted.
                if unread:
                    raise ProtocolError("received unencrypted data after SSL request")
                self._out += b"S"
                return PendingTask(StartTLS(), self._confirm_tls)
            case SSLRequest():
                self._out += b"N"
            case GSSRequest():
                if self._asked_gss:
                    raise ProtocolError("GSSAPI encryption is requested twice")
                self._asked_gss = True
                self._out += b"N"
            case Startup():
                return self._handle_startup(message)
        return None

    def _confirm_tls(self, _: None) -> None:
        self._is_encrypted = True

    def _handle_startup(self, message: Startup) -> PendingTask[Any]:
        if self._requires_tls and not self._is_encrypted:
            raise ProtocolError("the server requires TLS: connect with sslmode=require", "28000")
        user = message.parameters.get("user", "")
        if not user:
            raise ProtocolError("no user name given in the startup packet", "28000")
        if "replication" in message.parameters:
            raise ProtocolError("replication is not supported", "0A000")
        unknown = [name for name in message.parameters if name.startswith("_pq_.")]
        if message.minor or unknown:
            self._out += messages.negotiate_protocol_version(unknown)
        self._startup = message
        return PendingTask(LookUpUser(user), self._begin_scram)

    def _begin_scram(self, found: FoundVerifier) -> None:
        self._scram = ScramExchange(found.verifier, known=found.is_known)
        self._out += messages.authentication_sasl([MECHANISM])

    def handle_message(self, message: Message) -> PendingTask[Any] | None:
        """Handle a message of the SCRAM exchange. Raises ProtocolError for any other message."""
        if not isinstance(message, Password) or self._scram is None:
            raise ProtocolError("expected a SASL response")
        if not self._was_challenged:
            self._challenge_client(self._scram, message)
            return None
        signature = self._scram.answer_final_message(message.data.decode("utf-8", "replace"))
        self._scram = None
        if signature is None:
            return PendingTask(RejectLogin(self.user), self._report_wrong_password)
        self._out += messages.authentication_sasl_final(signature)
        parameters = {} if self._startup is None else self._startup.parameters
        return PendingTask(LogIn(self.user, parameters), self._accept)

    def _challenge_client(self, scram: ScramExchange, message: Password) -> None:
        mechanism, first = messages.parse_initial_response(message.data)
        if mechanism != MECHANISM:
            raise ProtocolError("the client selected an invalid SASL authentication mechanism")
        challenge = scram.answer_first_message(first.decode("utf-8", "replace"))
        if challenge is None:
            raise ProtocolError("malformed SCRAM message")
        self._out += messages.authentication_sasl_continue(challenge)
        self._was_challenged = True

    def _report_wrong_password(self, _: None) -> None:
        raise ProtocolError(f'password authentication failed for user "{self.user}"', "28P01")


# One connection as a state machine: bytes in, tasks and bytes out; no sockets, threads or clocks.


MOST_AT_ONCE = 100
"""The number of messages without a task that are handled before other connections get a turn."""

_Result = TypeVar("_Result")


class Conversation:
    """A client's connection: the order of its messages, up to the login and after it.

    `tls` says whether TLS is offered, `requires_tls` whether it is required.

    `receive_bytes` takes bytes. `step` handles messages until one needs work by the server, which it returns as a task;
    `complete_task` takes the task's result, and `step` continues. `take_output` returns the bytes to send.
    """

    def __init__(self, *, tls: bool = False, requires_tls: bool = False) -> None:
        self._buffer = MessageBuffer()
        self._out = bytearray()
        self._login = LoginExchange(self._out, self._accept_login, offers_tls=tls, requires_tls=requires_tls)
        self._queries: QueryExchange | None = None
        self._pending: PendingTask[Any] | None = None
        self.is_closing = False
        self.has_more_messages = False
        """Whether `step` stopped although more messages may be available."""

    @property
    def is_logged_in(self) -> bool:
        """Return whether the client is authenticated."""
        return self._queries is not None

    @property
    def is_waiting(self) -> bool:
        """Return whether a task is unfinished, or an answer is being sent."""
        return self._pending is not None or (self._queries is not None and self._queries.is_sending)

    @property
    def idle_status(self) -> str | None:
        """Return the transaction status (I, T or E) of an idle client, or None while it is being served."""
        if self._queries is None or self.is_waiting or self.is_closing:
            return None
        return self._queries.transaction_status

    @property
    def unread_bytes(self) -> int:
        """Return the number of received and unhandled bytes."""
        return len(self._buffer)

    def receive_bytes(self, data: bytes) -> None:
        """Take received bytes."""
        self._buffer.feed_bytes(data)

    def take_output(self) -> bytes:
        """Return the bytes to send now."""
        taken = bytes(self._out)
        self._out.clear()
        return taken

    def close_with_failure(self, failure: Failure) -> None:
        """Report a failure and end the connection, without further tasks or parts of an answer."""
        self._out += messages.error_response(failure)
        self._pending = None
        if self._queries is not None:
            self._queries.drop_work()
        self.is_closing = True

    def step(self) -> Task[Any] | None:
        """Handle messages up to the next task.

        Returns None if more bytes are needed, the connection ends, or many messages were handled (`has_more_messages`).
        """
        self.has_more_messages = False
        try:
            self._handle_messages()
        except ProtocolError as error:
            self.close_with_failure(error.failure)
        return None if self._pending is None else self._pending.task

    def complete_task(self, task: Task[_Result], result: _Result | Failure) -> None:
        """Continue with the result of the task that `step` returned, or report its failure.

        A failure before the login ends the connection.
        """
        pending = self._pending
        if pending is None or pending.task is not task:
            return
        self._pending = None
        try:
            if isinstance(result, Failure):
                raise StatementError.from_failure(result)
            pending.resume(result)
        except ProtocolError as error:
            self.close_with_failure(error.failure)
        except StatementError as error:
            if self._queries is None:
                self.close_with_failure(error.failure)
            else:
                self._queries.fail_statement(error.failure)

    def _handle_messages(self) -> None:
        handled, queries = 0, self._queries
        if queries is not None:
            queries.read_characters = 0
        while self._pending is None and not self.is_closing:
            if queries is not None and queries.is_sending:
                queries.send_part()
                self.has_more_messages = queries.is_sending
                if self.has_more_messages:
                    return
            elif queries is not None and queries.is_running_statements:
                self._pending = queries.run_next_statement()
            elif handled == MOST_AT_ONCE or (
                queries is not None and queries.read_characters > MOST_READ_HERE
            ):
                self.has_more_messages = True
                return
            elif self._handle_next_message():
                handled += 1
            else:
                return

    def _handle_next_message(self) -> bool:
        """Handle the next message, and return whether there was a complete one."""
        if not self._login.is_started:
            return self._handle_first_message()
        message = self._buffer.take_message(MOST_AT_STARTUP if self._queries is None else MOST)
        if message is None:
            return False
        if isinstance(message, Terminate):
            self.is_closing = True
        elif self._queries is None:
            self._pending = self._login.handle_message(message)
        else:
            self._pending = self._queries.handle_message(message)
        return True

    def _handle_first_message(self) -> bool:
        first = self._buffer.take_first_message()
        if first is None:
            return False
        if isinstance(first, CancelRequest):
            self.is_closing = True
            # The protocol has no message for the client.
            self._pending = PendingTask(CancelStatement(first.process, first.key), lambda _: None)
        else:
            self._pending = self._login.handle_first_message(first, len(self._buffer))
        return True

    def _accept_login(self, found: LoginResult) -> None:
        self._queries = QueryExchange(self._out, found.memory)
        self._out += messages.authentication_ok()
        for name, value in found.statuses.items():
            self._out += messages.parameter_status(name, value)
        self._out += messages.backend_key_data(found.process, found.key)
        self._out += messages.ready_for_query("I")
