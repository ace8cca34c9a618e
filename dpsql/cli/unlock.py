"""`dpsql ledger unlock`: an owner opens a table that failures have locked, and the ledger keeps who did it and why."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from dpsql.cli.ledger import AnchorFile, Target
from dpsql.cli.options import LedgerKey

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table that is locked.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the ledger.", show_default=False)]
By = Annotated[
    str | None, typer.Option("--by", help="Who does it. [default: the login name]", show_default=False)
]


def unlock(
    target: Target,
    table: TableName,
    *,
    reason: Reason,
    by: By = None,
    anchor: AnchorFile = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Open a table again whose queries failed while they ran. First find out why: a failure tells of the data."""
    from dpsql.connection import login
    from dpsql.ledger import Budget, open_ledger
    from dpsql.ledger.key import ledger_key as read_key
    from dpsql.ledger.protocol import AccountKey
    from dpsql.ledger.reader import History

    # The accounts are those that the ledger keeps: no policy is needed.
    with closing(History.open(target, read_key(ledger_key))) as history:
        budgets = dict[str | AccountKey, Budget](history.budgets().items())
    names = {account.table for account in budgets if isinstance(account, AccountKey)}
    name = next((known for known in sorted(names) if known.lower() == table.lower()), table)
    with closing(open_ledger(target, budgets, anchor=anchor, key=ledger_key)) as book:
        before = book.state(name).failures
        entry = book.unlock(name, by=by or login(), reason=reason)
    times = "1 failure" if before == 1 else f"{before} failures"
    print(f"the table {name} is open again after {times}: entry {entry.id} of the ledger")
