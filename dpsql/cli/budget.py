"""`dpsql budget`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import LedgerFile

if TYPE_CHECKING:
    from dpsql.accounting import Budget, Entry
    from dpsql.policy import Policy

Rules = Annotated[Path, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
Entries = Annotated[int, typer.Option(min=0, help="Also show the last so many charges.")]


def budget(policy: Rules, ledger: LedgerFile = None, entries: Entries = 0) -> None:
    """Show what is spent, and what is left of the budget."""
    from dpsql.accounting import open_ledger
    from dpsql.policy import load
    from dpsql.shell.costs import budget_table
    from dpsql.shell.view import View

    rules, path, view = load(policy), ledger or policy.with_suffix(".ledger"), View.of(sys.stdout)
    # A ledger that is not there yet is not made by looking at it.
    known = path.is_file()
    book = open_ledger(path if known else ":memory:", _budgets(rules))
    try:
        print(view.show(budget_table(book.states())))
        if not known:
            print(f"nothing was asked yet: there is no {path}")
        if entries:
            print(view.show("", *map(_line, book.entries(limit=entries))))
    finally:
        book.close()


def _budgets(rules: Policy) -> dict[str, Budget]:
    from dpsql import accounting

    specs = {name: rules.budget_of(name) for name in rules.private_tables()}
    return {
        name: accounting.Budget(spec.accountant, spec.epsilon, spec.delta) for name, spec in specs.items()
    }


def _line(entry: Entry) -> str:
    from dpsql.shell.view import printable

    when = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    query = printable(" ".join(entry.query.split()))
    return f"{entry.id}  {when}  {printable(entry.analyst)}  {entry.table}  {query}"
