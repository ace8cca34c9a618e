"""`dpsql query`."""

from __future__ import annotations

import sys

import typer

from dpsql.api.remote.address import is_address
from dpsql.interfaces.cli.options import (
    Analyst,
    AnchorPath,
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
    connect_to_source,
    find_source_epsilon,
    read_sql,
    require_loss,
)
from dpsql.interfaces.cli.outputs import (
    Output,
    OutputFormat,
    StyleOption,
    resolve_output_format,
    write_answer,
    write_listing,
)
from dpsql.policy.request.query import QueryOptions

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def query(
    database: Source,
    sql: Sql,
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
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
    style: StyleOption = None,
    output: Output = None,
) -> None:
    """Answer one SELECT, and charge the budget unless the same query was answered before.

    SHOW TABLES and DESCRIBE t are answered from the policy, at no charge. The answer is written to standard output or to a file,
    with the 95% interval of each noisy value. The charge follows a table; with other formats it is written to standard error.
    """
    from dpsql.interfaces.shell import describe
    from dpsql.interfaces.shell.costs import format_remarks
    from dpsql.interfaces.shell.query_progress import QueryInterrupted, run_query
    from dpsql.interfaces.shell.session import is_explain
    from dpsql.interfaces.shell.view import View, make_dim

    text, form = read_sql(sql), resolve_output_format(style, output)
    if (table := describe.parse_describe_statement(text)) is not None:
        with connect_to_source(
            database, policy, ledger, analyst, ledger_key, anchor=anchor, new_ledger=new_ledger
        ) as connection:
            found = describe.build_listing(table, connection.describe())
        write_listing(found, form, output)
        return
    default = find_source_epsilon(database, policy)
    loss = require_loss(epsilon, target_error, text, dialect, default, server=is_address(database))
    with connect_to_source(
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
            result = run_query(connection, text, terms, progress=progress)
        except QueryInterrupted as stopped:
            print(stopped.text, file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        write_answer(result, form, output)
        beside = sys.stdout if form is OutputFormat.table and output is None else sys.stderr
        when = connection.find_answer_time(result.receipt)
        cost = format_remarks(result, loss, connection.budget().values(), when)
        print(View.from_stream(beside).render_parts(make_dim(cost)), file=beside)
