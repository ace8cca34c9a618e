"""Tables that share a budget: the shared account is charged what all rows of one unit, in all tables at once, can change.

Claim: each release moves by at most its sensitivities when all rows of one unit are added or swapped in all tables together, and the
shared account is charged the composition of the releases, each once.
Why: a release bounds what all rows of one id change, whichever tables they are in; different releases compose.
Source: Dwork, Roth 2014, Theorem 3.16 (composition).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from filling import insert
from worlds import assert_within, cells, close_all, connected, engine_of, prepared

from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.errors import BudgetExhausted
from dpsql.policy.names import SHARED_ACCOUNT
from dpsql.privacy.accounting.accountants import get_accountant

ONE_TABLE = ("SELECT COUNT(*), SUM(x) FROM a", "SELECT COUNT(DISTINCT id), SUM(y) FROM b")
JOINED = (
    "SELECT COUNT(*), SUM(x), SUM(y) FROM a JOIN b USING (id)",
    "SELECT COUNT(*), SUM(z) FROM (SELECT id, x AS z FROM a UNION ALL SELECT id, y FROM b)",
    "SELECT COUNT(*), SUM(x) FROM a WHERE id IN (SELECT id FROM b WHERE y > 1)",
    "SELECT COUNT(*), SUM(x) FROM a LEFT JOIN b USING (id) WHERE y IS NULL",
    "SELECT COUNT(*), SUM(x), SUM(z) FROM a JOIN c ON c.of_a = a.k",
)
SEVERAL = (
    "SELECT (SELECT COUNT(*) FROM a) AS n, (SELECT COUNT(*) FROM b) AS m",
    "SELECT (SELECT SUM(x) FROM a) AS n, (SELECT COUNT(*) FROM a JOIN b USING (id)) AS m",
    "SELECT (SELECT COUNT(*) FROM a) AS n, (SELECT SUM(y) FROM b) AS m, (SELECT COUNT(*) FROM c) AS o",
)
OTHERS: Mapping[str, Sequence[Any]] = {
    "a": ((1, 10, 1), (1, 11, 4), (None, 12, 4)),
    "b": ((1, 2), (2, 4)),
    "c": ((10, 3), (99, 3)),
}
"""The rows of others: (id, k, x), (id, y) and (of_a, z)."""
OWN_A = ((), ((7, 20, 4),), ((7, 20, 0), (7, 21, 4)), ((7, 20, 4), (7, 21, 4), (7, 22, 4)))
OWN_B = ((), ((7, 0),), ((7, 4), (7, 2)), ((7, 4), (7, 4), (7, 4)))
OWN_C = ((), ((20, 4), (21, 1)))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Worlds end with their test."""
    yield
    close_all()


def shared_world(neighbors: str = "add_remove", budget: Mapping[str, Any] | None = None) -> Connection:
    """Two tables with the id of a unit, and one that is linked to the first, which share one budget."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute("CREATE TABLE a (id INTEGER, k INTEGER, x INTEGER)")
    opened.execute("CREATE TABLE b (id INTEGER, y INTEGER); CREATE TABLE c (of_a INTEGER, z INTEGER)")
    number = {"type": "integer", "bounds": [0, 4]}
    tables = {
        "a": {"unit": "id", "rows_per_unit": 2, "columns": {"k": {"type": "integer"}, "x": number}},
        "b": {"unit": "id", "rows_per_unit": 2, "columns": {"y": number}},
        "c": {
            "link": {"column": "of_a", "references": "a.k"},
            "rows_per_unit": 2,
            "columns": {"z": number},
        },
    }
    spec = {"epsilon": 1000, "delta": 1e-6, "shared": True, **(budget or {})}
    found = connected(opened, {"neighbors": neighbors, "budget": spec, "tables": tables})
    hold(found, OTHERS)
    return found


def hold(connection: Connection, tables: Mapping[str, Sequence[Any]]) -> None:
    """Make these the rows of the tables."""
    for name, rows in tables.items():
        engine_of(connection).execute(f"DELETE FROM {name}")
        if rows:
            insert(engine_of(connection), name, list(rows))


def list_neighbors() -> Iterator[dict[str, Sequence[Any]]]:
    """Yield the tables with all rows of one more unit, in any of them at once."""
    for own in itertools.product(OWN_A, OWN_B, OWN_C):
        yield {name: (*OTHERS[name], *rows) for name, rows in zip("abc", own, strict=True)}


def list_parts(run: QueryRun) -> list[QueryRun]:
    """Return a run for each release of a statement."""
    return [replace(run, releases=(part,)) for part in run.releases]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("sql", [*ONE_TABLE, *JOINED, *SEVERAL])
def test_releases_bound_all_rows_of_a_unit_in_all_tables(sql: str, neighbors: str) -> None:
    """No unit moves a release beyond its sensitivity, in however many tables it has rows; some unit moves each release."""
    connection = shared_world(neighbors)
    parts = list_parts(prepared(connection, sql))
    most = [0] * len(parts)
    before = [cells(connection, part) for part in parts]
    for tables in list_neighbors():
        hold(connection, tables)
        for place, part in enumerate(parts):
            after = cells(connection, part)
            most[place] = max(most[place], assert_within(part, before[place], after))
        if neighbors == "replace":
            before = [cells(connection, part) for part in parts]
    assert all(most)


@pytest.mark.parametrize("accountant", ["pure", "basic", "zcdp", "gdp"])
@pytest.mark.parametrize("sql", [*ONE_TABLE, *JOINED, *SEVERAL])
def test_the_shared_account_is_charged_each_release_once(sql: str, accountant: str) -> None:
    """The charge is at least the sum over the releases, and at most that of one query at the same loss."""
    delta = 0 if accountant == "pure" else 1e-6
    connection = shared_world(budget={"accountant": accountant, "delta": delta})
    run = prepared(connection, sql)
    (charge,) = run.table_charges
    assert charge.table == SHARED_ACCOUNT
    compute = get_accountant(accountant).compute_charge
    single = compute(prepared(connection, ONE_TABLE[0]).table_charges[0].event)
    charged, each = compute(charge.event), [compute(part.event) for part in run.releases if part.event]
    assert len(each) == len(run.releases)
    assert charged.loss >= sum(one.loss for one in each)
    assert charged.delta >= sum(one.delta for one in each)
    assert charged.loss <= single.loss
    (entry,) = connection.query(sql).receipt.entries
    assert (entry["table"], connection.engine.ledger.get_state(SHARED_ACCOUNT).spent) == (
        SHARED_ACCOUNT,
        charged,
    )


def test_answers_of_different_tables_add_up_in_one_budget() -> None:
    """A budget that pays for two answers pays for one of each of two tables, and then for none of a third."""
    connection = shared_world(budget={"epsilon": 2, "delta": 0})
    connection.query(ONE_TABLE[0], epsilon=1)
    connection.query(ONE_TABLE[1], epsilon=1)
    with pytest.raises(BudgetExhausted, match="of the shared budget, but at most epsilon 0 is left"):
        connection.query("SELECT COUNT(*) FROM c", epsilon=1)
