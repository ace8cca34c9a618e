"""The state of a session between two entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpsql.api.base_connection import BaseConnection
from dpsql.interfaces.shell.answers import AnswerFormat
from dpsql.interfaces.shell.settings import Settings
from dpsql.interfaces.shell.view import View
from dpsql.policy.request.target import Target

if TYPE_CHECKING:
    from dpsql.results.result import Receipt


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """A query that a command runs, the file for its answer, and whether rows are shown as lines."""

    sql: str
    output: Path | None = None
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to an entry: `text`, and `remarks` with the charge; `quit` ends the shell.

    `note` marks the confirmation of a setting, which is not data. `buffer` is the beginning of the next entry, `query` the next
    query to run, and `file` the file whose entries run next; `interrupted` means that Ctrl-C ended the entry.
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
    """Functions of a terminal: ask yes or no, edit a text, show progress."""

    confirm: Callable[[str], bool]
    edit: Callable[[str], str]
    progress: TextIO | None = None


@dataclass(slots=True)
class SessionState:
    """The connection, the display of answers, and the default options of queries.

    `epsilon` is None until a loss is set; `target` takes precedence over it. `table` is the private table that was charged last,
    and `receipt` belongs to the last answer. `buffer` is the unfinished statement before a command, `last_sql` the last query that
    ran, and `output` the file for answers; `terminal` is None for a pipe.
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
