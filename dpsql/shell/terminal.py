"""What a terminal does for the shell: the pager, the editor, a question, the colours."""

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
from dpsql.shell.settings import PLAIN

if TYPE_CHECKING:
    from prompt_toolkit.styles import BaseStyle

_LESS: Mapping[str, str] = {"LESS": "FRSX"}
"""Of `less`, unless $LESS says otherwise: end at once where all fits, colours, long lines cut, the text stays."""


def show_in_pager(text: str, pager: str) -> bool:
    """Shows a text that is longer than the terminal by a pager; False where it fits, or no pager runs."""
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
    """The text as it is after $VISUAL or $EDITOR (else vi) has ended; the file, which nobody else can read, is removed.

    Raises OperationalError (`editor`) where the editor cannot be run, or fails.
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
                f"the editor {editor} failed", code="editor", hint="EDITOR=nano dpsql shell …"
            )
        return path.read_text(encoding="utf-8", errors="replace")


def find_style(theme: str) -> BaseStyle | None:
    """The colours of what is typed; None for those of prompt_toolkit itself."""
    if theme == PLAIN:
        return None
    from prompt_toolkit.styles.pygments import style_from_pygments_cls
    from pygments.styles import get_style_by_name

    return style_from_pygments_cls(get_style_by_name(theme))
