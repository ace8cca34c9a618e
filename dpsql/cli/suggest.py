"""`dpsql suggest`."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsql.cli.options import (
    Analyst,
    AnchorFile,
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
from dpsql.cli.publish import ledger_for
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.policy.names import fold
from dpsql.shell.view import printable

if TYPE_CHECKING:
    from dpsql.backends.catalog import Schema
    from dpsql.policy import Policy
    from dpsql.result import Result
    from dpsql.suggest.questions import Proposal, Question
    from dpsql.suggest.text import Keys

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The private table of the policy.", show_default=False)
]
Database = Annotated[
    str | None,
    typer.Argument(
        metavar="[DATABASE|URL]",
        help="The data, or the URL of a database. [default: what the policy, of --policy or DPSQL_POLICY, names as sources]",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="A column to propose bounds or values for; may be repeated. [default: those without both]",
        show_default=False,
    ),
]
Listed = Annotated[
    list[str] | None,
    typer.Option(
        "--values",
        metavar="COLUMN",
        help="A column of numbers or days whose values are to be listed, in place of bounds; may be repeated.",
        show_default=False,
    ),
]
Rows = Annotated[
    bool,
    typer.Option(
        "--rows-per-unit",
        help="How many rows of a unit count; columns are asked of only where they are named.",
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
    "bounds": "are quantiles 1% and 99%, in round numbers",
    "values": "are those that enough units have",
    "rows_per_unit": "is what 99% of the units have at most, in round numbers; of others so many rows count",
}
Check = Annotated[bool, typer.Option("--check", help="Say what it would cost, and charge nothing.")]


def suggest(
    table: TableName,
    database: Database = None,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorFile = None,
    new_ledger: NewLedger = False,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    column: Columns = None,
    values: Listed = None,
    rows_per_unit: Rows = False,
    output: Output = None,
    check: Check = False,
) -> None:
    """Propose bounds and values for a table's columns, and rows_per_unit, from the data, by answers that are charged as any other.

    Bounds are the 1% and 99% quantiles in round numbers, values those that enough units have, rows_per_unit is the 99% quantile
    of what units have. The loss is split evenly among the questions; all are checked against the budget before the first is asked. A column needs a public range to begin with:
    bounds that you declared, however wide, or those of its type. The proposed policy and the receipts are written into new
    files, and the changes are shown.
    """
    from dpsql.connection import Connection
    from dpsql.engine.pipeline import Engine
    from dpsql.policy import load
    from dpsql.publish.publication import of_texts
    from dpsql.publish.release import forecast, require_budget
    from dpsql.suggest.questions import proposal, questions
    from dpsql.suggest.text import with_keys

    data = None if database is None else place_of(database)
    rules = policy_of(data, policy) if data is not None else policy or _named_policy()
    target = output or rules.with_suffix(".suggested.yaml")
    receipts = target.with_suffix(".receipts.json")
    declared = load(rules)
    loss = epsilon or default_epsilon(declared)
    if loss is None:
        raise ProgrammingError(
            "no privacy loss given: pass --epsilon", code="epsilon_missing", hint="--epsilon 0.1"
        )
    if not check:
        _require_free(target, receipts)
    with closing(
        opened(
            data or rules,
            rules,
            ledger_for(ledger or str(rules.with_suffix(".ledger")), check=check),
            analyst,
            ledger_key,
            anchor=None if check else anchor,
            new_ledger=new_ledger,
        )
    ) as connection:
        engine = connection.engine
        types = dict(_columns_of(engine.backend.schema(), table))
        wide, asked = questions(declared, table, types, column or (), values or (), rows=rows_per_unit)
        if not asked:
            raise ProgrammingError(
                f"each column of {table} has bounds or values, or needs none",
                code="nothing_to_suggest",
                hint="--column NAME proposes narrower ones, within those that are declared; --rows-per-unit fewer rows",
            )
        wide, text = load(wide), rules.read_text(encoding="utf-8-sig")
        with_keys(
            text, table, _samples(wide, table, asked)
        )  # whether the text can be edited, before a charge
        share = Fraction(loss) / len(asked)
        asking = Connection(
            Engine(wide, engine.backend, engine.ledger, engine.analyst, engine.entropy), share
        )
        named = {f"c{number}": each.sql for number, each in enumerate(asked)}
        publication = of_texts(f"proposals for {table}", str(rules), named, share, "duckdb")
        planned, refused = forecast(asking, publication)
        if planned is None:
            raise refused[0].error
        if check:
            print(planned)
            raise typer.Exit(0 if planned.fits else 4)
        require_budget(planned)
        answers = [(each, asking.query(each.sql, epsilon=share)) for each in asked]
    found = [(each, result, proposal(each, wide, table, result)) for each, result in answers]
    _propose(rules, table, found, text, target)


def _propose(
    rules: Path,
    table: str,
    found: Sequence[tuple[Question, Result, Proposal | None]],
    text: str,
    target: Path,
) -> None:
    """Writes the receipts and the policy with what is proposed, and says so."""
    from dpsql.suggest.text import with_keys

    receipts = target.with_suffix(".receipts.json")
    columns = {each.column: {each.key: each.found} for _, _, each in found if each is not None}
    _write(
        receipts,
        json.dumps([json.loads(result.receipt.to_json()) for _, result, _ in found], indent=2) + "\n",
    )
    proposed = with_keys(text, table, columns, _remarks(table, found, rules, receipts)) if columns else text
    for each, result, what in found:
        if what is None:
            print(f"nothing is proposed for {_place(table, each)}: {_why_not(each)}")
        elif each.key != "values":
            print(f"{_place(table, each)}: {_answer(each, result)}")
    if not columns:
        print(f"wrote {receipts}")
        return
    _write(target, proposed)
    print(_difference(text, proposed, rules.name, target.name), end="")
    print(f"wrote {target} and {receipts}")
    print(f"look at it, then let it take the place of {rules}: under that name its ledger goes on")


def _answer(question: Question, result: Result) -> str:
    """The released quantiles behind a proposal, with their 95% intervals as far as they have some."""
    from dpsql.rendering import text

    (row,), (ends,) = result.rows, result.intervals(0.95)
    said = [
        text(value) + ("" if end is None else f" [{text(end[0])}, {text(end[1])}]")
        for value, end in zip(row, ends, strict=True)
    ]
    which = "quantiles 1% and 99%" if question.key == "bounds" else "quantile 99%"
    without = ""
    if None in ends:
        without = ", without ±: the ends of their intervals would be charged as further quantiles"
    return f"{which}: {' and '.join(said)}{without}"


def _samples(wide: Policy, table: str, asked: Sequence[Question]) -> Keys:
    """For each question the bounds that it is asked under, or a value that the type has: what an answer may propose."""
    from dpsql.suggest.questions import SAMPLES

    declared = wide.tables[next(name for name in wide.tables if fold(name) == fold(table))]

    def sample(each: Question) -> Sequence[Any] | int:
        if each.column is None:
            return 1
        spec = declared.columns[each.column]
        return SAMPLES[spec.type] if each.key == "values" else spec.bounds or ()

    return {each.column: {each.key: sample(each)} for each in asked}


def _remarks(
    table: str, found: Sequence[tuple[Question, Result, Proposal | None]], rules: Path, receipts: Path
) -> Iterator[str]:
    """What a reader of the proposed policy should know of where its numbers are from."""
    yield f"Proposed by dpsql suggest for {rules.name}, on {datetime.now(UTC):%Y-%m-%d}, from charged answers alone; receipts: {receipts.name}."
    if any(what is not None and each.key == "values" for each, _, what in found):
        yield "  Values that few units have are missing: add those that everyone knows; what is not listed counts as NULL."
    for each, result, what in found:
        if what is not None:
            entries = ", ".join(str(entry["id"]) for entry in result.receipt.entries) or "stored"
            yield f"  {_place(table, each)}: {each.key} {_SAID[each.key]}; entry of the ledger: {entries}"


def _place(table: str, question: Question) -> str:
    return table if question.column is None else f"{table}.{question.column}"


def _why_not(question: Question) -> str:
    from dpsql.suggest.questions import MOST_LISTED

    if question.key != "values":
        return "no value was found"
    return f"no value is held by enough units, or more than {MOST_LISTED} are; without values it can be grouped and counted"


def _difference(before: str, after: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, n=0, lineterm="")
    return "".join(f"{printable(line)}\n" for line in lines)


def _columns_of(schema: Schema, table: str) -> Sequence[tuple[str, str]]:
    return next((columns for name, columns in schema.items() if fold(name) == fold(table)), ())


def _require_free(*files: Path) -> None:
    """Raises OperationalError where a file is there already, before anything is charged."""
    for file in files:
        if file.exists():
            raise OperationalError(
                f"{file} exists already",
                code="file_exists",
                hint="--output FILE names another; nothing was charged",
            )


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OperationalError(
            f"cannot write {path}: {error.strerror}",
            code="not_written",
            hint="the answers are stored: the same again is free",
        ) from None


def _named_policy() -> Path:
    named = os.environ.get("DPSQL_POLICY")
    if not named:
        raise ProgrammingError(
            "no database given, and the policy names no source of a table",
            code="no_database",
            hint="dpsql suggest TABLE name.duckdb --epsilon 0.1",
        )
    return Path(named)
