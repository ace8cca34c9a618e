"""One connection as a state machine: bytes in, tasks and bytes out; no sockets, threads or clocks.

`receive_bytes` takes bytes. `step` handles messages until one needs work by the server, which it returns as a task;
`complete_task` takes the task's result, and `step` continues. `take_output` returns the bytes to send.
"""

from __future__ import annotations

from typing import Any, TypeVar

from dpsql.interfaces.server.protocol import backend
from dpsql.interfaces.server.protocol.failure import Failure, ProtocolError, StatementError
from dpsql.interfaces.server.protocol.frontend import (
    MOST,
    MOST_AT_STARTUP,
    CancelRequest,
    MessageBuffer,
    Terminate,
)
from dpsql.interfaces.server.protocol.login import LoginExchange
from dpsql.interfaces.server.protocol.queries import MOST_READ_HERE, QueryExchange
from dpsql.interfaces.server.protocol.tasks import CancelStatement, LoginResult, PendingTask, Task

MOST_AT_ONCE = 100
"""The number of messages without a task that are handled before other connections get a turn."""

_Result = TypeVar("_Result")


class Conversation:
    """A client's connection: the order of its messages, up to the login and after it.

    `tls` says whether TLS is offered, `requires_tls` whether it is required.
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
        self._out += backend.error_response(failure)
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
        self._out += backend.authentication_ok()
        for name, value in found.statuses.items():
            self._out += backend.parameter_status(name, value)
        self._out += backend.backend_key_data(found.process, found.key)
        self._out += backend.ready_for_query("I")
