"""The backslash commands of the shell, and statements that list tables and columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from dpsql.engine.schema_description import format_bounds, format_values
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.shell import answers
from dpsql.interfaces.shell.answers import AnswerFormat, build_table, render_table
from dpsql.interfaces.shell.settings import (
    PLAIN,
    PendingQuery,
    Reply,
    SessionState,
    require_switch,
    require_theme,
)
from dpsql.policy import Column
from dpsql.policy.request.loss import (
    CONFIDENCE,
    Target,
    format_rounded,
    parse_amount,
    parse_confidence,
    parse_target_error,
)
from dpsql.results.description import ColumnDescription, Description
from dpsql.sql.parse.scanner import remove_comments

# List tables and their columns, from the policy and the schema, never from data.


_CATALOG = re.compile(r"(?:SHOW\s+(?:ALL\s+)?TABLES|(?:DESCRIBE|DESC)(?:\s+(?P<table>\S+))?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of tables or columns, with the columns to align right and the rules of a table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numbers: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()


def parse_describe_statement(statement: str) -> str | None:
    """Return the table that a statement describes, "" for the list of tables, None for other statements.

    >>> parse_describe_statement("SHOW TABLES;"), parse_describe_statement("describe visits"), parse_describe_statement("SELECT 1")
    ('', 'visits', None)
    """
    bare = remove_comments(statement).strip().rstrip(";").rstrip()
    found = _CATALOG.fullmatch(bare)
    return None if found is None else found["table"] or ""


def build_listing(name: str, known: Description) -> Listing:
    """List the columns of a table with its rules, or, for "", all tables. Raises ProgrammingError for an unknown table."""
    return list_columns(name, known) if name else list_tables(known)


def list_tables(known: Description) -> Listing:
    """List the declared tables, with the privacy unit of each."""
    rows = (
        (found.name, found.kind or ("private" if found.private else "public"), found.unit, len(found.columns))
        for found in known.tables
    )
    return Listing(("table", "kind", "privacy unit", "columns"), tuple(rows), numbers=(3,))


def list_columns(name: str, known: Description) -> Listing:
    """List the columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = known.get_table(name)
    rows = ((each.name, each.type, each.span, ", ".join(each.notes)) for each in found.columns)
    return Listing(("column", "type", "bounds or values", "notes"), tuple(rows), rules=found.rules)


def format_domain(column: Column | None) -> str:
    """Format the bounds or the public values of a column.

    >>> format_domain(Column(type="integer", bounds=[0, 110]))
    '[0, 110]'
    """
    return ColumnDescription("", "", format_bounds(column), format_values(column)).span


# The backslash commands: a registry with one entry per command. No command is charged by itself; `\g` and `\i` run queries.


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its names, its argument, its help text, and the function that runs it."""

    names: tuple[str, ...]
    argument: str
    help: str
    run: Callable[[SessionState, str], Reply]
    takes_statement: bool = False
    """Whether it applies to the statement that is being typed."""

    @property
    def usage(self) -> str:
        """Return the command as it is typed."""
        return f"\\{self.names[0]} {self.argument}".rstrip()


def run_command(state: SessionState, line: str) -> Reply:
    """Run a line that begins with a backslash. Raises ProgrammingError for an unknown command."""
    word, _, argument = line.strip().rstrip(";").lstrip("\\").partition(" ")
    found = _BY_NAME.get(word.lower())
    if found is None:
        close = difflib.get_close_matches(word.lower(), _BY_NAME, 1)
        hint = f"did you mean \\{close[0]}?" if close else "\\? lists the commands"
        raise ProgrammingError(f"unknown command \\{word}", code="command", hint=hint)
    return found.run(state, argument.strip())


def is_statement_command(line: str) -> bool:
    """Return whether a command applies to the statement that is being typed."""
    word = line.strip().lstrip("\\").split(maxsplit=1)[:1]
    found = _BY_NAME.get(word[0].lower()) if word else None
    return found is not None and found.takes_statement


def explain_query(state: SessionState, sql: str) -> Reply:
    """Return the plan of a query, with its proofs and its price."""
    if not sql:
        raise ProgrammingError(
            "no query given", code="argument", hint="write \\explain SELECT COUNT(*) FROM …"
        )
    explanation = state.connection.explain(sql, **resolve_query_options(state, sql))
    return Reply(state.view.render_parts(str(explanation)))


def resolve_query_options(state: SessionState, sql: str) -> dict[str, Any]:
    """Return the options of a query: those that it states, else those of the session.

    Raises ProgrammingError if no loss is set.
    """
    from dpsql.sql.parse.session_statement import parse_stated_options

    said = parse_stated_options(sql, state.dialect)
    epsilon, error, confidence = said.epsilon, said.target_error, said.confidence
    if epsilon is None and error is None:
        if state.target is not None:
            error, confidence = state.target.error, confidence or state.target.confidence
        else:
            epsilon = state.epsilon
    if epsilon is None and error is None and not state.connection.is_free(sql):
        raise ProgrammingError(
            "no privacy loss given; no epsilon is set",
            code="epsilon_missing",
            hint="set it with \\epsilon 0.1, or start dpsql shell with --epsilon 0.1",
        )
    return {
        "epsilon": epsilon,
        "delta": said.delta or state.delta,
        "max_groups": said.max_groups or state.max_groups,
        "target_error": error,
        "confidence": confidence,
        "dialect": state.dialect,
    }


def _describe_tables(state: SessionState, name: str) -> Reply:
    found = build_listing(name, state.connection.describe())
    return Reply(
        answers.format_listing(
            found.heads, found.rows, state.format, state.view, numbers=found.numbers, rules=found.rules
        )
    )


def _show_budget(state: SessionState, _: str) -> Reply:
    return Reply(render_table(answers.build_budget_table(state.connection.budget().values()), state.view))


def _set_epsilon(state: SessionState, text: str) -> Reply:
    if text:
        state.epsilon, state.target = parse_amount(text), None
    if state.target is not None:
        return _set_target(state, "")
    if state.epsilon is None:
        return _make_note("no epsilon is set; set it with \\epsilon 0.1")
    return _make_note(f"each query is charged ε {format_rounded(state.epsilon, 6)}")


def _set_target(state: SessionState, text: str) -> Reply:
    error, _, confidence = text.partition(" ")
    if error:
        often = parse_confidence(confidence.strip()) if confidence else CONFIDENCE
        state.target = None if error.lower() == "off" else Target(parse_target_error(error), often)
    if state.target is None:
        return _make_note("no target error is set; \\target 50 sets ±50 in 95% of answers")
    how = (
        "at the smallest ε that meets it"
        if state.target.relative_error is None
        else "in steps until they meet it"
    )
    return _make_note(f"queries run with {state.target}, {how}")


def _set_delta(state: SessionState, text: str) -> Reply:
    if text:
        state.delta = None if text.lower() == "auto" else parse_amount(text, "delta")
    if state.delta is None:
        return _make_note("queries that select group keys spend δ in proportion to ε")
    return _make_note(f"queries that select group keys spend δ {format_rounded(state.delta, 6)}")


def _set_max_groups(state: SessionState, text: str) -> Reply:
    if text and text.lower() != "auto" and not (text.isascii() and text.isdigit() and int(text)):
        raise ProgrammingError("\\groups takes a whole number of at least 1, or auto", code="max_groups")
    if text:
        state.max_groups = None if text.lower() == "auto" else int(text)
    if state.max_groups is None:
        return _make_note("a privacy unit contributes to as many groups as the policy allows")
    return _make_note(f"a privacy unit contributes to at most {state.max_groups:,} groups")


def _set_dialect(state: SessionState, text: str) -> Reply:
    if text:
        from dpsql.policy.request.dialects import require_dialect_name

        require_dialect_name(text.lower())
        state.dialect = text.lower()
    return _make_note(f"the SQL dialect is {state.dialect}")


def _set_format(state: SessionState, text: str) -> Reply:
    known = [each.value for each in AnswerFormat]
    if text and text.lower() not in known:
        raise ProgrammingError(
            f"unknown format {text}", code="argument", hint=f"use one of {', '.join(known)}"
        )
    if text:
        state.format = AnswerFormat(text.lower())
    return _make_note(f"the format is {state.format.value}")


def _make_note(text: str) -> Reply:
    return Reply(text, note=True)


def _update_settings(state: SessionState, **changed: Any) -> None:
    state.settings = replace(state.settings, **changed)


def _set_expanded(state: SessionState, text: str) -> Reply:
    if text:
        _update_settings(state, expanded=require_switch(text.lower()))
    else:
        _update_settings(state, expanded="off" if state.settings.expanded == "on" else "on")
    how = {
        "auto": "rows are shown as lines if the table is wider than the terminal",
        "on": "rows are shown as lines, one per column",
        "off": "answers are always shown as tables",
    }
    return _make_note(how[state.settings.expanded])


def _set_pager(state: SessionState, text: str) -> Reply:
    if text:
        _update_settings(state, pager=text)
    pager = state.settings.pager
    if pager == "off":
        return _make_note("the pager is off")
    what = "$PAGER, or less," if pager == "auto" else pager
    return _make_note(f"{what} shows output that is longer than the terminal")


def _set_timing(state: SessionState, text: str) -> Reply:
    known = {"": not state.settings.timing, "on": True, "off": False}
    if text.lower() not in known:
        raise ProgrammingError(f"\\timing does not take {text}", code="argument", hint="use on or off")
    _update_settings(state, timing=known[text.lower()])
    return _make_note("running times are shown" if state.settings.timing else "running times are not shown")


def _set_theme(state: SessionState, text: str) -> Reply:
    if text:
        _update_settings(state, theme=require_theme(text.lower()))
        state.view = replace(state.view, color=state.view.fit and state.settings.theme != PLAIN)
    return _make_note(f"the theme is {state.settings.theme}")


def _set_ask_above(state: SessionState, text: str) -> Reply:
    if text:
        _update_settings(state, ask_above=parse_amount(text, "ask_above"))
    return _make_note(
        f"a query that costs more than ε {format_rounded(state.settings.ask_above, 6)} needs confirmation"
    )


def _set_output(state: SessionState, text: str) -> Reply:
    if not text:
        had, state.output = state.output, None
        return _make_note(
            "answers are shown here"
            if had is None
            else f"answers are shown here again, and no longer written to {had}"
        )
    path = Path(text)
    try:
        path.write_text("", encoding="utf-8")
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}", code="not_written") from None
    state.output = path
    style = AnswerFormat.from_path(path) or state.format
    return _make_note(f"answers are written to {path} as {style.value} until \\o; charges are shown here")


def _include_file(_: SessionState, text: str) -> Reply:
    if not text:
        raise ProgrammingError("no file given", code="argument", hint="write \\i questions.sql")
    return Reply(file=Path(text))


def _edit_statement(state: SessionState, _: str) -> Reply:
    if state.terminal is None:
        raise ProgrammingError("\\e requires a terminal", code="command", hint="type the statement instead")
    return Reply(buffer=state.terminal.edit(state.buffer.strip() or state.last_sql).strip())


def _send_as_set(state: SessionState, text: str) -> Reply:
    return _send_statement(state, text, expanded=False)


def _send_expanded(state: SessionState, text: str) -> Reply:
    return _send_statement(state, text, expanded=True)


def _send_statement(state: SessionState, text: str, *, expanded: bool) -> Reply:
    sql = state.buffer.strip() or state.last_sql
    if not sql:
        raise ProgrammingError(
            "there is no statement to run", code="command", hint="type one first: SELECT COUNT(*) FROM … \\g"
        )
    state.buffer = ""
    return Reply(query=PendingQuery(sql, Path(text) if text else None, expanded))


def _show_statement(state: SessionState, _: str) -> Reply:
    return Reply(state.buffer.strip() or state.last_sql or "there is no statement yet")


def _clear_statement(state: SessionState, _: str) -> Reply:
    state.buffer = ""
    return _make_note("discarded the typed statement")


def _refuse_watch(_: SessionState, __: str) -> NoReturn:
    raise ProgrammingError(
        "\\watch is not supported: a repeated query returns the stored answer, or is charged each time",
        code="command",
        hint="\\g runs the last query again at no charge; with dpsql shell --fresh it draws new noise and is charged",
    )


def _show_receipt(state: SessionState, _: str) -> Reply:
    return Reply("no query has been answered yet" if state.receipt is None else state.receipt.to_json())


def _show_help(state: SessionState, _: str) -> Reply:
    rows = [(command.usage, command.help) for command in COMMANDS]
    rows.append(("SELECT …;", "run a private query, charged to the budget; end it with a semicolon"))
    rows.append(("EXPLAIN SELECT …;", "the same as \\explain"))
    return Reply(state.view.render_parts(build_table(("type", "for"), rows)))


def _quit_shell(_: SessionState, __: str) -> Reply:
    return Reply(quit=True)


COMMANDS = (
    Command(("d", "dt", "d+", "dt+", "tables"), "[TABLE]", "list the tables, or the columns of one with bounds and values", _describe_tables),
    Command(("budget",), "", "show the spent and remaining budget of each table", _show_budget),
    Command(("explain",), "SELECT …", "show the plan of a query, its proofs and its price", explain_query),
    Command(("epsilon",), "[ε]", "set the privacy loss of each query", _set_epsilon),
    Command(("target",), "[ERROR [CONFIDENCE]|off]", "set the largest error of a value, such as 50 or 5%, instead of a loss", _set_target),
    Command(("delta",), "[δ|auto]", "set the δ that a query spends on selecting group keys", _set_delta),
    Command(("groups",), "[N|auto]", "set the largest number of groups to which one privacy unit contributes", _set_max_groups),
    Command(("format",), "[FORMAT]", "set the format of answers: table, csv, json or markdown", _set_format),
    Command(("dialect",), "[NAME]", "set the SQL dialect: duckdb, postgres, spark, snowflake, bigquery or tsql", _set_dialect),
    Command(("x",), "[on|off|auto]", "show rows as lines; auto: if a table is wider than the terminal", _set_expanded),
    Command(("pager",), "[COMMAND|auto|off]", "set the pager for answers that are longer than the terminal", _set_pager),
    Command(("timing",), "[on|off]", "show the running time of each answer", _set_timing),
    Command(("theme",), "[NAME]", "set the colors: none, or a style of Pygments", _set_theme),
    Command(("ask",), "[ε]", "set the ε above which a query needs confirmation", _set_ask_above),
    Command(("g",), "[FILE]", "run the typed or the last query, optionally into a file", _send_as_set, takes_statement=True),
    Command(("gx",), "[FILE]", "like \\g, with rows as lines", _send_expanded, takes_statement=True),
    Command(("p",), "", "print the typed or the last query", _show_statement),
    Command(("r",), "", "discard the typed statement", _clear_statement, takes_statement=True),
    Command(("e", "edit"), "", "edit the typed or the last query in $VISUAL or $EDITOR", _edit_statement),
    Command(("i", "include"), "FILE", "run the statements and commands of a file", _include_file),
    Command(("o", "out"), "[FILE]", "write answers to a file (.csv, .json or .md), or show them here again", _set_output),
    Command(("watch",), "", "not supported: a repeated query returns the same answer, or is charged again", _refuse_watch),
    Command(("receipt",), "", "show the receipt of the last answer, as JSON", _show_receipt),
    Command(("?", "h", "help"), "", "show this list", _show_help),
    Command(("q", "quit", "exit"), "", "quit, like Ctrl-D", _quit_shell),
)  # fmt: skip
_BY_NAME = {name: command for command in COMMANDS for name in command.names}
