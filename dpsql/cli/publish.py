"""`dpsql publish`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import LedgerKey, opened
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def publish(file: File, *, output: Folder = None, check: Check = False, ledger_key: LedgerKey = None) -> None:
    """Ask the queries of a publication, and write tables, intervals, receipts, charts and a note on methods.

    Nothing is charged unless every query can be asked and all fit into the budget. Publishing again is free: it writes the
    same numbers, and goes on where it was interrupted.
    """
    from dpsql.ledger.open import MEMORY, is_url
    from dpsql.publish.publication import load
    from dpsql.publish.release import forecast, release, require_budget

    publication = load(file)
    if output is None and not check:
        raise ProgrammingError(
            "no folder given to write to",
            code="argument",
            hint="--output FOLDER, or --check for the cost alone",
        )
    policy = file.parent / publication.policy
    database = policy if publication.database is None else file.parent / publication.database
    ledger = publication.ledger or str(policy.with_suffix(".ledger"))
    if not is_url(ledger):
        beside = file.parent / ledger if publication.ledger else Path(ledger)
        # A ledger that is not there yet is not made by looking at it.
        ledger = MEMORY if check and not beside.is_file() else str(beside)
    with closing(opened(database, policy, ledger, publication.analyst, ledger_key)) as connection:
        planned, refused = forecast(connection, publication)
        if planned is None:
            _say(file, refused)
            raise typer.Exit(1)
        if check:
            print(planned)
            raise typer.Exit(0 if planned.fits else 1)
        require_budget(planned)
        folder = output or Path()
        for name, result in release(connection, publication, folder):
            print(f"{folder / name}.csv: {_said(result)}", flush=True)
        print(folder / "methods.md")


def _said(result: Result) -> str:
    rows = "1 row" if len(result) == 1 else f"{len(result):,} rows"
    return rows if result.receipt.entries else f"{rows}, nothing was charged"


def _say(file: Path, refused: Sequence[Refused]) -> None:
    """Says of each refused query why, in one go."""
    from dpsql.shell.failures import message, styled
    from dpsql.shell.view import View

    view = View.of(sys.stderr)
    for each in refused:
        print(f"{file}, {each.name}:", view.show(styled(message(each.error))), "", sep="\n", file=sys.stderr)
