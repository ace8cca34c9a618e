"""Publications: read named queries from a YAML file, charge them, and write their tables with a note on methods."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, ValidationError

from dpsql.errors import BudgetExhausted, DataError, Error, OperationalError, ProgrammingError
from dpsql.interfaces.shell.answers import AnswerFormat, View, build_arrow_table, format_answer
from dpsql.policy.fields import Delta, Epsilon, Model
from dpsql.policy.problem import Problem, make_policy_error, make_problem_error
from dpsql.policy.request.loss import format_rounded
from dpsql.policy.request.query import Query, QueryOptions
from dpsql.policy.tree import parse_yaml
from dpsql.results.charts import save_figure
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.results.forecast import Forecast
    from dpsql.results.result import Receipt


LARGEST_FILE = 1_000_000  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_WANTED = {
    "missing": "is missing",
    "extra_forbidden": "is not a key of a publication",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least 1",
}


def _require_file_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise make_problem_error(
            "bad_name", "may have only letters, digits, - and _, since files are named after it"
        )
    return name


class PublishedTable(Model):
    """A query with its loss, by default that of the publication, and a note for readers."""

    sql: str
    title: str | None = None
    note: str | None = None
    epsilon: Epsilon | None = None
    delta: Delta | None = None
    max_groups: Annotated[int, Field(ge=1)] | None = None


class Publication(Model):
    """A publication. Paths are relative to its file."""

    title: str
    policy: str
    database: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    dialect: str = "duckdb"
    epsilon: Epsilon | None = None
    tables: dict[Annotated[str, AfterValidator(_require_file_name)], PublishedTable]

    def build_query_options(self, table: PublishedTable, default: Fraction | None = None) -> QueryOptions:
        """Return the options of a table's query."""
        loss = next((each for each in (table.epsilon, self.epsilon, default) if each is not None), None)
        return {
            "epsilon": loss,
            "delta": table.delta,
            "max_groups": table.max_groups,
            "dialect": self.dialect,
            "replay": True,
        }


def load_publication(path: Path) -> Publication:
    """Load a publication from a YAML file, as strictly as a policy.

    Raises PolicyError with the line and key of each problem, and ProgrammingError (`publication`) if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)[:LARGEST_FILE].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"cannot read {path} as UTF-8 text", code="publication", hint="check the path and the encoding"
        ) from None
    tree = parse_yaml(text, str(path))
    found: Publication | None = None
    problems = list(tree.problems)
    try:
        found = Publication.model_validate({} if tree.value is None else tree.value)
    except ValidationError as error:
        problems += _iterate_problems(error)
    if found is not None and not found.tables:
        problems.append(Problem(("tables",), "missing", "must name at least one query"))
    if found is not None and len({name.casefold() for name in found.tables}) < len(found.tables):
        problems.append(
            Problem(
                ("tables",), "bad_name", "has names that differ only in case, but files are named after them"
            )
        )
    if found is None or problems:
        raise make_policy_error(tree.source, problems)
    return found


def build_publication(
    title: str, policy: str, texts: Mapping[str, str], epsilon: Fraction | None, dialect: str
) -> Publication:
    """Build a publication of named queries. Raises ProgrammingError for an invalid file name, or without a query."""
    wrong = [name for name in texts if not _NAME.fullmatch(name)]
    if wrong or not texts:
        raise ProgrammingError(
            f"{wrong[0]!r} cannot name a table; use letters, digits, - and _"
            if wrong
            else "the files contain no query",
            code="query_file",
            hint="rename the file, after which the output is named" if wrong else "write a query into a file",
        )
    tables = {name: PublishedTable(sql=sql) for name, sql in texts.items()}
    return Publication(title=title, policy=policy, tables=tables, epsilon=epsilon, dialect=dialect)


def _iterate_problems(error: ValidationError) -> Iterator[Problem]:
    for details in error.errors(include_url=False):
        path = tuple(str(step) for step in details["loc"] if step != "[key]")
        kind, context = details["type"], details.get("ctx", {})
        if kind == "policy":
            yield from (problem.with_parents(*path) for problem in context["problems"])
        else:
            yield Problem(path, kind, _WANTED.get(kind, "must be a mapping of keys"))


# The note on methods for published tables: the guarantee in words, and how each number was computed.


_NEIGHBORS = {
    "add_remove": (
        "whether the data hold all rows of one {unit}, or none of them",
        "without this {unit}'s rows",
    ),
    "replace": ("whatever the rows of one {unit} are", "if this {unit}'s rows were others"),
}
"""For each kind of neighbors, the data between which an answer hardly differs, and the data that an outcome is compared with."""


def render_methods(connection: Connection, publication: Publication, receipts: Mapping[str, Receipt]) -> str:
    """Return the note in Markdown.

    The note depends only on the policy, the publication and the receipts and has no date, so the same release gives the same note.
    """
    return (
        "\n".join(
            [*_describe_guarantee(connection, publication), "", *_describe_tables(publication, receipts)]
        )
        + "\n"
    )


def _describe_guarantee(connection: Connection, publication: Publication) -> Iterator[str]:
    policy = connection.engine.policy
    unit = policy.privacy_unit
    yield f"# How these numbers were made: {_escape_line(publication.title)}"
    yield ""
    between, otherwise = (text.format(unit=unit) for text in _NEIGHBORS[policy.neighbors])
    yield (
        "Each number computed from private rows has random noise, drawn once. The noise hides the contribution of one"
        f" {unit}: the published numbers are about equally probable {between}. This is differential privacy; ε and δ bound"
        ' what "about" means. Any conclusion from all published numbers, whatever else is known, has at most e^ε times the'
        f" probability that it would have {otherwise}, plus at most δ."
    )
    yield ""
    yield "Budgets that bound everything published from these data, including these tables, until a budget is renewed or reset:"
    yield ""
    yield "| budget | ε | δ | accountant |"
    yield "|---|---:|---:|---|"
    for state in connection.budget().values():
        if not state.analyst:
            yield f"| {_escape_line(state.name)} | {format_rounded(state.epsilon, 6)} | {format_rounded(state.delta, 6)} | {state.accountant} |"
    yield ""
    tables = [*map(_escape_line, policy.list_private_tables())]
    if len(tables) > 1:
        listed = ", ".join(tables)
        yield (
            f"The shared budget bounds what any {unit} loses over {listed} together."
            if policy.budget.shared
            else f"A {unit} with rows in several of {listed} is protected at the sum of their budgets."
        )
        yield ""
    yield (
        "A noisy column `x` is followed by `x_low` and `x_high`: an interval that contains the number without noise in 95% of"
        " cases. If the policy does not list the groups, small groups are left out by a rule that is itself noisy."
    )


def _describe_tables(publication: Publication, receipts: Mapping[str, Receipt]) -> Iterator[str]:
    for name, table in publication.tables.items():
        receipt = receipts[name]
        yield f"## {_escape_line(table.title or name)}"
        yield ""
        if table.note:
            yield from (table.note.strip(), "")
        yield from ("```sql", table.sql.strip(), "```")
        yield f"File: `{name}.csv`. Version of the data: {_escape_line(receipt.data_version)}."
        paid = sorted({*(int(entry["id"]) for entry in receipt.entries), *receipt.replayed, *receipt.refined})
        if paid:
            yield f"Entries of the ledger: {', '.join(map(str, paid))}. Digest of the plan: `{receipt.plan}`."
        laws = sorted({str(part.get("noise", "")).partition(",")[0] for part in receipt.mechanisms})
        if laws:
            yield f"Noise: {', '.join(map(_escape_line, laws))}; its size is in the intervals, and with its sensitivity in the receipt."
        for notice in receipt.notices:
            yield from ("", f"> {_escape_line(notice)}")
        yield ""


def _escape_line(text: str) -> str:
    """Return a text that stays within its line and table cell."""
    return " ".join(text.split()).replace("|", "\\|")


# Run a publication: all queries are checked against policy and budget first; then each table is written.


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A table whose query cannot be asked, and why."""

    name: str
    error: Error


def forecast_publication(
    connection: Connection, publication: Publication
) -> tuple[Forecast | None, list[RefusedQuery]]:
    """Forecast the charge of a publication, or None if a query is refused; nothing is charged."""
    from dpsql.engine.forecast import forecast_queries, plan_for_forecast

    engine, prepared, refused = connection.engine, [], list[RefusedQuery]()
    with engine.backend.lock(), engine.backend.open_snapshot():
        for name, table in publication.tables.items():
            terms = publication.build_query_options(table, engine.policy.default_epsilon)
            try:
                asked = Query.from_call(
                    table.sql,
                    (),
                    epsilon=terms.get("epsilon"),
                    delta=terms.get("delta"),
                    max_groups=terms.get("max_groups"),
                    target_error=None,
                    confidence=None,
                    dialect=publication.dialect,
                    default=None,
                )
                found = plan_for_forecast(engine, asked)
                if found.explain:
                    raise ProgrammingError(
                        "EXPLAIN cannot be published", code="publication", hint="remove EXPLAIN"
                    )
            except Error as error:
                refused.append(RefusedQuery(name, error))
            else:
                prepared.append(found)
        return (None if refused else forecast_queries(engine, prepared)), refused


def require_budget(planned: Forecast) -> None:
    """Raise BudgetExhausted if a publication does not fit into a budget; nothing is charged."""
    short = [account.now.name for account in planned.accounts if not account.fits]
    if short:
        raise BudgetExhausted(
            f"the publication does not fit into the budget of {', '.join(short)}; nothing was charged",
            hint="lower an epsilon or remove a table; --check shows what each table costs",
        )


def publish_tables(
    connection: Connection, publication: Publication, folder: Path
) -> Iterator[tuple[str, Result]]:
    """Run the query of each table and write its files, then the note on methods. Yields each table's name and answer.

    Asked again, a table is answered by its stored release, free: a release that was interrupted goes on, and one that is complete
    is made again from the ledger, file for file.

    Raises OperationalError (`not_written`) if a file cannot be written; publishing again is then free.
    """
    _run_write(lambda: folder.mkdir(parents=True, exist_ok=True), folder)
    results = dict[str, Result]()
    for name, table in publication.tables.items():
        terms = publication.build_query_options(table, connection.engine.policy.default_epsilon)
        result = results[name] = connection.query(table.sql, **terms)
        _write_table(result, table.title or name, folder, name)
        yield name, result
    note = render_methods(connection, publication, {name: result.receipt for name, result in results.items()})
    _write_text(folder / "methods.md", note)


def _write_table(result: Result, title: str, folder: Path, name: str) -> None:
    """Write the files of one table."""
    _write_text(folder / f"{name}.csv", format_answer(result, AnswerFormat.CSV, View()) + "\n")
    receipt = folder / f"{name}.receipt.json"
    if not _is_replay_of(result.receipt, receipt):
        _write_text(receipt, result.receipt.to_json() + "\n")
    try:
        from pyarrow import parquet
    except ImportError:
        pass  # an extra
    else:
        table = build_arrow_table(result)
        _run_write(lambda: parquet.write_table(table, folder / f"{name}.parquet"), folder / f"{name}.parquet")
    with suppress(
        DataError, ProgrammingError
    ):  # nothing that a chart shows, or no matplotlib, which is an extra
        save_figure(result.plot(title=title), folder / f"{name}.png")


def _is_replay_of(receipt: Receipt, path: Path) -> bool:
    """Return whether an answer replays the existing receipt, which records the charge and is kept."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(before, Mapping) or receipt.entries:
        return False
    return (before.get("plan"), before.get("data_version")) == (receipt.plan, receipt.data_version)


def _write_text(path: Path, text: str) -> None:
    _run_write(lambda: path.write_text(text, encoding="utf-8"), path)


def _run_write(write: Callable[[], object], path: Path) -> None:
    try:
        write()
    except OSError as error:
        said = error.strerror
    else:
        return
    raise OperationalError(
        f"cannot write {path}: {said}",
        code="not_written",
        hint="correct this and publish again; stored answers are free",
    )
