"""`dpsql report`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.ledger import Target
from dpsql.interfaces.cli.options import LedgerKey

Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", help="The HTML file to write, or - for standard output.", show_default=False
    ),
]


def report(target: Target, *, output: Output, ledger_key: LedgerKey = None) -> None:
    """Write a report of a ledger as one self-contained HTML page: budgets over time, analysts, most expensive queries.

    The page contains the texts of queries, as the ledger does, but no answers.
    """
    from dpsql.interfaces.report.page import render_page
    from dpsql.interfaces.report.summary import LedgerSummary
    from dpsql.ledger.key import read_ledger_key as key_of
    from dpsql.ledger.reader import LedgerReader

    if str(output) != "-" and output.suffix.lower() not in {".html", ".htm"}:
        raise ProgrammingError(
            f"the report is an HTML page, but {output} does not end in .html",
            code="argument",
            hint="use --output report.html, or --output -",
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
        print(f"wrote {output}")
        return
    raise OperationalError(f"cannot write {output}: {said}", code="not_written")
