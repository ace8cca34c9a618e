"""Register all commands, each from its own file, in one application."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from dpsql import __version__
from dpsql.cli.account import account
from dpsql.cli.audit import audit
from dpsql.cli.budget import budget
from dpsql.cli.check import check
from dpsql.cli.demo import demo
from dpsql.cli.explain import explain
from dpsql.cli.init import init
from dpsql.cli.ledger import ledger
from dpsql.cli.owner_actions import amend, give_back, reset, unlock
from dpsql.cli.plan import plan
from dpsql.cli.publish import publish
from dpsql.cli.query import query
from dpsql.cli.receipt import receipt
from dpsql.cli.report import report
from dpsql.cli.run import run
from dpsql.cli.serve import serve
from dpsql.cli.shell import shell
from dpsql.cli.simulate import simulate
from dpsql.cli.suggest import suggest
from dpsql.cli.users import users

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
):
    app.command()(command)
ledger.command()(reset)
ledger.command()(amend)
ledger.command()(unlock)
ledger.command("return")(give_back)
app.add_typer(audit, name="audit", context_settings={"help_option_names": ["-h", "--help"]})
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
