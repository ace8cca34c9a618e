"""The terminal around a session: the prompt with history, completion and colours; or a plain pipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.shell.failures import INTERRUPTED
from dpsql.shell.session import Session, is_command, parts, unfinished
from dpsql.shell.statements import blank, split

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

Write = Callable[[str], object]


def interact(
    session: Session,
    write: Write = print,
    *,
    history: Path | None = None,
    source: Input | None = None,
    screen: Output | None = None,
) -> None:
    """Asks for entries until Ctrl-D or a command that quits; Ctrl-C drops what was typed.

    `history` is the file that keeps the SQL typed, and nothing else; `source` and `screen` are the
    terminal unless given.
    """
    prompts = _prompts(session, history, source, screen)
    while True:
        try:
            entry = prompts.prompt(session.prompt())
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            for reply in session.replies(entry):
                if reply.quit:
                    return
                write(reply.text)
        except KeyboardInterrupt:
            write(INTERRUPTED)


def follow(session: Session, lines: Iterable[str], write: Write = print, complain: Write = print) -> bool:
    """Answers the statements and commands of a pipe as they come; returns whether all were answered.

    A refusal goes to `complain`, and does not stop what follows. The last statement may lack its
    semicolon.
    """
    fine = True
    for entry in entries(lines):
        for reply in session.replies(entry):
            if reply.quit:
                return fine
            fine = fine and not reply.failed
            (complain if reply.failed else write)(reply.text)
    return fine


def entries(lines: Iterable[str]) -> Iterator[str]:
    """The entries of a text that comes line by line: statements up to their `;`, commands a line each."""
    pending = ""
    for line in lines:
        if blank(pending) and is_command(line):
            yield line.strip()
            continue
        cut = split(pending + line)
        yield from (f"{statement};" for statement in cut.statements)
        pending = cut.rest
        if is_command(pending):
            yield pending.strip()
            pending = ""
    yield from parts(pending)


def history_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where the history is kept: $XDG_STATE_HOME/dpsql/history, by default under ~/.local/state."""
    known = os.environ if environment is None else environment
    state = Path(known.get("XDG_STATE_HOME", ""))
    base = state if state.is_absolute() else Path.home() / ".local" / "state"
    return base / "dpsql" / "history"


def _prompts(
    session: Session, history: Path | None, source: Input | None, screen: Output | None
) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    from dpsql.shell.completion import SqlCompleter, Vocabulary

    return PromptSession(
        lexer=PygmentsLexer(SqlLexer),
        completer=SqlCompleter(Vocabulary.of(session.state.connection.describe())),
        auto_suggest=AutoSuggestFromHistory(),
        history=_history(history),
        # Enter ends the entry once it is complete, and begins another line until then.
        multiline=Condition(lambda: unfinished(get_app().current_buffer.text)),
        prompt_continuation=lambda width, _, wraps: ("" if wraps else "...> ").rjust(width),
        complete_while_typing=True,
        input=source,
        output=screen,
    )


def _history(path: Path | None) -> History:
    """A history in a file that nobody else can read; in memory where no such file can be had."""
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
