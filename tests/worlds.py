"""Tiny databases for the attacks, their neighbours, and all that an analyst can observe of both.

`world(person(1), person(2, cost=9.0))` is a connection to two people. Two worlds draw the same words of
entropy and see the same clock, so what differs between the answers of neighbours comes from the data.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest import mock

import duckdb
from entropy import RecordingEntropy, SeededEntropy
from properties.worlds import Statistics, cells_of, change

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.ledger import Budget, open_ledger
from dpsql.plan.expressions import Call, Column
from dpsql.plan.types import Type
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy import load
from dpsql.policy.request.query import Query
from dpsql.results.result import Receipt
from dpsql.sql.compile.compiler import Compiler

Row = Mapping[str, Any]
Refused = Callable[..., str]
Declared = dict[str, tuple[str, Any]]
"""Each column's type in the engine and its declaration in the policy, None where it has none."""

COLUMNS: Declared = {
    "id": ("INTEGER", None),
    "city": ("VARCHAR", {"type": "varchar", "values": ["Bonn", "Kiel"]}),
    "word": ("VARCHAR", {"type": "varchar"}),
    "age": ("INTEGER", {"type": "integer", "bounds": [0, 110]}),
    "cost": ("DOUBLE", {"type": "double", "bounds": [-5, 100]}),
    "free": ("DOUBLE", {"type": "double"}),
    "day": ("DATE", {"type": "date", "bounds": [dt.date(2020, 1, 1), dt.date(2020, 12, 31)]}),
    "seen": ("TIMESTAMP", {"type": "timestamp"}),
    "member": ("BOOLEAN", {"type": "boolean"}),
}
REGIONS = "CREATE TABLE regions AS SELECT * FROM (VALUES ('Bonn', 1), ('Kiel', 2)) AS r(name, rank)"
_opened: list[Connection] = []
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def person(who: Any, **values: Any) -> Row:
    """A row of the private table `people`; what is not given is ordinary."""
    return {
        "id": who,
        "city": "Bonn",
        "word": "a",
        "age": 30,
        "cost": 10.0,
        "free": 1.0,
        "day": "2020-02-29",
        "seen": "2020-02-29 12:00:00",
        "member": True,
    } | values


def world(
    *rows: Row,
    columns: Declared = COLUMNS,
    unit: str = "id",
    setup: Sequence[str] = (),
    table: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    **policy: Any,
) -> Connection:
    """A connection to `people` with these rows and the public `regions`.

    `columns` are those of `people`, `table` adds to its declaration, `setup` is SQL that runs before
    the table is made. One unit has at most two rows unless `unit` is "row".
    """
    database = duckdb.connect(config={"threads": 1})
    for statement in (*setup, REGIONS):
        database.execute(statement)
    database.execute(
        f"CREATE TABLE people ({', '.join(f'{quoted(n)} {kind}' for n, (kind, _) in columns.items())})"
    )
    insert(database, rows, columns)
    declared = {name: dict(rules) for name, (_, rules) in columns.items() if rules is not None}
    bounds = {} if unit == "row" else {"rows_per_unit": 2}
    people = {"unit": unit, "columns": declared, **bounds, **(table or {})}
    tables = {"people": people, "regions": {"public": True}} | policy.pop("tables", {})
    return connected(
        database, {"budget": budget or {"epsilon": 100, "delta": 1e-6}, "tables": tables, **policy}
    )


def insert(database: duckdb.DuckDBPyConnection, rows: Sequence[Row], columns: Declared = COLUMNS) -> None:
    """Adds rows to `people`, each value cast from its text."""
    if not rows:
        return
    texts = [[None if row.get(name) is None else str(row[name]) for row in rows] for name in columns]
    kinds = [kind.partition(" COLLATE ")[0].removesuffix(" NOT NULL") for kind, _ in columns.values()]
    lists = ", ".join(f"unnest(CAST(? AS VARCHAR[])) AS c{index}" for index in range(len(kinds)))
    casts = ", ".join(f"CAST(c{index} AS {kind})" for index, kind in enumerate(kinds))
    database.execute(f"INSERT INTO people SELECT {casts} FROM (SELECT {lists})", texts)


def quoted(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def connected(database: Any, policy: Mapping[str, Any], *, ledger: Any = ":memory:") -> Connection:
    """A connection with seeded entropy and a clock that stands still."""
    rules = load({"version": 1, "privacy_unit": "person", **policy})
    budgets = {}
    for name in rules.list_private_tables():
        spec = rules.get_budget(name)
        budgets[rules.get_account_name(name)] = Budget(spec.accountant, spec.epsilon, spec.delta)
    book = open_ledger(ledger, budgets, clock=lambda: NOON, max_failures=rules.get_failure_limits())
    entropy = RecordingEntropy(SeededEntropy(1))
    engine = Engine(rules, DuckDBBackend(database), book, "ana", entropy)
    assert engine.catalog.tables
    _opened.append(Connection(engine, Fraction(1)))
    return _opened[-1]


def close_all() -> None:
    """Closes every world: engines with threads must not be there when a later test forks."""
    while _opened:
        connection = _opened.pop()
        if connection._engine.is_open:
            engine_of(connection).close()
            connection.close()


def engine_of(connection: Connection) -> duckdb.DuckDBPyConnection:
    """The database behind a connection, which no analyst can reach."""
    backend = connection.engine.backend
    assert isinstance(backend, DuckDBBackend)
    return backend._runner.connection


def prepared(connection: Connection, sql: str, max_groups: int | None = None) -> QueryRun:
    """The plan of a query at ε = 1."""
    return plan_and_match(connection.engine, Query(sql, max_groups=max_groups))


def cells(connection: Connection, plan: QueryRun) -> Statistics:
    """The exact cells of each group, which only the noise ever sees."""
    found = cells_of(plan, connection.engine.backend.run_statement(plan.statement.sql))
    return {
        tuple("NaN" if key != key else key for key in group): parts  # noqa: PLR0124  (NaN differs from itself)
        for group, parts in found.items()
    }


def statistics(connection: Connection, sql: str) -> Statistics:
    """The exact cells of a query."""
    return cells(connection, prepared(connection, sql))


def assert_within(plan: QueryRun, old: Statistics, new: Statistics) -> int:
    """Neighbours' exact cells differ by no more than was derived; returns the largest l1 change.

    A group that is in one world alone must pass a selection; what it adds is charged there, as delta. So is one that
    the least frequency takes away in one of them, where its values are counted besides.
    """
    measured = plan.plan
    if measured.selection is not None:
        few = measured.analysis.bound.min_frequency > 1
        old, new = (
            {key: cells for key, cells in found.items() if not few or _anybody(measured, cells)}
            for found in (old, new)
        )
        both = old.keys() & new.keys()
        for ours, theirs in ((old, new), (new, old)):
            appear = [key for key in ours.keys() - theirs.keys() if _anybody(measured, ours[key])]
            assert len(appear) <= measured.analysis.bound.groups
        old, new = ({key: found[key] for key in both} for found in (old, new))
    changes = [change(old, new, block) for block in range(len(measured.vectors))]
    for block, (l1, l2_squared, linf) in zip(measured.vectors, changes, strict=True):
        assert l1 <= block.sensitivity.l1, f"{block.vector.name} moves by {l1}"
        assert linf <= block.sensitivity.linf, f"{block.vector.name} moves by {linf} in l∞ norm"
        assert l2_squared <= block.sensitivity.l2_squared, f"{block.vector.name} moves too far in l2 norm"
    return max(l1 for l1, *_ in changes)


def _anybody(measured: MeasurementPlan, found: tuple[Any, ...]) -> bool:
    """Whether somebody counts in a group, by whom a selection goes; values may be counted besides."""
    chosen = measured.threshold
    return chosen is None or any(found[chosen.vector][at] for at in chosen.components)


def assert_neighbours_within(before: Connection, after: Connection, sql: str) -> int:
    """As `assert_within`, for a query on two worlds."""
    plan = prepared(before, sql)
    return assert_within(plan, cells(before, plan), cells(after, plan))


def hold(connection: Connection, rows: Sequence[Row], columns: Declared = COLUMNS) -> None:
    """Makes these the only rows of `people`, in this order."""
    engine_of(connection).execute("DELETE FROM people")
    insert(engine_of(connection), rows, columns)


@contextmanager
def joined_by(
    connection: Connection, rows: Sequence[Row], columns: Declared = COLUMNS
) -> Iterator[Connection]:
    """The world with these rows besides, for as long as the block lasts."""
    database = engine_of(connection)
    database.execute("BEGIN")
    insert(database, rows, columns)
    try:
        yield connection
    finally:
        database.execute("ROLLBACK")


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that an analyst observes of a query, but for the values of its rows."""

    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    receipt: str = ""
    error: tuple[str, str, str, str | None] | None = None


def observed(connection: Connection, sql: str, **options: Any) -> tuple[Outcome, tuple[Any, ...]]:
    """The outcome of a query and its rows."""
    try:
        result = connection.query(sql, **options)
    except dpsql.Error as error:
        return Outcome(error=(type(error).__name__, error.code, str(error), error.hint)), ()
    return Outcome(result.columns, result.types, _without_digests(result.receipt)), result.rows


def _without_digests(receipt: Receipt) -> str:
    """A receipt but for the digests of its entries, which vouch for the noisy releases that are stored before them."""
    told = json.loads(receipt.to_json())
    entries = [{key: value for key, value in entry.items() if key != "digest"} for entry in told["entries"]]
    return json.dumps({**told, "entries": entries}, indent=2)


def words_drawn(connection: Connection) -> int:
    """How many words of entropy were drawn so far."""
    entropy = connection.engine.entropy
    assert isinstance(entropy, RecordingEntropy)
    return entropy.total


def spent(connection: Connection) -> int:
    """How many charges the ledger holds."""
    return sum(entry.kind == "charge" for entry in connection.engine.ledger.list_entries())


def of_all_rows(call: Call) -> str:
    """How a call is written for an engine that computes before it filters: products in 64 bits, also of dropped rows.

    The rows are those that a condition on the column e of the table v drops. DuckDB 2.0.0 computed so in some joins;
    2.0.1 was not seen to, and does not promise it.
    """
    narrows = any(
        isinstance(part, Column) and (part.source, part.name) == ("v", "e") for part in call.arguments
    )
    return "TRUE" if narrows and call.type is Type.BOOLEAN else call.function.sql


def written_by(template: Callable[[Call], str]) -> AbstractContextManager[object]:
    """Calls are written by this `template` of each within the context."""
    return mock.patch.object(Compiler, "_get_template", lambda _, call: template(call))


def before_filters(template: Callable[[Call], str]) -> Callable[[Call], str]:
    """How calls are written for an engine that computes before it filters, by the `template` of each: as `of_all_rows`, but safely."""

    def write(call: Call) -> str:
        return "TRUE" if of_all_rows(call) == "TRUE" else template(call)

    return write
