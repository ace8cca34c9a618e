"""`dpsql explain`."""

from __future__ import annotations

from dpsql.cli.options import (
    Analyst,
    AnchorFile,
    Confidence,
    Database,
    Delta,
    Dialect,
    Epsilon,
    Fresh,
    LedgerFile,
    LedgerKey,
    MaxGroups,
    NewLedger,
    PolicyFile,
    Sql,
    TargetError,
    default_epsilon,
    needed,
    opened,
    policy_of,
    text_of,
)


def explain(
    database: Database,
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
) -> None:
    """Show the plan of a query and what it would cost.

    With what is proved of each step, and the error to expect. Nothing is charged, and nothing private
    is read.
    """
    from dpsql.policy import load

    text = text_of(sql)
    default = default_epsilon(load(policy_of(database, policy)))
    needed(epsilon, target_error, text, dialect, default)
    with opened(
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
