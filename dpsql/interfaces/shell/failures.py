"""Format errors for people: the code and message, the line with a caret, and the hint."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import Error

if TYPE_CHECKING:
    from rich.text import Text

INTERRUPTED = "interrupted; any charge stands"


def format_unforeseen_error(error: BaseException) -> str:
    """Format an unexpected failure by its place in the code, without its message.

    The message, and the variables of a traceback, could quote private values.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:]]
    return (
        "error[internal]: unexpected failure in dpsql; any charge stands\n"
        f"hint: please report {type(error).__name__} at {' > '.join(places)}"
    )


def format_error(error: Error) -> str:
    """Format an error with its stable code, the line with a caret, and the hint.

    >>> print(format_error(Error("no such table", code="table", hint="did you mean visits?")))
    error[table]: no such table
    hint: did you mean visits?
    """
    return f"error[{error.code}]: {error}"


def highlight_error(text: str) -> Text:
    """Highlight the first word, the caret and the hint of an error's text."""
    from rich.text import Text

    highlighted = Text(text)
    highlighted.highlight_regex(re.compile(r"\Aerror(\[\w+\])?:"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^ +\^$"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^hint:"), style="bold cyan")
    return highlighted
