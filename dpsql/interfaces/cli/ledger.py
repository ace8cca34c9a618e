"""`dpsql ledger` and `dpsql receipt`: verify, show, export and change a ledger, and verify receipts against it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError
from dpsql.interfaces.cli.options import AnchorPath, LedgerKey

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.ledger import Budget, Entry, Ledger, LedgerHead
    from dpsql.ledger.budget_state import AccountKey
    from dpsql.ledger.reader import LedgerReader
    from dpsql.ledger.receipts import CheckedReceipt


# `dpsql ledger verify`, `export`, `show` and `head`: a ledger without its policy.


ledger = typer.Typer(help="Verify, show and export a ledger; no policy is needed.", no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="The ledger: a file, or postgresql://user@host/name.", show_default=False
    ),
]
AnchoredHead = Annotated[
    str | None,
    typer.Option("--head", help="A head that `ledger head` printed earlier.", show_default=False),
]


class ExportFormat(StrEnum):
    """The format of an export."""

    jsonl = "jsonl"
    csv = "csv"


FormatName = Annotated[
    ExportFormat, typer.Option("--format", "-f", help="Write one entry per line, as JSON or as CSV.")
]
TableName = Annotated[
    str | None, typer.Option("--table", help="Show only entries of this table.", show_default=False)
]
Who = Annotated[
    str | None, typer.Option("--analyst", help="Show only entries of this analyst.", show_default=False)
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="Show only entries of this kind: charge, failure, unlock, reset, amend, reserve, draw or return.",
        show_default=False,
    ),
]
Last = Annotated[int, typer.Option("--last", min=1, help="Show at most this number of the newest entries.")]


@ledger.command()
def verify(
    target: Target, anchor: AnchorPath = None, head: AnchoredHead = None, ledger_key: LedgerKey = None
) -> None:
    """Verify every entry, from the first to the last."""
    anchored = read_anchored_head(anchor, head)
    with open_reader(target, ledger_key) as history:
        chain = history.verify(anchored)
    under = " with its key" if ledger_key else ""
    print(f"the chain is intact{under}: entries {chain.head.entries:,}, accounts {len(chain.balances):,}")
    if held := {number for balance in chain.balances.values() for number in balance.reservations}:
        print(f"open reservations: {', '.join(map(str, sorted(held)))}")
    if anchored is None:
        print("to detect entries missing at the end, compare with a recorded head: --anchor FILE or --head")
    else:
        print(f"the chain contains the recorded head of {anchored.entries:,} entries")
    print(f"head: {chain.compute_full_head(chain.stored_head)}")


@ledger.command()
def export(target: Target, format_: FormatName = ExportFormat.jsonl, ledger_key: LedgerKey = None) -> None:
    """Write all entries to standard output, and check each against its digest."""
    with open_reader(target, ledger_key) as history:
        if format_ is ExportFormat.jsonl:
            for row in history.iterate_rows():
                print(json.dumps(row, ensure_ascii=False))
            return
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(history.columns)
        for row in history.iterate_rows():
            writer.writerow(row.values())


@ledger.command()
def show(
    target: Target,
    *,
    table: TableName = None,
    analyst: Who = None,
    kind: Kind = None,
    last: Last = 20,
    ledger_key: LedgerKey = None,
) -> None:
    """Show the newest entries, oldest first."""
    from dpsql.interfaces.shell.answers import View

    with open_reader(target, ledger_key) as history:
        entries = history.list_last_entries(last, table=table, analyst=analyst, kind=kind)
        budgets = history.read_budgets()
    if not entries:
        chosen = table or analyst or kind
        print("the ledger has no such entries" if chosen else "the ledger has no entries")
        return
    print(View.from_stream(sys.stdout).render_parts(_build_entry_table(entries, budgets)))


@ledger.command()
def head(target: Target, ledger_key: LedgerKey = None) -> None:
    """Print the ledger's head. Record it where nobody who can write the ledger can change it."""
    with open_reader(target, ledger_key) as history:
        print(history.read_head())


def open_reader(target: str, key: Path | None) -> closing[LedgerReader]:
    """Open a ledger for reading, with the key in a file."""
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    return closing(LedgerReader.open(target, read_ledger_key(key)))


def read_anchored_head(anchor: Path | None, head: str | None) -> LedgerHead | None:
    """Return the head of an anchor or of the option, or None if neither is given."""
    from dpsql.ledger import AnchorFile
    from dpsql.ledger.protocol import LedgerHead

    if anchor is not None and head is not None:
        raise typer.BadParameter("--anchor and --head cannot be combined")
    if head is not None:
        return LedgerHead.parse(head)
    if anchor is None:
        return None
    anchored = AnchorFile(anchor).read_head()
    if anchored is None:
        raise OperationalError(
            f"the anchor {anchor} does not exist", code="anchor_unavailable", hint="correct the path"
        )
    return anchored


def _build_entry_table(entries: list[Entry], budgets: dict[AccountKey, Budget]) -> Table:
    from dpsql.analysis.partitions.predicates import describe_ranges
    from dpsql.interfaces.shell.answers import build_table
    from dpsql.ledger.budget_state import AccountKey
    from dpsql.policy.request.loss import format_rounded
    from dpsql.privacy.accounting import get_accountant
    from dpsql.privacy.accounting.partitions.boxes import Box

    parts = any(entry.box is not None for entry in entries)
    heads = (
        "entry",
        "at (UTC)",
        "analyst",
        "table",
        "account",
        *(("part",) if parts else ()),
        "kind",
        "loss",
        "in",
        "δ",
        "spent",
        "of",
        "query",
    )
    rows = []
    for entry in entries:
        budget = budgets.get(AccountKey(entry.table, entry.account_analyst))
        symbol = "?" if budget is None else get_accountant(budget.accountant).symbol
        costs = (entry.spend.loss_fraction, entry.spend.delta_fraction, entry.spent.loss_fraction)
        loss, delta, spent = (format_rounded(amount, 4, up=True) for amount in costs)
        rows.append(
            (
                f"{entry.id}",
                entry.at.strftime("%Y-%m-%d %H:%M:%S"),
                entry.analyst,
                entry.table,
                entry.account_analyst or "the table's",
                *(("all",) if parts and entry.box is None else ()),
                *(
                    " and ".join(describe_ranges(*side) for side in Box.parse(box).sides)
                    for box in [entry.box]
                    if box
                ),
                entry.kind if entry.reservation is None else f"{entry.kind} {entry.reservation}",
                loss,
                symbol,
                delta,
                spent,
                format_rounded(entry.limit.loss_fraction, 4),
                " ".join(entry.query.split()),
            )
        )
    return build_table(heads, rows, right=(0, *(place + parts for place in (6, 8, 9, 10))))


# `dpsql ledger reset`, `amend`, `unlock` and `return`: an owner's changes to budgets, each recorded with its author.


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
AccountTable = Annotated[
    str, typer.Option("--table", help="The table whose budget is reset.", show_default=False)
]
AccountAnalyst = Annotated[
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


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The author of a change to a ledger, and the ledger's anchor and key."""

    by: By = None
    anchor: AnchorPath = None
    ledger_key: LedgerKey = None

    @property
    def author(self) -> str:
        """Return the given author, or the login name."""
        from dpsql.api.opening import get_user_name

        return self.by or get_user_name()

    @contextmanager
    def open_ledger(self, target: str, budgets: Mapping[str | AccountKey, Budget]) -> Iterator[Ledger]:
        """Open a ledger with budgets, and close it in the end."""
        from dpsql.ledger import open_ledger

        with closing(open_ledger(target, budgets, anchor=self.anchor, key=self.ledger_key)) as book:
            yield book


def reset(
    target: Target,
    *,
    policy: Rules,
    table: AccountTable,
    reason: Reason,
    analyst: AccountAnalyst = None,
    change: ChangeOptions,
) -> None:
    """Reset the budget of a table. Earlier answers stay known, so the guarantees before and after add up."""
    from dpsql.engine.budgets import collect_budgets
    from dpsql.ledger.budget_state import AccountKey
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules = load(policy)
    if not is_url(target) and not Path(target).is_file():
        raise OperationalError(
            f"the ledger {target} does not exist", code="ledger_unavailable", hint="correct the path"
        )
    who = "" if analyst is None else rules.resolve_analyst_name(analyst)
    declared = rules.find_table_name(table)
    name = table if declared is None else rules.get_account_name(declared)
    with change.open_ledger(target, collect_budgets(rules, [who])) as book:
        entry = book.reset(name, analyst=who, by=change.author, reason=reason)
    print(f"reset the budget of {AccountKey(name, who).owner}: entry {entry.id} of the ledger")
    print("earlier answers stay known: the guarantees before and after the reset add up")


def amend(
    target: Target,
    *,
    policy: Rules,
    reason: Reason,
    change: ChangeOptions,
) -> None:
    """Change the ledger's budgets to the policy's current budgets, larger or smaller, and record the reason.

    Spent budget stays spent. The new budget then bounds the loss of all answers together, earlier ones included; if answers
    led to the change, the bound is the largest budget that any answers would have led to. Open connections must be reopened.
    """
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.answers import escape_unprintable
    from dpsql.ledger.budget_state import AccountKey
    from dpsql.policy import load

    rules, recorded = load(policy), _read_recorded_budgets(target, change.ledger_key)
    analysts = {key.analyst for key in recorded if isinstance(key, AccountKey)}
    wanted = {
        AccountKey(key) if isinstance(key, str) else key: budget
        for key, budget in collect_budgets(rules, sorted(analysts)).items()
    }
    known = {key: wanted[key] for key in recorded if isinstance(key, AccountKey) and key in wanted}
    with change.open_ledger(target, recorded) as book:
        done = book.amend(known, by=change.author, reason=reason)
    for entry, before, after in done:
        whose = AccountKey(entry.table, entry.account_analyst).owner
        print(
            f"the budget of {escape_unprintable(whose)} was {before}; it is now {after}: entry {entry.id} of the ledger"
        )
    print("spent budget stays spent: the new budget bounds all answers together, earlier ones included")


def unlock(
    target: Target,
    table: LockedTable,
    *,
    reason: Reason,
    change: ChangeOptions,
) -> None:
    """Unlock a table that failures have locked. Find the cause first, since a failure may depend on the data."""
    from dpsql.ledger.budget_state import AccountKey
    from dpsql.policy.names import SHARED_ACCOUNT

    budgets = _read_recorded_budgets(target, change.ledger_key)
    names = {account.table for account in budgets if isinstance(account, AccountKey)}
    # A shared budget is locked as a whole, by whichever of its tables the owner names it.
    known = next((known for known in sorted(names) if known.lower() == table.lower()), table)
    name = SHARED_ACCOUNT if SHARED_ACCOUNT in names else known
    with change.open_ledger(target, budgets) as book:
        before = book.get_state(name).failures
        entry = book.unlock(name, by=change.author, reason=reason)
    times = "1 failure" if before == 1 else f"{before} failures"
    what = "all tables" if name == SHARED_ACCOUNT else f"the table {name}"
    print(f"unlocked {what} after {times}: entry {entry.id} of the ledger")


def give_back(
    target: Target,
    *,
    number: Number = None,
    change: ChangeOptions,
) -> None:
    """Close a reservation and return its unspent budget. Its session can no longer spend it."""
    from dpsql.policy.request.loss import format_rounded

    if number is None:
        raise typer.BadParameter("give the number of the reservation", param_hint="--reservation")
    budgets = _read_recorded_budgets(target, change.ledger_key)
    with change.open_ledger(target, budgets) as book:
        entries = book.close_reservation(number, by=change.author)
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
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(target, read_ledger_key(ledger_key))) as history:
        return dict(history.read_budgets().items())


# `dpsql receipt verify`.


receipt = typer.Typer(help="Verify the receipt of an answer against the ledger.", no_args_is_help=True)

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The receipt's file, or - for standard input.", show_default=False),
]
ChargedLedger = Annotated[
    str,
    typer.Option(
        "--ledger",
        "-l",
        metavar="FILE|URL",
        help="The ledger that was charged.",
        show_default=False,
    ),
]


@receipt.callback()
def _keep_command_name() -> None:
    """Keep `verify` a subcommand although it is the only one."""


@receipt.command("verify")
def verify_receipt(file: File, ledger: ChargedLedger, ledger_key: LedgerKey = None) -> None:
    """Verify that the ledger has the charges of a receipt."""
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader
    from dpsql.ledger.receipts import check_receipt, parse_receipt

    with closing(LedgerReader.open(ledger, read_ledger_key(ledger_key))) as history:
        checked = check_receipt(parse_receipt(_read_receipt_text(file)), history)
    for line in _describe_checked_receipt(checked):
        print(line)
    print(
        "not verified: that rows delivered with the receipt are the answer; the rest of the ledger (see ledger verify)"
    )


def _read_receipt_text(file: Path) -> str:
    try:
        return typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OperationalError(
            f"cannot read the receipt {file}", code="receipt_unavailable", hint="check the path"
        ) from None


def _describe_checked_receipt(checked: CheckedReceipt) -> Iterator[str]:
    """Yield lines that say which fields of the receipt are verified."""
    if checked.entries:
        yield f"the ledger has the charge: {_format_entries(checked.entries)}"
        yield "verified: every field not listed below; the charge has no other entry"
    elif checked.paying_entries:
        yield "nothing was charged: the answer follows from what was released before"
    else:
        yield "the receipt has no charge: the query was explained, or reads no private data"
    if checked.paying_entries:
        yield f"the ledger has the entries that paid for it: {_format_entries(checked.paying_entries)}"
    if checked.unverified_fields:
        yield f"not in the ledger, so not verified: {', '.join(checked.unverified_fields)}"


def _format_entries(entries: Sequence[Entry]) -> str:
    named = ", ".join(f"{entry.id} ({entry.table})" for entry in entries)
    return f"{'entry' if len(entries) == 1 else 'entries'} {named}"
