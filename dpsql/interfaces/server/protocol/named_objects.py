"""The prepared statements and portals of a connection, by their names, within the memory of its person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dpsql.interfaces.server.protocol.failure import StatementError
from dpsql.interfaces.server.protocol.tasks import Answer, StatementDescription
from dpsql.interfaces.server.protocol.values import Column
from dpsql.interfaces.server.session_memory import SessionMemory
from dpsql.interfaces.server.statements import Statement

MOST_NAMED = 1_000
"""Statements and portals that one connection may have at a time."""


@dataclass(slots=True)
class PreparedStatement:
    """A statement by its name: `description` are the columns that were sent to the client."""

    statement: Statement
    types: tuple[int, ...]
    description: StatementDescription | None = None


@dataclass(slots=True)
class Portal:
    """A statement with its parameters' values, and the rows of its answer that are not sent yet."""

    name: str
    prepared: PreparedStatement
    values: tuple[Any, ...]
    results: tuple[int, ...]
    columns: tuple[Column, ...] | None
    is_described: bool = False
    answer: Answer | None = None
    rows: Iterator[tuple[Any, ...]] = field(default_factory=lambda: iter(()))
    sent: int = 0


class NamedObjects:
    """What a client refers to by name. `memory` is what all of it is entered in, once the client has logged in."""

    def __init__(self) -> None:
        self.statements: dict[str, PreparedStatement] = {}
        self.portals: dict[str, Portal] = {}
        self.memory: SessionMemory | None = None

    def get_statement(self, name: str) -> PreparedStatement:
        """The statement of a name. Raises Failed where there is none."""
        if name not in self.statements:
            raise StatementError("26000", f'prepared statement "{name}" does not exist')
        return self.statements[name]

    def get_portal(self, name: str) -> Portal:
        """The portal of a name. Raises Failed where there is none."""
        if name not in self.portals:
            raise StatementError("34000", f'portal "{name}" does not exist')
        return self.portals[name]

    def require_new_statement(self, name: str) -> None:
        """Raises Failed where a statement of this name is there, or too many are."""
        if name and name in self.statements:
            raise StatementError("42P05", f'prepared statement "{name}" already exists')
        if len(self.statements) >= MOST_NAMED:
            raise StatementError("54000", f"a connection has at most {MOST_NAMED:,} prepared statements")

    def require_new_portal(self, name: str) -> None:
        """Raises Failed where a portal of this name is there, or too many are."""
        if name and name in self.portals:
            raise StatementError("42P03", f'cursor "{name}" already exists')
        if len(self.portals) >= MOST_NAMED:
            raise StatementError("54000", f"a connection has at most {MOST_NAMED:,} portals")

    def keep_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Keeps a statement. Raises Failed where the sessions of this person would hold too much."""
        self._hold_bytes(("statement", name), 2 * len(prepared.statement.text))
        self.statements[name] = prepared

    def keep_portal(self, portal: Portal, size: int) -> None:
        """Keeps a portal with values of a size in place of one of its name. Raises Failed as `keep_statement`."""
        self.close_portals((portal.name,))
        self._hold_bytes(("portal", portal.name), size)
        self.portals[portal.name] = portal

    def keep_rows(self, portal: Portal, size: int) -> None:
        """Enters the rows of a portal that wait to be fetched. Raises Failed as `keep_statement`."""
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
        """Enters that all rows of a portal are fetched."""
        self._drop_items(("answer", portal.name))

    def forget_statements(self, *names: str) -> None:
        """Forgets prepared statements."""
        for name in names:
            self.statements.pop(name, None)
            self._drop_items(("statement", name))

    def forget_all_statements(self) -> None:
        """Forgets all prepared statements."""
        self.forget_statements(*tuple(self.statements))

    def close_portals(self, names: Iterable[str] | None = None) -> None:
        """Closes portals of these names, all without."""
        for name in tuple(self.portals) if names is None else names:
            self.portals.pop(name, None)
            self._drop_items(("portal", name), ("answer", name))

    def run_close_command(self, statement: Statement) -> str | None:
        """Does what DEALLOCATE and CLOSE command, and returns their tag; None for other statements.

        Raises Failed where there is nothing of the name.
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
        if self.memory is not None:
            self.memory.hold_bytes(what, size)

    def _drop_items(self, *what: tuple[str, str]) -> None:
        if self.memory is not None:
            self.memory.drop_items(*what)


def _parse_name(words: tuple[str, ...]) -> str:
    """The name that a word is: one in quotation marks as it stands. Raises Failed where there is no word."""
    if not words:
        raise StatementError("42601", "a name or ALL is missing")
    word = words[0]
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
