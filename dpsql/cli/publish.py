"""`dpsql publish`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import AnchorFile, LedgerKey, NewLedger, beside, opened
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.connection import Connection
    from dpsql.publish.publication import Publication
    from dpsql.publish.release import Refused
    from dpsql.result import Result

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The publication: its queries by name, in YAML.", show_default=False),
]
Folder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The folder to write, made where it is missing.", show_default=False),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Say what all of it costs, and whether it fits; ask and charge nothing."),
]


def publish(
    file: File,
    *,
    output: Folder = None,
    check: Check = False,
    ledger_key: LedgerKey = None,
    anchor: AnchorFile = None,
    new_ledger: NewLedger = False,
) -> None:
    """Ask the queries of a publication, and write tables, intervals, receipts, charts and a note on methods.

    Nothing is charged unless every query can be asked and all fit into the budget. Publishing again is free: it writes the
    same numbers, and goes on where it was interrupted.
    """
    from dpsql.ledger.open import MEMORY, is_url
    from dpsql.publish.publication import load

    publication = load(file)
    policy = file.parent / publication.policy
    database = policy if publication.database is None else beside(file.parent, publication.database)
    ledger = publication.ledger
    if ledger is None:
        ledger = str(policy.with_suffix(".ledger"))
    elif not is_url(ledger):
        ledger = str(file.parent / ledger)
    book = ledger_for(ledger, check=check)
    with closing(
        opened(
            database,
            policy,
            book,
            publication.analyst,
            ledger_key,
            anchor=None if book == MEMORY else anchor,
            new_ledger=new_ledger,
        )
    ) as connection:
        carry_out(connection, publication, output, check=check)


def ledger_for(ledger: str, *, check: bool) -> str:
    """The ledger to open: one that is not there yet is not made by looking at it."""
    from dpsql.ledger.open import MEMORY, is_url

    return MEMORY if check and not is_url(ledger) and not Path(ledger).is_file() else ledger


def carry_out(connection: Connection, publication: Publication, output: Path | None, *, check: bool) -> None:
    """Asks all, or says what it costs. Raises typer.Exit with 3 where a query is refused, 4 where all do not fit."""
    from dpsql.publish.release import forecast, release, require_budget

    if output is None and not check:
        raise ProgrammingError(
            "no folder given to write to",
            code="argument",
            hint="--output FOLDER, or --check for the cost alone",
        )
    planned, refused = forecast(connection, publication)
    if planned is None:
        _say(refused)
        raise typer.Exit(3)
    if check:
        print(planned)
        raise typer.Exit(0 if planned.fits else 4)
    require_budget(planned)
    folder = output or Path()
    for name, result in release(connection, publication, folder):
        print(f"{folder / name}.csv: {_said(result)}", flush=True)
    print(folder / "methods.md")


def _said(result: Result) -> str:
    rows = "1 row" if len(result) == 1 else f"{len(result):,} rows"
    return rows if result.receipt.entries else f"{rows}, nothing was charged"


def _say(refused: Sequence[Refused]) -> None:
    """Says of each refused query why, in one go."""
    from dpsql.shell.failures import message, styled
    from dpsql.shell.view import View

    view = View.of(sys.stderr)
    for each in refused:
        print(f"{each.name}:", view.show(styled(message(each.error))), "", sep="\n", file=sys.stderr)
