"""`dpsql explain`."""

from __future__ import annotations

from dpsql.cli.options import (
    Analyst,
    Database,
    Delta,
    Dialect,
    Epsilon,
    LedgerFile,
    MaxGroups,
    PolicyFile,
    Sql,
    needed,
    opened,
    text_of,
)


def explain(
    database: Database,
    sql: Sql,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    max_groups: MaxGroups = None,
    dialect: Dialect = "duckdb",
) -> None:
    """Show the plan of a query and what it would cost.

    With what is proved of each step, and the error to expect. Nothing is charged, and nothing private
    is read.
    """
    text = text_of(sql)
    needed(epsilon, text, dialect)
    with opened(database, policy, ledger, analyst) as connection:
        print(connection.explain(text, epsilon=epsilon, delta=delta, max_groups=max_groups, dialect=dialect))
