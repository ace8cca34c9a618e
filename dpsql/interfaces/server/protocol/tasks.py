"""The tasks that a conversation gives to the server around it, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dpsql.interfaces.server.limits import SessionMemory, UserMemory
from dpsql.interfaces.server.protocol.errors import Failure
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.interfaces.server.protocol.values import Column
from dpsql.interfaces.server.statements import Statement

_Result = TypeVar("_Result")


class Task(Generic[_Result]):
    """Work that the server does for a conversation; the type argument is its result for `Conversation.complete_task`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PendingTask(Generic[_Result]):
    """A task that a connection waits for; `resume` continues with its result."""

    task: Task[_Result]
    resume: Callable[[_Result], None]


@dataclass(frozen=True, slots=True)
class StartTLS(Task[None]):
    """Encrypt the connection now; nothing that was received unencrypted is read after it."""


@dataclass(frozen=True, slots=True)
class CancelStatement(Task[None]):
    """Cancel the statement of another connection."""

    process: int
    key: bytes


@dataclass(frozen=True, slots=True)
class LookUpUser(Task["FoundVerifier"]):
    """Find the password verifier of a user, or a made-up one for an unknown name."""

    user: str


@dataclass(frozen=True, slots=True)
class LogIn(Task["LoginResult"]):
    """Open a session for a user who proved the password, or fail."""

    user: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class RejectLogin(Task[None]):
    """Record a wrong password, and wait before it is reported."""

    user: str


@dataclass(frozen=True, slots=True)
class ReadText(Task[tuple[Statement, ...]]):
    """Parse the statements of a long text outside the event loop."""

    text: str


@dataclass(frozen=True, slots=True)
class InferTypes(Task[tuple[int, ...]]):
    """Infer the types of the parameters for which the client states none (0)."""

    statement: Statement
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribeStatement(Task["StatementDescription"]):
    """Describe the columns of an answer and the types of the parameters; nothing is charged.

    `values` is None if they are not known yet.
    """

    statement: Statement
    types: tuple[int, ...]
    values: tuple[Any, ...] | None

    @property
    def text(self) -> str:
        """Return the statement's text."""
        return self.statement.text


@dataclass(frozen=True, slots=True)
class RunStatement(Task["Answer"]):
    """Run a statement. If `columns` is not None, the client was told these columns, and an answer with others is a failure."""

    statement: Statement
    values: tuple[Any, ...]
    columns: tuple[Column, ...] | None

    @property
    def text(self) -> str:
        """Return the statement's text."""
        return self.statement.text


@dataclass(frozen=True, slots=True)
class FoundVerifier:
    """A password verifier, and whether its user exists."""

    verifier: Verifier
    is_known: bool


_UNSHARED = 8_000_000
"""The limit in bytes of a session that shares no limit with others."""


@dataclass(frozen=True, slots=True)
class LoginResult:
    """A session: its reported settings, the number and key that cancel its statements, and its share of its user's memory."""

    statuses: dict[str, str]
    process: int
    key: bytes
    memory: SessionMemory = field(default_factory=lambda: UserMemory(_UNSHARED).open_session(""))


@dataclass(frozen=True, slots=True)
class StatementDescription:
    """The columns of an answer, None for a statement without rows, and the types of the parameters."""

    columns: tuple[Column, ...] | None
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: `columns` is None for a statement without rows; `statuses` are the settings that it changed.

    `size` is the approximate number of bytes of the rows, and `code` the format of values in a simple query: text (0) or binary (1).
    """

    tag: str
    columns: tuple[Column, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    notices: tuple[Failure, ...] = ()
    statuses: dict[str, str] = field(default_factory=dict)
    size: int = 0
    code: int = 0
