"""What a conversation asks of the server around it, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.interfaces.server.protocol.failure import Failure
from dpsql.interfaces.server.protocol.values import Column
from dpsql.interfaces.server.session_memory import SessionMemory, UserMemory
from dpsql.interfaces.server.statements import Statement


@dataclass(frozen=True, slots=True)
class StartTLS:
    """Encrypt the connection now; nothing that came unencrypted is read after it."""


@dataclass(frozen=True, slots=True)
class CancelStatement:
    """Cancel what another connection runs."""

    process: int
    key: bytes


@dataclass(frozen=True, slots=True)
class LookUpUser:
    """Find by what a user proves a password, also where there is no such user."""

    user: str


@dataclass(frozen=True, slots=True)
class LogIn:
    """The password was proved: make a session, or say why there is none."""

    user: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class RejectLogin:
    """The password was not proved: note it, wait, and close."""

    user: str


@dataclass(frozen=True, slots=True)
class ReadText:
    """Read the statements of a long text, while others go on."""

    text: str


@dataclass(frozen=True, slots=True)
class InferTypes:
    """Say of which types the parameters of a statement are, where the client states none (0)."""

    statement: Statement
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribeStatement:
    """Say of which columns an answer will be, and of which types its parameters are; charge nothing.

    `values` are None where they are not known yet.
    """

    statement: Statement
    types: tuple[int, ...]
    values: tuple[Any, ...] | None

    @property
    def text(self) -> str:
        """The statement's text."""
        return self.statement.text


@dataclass(frozen=True, slots=True)
class RunStatement:
    """Answer a statement. Where `columns` is not None, the client knows them already: other ones are a failure."""

    statement: Statement
    values: tuple[Any, ...]
    columns: tuple[Column, ...] | None

    @property
    def text(self) -> str:
        """The statement's text."""
        return self.statement.text


Task = (
    StartTLS
    | CancelStatement
    | LookUpUser
    | LogIn
    | RejectLogin
    | ReadText
    | InferTypes
    | DescribeStatement
    | RunStatement
)
_UNSHARED = 8_000_000
"""Bytes that a session holds whose person has no other limit."""


@dataclass(frozen=True, slots=True)
class LoginResult:
    """A session: its settings that clients follow, by what its statements are cancelled, what it holds of its person's memory."""

    statuses: dict[str, str]
    process: int
    key: bytes
    memory: SessionMemory = field(default_factory=lambda: UserMemory(_UNSHARED).open_session(""))


@dataclass(frozen=True, slots=True)
class StatementDescription:
    """The columns of an answer, None for a statement without rows, and the types of its parameters."""

    columns: tuple[Column, ...] | None
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: `columns` is None for a statement without rows. `statuses` are settings that it has changed.

    `size` is about how many bytes the rows take.
    """

    tag: str
    columns: tuple[Column, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    notices: tuple[Failure, ...] = ()
    statuses: dict[str, str] = field(default_factory=dict)
    size: int = 0
