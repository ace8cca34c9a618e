"""`dpsql init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsql.cli.options import Database
from dpsql.errors import OperationalError

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Where to write it, or - for standard output. [default: the database's name with the ending .yaml]",
        show_default=False,
    ),
]


def init(database: Database, output: Output = None) -> None:
    """Write a policy to fill in, from the schema alone.

    No value is read, so no bounds are guessed but those that CHECK constraints state; of a CSV file some lines are read, for
    the types of its columns. An existing file is never overwritten.
    """
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import skeleton

    backend = DuckDBBackend(database)
    try:
        schema = backend.schema() | backend.suggested()
        origins = {table: backend.origin(table) for table in schema}
        required = {table: found.required for table, found in origins.items() if found is not None}
        checks = {table: found.checks for table, found in origins.items() if found is not None}
        text = skeleton(schema, database.name, required, checks)
    finally:
        backend.close()
    target = output or database.with_suffix(".yaml")
    if str(target) == "-":
        print(text, end="")
        return
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OperationalError(
            f"{target} exists already", code="file_exists", hint="--output FILE names another"
        ) from None
    except OSError as error:
        raise OperationalError(f"cannot write {target}: {error.strerror}", code="not_written") from None
    print(f"wrote {target}: replace each TODO in it, then run dpsql check {target} {database}")
