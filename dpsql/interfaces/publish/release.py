"""Asks what a publication names: all of it is checked against policy and budget first, then written table by table.

Asked again, a table is answered by its stored release, free: a release that was interrupted goes on, and one that is
complete is made again from the ledger, file for file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import BudgetExhausted, DataError, Error, OperationalError, ProgrammingError
from dpsql.interfaces.publish.methods import render_methods
from dpsql.interfaces.publish.publication import Publication
from dpsql.interfaces.shell.answers import AnswerFormat, build_arrow_table, format_answer
from dpsql.interfaces.shell.view import View
from dpsql.policy.request.query import Query
from dpsql.results.charts import save_figure
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.engine.forecast import Forecast


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A table whose query cannot be asked, and why."""

    name: str
    error: Error


def forecast_publication(
    connection: Connection, publication: Publication
) -> tuple[Forecast | None, list[RefusedQuery]]:
    """Forecast the charge of a publication, or None if a query is refused; nothing is charged."""
    from dpsql.engine.forecast import Forecast

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
                found = engine.plan_and_match(asked, forecast=True)
                engine.require_bindable(found)
                if found.explain:
                    raise ProgrammingError(
                        "EXPLAIN cannot be published", code="publication", hint="remove EXPLAIN"
                    )
            except Error as error:
                refused.append(RefusedQuery(name, error))
            else:
                prepared.append(found)
        return (None if refused else Forecast.from_queries(engine, prepared)), refused


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
