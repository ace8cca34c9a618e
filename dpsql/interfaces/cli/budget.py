"""`dpsql budget`."""

from __future__ import annotations

import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.api.remote.address import is_address
from dpsql.errors import ProgrammingError
from dpsql.interfaces.cli.options import LedgerFile, LedgerKey, require_no_ledger

if TYPE_CHECKING:
    from dpsql.ledger import Entry
    from dpsql.ledger.protocol import ReservationState

Rules = Annotated[Path | None, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
Policies = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[POLICY|URL]...",
        help="Policies, each with the ledger beside it; or addresses of servers, with the token in DPSQL_TOKEN.",
        show_default=False,
    ),
]
Entries = Annotated[int, typer.Option(min=0, help="Also show this number of the latest charges.")]
_MOST_RESETS = 100


def budget(
    policies: Policies = None,
    *,
    policy: Rules = None,
    ledger: LedgerFile = None,
    entries: Entries = 0,
    ledger_key: LedgerKey = None,
) -> None:
    """Show the spent and remaining budgets of tables, and of each analyst with an account.

    Several policies are shown one after the other, each with the ledger beside it.
    """
    named = [*(policies or []), *([] if policy is None else [str(policy)])]
    if not named:
        raise ProgrammingError("no policy given", code="argument", hint="dpsql budget hie.yaml")
    if len(named) > 1 and ledger is not None:
        raise ProgrammingError(
            "--ledger is only valid with one policy", code="argument", hint="leave out --ledger"
        )
    for place, each in enumerate(named):
        if len(named) > 1:
            print("\n" * bool(place) + each)
        if is_address(each):
            require_no_ledger(ledger, ledger_key)
            _show_server_budgets(each, entries)
        else:
            _show_ledger_budgets(
                Path(each), ledger or str(Path(each).with_suffix(".ledger")), entries, ledger_key
            )


def _show_server_budgets(address: str, entries: int) -> None:
    import dpsql
    from dpsql.interfaces.shell.costs import build_budget_table
    from dpsql.interfaces.shell.view import View, render_table

    if entries:
        raise ProgrammingError("--entries is not valid with a server address", code="argument")
    with dpsql.connect(address) as connection:
        print(render_table(build_budget_table(connection.budget().values()), View.from_stream(sys.stdout)))


def _show_ledger_budgets(policy: Path, path: str, entries: int, ledger_key: Path | None) -> None:
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.costs import build_budget_table, describe_failures
    from dpsql.interfaces.shell.view import View, render_table
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules, view = load(policy), View.from_stream(sys.stdout)
    # Showing budgets must not create a ledger.
    known = is_url(path) or Path(path).is_file()
    asked = _list_analysts(path, ledger_key) if known else []
    book = open_ledger(
        path if known else ":memory:",
        collect_budgets(rules, [*rules.analysts, *asked]),
        key=ledger_key,
        max_failures=rules.get_failure_limits(),
    )
    try:
        print(render_table(build_budget_table(book.list_states()), view))
        for state in book.list_reservations():
            print(_describe_reservation(state))
        if known:
            for entry in _list_owner_actions(path, ledger_key):
                print(_describe_owner_action(entry))
            for line in describe_failures(book.list_states(), path):
                print(line)
        if not known:
            print(f"no query was answered yet: {path} does not exist")
        if entries:
            print(view.render_parts("", *map(_format_entry, book.list_entries(limit=entries))))
    finally:
        book.close()


def _list_analysts(path: str, key: Path | None) -> list[str]:
    """Return the analysts with an account in a ledger."""
    from dpsql.ledger.key import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, read_ledger_key(key))) as history:
        return sorted({account.analyst for account in history.read_budgets() if account.analyst})


def _describe_reservation(state: ReservationState) -> str:
    from dpsql.interfaces.shell.view import escape_unprintable
    from dpsql.policy.request.loss import format_rounded

    part = Fraction(100 * state.remaining.loss, state.limit.loss)
    whose = f"reservation {state.number} of {escape_unprintable(state.key.name)}"
    return f"{whose} is held by {escape_unprintable(state.holder)}: {format_rounded(part)}% left"


def _list_owner_actions(path: str, key: Path | None) -> list[Entry]:
    """Return the entries that reset or amended budgets or unlocked tables."""
    from dpsql.ledger.key import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, read_ledger_key(key))) as history:
        found = [
            entry
            for kind in ("reset", "unlock", "amend")
            for entry in history.list_last_entries(_MOST_RESETS, kind=kind)
        ]
    return sorted(found, key=lambda entry: entry.id)


def _describe_owner_action(entry: Entry) -> str:
    from dpsql.interfaces.shell.view import escape_unprintable

    when, why = entry.at.strftime("%Y-%m-%d"), escape_unprintable(str(entry.details.get("reason", "")))
    whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
    done = {"reset": "reset", "amend": "amended"}.get(entry.kind, "unlocked")
    return f"{escape_unprintable(whose)} was {done} on {when} by {escape_unprintable(entry.analyst)}: {why}"


def _format_entry(entry: Entry) -> str:
    from dpsql.interfaces.shell.view import escape_unprintable

    when = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    query = escape_unprintable(" ".join(entry.query.split()))
    return f"{entry.id}  {when}  {escape_unprintable(entry.analyst)}  {entry.table}  {query}"
