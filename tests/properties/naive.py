"""Dataflows in which one thing follows the data, for tests that have to see each of them.

Every one takes the place of a part of dpsql while it is at work, and is named by what it gives away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import dpsql
from dpsql.api import engine_queries
from dpsql.api.connection import Connection
from dpsql.api.engine_queries import EngineQueries
from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine import forecast, relative_targets, stages
from dpsql.engine.engine import Engine
from dpsql.engine.explain import Explanation
from dpsql.engine.query_run import QueryRun
from dpsql.engine.release import exact_release as dataflow
from dpsql.engine.release import noise
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms import Entropy
from dpsql.results.result import Receipt, Result

COUNTED = "SELECT plan, COUNT(*), AVG(cost) FROM visits GROUP BY plan"
REFUSED = "SELECT MODE(cost) FROM visits"
UNITS = "SELECT plan, COUNT(DISTINCT patient_id) FROM visits GROUP BY plan"
NOBODY = "SELECT plan, NULLIF(COUNT(*), 0) FROM visits GROUP BY plan"
PERHAPS = "SELECT COUNT(*) AS rows FROM visits HAVING COUNT(*) > 3"
Part = Callable[..., Any]


@dataclass(frozen=True)
class Naive:
    """A part of the dataflow with what takes its place, and a query that gives it away."""

    owner: Any
    name: str
    instead: Part
    sql: str

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within it dpsql is naive."""
        part = getattr(self.owner, self.name)
        with mock.patch.object(self.owner, self.name, lambda *of, **named: self.instead(part, *of, **named)):
            yield


OBSERVABLE: dict[str, Naive] = {}
"""By the part of what is observed that differs between neighbours."""
RELEASED: dict[str, Naive] = {}
"""Those that move released values by other than the difference of the exact ones, or by more than was derived."""


def _naive(
    book: dict[str, Naive], title: str, owner: Any, name: str, sql: str = COUNTED
) -> Callable[[Part], Part]:
    def entered(instead: Part) -> Part:
        book[title] = Naive(owner, name, instead, sql)
        return instead

    return entered


def count(backend: Any) -> int:
    """The number of rows, which is nobody's business, by the same words on each database."""
    assert isinstance(backend, DuckDBBackend)
    ((rows,),) = backend._runner.connection.execute("SELECT COUNT(*) FROM visits").fetchall()
    return int(rows)


@_naive(OBSERVABLE, "sent", DuckDBBackend, "run_statement")
def _(run: Part, self: DuckDBBackend, sql: str) -> Exact:
    return run(self, f"{sql} -- of {count(self)} rows")


@_naive(OBSERVABLE, "prepared", forecast, "plan_and_match")
def _(prepare: Part, engine: Engine, user_query: Query, *options: Any) -> QueryRun:
    return prepare(engine, replace(user_query, epsilon=user_query.epsilon + count(engine.backend)), *options)


@_naive(OBSERVABLE, "explanation", EngineQueries, "explain")
def _(explained: Part, self: EngineQueries, user_query: Query) -> Explanation:
    explanation = explained(self, user_query)
    return replace(explanation, lines=(*explanation.lines, f"of {count(self._engine.current.backend)} rows"))


@_naive(OBSERVABLE, "error", engine_queries, "plan_and_match", REFUSED)
def _(prepare: Part, engine: Engine, user_query: Query, *options: Any) -> QueryRun:
    try:
        return prepare(engine, user_query, *options)
    except dpsql.QueryRejected as error:
        message = f"{error.message} of {count(engine.backend)} rows"
    raise dpsql.QueryRejected(message)


@_naive(OBSERVABLE, "entries", stages, "charge_query")
def _(charge: Part, engine: Engine, prepared: QueryRun) -> QueryRun:
    return charge(engine, prepared) if count(engine.backend) else prepared


@_naive(OBSERVABLE, "budget", Connection, "budget")
def _(budget: Part, self: Connection) -> dict[str, Any]:
    return {**budget(self), "rows": count(self.engine.backend)}


@_naive(OBSERVABLE, "draws", noise, "read_groups", UNITS)
def _(groups: Part, *of: Any) -> Any:
    found = groups(*of)
    return found.select_groups([place for place, group in enumerate(found) if any(group.moments.values())])


@_naive(OBSERVABLE, "words", noise, "_draw_noisy_components")
def _(noised: Part, measured: Any, groups: Sequence[Any], entropy: Entropy) -> Any:
    entropy.draw_words(sum(any(group.moments.values()) for group in groups))
    return noised(measured, groups, entropy)


@_naive(OBSERVABLE, "keys", dataflow, "draw_release")
def _(release: Part, plan: Any, statement: Any, exact: Exact, entropy: Entropy) -> ReleasedTable:
    table = release(plan, statement, exact, entropy)
    sizes = {row[0]: -row[1] for row in exact.reveal()}
    order = sorted(range(len(table.rows)), key=lambda at: sizes.get(table.rows[at][0], 0))
    rows, cells = (tuple(parts[at] for at in order) for parts in (table.rows, table.components))
    return replace(table, rows=rows, components=cells)


@_naive(OBSERVABLE, "types", relative_targets, "answer_query", NOBODY)
def _(answer: Part, engine: Engine, prepared: QueryRun) -> Result:
    result = answer(engine, prepared)
    return replace(result, types=tuple(type(value).__name__ for value in result.rows[-1]))


@_naive(OBSERVABLE, "frames", Result, "df", PERHAPS)
def _(_: Part, self: Result) -> Any:
    import pandas

    return pandas.DataFrame(self.rows, columns=list(self.columns))


@_naive(OBSERVABLE, "receipt", stages, "build_receipt")
def _(receipt: Part, engine: Engine, *of: Any) -> Receipt:
    return replace(receipt(engine, *of), data_version=f"of {count(engine.backend)} rows")


@_naive(OBSERVABLE, "shown", relative_targets, "answer_query")
def _(answer: Part, engine: Engine, prepared: QueryRun) -> Result:
    result, times = answer(engine, prepared), 1 + count(engine.backend)
    scales = tuple(tuple(scale and scale * times for scale in row) for row in result.scales)
    return replace(result, scales=scales)


@_naive(OBSERVABLE, "log", relative_targets, "answer_query")
def _(answer: Part, engine: Engine, prepared: QueryRun) -> Result:
    logging.getLogger("naive").warning("%s rows", count(engine.backend))
    return answer(engine, prepared)


@_naive(RELEASED, "noise follows the data", noise, "_draw_noisy_components")
def _(noised: Part, measured: Any, groups: Sequence[Any], entropy: Entropy) -> Any:
    return [
        tuple(cell * (1 + any(group.moments.values())) for cell in cells)
        for group, cells in zip(groups, noised(measured, groups, entropy), strict=True)
    ]


@_naive(
    RELEASED,
    "rows of a unit without a bound",
    engine_queries,
    "plan_and_match",
    "SELECT COUNT(*) FROM visits",
)
def _(prepare: Part, engine: Engine, user_query: Query, *options: Any) -> QueryRun:
    prepared = prepare(engine, user_query, *options)
    sql = "SELECT COUNT(DISTINCT patient_id), COUNT(*) FROM visits"
    (release,) = prepared.releases
    release = replace(release, statement=replace(release.statement, sql=sql))
    return replace(prepared, releases=(release,))
