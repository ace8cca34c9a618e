"""`dpsql simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from dpsql.backends.simulated import SimulationSize

PolicyArgument = Annotated[
    Path, typer.Argument(help="The policy that declares the tables.", show_default=False)
]
Units = Annotated[int, typer.Option("--units", min=1, max=10**8, help="How many privacy units there are.")]
Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        max=10**9,
        help="Rows of each table in which a unit may have several. [default: three a unit]",
        show_default=False,
    ),
]
Variant = Annotated[int, typer.Option("--seed", min=0, help="The same seed makes the same rows.")]
Public = Annotated[
    Path | None,
    typer.Option(
        "--public",
        metavar="DATABASE",
        help="A DuckDB file whose public tables are copied; no private table of it is read.",
        show_default=False,
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The database to write.", show_default=False)]


def simulate(
    policy: PolicyArgument,
    *,
    output: Output,
    units: Units = 1000,
    rows: Rows = None,
    variant: Variant = 0,
    public: Public = None,
) -> None:
    """Make a database of invented rows from a policy alone, for developing, demos and tests without a budget.

    Values are drawn evenly from declared bounds and values; ids lead to units as the links say. Nothing private is read.
    The policy is written beside it under its name, so that queries of it have a ledger of their own.
    """
    from dpsql.backends.simulated import write_simulated_file
    from dpsql.policy import load
    from dpsql.policy.other_data import rewrite_policy_text

    rules, beside = load(policy), output.with_suffix(".yaml")
    if beside.exists():
        raise OperationalError(f"{beside} exists already", code="file_exists", hint="name another file")
    text = rewrite_policy_text(policy, f"invented rows, {output.name}")
    missing = write_simulated_file(rules, make_size(units, rows, variant), output, public)
    made = [name for name in rules.tables if name not in missing]
    beside.write_text(text, encoding="utf-8")
    print(f"{output} has invented rows of {', '.join(made)}; its policy is {beside}")
    if missing:
        print(
            f"left out, for no columns are declared: {', '.join(missing)}; --public DATABASE copies them",
            file=sys.stderr,
        )


def make_size(units: int, rows: int | None, variant: int) -> SimulationSize:
    """How much is made of what the options say."""
    from dpsql.backends.simulated import SimulationSize

    return SimulationSize(units, 3 * units if rows is None else rows, variant)
