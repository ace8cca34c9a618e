"""`dpsql simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from dpsql.backends.simulated_rows import SimulationSize

PolicyArgument = Annotated[
    Path, typer.Argument(help="The policy that declares the tables.", show_default=False)
]
Units = Annotated[int, typer.Option("--units", min=1, max=10**8, help="The number of privacy units.")]
Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        max=10**9,
        help="The number of rows of each table in which a unit may have several. [default: three per unit]",
        show_default=False,
    ),
]
Variant = Annotated[
    int,
    typer.Option("--seed", min=0, help="The seed of the generator; the same seed generates the same rows."),
]
Public = Annotated[
    Path | None,
    typer.Option(
        "--public",
        metavar="DATABASE",
        help="A DuckDB file whose public tables are copied; its private tables are not read.",
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
    """Generate a database from a policy alone, for development, demos and tests without a budget.

    Values are drawn uniformly from declared bounds and values; ids follow the declared links. No private data is read. A copy of
    the policy is written beside the database, so that its queries have a ledger of their own.
    """
    from dpsql.backends.simulated_rows import write_simulated_file
    from dpsql.policy import load
    from dpsql.policy.other_data import rewrite_policy_text

    rules, beside = load(policy), output.with_suffix(".yaml")
    if beside.exists():
        raise OperationalError(
            f"{beside} already exists", code="file_exists", hint="choose another file with --output"
        )
    text = rewrite_policy_text(policy, f"generated rows, {output.name}")
    missing = write_simulated_file(rules, make_size(units, rows, variant), output, public)
    made = [name for name in rules.tables if name not in missing]
    beside.write_text(text, encoding="utf-8")
    print(f"wrote generated rows of {', '.join(made)} to {output}; its policy is {beside}")
    if missing:
        print(
            f"left out, since they declare no columns: {', '.join(missing)}; copy them with --public DATABASE",
            file=sys.stderr,
        )


def make_size(units: int, rows: int | None, variant: int) -> SimulationSize:
    """Return the size of the generated data from the options."""
    from dpsql.backends.simulated_rows import SimulationSize

    return SimulationSize(units, 3 * units if rows is None else rows, variant)
