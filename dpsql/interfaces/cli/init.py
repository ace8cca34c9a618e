"""`dpsql init`."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from dpsql.api.remote.address import is_spark
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.options import Database, get_default_policy_path, parse_location
from dpsql.interfaces.shell.view import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.postgres.connection import PostgresBackend
    from dpsql.policy.decisions import Decisions, TableKeys

_PLAIN = r"[\w.-]+"
"""A database name that is safe as a file name."""
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The file to write, or - for standard output. [default: the database's name with the ending .yaml]",
        show_default=False,
    ),
]
Metadata = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Take decisions from this file: a schema.yml of dbt, or metadata of SmartNoise SQL.",
        show_default=False,
    ),
]
Interactive = Annotated[
    bool, typer.Option("--interactive", "-i", help="Ask for each decision in order, and explain it.")
]


def init(
    database: Database, output: Output = None, metadata: Metadata = None, *, interactive: Interactive = False
) -> None:
    """Write a policy template from the database's schema.

    Bounds and values come from CHECK constraints and ENUM types only, since bounds taken from the data would reveal it. Some rows
    of a CSV or JSON file are read to guess column types. Keys are proposed as units and links. An existing file is never
    overwritten.
    """
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import normalize_name, skeleton
    from dpsql.policy.check_constraints import parse_constraints
    from dpsql.policy.decisions import Decisions

    place = parse_location(database)
    target = output or _make_policy_path(place)
    if interactive and str(target) != "-" and target.exists():  # before anything is asked
        raise _make_exists_error(target)
    decisions, stated = (Decisions(), {}) if metadata is None else _read_metadata(metadata)
    with closing(_open_backend(place)) as backend:
        schema = backend.read_schema()
        suggested = backend.suggest_columns() if isinstance(backend, DuckDBBackend) else {}
        schema |= suggested
        origins = {table: backend.find_origin(table) for table in schema}
        keys = backend.read_table_keys()
    required = {table: found.not_null_columns for table, found in origins.items() if found is not None}
    checks = {table: found.check_constraints for table, found in origins.items() if found is not None}
    keys |= {
        table: stated[normalize_name(table)]
        for table in schema
        if normalize_name(table) in stated and table not in keys
    }
    unknown = [table for table in decisions.tables if table not in map(normalize_name, schema)]
    sources = ["the schema alone: types, keys, NOT NULL and CHECK"]
    if metadata is not None:
        sources = ["the schema: types, keys, NOT NULL and CHECK", escape_unprintable(metadata.name)]
    if interactive:
        from dpsql.interfaces.cli.interview import ask_decisions

        sources = [source.replace(" alone", "") for source in sources] + ["the owner's answers"]
        constraints = {table: parse_constraints(checks.get(table, ())) for table in schema}
        bounded = {
            table: {name: each for name, each in said.items() if each.values or each.low or each.high}
            for table, said in constraints.items()
        }
        decisions = ask_decisions(schema, keys, decisions, bounded)
    text = skeleton(
        schema,
        place.resolve().name if isinstance(place, Path) else target.stem,
        required,
        checks,
        keys=keys,
        decisions=decisions,
        sources="; ".join(sources),
        types_are_guessed=bool(suggested),
    )
    if str(target) == "-":
        print(text, end="")
        return
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _make_exists_error(target) from None
    except OSError as error:
        raise OperationalError(f"cannot write {target}: {error.strerror}", code="not_written") from None
    if metadata is not None and unknown and len(unknown) == len(decisions.tables):
        print(f"{database} has none of the tables in {metadata}", file=sys.stderr)
    todo = "run" if interactive else "replace each TODO in it, then run"
    data = place if isinstance(place, Path) else "URL"
    print(f"wrote {target}: {todo} dpsql check {target} {data}")


def _make_policy_path(place: Path | str) -> Path:
    """Return the path of the policy beside the data; for a URL, in this folder with the database's name."""
    if isinstance(place, Path):
        return get_default_policy_path(place)
    name = Path(urlsplit(place).path).name
    return Path(f"{name if re.fullmatch(_PLAIN, name) else 'database'}.yaml")


def _open_backend(place: Path | str) -> DuckDBBackend | PostgresBackend:
    """Open the database whose schema is read. Raises ProgrammingError for Spark, whose catalog has no keys."""
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.postgres.connection import PostgresBackend

    if isinstance(place, Path):
        return DuckDBBackend(place)
    if is_spark(place):
        raise ProgrammingError(
            "dpsql init does not support Spark, whose catalog has no keys",
            code="no_database",
            hint="run dpsql init on a Parquet file or folder with the same columns",
        )
    return PostgresBackend(place, warns=False)


def _make_exists_error(target: Path) -> OperationalError:
    return OperationalError(
        f"{target} already exists", code="file_exists", hint="choose another file with --output FILE"
    )


def _read_metadata(file: Path) -> tuple[Decisions, Mapping[str, TableKeys]]:
    from dpsql.policy.metadata import parse_metadata

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"cannot read {file} as UTF-8 text", code="metadata", hint="check the file name"
        ) from None
    return parse_metadata(text, file.name)
