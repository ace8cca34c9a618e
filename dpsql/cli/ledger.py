"""`dpsql ledger verify`, `export`, `show` and `head`: a ledger without its policy."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import AnchorFile, LedgerKey
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.ledger import Budget, Entry, Head
    from dpsql.ledger.protocol import AccountKey
    from dpsql.ledger.reader import LedgerReader

ledger = typer.Typer(help="Check, show and export a ledger; no policy is needed.", no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="The ledger: a file, or postgresql://user@host/name.", show_default=False
    ),
]
AnchoredHead = Annotated[
    str | None,
    typer.Option(
        "--head", help="A head that the ledger had, as `ledger head` printed it.", show_default=False
    ),
]


class Format(StrEnum):
    """How a ledger is exported."""

    jsonl = "jsonl"
    csv = "csv"


FormatName = Annotated[Format, typer.Option("--format", "-f", help="One entry a line, as JSON or as CSV.")]
TableName = Annotated[str | None, typer.Option("--table", help="Only this table's.", show_default=False)]
Who = Annotated[
    str | None, typer.Option("--analyst", help="Only what this analyst asked.", show_default=False)
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="Only entries of this kind: charge, failure, unlock, reset, amend, reserve, draw or return.",
        show_default=False,
    ),
]
Last = Annotated[int, typer.Option("--last", min=1, help="At most so many, the newest.")]


@ledger.command()
def verify(
    target: Target, anchor: AnchorFile = None, head: AnchoredHead = None, ledger_key: LedgerKey = None
) -> None:
    """Check every entry, from the first to the last."""
    anchored = anchored_head(anchor, head)
    with opened(target, ledger_key) as history:
        chain = history.verify(anchored)
    under = " under its key" if ledger_key else ""
    print(f"an unbroken chain{under}: entries {chain.head.entries:,}, accounts {len(chain.balances):,}")
    if held := {number for balance in chain.balances.values() for number in balance.reservations}:
        print(f"reservations that are open: {', '.join(map(str, sorted(held)))}")
    if anchored is None:
        print("that none is missing at the end shows beside a head that was kept: --anchor FILE, or --head")
    else:
        print(f"the head of {anchored.entries:,} entries that was kept is part of it")
    print(f"head: {chain.head_with(chain.stored)}")


@ledger.command()
def export(target: Target, format_: FormatName = Format.jsonl, ledger_key: LedgerKey = None) -> None:
    """Write all entries to standard output, each checked against its digest."""
    with opened(target, ledger_key) as history:
        if format_ is Format.jsonl:
            for row in history.rows():
                print(json.dumps(row, ensure_ascii=False))
            return
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(history.columns)
        for row in history.rows():
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
    from dpsql.shell.view import View

    with opened(target, ledger_key) as history:
        entries = history.last(last, table=table, analyst=analyst, kind=kind)
        budgets = history.budgets()
    if not entries:
        chosen = table or analyst or kind
        print("the ledger has no such entries" if chosen else "the ledger has no entries")
        return
    print(View.of(sys.stdout).show(_table(entries, budgets)))


@ledger.command()
def head(target: Target, ledger_key: LedgerKey = None) -> None:
    """Print where the ledger ends: to be kept where nobody who can write the ledger can change it."""
    with opened(target, ledger_key) as history:
        print(history.head())


def opened(target: str, key: Path | None) -> closing[LedgerReader]:
    """A reader of a ledger, with the key that a file holds."""
    from dpsql.ledger.key import ledger_key
    from dpsql.ledger.reader import LedgerReader

    return closing(LedgerReader.open(target, ledger_key(key)))


def anchored_head(anchor: Path | None, head: str | None) -> Head | None:
    """The head that an anchor or an option names; None where neither is given."""
    from dpsql.ledger import Anchor
    from dpsql.ledger.protocol import Head

    if anchor is not None and head is not None:
        raise typer.BadParameter("--anchor and --head each name a head: give one")
    if head is not None:
        return Head.parse(head)
    if anchor is None:
        return None
    anchored = Anchor(anchor).head()
    if anchored is None:
        raise OperationalError(
            f"there is no anchor {anchor}", code="anchor_unavailable", hint="correct the path"
        )
    return anchored


def _table(entries: list[Entry], budgets: dict[AccountKey, Budget]) -> Table:
    from dpsql.accounting import accountant_named
    from dpsql.accounting.partitions.boxes import Box
    from dpsql.analysis.partitions.dimension import described
    from dpsql.ledger.protocol import AccountKey
    from dpsql.request.loss import rounded
    from dpsql.shell.view import table

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
        symbol = "?" if budget is None else accountant_named(budget.accountant).symbol
        costs = (entry.spend.loss_fraction, entry.spend.delta_fraction, entry.spent.loss_fraction)
        loss, delta, spent = (rounded(amount, 4, up=True) for amount in costs)
        rows.append(
            (
                f"{entry.id}",
                entry.at.strftime("%Y-%m-%d %H:%M:%S"),
                entry.analyst,
                entry.table,
                entry.account_analyst or "the table's",
                *(("all",) if parts and entry.box is None else ()),
                *(
                    " and ".join(described(*side) for side in Box.parse(box).sides)
                    for box in [entry.box]
                    if box
                ),
                entry.kind if entry.reservation is None else f"{entry.kind} {entry.reservation}",
                loss,
                symbol,
                delta,
                spent,
                rounded(entry.limit.loss_fraction, 4),
                " ".join(entry.query.split()),
            )
        )
    return table(heads, rows, right=(0, *(place + parts for place in (6, 8, 9, 10))))
