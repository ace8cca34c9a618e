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
from dpsql.interfaces.cli.options import (
    Analyst,
    AnchorPath,
    Confidence,
    Delta,
    Epsilon,
    Fresh,
    LedgerFile,
    LedgerKey,
    MaxGroups,
    NewLedger,
    PolicyFile,
    Reserve,
    Source,
    TargetError,
    connect_to_source,
    find_source_epsilon,
    hide_password,
    make_number_parser,
    parse_location,
    parse_target,
    resolve_policy_path,
)
from dpsql.interfaces.shell.answers import AnswerFormat

if TYPE_CHECKING:
    from dpsql.interfaces.shell.settings import SessionState


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
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorPath = None,
    new_ledger: NewLedger = False,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    max_groups: MaxGroups = None,
    target_error: TargetError = None,
    confidence: Confidence = None,
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
    from dpsql.interfaces.shell.answers import View
    from dpsql.interfaces.shell.prompt import get_history_path, run_interactive, run_piped
    from dpsql.interfaces.shell.session import Session
    from dpsql.interfaces.shell.settings import PLAIN, SessionState, get_config_path, load_settings
    from dpsql.sql.parse.dialect import require_dialect

    chosen = load_settings(get_config_path())
    if ask_above is not None:
        chosen = replace(chosen, ask_above=ask_above)
    read_as, form = dialect or chosen.dialect, AnswerFormat(chosen.format if style is None else style.value)
    require_dialect(read_as)
    target = parse_target(epsilon, target_error, confidence)
    default = find_source_epsilon(database, policy)
    with connect_to_source(
        database,
        policy,
        ledger,
        analyst,
        ledger_key,
        anchor=anchor,
        new_ledger=new_ledger,
        fresh=fresh,
        reserve=reserve,
    ) as connection:
        loss = default if epsilon is None and target is None else epsilon
        view = View.from_stream(sys.stdout)
        state = SessionState(
            connection,
            replace(view, color=view.color and chosen.theme != PLAIN),
            loss,
            delta,
            max_groups,
            form,
            dialect=read_as,
            target=target,
            settings=chosen,
        )
        if sys.stdin.isatty() and sys.stdout.isatty():
            print(_format_banner(state, _describe_source(database, policy)))
            run_interactive(Session(state), history=get_history_path() if chosen.history else None)
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
