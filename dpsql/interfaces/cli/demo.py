"""`dpsql demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="DIRECTORY",
        help="Keep the database, its policy and the ledger in this directory. [default: delete them]",
        show_default=False,
    ),
]


def demo(save: Save = None) -> None:
    """Run five example queries on real data.

    Each private answer is shown beside the true one. The data is the RAND Health Insurance Experiment, which is public, so this
    demo, unlike any other command, may show true answers.
    """
    from dpsql.interfaces.demo import run_tour
    from dpsql.interfaces.shell.answers import View

    run_tour(View.from_stream(sys.stdout), print, save)
