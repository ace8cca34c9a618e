"""`dpsql publish`, `dpsql run` and `dpsql report`: many answers at once, and the report of a ledger."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.connections import (
    connect_to_database,
    find_default_epsilon,
    parse_location,
    resolve_location,
    resolve_policy_path,
    with_ledger,
)
from dpsql.interfaces.cli.ledger import Target
from dpsql.interfaces.cli.options import AnchorPath, ConnectionOptions, Dialect, Epsilon, LedgerKey, NewLedger
from dpsql.interfaces.cli.queries import read_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.api.connection import Connection
    from dpsql.interfaces.publish import Publication, RefusedQuery
    from dpsql.results.result import Result


File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The publication: named queries, in YAML.", show_default=False),
]
Folder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The folder to write; it is created if missing.", show_default=False),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Show the total charge and whether it fits into the budget; run and charge nothing."
    ),
]


def publish(
    file: File,
    *,
    output: Folder = None,
    check: Check = False,
    ledger_key: LedgerKey = None,
    anchor: AnchorPath = None,
    new_ledger: NewLedger = False,
) -> None:
    """Run the queries of a publication, and write tables, intervals, receipts, charts and a note on methods.

    Nothing is charged unless every query is valid and all fit into the budget. Publishing again is free: it writes the same
    numbers, and continues an interrupted run.
    """
    from dpsql.interfaces.publish import load_publication
    from dpsql.ledger.open import is_url

    publication = load_publication(file)
    policy = file.parent / publication.policy
    database = policy if publication.database is None else resolve_location(file.parent, publication.database)
    ledger = publication.ledger
    if ledger is not None and not is_url(ledger):
        ledger = str(file.parent / ledger)
    options = ConnectionOptions(policy, ledger, ledger_key, anchor, new_ledger, publication.analyst)
    with connect_to_database(database, with_ledger(options, policy, check=check)) as connection:
        run_publication(connection, publication, output, check=check)


def run_publication(
    connection: Connection, publication: Publication, output: Path | None, *, check: bool
) -> None:
    """Run all queries, or show their charge. Raises typer.Exit with 3 if a query is refused, 4 if they do not fit."""
    from dpsql.interfaces.publish import forecast_publication, publish_tables, require_budget

    if output is None and not check:
        raise ProgrammingError(
            "no output folder given",
            code="argument",
            hint="add --output FOLDER, or --check to see only the charge",
        )
    planned, refused = forecast_publication(connection, publication)
    if planned is None:
        _report_refused_queries(refused)
        raise typer.Exit(3)
    if check:
        print(planned)
        raise typer.Exit(0 if planned.fits else 4)
    require_budget(planned)
    folder = output or Path()
    for name, result in publish_tables(connection, publication, folder):
        print(f"{folder / name}.csv: {_describe_result(result)}", flush=True)
    print(folder / "methods.md")


def _describe_result(result: Result) -> str:
    rows = "1 row" if len(result) == 1 else f"{len(result):,} rows"
    return rows if result.receipt.entries else f"{rows}, nothing was charged"


def _report_refused_queries(refused: Sequence[RefusedQuery]) -> None:
    """Print the error of each refused query."""
    from dpsql.interfaces.shell.answers import format_error, print_error

    for each in refused:
        print(f"{each.name}:", file=sys.stderr)
        print_error(format_error(each.error) + "\n")


# `dpsql run`.


Queries = Annotated[list[Path], typer.Argument(help="Files with queries.", show_default=False)]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        metavar="DATABASE|URL",
        help="The data, the URL of a database, or a policy with the sources of its tables.",
        show_default=False,
    ),
]


def run(
    queries: Queries,
    *,
    database: DatabaseOption,
    output: Folder = None,
    options: ConnectionOptions,
    epsilon: Epsilon = None,
    dialect: Dialect = "duckdb",
    check: Check = False,
) -> None:
    """Run all queries of files, or none: if one is refused, or the budget does not suffice for all, nothing is charged.

    The answers are written as by `dpsql publish` and named after the files; a file's second query is NAME_2.
    """
    from dpsql.interfaces.publish import build_publication
    from dpsql.policy import load

    data = parse_location(database)
    rules = resolve_policy_path(data, options.policy)
    loss = epsilon or find_default_epsilon(load(rules))
    named = dict[str, str]()
    for text in (each for file in queries for each in read_queries(file)):
        stem = text.file.stem if text.number == 1 else f"{text.file.stem}_{text.number}"
        named[_make_unique_name(stem, named)] = text.sql
    publication = build_publication(
        ", ".join(file.stem for file in queries), str(rules), named, loss, dialect
    )
    with connect_to_database(data, with_ledger(options, rules, check=check)) as connection:
        run_publication(connection, publication, output, check=check)


def _make_unique_name(stem: str, taken: dict[str, str]) -> str:
    """Return a file name that no other query has."""
    names = {name.casefold() for name in taken}
    number, name = 1, stem
    while name.casefold() in names:
        number += 1
        name = f"{stem}_{number}"
    return name


# `dpsql report`.


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
    from dpsql.interfaces.report import LedgerSummary, render_page
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    if str(output) != "-" and output.suffix.lower() not in {".html", ".htm"}:
        raise ProgrammingError(
            f"the report is an HTML page, but {output} does not end in .html",
            code="argument",
            hint="use --output report.html, or --output -",
        )
    with closing(LedgerReader.open(target, read_ledger_key(ledger_key))) as history:
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
