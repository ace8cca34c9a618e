"""A session: one entry after another becomes text, queries run with their progress, and Ctrl-C tells the charge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.shell import answers, commands
from dpsql.interfaces.shell.answers import (
    INTERRUPTED,
    View,
    format_error,
    format_unforeseen_error,
    highlight_error,
    make_dim,
)
from dpsql.interfaces.shell.settings import PendingQuery, Reply, SessionState
from dpsql.interfaces.shell.statements import find_command, split_statements
from dpsql.policy.request.loss import format_rounded
from dpsql.results.rendering import Budgets, compute_remaining_percent
from dpsql.results.result import QueryCharge
from dpsql.sql.parse.scanner import find_explain_end, is_blank, remove_comments

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.results.result import Result


# Run one query for an interactive user: show progress, and report the charge after Ctrl-C.


_QUIET: Final = 1.0
"""Seconds before progress is shown."""
_EVERY: Final = 0.5


class QueryInterrupted(KeyboardInterrupt):
    """Ctrl-C during a query; `text` says whether it was charged."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def run_query(
    connection: BaseConnection, sql: str, terms: Mapping[str, Any], *, progress: TextIO | None = None
) -> Result:
    """Run a query and return its answer. Ctrl-C raises `QueryInterrupted`, which says whether the query was charged.

    `progress` is the terminal that shows how long the query has been running.
    """
    left_behind = connection.charge_probe(sql)
    try:
        with show_progress(progress):
            return connection.query(sql, **terms)
    except KeyboardInterrupt:
        raise QueryInterrupted(_describe_interruption(left_behind)) from None


@contextmanager
def show_progress(terminal: TextIO | None) -> Iterator[None]:
    """Show on a terminal how long the enclosed work has taken, once that exceeds a second.

    Only the elapsed time is shown, which the user knows anyway. The engine's progress is not shown, since it depends on the
    number of rows, which is private.
    """
    if terminal is None:
        yield
        return
    ended, began = threading.Event(), time.monotonic()

    def write_elapsed_time() -> None:
        pause = _QUIET
        while not ended.wait(pause):
            pause = _EVERY
            terminal.write(f"\r\x1b[2Krunning for {time.monotonic() - began:.0f} s; Ctrl-C stops the query")
            terminal.flush()

    teller = threading.Thread(target=write_elapsed_time, name="dpsql progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if time.monotonic() - began >= _QUIET:
            terminal.write("\r\x1b[2K")
            terminal.flush()


def _describe_interruption(left_behind: Callable[[], str]) -> str:
    try:
        return left_behind()
    except (Error, KeyboardInterrupt):
        return INTERRUPTED


# A session: answer entries with text. It needs no terminal, and shows released values only.


_WORDS = ("help", "quit", "exit")
_MOST_FILES: Final = 8
"""How deeply files of `\\i` may include others."""


class Session:
    """Answer one entry after another; `state` is kept between them."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._files = list[Path]()

    def format_prompt(self) -> str:
        """Return the prompt, with the smallest remaining budget of the table charged last, else of all tables."""
        try:
            states = self.state.connection.budget()
        except Error:
            states = Budgets()
        if not states:
            return "dpsql> "
        last = [state for state in states.values() if state.table == self.state.table]
        least = min(last or states.values(), key=compute_remaining_percent)
        return f"dpsql({least.name} ε {format_rounded(least.remaining_epsilon)} left)> "

    def iterate_replies(self, entry: str) -> Iterator[Reply]:
        """Yield the reply to each statement or command of an entry, in order, up to one that quits.

        The last reply's `buffer` holds an unfinished statement that follows a command.
        """
        for reply in self._iterate_replies(entry):
            yield reply
            if reply.quit or reply.interrupted:
                return

    def _iterate_replies(self, entry: str) -> Iterator[Reply]:
        text, commanded = entry, False
        self.state.buffer = ""
        while not is_command(text) and (found := find_command(text)) is not None:
            cut, commanded = split_statements(found.before), True
            for statement in cut.statements:
                yield from self._iterate_part_replies(statement)
            self.state.buffer = "" if is_blank(cut.rest) else cut.rest.lstrip()
            for reply in self._iterate_part_replies(found.command):
                self.state.buffer = reply.buffer or self.state.buffer
                yield replace(reply, buffer="")
            text = self.state.buffer + found.after
        if not commanded:
            for part in split_entry(text):
                yield from self._iterate_part_replies(part)
            return
        cut = split_statements(text)
        for statement in cut.statements:
            yield from self._iterate_part_replies(statement)
        if not is_blank(cut.rest):
            yield Reply(buffer=cut.rest.lstrip())

    def _iterate_part_replies(self, part: str) -> Iterator[Reply]:
        """Yield the reply to a statement or command, or to the query or the file that it names."""
        reply = self.answer_part(part)
        if reply.query is not None:
            yield self._run_safely(partial(self._send_pending, reply.query))
        elif reply.file is not None:
            yield from self._include_file(reply.file)
        else:
            yield reply

    def _include_file(self, path: Path) -> Iterator[Reply]:
        found = self._run_safely(lambda: Reply(_read_entries(path, self._files)))
        if found.failed:
            yield found
            return
        self._files.append(path)
        try:
            for entry in iterate_entries(found.text.splitlines(keepends=True)):
                for reply in self.iterate_replies(entry):
                    yield reply
                    if reply.quit or reply.interrupted:
                        return
        finally:
            self._files.pop()

    def answer_part(self, part: str) -> Reply:
        """Return the reply to one statement or command; an error is a reply too."""
        return self._run_safely(lambda: self._answer_part(part))

    def _run_safely(self, work: Callable[[], Reply]) -> Reply:
        try:
            return work()
        except Error as error:
            return self._make_failure(format_error(error))
        except QueryInterrupted as stopped:
            return replace(self._make_failure(stopped.text), interrupted=True)
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            return self._make_failure(format_unforeseen_error(error))

    def _answer_part(self, part: str) -> Reply:
        text = part.strip()
        if text.startswith("\\"):
            return commands.run_command(self.state, text)
        if text.startswith("."):
            raise ProgrammingError(
                f"unknown command {text.split()[0]}",
                code="command",
                hint="commands begin with a backslash: \\d lists the tables, \\? lists the commands",
            )
        bare = remove_comments(text).strip().rstrip(";").rstrip()
        if bare.lower() in _WORDS:
            return commands.run_command(self.state, f"\\{bare}")
        if (table := commands.parse_describe_statement(text)) is not None:
            return commands.run_command(self.state, f"\\d {table}")
        if is_explain(text):
            return commands.explain_query(self.state, text)
        return self._run_query(PendingQuery(text))

    def _send_pending(self, asked: PendingQuery) -> Reply:
        """Return the reply to the statement that a command sends."""
        is_free = is_explain(asked.sql) or commands.parse_describe_statement(asked.sql) is not None
        return self._answer_part(asked.sql) if is_free else self._run_query(asked)

    def _run_query(self, asked: PendingQuery) -> Reply:
        state, terminal = self.state, self.state.terminal
        state.last_sql = asked.sql
        terms = commands.resolve_query_options(state, asked.sql)
        price = None if terminal is None else self._find_price_to_confirm(asked.sql, terms)
        if terminal is not None and price is not None and not terminal.confirm(f"{price}. Run it? [y/N] "):
            return Reply("not run; nothing was charged", note=True)
        progress = terminal.progress if terminal is not None and state.settings.progress else None
        began = time.monotonic()
        result = run_query(state.connection, asked.sql, terms, progress=progress)
        took = [f"in {time.monotonic() - began:.3f} s"] if state.settings.timing else []
        state.receipt = result.receipt
        charged = [entry["table"] for entry in result.receipt.entries]
        state.table = charged[-1] if charged else state.table
        when = state.connection.find_answer_time(result.receipt)
        cost = answers.format_remarks(result, terms["epsilon"], state.connection.budget().values(), when)
        remarks = state.view.render_parts(make_dim("\n".join([cost, *took])))
        expanded = "on" if asked.expanded else state.settings.expanded
        if (output := asked.output or state.output) is not None:
            style = answers.AnswerFormat.from_path(output) or state.format
            text = answers.format_answer(result, style, View(), "on" if expanded == "on" else "off")
            _write_answer(output, text, append=asked.output is None)
            return Reply(f"wrote {output}", note=True, remarks=remarks)
        answer = answers.format_answer(result, state.format, state.view, expanded)
        if state.format is not answers.AnswerFormat.TABLE:
            return Reply(answer, remarks=remarks)
        return Reply(f"{answer}\n{remarks}")

    def _find_price_to_confirm(self, sql: str, terms: Mapping[str, Any]) -> QueryCharge | None:
        """Return the price of a query that needs confirmation, else None."""
        most = self.state.settings.ask_above
        if self.state.connection.is_free(sql):
            return None
        if terms["target_error"] is None and terms["epsilon"] <= most:
            return None
        price = self.state.connection.explain(sql, **terms).price
        return price if price is not None and price.epsilon > most else None

    def _make_failure(self, text: str) -> Reply:
        return Reply(self.state.view.render_parts(highlight_error(text)), failed=True)


def iterate_entries(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield the entries of a text that comes line by line: statements up to their `;`, and commands of one line each.

    A command within a statement comes before it, except one that runs the statement, which is part of the entry.

    >>> list(iterate_entries(["SELECT 1\n", "\\d t\n", "FROM t; SELECT 2 \\g\n"]))
    ['\\d t', 'SELECT 1\nFROM t;', 'SELECT 2 \\g']
    """
    pending = ""
    for line in lines:
        pending += line
        while (found := find_command(pending)) is not None:
            cut = split_statements(found.before)
            yield from (f"{statement};" for statement in cut.statements)
            rest = "" if is_blank(cut.rest) else cut.rest
            if rest and commands.is_statement_command(found.command):
                yield f"{rest.strip()} {found.command}"
                rest = ""
            else:
                yield found.command
            pending = rest + found.after.lstrip("\r\n")
        if is_command(pending):
            yield pending.strip()
            pending = ""
            continue
        cut = split_statements(pending)
        yield from (f"{statement};" for statement in cut.statements)
        pending = cut.rest
    yield from split_entry(pending)


def _read_entries(path: Path, within: Sequence[Path]) -> str:
    """Return the text of an included file. Raises ProgrammingError if it cannot be read, or files include each other."""
    if len(within) >= _MOST_FILES:
        raise ProgrammingError(
            f"\\i is nested more than {_MOST_FILES} files deep",
            code="file",
            hint=f"check whether {path} includes itself",
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProgrammingError(f"cannot read {path}: {said}", code="file", hint="correct the path") from None


def _write_answer(path: Path, text: str, *, append: bool) -> None:
    """Write an answer. Raises OperationalError (`not_written`); the same query is then answered again at no charge."""
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        said = error.strerror
    else:
        return
    raise OperationalError(
        f"cannot write {path}: {said}",
        code="not_written",
        hint="run the query again with another file; the stored answer is free",
    )


def split_entry(entry: str) -> Iterator[str]:
    """Yield the statements of an entry, or its one command; the last statement may lack its semicolon.

    >>> list(split_entry("SELECT 1; SELECT 2")), list(split_entry(".mode"))
    (['SELECT 1', 'SELECT 2'], ['.mode'])
    """
    if is_command(entry):
        yield entry.strip()
        return
    cut = split_statements(entry)
    yield from cut.statements
    if not is_blank(cut.rest):
        yield cut.rest.strip()


def is_command(entry: str) -> bool:
    """Return whether an entry is a command, which ends with its line."""
    text = entry.strip()
    return text.startswith(("\\", ".")) or text.rstrip(";").lower() in _WORDS


def is_unfinished(entry: str) -> bool:
    """Return whether an entry needs more lines before it can be answered.

    >>> is_unfinished("SELECT 1"), is_unfinished("SELECT 1;"), is_unfinished("quit"), is_unfinished("")
    (True, False, False, False)
    """
    if is_command(entry) or find_command(entry) is not None:
        return False
    rest = split_statements(entry).rest
    return not is_command(rest) and not is_blank(rest)


def is_explain(sql: str) -> bool:
    r"""Return whether a statement is an EXPLAIN.

    >>> is_explain("-- why\nexplain SELECT 1"), is_explain("SELECT 1")
    (True, False)
    """
    return find_explain_end(sql) is not None
