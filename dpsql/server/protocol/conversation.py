"""One connection as a state machine: bytes in, tasks and bytes out; no sockets, threads or clocks.

`receive` takes bytes. `step` handles messages until one needs work by the server around it, which it returns as a task;
the answer goes to the method that the task's docstring names, and `step` goes on. `take` gives the bytes to be sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

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
from dpsql.server.protocol.scram import MECHANISM, Proof, Verifier
from dpsql.server.protocol.tasks import (
    Answer,
    Cancel,
    DescribeStatement,
    Description,
    LoggedIn,
    LogIn,
    LookUp,
    Reject,
    RunStatement,
    StartTLS,
    Task,
)
from dpsql.server.protocol.values import Column, decoded, encoded
from dpsql.server.statements import control, count_parameters, split

MOST_NAMED = 1_000
"""Statements and portals that one connection may have at a time."""
MOST_CHARACTERS = 1_000_000
"""Characters of a message's text, of which no statement needs as many."""
MOST_HELD = 8_000_000
"""Characters of the texts, and bytes of the parameters, that a connection's statements and portals hold at a time."""
MOST_AT_ONCE = 100
"""Messages that are handled, if none needs a task, before other connections have their turn."""

_Phase = str
_ABORTED = Failure(
    "25P02",
    "current transaction is aborted, commands ignored until end of transaction block",
    "ROLLBACK ends it; what was charged stays charged",
)


@dataclass(slots=True)
class _Statement:
    """A statement by its name: `described` are the columns that were sent to the client."""

    text: str
    types: tuple[int, ...]
    described: Description | None = None


@dataclass(slots=True)
class _Portal:
    """A statement with its parameters' values, and the rows of its answer that are not sent yet."""

    statement: _Statement
    values: tuple[Any, ...]
    results: tuple[int, ...]
    columns: tuple[Column, ...] | None
    is_described: bool = False
    size: int = 0
    answer: Answer | None = None
    rows: Iterator[tuple[Any, ...]] = field(default_factory=lambda: iter(()))
    sent: int = 0


class Conversation:
    """A client's connection. `tls` says whether it is offered, `encrypted` whether there is no door without it."""

    def __init__(self, *, tls: bool = False, encrypted: bool = False) -> None:
        self._tls, self._encrypted = tls, encrypted
        self._buffer = Buffer()
        self._out = bytearray()
        self._phase: _Phase = "startup"
        self._secure = False
        self._asked_gss = False
        self._refused: Failure | None = None
        self._startup: Startup | None = None
        self._proof: Proof | None = None
        self._waiting: Task | None = None
        self._simple: list[tuple[str, int]] | None = None
        self._ignoring = False
        self._status = "I"
        self._statements: dict[str, _Statement] = {}
        self._portals: dict[str, _Portal] = {}
        self._running: _Portal | None = None
        self._describing: tuple[str, _Statement | _Portal] | None = None
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
        """Whether a task is still to be answered."""
        return self._waiting is not None

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

    def refuse(self, failure: Failure) -> None:
        """Fails when the client says who it is: before that it may not read a message."""
        self._refused = failure

    def fail(self, failure: Failure) -> None:
        """Says why the connection ends, and ends it."""
        self._out += backend.error(failure)
        self.closing = True

    def step(self) -> Task | None:
        """Handles messages up to the next task.

        None where more bytes are needed, the connection ends, or many messages are handled: `behind` then.
        """
        handled, self.behind = 0, False
        try:
            while self._waiting is None and not self.closing:
                if self._simple is not None:
                    self._waiting = self._next_of_simple()
                    continue
                if self._phase == "startup":
                    first = self._buffer.first()
                    if first is None:
                        break
                    self._waiting = self._first(first)
                    continue
                if handled == MOST_AT_ONCE:
                    self.behind = True
                    break
                message = self._buffer.next(MOST if self._phase == "ready" else MOST_AT_STARTUP)
                if message is None:
                    break
                handled += 1
                self._waiting = self._handled(message)
        except ProtocolError as error:
            self._waiting = None
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
        if self._refused is not None:
            self.fail(self._refused)
            return None
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
        self._phase = "ready"
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
                self._portals.clear()
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
                self._simple = []  # also a failure is followed by ReadyForQuery
                _require_short(len(text))
                self._simple = split(text)
                self._statements.pop("", None)
                self._portals.pop("", None)
                if not self._simple:
                    self._out += backend.empty_query()
            case Parse():
                self._parse(message)
            case Bind():
                self._bind(message)
            case Describe(kind, name):
                return self._describe(kind, name)
            case Execute(portal, rows):
                return self._execute(self._portal(portal), rows)
            case Close("S", name):
                self._statements.pop(name, None)
                self._out += backend.close_complete()
            case Close(_, name):
                self._portals.pop(name, None)
                self._out += backend.close_complete()
            case Flush():
                pass
            case _:
                raise ProtocolError("COPY and function calls are not supported", "0A000")
        return None

    def _next_of_simple(self) -> Task | None:
        """The next statement of a simple query; ReadyForQuery after the last."""
        if not self._simple:
            self._simple = None
            self._out += backend.ready(self._status)
            return None
        text, start = self._simple.pop(0)
        if self._refused_in_transaction(text):
            self._failed(_ABORTED)
            return None
        return RunStatement(text, (), None, start)

    def _refused_in_transaction(self, text: str) -> bool:
        return self._status == "E" and control(text) not in ("commit", "rollback")

    def _parse(self, message: Parse) -> None:
        _require_short(len(message.text))
        found = split(message.text)
        if len(found) > 1:
            raise Failed("42601", "cannot insert multiple commands into a prepared statement")
        text = message.text if found else ""
        if message.name and message.name in self._statements:
            raise Failed("42P05", f'prepared statement "{message.name}" already exists')
        if self._refused_in_transaction(text):
            raise Failed(_ABORTED.sqlstate, _ABORTED.message, _ABORTED.hint)
        if len(self._statements) >= MOST_NAMED:
            raise Failed("54000", f"a connection has at most {MOST_NAMED:,} prepared statements")
        self._require_room(len(text))
        count = count_parameters(text)
        types = (*message.types[:count], *(0,) * (count - len(message.types)))
        self._statements[message.name] = _Statement(text, types)
        self._out += backend.parse_complete()

    def _statement(self, name: str) -> _Statement:
        if name not in self._statements:
            raise Failed("26000", f'prepared statement "{name}" does not exist')
        return self._statements[name]

    def _portal(self, name: str) -> _Portal:
        if name not in self._portals:
            raise Failed("34000", f'portal "{name}" does not exist')
        return self._portals[name]

    def _bind(self, message: Bind) -> None:
        statement = self._statement(message.statement)
        if message.portal and message.portal in self._portals:
            raise Failed("42P03", f'cursor "{message.portal}" already exists')
        if len(self._portals) >= MOST_NAMED:
            raise Failed("54000", f"a connection has at most {MOST_NAMED:,} portals")
        if self._refused_in_transaction(statement.text):
            raise Failed(_ABORTED.sqlstate, _ABORTED.message, _ABORTED.hint)
        count = len(statement.types)
        if len(message.values) != count:
            raise Failed(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, but the statement requires {count}",
            )
        size = sum(len(value or b"") for value in message.values)
        self._require_room(size)
        formats = _for_each(message.formats, count)
        described = statement.described
        types = statement.types if described is None else described.parameters
        values = tuple(map(decoded, message.values, types, formats))
        columns = None if described is None else described.columns
        is_described = described is not None
        self._portals[message.portal] = _Portal(
            statement, values, message.results, columns, is_described, size
        )
        self._out += backend.bind_complete()

    def _require_room(self, size: int) -> None:
        """Raises Failed where the statements and portals would hold more than `MOST_HELD` with so much more."""
        texts = sum(len(statement.text) for statement in self._statements.values())
        if texts + sum(portal.size for portal in self._portals.values()) + size > MOST_HELD:
            raise Failed("54000", "the statements and portals of a connection hold too much", "close some")

    def _describe(self, kind: str, name: str) -> Task | None:
        if kind == "S":
            statement = self._statement(name)
            self._describing = ("S", statement)
            if statement.described is not None:
                self.described(statement.described)
                return None
            return DescribeStatement(statement.text, statement.types, None)
        portal = self._portal(name)
        self._describing = ("P", portal)
        if portal.is_described:
            self.described(Description(portal.columns, ()))
            return None
        return DescribeStatement(portal.statement.text, portal.statement.types, portal.values)

    def described(self, found: Description | Failure) -> None:
        """Answers `DescribeStatement`."""
        self._waiting = None
        if self._describing is None:
            return
        _, of = self._describing
        self._describing = None
        if isinstance(found, Failure):
            self._failed(found)
            return
        formats: tuple[int, ...] = ()
        if isinstance(of, _Portal):
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

    def _execute(self, portal: _Portal, rows: int) -> Task | None:
        if self._refused_in_transaction(portal.statement.text):
            raise Failed(_ABORTED.sqlstate, _ABORTED.message, _ABORTED.hint)
        if portal.answer is not None:
            self._send(portal, rows)
            return None
        if not portal.statement.text:
            self._out += backend.empty_query()
            return None
        self._running, self._limit = portal, rows
        # To a client that has not asked for the columns, rows of any columns are sent.
        return RunStatement(
            portal.statement.text, portal.values, portal.columns if portal.is_described else None
        )

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
            self._follow(control(task.text))
        try:
            if portal is None:
                self._send_whole(found)
            else:
                portal.answer, portal.rows = found, iter(found.rows)
                self._send(portal, self._limit)
        except Failed as error:
            self._failed(error.failure)

    def _follow(self, command: str | None) -> None:
        if command == "begin":
            self._status = "T"
        elif command in ("commit", "rollback"):
            self._status = "I"

    def _send_whole(self, found: Answer) -> None:
        if found.columns is not None:
            codes = (0,) * len(found.columns)
            self._out += backend.row_description(found.columns, codes)
            for row in found.rows:
                self._out += _row(found.columns, codes, row)
        self._out += backend.complete(found.tag)

    def _send(self, portal: _Portal, limit: int) -> None:
        """Sends the next rows of a portal: at most `limit` unless that is 0."""
        found = portal.answer
        if found is None:
            return
        if found.columns is None:
            self._out += backend.complete(found.tag)
            return
        codes = _for_each(portal.results, len(found.columns))
        sent = 0
        for row in itertools.islice(portal.rows, limit or None):
            self._out += _row(found.columns, codes, row)
            sent += 1
        portal.sent += sent
        if limit and sent == limit and portal.sent < len(found.rows):
            self._out += backend.suspended()
        else:
            self._out += backend.complete(_tag(found.tag, sent))
            portal.answer = replace(found, rows=())  # sent, and never sent again

    def _failed(self, failure: Failure) -> None:
        """Says an error; the rest of a simple query, or of a series up to Sync, is skipped."""
        self._out += backend.error(failure)
        self._running = self._describing = None
        if self._status == "T":
            self._status = "E"
        if self._simple is None:
            self._ignoring = True
        else:
            self._simple = []


def _require_short(length: int) -> None:
    if length > MOST_CHARACTERS:
        raise Failed("54000", f"a text has at most {MOST_CHARACTERS:,} characters")


def _tag(tag: str, sent: int) -> str:
    """The tag of a portal's last rows, with how many they are."""
    word, space, _ = tag.rpartition(" ")
    return f"{word} {sent}" if space and word == "SELECT" else tag


def _row(columns: tuple[Column, ...], codes: tuple[int, ...], row: tuple[Any, ...]) -> bytes:
    values = [
        encoded(value, column.oid, code) for value, column, code in zip(row, columns, codes, strict=True)
    ]
    return backend.data_row(values)


def _for_each(codes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The format of each value: no code means text, and one is that of all."""
    if len(codes) <= 1:
        return (codes or (0,)) * count
    if len(codes) != count:
        raise Failed("08P01", f"a message has {len(codes)} formats for {count} values")
    return codes
