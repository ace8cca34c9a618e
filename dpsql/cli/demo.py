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
        help="Keep the database, its policy and the ledger in this directory. [default: throw them away]",
        show_default=False,
    ),
]


def demo(save: Save = None) -> None:
    """Ask five questions of real data, for a first look.

    Each private answer is shown beside the true one. The data is the RAND Health Insurance Experiment, which is public: that is
    why its true answers can be shown here, and nowhere else.
    """
    from dpsql.demo.tour import run_tour
    from dpsql.shell.view import View

    run_tour(View.from_stream(sys.stdout), print, save)
