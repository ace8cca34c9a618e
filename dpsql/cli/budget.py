"""`dpsql budget`."""

from __future__ import annotations

import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import LedgerFile, LedgerKey, require_no_ledger
from dpsql.errors import ProgrammingError
from dpsql.remote.address import is_address

if TYPE_CHECKING:
    from dpsql.ledger import Entry
    from dpsql.ledger.protocol import ReservationState

Rules = Annotated[Path | None, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
Policies = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[POLICY|URL]...",
        help="Policies, each with the ledger beside it; or addresses of servers, for which DPSQL_TOKEN holds the token.",
        show_default=False,
    ),
]
Entries = Annotated[int, typer.Option(min=0, help="Also show the last so many charges.")]
_MOST_RESETS = 100


def budget(
    policies: Policies = None,
    *,
    policy: Rules = None,
    ledger: LedgerFile = None,
    entries: Entries = 0,
    ledger_key: LedgerKey = None,
) -> None:
    """Show what is spent, and what is left of the budget: of tables, and of each analyst who has an account.

    Of several policies each stands under its name, with the ledger beside it.
    """
    named = [*(policies or []), *([] if policy is None else [str(policy)])]
    if not named:
        raise ProgrammingError("no policy given", code="argument", hint="dpsql budget hie.yaml")
    if len(named) > 1 and ledger is not None:
        raise ProgrammingError(
            "one ledger is given for several policies", code="argument", hint="leave out --ledger"
        )
    for place, each in enumerate(named):
        if len(named) > 1:
            print("\n" * bool(place) + each)
        if is_address(each):
            require_no_ledger(ledger, ledger_key)
            _ask(each, entries)
        else:
            _show(Path(each), ledger or str(Path(each).with_suffix(".ledger")), entries, ledger_key)


def _ask(address: str, entries: int) -> None:
    import dpsql
    from dpsql.shell.costs import budget_table
    from dpsql.shell.view import View, records

    if entries:
        raise ProgrammingError("--entries reads a ledger, which is the server's", code="argument")
    with dpsql.connect(address) as connection:
        print(records(budget_table(connection.budget().values()), View.of(sys.stdout)))


def _show(policy: Path, path: str, entries: int, ledger_key: Path | None) -> None:
    from dpsql.engine.budgets import budgets
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load
    from dpsql.shell.costs import budget_table, failure_lines
    from dpsql.shell.view import View, records

    rules, view = load(policy), View.of(sys.stdout)
    # A ledger that is not there yet is not made by looking at it.
    known = is_url(path) or Path(path).is_file()
    asked = _analysts(path, ledger_key) if known else []
    book = open_ledger(
        path if known else ":memory:",
        budgets(rules, [*rules.analysts, *asked]),
        key=ledger_key,
        max_failures=rules.max_failures_of_tables(),
    )
    try:
        print(records(budget_table(book.states()), view))
        for state in book.reservations():
            print(_reservation(state))
        if known:
            for entry in _begun_anew(path, ledger_key):
                print(_said(entry))
            for line in failure_lines(book.states(), path):
                print(line)
        if not known:
            print(f"nothing was asked yet: there is no {path}")
        if entries:
            print(view.show("", *map(_line, book.entries(limit=entries))))
    finally:
        book.close()


def _analysts(path: str, key: Path | None) -> list[str]:
    """Who has an account in a ledger."""
    from dpsql.ledger.key import ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, ledger_key(key))) as history:
        return sorted({account.analyst for account in history.budgets() if account.analyst})


def _reservation(state: ReservationState) -> str:
    from dpsql.request.loss import rounded
    from dpsql.shell.view import printable

    part = Fraction(100 * state.left.loss, state.limit.loss)
    whose = f"reservation {state.number} of {printable(state.key.name)}"
    return f"{whose} is reserved by {printable(state.holder)}: {rounded(part)}% of it is left"


def _begun_anew(path: str, key: Path | None) -> list[Entry]:
    """The entries by which budgets were begun anew or amended, and tables opened again."""
    from dpsql.ledger.key import ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, ledger_key(key))) as history:
        found = [
            entry for kind in ("reset", "unlock", "amend") for entry in history.last(_MOST_RESETS, kind=kind)
        ]
    return sorted(found, key=lambda entry: entry.id)


def _said(entry: Entry) -> str:
    from dpsql.shell.view import printable

    when, why = entry.at.strftime("%Y-%m-%d"), printable(str(entry.details.get("reason", "")))
    whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
    done = {"reset": "begun anew", "amend": "amended"}.get(entry.kind, "unlocked")
    return f"{printable(whose)} was {done} on {when} by {printable(entry.analyst)}: {why}"


def _line(entry: Entry) -> str:
    from dpsql.shell.view import printable

    when = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    query = printable(" ".join(entry.query.split()))
    return f"{entry.id}  {when}  {printable(entry.analyst)}  {entry.table}  {query}"
