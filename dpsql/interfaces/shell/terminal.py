"""The pager, the editor and the colors of a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import OperationalError
from dpsql.interfaces.shell.settings import PLAIN

if TYPE_CHECKING:
    from prompt_toolkit.styles import BaseStyle

_LESS: Mapping[str, str] = {"LESS": "FRSX"}
"""Options of `less` unless $LESS is set: quit if the text fits, keep colors, cut long lines, leave the text on screen."""


def show_in_pager(text: str, pager: str) -> bool:
    """Show a text that is longer than the terminal in a pager; return False if it fits or the pager fails."""
    if pager == "off" or len(text.splitlines()) < shutil.get_terminal_size().lines - 1:
        return False
    command = (os.environ.get("PAGER") or "less") if pager == "auto" else pager
    try:
        done = subprocess.run(  # noqa: S603  (the user's own command)
            shlex.split(command), input=text + "\n", text=True, env={**_LESS, **os.environ}, check=False
        )
    except (OSError, ValueError, IndexError):
        return False
    return done.returncode == 0


def edit_text(text: str) -> str:
    """Edit a text in $VISUAL or $EDITOR (else vi), in a private temporary file, and return it.

    Raises OperationalError (`editor`) if the editor cannot be run or fails.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="dpsql-") as folder:
        path = Path(folder) / "query.sql"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603  (the user's own command)
        except (OSError, ValueError):
            done = None
        if done is None or done.returncode:
            raise OperationalError(
                f"the editor {editor} failed",
                code="editor",
                hint="choose another editor: EDITOR=nano dpsql shell …",
            )
        return path.read_text(encoding="utf-8", errors="replace")


def find_style(theme: str) -> BaseStyle | None:
    """Return the colors of typed text; None for the defaults of prompt_toolkit."""
    if theme == PLAIN:
        return None
    from prompt_toolkit.styles.pygments import style_from_pygments_cls
    from pygments.styles import get_style_by_name

    return style_from_pygments_cls(get_style_by_name(theme))
