"""`dpsql ledger reset`, `amend`, `unlock` and `return`: an owner's changes to budgets, each recorded with its author."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.interfaces.cli.ledger import Target
from dpsql.interfaces.cli.options import AnchorPath, LedgerKey

if TYPE_CHECKING:
    from dpsql.ledger import Budget
    from dpsql.ledger.protocol import AccountKey

By = Annotated[
    str | None,
    typer.Option(
        "--by", help="The author that the ledger records. [default: the login name]", show_default=False
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", help="The reason that the ledger records.", show_default=False)
]
Rules = Annotated[Path, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
TableName = Annotated[
    str, typer.Option("--table", help="The table whose budget is reset.", show_default=False)
]
Who = Annotated[
    str | None,
    typer.Option(
        "--analyst",
        help="Reset this analyst's budget for the table, instead of the table's.",
        show_default=False,
    ),
]
LockedTable = Annotated[str, typer.Argument(metavar="TABLE", help="The locked table.", show_default=False)]
Number = Annotated[
    int | None,
    typer.Option(
        "--reservation",
        min=1,
        help="The reservation's number, as `dpsql budget` lists it.",
        show_default=False,
    ),
]


def reset(
    target: Target,
    *,
    policy: Rules,
    table: TableName,
    reason: Reason,
    analyst: Who = None,
    by: By = None,
    anchor: AnchorPath = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Reset the budget of a table. Earlier answers stay known, so the guarantees before and after add up."""
    from dpsql.api.opening import get_user_name
    from dpsql.engine.budgets import collect_budgets
    from dpsql.errors import OperationalError
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules = load(policy)
    if not is_url(target) and not Path(target).is_file():
        raise OperationalError(
            f"the ledger {target} does not exist", code="ledger_unavailable", hint="correct the path"
        )
    who = "" if analyst is None else rules.resolve_analyst_name(analyst)
    name = rules.find_table_name(table) or table
    with closing(open_ledger(target, collect_budgets(rules, [who]), anchor=anchor, key=ledger_key)) as book:
        entry = book.reset(name, analyst=who, by=by or get_user_name(), reason=reason)
    whose = f"{name} for {who}" if who else name
    print(f"reset the budget of {whose}: entry {entry.id} of the ledger")
    print("earlier answers stay known: the guarantees before and after the reset add up")


def amend(
    target: Target,
    *,
    policy: Rules,
    reason: Reason,
    by: By = None,
    anchor: AnchorPath = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Change the ledger's budgets to the policy's current budgets, larger or smaller, and record the reason.

    Spent budget stays spent. The new budget then bounds the loss of all answers together, earlier ones included; if answers
    led to the change, the bound is the largest budget that any answers would have led to. Open connections must be reopened.
    """
    from dpsql.api.opening import get_user_name
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.view import escape_unprintable
    from dpsql.ledger import open_ledger
    from dpsql.ledger.protocol import AccountKey
    from dpsql.policy import load

    rules, recorded = load(policy), _read_recorded_budgets(target, ledger_key)
    analysts = {key.analyst for key in recorded if isinstance(key, AccountKey)}
    wanted = {
        AccountKey(key) if isinstance(key, str) else key: budget
        for key, budget in collect_budgets(rules, sorted(analysts)).items()
    }
    known = {key: wanted[key] for key in recorded if isinstance(key, AccountKey) and key in wanted}
    with closing(open_ledger(target, recorded, anchor=anchor, key=ledger_key)) as book:
        done = book.amend(known, by=by or get_user_name(), reason=reason)
    for entry, before, after in done:
        whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
        print(
            f"the budget of {escape_unprintable(whose)} was {before}; it is now {after}: entry {entry.id} of the ledger"
        )
    print("spent budget stays spent: the new budget bounds all answers together, earlier ones included")


def unlock(
    target: Target,
    table: LockedTable,
    *,
    reason: Reason,
    by: By = None,
    anchor: AnchorPath = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Unlock a table that failures have locked. Find the cause first, since a failure may depend on the data."""
    from dpsql.api.opening import get_user_name
    from dpsql.ledger import open_ledger
    from dpsql.ledger.protocol import AccountKey

    budgets = _read_recorded_budgets(target, ledger_key)
    names = {account.table for account in budgets if isinstance(account, AccountKey)}
    name = next((known for known in sorted(names) if known.lower() == table.lower()), table)
    with closing(open_ledger(target, budgets, anchor=anchor, key=ledger_key)) as book:
        before = book.get_state(name).failures
        entry = book.unlock(name, by=by or get_user_name(), reason=reason)
    times = "1 failure" if before == 1 else f"{before} failures"
    print(f"unlocked the table {name} after {times}: entry {entry.id} of the ledger")


def give_back(
    target: Target,
    *,
    number: Number = None,
    by: By = None,
    anchor: AnchorPath = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Close a reservation and return its unspent budget. Its session can no longer spend it."""
    from dpsql.api.opening import get_user_name
    from dpsql.errors import OperationalError
    from dpsql.ledger import open_ledger
    from dpsql.policy.request.loss import format_rounded

    if number is None:
        raise typer.BadParameter("give the number of the reservation", param_hint="--reservation")
    budgets = _read_recorded_budgets(target, ledger_key)
    with closing(open_ledger(target, budgets, anchor=anchor, key=ledger_key)) as book:
        entries = book.close_reservation(number, by=by or get_user_name())
    if not entries:
        raise OperationalError(
            f"no open reservation has the number {number}",
            code="slice_closed",
            hint="dpsql budget lists open reservations",
        )
    for entry in entries:
        whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
        loss, delta = format_rounded(entry.spend.loss_fraction), format_rounded(entry.spend.delta_fraction)
        print(f"returned a loss of {loss} and δ {delta} to {whose}: entry {entry.id} of the ledger")


def _read_recorded_budgets(target: str, ledger_key: Path | None) -> dict[str | AccountKey, Budget]:
    """Read the budgets that the ledger records, without a policy."""
    from dpsql.ledger.key import read_ledger_key as read_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(target, read_key(ledger_key))) as history:
        return dict(history.read_budgets().items())
