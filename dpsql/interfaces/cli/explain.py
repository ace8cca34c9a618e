"""`dpsql explain`."""

from __future__ import annotations

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


def explain(
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
) -> None:
    """Show the plan of a query and its charge.

    The plan states the bound proved for each step and the expected error. Nothing is charged, and no private data is read.
    """
    text = read_sql(sql)
    default = find_source_epsilon(database, policy)
    require_loss(epsilon, target_error, text, dialect, default, server=is_address(database))
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
        explanation = connection.explain(
            text,
            epsilon=epsilon,
            delta=delta,
            max_groups=max_groups,
            target_error=target_error,
            confidence=confidence,
            dialect=dialect,
        )
        print(explanation)
