"""What a session remembers between two entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.base_connection import BaseConnection
from dpsql.request.target import Target
from dpsql.shell.answers import Format
from dpsql.shell.view import View

if TYPE_CHECKING:
    from dpsql.result import Receipt


@dataclass(frozen=True, slots=True)
class Reply:
    """What an entry is answered with; `quit` ends the shell."""

    text: str = ""
    failed: bool = False
    quit: bool = False


@dataclass(slots=True)
class State:
    """The connection, how answers are shown, and what a query asks for unless it is changed.

    `epsilon` is None until somebody says what a query may lose; `target`, where there is one, goes before it. `table` is the private table that was
    charged last, `receipt` that of the last answer.
    """

    connection: BaseConnection
    view: View = field(default_factory=View)
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_groups: int | None = None
    format: Format = Format.TABLE
    table: str | None = None
    receipt: Receipt | None = None
    dialect: str = "duckdb"
    target: Target | None = None
