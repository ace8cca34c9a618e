"""Errors as people read them: what was refused, where, why, and what to write instead."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from dpsql.errors import Error

if TYPE_CHECKING:
    from rich.text import Text

UNEXPECTED = (
    "error[internal]: dpsql failed in a way that it should not; what was charged stays charged\n"
    "hint: please report it; with DPSQL_TRACEBACK=1 in the environment the traceback is shown"
)
"""Constant, because what an unforeseen failure says may quote private values."""

INTERRUPTED = "interrupted; what was charged stays charged"


def tracebacks_wanted() -> bool:
    """Whether whoever runs the program wants to see the traceback of an unforeseen failure."""
    return os.environ.get("DPSQL_TRACEBACK") == "1"


def message(error: Error) -> str:
    """The error with its stable code, the line with a caret, and the hint.

    >>> print(message(Error("no such table", code="table", hint="did you mean visits?")))
    error[table]: no such table
    hint: did you mean visits?
    """
    return f"error[{error.code}]: {error}"


def styled(text: str) -> Text:
    """An error's text with its first word, caret and hint marked."""
    from rich.text import Text

    shown = Text(text)
    shown.highlight_regex(re.compile(r"\Aerror(\[\w+\])?:"), style="bold red")
    shown.highlight_regex(re.compile(r"(?m)^ +\^$"), style="bold red")
    shown.highlight_regex(re.compile(r"(?m)^hint:"), style="bold cyan")
    return shown
