"""Register all commands, each from its own file, in one application."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from dpsql import __version__
from dpsql.interfaces.cli.budget import account, budget
from dpsql.interfaces.cli.check import check
from dpsql.interfaces.cli.engines import engines
from dpsql.interfaces.cli.init import init
from dpsql.interfaces.cli.ledger import amend, give_back, ledger, receipt, reset, unlock
from dpsql.interfaces.cli.mcp import mcp
from dpsql.interfaces.cli.options import with_option_groups
from dpsql.interfaces.cli.plan import demo, plan, simulate
from dpsql.interfaces.cli.publish import publish, report, run
from dpsql.interfaces.cli.queries import explain, query, shell
from dpsql.interfaces.cli.serve import serve
from dpsql.interfaces.cli.suggest import suggest
from dpsql.interfaces.cli.users import audit, users

app = typer.Typer(
    name="dpsql",
    help="Ordinary SQL over private data, answered with differential privacy.",
    no_args_is_help=True,
    # A pretty traceback shows local variables, which may be private values.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    shell,
    query,
    explain,
    check,
    plan,
    simulate,
    init,
    suggest,
    publish,
    run,
    budget,
    report,
    account,
    demo,
    serve,
    mcp,
):
    app.command()(with_option_groups(command))
for change in (reset, amend, unlock):
    ledger.command()(with_option_groups(change))
ledger.command("return")(with_option_groups(give_back))
app.add_typer(audit, name="audit", context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(engines, name="engines", context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(ledger, name="ledger", context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(receipt, name="receipt", context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(users, name="users", context_settings={"help_option_names": ["-h", "--help"]})


def _show_version(wanted: bool) -> None:
    if wanted:
        python = ".".join(map(str, sys.version_info[:3]))
        engines = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "sqlglot"))
        print(f"dpsql {__version__} ({engines}; Python {python})")
        raise typer.Exit


@app.callback()
def define_common_options(
    show: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the versions of dpsql and its engines, and exit.",
        ),
    ] = False,
) -> None:
    """Ordinary SQL over private data, answered with differential privacy."""
