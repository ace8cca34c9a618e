"""`dpsql init`."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from dpsql.cli.options import Database, get_default_policy_path, parse_location
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.remote.address import is_spark
from dpsql.shell.view import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.postgres.connection import PostgresBackend
    from dpsql.policy.decisions import Decisions, TableKeys

_PLAIN = r"[\w.-]+"
"""A name that a file may have."""
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

    Bounds and values come from CHECK constraints and ENUM types only, since those of the data would reveal it; of a CSV or JSON
    file some rows are read, to guess the types of columns. Keys are proposed as units and links. An existing file is never overwritten.
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
    sources = ["the schema alone, its types, keys, NOT NULL and CHECK"]
    if metadata is not None:
        sources = ["the schema, its types, keys, NOT NULL and CHECK", escape_unprintable(metadata.name)]
    if interactive:
        from dpsql.cli.interview import ask_decisions

        sources = [source.replace(" alone", "") for source in sources] + ["its owner's answers"]
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
        print(f"no table of {metadata} is in {database}", file=sys.stderr)
    todo = "run" if interactive else "replace each TODO in it, then run"
    data = place if isinstance(place, Path) else "URL"
    print(f"wrote {target}: {todo} dpsql check {target} {data}")


def _make_policy_path(place: Path | str) -> Path:
    """The policy beside the data; of a database elsewhere, in this folder, with the database's name."""
    if isinstance(place, Path):
        return get_default_policy_path(place)
    name = Path(urlsplit(place).path).name
    return Path(f"{name if re.fullmatch(_PLAIN, name) else 'database'}.yaml")


def _open_backend(place: Path | str) -> DuckDBBackend | PostgresBackend:
    """The schema's database. Raises ProgrammingError for one whose catalogue says nothing of keys."""
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.postgres.connection import PostgresBackend

    if isinstance(place, Path):
        return DuckDBBackend(place)
    if is_spark(place):
        raise ProgrammingError(
            "the catalogue of Spark has no keys that a policy could begin with",
            code="no_database",
            hint="dpsql init on a Parquet file or folder of the same columns",
        )
    return PostgresBackend(place, warns=False)


def _make_exists_error(target: Path) -> OperationalError:
    return OperationalError(
        f"{target} exists already", code="file_exists", hint="--output FILE names another"
    )


def _read_metadata(file: Path) -> tuple[Decisions, Mapping[str, TableKeys]]:
    from dpsql.policy.metadata import parse_metadata

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"{file} cannot be read as text", code="metadata", hint="check its name"
        ) from None
    return parse_metadata(text, file.name)
