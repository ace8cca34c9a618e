"""One connection as a state machine: bytes in, tasks and bytes out; no sockets, threads or clocks.

`receive` takes bytes. `step` handles messages until one needs work by the server around it, which it returns as a task;
the answer goes to the method that the task's docstring names, and `step` goes on. `take` gives the bytes to be sent.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpsql.server.protocol import backend, frontend
from dpsql.server.protocol.failure import Failed, Failure, ProtocolError
from dpsql.server.protocol.frontend import (
    MOST,
    MOST_AT_STARTUP,
    Bind,
    Buffer,
    CancelRequest,
    Close,
    Describe,
    Execute,
    Flush,
    GSSRequest,
    Message,
    Parse,
    Password,
    Query,
    SSLRequest,
    Startup,
    Sync,
    Terminate,
)
from dpsql.server.protocol.named_objects import NamedObjects, Portal, Prepared
from dpsql.server.protocol.scram import MECHANISM, Proof, Verifier
from dpsql.server.protocol.tasks import (
    Answer,
    Cancel,
    DescribeStatement,
    Description,
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
from dpsql.server.protocol.values import Column, decoded
from dpsql.server.statements import MOST_STATEMENTS, Statement, read_statements

MOST_CHARACTERS = 100_000
"""Characters of a message's text: a list of ten thousand numbers has fewer."""
MOST_READ_HERE = 4_096
"""Characters of a text that is read where all connections wait for it, and of the texts that are read there at once."""
TOO_MANY_STATEMENTS = f"a text has at most {MOST_STATEMENTS:,} statements"
MOST_VALUES_AT_ONCE = 5_000
"""About how many values of an answer are written before other connections have their turn."""
MOST_AT_ONCE = 100
"""Messages that are handled, if none needs a task, before other connections have their turn."""

_Phase = str
_ABORTED = Failure(
    "25P02",
    "current transaction is aborted, commands ignored until end of transaction block",
    "ROLLBACK ends it; what was charged stays charged",
)
_Found = TypeVar("_Found")


class Conversation:
    """A client's connection. `tls` says whether it is offered, `encrypted` whether there is no door without it."""

    def __init__(self, *, tls: bool = False, encrypted: bool = False) -> None:
        self._tls, self._encrypted = tls, encrypted
        self._buffer = Buffer()
        self._out = bytearray()
        self._phase: _Phase = "startup"
        self._secure = False
        self._asked_gss = False
        self._startup: Startup | None = None
        self._proof: Proof | None = None
        self._waiting: Task | None = None
        self._simple: deque[Statement] | None = None
        self._reading: Query | Parse | None = None
        self._binding: Bind | None = None
        self._sending: Iterator[None] | None = None
        self._ignoring = False
        self._status = "I"
        self._named = NamedObjects()
        self._running: Portal | None = None
        self._describing: Prepared | Portal | None = None
        self.closing = False
        self.behind = False
        """Whether `step` has stopped although more messages may be there."""

    @property
    def user(self) -> str:
        """Whom the client says it is; nobody before it says it."""
        return "" if self._startup is None else self._startup.parameters.get("user", "")

    @property
    def logged_in(self) -> bool:
        """Whether the client has proved who it is."""
        return self._phase == "ready"

    @property
    def waiting(self) -> bool:
        """Whether a task is still to be answered, or an answer to be sent."""
        return self._waiting is not None or self._sending is not None

    @property
    def idle_in(self) -> str | None:
        """The transaction (I, T or E) in which the client may ask, and has not asked; None while it is answered."""
        return self._status if self._phase == "ready" and not self.waiting and not self.closing else None

    @property
    def unread(self) -> int:
        """How many bytes are received and not handled yet."""
        return len(self._buffer)

    @property
    def transaction(self) -> str:
        """I outside a transaction, T within one, E within a failed one."""
        return self._status

    def receive(self, data: bytes) -> None:
        """Takes what has arrived."""
        self._buffer.feed(data)

    def take(self) -> bytes:
        """The bytes that are to be sent now."""
        taken = bytes(self._out)
        self._out.clear()
        return taken

    def fail(self, failure: Failure) -> None:
        """Says why the connection ends, and ends it: no task is asked for and nothing more of an answer is made."""
        self._out += backend.error(failure)
        self._waiting = self._sending = self._simple = None
        self.closing = True

    def step(self) -> Task | None:
        """Handles messages up to the next task.

        None where more bytes are needed, the connection ends, or many messages are handled: `behind` then.
        """
        handled, self.behind = 0, False
        self._read_here = 0
        try:
            while self._waiting is None and not self.closing:
                if self._sending is not None:
                    self._send_part()
                    self.behind = self._sending is not None
                    if self.behind:
                        break
                    continue
                if self._simple is not None:
                    self._waiting = self._next_of_simple()
                    continue
                if self._phase == "startup":
                    first = self._buffer.first()
                    if first is None:
                        break
                    self._waiting = self._first(first)
                    continue
                if handled == MOST_AT_ONCE or self._read_here > MOST_READ_HERE:
                    self.behind = True
                    break
                message = self._buffer.next(MOST if self._phase == "ready" else MOST_AT_STARTUP)
                if message is None:
                    break
                handled += 1
                self._waiting = self._handled(message)
        except ProtocolError as error:
            self.fail(error.failure)
        return self._waiting

    def _first(self, message: frontend.First) -> Task | None:
        match message:
            case SSLRequest() if self._tls and not self._secure:
                # What came with the request is not encrypted: it must not be taken for what is.
                if len(self._buffer):
                    raise ProtocolError("received unencrypted data after SSL request")
                self._out += b"S"
                return StartTLS()
            case SSLRequest():
                self._out += b"N"
            case GSSRequest():
                if self._asked_gss:
                    raise ProtocolError("GSSAPI encryption is asked for twice")
                self._asked_gss = True
                self._out += b"N"
            case CancelRequest(process, key):
                self.closing = True
                return Cancel(process, key)
            case Startup():
                return self._started(message)
        return None

    def tls_started(self) -> None:
        """Answers `StartTLS`."""
        self._waiting, self._secure = None, True

    def cancelled(self) -> None:
        """Answers `Cancel`. The protocol has no message for the client."""
        self._waiting = None

    def _started(self, message: Startup) -> Task | None:
        if self._encrypted and not self._secure:
            raise ProtocolError("the server takes connections with TLS alone: sslmode=require", "28000")
        user = message.parameters.get("user", "")
        if not user:
            raise ProtocolError("no user name given in the startup packet", "28000")
        if "replication" in message.parameters:
            raise ProtocolError("replication is not supported", "0A000")
        unknown = [name for name in message.parameters if name.startswith("_pq_.")]
        if message.minor or unknown:
            self._out += backend.negotiate(unknown)
        self._startup = message
        self._phase = "password"
        return LookUp(user)

    def looked_up(self, verifier: Verifier, *, known: bool) -> None:
        """Answers `LookUp`: what proves the password; `known` says whether there is such a user."""
        self._waiting = None
        self._proof = Proof(verifier, known=known)
        self._out += backend.sasl([MECHANISM])

    def _authenticating(self, message: Message) -> Task | None:
        if isinstance(message, Terminate):
            self.closing = True
            return None
        if not isinstance(message, Password) or self._proof is None:
            raise ProtocolError("expected a SASL response")
        if self._phase == "password":
            mechanism, first = frontend.initial_response(message.data)
            if mechanism != MECHANISM:
                raise ProtocolError("the client selected an invalid SASL authentication mechanism")
            challenge = self._proof.first(first.decode("utf-8", "replace"))
            if challenge is None:
                raise ProtocolError("malformed SCRAM message")
            self._out += backend.sasl_continue(challenge)
            self._phase = "proof"
            return None
        signature = self._proof.final(message.data.decode("utf-8", "replace"))
        self._proof = None
        if signature is None:
            return Reject(self.user)
        self._out += backend.sasl_final(signature)
        return LogIn(self.user, {} if self._startup is None else self._startup.parameters)

    def rejected(self) -> None:
        """Answers `Reject`."""
        self._waiting = None
        self.fail(
            Failure("28P01", f'password authentication failed for user "{self.user}"', severity="FATAL")
        )

    def logged(self, found: LoggedIn) -> None:
        """Answers `LogIn`; `fail` refuses it instead."""
        self._waiting = None
        self._phase, self._named.memory = "ready", found.memory
        self._out += backend.authenticated()
        for name, value in found.statuses.items():
            self._out += backend.parameter_status(name, value)
        self._out += backend.key_data(found.process, found.key)
        self._out += backend.ready("I")

    def _handled(self, message: Message) -> Task | None:
        if self._phase != "ready":
            return self._authenticating(message)
        if isinstance(message, Terminate):
            self.closing = True
            return None
        if isinstance(message, Sync):
            self._ignoring = False
            if self._status == "I":
                self._named.close_portals()
            self._out += backend.ready(self._status)
            return None
        if self._ignoring:
            return None
        try:
            return self._asked(message)
        except Failed as error:
            self._failed(error.failure)
        return None

    def _asked(self, message: Message) -> Task | None:
        match message:
            case Query(text):
                self._simple = deque()  # also a failure is followed by ReadyForQuery
                return self._read(message, text)
            case Parse():
                return self._read(message, message.text)
            case Bind():
                return self._bind(message)
            case Describe(kind, name):
                return self._describe(kind, name)
            case Execute(portal, rows):
                return self._execute(self._named.portal(portal), rows)
            case Close("S", name):
                self._named.forget(name)
                self._out += backend.close_complete()
            case Close(_, name):
                self._named.close_portals((name,))
                self._out += backend.close_complete()
            case Flush():
                pass
            case _:
                raise ProtocolError("COPY and function calls are not supported", "0A000")
        return None

    def _read(self, message: Query | Parse, text: str) -> Task | None:
        """Read the statements of a message's text, a long one elsewhere."""
        if len(text) > MOST_CHARACTERS:
            raise Failed("54000", f"a text has at most {MOST_CHARACTERS:,} characters")
        if len(text) > MOST_READ_HERE:
            self._reading = message
            return ReadText(text)
        self._read_here += len(text)
        try:
            found = read_statements(text)
        except ValueError:
            raise Failed("54000", TOO_MANY_STATEMENTS) from None
        self._take_read(message, found)
        return None

    def was_read(self, found: tuple[Statement, ...] | Failure) -> None:
        """Answer `ReadText`."""
        message, self._waiting, self._reading = self._reading, None, None
        if message is not None:
            self._resume(found, partial(self._take_read, message))

    def _resume(self, found: _Found | Failure, take: Callable[[_Found], None]) -> None:
        """Go on with what was found for a message that waited for it, or send why there is none."""
        if isinstance(found, Failure):
            self._failed(found)
            return
        try:
            take(found)
        except Failed as error:
            self._failed(error.failure)

    def _take_read(self, message: Query | Parse, found: tuple[Statement, ...]) -> None:
        if isinstance(message, Parse):
            self._parse(message, found)
            return
        self._simple = deque(found)
        self._named.forget("")
        self._named.close_portals(("",))
        if not found:
            self._out += backend.empty_query()

    def _next_of_simple(self) -> Task | None:
        """The next statement of a simple query; ReadyForQuery after the last."""
        if not self._simple:
            self._simple = None
            self._out += backend.ready(self._status)
            return None
        statement = self._simple.popleft()
        try:
            return self._run(statement, (), None)
        except Failed as error:
            self._failed(error.failure)
        return None

    def _run(
        self, statement: Statement, values: tuple[Any, ...], columns: tuple[Column, ...] | None
    ) -> Task | None:
        """Run a statement: here where it is of prepared statements and portals, else by the server around."""
        self._require_no_failed_transaction(statement)
        tag = self._named.close_as_commanded(statement)
        if tag is None:
            return RunStatement(statement, values, columns)
        self._out += backend.complete(tag)
        return None

    def _require_no_failed_transaction(self, statement: Statement) -> None:
        """Raises Failed for what a failed transaction does not take: all but its end, and the way back to a savepoint."""
        if self._status == "E" and statement.command not in ("commit", "rollback", "rollback to"):
            raise Failed(_ABORTED.sqlstate, _ABORTED.message, _ABORTED.hint)

    def _parse(self, message: Parse, found: tuple[Statement, ...]) -> None:
        if len(found) > 1:
            raise Failed("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else Statement("")
        self._named.require_new_statement(message.name)
        self._require_no_failed_transaction(statement)
        count = statement.parameters
        types = (*message.types[:count], *(0,) * (count - len(message.types)))
        self._named.keep_statement(message.name, Prepared(statement, types))
        self._out += backend.parse_complete()

    def _bind(self, message: Bind) -> Task | None:
        prepared = self._named.statement(message.statement)
        self._named.require_new_portal(message.portal)
        self._require_no_failed_transaction(prepared.statement)
        count = len(prepared.types)
        if len(message.values) != count:
            raise Failed(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, but the statement requires {count}",
            )
        if prepared.described is None and not all(prepared.types):
            self._binding = message
            return InferTypes(prepared.statement, prepared.types)
        self._bind_values(message, prepared)
        return None

    def inferred(self, found: tuple[int, ...] | Failure) -> None:
        """Answer `InferTypes`."""
        message, self._waiting, self._binding = self._binding, None, None
        if message is not None:
            self._resume(found, partial(self._bind_inferred, message))

    def _bind_inferred(self, message: Bind, types: tuple[int, ...]) -> None:
        prepared = self._named.statement(message.statement)
        prepared.types = types
        self._bind_values(message, prepared)

    def _bind_values(self, message: Bind, prepared: Prepared) -> None:
        described = prepared.described
        types = prepared.types if described is None else described.parameters
        formats = _for_each(message.formats, len(types))
        values = tuple(map(decoded, message.values, types, formats))
        columns = None if described is None else described.columns
        portal = Portal(message.portal, prepared, values, message.results, columns, described is not None)
        self._named.keep_portal(portal, sum(len(value or b"") for value in message.values))
        self._out += backend.bind_complete()

    def _describe(self, kind: str, name: str) -> Task | None:
        if kind == "S":
            prepared = self._named.statement(name)
            self._describing = prepared
            if prepared.described is not None:
                self.described(prepared.described)
                return None
            return DescribeStatement(prepared.statement, prepared.types, None)
        portal = self._named.portal(name)
        self._describing = portal
        if portal.is_described:
            self.described(Description(portal.columns, ()))
            return None
        prepared = portal.prepared
        return DescribeStatement(prepared.statement, prepared.types, portal.values)

    def described(self, found: Description | Failure) -> None:
        """Answers `DescribeStatement`."""
        self._waiting = None
        of, self._describing = self._describing, None
        if of is None:
            return
        if isinstance(found, Failure):
            self._failed(found)
            return
        formats: tuple[int, ...] = ()
        if isinstance(of, Portal):
            of.columns, of.is_described = found.columns, True
            formats = of.results
        else:
            of.described = found
            self._out += backend.parameter_description(found.parameters)
        if found.columns is None:
            self._out += backend.no_data()
            return
        try:
            codes = _for_each(formats, len(found.columns))
        except Failed as error:
            self._failed(error.failure)
            return
        self._out += backend.row_description(found.columns, codes)

    def _execute(self, portal: Portal, rows: int) -> Task | None:
        statement = portal.prepared.statement
        self._require_no_failed_transaction(statement)
        if portal.answer is not None:
            self._begin_sending(self._send(portal, rows))
            return None
        if not statement.text:
            self._out += backend.empty_query()
            return None
        # To a client that has not asked for the columns, rows of any columns are sent.
        task = self._run(statement, portal.values, portal.columns if portal.is_described else None)
        if task is not None:
            self._running, self._limit = portal, rows
        return task

    def answered(self, found: Answer | Failure) -> None:
        """Answers `RunStatement`."""
        task, self._waiting = self._waiting, None
        portal, self._running = self._running, None
        if isinstance(found, Failure):
            self._failed(found)
            return
        for each in found.notices:
            self._out += backend.notice(each)
        for name, value in found.statuses.items():
            self._out += backend.parameter_status(name, value)
        if isinstance(task, RunStatement):
            self._follow(task.statement)
        if portal is None:
            self._begin_sending(self._send_whole(found))
        else:
            portal.answer, portal.rows = found, iter(found.rows)
            self._begin_sending(self._send(portal, self._limit))

    def _begin_sending(self, parts: Iterator[None]) -> None:
        """Makes the first part of an answer; `step` makes the others, each after others had their turn."""
        self._sending = parts
        self._send_part()

    def _send_part(self) -> None:
        if self._sending is None:
            return
        try:
            next(self._sending)
        except StopIteration:
            self._sending = None
        except Failed as error:
            self._sending = None
            self._failed(error.failure)

    def _follow(self, statement: Statement) -> None:
        """Take part in what a statement has done: a transaction's end closes all portals, DISCARD ALL forgets statements too."""
        if statement.command == "begin":
            self._status = "T"
        elif statement.command in ("commit", "rollback"):
            self._status = "I"
            self._named.close_portals()
        elif statement.command == "rollback to" and self._status == "E":
            self._status = "T"
        elif statement.words[:2] == ("discard", "all"):
            self._named.close_portals()
            self._named.forget_all()

    def _send_whole(self, found: Answer) -> Iterator[None]:
        """Makes an answer to be sent, part by part."""
        if found.columns is not None:
            codes = (0,) * len(found.columns)
            self._out += backend.row_description(found.columns, codes)
            yield from self._rows(found.columns, codes, iter(found.rows))
        self._out += backend.complete(found.tag)

    def _send(self, portal: Portal, limit: int) -> Iterator[None]:
        """Makes the next rows of a portal to be sent, part by part: at most `limit` unless that is 0."""
        found = portal.answer
        if found is None:
            return
        if found.columns is None:
            self._out += backend.complete(found.tag)
            return
        codes = _for_each(portal.results, len(found.columns))
        if limit and portal.sent + limit < len(found.rows):
            self._named.keep_rows(portal, found.size)
        sent = min(limit or len(found.rows), max(len(found.rows) - portal.sent, 0))
        yield from self._rows(found.columns, codes, itertools.islice(portal.rows, sent))
        portal.sent += sent
        if limit and sent == limit and portal.sent < len(found.rows):
            self._out += backend.suspended()
        else:
            self._out += backend.complete(backend.tag_of_rows(found.tag, sent))
            portal.answer = replace(found, rows=())  # sent, and never sent again
            self._named.drop_rows(portal)

    def _rows(
        self, columns: tuple[Column, ...], codes: tuple[int, ...], rows: Iterator[tuple[Any, ...]]
    ) -> Iterator[None]:
        for number, row in enumerate(rows, 1):
            self._out += backend.row(columns, codes, row)
            if number * len(columns) % MOST_VALUES_AT_ONCE < len(columns):
                yield

    def _failed(self, failure: Failure) -> None:
        """Says an error; the rest of a simple query, or of a series up to Sync, is skipped."""
        self._out += backend.error(failure)
        self._running = self._describing = None
        if self._status == "T":
            self._status = "E"
        if self._simple is None:
            self._ignoring = True
        else:
            self._simple = deque()


def _for_each(codes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The format of each value: no code means text, and one is that of all."""
    if len(codes) <= 1:
        return (codes or (0,)) * count
    if len(codes) != count:
        raise Failed("08P01", f"a message has {len(codes)} formats for {count} values")
    return codes
