"""`dpsql ledger return`: ends a slice whose session did not, and gives back what it has not spent."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from dpsql.cli.ledger import AnchorFile, Target
from dpsql.cli.options import LedgerKey

Number = Annotated[
    int,
    typer.Option(
        "--slice", min=1, help="The slice's number, as `dpsql budget` lists it.", show_default=False
    ),
]
By = Annotated[
    str | None, typer.Option("--by", help="Who does it. [default: the login name]", show_default=False)
]


def give_back(
    target: Target,
    *,
    number: Number,
    by: By = None,
    anchor: AnchorFile = None,
    ledger_key: LedgerKey = None,
) -> None:
    """End a reserved slice, and give back what it has not spent. Its session can spend no more of it."""
    from dpsql.connection import login
    from dpsql.errors import OperationalError
    from dpsql.ledger import Budget, open_ledger
    from dpsql.ledger.key import ledger_key as read_key
    from dpsql.ledger.protocol import AccountKey
    from dpsql.ledger.reader import History
    from dpsql.request.loss import rounded

    # The accounts are those that the ledger keeps: no policy is needed.
    with closing(History.open(target, read_key(ledger_key))) as history:
        budgets = dict[str | AccountKey, Budget](history.budgets().items())
    with closing(open_ledger(target, budgets, anchor=anchor, key=ledger_key)) as book:
        entries = book.give_back(number, by=by or login())
    if not entries:
        raise OperationalError(
            f"no slice {number} is open", code="slice_closed", hint="dpsql budget lists those that are"
        )
    for entry in entries:
        whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
        loss, delta = rounded(entry.spend.loss_fraction), rounded(entry.spend.delta_fraction)
        print(f"given back to {whose}: a loss of {loss} and δ {delta}, entry {entry.id} of the ledger")
