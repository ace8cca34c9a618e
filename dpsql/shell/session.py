"""A session: entries in, text out. It needs no terminal, and shows nothing that is not released."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dpsql.budgets import Budgets, percent_left
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.explained import Price
from dpsql.request.loss import rounded
from dpsql.shell import answers, asking, commands, costs, describe
from dpsql.shell.failures import message, styled, unforeseen
from dpsql.shell.state import Asking, Reply, State
from dpsql.shell.statements import blank, command_within, split, without_comments
from dpsql.shell.view import View, dim

_WORDS = ("help", "quit", "exit")
_MOST_FILES: Final = 8
"""How deep files of `\\i` may name others."""


class Session:
    """Answers one entry after another; `state` is what it remembers between them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._files = list[Path]()

    def prompt(self) -> str:
        """The prompt: of the table charged last, or of all, the budget with the least left, and what that is."""
        try:
            states = self.state.connection.budget()
        except Error:
            states = Budgets()
        if not states:
            return "dpsql> "
        last = [state for state in states.values() if state.table == self.state.table]
        least = min(last or states.values(), key=percent_left)
        return f"dpsql({least.name} ε {rounded(least.remaining_epsilon)} left)> "

    def replies(self, entry: str) -> Iterator[Reply]:
        """The reply to each statement or command of an entry, in order; none after one that quits.

        A statement that a command follows, and that is not finished, is in the last reply's `buffer`.
        """
        for reply in self._replies(entry):
            yield reply
            if reply.quit or reply.interrupted:
                return

    def _replies(self, entry: str) -> Iterator[Reply]:
        text, commanded = entry, False
        self.state.buffer = ""
        while not is_command(text) and (found := command_within(text)) is not None:
            cut, commanded = split(found.before), True
            for statement in cut.statements:
                yield from self._answered(statement)
            self.state.buffer = "" if blank(cut.rest) else cut.rest.lstrip()
            for reply in self._answered(found.command):
                self.state.buffer = reply.buffer or self.state.buffer
                yield replace(reply, buffer="")
            text = self.state.buffer + found.after
        if not commanded:
            for part in parts(text):
                yield from self._answered(part)
            return
        cut = split(text)
        for statement in cut.statements:
            yield from self._answered(statement)
        if not blank(cut.rest):
            yield Reply(buffer=cut.rest.lstrip())

    def _answered(self, part: str) -> Iterator[Reply]:
        """The reply to a statement or command, and those to what it asks for: a query, or the entries of a file."""
        reply = self.reply(part)
        if reply.asking is not None:
            yield self._attempted(partial(self._send, reply.asking))
        elif reply.file is not None:
            yield from self._included(reply.file)
        else:
            yield reply

    def _included(self, path: Path) -> Iterator[Reply]:
        found = self._attempted(lambda: Reply(_text_of(path, self._files)))
        if found.failed:
            yield found
            return
        self._files.append(path)
        try:
            for entry in entries(found.text.splitlines(keepends=True)):
                for reply in self.replies(entry):
                    yield reply
                    if reply.quit or reply.interrupted:
                        return
        finally:
            self._files.pop()

    def reply(self, part: str) -> Reply:
        """The reply to one statement or command. Errors are replies too."""
        return self._attempted(lambda: self._reply(part))

    def _attempted(self, work: Callable[[], Reply]) -> Reply:
        try:
            return work()
        except Error as error:
            return self._failed(message(error))
        except asking.Interrupted as stopped:
            return replace(self._failed(stopped.text), interrupted=True)
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            return self._failed(unforeseen(error))

    def _reply(self, part: str) -> Reply:
        text = part.strip()
        if text.startswith("\\"):
            return commands.run(self.state, text)
        if text.startswith("."):
            raise ProgrammingError(
                f"there is no command {text.split()[0]}",
                code="command",
                hint="commands begin with a backslash: \\d lists the tables, \\? the commands",
            )
        bare = without_comments(text).strip().rstrip(";").rstrip()
        if bare.lower() in _WORDS:
            return commands.run(self.state, f"\\{bare}")
        if (table := describe.asked(text)) is not None:
            return commands.run(self.state, f"\\d {table}")
        if is_explain(text):
            return commands.explain(self.state, text)
        return self._query(Asking(text))

    def _send(self, asked: Asking) -> Reply:
        """The reply to what a command sends: a query, or a statement about the catalogue or a plan."""
        is_free = is_explain(asked.sql) or describe.asked(asked.sql) is not None
        return self._reply(asked.sql) if is_free else self._query(asked)

    def _query(self, asked: Asking) -> Reply:
        state, terminal = self.state, self.state.terminal
        state.last = asked.sql
        terms = commands.terms(state, asked.sql)
        price = None if terminal is None else self._steep(asked.sql, terms)
        if terminal is not None and price is not None and not terminal.confirm(f"{price}. Ask it? [y/N] "):
            return Reply("not asked; nothing was charged", note=True)
        progress = terminal.progress if terminal is not None and state.settings.progress else None
        began = time.monotonic()
        result = asking.ask(state.connection, asked.sql, terms, progress=progress)
        took = [f"in {time.monotonic() - began:.3f} s"] if state.settings.timing else []
        state.receipt = result.receipt
        charged = [entry["table"] for entry in result.receipt.entries]
        state.table = charged[-1] if charged else state.table
        when = state.connection.answered_at(result.receipt)
        cost = costs.remarks(result, terms["epsilon"], state.connection.budget().values(), when)
        remarks = state.view.show(dim("\n".join([cost, *took])))
        expanded = "on" if asked.expanded else state.settings.expanded
        if (output := asked.output or state.output) is not None:
            style = answers.Format.of(output) or state.format
            text = answers.written(result, style, View(), "on" if expanded == "on" else "off")
            _write(output, text, append=asked.output is None)
            return Reply(f"written to {output}", note=True, beside=remarks)
        answer = answers.written(result, state.format, state.view, expanded)
        if state.format is not answers.Format.TABLE:
            return Reply(answer, beside=remarks)
        return Reply(f"{answer}\n{remarks}")

    def _steep(self, sql: str, terms: Mapping[str, Any]) -> Price | None:
        """The price of a query that costs more than the session asks without a yes."""
        most = self.state.settings.ask_above
        if self.state.connection.is_free(sql):
            return None
        if terms["target_error"] is None and terms["epsilon"] <= most:
            return None
        price = self.state.connection.explain(sql, **terms).price
        return price if price is not None and price.epsilon > most else None

    def _failed(self, text: str) -> Reply:
        return Reply(self.state.view.show(styled(text)), failed=True)


def entries(lines: Iterable[str]) -> Iterator[str]:
    r"""The entries of a text that comes line by line: statements up to their `;`, commands a line each.

    A command amid a statement comes before it, but for one that sends the statement, which goes with it.

    >>> list(entries(["SELECT 1\n", "\\d t\n", "FROM t; SELECT 2 \\g\n"]))
    ['\\d t', 'SELECT 1\nFROM t;', 'SELECT 2 \\g']
    """
    pending = ""
    for line in lines:
        pending += line
        while (found := command_within(pending)) is not None:
            cut = split(found.before)
            yield from (f"{statement};" for statement in cut.statements)
            rest = "" if blank(cut.rest) else cut.rest
            if rest and commands.on_buffer(found.command):
                yield f"{rest.strip()} {found.command}"
                rest = ""
            else:
                yield found.command
            pending = rest + found.after.lstrip("\r\n")
        if is_command(pending):
            yield pending.strip()
            pending = ""
            continue
        cut = split(pending)
        yield from (f"{statement};" for statement in cut.statements)
        pending = cut.rest
    yield from parts(pending)


def _text_of(path: Path, within: Sequence[Path]) -> str:
    """The text of a file of entries. Raises ProgrammingError where it cannot be read, or files include each other."""
    if len(within) >= _MOST_FILES:
        raise ProgrammingError(
            f"more than {_MOST_FILES} files include each other", code="file", hint=f"see {path}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ProgrammingError(
            f"{path} cannot be read: {said}", code="file", hint="correct the path"
        ) from None


def _write(path: Path, text: str, *, append: bool) -> None:
    """Writes an answer. Raises OperationalError (`not_written`): what was charged is answered again, free."""
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        said = error.strerror
    else:
        return
    raise OperationalError(
        f"{path} cannot be written: {said}",
        code="not_written",
        hint="what was charged is answered again, free: name another file",
    )


def parts(entry: str) -> Iterator[str]:
    """The statements and commands of an entry without a command amid them; the last statement may lack its semicolon.

    >>> list(parts("SELECT 1; SELECT 2")), list(parts(".mode"))
    (['SELECT 1', 'SELECT 2'], ['.mode'])
    """
    if is_command(entry):
        yield entry.strip()
        return
    cut = split(entry)
    yield from cut.statements
    if not blank(cut.rest):
        yield cut.rest.strip()


def is_command(entry: str) -> bool:
    """Whether an entry is a command, which ends with its line."""
    text = entry.strip()
    return text.startswith(("\\", ".")) or text.rstrip(";").lower() in _WORDS


def unfinished(entry: str) -> bool:
    """Whether more lines must follow before an entry can be answered.

    >>> unfinished("SELECT 1"), unfinished("SELECT 1;"), unfinished("quit"), unfinished("")
    (True, False, False, False)
    """
    if is_command(entry) or command_within(entry) is not None:
        return False
    rest = split(entry).rest
    return not is_command(rest) and not blank(rest)


def is_explain(sql: str) -> bool:
    r"""Whether a statement asks for the plan instead of the answer.

    >>> is_explain("-- why\nexplain SELECT 1"), is_explain("SELECT 1")
    (True, False)
    """
    return re.match(r"EXPLAIN\b", without_comments(sql).lstrip(), re.IGNORECASE) is not None
