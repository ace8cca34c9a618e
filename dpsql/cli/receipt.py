"""`dpsql receipt verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import LedgerKey
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from dpsql.ledger.protocol import Entry
    from dpsql.ledger.receipts import CheckedReceipt

receipt = typer.Typer(help="Hold an answer's receipt against the ledger.", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The receipt, or - for standard input.", show_default=False)
]
Target = Annotated[
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
    """Keeps `verify` a command of its own name."""


@receipt.command()
def verify(file: File, ledger: Target, ledger_key: LedgerKey = None) -> None:
    """Check that the ledger holds what a receipt says was charged."""
    from dpsql.ledger.key import read_ledger_key as read_key
    from dpsql.ledger.reader import LedgerReader
    from dpsql.ledger.receipts import check_receipt, parse_receipt

    with closing(LedgerReader.open(ledger, read_key(ledger_key))) as history:
        checked = check_receipt(parse_receipt(_read_receipt_text(file)), history)
    for line in _describe_checked_receipt(checked):
        print(line)
    print(
        "not shown: that rows which came with the receipt are the answer; the rest of the ledger (ledger verify)"
    )


def _read_receipt_text(file: Path) -> str:
    try:
        return typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OperationalError(
            f"the receipt {file} cannot be read", code="receipt_unavailable", hint="check its path"
        ) from None


def _describe_checked_receipt(checked: CheckedReceipt) -> Iterator[str]:
    """What is shown, and which fields are not."""
    if checked.entries:
        yield f"the ledger holds the charge: {_format_entries(checked.entries)}"
        yield "shown: every field that is not named below; no other entry is of this charge"
    elif checked.paying_entries:
        yield "nothing was charged: the answer follows from what was released before"
    else:
        yield "the receipt names no charge: the query was explained, or reads nothing private"
    if checked.paying_entries:
        yield f"the ledger holds what paid for it: {_format_entries(checked.paying_entries)}"
    if checked.unverified_fields:
        yield f"not in the ledger, so not shown: {', '.join(checked.unverified_fields)}"


def _format_entries(entries: Sequence[Entry]) -> str:
    named = ", ".join(f"{entry.id} ({entry.table})" for entry in entries)
    return f"{'entry' if len(entries) == 1 else 'entries'} {named}"
