"""The backslash commands: a registry, one entry a command. None of them costs anything."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpsql.errors import ProgrammingError
from dpsql.request.loss import amount, rounded
from dpsql.request.target import CONFIDENCE, Target, confidence_amount, error_amount
from dpsql.shell import costs, describe
from dpsql.shell.answers import Format
from dpsql.shell.state import Reply, State
from dpsql.shell.view import table


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it is called, what follows it, what it does, and how."""

    names: tuple[str, ...]
    argument: str
    help: str
    run: Callable[[State, str], Reply]

    @property
    def usage(self) -> str:
        """The command as it is typed."""
        return f"\\{self.names[0]} {self.argument}".rstrip()


def run(state: State, line: str) -> Reply:
    """Answers a line that begins with a backslash. Raises ProgrammingError for an unknown command."""
    word, _, argument = line.strip().rstrip(";").lstrip("\\").partition(" ")
    found = _BY_NAME.get(word.lower())
    if found is None:
        close = difflib.get_close_matches(word.lower(), _BY_NAME, 1)
        hint = f"did you mean \\{close[0]}?" if close else "\\? lists the commands"
        raise ProgrammingError(f"there is no command \\{word}", code="command", hint=hint)
    return found.run(state, argument.strip())


def explain(state: State, sql: str) -> Reply:
    """The plan of a query, with its proofs and its price."""
    if not sql:
        raise ProgrammingError("no query given", code="argument", hint="\\explain SELECT COUNT(*) FROM …")
    explanation = state.connection.explain(sql, **terms(state, sql))
    return Reply(state.view.show(str(explanation)))


def terms(state: State, sql: str) -> dict[str, Any]:
    """What a query is asked with: what it says itself, and else what the session is set to.

    Raises ProgrammingError while no loss is set.
    """
    from dpsql.sql.read.parse import stated

    said = stated(sql, state.dialect)
    epsilon, error, confidence = said.epsilon, said.target_error, said.confidence
    if epsilon is None and error is None:
        if state.target is not None:
            error, confidence = state.target.error, confidence or state.target.confidence
        else:
            epsilon = state.epsilon
    if epsilon is None and error is None:
        raise ProgrammingError(
            "no privacy loss given: no epsilon is set",
            code="epsilon_missing",
            hint="\\epsilon 0.1 sets it for this session, as does dpsql shell … --epsilon 0.1",
        )
    return {
        "epsilon": epsilon,
        "delta": said.delta or state.delta,
        "max_groups": said.max_groups or state.max_groups,
        "target_error": error,
        "confidence": confidence,
        "dialect": state.dialect,
    }


def _describe(state: State, name: str) -> Reply:
    described = state.connection.describe()
    return Reply(
        state.view.show(*(describe.columns(name, described) if name else [describe.tables(described)]))
    )


def _budget(state: State, _: str) -> Reply:
    return Reply(state.view.show(costs.budget_table(state.connection.budget().values())))


def _epsilon(state: State, text: str) -> Reply:
    if text:
        state.epsilon, state.target = amount(text), None
    if state.target is not None:
        return _target(state, "")
    if state.epsilon is None:
        return Reply("no epsilon is set: \\epsilon 0.1 sets it")
    return Reply(f"each query is charged ε {rounded(state.epsilon, 6)}")


def _target(state: State, text: str) -> Reply:
    error, _, confidence = text.partition(" ")
    if error:
        often = confidence_amount(confidence.strip()) if confidence else CONFIDENCE
        state.target = None if error.lower() == "off" else Target(error_amount(error), often)
    if state.target is None:
        return Reply("no accuracy is asked for: \\target 50 asks for ±50 in 95% of answers")
    how = "at the least ε that keeps to it" if state.target.share is None else "in steps until it is met"
    return Reply(f"a query is asked for with {state.target}, {how}")


def _delta(state: State, text: str) -> Reply:
    if text:
        state.delta = None if text.lower() == "auto" else amount(text, "delta")
    if state.delta is None:
        return Reply("δ for choosing group keys is spent in proportion to ε")
    return Reply(f"a query that chooses group keys spends δ {rounded(state.delta, 6)} on it")


def _groups(state: State, text: str) -> Reply:
    if text and text.lower() != "auto" and not (text.isascii() and text.isdigit() and int(text)):
        raise ProgrammingError("groups are a whole number from 1, or auto", code="max_groups")
    if text:
        state.max_groups = None if text.lower() == "auto" else int(text)
    if state.max_groups is None:
        return Reply("as many groups of a privacy unit count as the policy says")
    return Reply(f"at most {state.max_groups:,} groups of a privacy unit count")


def _dialect(state: State, text: str) -> Reply:
    if text:
        from dpsql.sql.read.dialect import require

        require(text.lower())
        state.dialect = text.lower()
    return Reply(f"queries are read as {state.dialect}")


def _format(state: State, text: str) -> Reply:
    known = [each.value for each in Format]
    if text and text.lower() not in known:
        raise ProgrammingError(
            f"there is no format {text}", code="argument", hint=f"one of {', '.join(known)}"
        )
    if text:
        state.format = Format(text.lower())
    return Reply(f"answers are written as {state.format.value}")


def _receipt(state: State, _: str) -> Reply:
    return Reply("no query has been answered yet" if state.receipt is None else state.receipt.to_json())


def _help(state: State, _: str) -> Reply:
    rows = [(command.usage, command.help) for command in COMMANDS]
    rows.append(("SELECT …;", "a private answer, charged to the budget; ends with a semicolon"))
    rows.append(("EXPLAIN SELECT …;", "the same as \\explain"))
    return Reply(state.view.show(table(("type", "for"), rows)))


def _quit(_: State, __: str) -> Reply:
    return Reply(quit=True)


COMMANDS = (
    Command(("d", "dt", "tables"), "[TABLE]", "the tables, or the columns of one with bounds and values", _describe),
    Command(("budget",), "", "what is spent and what is left, table by table", _budget),
    Command(("explain",), "SELECT …", "the plan of a query, what is proved of it, and its price", explain),
    Command(("epsilon",), "[ε]", "the privacy loss of each query", _epsilon),
    Command(("target",), "[ERROR [CONFIDENCE]|off]", "the largest error of a value, as 50 or 5%, instead of a loss", _target),
    Command(("delta",), "[δ|auto]", "what a query spends on choosing group keys", _delta),
    Command(("groups",), "[N|auto]", "the most groups of one privacy unit that count", _groups),
    Command(("format",), "[FORMAT]", "how answers are written: table, csv, json or markdown", _format),
    Command(("dialect",), "[NAME]", "the SQL of queries: duckdb, postgres, spark, snowflake, bigquery, tsql", _dialect),
    Command(("receipt",), "", "what was done for the last answer, as JSON", _receipt),
    Command(("?", "h", "help"), "", "this list", _help),
    Command(("q", "quit", "exit"), "", "leave, as Ctrl-D does", _quit),
)  # fmt: skip
_BY_NAME = {name: command for command in COMMANDS for name in command.names}
