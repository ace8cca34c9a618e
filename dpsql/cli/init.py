"""`dpsql init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.options import Database
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.shell.view import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.policy.decisions import Decisions, TableKeys

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Where to write it, or - for standard output. [default: the database's name with the ending .yaml]",
        show_default=False,
    ),
]
Metadata = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="What is decided elsewhere: a schema.yml of dbt, or metadata of SmartNoise SQL.",
        show_default=False,
    ),
]
Interactive = Annotated[
    bool, typer.Option("--interactive", "-i", help="Ask for each decision, in order, and say what it means.")
]


def init(
    database: Database, output: Output = None, metadata: Metadata = None, *, interactive: Interactive = False
) -> None:
    """Write a policy to fill in, from the schema alone.

    No value is read, so no bounds are guessed but those that CHECK constraints state; of a CSV file some lines are read, for
    the types of its columns. Keys are proposed as units and links. An existing file is never overwritten.
    """
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import fold, skeleton
    from dpsql.policy.check_constraints import checked
    from dpsql.policy.decisions import Decisions

    target = output or database.with_suffix(".yaml")
    if interactive and str(target) != "-" and target.exists():  # before anything is asked
        raise _is_there(target)
    decisions, stated = (Decisions(), {}) if metadata is None else _read(metadata)
    backend = DuckDBBackend(database)
    try:
        schema = backend.schema() | backend.suggested()
        origins = {table: backend.origin(table) for table in schema}
        keys = backend.keys()
    finally:
        backend.close()
    required = {table: found.required for table, found in origins.items() if found is not None}
    checks = {table: found.checks for table, found in origins.items() if found is not None}
    keys |= {table: stated[fold(table)] for table in schema if fold(table) in stated and table not in keys}
    unknown = [table for table in decisions.tables if table not in map(fold, schema)]
    sources = ["the schema alone, its types, keys, NOT NULL and CHECK"]
    if metadata is not None:
        sources = ["the schema, its types, keys, NOT NULL and CHECK", printable(metadata.name)]
    if interactive:
        from dpsql.cli.interview import interview

        sources = [source.replace(" alone", "") for source in sources] + ["its owner's answers"]
        constraints = {table: checked(checks.get(table, ())) for table in schema}
        bounded = {
            table: {name: each for name, each in said.items() if each.values or each.low or each.high}
            for table, said in constraints.items()
        }
        decisions = interview(schema, keys, decisions, bounded)
    text = skeleton(
        schema,
        database.name,
        required,
        checks,
        keys=keys,
        decisions=decisions,
        sources="; ".join(sources),
    )
    if str(target) == "-":
        print(text, end="")
        return
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _is_there(target) from None
    except OSError as error:
        raise OperationalError(f"cannot write {target}: {error.strerror}", code="not_written") from None
    if metadata is not None and unknown and len(unknown) == len(decisions.tables):
        print(f"no table of {metadata} is in {database}", file=sys.stderr)
    todo = "run" if interactive else "replace each TODO in it, then run"
    print(f"wrote {target}: {todo} dpsql check {target} {database}")


def _is_there(target: Path) -> OperationalError:
    return OperationalError(
        f"{target} exists already", code="file_exists", hint="--output FILE names another"
    )


def _read(file: Path) -> tuple[Decisions, Mapping[str, TableKeys]]:
    from dpsql.policy.metadata import metadata

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"{file} cannot be read as text", code="metadata", hint="check its name"
        ) from None
    return metadata(text, file.name)
