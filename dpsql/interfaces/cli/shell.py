"""`dpsql shell`."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.api.remote.address import is_address
from dpsql.interfaces.cli.connections import (
    connect_to_source,
    find_source_epsilon,
    hide_password,
    parse_location,
    resolve_policy_path,
)
from dpsql.interfaces.cli.options import (
    ConnectionOptions,
    Fresh,
    QueryTerms,
    Reserve,
    Source,
    make_number_parser,
)
from dpsql.interfaces.shell.answers import AnswerFormat

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.interfaces.shell.settings import SessionState, Settings
    from dpsql.policy.request.target import Target


class ShellFormat(StrEnum):
    """The format of answers."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"


ShellStyle = Annotated[
    ShellFormat | None,
    typer.Option(
        "--format",
        "-f",
        help="The format of answers. [default: the setting `format`, else table]",
        show_default=False,
    ),
]
ShellDialect = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The SQL dialect of queries: duckdb, postgres, spark, snowflake, bigquery or tsql. [default: the setting `dialect`, else duckdb]",
        show_default=False,
    ),
]
AskAbove = Annotated[
    Fraction | None,
    typer.Option(
        parser=make_number_parser("ask_above"),
        metavar="NUMBER",
        help="The ε above which the shell shows the price of a query and asks for confirmation. [default: the setting `ask_above`, else 1]",
        show_default=False,
    ),
]


def shell(
    database: Source,
    *,
    options: ConnectionOptions,
    terms: QueryTerms,
    dialect: ShellDialect = None,
    fresh: Fresh = False,
    style: ShellStyle = None,
    ask_above: AskAbove = None,
    reserve: Reserve = None,
) -> None:
    """Start the interactive shell.

    Statements end with a semicolon. Statements from a pipe are answered one by one, without a prompt. Settings are in
    ~/.config/dpsql/config.toml.
    """
    from dpsql.interfaces.shell.settings import get_config_path, load_settings
    from dpsql.sql.parse.dialect import require_dialect

    settings = load_settings(get_config_path())
    settings = replace(
        settings,
        ask_above=settings.ask_above if ask_above is None else ask_above,
        dialect=dialect or settings.dialect,
        format=settings.format if style is None else style.value,
    )
    require_dialect(settings.dialect)
    target = terms.parse_target()
    default = find_source_epsilon(database, options.policy)
    epsilon = default if terms.epsilon is None and target is None else terms.epsilon
    with connect_to_source(database, options, fresh=fresh, reserve=reserve) as connection:
        state = _build_state(connection, replace(terms, epsilon=epsilon), target, settings)
        _run_session(state, _describe_source(database, options.policy))


def _build_state(
    connection: BaseConnection, terms: QueryTerms, target: Target | None, settings: Settings
) -> SessionState:
    from dpsql.interfaces.shell.answers import View
    from dpsql.interfaces.shell.settings import PLAIN, SessionState

    view = View.from_stream(sys.stdout)
    return SessionState(
        connection,
        replace(view, color=view.color and settings.theme != PLAIN),
        terms.epsilon,
        terms.delta,
        terms.max_groups,
        AnswerFormat(settings.format),
        dialect=settings.dialect,
        target=target,
        settings=settings,
    )


def _run_session(state: SessionState, source: str) -> None:
    """Run the statements of a terminal or a pipe. Raises typer.Exit with 1 if a statement of a pipe failed."""
    from dpsql.interfaces.shell.prompt import get_history_path, run_interactive, run_piped
    from dpsql.interfaces.shell.session import Session

    if sys.stdin.isatty() and sys.stdout.isatty():
        print(_format_banner(state, source))
        run_interactive(Session(state), history=get_history_path() if state.settings.history else None)
    elif not run_piped(Session(state), sys.stdin, _write_flushed, _write_error):
        raise typer.Exit(1)


def _describe_source(database: str, policy: Path | None) -> str:
    place = parse_location(database)
    return (
        database
        if is_address(database)
        else f"{hide_password(place)} under {resolve_policy_path(place, policy)}"
    )


def _format_banner(state: SessionState, what: str) -> str:
    import dpsql

    unit = state.connection.describe().privacy_unit
    loss = "\\epsilon 0.1 sets the privacy loss of a query"
    if state.epsilon is not None:
        loss = f"each query is charged ε {float(state.epsilon):g}"
    elif state.target is not None:
        loss = f"each query has the target {state.target}"
    return (
        f"dpsql {dpsql.__version__}: {what}, which protects each {unit}\n"
        f"{loss}; \\? lists the commands, \\q quits"
    )


def _write_flushed(text: str) -> None:
    print(text, flush=True)


def _write_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
