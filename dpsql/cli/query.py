"""`dpsql query`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dpsql.cli.options import (
    Analyst,
    Confidence,
    Database,
    Delta,
    Dialect,
    Epsilon,
    Fresh,
    LedgerFile,
    LedgerKey,
    MaxGroups,
    PolicyFile,
    Sql,
    TargetError,
    default_epsilon,
    needed,
    opened,
    policy_of,
    text_of,
)
from dpsql.request.query import QueryOptions
from dpsql.shell.answers import Format

Style = Annotated[Format, typer.Option("--format", "-f", help="How the answer is written.")]


def query(
    database: Database,
    sql: Sql,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    max_groups: MaxGroups = None,
    target_error: TargetError = None,
    confidence: Confidence = None,
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
    style: Style = Format.TABLE,
) -> None:
    """Answer one SELECT, and charge the budget for it unless the same was answered before.

    The answer goes to standard output, with the 95% interval of each noisy value. What it cost follows
    a table; for the other formats it goes to standard error.
    """
    from dpsql.policy import load
    from dpsql.shell.answers import written
    from dpsql.shell.costs import remarks
    from dpsql.shell.session import is_explain
    from dpsql.shell.view import View, dim

    text = text_of(sql)
    default = default_epsilon(load(policy_of(database, policy)))
    loss = needed(epsilon, target_error, text, dialect, default)
    with opened(database, policy, ledger, analyst, ledger_key, fresh=fresh, default=default) as connection:
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
        result = connection.query(text, **terms)
        print(written(result, style, View.of(sys.stdout)), flush=True)
        beside = sys.stdout if style is Format.TABLE else sys.stderr
        cost = remarks(result, loss, connection.budget().values())
        print(View.of(beside).show(dim(cost)), file=beside)
