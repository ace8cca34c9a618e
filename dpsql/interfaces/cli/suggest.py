"""`dpsql suggest`."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.connections import (
    connect_to_database,
    find_default_epsilon,
    parse_location,
    resolve_policy_path,
    with_ledger,
)
from dpsql.interfaces.cli.options import ConnectionOptions, Epsilon
from dpsql.interfaces.shell.answers import escape_unprintable
from dpsql.policy.names import normalize_name

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.backends.analyst_schema import DatabaseSchema
    from dpsql.interfaces.suggest import Keys, Proposal, Question
    from dpsql.policy import Policy
    from dpsql.results.result import Result

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="A private table of the policy.", show_default=False)
]
Database = Annotated[
    str | None,
    typer.Argument(
        metavar="[DATABASE|URL]",
        help="The data, or the URL of a database. [default: the sources in the policy of --policy or DPSQL_POLICY]",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="A column to propose bounds or values for; may be repeated. [default: columns without bounds and values]",
        show_default=False,
    ),
]
Listed = Annotated[
    list[str] | None,
    typer.Option(
        "--values",
        metavar="COLUMN",
        help="A column of numbers or dates for which to propose values instead of bounds; may be repeated.",
        show_default=False,
    ),
]
Rows = Annotated[
    bool,
    typer.Option(
        "--rows-per-unit",
        help="Propose rows_per_unit; columns then need --column or --values.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The policy to write. [default: the policy's name with the ending .suggested.yaml]",
        show_default=False,
    ),
]
_SAID = {
    "bounds": "are the 1% and 99% quantiles, rounded",
    "values": "are the values that enough units have",
    "rows_per_unit": "is the 99% quantile of rows per unit, rounded; of other units, this number of rows counts",
}
Check = Annotated[bool, typer.Option("--check", help="Show the charge without running the queries.")]


@dataclass(frozen=True, slots=True)
class ProposalOptions:
    """The columns to propose bounds and values for, and whether to propose rows_per_unit."""

    column: Columns = None
    values: Listed = None
    rows_per_unit: Rows = False


@dataclass(frozen=True, slots=True)
class _ProposalTask:
    """The table to propose for, its policy with the policy's file and text, and the loss of all queries together."""

    table: str
    file: Path
    text: str
    policy: Policy
    loss: Fraction


def suggest(
    table: TableName,
    database: Database = None,
    *,
    options: ConnectionOptions,
    epsilon: Epsilon = None,
    wanted: ProposalOptions,
    output: Output = None,
    check: Check = False,
) -> None:
    """Propose bounds, values and rows_per_unit for a table from charged queries on the data.

    Bounds are the rounded 1% and 99% quantiles, values are those that enough units have, and rows_per_unit is the 99% quantile of
    rows per unit. The loss is split evenly among the queries; all are checked against the budget before the first runs. A column
    needs a public range to begin with: declared bounds, however wide, or the range of its type. The proposed policy and the
    receipts are written to new files, and the changes are shown.
    """
    from dpsql.policy import load

    data = None if database is None else parse_location(database)
    if data is not None:
        rules = resolve_policy_path(data, options.policy)
    else:
        rules = options.policy or _require_policy_variable()
    target = output or rules.with_suffix(".suggested.yaml")
    declared = load(rules)
    loss = epsilon or find_default_epsilon(declared)
    if loss is None:
        raise ProgrammingError(
            "no privacy loss given: pass --epsilon", code="epsilon_missing", hint="--epsilon 0.1"
        )
    if not check:
        _require_new_files(target, target.with_suffix(".receipts.json"))
    options = with_ledger(options, rules, check=check)
    if check:
        options = replace(options, anchor=None)
    task = _ProposalTask(table, rules, rules.read_text(encoding="utf-8-sig"), declared, Fraction(loss))
    with connect_to_database(data or rules, options) as connection:
        found = _ask_questions(connection, task, wanted, check=check)
    _write_proposals(task, found, target)


def _ask_questions(
    connection: Connection, task: _ProposalTask, wanted: ProposalOptions, *, check: bool
) -> list[tuple[Question, Result, Proposal | None]]:
    """Charge and answer the queries that propose, after all of them fit the budget.

    Raises ProgrammingError (`nothing_to_suggest`) if there is none, and typer.Exit after a `check`, which charges nothing.
    """
    from dpsql.api.connection import Connection as Queries
    from dpsql.interfaces.publish import build_publication, forecast_publication, require_budget
    from dpsql.interfaces.suggest import build_questions, find_proposal, with_keys
    from dpsql.policy import load

    engine, table = connection.engine, task.table
    types = dict(_list_columns(engine.backend.read_schema(), table))
    wide, asked = build_questions(
        task.policy, table, types, wanted.column or (), wanted.values or (), rows=wanted.rows_per_unit
    )
    if not asked:
        raise ProgrammingError(
            f"every column of {table} already has bounds or values, or needs none",
            code="nothing_to_suggest",
            hint="add --column NAME to propose narrower bounds or values, or --rows-per-unit to propose fewer rows",
        )
    wide = load(wide)
    # Before any charge, check that the text can be edited.
    with_keys(task.text, table, _build_sample_keys(wide, table, asked))
    share = task.loss / len(asked)
    asking = Queries(replace(engine, policy=wide), share)
    named = {f"c{number}": each.sql for number, each in enumerate(asked)}
    publication = build_publication(f"proposals for {table}", str(task.file), named, share, "duckdb")
    planned, refused = forecast_publication(asking, publication)
    if planned is None:
        raise refused[0].error
    if check:
        print(planned)
        raise typer.Exit(0 if planned.fits else 4)
    require_budget(planned)
    answers = [(each, asking.query(each.sql, epsilon=share)) for each in asked]
    return [(each, result, find_proposal(each, wide, table, result)) for each, result in answers]


def _write_proposals(
    task: _ProposalTask, found: Sequence[tuple[Question, Result, Proposal | None]], target: Path
) -> None:
    """Write the receipts and the proposed policy, and print the changes."""
    from dpsql.interfaces.suggest import with_keys

    table, rules, text = task.table, task.file, task.text
    receipts = target.with_suffix(".receipts.json")
    columns = {each.column: {each.key: each.found} for _, _, each in found if each is not None}
    _write_new_file(
        receipts,
        json.dumps([json.loads(result.receipt.to_json()) for _, result, _ in found], indent=2) + "\n",
    )
    proposed = (
        with_keys(text, table, columns, _iterate_remarks(table, found, rules, receipts)) if columns else text
    )
    for each, result, what in found:
        if what is None:
            print(f"no proposal for {_format_column_name(table, each)}: {_explain_no_proposal(each)}")
        elif each.key != "values":
            print(f"{_format_column_name(table, each)}: {_format_quantiles(each, result)}")
    if not columns:
        print(f"wrote {receipts}")
        return
    _write_new_file(target, proposed)
    print(_format_difference(text, proposed, rules.name, target.name), end="")
    print(f"wrote {target} and {receipts}")
    print(f"review it, then replace {rules} with it; under that name it keeps the ledger")


def _format_quantiles(question: Question, result: Result) -> str:
    """Format the released quantiles behind a proposal, with their 95% intervals if they have any."""
    from dpsql.results.rendering import format_value

    (row,), (ends,) = result.rows, result.intervals(0.95)
    said = [
        format_value(value) + ("" if end is None else f" [{format_value(end[0])}, {format_value(end[1])}]")
        for value, end in zip(row, ends, strict=True)
    ]
    which = "1% and 99% quantiles" if question.key == "bounds" else "99% quantile"
    without = ""
    if None in ends:
        without = ", without intervals: their ends would be charged as further quantiles"
    return f"{which}: {' and '.join(said)}{without}"


def _build_sample_keys(wide: Policy, table: str, asked: Sequence[Question]) -> Keys:
    """Return a sample proposal for each query: its bounds, or values of the column's type."""
    from dpsql.interfaces.suggest import SAMPLES

    declared = wide.tables[
        next(name for name in wide.tables if normalize_name(name) == normalize_name(table))
    ]

    def get_sample(each: Question) -> Sequence[Any] | int:
        if each.column is None:
            return 1
        spec = declared.columns[each.column]
        return SAMPLES[spec.type] if each.key == "values" else spec.bounds or ()

    return {each.column: {each.key: get_sample(each)} for each in asked}


def _iterate_remarks(
    table: str, found: Sequence[tuple[Question, Result, Proposal | None]], rules: Path, receipts: Path
) -> Iterator[str]:
    """Yield comments for the proposed policy that say where its numbers come from."""
    yield f"Proposed by dpsql suggest for {rules.name} on {datetime.now(UTC):%Y-%m-%d}, from charged answers only; receipts: {receipts.name}."
    if any(what is not None and each.key == "values" for each, _, what in found):
        yield "  Values that few units have are missing: add those that everyone knows; what is not listed counts as NULL."
    for each, result, what in found:
        if what is not None:
            entries = ", ".join(str(entry["id"]) for entry in result.receipt.entries) or "stored"
            yield f"  {_format_column_name(table, each)}: {each.key} {_SAID[each.key]}; entry of the ledger: {entries}"


def _format_column_name(table: str, question: Question) -> str:
    return table if question.column is None else f"{table}.{question.column}"


def _explain_no_proposal(question: Question) -> str:
    from dpsql.interfaces.suggest import MOST_LISTED

    if question.key != "values":
        return "no value was found"
    return f"no value occurs in enough units, or more than {MOST_LISTED} do; the column can be grouped and counted without values"


def _format_difference(before: str, after: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, n=0, lineterm="")
    return "".join(f"{escape_unprintable(line)}\n" for line in lines)


def _list_columns(schema: DatabaseSchema, table: str) -> Sequence[tuple[str, str]]:
    return next(
        (columns for name, columns in schema.items() if normalize_name(name) == normalize_name(table)), ()
    )


def _require_new_files(*files: Path) -> None:
    """Raise OperationalError if a file already exists, before anything is charged."""
    for file in files:
        if file.exists():
            raise OperationalError(
                f"{file} already exists",
                code="file_exists",
                hint="choose another file with --output FILE; nothing was charged",
            )


def _write_new_file(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OperationalError(
            f"cannot write {path}: {error.strerror}",
            code="not_written",
            hint="run the command again with another file; the stored answers are free",
        ) from None


def _require_policy_variable() -> Path:
    named = os.environ.get("DPSQL_POLICY")
    if not named:
        raise ProgrammingError(
            "no database given, and no policy that has the sources of its tables",
            code="no_database",
            hint="name the database: dpsql suggest TABLE name.duckdb --epsilon 0.1",
        )
    return Path(named)
