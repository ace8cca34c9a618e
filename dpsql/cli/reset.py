"""`dpsql ledger reset`: an owner begins a budget anew, and the ledger keeps who did it and why."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.ledger import AnchorFile, Target
from dpsql.cli.options import LedgerKey

Rules = Annotated[Path, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
TableName = Annotated[str, typer.Option("--table", help="Whose budget.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the ledger.", show_default=False)]
Who = Annotated[
    str | None,
    typer.Option("--analyst", help="This analyst's at the table, not the table's.", show_default=False),
]
By = Annotated[
    str | None, typer.Option("--by", help="Who does it. [default: the login name]", show_default=False)
]


def reset(
    target: Target,
    *,
    policy: Rules,
    table: TableName,
    reason: Reason,
    analyst: Who = None,
    by: By = None,
    anchor: AnchorFile = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Begin a table's budget anew. What was answered before stays known: the two budgets add up."""
    from dpsql.connection import login
    from dpsql.engine.budgets import budgets
    from dpsql.errors import OperationalError
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules = load(policy)
    if not is_url(target) and not Path(target).is_file():
        raise OperationalError(
            f"there is no ledger {target}", code="ledger_unavailable", hint="correct the path"
        )
    who = "" if analyst is None else rules.analyst(analyst)
    name = rules.canonical(table) or table
    with closing(open_ledger(target, budgets(rules, [who]), anchor=anchor, key=ledger_key)) as book:
        entry = book.reset(name, analyst=who, by=by or login(), reason=reason)
    whose = f"{name} for {who}" if who else name
    print(f"the budget of {whose} begins anew: entry {entry.id} of the ledger")
    print("what was answered before stays known, so what is guaranteed from now on adds to what was before")
