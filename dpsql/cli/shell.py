"""`dpsql shell`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpsql.cli.options import (
    Analyst,
    AnchorFile,
    Confidence,
    Delta,
    Dialect,
    Epsilon,
    Fresh,
    LedgerFile,
    LedgerKey,
    MaxGroups,
    PolicyFile,
    Reserve,
    Source,
    TargetError,
    asked_of,
    default_of,
    policy_of,
    target_of,
)
from dpsql.remote.address import is_address

if TYPE_CHECKING:
    from dpsql.shell.state import State


def shell(
    database: Source,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorFile = None,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    max_groups: MaxGroups = None,
    target_error: TargetError = None,
    confidence: Confidence = None,
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
    reserve: Reserve = None,
) -> None:
    """Ask one question after another.

    Statements end in a semicolon. From a pipe they are answered one by one, without a prompt.
    """
    from dpsql.shell.prompt import follow, history_file, interact
    from dpsql.shell.session import Session
    from dpsql.shell.state import State
    from dpsql.shell.view import View
    from dpsql.sql.read.dialect import require

    require(dialect)
    target = target_of(epsilon, target_error, confidence)
    default = default_of(database, policy)
    with asked_of(
        database, policy, ledger, analyst, ledger_key, anchor=anchor, fresh=fresh, reserve=reserve
    ) as connection:
        loss = default if epsilon is None and target is None else epsilon
        state = State(
            connection, View.of(sys.stdout), loss, delta, max_groups, dialect=dialect, target=target
        )
        if sys.stdin.isatty() and sys.stdout.isatty():
            print(_banner(state, _what(database, policy)))
            interact(Session(state), history=history_file())
        elif not follow(Session(state), sys.stdin, _flushed, _complain):
            raise typer.Exit(1)


def _what(database: str, policy: Path | None) -> str:
    return database if is_address(database) else f"{database} under {policy_of(Path(database), policy)}"


def _banner(state: State, what: str) -> str:
    import dpsql

    unit = state.connection.describe().privacy_unit
    loss = "\\epsilon 0.1 sets the privacy loss of a query"
    if state.epsilon is not None:
        loss = f"each query is charged ε {float(state.epsilon):g}"
    elif state.target is not None:
        loss = f"each query is asked for with {state.target}"
    return (
        f"dpsql {dpsql.__version__}: {what}, which protects each {unit}\n"
        f"{loss}; \\? lists the commands, \\q leaves"
    )


def _flushed(text: str) -> None:
    print(text, flush=True)


def _complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
