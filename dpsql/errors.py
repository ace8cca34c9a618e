"""Every error that dpsql raises, as the PEP 249 tree.

    Warning
    Error
    ├── InterfaceError
    └── DatabaseError
        ├── DataError
        ├── OperationalError
        │   ├── BudgetExhausted   the ledger refuses; nothing was read
        │   └── BackendError      the engine failed; constant text, the charge stays
        ├── IntegrityError
        ├── InternalError
        │   └── VerificationError the two derivations of the loss disagree; nothing was charged
        ├── ProgrammingError
        │   ├── PolicyError       the owner's policy is wrong
        │   └── LossError         an epsilon that is not a loss (also a ValueError)
        └── NotSupportedError
            └── QueryRejected     the query is not known to be safe

The text of an error is built from the query, the policy and public metadata, never from private values. So an error reveals
nothing about the data.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text: `line` and `column` count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class Warning(Exception):
    """An important notice, as PEP 249 asks."""


class Error(Exception):
    """Root of all dpsql errors.

    Attributes:
        code: A stable name of the error, for programs.
        hint: What to write instead.
        position: The place in the SQL text or the policy file.
        text: That text; `str(error)` points at the place with a caret.
        charged: Whether the failed query was charged; None if this is not known, as when a server did not answer.
    """

    code = "error"
    charged: bool | None = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.position = position
        self.text = text

    def __str__(self) -> str:
        lines = [self.message]
        if self.position is not None:
            lines[0] += f" ({self.position})"
            lines += self._format_caret()
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the line that asked, and the error, without the frames of dpsql."""
        frames = traceback.extract_tb(self.__traceback__)
        asked = [each for each in frames if not Path(each.filename).is_relative_to(_PACKAGE)][-1:]
        lines = [f"line {each.lineno}: {each.line}" for each in asked if each.line]
        return [*lines, f"{type(self).__name__}: {self}"]

    def _format_caret(self) -> list[str]:
        rows = (self.text or "").splitlines()
        position = self.position
        if position is None or not 1 <= position.line <= len(rows):
            return []
        row = rows[position.line - 1]
        start = max(0, position.column - 60)
        return [f"  {row[start : start + 100]}", "  " + " " * (position.column - 1 - start) + "^"]


class InterfaceError(Error):
    """A connection or cursor is misused, for example by fetching from a closed one."""

    code = "interface"


class DatabaseError(Error):
    """An error that concerns the database."""

    code = "database"


class DataError(DatabaseError):
    """The value of a parameter cannot be used."""

    code = "data"


class OperationalError(DatabaseError):
    """The database or the ledger could not do its work."""

    code = "operational"


class BudgetExhausted(OperationalError):
    """The charge would exceed the budget: nothing was charged or read."""

    code = "budget_exhausted"


class BackendError(OperationalError):
    """The engine failed at run time.

    The text is constant, because the message of an engine may quote private values.
    """

    code = "backend"

    def __init__(self, code: str | None = None) -> None:
        super().__init__(
            "the database engine failed while it ran the query; the charge stays",
            code=code,
            hint="ask the data owner, who can run the query on the database itself",
        )


class IntegrityError(DatabaseError):
    """The content of the ledger is not what dpsql wrote."""

    code = "integrity"


class InternalError(DatabaseError):
    """dpsql contradicts itself: a bug, found before anything is charged."""

    code = "internal"

    def _render_traceback_(self) -> list[str]:
        """Return the whole traceback, which a report of the bug needs."""
        return traceback.format_exception(self)


class VerificationError(InternalError):
    """The independent derivation of the loss does not confirm that of the planner."""

    code = "verification"


class ProgrammingError(DatabaseError):
    """The program uses dpsql wrongly."""

    code = "programming"


class PolicyError(ProgrammingError):
    """The owner's policy is wrong, or names what the database does not have."""

    code = "policy"


class LossError(ProgrammingError, ValueError):
    """An epsilon or delta is NaN, infinite, zero or negative."""

    code = "loss"


class NotSupportedError(DatabaseError):
    """A feature of PEP 249 or SQL that dpsql does not offer."""

    code = "not_supported"


class QueryRejected(NotSupportedError):
    """The query is not known to be safe, so it was refused: nothing was charged or read."""

    code = "rejected"
