"""A session: entries in, text out. It needs no terminal, and shows nothing that is not released."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpsql.errors import Error, ProgrammingError
from dpsql.request.loss import rounded
from dpsql.shell import answers, commands, costs
from dpsql.shell.failures import message, styled, unforeseen
from dpsql.shell.state import Reply, State
from dpsql.shell.statements import blank, split, without_comments
from dpsql.shell.view import dim

_WORDS = ("help", "quit", "exit")
_CATALOGUE = re.compile(
    r"(?:SHOW\s+(?:ALL\s+)?TABLES|(?:DESCRIBE|DESC)(?:\s+(?P<table>\S+))?)", re.IGNORECASE
)


class Session:
    """Answers one entry after another; `state` is what it remembers between them."""

    def __init__(self, state: State) -> None:
        self.state = state

    def prompt(self) -> str:
        """The prompt: of the table charged last, or of all, the budget with the least left, and what that is."""
        try:
            states = self.state.connection.budget()
        except Error:
            states = {}
        if not states:
            return "dpsql> "
        last = [state for state in states.values() if state.table == self.state.table]
        least = min(last or states.values(), key=costs.percent_left)
        return f"dpsql({least.name} ε {rounded(least.remaining_epsilon)} left)> "

    def replies(self, entry: str) -> Iterator[Reply]:
        """The reply to each statement or command of an entry, in order; none after one that quits."""
        for part in parts(entry):
            reply = self.reply(part)
            yield reply
            if reply.quit:
                return

    def reply(self, part: str) -> Reply:
        """The reply to one statement or command. Errors are replies too."""
        try:
            return self._reply(part)
        except Error as error:
            return self._failed(message(error))
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
        if catalogue := _CATALOGUE.fullmatch(bare):
            return commands.run(self.state, f"\\d {catalogue['table'] or ''}")
        if is_explain(text):
            return commands.explain(self.state, text)
        return self._query(text)

    def _query(self, sql: str) -> Reply:
        state = self.state
        terms = commands.terms(state, sql)
        result = state.connection.query(sql, **terms)
        state.receipt = result.receipt
        charged = [entry["table"] for entry in result.receipt.entries]
        state.table = charged[-1] if charged else state.table
        answer = answers.written(result, state.format, state.view)
        if state.format is not answers.Format.TABLE:
            return Reply(answer)
        cost = costs.remarks(result, terms["epsilon"], state.connection.budget().values())
        return Reply(f"{answer}\n{state.view.show(dim(cost))}")

    def _failed(self, text: str) -> Reply:
        return Reply(self.state.view.show(styled(text)), failed=True)


def parts(entry: str) -> Iterator[str]:
    """The statements and commands of an entry; the last statement may lack its semicolon.

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
    rest = entry if is_command(entry) else split(entry).rest
    return not is_command(rest) and not blank(rest)


def is_explain(sql: str) -> bool:
    r"""Whether a statement asks for the plan instead of the answer.

    >>> is_explain("-- why\nexplain SELECT 1"), is_explain("SELECT 1")
    (True, False)
    """
    return re.match(r"EXPLAIN\b", without_comments(sql).lstrip(), re.IGNORECASE) is not None
