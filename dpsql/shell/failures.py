"""Errors as people read them: what was refused, where, why, and what to write instead."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import Error

if TYPE_CHECKING:
    from rich.text import Text

INTERRUPTED = "interrupted; what was charged stays charged"


def format_unforeseen_error(error: BaseException) -> str:
    """What is said of a failure that should not happen: where it was, but not its own words.

    Those, and the variables of a traceback, may quote private values.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:]]
    return (
        "error[internal]: dpsql failed in a way that it should not; what was charged stays charged\n"
        f"hint: please report {type(error).__name__} at {' > '.join(places)}"
    )


def format_error(error: Error) -> str:
    """The error with its stable code, the line with a caret, and the hint.

    >>> print(format_error(Error("no such table", code="table", hint="did you mean visits?")))
    error[table]: no such table
    hint: did you mean visits?
    """
    return f"error[{error.code}]: {error}"


def highlight_error(text: str) -> Text:
    """An error's text with its first word, caret and hint marked."""
    from rich.text import Text

    highlighted = Text(text)
    highlighted.highlight_regex(re.compile(r"\Aerror(\[\w+\])?:"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^ +\^$"), style="bold red")
    highlighted.highlight_regex(re.compile(r"(?m)^hint:"), style="bold cyan")
    return highlighted
