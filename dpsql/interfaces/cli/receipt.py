"""`dpsql receipt verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError
from dpsql.interfaces.cli.options import LedgerKey

if TYPE_CHECKING:
    from dpsql.ledger import Entry
    from dpsql.ledger.receipts import CheckedReceipt

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
    from dpsql.ledger.digest import read_ledger_key as read_key
    from dpsql.ledger.reader import LedgerReader
    from dpsql.ledger.receipts import check_receipt, parse_receipt

    with closing(LedgerReader.open(ledger, read_key(ledger_key))) as history:
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
