"""A14, the budget as an output: charges, refusals, statements, types and draws are equal on neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attacks.naive import Naive, SpentError, distinguishes_worlds
from worlds import Row, connected, engine_of, observed, person, prepared, spent, words_drawn, world

from dpsql.api.connection import Connection
from dpsql.ledger import entry_writer
from dpsql.ledger.protocol import START
from dpsql.ledger.schema import RELEASES

ANSWERED = [
    "SELECT COUNT(*) FROM people",
    "SELECT AVG(cost), SUM(age), COUNT(DISTINCT id) FROM people WHERE age > 40",
    "SELECT city, AVG(cost) AS c FROM people GROUP BY city HAVING COUNT(*) > 3 ORDER BY c",
    "SELECT member, SUM(cost) / COUNT(*) AS ratio FROM people GROUP BY member",
    "SELECT city FROM people GROUP BY city",
    "SELECT word, COUNT(*) FROM people GROUP BY word",
    "SELECT SUM(cost * LEAST(GREATEST(rank, 0), 2)) FROM people JOIN regions ON city = name",
    "EXPLAIN SELECT city, COUNT(*) FROM people GROUP BY city",
]
FAILING = [
    "SELECT MAX(cost) FROM people",
    "SELECT cost FROM people",
    "SELECT SUM(free) FROM people",
    "SELECT COUNT(*) FROM persons",
    "SELECT COUNT(*) FROM people WHERE word LIKE word",
    "SELECT",
]
KNOWN = [sql for sql in ANSWERED if "word" not in sql][:3]
NEIGHBOURS: dict[str, tuple[list[Row], list[Row]]] = {
    "one more": ([], [person(99)]),
    "one with specials": ([], [person(99, cost="nan", free="inf", day="infinity", seen=None, city=None)]),
    "one among nobody": ([person(99)], []),
    "one replaced": (
        [person(99, age=1, cost=-5, city="Kiel")],
        [person(99, age=110, cost=1e9, word="z" * 99)],
    ),
}


@pytest.fixture(params=NEIGHBOURS)
def pair(
    request: pytest.FixtureRequest, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> tuple[Connection, Connection]:
    """Two neighbouring worlds.

    Each entry vouches by a digest for the releases that are stored before it, which are noisy and public: without that,
    entries hold nothing of what was released, and must be equal to the byte.
    """
    monkeypatch.setattr(entry_writer, "read_release_head", lambda *_: START)
    ours, theirs = NEIGHBOURS[request.param]
    base = [] if "nobody" in request.param else rows
    return world(*base, *ours), world(*base, *theirs)


def ledger_of(connection: Connection) -> list[dict[str, Any]]:
    """Every field of every entry: the clock of these worlds stands still, so times and digests count too."""
    return [
        {name: str(getattr(entry, name)) for name in entry.__dataclass_fields__}
        for entry in connection.engine.ledger.list_entries()
    ]


def test_observations_other_than_rows_are_equal(pair: tuple[Connection, Connection]) -> None:
    """Names, types, receipts, errors, draws, budget and the ledger's every byte, over a whole session."""
    ours, theirs = pair
    for sql in (*KNOWN, *ANSWERED, *FAILING):
        (first, shown), (second, other) = observed(ours, sql), observed(theirs, sql)
        assert first == second
        # With public keys the number of draws, groups and rows is the same too.
        if sql in KNOWN:
            assert words_drawn(ours) == words_drawn(theirs)
            assert len(shown) == len(other) or "HAVING" in sql
    assert ours.budget() == theirs.budget()
    assert ledger_of(ours) == ledger_of(theirs)
    assert spent(ours) > 0
    assert words_drawn(ours) > 0


def test_statement_and_explanation_are_equal(pair: tuple[Connection, Connection]) -> None:
    """The engine's statement and EXPLAIN depend on the query and public metadata only."""
    ours, theirs = pair
    for sql in ANSWERED:
        text = sql.removeprefix("EXPLAIN ")
        assert prepared(ours, text).statement == prepared(theirs, text).statement
        assert str(ours.explain(text)) == str(theirs.explain(text))
    assert spent(ours) == spent(theirs) == 0


def test_budget_runs_out_at_the_same_query(pair: tuple[Connection, Connection]) -> None:
    """The refusal depends on earlier queries, never on their data."""
    ours, theirs = pair
    sql = "SELECT COUNT(*) FROM people WHERE age > ?"
    first, second = (
        [observed(connection, sql, parameters=[n], epsilon=30)[0] for n in range(3)]
        for connection in (ours, theirs)
    )
    assert first == second
    assert {outcome.error[0] for outcome in first if outcome.error} == {"BudgetExhausted"}
    assert first[0].error is None


def test_ledger_file_is_equal(tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of every table of the two ledgers on disk are the same except for stored noisy values.

    These were released; how many there are, their names and what paid for them is the same.
    """
    import sqlite3

    from dpsql.engine.replay.stored_release import StoredRelease

    # As in `pair`: what entries say of stored releases follows from what was released.
    monkeypatch.setattr(entry_writer, "read_release_head", lambda *_: START)
    policy = {
        "budget": {"epsilon": 9, "delta": 1e-6},
        "database": "town",
        "tables": {
            "people": {
                "unit": "id",
                "rows_per_unit": 2,
                "columns": {"age": {"type": "integer", "bounds": [0, 110]}},
            }
        },
    }
    stored = []
    for index, extra in enumerate(([], [person(99, age=None)])):
        path = tmp_path / f"{index}.ledger"
        connection = connected(engine_of(world(*rows, *extra)), policy, ledger=path)
        for sql in (
            "SELECT AVG(age) FROM people",
            "SELECT SUM(age), COUNT(*) FROM people",
            "SELECT MAX(age) FROM people",
        ):
            observed(connection, sql)
        connection.close()
        with sqlite3.connect(path) as file:
            tables = sorted(
                name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            )
            stored.append({name: file.execute(f"SELECT * FROM {name}").fetchall() for name in tables})
        file.close()
    for tables in stored:
        kept = [dict(zip(RELEASES.columns.keys(), row, strict=True)) for row in tables["releases"]]
        bodies = [release.pop("body") for release in kept]
        noisy = [StoredRelease.parse(body) for body in bodies if "cells" in json.loads(body)]
        layouts = [body for body in bodies if "cells" not in json.loads(body)]
        assert all(release.pop(name) for release in kept for name in ("digest", "body_digest", "previous"))
        shapes = [[len(part) for part in written.components[0]] for written in noisy]
        described = [(written.noise, written.event, written.source) for written in noisy]
        tables["releases"] = [*kept, *layouts, *shapes, *described]
    assert stored[0] == stored[1]
    assert len(stored[0]["entries"]) == 2


def test_charge_that_depends_on_data_is_observable(rows: list[Row]) -> None:
    """The test can fail: an entry that holds the exact count tells the worlds apart."""
    ledgers = []
    for connection in (world(*rows), world(*rows, person(99))):
        event = prepared(connection, ANSWERED[0]).plan.event
        assert event is not None
        exact = engine_of(connection).execute("SELECT COUNT(*) FROM people").fetchone()
        connection.engine.ledger.charge(
            {"people": event}, analyst="ana", query=ANSWERED[0], details={"n": repr(exact)}
        )
        ledgers.append(ledger_of(connection))
    assert ledgers[0] != ledgers[1]


def test_data_dependent_price_or_refusal_is_an_answer(rows: list[Row]) -> None:
    """The attack works where rows found have a price, or too few are refused: what is left says if one is there."""
    ours, theirs = world(*rows), world(*rows, person(99, word="rare"))
    keys = "SELECT word, COUNT(*) FROM people GROUP BY word"

    def left(naive: Naive) -> float:
        naive.price = lambda epsilon, found: epsilon * len(found)
        naive.query(keys)
        return naive.spent

    def refused(naive: Naive) -> bool:
        naive.budget, naive.price = 1, lambda epsilon, found: epsilon * len(found)
        naive.query(keys, epsilon=0.5)
        try:
            naive.query(keys, epsilon=0.5)
        except SpentError:
            return True
        return False

    assert distinguishes_worlds(left, ours, theirs)
    assert distinguishes_worlds(refused, ours, theirs)
