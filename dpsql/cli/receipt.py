"""`dpsql receipt verify`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.options import LedgerKey
from dpsql.errors import OperationalError, ProgrammingError

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
def _group() -> None:
    """Keeps `verify` a command of its own name."""


@receipt.command()
def verify(file: File, ledger: Target, ledger_key: LedgerKey = None) -> None:
    """Check that the ledger holds what a receipt says was charged."""
    from dpsql.accounting.history import History
    from dpsql.accounting.key import ledger_key as read_key
    from dpsql.accounting.receipts import check_receipt

    with closing(History.open(ledger, read_key(ledger_key))) as history:
        checked = check_receipt(_read(file), history)
    named = ", ".join(f"{entry.id} ({entry.table})" for entry in checked.entries)
    print(
        f"the ledger holds the charge: entry {named}"
        if len(checked.entries) == 1
        else f"the ledger holds the charge: entries {named}"
    )
    print(
        "shown: the query, its plan, who asked, when, the data's version, the policy, the loss; no other entry is of this charge"
    )
    if checked.unsaid:
        print(f"not in the ledger, so not shown: {', '.join(checked.unsaid)}")
    print(
        "not shown: that rows which came with the receipt are the answer; the rest of the ledger (ledger verify)"
    )


def _read(file: Path) -> object:
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OperationalError(
            f"the receipt {file} cannot be read", code="receipt_unavailable", hint="check its path"
        ) from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ProgrammingError(
            f"{file} is no receipt: it is not JSON",
            code="receipt_text",
            hint="write it with result.receipt.to_json()",
        ) from None
