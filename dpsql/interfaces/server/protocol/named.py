"""The prepared statements, portals and cursors of a connection by name, within the memory of its user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dpsql.interfaces.server.limits import SessionMemory
from dpsql.interfaces.server.protocol.cursors import Cursor, Declaration, is_fetch, parse_fetch
from dpsql.interfaces.server.protocol.errors import StatementError
from dpsql.interfaces.server.protocol.tasks import Answer, StatementDescription
from dpsql.interfaces.server.protocol.values import Column
from dpsql.interfaces.server.statements import Statement

MOST_NAMED = 1_000
"""The largest number of prepared statements, and of portals, of one connection."""


@dataclass(slots=True)
class PreparedStatement:
    """A prepared statement; `declaration` is that of a cursor, and `description` is what was sent to the client."""

    statement: Statement
    types: tuple[int, ...]
    declaration: Declaration | None = None
    description: StatementDescription | None = None

    @property
    def query(self) -> Statement:
        """Return the statement whose parameters these are: the query of a cursor, or the statement itself."""
        return self.statement if self.declaration is None else self.declaration.query


@dataclass(slots=True)
class Portal:
    """A statement with the values of its parameters, and the rows of its answer that are not sent yet; or a cursor."""

    name: str
    prepared: PreparedStatement
    values: tuple[Any, ...]
    results: tuple[int, ...]
    columns: tuple[Column, ...] | None
    is_described: bool = False
    answer: Answer | None = None
    rows: Iterator[tuple[Any, ...]] = field(default_factory=lambda: iter(()))
    sent: int = 0
    cursor: Cursor | None = None


class NamedObjects:
    """The prepared statements and portals of a client, whose sizes are entered in `memory`."""

    def __init__(self, memory: SessionMemory) -> None:
        self.statements: dict[str, PreparedStatement] = {}
        self.portals: dict[str, Portal] = {}
        self._memory = memory

    def get_statement(self, name: str) -> PreparedStatement:
        """Return the statement of a name. Raises StatementError if there is none."""
        if name not in self.statements:
            raise StatementError("26000", f'prepared statement "{name}" does not exist')
        return self.statements[name]

    def get_portal(self, name: str) -> Portal:
        """Return the portal of a name. Raises StatementError if there is none."""
        if name not in self.portals:
            raise StatementError("34000", f'portal "{name}" does not exist')
        return self.portals[name]

    def require_new_statement(self, name: str) -> None:
        """Raise StatementError if a statement has this name, or there are too many."""
        if name and name in self.statements:
            raise StatementError("42P05", f'prepared statement "{name}" already exists')
        if len(self.statements) >= MOST_NAMED:
            raise StatementError("54000", f"a connection has at most {MOST_NAMED:,} prepared statements")

    def require_new_portal(self, name: str) -> None:
        """Raise StatementError if a portal has this name, or there are too many."""
        if name and name in self.portals:
            raise StatementError("42P03", f'cursor "{name}" already exists')
        if len(self.portals) >= MOST_NAMED:
            raise StatementError("54000", f"a connection has at most {MOST_NAMED:,} portals")

    def keep_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Keep a statement. Raises StatementError if the user's sessions would hold too much."""
        self._hold_bytes(("statement", name), 2 * len(prepared.statement.text))
        self.statements[name] = prepared

    def keep_portal(self, portal: Portal, size: int) -> None:
        """Keep a portal, with the size of its values, in place of another of its name. Raises as `keep_statement`."""
        self.close_portals((portal.name,))
        self._hold_bytes(("portal", portal.name), size)
        self.portals[portal.name] = portal

    def keep_rows(self, portal: Portal, size: int) -> None:
        """Enter the size of the rows that wait to be fetched. Raises as `keep_statement`."""
        if self.portals.get(portal.name) is not portal:
            return
        try:
            self._hold_bytes(("answer", portal.name), size)
        except StatementError as error:
            raise StatementError(
                error.failure.sqlstate,
                f"{error.failure.message} to keep the rest of this answer",
                "fetch all rows at once; the stored answer is free",
            ) from None

    def drop_rows(self, portal: Portal) -> None:
        """Enter that all rows of a portal were fetched."""
        self._memory.drop_items(("answer", portal.name))

    def forget_statements(self, *names: str) -> None:
        """Forget prepared statements."""
        for name in names:
            self.statements.pop(name, None)
            self._memory.drop_items(("statement", name))

    def forget_all_statements(self) -> None:
        """Forget all prepared statements."""
        self.forget_statements(*tuple(self.statements))

    def close_portals(self, names: Iterable[str] | None = None) -> None:
        """Close the portals of these names, or all portals."""
        for name in tuple(self.portals) if names is None else names:
            self.portals.pop(name, None)
            self._memory.drop_items(("portal", name), ("answer", name))

    def end_transaction(self, *, is_kept: bool) -> None:
        """Close all portals, except for cursors that outlive the transaction; `is_kept` says whether it was committed."""
        for name, portal in tuple(self.portals.items()):
            cursor = portal.cursor
            if cursor is not None and is_kept and cursor.is_holdable:
                cursor.is_held = True
            if cursor is None or not cursor.is_held:
                self.close_portals((name,))

    def require_declarable(self, declaration: Declaration, *, in_transaction: bool) -> None:
        """Raise StatementError if a cursor may not be declared, before its query is charged."""
        if not in_transaction and not declaration.is_holdable:
            raise StatementError(
                "25P01",
                "DECLARE CURSOR can only be used in transaction blocks",
                "BEGIN first, or declare the cursor WITH HOLD; nothing was charged",
            )
        self.require_new_portal(declaration.name)

    def keep_cursor(self, declaration: Declaration, found: Answer, *, in_transaction: bool) -> None:
        """Keep the answer of a cursor's query. Raises StatementError if the user's sessions would hold too much."""
        prepared = PreparedStatement(declaration.query, ())
        cursor = Cursor.from_answer(declaration, found, is_held=not in_transaction)
        formats = (int(declaration.is_binary),)
        portal = Portal(declaration.name, prepared, (), formats, found.columns, is_described=True)
        portal.cursor = cursor
        self.keep_portal(portal, 0)
        try:
            self.keep_rows(portal, found.size)
        except StatementError:
            self.close_portals((portal.name,))
            raise

    def run_fetch(self, statement: Statement) -> Answer | None:
        """Run FETCH or MOVE and return its rows, or return None for another statement.

        Raises StatementError if there is no such cursor.
        """
        if not is_fetch(statement):
            return None
        fetch = parse_fetch(statement)
        cursor = self._get_cursor(fetch.name)
        rows = cursor.fetch_rows(fetch)
        if fetch.is_move:
            return Answer(f"MOVE {len(rows)}")
        size = cursor.estimate_size(len(rows))
        return Answer(f"FETCH {len(rows)}", cursor.columns, rows, size=size, code=int(cursor.is_binary))

    def find_fetched_columns(self, statement: Statement) -> tuple[Column, ...] | None:
        """Return the columns of FETCH, None for MOVE. Raises StatementError if there is no such cursor."""
        fetch = parse_fetch(statement)
        cursor = self._get_cursor(fetch.name)
        return None if fetch.is_move else cursor.columns

    def _get_cursor(self, name: str) -> Cursor:
        portal = self.portals.get(name)
        if portal is None or portal.cursor is None:
            raise StatementError("34000", f'cursor "{name}" does not exist')
        return portal.cursor

    def run_close_command(self, statement: Statement) -> str | None:
        """Run DEALLOCATE or CLOSE and return the tag, or return None for another statement.

        Raises StatementError if nothing has the name.
        """
        words = statement.words
        if words[:1] == ("deallocate",):
            names = words[2:] if words[1:2] == ("prepare",) else words[1:2]
            if names == ("all",):
                self.forget_all_statements()
                return "DEALLOCATE ALL"
            name = _parse_name(names)
            self.get_statement(name)
            self.forget_statements(name)
            return "DEALLOCATE"
        if words[:1] == ("close",):
            if words[1:2] == ("all",):
                self.close_portals()
                return "CLOSE CURSOR ALL"
            name = _parse_name(words[1:2])
            self.get_portal(name)
            self.close_portals((name,))
            return "CLOSE CURSOR"
        return None

    def _hold_bytes(self, what: tuple[str, str], size: int) -> None:
        if not self._memory.try_hold_bytes(what, size):
            raise StatementError(
                "53200",
                f"the sessions of {self._memory.person} use too much memory",
                "fetch whole answers, close portals and prepared statements, or close sessions",
            )


def _parse_name(words: tuple[str, ...]) -> str:
    """Return the name that a word is, without its quotation marks. Raises StatementError without a word."""
    if not words:
        raise StatementError("42601", "a name or ALL is missing")
    word = words[0]
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
