"""`dpsql run`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.options import (
    Analyst,
    AnchorFile,
    Dialect,
    Epsilon,
    LedgerFile,
    LedgerKey,
    NewLedger,
    PolicyFile,
    default_epsilon,
    opened,
    place_of,
    policy_of,
)
from dpsql.cli.publish import Check, Folder, carry_out, ledger_for
from dpsql.cli.query_files import texts

Queries = Annotated[list[Path], typer.Argument(help="Files of queries.", show_default=False)]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        metavar="DATABASE|URL",
        help="The data, the URL of a database, or a policy that says where they are.",
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
    anchor: AnchorFile = None,
    new_ledger: NewLedger = False,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    dialect: Dialect = "duckdb",
    check: Check = False,
) -> None:
    """Ask all queries of files, or none: where one is refused, or the budget does not suffice for all, nothing is charged.

    The answers are written as `dpsql publish` writes them, named after the files; a file's second query is NAME_2.
    """
    from dpsql.ledger.open import MEMORY
    from dpsql.policy import load
    from dpsql.publish.publication import of_texts

    data = place_of(database)
    rules = policy_of(data, policy)
    loss = epsilon or default_epsilon(load(rules))
    named = dict[str, str]()
    for text in (each for file in queries for each in texts(file)):
        stem = text.file.stem if text.number == 1 else f"{text.file.stem}_{text.number}"
        named[_free(stem, named)] = text.sql
    publication = of_texts(", ".join(file.stem for file in queries), str(rules), named, loss, dialect)
    book = ledger_for(ledger or str(rules.with_suffix(".ledger")), check=check)
    with closing(
        opened(
            data,
            policy,
            book,
            analyst,
            ledger_key,
            anchor=None if book == MEMORY else anchor,
            new_ledger=new_ledger,
        )
    ) as connection:
        carry_out(connection, publication, output, check=check)


def _free(stem: str, taken: dict[str, str]) -> str:
    """A name for files that no other query has."""
    names = {name.casefold() for name in taken}
    number, name = 1, stem
    while name.casefold() in names:
        number += 1
        name = f"{stem}_{number}"
    return name
