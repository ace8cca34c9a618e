"""What a session remembers between two entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpsql.base_connection import BaseConnection
from dpsql.request.target import Target
from dpsql.shell.answers import AnswerFormat
from dpsql.shell.settings import Settings
from dpsql.shell.view import View

if TYPE_CHECKING:
    from dpsql.result import Receipt


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """A query that a command sends: where its answer goes for once, and whether rows are lines."""

    sql: str
    output: Path | None = None
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What an entry is answered with: `text`, and `remarks` it what it cost; `quit` ends the shell.

    `note` marks the confirmation of a setting, which is no data. `buffer` is what the next entry begins with, `query`
    what is asked next, `file` the one whose entries are answered next; `interrupted` says that Ctrl-C ended it.
    """

    text: str = ""
    failed: bool = False
    quit: bool = False
    note: bool = False
    remarks: str = ""
    buffer: str = ""
    query: PendingQuery | None = None
    file: Path | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Terminal:
    """What only a terminal can do: to ask yes or no, to have a text edited, to show that time passes."""

    confirm: Callable[[str], bool]
    edit: Callable[[str], str]
    progress: TextIO | None = None


@dataclass(slots=True)
class SessionState:
    """The connection, how answers are shown, and what a query asks for unless it is changed.

    `epsilon` is None until somebody says what a query may lose; `target`, where there is one, goes before it. `table` is the private table that was
    charged last, `receipt` that of the last answer. `buffer` is the statement that was begun when a command came, `last_sql`
    the last that was asked, `output` the file that answers go to; `terminal` is None for a pipe.
    """

    connection: BaseConnection
    view: View = field(default_factory=View)
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_groups: int | None = None
    format: AnswerFormat = AnswerFormat.TABLE
    table: str | None = None
    receipt: Receipt | None = None
    dialect: str = "duckdb"
    target: Target | None = None
    settings: Settings = field(default_factory=Settings)
    buffer: str = ""
    last_sql: str = ""
    output: Path | None = None
    terminal: Terminal | None = None
