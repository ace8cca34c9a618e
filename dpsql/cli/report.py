"""`dpsql report`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.ledger import Target
from dpsql.cli.options import LedgerKey
from dpsql.errors import OperationalError, ProgrammingError

Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="The page to write, or - for standard output.", show_default=False),
]


def report(target: Target, *, output: Output, ledger_key: LedgerKey = None) -> None:
    """Write what a ledger says as one page of HTML that needs no network: budgets over time, analysts, most expensive queries.

    It holds the texts of queries, as the ledger does, and no answer.
    """
    from dpsql.ledger.key import read_ledger_key as key_of
    from dpsql.ledger.reader import LedgerReader
    from dpsql.report.page import render_page
    from dpsql.report.summary import LedgerSummary

    if str(output) != "-" and output.suffix.lower() not in {".html", ".htm"}:
        raise ProgrammingError(
            f"{output} is not the name of a page", code="argument", hint="--output report.html, or --output -"
        )
    with closing(LedgerReader.open(target, key_of(ledger_key))) as history:
        text = render_page(LedgerSummary.from_ledger(history), Path(history.where).name)
    if str(output) == "-":
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        said = error.strerror
    else:
        print(f"written to {output}")
        return
    raise OperationalError(f"{output} cannot be written: {said}", code="not_written")
