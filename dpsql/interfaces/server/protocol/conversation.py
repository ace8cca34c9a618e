"""One connection as a state machine: bytes in, tasks and bytes out; no sockets, threads or clocks.

`receive_bytes` takes bytes. `step` handles messages until one needs work by the server, which it returns as a task; the result
goes to the method that the task's docstring names, and `step` continues. `take_output` returns the bytes to send.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpsql.interfaces.server.protocol import backend, frontend
from dpsql.interfaces.server.protocol.failure import Failure, ProtocolError, StatementError
from dpsql.interfaces.server.protocol.frontend import (
    MOST,
    MOST_AT_STARTUP,
    Bind,
    CancelRequest,
    Close,
    Describe,
    Execute,
    Flush,
    GSSRequest,
    Message,
    MessageBuffer,
    Parse,
    Password,
    Query,
    SSLRequest,
    Startup,
    Sync,
    Terminate,
)
from dpsql.interfaces.server.protocol.named_objects import NamedObjects, Portal, PreparedStatement
from dpsql.interfaces.server.protocol.scram import MECHANISM, ScramExchange, Verifier
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
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
    StatementDescription,
    Task,
)
from dpsql.interfaces.server.protocol.values import Column, decode_value, expand_formats
from dpsql.interfaces.server.statements import MOST_STATEMENTS, Statement, parse_statements

MOST_CHARACTERS = 100_000
"""The largest number of characters of a message's text; a list of ten thousand numbers has fewer."""
MOST_READ_HERE = 4_096
"""The largest number of characters of texts that are parsed in the event loop, where all connections wait."""
TOO_MANY_STATEMENTS = f"a query text may have at most {MOST_STATEMENTS:,} statements"
MOST_VALUES_AT_ONCE = 5_000
"""About the number of values of an answer that are written before other connections get a turn."""
MOST_AT_ONCE = 100
"""The number of messages without a task that are handled before other connections get a turn."""

_Phase = str
_ABORTED = Failure(
    "25P02",
    "current transaction is aborted, commands ignored until end of transaction block",
    "ROLLBACK ends it; any charge stands",
)
_Found = TypeVar("_Found")


class Conversation:
    """A client's connection. `tls` says whether TLS is offered, `requires_tls` whether it is required."""

    def __init__(self, *, tls: bool = False, requires_tls: bool = False) -> None:
        self._offers_tls, self._requires_tls = tls, requires_tls
        self._buffer = MessageBuffer()
        self._out = bytearray()
        self._phase: _Phase = "startup"
        self._is_encrypted = False
        self._asked_gss = False
        self._startup: Startup | None = None
        self._scram: ScramExchange | None = None
        self._task: Task | None = None
        self._simple_statements: deque[Statement] | None = None
        self._message_to_read: Query | Parse | None = None
        self._message_to_bind: Bind | None = None
        self._sending: Iterator[None] | None = None
        self._is_ignoring = False
        self._status = "I"
        self._named = NamedObjects()
        self._running_portal: Portal | None = None
        self._describing: PreparedStatement | Portal | None = None
        self.is_closing = False
        self.has_more_messages = False
        """Whether `step` stopped although more messages may be available."""

    @property
    def user(self) -> str:
        """Return the user name that the client claims, or an empty text before it does."""
        return "" if self._startup is None else self._startup.parameters.get("user", "")

    @property
    def is_logged_in(self) -> bool:
        """Return whether the client is authenticated."""
        return self._phase == "ready"

    @property
    def is_waiting(self) -> bool:
        """Return whether a task is unfinished, or an answer is being sent."""
        return self._task is not None or self._sending is not None

    @property
    def idle_status(self) -> str | None:
        """Return the transaction status (I, T or E) of an idle client, or None while it is being served."""
        return (
            self._status if self._phase == "ready" and not self.is_waiting and not self.is_closing else None
        )

    @property
    def unread_bytes(self) -> int:
        """Return the number of received and unhandled bytes."""
        return len(self._buffer)

    @property
    def transaction_status(self) -> str:
        """Return I outside a transaction, T within one, E within a failed one."""
        return self._status

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
        self._task = self._sending = self._simple_statements = None
        self.is_closing = True

    def step(self) -> Task | None:
        """Handle messages up to the next task.

        Returns None if more bytes are needed, the connection ends, or many messages were handled (`has_more_messages`).
        """
        handled, self.has_more_messages = 0, False
        self._read_here = 0
        try:
            while self._task is None and not self.is_closing:
                if self._sending is not None:
                    self._send_part()
                    self.has_more_messages = self._sending is not None
                    if self.has_more_messages:
                        break
                    continue
                if self._simple_statements is not None:
                    self._task = self._run_next_statement()
                    continue
                if self._phase == "startup":
                    first = self._buffer.take_first_message()
                    if first is None:
                        break
                    self._task = self._handle_first_message(first)
                    continue
                if handled == MOST_AT_ONCE or self._read_here > MOST_READ_HERE:
                    self.has_more_messages = True
                    break
                message = self._buffer.take_message(MOST if self._phase == "ready" else MOST_AT_STARTUP)
                if message is None:
                    break
                handled += 1
                self._task = self._handle_message(message)
        except ProtocolError as error:
            self.close_with_failure(error.failure)
        return self._task

    def _handle_first_message(self, message: frontend.FirstMessage) -> Task | None:
        match message:
            case SSLRequest() if self._offers_tls and not self._is_encrypted:
                # Bytes after the request are not encrypted, and must not be treated as encrypted.
                if len(self._buffer):
                    raise ProtocolError("received unencrypted data after SSL request")
                self._out += b"S"
                return StartTLS()
            case SSLRequest():
                self._out += b"N"
            case GSSRequest():
                if self._asked_gss:
                    raise ProtocolError("GSSAPI encryption is requested twice")
                self._asked_gss = True
                self._out += b"N"
            case CancelRequest(process, key):
                self.is_closing = True
                return CancelStatement(process, key)
            case Startup():
                return self._handle_startup(message)
        return None

    def confirm_tls(self) -> None:
        """Answer `StartTLS`."""
        self._task, self._is_encrypted = None, True

    def confirm_cancel(self) -> None:
        """Answer `CancelStatement`; the protocol has no message for the client."""
        self._task = None

    def _handle_startup(self, message: Startup) -> Task | None:
        if self._requires_tls and not self._is_encrypted:
            raise ProtocolError("the server requires TLS: connect with sslmode=require", "28000")
        user = message.parameters.get("user", "")
        if not user:
            raise ProtocolError("no user name given in the startup packet", "28000")
        if "replication" in message.parameters:
            raise ProtocolError("replication is not supported", "0A000")
        unknown = [name for name in message.parameters if name.startswith("_pq_.")]
        if message.minor or unknown:
            self._out += backend.negotiate_protocol_version(unknown)
        self._startup = message
        self._phase = "password"
        return LookUpUser(user)

    def receive_verifier(self, verifier: Verifier, *, known: bool) -> None:
        """Answer `LookUpUser` with the password verifier; `known` says whether the user exists."""
        self._task = None
        self._scram = ScramExchange(verifier, known=known)
        self._out += backend.authentication_sasl([MECHANISM])

    def _handle_authentication(self, message: Message) -> Task | None:
        if isinstance(message, Terminate):
            self.is_closing = True
            return None
        if not isinstance(message, Password) or self._scram is None:
            raise ProtocolError("expected a SASL response")
        if self._phase == "password":
            mechanism, first = frontend.parse_initial_response(message.data)
            if mechanism != MECHANISM:
                raise ProtocolError("the client selected an invalid SASL authentication mechanism")
            challenge = self._scram.answer_first_message(first.decode("utf-8", "replace"))
            if challenge is None:
                raise ProtocolError("malformed SCRAM message")
            self._out += backend.authentication_sasl_continue(challenge)
            self._phase = "proof"
            return None
        signature = self._scram.answer_final_message(message.data.decode("utf-8", "replace"))
        self._scram = None
        if signature is None:
            return RejectLogin(self.user)
        self._out += backend.authentication_sasl_final(signature)
        return LogIn(self.user, {} if self._startup is None else self._startup.parameters)

    def reject_login(self) -> None:
        """Answer `RejectLogin`."""
        self._task = None
        self.close_with_failure(
            Failure("28P01", f'password authentication failed for user "{self.user}"', severity="FATAL")
        )

    def accept_login(self, found: LoginResult) -> None:
        """Answer `LogIn`; `close_with_failure` refuses it instead."""
        self._task = None
        self._phase, self._named.memory = "ready", found.memory
        self._out += backend.authentication_ok()
        for name, value in found.statuses.items():
            self._out += backend.parameter_status(name, value)
        self._out += backend.backend_key_data(found.process, found.key)
        self._out += backend.ready_for_query("I")

    def _handle_message(self, message: Message) -> Task | None:
        if self._phase != "ready":
            return self._handle_authentication(message)
        if isinstance(message, Terminate):
            self.is_closing = True
            return None
        if isinstance(message, Sync):
            self._is_ignoring = False
            if self._status == "I":
                self._named.close_portals()
            self._out += backend.ready_for_query(self._status)
            return None
        if self._is_ignoring:
            return None
        try:
            return self._handle_query_message(message)
        except StatementError as error:
            self._fail_statement(error.failure)
        return None

    def _handle_query_message(self, message: Message) -> Task | None:
        match message:
            case Query(text):
                self._simple_statements = deque()  # also a failure is followed by ReadyForQuery
                return self._read_text(message, text)
            case Parse():
                return self._read_text(message, message.text)
            case Bind():
                return self._handle_bind(message)
            case Describe(kind, name):
                return self._handle_describe(kind, name)
            case Execute(portal, rows):
                return self._handle_execute(self._named.get_portal(portal), rows)
            case Close("S", name):
                self._named.forget_statements(name)
                self._out += backend.close_complete()
            case Close(_, name):
                self._named.close_portals((name,))
                self._out += backend.close_complete()
            case Flush():
                pass
            case _:
                raise ProtocolError("COPY and function calls are not supported", "0A000")
        return None

    def _read_text(self, message: Query | Parse, text: str) -> Task | None:
        """Read the statements of a message's text, a long one elsewhere."""
        if len(text) > MOST_CHARACTERS:
            raise StatementError("54000", f"a query text may have at most {MOST_CHARACTERS:,} characters")
        if len(text) > MOST_READ_HERE:
            self._message_to_read = message
            return ReadText(text)
        self._read_here += len(text)
        try:
            found = parse_statements(text)
        except ValueError:
            raise StatementError("54000", TOO_MANY_STATEMENTS) from None
        self._take_statements(message, found)
        return None

    def receive_statements(self, found: tuple[Statement, ...] | Failure) -> None:
        """Answer `ReadText`."""
        message, self._task, self._message_to_read = self._message_to_read, None, None
        if message is not None:
            self._resume(found, partial(self._take_statements, message))

    def _resume(self, found: _Found | Failure, take: Callable[[_Found], None]) -> None:
        """Go on with what was found for a message that waited for it, or send why there is none."""
        if isinstance(found, Failure):
            self._fail_statement(found)
            return
        try:
            take(found)
        except StatementError as error:
            self._fail_statement(error.failure)

    def _take_statements(self, message: Query | Parse, found: tuple[Statement, ...]) -> None:
        if isinstance(message, Parse):
            self._handle_parse(message, found)
            return
        self._simple_statements = deque(found)
        self._named.forget_statements("")
        self._named.close_portals(("",))
        if not found:
            self._out += backend.empty_query_response()

    def _run_next_statement(self) -> Task | None:
        """The next statement of a simple query; ReadyForQuery after the last."""
        if not self._simple_statements:
            self._simple_statements = None
            self._out += backend.ready_for_query(self._status)
            return None
        statement = self._simple_statements.popleft()
        try:
            return self._run_statement(statement, (), None)
        except StatementError as error:
            self._fail_statement(error.failure)
        return None

    def _run_statement(
        self, statement: Statement, values: tuple[Any, ...], columns: tuple[Column, ...] | None
    ) -> Task | None:
        """Run a statement: here where it is of prepared statements and portals, else by the server around."""
        self._require_no_failed_transaction(statement)
        tag = self._named.run_close_command(statement)
        if tag is None:
            return RunStatement(statement, values, columns)
        self._out += backend.command_complete(tag)
        return None

    def _require_no_failed_transaction(self, statement: Statement) -> None:
        """Raise StatementError in a failed transaction, unless the statement ends it or returns to a savepoint."""
        if self._status == "E" and statement.command not in ("commit", "rollback", "rollback to"):
            raise StatementError(_ABORTED.sqlstate, _ABORTED.message, _ABORTED.hint)

    def _handle_parse(self, message: Parse, found: tuple[Statement, ...]) -> None:
        if len(found) > 1:
            raise StatementError("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else Statement("")
        self._named.require_new_statement(message.name)
        self._require_no_failed_transaction(statement)
        count = statement.parameters
        types = (*message.types[:count], *(0,) * (count - len(message.types)))
        self._named.keep_statement(message.name, PreparedStatement(statement, types))
        self._out += backend.parse_complete()

    def _handle_bind(self, message: Bind) -> Task | None:
        prepared = self._named.get_statement(message.statement)
        self._named.require_new_portal(message.portal)
        self._require_no_failed_transaction(prepared.statement)
        count = len(prepared.types)
        if len(message.values) != count:
            raise StatementError(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, but the statement requires {count}",
            )
        if prepared.description is None and not all(prepared.types):
            self._message_to_bind = message
            return InferTypes(prepared.statement, prepared.types)
        self._bind_values(message, prepared)
        return None

    def receive_types(self, found: tuple[int, ...] | Failure) -> None:
        """Answer `InferTypes`."""
        message, self._task, self._message_to_bind = self._message_to_bind, None, None
        if message is not None:
            self._resume(found, partial(self._bind_inferred, message))

    def _bind_inferred(self, message: Bind, types: tuple[int, ...]) -> None:
        prepared = self._named.get_statement(message.statement)
        prepared.types = types
        self._bind_values(message, prepared)

    def _bind_values(self, message: Bind, prepared: PreparedStatement) -> None:
        described = prepared.description
        types = prepared.types if described is None else described.parameters
        formats = expand_formats(message.formats, len(types))
        values = tuple(map(decode_value, message.values, types, formats))
        columns = None if described is None else described.columns
        portal = Portal(message.portal, prepared, values, message.results, columns, described is not None)
        self._named.keep_portal(portal, sum(len(value or b"") for value in message.values))
        self._out += backend.bind_complete()

    def _handle_describe(self, kind: str, name: str) -> Task | None:
        if kind == "S":
            prepared = self._named.get_statement(name)
            self._describing = prepared
            if prepared.description is not None:
                self.receive_description(prepared.description)
                return None
            return DescribeStatement(prepared.statement, prepared.types, None)
        portal = self._named.get_portal(name)
        self._describing = portal
        if portal.is_described:
            self.receive_description(StatementDescription(portal.columns, ()))
            return None
        prepared = portal.prepared
        return DescribeStatement(prepared.statement, prepared.types, portal.values)

    def receive_description(self, found: StatementDescription | Failure) -> None:
        """Answer `DescribeStatement`."""
        self._task = None
        of, self._describing = self._describing, None
        if of is None:
            return
        if isinstance(found, Failure):
            self._fail_statement(found)
            return
        formats: tuple[int, ...] = ()
        if isinstance(of, Portal):
            of.columns, of.is_described = found.columns, True
            formats = of.results
        else:
            of.description = found
            self._out += backend.parameter_description(found.parameters)
        if found.columns is None:
            self._out += backend.no_data()
            return
        try:
            codes = expand_formats(formats, len(found.columns))
        except StatementError as error:
            self._fail_statement(error.failure)
            return
        self._out += backend.row_description(found.columns, codes)

    def _handle_execute(self, portal: Portal, rows: int) -> Task | None:
        statement = portal.prepared.statement
        self._require_no_failed_transaction(statement)
        if portal.answer is not None:
            self._begin_sending(self._send_portal(portal, rows))
            return None
        if not statement.text:
            self._out += backend.empty_query_response()
            return None
        # To a client that has not asked for the columns, rows of any columns are sent.
        task = self._run_statement(statement, portal.values, portal.columns if portal.is_described else None)
        if task is not None:
            self._running_portal, self._limit = portal, rows
        return task

    def receive_answer(self, found: Answer | Failure) -> None:
        """Answer `RunStatement`."""
        task, self._task = self._task, None
        portal, self._running_portal = self._running_portal, None
        if isinstance(found, Failure):
            self._fail_statement(found)
            return
        for each in found.notices:
            self._out += backend.notice_response(each)
        for name, value in found.statuses.items():
            self._out += backend.parameter_status(name, value)
        if isinstance(task, RunStatement):
            self._update_transaction(task.statement)
        if portal is None:
            self._begin_sending(self._send_answer(found))
        else:
            portal.answer, portal.rows = found, iter(found.rows)
            self._begin_sending(self._send_portal(portal, self._limit))

    def _begin_sending(self, parts: Iterator[None]) -> None:
        """Write the first part of an answer; `step` writes the others, after other connections had a turn."""
        self._sending = parts
        self._send_part()

    def _send_part(self) -> None:
        if self._sending is None:
            return
        try:
            next(self._sending)
        except StopIteration:
            self._sending = None
        except StatementError as error:
            self._sending = None
            self._fail_statement(error.failure)

    def _update_transaction(self, statement: Statement) -> None:
        """Update the transaction after a statement: its end closes all portals, and DISCARD ALL also forgets statements."""
        if statement.command == "begin":
            self._status = "T"
        elif statement.command in ("commit", "rollback"):
            self._status = "I"
            self._named.close_portals()
        elif statement.command == "rollback to" and self._status == "E":
            self._status = "T"
        elif statement.words[:2] == ("discard", "all"):
            self._named.close_portals()
            self._named.forget_all_statements()

    def _send_answer(self, found: Answer) -> Iterator[None]:
        """Write an answer, part by part."""
        if found.columns is not None:
            codes = (0,) * len(found.columns)
            self._out += backend.row_description(found.columns, codes)
            yield from self._send_rows(found.columns, codes, iter(found.rows))
        self._out += backend.command_complete(found.tag)

    def _send_portal(self, portal: Portal, limit: int) -> Iterator[None]:
        """Write the next rows of a portal, part by part: at most `limit` unless that is 0."""
        found = portal.answer
        if found is None:
            return
        if found.columns is None:
            self._out += backend.command_complete(found.tag)
            return
        codes = expand_formats(portal.results, len(found.columns))
        if limit and portal.sent + limit < len(found.rows):
            self._named.keep_rows(portal, found.size)
        sent = min(limit or len(found.rows), max(len(found.rows) - portal.sent, 0))
        yield from self._send_rows(found.columns, codes, itertools.islice(portal.rows, sent))
        portal.sent += sent
        if limit and sent == limit and portal.sent < len(found.rows):
            self._out += backend.portal_suspended()
        else:
            self._out += backend.command_complete(backend.format_row_tag(found.tag, sent))
            portal.answer = replace(found, rows=())  # sent, and never sent again
            self._named.drop_rows(portal)

    def _send_rows(
        self, columns: tuple[Column, ...], codes: tuple[int, ...], rows: Iterator[tuple[Any, ...]]
    ) -> Iterator[None]:
        for number, row in enumerate(rows, 1):
            self._out += backend.encode_row(columns, codes, row)
            if number * len(columns) % MOST_VALUES_AT_ONCE < len(columns):
                yield

    def _fail_statement(self, failure: Failure) -> None:
        """Report an error, and skip the rest of a simple query or of a series up to Sync."""
        self._out += backend.error_response(failure)
        self._running_portal = self._describing = None
        if self._status == "T":
            self._status = "E"
        if self._simple_statements is None:
            self._is_ignoring = True
        else:
            self._simple_statements = deque()
