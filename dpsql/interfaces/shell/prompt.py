"""The shell in a terminal or a pipe: prompt, history, pager, editor and colors."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import OperationalError
from dpsql.interfaces.shell.answers import INTERRUPTED, AnswerFormat
from dpsql.interfaces.shell.session import Session, is_command, is_unfinished, iterate_entries
from dpsql.interfaces.shell.settings import PLAIN, Reply, SessionState, Terminal

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output
    from prompt_toolkit.styles import BaseStyle


# The pager, the editor and the colors of a terminal.


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


# Run a session in a terminal, with history, completion and colors, or from a pipe.


Write = Callable[[str], object]


def run_interactive(
    session: Session,
    write: Write = print,
    *,
    history: Path | None = None,
    source: Input | None = None,
    screen: Output | None = None,
) -> None:
    """Prompt for entries until Ctrl-D or a command that quits; Ctrl-C discards the typed text.

    `history` is the file that keeps the typed SQL, and nothing else; `source` and `screen` are the terminal unless given.
    """
    prompts = _build_prompt_session(session, history, source, screen)
    questions = _make_confirm(source, screen)
    real = source is None and session.state.view.fit
    session.state.terminal = Terminal(questions, edit_text, sys.stdout if real else None)
    buffer = ""
    while True:
        try:
            entry = prompts.prompt(session.format_prompt(), default=buffer)
        except KeyboardInterrupt:
            buffer = ""
            continue
        except EOFError:
            return
        buffer = ""
        try:
            for reply in session.iterate_replies(entry):
                if reply.quit:
                    return
                buffer = reply.buffer
                _show_reply(reply, session.state, write)
        except KeyboardInterrupt:
            write(INTERRUPTED)


def _show_reply(reply: Reply, state: SessionState, write: Write) -> None:
    """Write a reply, in the pager if it is longer than the terminal, and its remarks."""
    if reply.text and not (state.view.fit and show_in_pager(reply.text, state.settings.pager)):
        write(reply.text)
    if reply.remarks:
        write(reply.remarks)


def run_piped(session: Session, lines: Iterable[str], write: Write = print, complain: Write = print) -> bool:
    """Run the statements and commands of a pipe as they arrive; return whether all succeeded.

    Errors go to `complain` and do not stop the following statements. Remarks go there too, and, in data formats, the
    confirmation of settings, so that the output holds data only. The last statement may lack its semicolon.
    """
    fine = True
    for entry in iterate_entries(lines):
        for reply in session.iterate_replies(entry):
            if reply.quit:
                return fine
            fine = fine and not reply.failed
            data = session.state.format is not AnswerFormat.TABLE
            if reply.text:
                (complain if reply.failed or (reply.note and data) else write)(reply.text)
            if reply.remarks:
                complain(reply.remarks)
            if reply.interrupted:
                raise KeyboardInterrupt
    return fine


def get_history_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the history: $XDG_STATE_HOME/dpsql/history, by default under ~/.local/state."""
    known = os.environ if environment is None else environment
    state = Path(known.get("XDG_STATE_HOME", ""))
    base = state if state.is_absolute() else Path.home() / ".local" / "state"
    return base / "dpsql" / "history"


def _build_prompt_session(
    session: Session, history: Path | None, source: Input | None, screen: Output | None
) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.lexers import DynamicLexer, PygmentsLexer
    from prompt_toolkit.styles import DynamicStyle
    from pygments.lexers.sql import SqlLexer

    from dpsql.interfaces.shell.completion import SqlCompleter, Vocabulary

    colored, state = PygmentsLexer(SqlLexer), session.state
    return PromptSession(
        lexer=DynamicLexer(lambda: None if state.settings.theme == PLAIN else colored),
        style=DynamicStyle(lambda: find_style(state.settings.theme)),
        completer=SqlCompleter(
            Vocabulary.from_description(state.connection.describe()), state.connection.list_session_tables
        ),
        auto_suggest=AutoSuggestFromHistory(),
        history=_open_history(history),
        # Enter ends a complete entry, and begins another line of an incomplete one.
        multiline=Condition(lambda: is_unfinished(get_app().current_buffer.text)),
        prompt_continuation=lambda width, _, wraps: ("" if wraps else "...> ").rjust(width),
        complete_while_typing=True,
        input=source,
        output=screen,
    )


def _make_confirm(source: Input | None, screen: Output | None) -> Callable[[str], bool]:
    """Return a function that asks yes or no in a prompt of its own; Ctrl-C and Ctrl-D mean no."""
    from prompt_toolkit import PromptSession

    prompts = PromptSession[str](input=source, output=screen)

    def ask_yes_or_no(question: str) -> bool:
        try:
            return prompts.prompt(question).strip().lower() in {"y", "yes"}
        except (KeyboardInterrupt, EOFError):
            return False

    return ask_yes_or_no


def _open_history(path: Path | None) -> History:
    """Open a history in a file that only its owner can read, or in memory if that fails."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class SqlHistory(FileHistory):
        def store_string(self, string: str) -> None:
            if not is_command(string):
                super().store_string(string)

    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return SqlHistory(str(path))
