"""`dpsql init`: write the skeleton of a policy from a schema, or ask the owner for each decision."""

from __future__ import annotations

import re
import sys
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeVar
from urllib.parse import urlsplit

import typer
from pydantic_core import PydanticCustomError

from dpsql.api.opening import is_chdb, is_spark
from dpsql.errors import Error, OperationalError, PolicyError, ProgrammingError
from dpsql.interfaces.cli.connections import get_default_policy_path, parse_location
from dpsql.interfaces.cli.options import Database
from dpsql.interfaces.shell.answers import escape_unprintable
from dpsql.policy.domain import COLUMN_TYPES, NUMBER, ColumnType, parse_bounds, parse_values
from dpsql.policy.engine_types import find_policy_type
from dpsql.policy.names import find_name_problem, normalize_name
from dpsql.policy.readings import ReadingProposal, TableReading
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.skeleton import (
    ColumnDecision,
    Decisions,
    Schema,
    TableDecision,
    TableKeys,
    find_declarable_type,
    iterate_declarable_columns,
)

if TYPE_CHECKING:
    from dpsql.backends.clickhouse.connection import ClickHouseBackend
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.backends.postgres.connection import PostgresBackend


# `dpsql init --interactive`: ask the owner for each decision in order, and explain it.


T = TypeVar("T")
_DAY = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_UNIT = """
1. The privacy unit. Answers hide whether any one unit is in the data, with all of its rows in all tables.
   Usually a person: patient, customer, household, employee. A visit or an order protects far less."""
_TABLES = """
2. The tables. For each table: to which unit does a row belong? Analysts cannot see a table that you leave out.
   A column's name   the column holds the unit's id
   row               each row is a unit of its own
   public            nobody in the table needs protection, as in a list of regions
   link              a row belongs to the unit of the row that a foreign key references
   none              leave the table out"""
_ROWS = """   How many rows may one unit contribute at most? Noise grows with this number, and further rows are left out of
   answers. Choose what nearly all units stay below, not the largest number that ever occurred."""
_COLUMNS = """
3. The columns. Values outside the bounds are clamped to them, and a column without bounds cannot be summed. A list of
   values is public, so that groups by the column are known in advance. Take both from public knowledge, never from the
   data; dpsql suggest proposes them from the data, at a charge.
   0, 100   bounds, or values separated by commas     empty   neither     none   leave the column out"""
_TYPES = """   The types were guessed from some rows of the files: integer, double, varchar (text), date, timestamp, time, boolean, uuid.
   Numbers that nobody adds up, such as codes, are varchar."""
_EPSILON = """
4. The budget: the privacy loss of all answers together. ε of about 1 is strong, above 10 weak: all answers together change the
   odds of any guess about one unit by a factor of at most e^ε. Several tables whose rows belong to units with ids share one
   budget (shared: true); otherwise each table has a budget of its own, and those of a unit's tables add up."""
_DELTA = """   δ bounds the probability that this fails. Choose it far below 1 / (number of units), such as 1e-7. 0 is strict, and
   requires that groups are listed."""


def ask_decisions(
    schema: Schema,
    keys: Mapping[str, TableKeys],
    stated: Decisions,
    constrained: Mapping[str, Mapping[str, object]],
    *,
    types_are_guessed: bool,
) -> Decisions:
    """Ask for the owner's decisions about the tables of a schema; `stated` decisions are the defaults.

    Columns in `constrained` have bounds or values from constraints, and are not asked for. Types are asked for if they are guessed.
    """
    typer.echo(_UNIT)
    unit = _ask_until_valid("privacy unit", stated.privacy_unit, _parse_unit)
    typer.echo(_TABLES)
    tables: dict[str, TableDecision] = {}
    for name, columns in schema.items():
        before = stated.tables.get(normalize_name(name), TableDecision())
        tables[normalize_name(name)] = _ask_table(name, columns, keys.get(name, TableKeys()), before)
    typer.echo(_COLUMNS)
    is_explained = False
    for name, columns in schema.items():
        own = tables[normalize_name(name)]
        if own.public or own.omitted or find_name_problem(name, "table", dots=False):
            continue
        asked = dict(own.columns)
        for column, kind in iterate_declarable_columns(columns):
            known = find_declarable_type(kind)
            place = normalize_name(column)
            if (
                known is None
                or place in constrained.get(name, {})
                or place == normalize_name(own.unit or "")
                or _is_key(own, place)
            ):
                continue
            decided = asked.get(place, ColumnDecision())
            if types_are_guessed:
                if not is_explained:
                    typer.echo(_TYPES)
                is_explained, decided = True, _ask_type(f"{name}.{column}", known, decided)
            asked[place] = decided
            if decided.omitted or (decided.type or known) in ("boolean", "blob", "time", "uuid"):
                continue
            asked[place] = _ask_column(f"{name}.{column}", decided.type or known, decided)
        tables[normalize_name(name)] = replace(own, columns=asked)
    typer.echo(_EPSILON)
    epsilon = _ask_until_valid("epsilon", stated.epsilon or "1", _parse_epsilon)
    typer.echo(_DELTA)
    delta = _ask_until_valid("delta", stated.delta or "1e-7", _parse_delta)
    return Decisions(unit, epsilon, delta, tables)


def _ask_table(
    name: str, columns: Sequence[tuple[str, str]], keys: TableKeys, before: TableDecision
) -> TableDecision:
    if find_name_problem(name, "table", dots=False):
        return before  # the skeleton leaves it out, and says why
    typer.echo(
        f"\n   {escape_unprintable(name)}: {escape_unprintable(', '.join(column for column, _ in columns))}"
    )
    for key in keys.foreign:
        typer.echo(f"   foreign key: {escape_unprintable(str(key))}")
    if keys.primary:
        typer.echo(f"   primary key: {escape_unprintable(', '.join(keys.primary))}")
    names = {normalize_name(column): column for column, _ in columns}
    proposed = "link" if before.link else before.unit or ("public" if before.public else None)
    if proposed is None and len(keys.primary) == 1:
        proposed = keys.primary[0]
    found = _ask_until_valid(
        f"{name}: unit of a row",
        proposed,
        lambda text: _parse_row_owner(normalize_name(text), names, keys, before),
    )
    if found.public or found.omitted or found.unit == "row":
        return found
    typer.echo(_ROWS)
    alone = found.unit is not None and keys.primary == (found.unit,)
    default = found.rows_per_unit or (1 if alone else None)
    rows = _ask_until_valid(
        f"{name}: rows per unit", None if default is None else str(default), _parse_row_count
    )
    return replace(found, rows_per_unit=rows)


def _parse_row_owner(
    word: str, names: Mapping[str, str], keys: TableKeys, before: TableDecision
) -> TableDecision:
    """Return the table's decision with the unit of its rows. Raises ValueError for an invalid answer."""
    if word in names:
        return replace(before, unit=names[word], link=None, public=False)
    match word:
        case "row":
            return replace(before, unit="row", link=None, public=False, rows_per_unit=None)
        case "public":
            return replace(before, public=True)
        case "none":
            return replace(before, omitted=True)
        case "link" if before.link is not None or keys.foreign:
            return replace(before, unit=None, link=before.link or keys.foreign[0])
    raise ValueError(
        "enter a column of the table, row, public, link (if the table has a foreign key) or none"
    )


def _is_key(table: TableDecision, column: str) -> bool:
    return table.link is not None and column in map(normalize_name, table.link.columns)


def _ask_column(name: str, kind: ColumnType, before: ColumnDecision) -> ColumnDecision:
    def parse_domain(text: str) -> ColumnDecision:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            return replace(before, bounds=None, values=None)
        if parts == ["none"]:
            return replace(before, omitted=True)
        try:
            if kind == "varchar" and not (len(parts) == 2 and all(map(NUMBER.fullmatch, parts))):
                return replace(before, values=parse_values([part.strip('"') for part in parts], kind))
            if kind == "integer" and len(parts) > 2:
                return replace(before, values=parse_values([_parse_number(part) for part in parts], kind))
            found = kind
            if kind == "varchar":
                found = "integer" if all(part.lstrip("+-").isdecimal() for part in parts) else "double"
                typer.echo(
                    f'   read as bounds of numbers, so the type is {found}; write texts in quotes: "{parts[0]}", "{parts[1]}"'
                )
            values = [_parse_bound(part, found, last=place == 1) for place, part in enumerate(parts)]
            parse_bounds(values, found)
        except PydanticCustomError as error:
            raise ValueError(error.message()) from None
        return replace(before, bounds=(values[0], values[1]), type=found if found != kind else before.type)

    proposed = before.values or before.bounds or ()
    return _ask_until_valid(f"{name} ({kind})", ", ".join(map(str, proposed)), parse_domain)


def _ask_type(name: str, kind: ColumnType, before: ColumnDecision) -> ColumnDecision:
    def parse_type(text: str) -> ColumnDecision:
        if text == "none":
            return replace(before, omitted=True)
        found = find_policy_type(text)
        if found is None:
            raise ValueError(f"enter one of {', '.join(COLUMN_TYPES)}, or none to leave the column out")
        return replace(before, type=found.name)

    return _ask_until_valid(f"{name}: type", kind, parse_type)


def _parse_bound(text: str, kind: ColumnType, *, last: bool) -> object:
    """Return a bound as a policy holds it: a day also as 31.12.2025, as a month or as a year, whose `last` day is taken.

    >>> _parse_bound("31.12.2025", "date", last=True), _parse_bound("2020", "date", last=False), _parse_bound("2024-02", "date", last=True)
    ('2025-12-31', '2020-01-01', '2024-02-29')
    """
    if kind not in ("date", "timestamp"):
        return _parse_number(text)
    if day := _DAY.fullmatch(text):
        return f"{day[3]}-{int(day[2]):02}-{int(day[1]):02}"
    if part := _MONTH.fullmatch(text):
        month = int(part[2] or (12 if last else 1))
        if not (int(part[1]) >= 1 and 1 <= month <= 12):
            return text
        end = monthrange(int(part[1]), month)[1] if last else 1
        return f"{part[1]}-{month:02}-{end:02}" + " 23:59:59" * (last and kind == "timestamp")
    return text


def _parse_number(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return text


def _ask_until_valid(what: str, default: str | None, read: Callable[[str], T]) -> T:
    """Ask until the answer is valid, and print what is wrong with an invalid one."""
    while True:
        text = typer.prompt(
            f"   {escape_unprintable(what)}", default=default, show_default=bool(default)
        ).strip()
        try:
            return read(text)
        except (ValueError, Error) as error:
            typer.echo(f"   {error}")


def _parse_unit(text: str) -> str:
    if not text or "TODO" in text:
        raise ValueError("enter one word for the privacy unit, such as patient")
    return text


def _parse_row_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise ValueError("enter a whole number of at least 1")
    return int(text)


def _parse_epsilon(text: str) -> str:
    parse_amount(text, "epsilon")
    return text


def _parse_delta(text: str) -> str:
    if text == "0":
        return text
    if parse_amount(text, "delta") >= Fraction(1):
        raise ValueError("delta must be below 1")
    return text


# The command.


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
    from dpsql.policy import skeleton

    place = parse_location(database)
    target = output or _make_policy_path(place)
    if interactive and str(target) != "-" and target.exists():  # before anything is asked
        raise _make_exists_error(target)
    decisions, stated_keys = (Decisions(), {}) if metadata is None else _read_metadata(metadata)
    found = _FoundSchema.from_database(place, stated_keys)
    unknown = [table for table in decisions.tables if table not in map(normalize_name, found.schema)]
    sources = ["the schema alone: types, keys, NOT NULL and CHECK"]
    if metadata is not None:
        sources = ["the schema: types, keys, NOT NULL and CHECK", escape_unprintable(metadata.name)]
    if interactive:
        sources = [source.replace(" alone", "") for source in sources] + ["the owner's answers"]
        decisions = ask_decisions(
            found.schema,
            found.keys,
            decisions,
            found.list_constrained_columns(),
            types_are_guessed=found.types_are_guessed,
        )
    text = skeleton(
        found.schema,
        place.resolve().name if isinstance(place, Path) else target.stem,
        found.required,
        found.checks,
        keys=found.keys,
        decisions=decisions,
        sources="; ".join(sources),
        types_are_guessed=found.types_are_guessed,
        readings=found.readings,
    )
    if str(target) == "-":
        print(text, end="")
        return
    _write_policy(target, text)
    if metadata is not None and unknown and len(unknown) == len(decisions.tables):
        print(f"{database} has none of the tables in {metadata}", file=sys.stderr)
    todo = "run" if interactive else "replace each TODO in it, then run"
    data = place if isinstance(place, Path) else "URL"
    print(f"wrote {target}: {todo} dpsql check {target} {data}")
    for line in _list_capacities(text):
        print(line)


def _list_capacities(text: str) -> list[str]:
    """Return what the budgets of a finished policy hold; nothing while decisions are missing."""
    from dpsql.engine.budgets import describe_capacities
    from dpsql.policy import load

    try:
        return list(describe_capacities(load(text)))
    except PolicyError:
        return []


@dataclass(frozen=True, slots=True)
class _FoundSchema:
    """The tables of a database with their keys, and the columns that NOT NULL and CHECK constrain."""

    schema: Schema
    keys: Mapping[str, TableKeys]
    required: Mapping[str, AbstractSet[str]]
    checks: Mapping[str, Sequence[str]]
    types_are_guessed: bool
    readings: Mapping[str, ReadingProposal]

    @classmethod
    def from_database(cls, place: Path | str, stated_keys: Mapping[str, TableKeys]) -> Self:
        """Read the schema; `stated_keys` are those of tables without keys in the database, by normalized name."""
        from dpsql.backends.duckdb.files import find_file_tables
        from dpsql.backends.duckdb.guesses import guess_tables

        suggested, readings = guess_tables(find_file_tables(place)) if isinstance(place, Path) else ({}, {})
        with closing(_open_backend(place, readings)) as backend:
            schema = backend.read_schema() | suggested
            origins = {table: backend.find_origin(table) for table in schema}
            keys = backend.read_table_keys()
        keys |= {
            table: stated_keys[normalize_name(table)]
            for table in schema
            if normalize_name(table) in stated_keys and table not in keys
        }
        return cls(
            schema,
            keys,
            {table: found.not_null_columns for table, found in origins.items() if found is not None},
            {table: found.check_constraints for table, found in origins.items() if found is not None},
            bool(suggested),
            readings,
        )

    def list_constrained_columns(self) -> dict[str, dict[str, object]]:
        """Return the columns of each table whose CHECK constraints give bounds or values."""
        from dpsql.policy.check_constraints import parse_constraints

        found = {table: parse_constraints(self.checks.get(table, ())) for table in self.schema}
        return {
            table: {name: each for name, each in columns.items() if each.values or each.low or each.high}
            for table, columns in found.items()
        }


def _write_policy(target: Path, text: str) -> None:
    """Write a new file. Raises OperationalError if it exists (`file_exists`) or cannot be written (`not_written`)."""
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _make_exists_error(target) from None
    except OSError as error:
        raise OperationalError(f"cannot write {target}: {error.strerror}", code="not_written") from None


def _make_policy_path(place: Path | str) -> Path:
    """Return the path of the policy beside the data; for a URL, in this folder with the database's name."""
    if isinstance(place, Path):
        return get_default_policy_path(place)
    name = Path(urlsplit(place).path).name
    return Path(f"{name if re.fullmatch(_PLAIN, name) else 'database'}.yaml")


def _open_backend(
    place: Path | str, readings: Mapping[str, ReadingProposal]
) -> DuckDBBackend | PostgresBackend | ClickHouseBackend:
    """Open the database whose schema is read. Raises ProgrammingError for Spark, whose catalog has no keys."""
    from dpsql.backends.clickhouse.connection import ClickHouseBackend
    from dpsql.backends.postgres.connection import PostgresBackend

    if isinstance(place, Path):
        try:
            return _open_files(place, readings, ragged=False)
        except OperationalError as error:
            if error.code != "source" or not readings:
                raise
        return _open_files(place, readings, ragged=True)  # dpsql check names the line, and what to write
    if is_chdb(place):
        return ClickHouseBackend(place)
    if is_spark(place):
        raise ProgrammingError(
            "dpsql init does not support Spark, whose catalog has no keys",
            code="no_database",
            hint="run dpsql init on a Parquet file or folder with the same columns",
        )
    return PostgresBackend(place, warns=False)


def _open_files(place: Path, readings: Mapping[str, ReadingProposal], *, ragged: bool) -> DuckDBBackend:
    from dpsql.backends.duckdb import DuckDBBackend

    files = {table: found.file.model_copy(update={"ragged": ragged}) for table, found in readings.items()}
    return DuckDBBackend(
        place, readings={normalize_name(table): TableReading(file=file) for table, file in files.items()}
    )


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
