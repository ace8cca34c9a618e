"""Elements of PostgreSQL's arrays are those of DuckDB's lists: no more of a row than the policy says, and the first ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
from engines.lists import OF_LISTS, load, policy
from engines.loading import database, grant
from engines.loading import load as copy
from engines.test_fixtures import Pair, exact, without_units
from postgres import Server

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query
from tests.sql.study import NO_NOISE


def prepared(connection: Connection, sql: str) -> QueryRun:
    """A query with next to no noise."""
    return plan_and_match(connection.engine, Query(sql, default=Fraction(NO_NOISE), replay=False))


def sums(connection: Connection, sql: str, read: Callable[..., list[list[Any]]]) -> list[list[Any]]:
    """The exact rows of each release's statement, with the totals of each interval of a histogram."""
    query, found = prepared(connection, sql), list[list[Any]]()
    for part, rows in zip(query.releases, read(connection, query), strict=True):
        names = list(part.statement.columns)
        places = [names.index(name) for name in part.statement.histograms]
        found.append([without_units(row, places) for row in rows])
    return found


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[Pair]:
    with database(server, "lists") as (url, owner), load() as source:
        copy(source, owner)
        grant(owner)
        with (
            dpsql.connect(source, policy=policy(fields=False), ledger=":memory:") as ours,
            dpsql.connect(url, policy=policy(fields=False), ledger=":memory:") as theirs,
        ):
            yield Pair(ours, theirs)


@pytest.mark.parametrize("sql", OF_LISTS)
def test_elements_match_duckdb(pair: Pair, sql: str) -> None:
    """Lists may be NULL, empty, too long, several or joined; rows without elements may stay."""
    assert sums(pair.other, sql, exact) == sums(pair.duckdb, sql, exact)


ARRAYS = (
    "[5:7]={1,2,3}",
    "{{1,2},{3,1}}",
    "[-1:0]={1,2}",
    "{}",
    "{{{1}},{{2}}}",
    "[2147483646:2147483646]={1}",
)


def test_first_elements_are_chosen_by_place(server: Server) -> None:
    """Wherever an array begins to count, to the last number, and however many dimensions it has: two of a row."""
    with database(server, "arrays") as (url, owner):
        owner.execute("CREATE TABLE t (no int, id int, k text, numbers int[])")
        for place, text in enumerate(ARRAYS):
            owner.execute("INSERT INTO t VALUES (%s, %s, 'a', %s)", (place, place, text))
        # Of too many elements in two dimensions none counts.
        owner.execute("INSERT INTO t VALUES (9, 9, 'a', ARRAY_FILL(3, ARRAY[2, 600000]))")
        grant(owner)
        rules = policy(fields=False)
        rules["tables"] = {"t": rules["tables"]["t"]}
        columns = rules["tables"]["t"]["columns"]
        rules["tables"]["t"]["columns"] = {name: columns[name] for name in ("no", "k", "numbers")}
        with dpsql.connect(url, policy=rules, ledger=":memory:") as connection:
            sql = "SELECT COUNT(*), SUM(x) FROM t, UNNEST(numbers) AS u(x)"
            ((_, rows, total, *_),) = exact(connection, prepared(connection, sql))[0]
            assert (rows, total) == (9, 13)


@pytest.mark.parametrize("kind", ["mood[]", "interval[]", "place", "place[]", "short[]"])
def test_arrays_of_other_types_are_not_read(server: Server, kind: str) -> None:
    """Nor fields of composite types: the policy's check says what to do instead."""
    with database(server, "other_arrays") as (url, owner):
        owner.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE place AS (n int)")
        owner.execute("CREATE DOMAIN short AS int CHECK (VALUE < 9)")
        owner.execute(f"CREATE TABLE t (id int, v {kind})")
        grant(owner)
        columns = {"v": {"type": "int", "max_elements": 2}, "v.n": {"type": "int"}}
        for name, rules in columns.items():
            tables = {"t": {"unit": "id", "rows_per_unit": 1, "columns": {name: rules}}}
            with pytest.raises(dpsql.PolicyError):
                dpsql.connect(
                    url,
                    policy={
                        "version": 1,
                        "privacy_unit": "person",
                        "budget": {"epsilon": 1},
                        "tables": tables,
                    },
                    ledger=":memory:",
                ).query("SELECT COUNT(*) FROM t", epsilon=1)
