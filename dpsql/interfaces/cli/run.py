"""`dpsql run`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.interfaces.cli.options import (
    Analyst,
    AnchorPath,
    Dialect,
    Epsilon,
    LedgerFile,
    LedgerKey,
    NewLedger,
    PolicyFile,
    connect_to_database,
    find_default_epsilon,
    parse_location,
    resolve_policy_path,
)
from dpsql.interfaces.cli.publish import Check, Folder, resolve_ledger, run_publication
from dpsql.interfaces.cli.query_files import read_queries

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
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorPath = None,
    new_ledger: NewLedger = False,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    dialect: Dialect = "duckdb",
    check: Check = False,
) -> None:
    """Run all queries of files, or none: if one is refused, or the budget does not suffice for all, nothing is charged.

    The answers are written as by `dpsql publish` and named after the files; a file's second query is NAME_2.
    """
    from dpsql.interfaces.publish.publication import build_publication
    from dpsql.ledger.open import MEMORY
    from dpsql.policy import load

    data = parse_location(database)
    rules = resolve_policy_path(data, policy)
    loss = epsilon or find_default_epsilon(load(rules))
    named = dict[str, str]()
    for text in (each for file in queries for each in read_queries(file)):
        stem = text.file.stem if text.number == 1 else f"{text.file.stem}_{text.number}"
        named[_make_unique_name(stem, named)] = text.sql
    publication = build_publication(
        ", ".join(file.stem for file in queries), str(rules), named, loss, dialect
    )
    book = resolve_ledger(ledger or str(rules.with_suffix(".ledger")), check=check)
    with closing(
        connect_to_database(
            data,
            policy,
            book,
            analyst,
            ledger_key,
            anchor=None if book == MEMORY else anchor,
            new_ledger=new_ledger,
        )
    ) as connection:
        run_publication(connection, publication, output, check=check)


def _make_unique_name(stem: str, taken: dict[str, str]) -> str:
    """Return a file name that no other query has."""
    names = {name.casefold() for name in taken}
    number, name = 1, stem
    while name.casefold() in names:
        number += 1
        name = f"{stem}_{number}"
    return name
