"""The queries of a logged-in client: simple queries, and the extended protocol of prepared statements and portals."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from dpsql.interfaces.server.limits import SessionMemory
from dpsql.interfaces.server.protocol import messages
from dpsql.interfaces.server.protocol.cursors import Declaration, is_fetch, parse_declaration
from dpsql.interfaces.server.protocol.errors import Failure, ProtocolError, StatementError
from dpsql.interfaces.server.protocol.messages import (
    Bind,
    Close,
    Describe,
    Execute,
    Flush,
    Message,
    Parse,
    Query,
    Sync,
)
from dpsql.interfaces.server.protocol.named import NamedObjects, Portal, PreparedStatement
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    InferTypes,
    PendingTask,
    ReadText,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import UNKNOWN, Column, decode_value, expand_formats
from dpsql.interfaces.server.statements import (
    MOST_CHARACTERS,
    MOST_STATEMENTS,
    Statement,
    parse_statements,
)

# The simple and the extended protocol.


MOST_READ_HERE = 4_096
"""The largest number of characters of texts that are parsed in the event loop, where all connections wait."""
MOST_VALUES_AT_ONCE = 5_000
"""About the number of values of an answer that are written before other connections get a turn."""


def parse_client_text(text: str) -> tuple[Statement, ...]:
    """Parse the statements of a client's text. Raises StatementError if it has too many."""
    try:
        return parse_statements(text)
    except ValueError:
        raise StatementError(
            "54000", f"a query text may have at most {MOST_STATEMENTS:,} statements"
        ) from None


class Transaction:
    """The transaction of a session: `status` is I outside of one, T within one, E within a failed one."""

    def __init__(self) -> None:
        self.status = "I"

    def fail(self) -> None:
        """Mark the transaction as failed, if there is one."""
        if self.status == "T":
            self.status = "E"

    def require_accepted(self, statement: Statement) -> None:
        """Raise StatementError in a failed transaction, unless the statement ends it or returns to a savepoint."""
        if self.status == "E" and statement.command not in ("commit", "rollback", "rollback to"):
            raise StatementError(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
                "ROLLBACK ends it; any charge stands",
            )

    def apply_command(self, command: str | None) -> None:
        """Update the status after a statement's command."""
        if command == "begin":
            self.status = "T"
        elif command in ("commit", "rollback"):
            self.status = "I"
        elif command == "rollback to" and self.status == "E":
            self.status = "T"


class StatementExecutor:
    """The statements of a session one by one: each is run, and its answer is written part by part."""

    def __init__(self, out: bytearray, named: NamedObjects, transaction: Transaction) -> None:
        self._out, self._named, self._transaction = out, named, transaction
        self._unsent: Iterator[None] | None = None

    @property
    def is_sending(self) -> bool:
        """Return whether an answer is not yet written to its end."""
        return self._unsent is not None

    def start_statement(
        self,
        statement: Statement,
        values: tuple[Any, ...],
        columns: tuple[Column, ...] | None,
        send: Callable[[Answer], Iterator[None]],
    ) -> PendingTask[Answer] | None:
        """Start a statement, and write its answer with `send`.

        DEALLOCATE, CLOSE, FETCH and MOVE are run here; DECLARE runs the query of the cursor, and keeps its answer.
        """
        self._transaction.require_accepted(statement)
        tag = self._named.run_close_command(statement)
        if tag is not None:
            self._out += messages.command_complete(tag)
            return None
        fetched = self._named.run_fetch(statement)
        if fetched is not None:
            if columns not in (None, fetched.columns):
                raise StatementError("0A000", "the cursor has other columns than described")
            self._begin_sending(send(fetched))
            return None
        declaration = parse_declaration(statement)
        if declaration is not None:
            self._named.require_declarable(declaration, in_transaction=self._transaction.status == "T")
            return PendingTask(
                RunStatement(declaration.query, values, None), partial(self._keep_cursor, declaration)
            )
        return PendingTask(
            RunStatement(statement, values, columns), partial(self._receive_answer, statement, send)
        )

    def start_plain_statement(self, statement: Statement) -> PendingTask[Answer] | None:
        """Start a statement of a simple query."""
        return self.start_statement(statement, (), None, self._send_answer)

    def execute_portal(self, portal: Portal, limit: int) -> PendingTask[Answer] | None:
        """Run a portal's statement once, and write the next rows of its answer: at most `limit` unless that is 0."""
        statement = portal.prepared.statement
        self._transaction.require_accepted(statement)
        if portal.cursor is not None:
            raise StatementError("0A000", f'read the cursor "{portal.name}" with FETCH')
        if portal.answer is not None:
            self._begin_sending(self._send_portal(portal, limit))
            return None
        if not statement.text:
            self._out += messages.empty_query_response()
            return None
        # To a client that has not asked for the columns, rows of any columns are sent.
        columns = portal.columns if portal.is_described else None
        return self.start_statement(
            statement, portal.values, columns, partial(self._send_first_rows, portal, limit)
        )

    def send_part(self) -> None:
        """Write the next part of the answer."""
        unsent = self._unsent
        if unsent is None:
            return
        try:
            next(unsent)
        except StopIteration:
            self._unsent = None
        except StatementError:
            self._unsent = None
            raise

    def drop_answer(self) -> None:
        """Write nothing more of the answer."""
        self._unsent = None

    def _receive_answer(
        self, statement: Statement, send: Callable[[Answer], Iterator[None]], found: Answer
    ) -> None:
        self._write_news(found)
        self._end_command(statement)
        self._begin_sending(send(found))

    def _keep_cursor(self, declaration: Declaration, found: Answer) -> None:
        self._write_news(found)
        self._named.keep_cursor(declaration, found, in_transaction=self._transaction.status == "T")
        self._out += messages.command_complete("DECLARE CURSOR")

    def _write_news(self, found: Answer) -> None:
        """Write the notices of an answer, and the settings that it changed."""
        for each in found.notices:
            self._out += messages.notice_response(each)
        for name, value in found.statuses.items():
            self._out += messages.parameter_status(name, value)

    def _end_command(self, statement: Statement) -> None:
        """Update the transaction after a statement.

        Its end closes all portals but cursors WITH HOLD, and DISCARD ALL closes all and forgets statements.
        """
        command = statement.command
        is_kept = command == "commit" and self._transaction.status != "E"
        self._transaction.apply_command(command)
        if command in ("commit", "rollback"):
            self._named.end_transaction(is_kept=is_kept)
        elif statement.words[:2] == ("discard", "all"):
            self._named.close_portals()
            self._named.forget_all_statements()

    def _begin_sending(self, parts: Iterator[None]) -> None:
        """Write the first part of an answer; `send_part` writes the others, after other connections had a turn."""
        self._unsent = parts
        self.send_part()

    def _send_answer(self, found: Answer) -> Iterator[None]:
        """Write an answer, part by part."""
        if found.columns is not None:
            codes = (found.code,) * len(found.columns)
            self._out += messages.row_description(found.columns, codes)
            yield from self._send_rows(found.columns, codes, iter(found.rows))
        self._out += messages.command_complete(found.tag)

    def _send_first_rows(self, portal: Portal, limit: int, found: Answer) -> Iterator[None]:
        portal.answer, portal.rows = found, iter(found.rows)
        return self._send_portal(portal, limit)

    def _send_portal(self, portal: Portal, limit: int) -> Iterator[None]:
        """Write the next rows of a portal, part by part: at most `limit` unless that is 0."""
        found = portal.answer
        if found is None:
            return
        if found.columns is None:
            self._out += messages.command_complete(found.tag)
            return
        codes = expand_formats(portal.results, len(found.columns))
        if limit and portal.sent + limit < len(found.rows):
            self._named.keep_rows(portal, found.size)
        sent = min(limit or len(found.rows), max(len(found.rows) - portal.sent, 0))
        yield from self._send_rows(found.columns, codes, itertools.islice(portal.rows, sent))
        portal.sent += sent
        if limit and sent == limit and portal.sent < len(found.rows):
            self._out += messages.portal_suspended()
        else:
            self._out += messages.command_complete(messages.format_row_tag(found.tag, sent))
            portal.answer = replace(found, rows=())  # sent, and never sent again
            self._named.drop_rows(portal)

    def _send_rows(
        self, columns: tuple[Column, ...], codes: tuple[int, ...], rows: Iterator[tuple[Any, ...]]
    ) -> Iterator[None]:
        for number, row in enumerate(rows, 1):
            self._out += messages.encode_row(columns, codes, row)
            if number * len(columns) % MOST_VALUES_AT_ONCE < len(columns):
                yield


class ExtendedQuery:
    """The messages of the extended protocol: Parse, Bind and Describe make statements and portals; Execute runs a portal."""

    def __init__(
        self, out: bytearray, named: NamedObjects, transaction: Transaction, executor: StatementExecutor
    ) -> None:
        self._out, self._named = out, named
        self._transaction, self._executor = transaction, executor

    def handle_message(self, message: Message) -> PendingTask[Any] | None:
        """Handle a message other than Parse. Raises ProtocolError for one of COPY or of function calls."""
        match message:
            case Bind():
                return self._bind(message)
            case Describe("S", name):
                return self._describe_prepared(self._named.get_statement(name))
            case Describe(_, name):
                return self._describe_portal(self._named.get_portal(name))
            case Execute(portal, rows):
                return self._executor.execute_portal(self._named.get_portal(portal), rows)
            case Close("S", name):
                self._named.forget_statements(name)
                self._out += messages.close_complete()
            case Close(_, name):
                self._named.close_portals((name,))
                self._out += messages.close_complete()
            case Flush():
                pass
            case _:
                raise ProtocolError("COPY and function calls are not supported", "0A000")
        return None

    def prepare_statement(self, message: Parse, found: tuple[Statement, ...]) -> None:
        """Keep the one statement of a Parse message. Raises StatementError if there are several."""
        if len(found) > 1:
            raise StatementError("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else Statement("")
        self._named.require_new_statement(message.name)
        self._transaction.require_accepted(statement)
        count = statement.parameters
        stated = (0 if oid == UNKNOWN else oid for oid in message.types[:count])
        types = (*stated, *(0,) * (count - len(message.types)))
        declaration = parse_declaration(statement)
        self._named.keep_statement(message.name, PreparedStatement(statement, types, declaration))
        self._out += messages.parse_complete()

    def _bind(self, message: Bind) -> PendingTask[Any] | None:
        prepared = self._named.get_statement(message.statement)
        self._named.require_new_portal(message.portal)
        self._transaction.require_accepted(prepared.statement)
        count = len(prepared.types)
        if len(message.values) != count:
            raise StatementError(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, but the statement requires {count}",
            )
        if prepared.description is None and not all(prepared.types):
            return PendingTask(
                InferTypes(prepared.query, prepared.types), partial(self._bind_inferred, message)
            )
        self._bind_values(message, prepared)
        return None

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
        self._out += messages.bind_complete()

    def _describe_prepared(self, prepared: PreparedStatement) -> PendingTask[Any] | None:
        if is_fetch(prepared.statement):
            self._out += messages.parameter_description(prepared.types)
            self._write_columns(self._named.find_fetched_columns(prepared.statement), ())
            return None
        if prepared.description is None:
            task = DescribeStatement(prepared.query, prepared.types, None)
            return PendingTask(task, partial(self._write_prepared_description, prepared))
        self._write_prepared_description(prepared, prepared.description)
        return None

    def _describe_portal(self, portal: Portal) -> PendingTask[Any] | None:
        prepared = portal.prepared
        if is_fetch(prepared.statement):
            portal.columns, portal.is_described = self._named.find_fetched_columns(prepared.statement), True
        elif prepared.declaration is not None and portal.cursor is None:
            portal.columns, portal.is_described = None, True
        if portal.is_described:
            self._write_columns(portal.columns, portal.results)
            return None
        task = DescribeStatement(prepared.statement, prepared.types, portal.values)
        return PendingTask(task, partial(self._write_portal_description, portal))

    def _write_prepared_description(self, prepared: PreparedStatement, found: StatementDescription) -> None:
        if prepared.declaration is not None:
            found = replace(found, columns=None)
        prepared.description = found
        self._out += messages.parameter_description(found.parameters)
        self._write_columns(found.columns, ())

    def _write_portal_description(self, portal: Portal, found: StatementDescription) -> None:
        portal.columns, portal.is_described = found.columns, True
        self._write_columns(found.columns, portal.results)

    def _write_columns(self, columns: tuple[Column, ...] | None, formats: tuple[int, ...]) -> None:
        if columns is None:
            self._out += messages.no_data()
        else:
            self._out += messages.row_description(columns, expand_formats(formats, len(columns)))


class QueryExchange:
    """The messages of a logged-in client; after an error the rest of a simple query, or of a series up to Sync, is skipped."""

    def __init__(self, out: bytearray, memory: SessionMemory) -> None:
        self._out = out
        self._named = NamedObjects(memory)
        self._transaction = Transaction()
        self._executor = StatementExecutor(out, self._named, self._transaction)
        self._extended = ExtendedQuery(out, self._named, self._transaction, self._executor)
        self._statements: deque[Statement] | None = None
        self._is_skipping = False
        self.read_characters = 0
        """The number of characters that were parsed in this turn of the connection."""

    @property
    def transaction_status(self) -> str:
        """Return I outside a transaction, T within one, E within a failed one."""
        return self._transaction.status

    @property
    def is_sending(self) -> bool:
        """Return whether an answer is not yet written to its end."""
        return self._executor.is_sending

    @property
    def is_running_statements(self) -> bool:
        """Return whether a simple query is unfinished."""
        return self._statements is not None

    def send_part(self) -> None:
        """Write the next part of an answer."""
        try:
            self._executor.send_part()
        except StatementError as error:
            self.fail_statement(error.failure)

    def run_next_statement(self) -> PendingTask[Answer] | None:
        """Run the next statement of a simple query; ReadyForQuery follows the last one."""
        if not self._statements:
            self._statements = None
            self._out += messages.ready_for_query(self._transaction.status)
            return None
        statement = self._statements.popleft()
        try:
            return self._executor.start_plain_statement(statement)
        except StatementError as error:
            self.fail_statement(error.failure)
        return None

    def handle_message(self, message: Message) -> PendingTask[Any] | None:
        """Handle the next message."""
        if isinstance(message, Sync):
            self._is_skipping = False
            if self._transaction.status == "I":
                self._named.end_transaction(is_kept=True)
            self._out += messages.ready_for_query(self._transaction.status)
            return None
        if self._is_skipping:
            return None
        try:
            match message:
                case Query(text):
                    self._statements = deque()  # also a failure is followed by ReadyForQuery
                    return self._read_text(text, self._begin_simple_query)
                case Parse():
                    return self._read_text(message.text, partial(self._extended.prepare_statement, message))
                case _:
                    return self._extended.handle_message(message)
        except StatementError as error:
            self.fail_statement(error.failure)
        return None

    def fail_statement(self, failure: Failure) -> None:
        """Report an error, and skip the rest of a simple query or of a series up to Sync."""
        self._out += messages.error_response(failure)
        self._transaction.fail()
        if self._statements is None:
            self._is_skipping = True
        else:
            self._statements = deque()

    def drop_work(self) -> None:
        """Run no further statement, and write nothing more of an answer."""
        self._statements = None
        self._executor.drop_answer()

    def _read_text(
        self, text: str, take: Callable[[tuple[Statement, ...]], None]
    ) -> PendingTask[tuple[Statement, ...]] | None:
        """Parse the statements of a message's text for `take`, those of a long one outside the event loop."""
        if len(text) > MOST_CHARACTERS:
            raise StatementError("54000", f"a query text may have at most {MOST_CHARACTERS:,} characters")
        if len(text) > MOST_READ_HERE:
            return PendingTask(ReadText(text), take)
        self.read_characters += len(text)
        take(parse_client_text(text))
        return None

    def _begin_simple_query(self, found: tuple[Statement, ...]) -> None:
        self._statements = deque(found)
        self._named.forget_statements("")
        self._named.close_portals(("",))
        if not found:
            self._out += messages.empty_query_response()
