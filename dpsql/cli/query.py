"""`dpsql query`."""

from __future__ import annotations

import sys

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
    NewLedger,
    PolicyFile,
    Source,
    Sql,
    TargetError,
    asked_of,
    default_of,
    needed,
    text_of,
)
from dpsql.cli.outputs import Output, Style, StyleOption, deliver, list_rows, style_of
from dpsql.remote.address import is_address
from dpsql.request.query import QueryOptions

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def query(
    database: Source,
    sql: Sql,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorFile = None,
    new_ledger: NewLedger = False,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    max_groups: MaxGroups = None,
    target_error: TargetError = None,
    confidence: Confidence = None,
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
    style: StyleOption = None,
    output: Output = None,
) -> None:
    """Answer one SELECT, and charge the budget for it unless the same was answered before.

    SHOW TABLES and DESCRIBE t are answered from the policy, free. The answer goes to standard output, or into a file, with the 95% interval of each noisy value. What it cost follows
    a table; for the other formats it goes to standard error.
    """
    from dpsql.shell import describe
    from dpsql.shell.asking import Interrupted, ask
    from dpsql.shell.costs import remarks
    from dpsql.shell.session import is_explain
    from dpsql.shell.view import View, dim

    text, form = text_of(sql), style_of(style, output)
    if (table := describe.asked(text)) is not None:
        with asked_of(
            database, policy, ledger, analyst, ledger_key, anchor=anchor, new_ledger=new_ledger
        ) as connection:
            found = describe.described(table, connection.describe())
        list_rows(found, form, output)
        return
    default = default_of(database, policy)
    loss = needed(epsilon, target_error, text, dialect, default, server=is_address(database))
    with asked_of(
        database,
        policy,
        ledger,
        analyst,
        ledger_key,
        anchor=anchor,
        new_ledger=new_ledger,
        fresh=fresh,
        default=default,
    ) as connection:
        terms: QueryOptions = {
            "epsilon": epsilon,
            "delta": delta,
            "max_groups": max_groups,
            "target_error": target_error,
            "confidence": confidence,
            "dialect": dialect,
        }
        if is_explain(text):
            print(connection.explain(text, **terms))
            return
        progress = sys.stderr if sys.stderr.isatty() else None
        try:
            result = ask(connection, text, terms, progress=progress)
        except Interrupted as stopped:
            print(stopped.text, file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        deliver(result, form, output)
        beside = sys.stdout if form is Style.table and output is None else sys.stderr
        when = connection.answered_at(result.receipt)
        cost = remarks(result, loss, connection.budget().values(), when)
        print(View.of(beside).show(dim(cost)), file=beside)
