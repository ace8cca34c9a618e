"""A14: synthetic tables and streams as oracles: what is charged, refused and drawn tells nothing of the data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from worlds import Row, hold, person, spent, words_drawn, world

import dpsql
from dpsql.api.connection import Connection

ASKED = "SELECT city, member FROM people WHERE age < 50"
TABLES: dict[str, dict[str, Any]] = {
    "mwem": {"workload": "marginals(2)", "rounds": 1},
    "mst": {"workload": "marginals(2)", "method": "mst"},
    "blr": {"workload": [("city", "member")], "method": "blr"},
}


def charged(con: Connection) -> list[dict[str, Any]]:
    """The entries of the ledger, but for the digests that vouch for noisy releases."""
    return [
        {"query": entry.query, "event": str(entry.event), "spend": str(entry.spend), "details": entry.details}
        for entry in con.engine.ledger.list_entries()
    ]


@pytest.mark.parametrize("method", TABLES)
@pytest.mark.parametrize(
    "joining",
    [[], [person(77, city=None, member=None)], [person(77, age=-9), person(77, city="Nowhere")]],
    ids=["nobody", "nulls", "strangers"],
)
def test_neighbours_get_equal_charges_and_receipts(method: str, joining: list[Row], rows: list[Row]) -> None:
    """The price, the receipt's words and the columns do not depend on who is in the table."""
    seen = set()
    for people in (rows, [*rows, *joining], []):
        con = world(*people)
        made = con.synthetic(ASKED, epsilon=1, **TABLES[method])
        stream = con.stream(ASKED, epsilon=1, updates=2, queries=10)
        copy = con.randomize(ASKED, epsilon=1)
        receipts = json.dumps(
            [{**part.receipt.to_dict(), "entries": ()} for part in (made, stream, copy)],
            default=str,
            sort_keys=True,
        )
        seen.add((made.columns, made.types, receipts, json.dumps(charged(con), default=str, sort_keys=True)))
    assert len(seen) == 1


def test_statement_is_that_of_a_count(rows: list[Row]) -> None:
    """The engine runs the statement of a noisy count by the same columns, so no new SQL can fail on a row."""
    con = world(*rows)
    sent: list[str] = []
    backend = con.engine.backend
    run = backend.run_statement
    object.__setattr__(backend, "run_statement", lambda sql: (sent.append(sql), run(sql))[1])
    con.synthetic(ASKED, epsilon=1, workload="marginals(2)")
    con.query(
        "SELECT city, member, COUNT(*) AS n FROM people WHERE age < 50 GROUP BY city, member", epsilon=0.01
    )
    con.synthetic(ASKED, epsilon=1, method="mst")
    assert len(sent) == 3
    assert sent[0].count("GROUP BY") == sent[1].count("GROUP BY")
    # A tree of pairs reads the same count, and what it adds up are its keys and numbers of rows.
    assert sent[0] in sent[2]


def test_repeated_query_replays_the_same_table(rows: list[Row]) -> None:
    """A table is drawn once, also after the rows have changed, so averaging gains nothing."""
    con = world(*rows)
    first = con.synthetic(ASKED, epsilon=1, rounds=1)
    drawn = words_drawn(con)
    hold(con, [])
    for words in (ASKED, ASKED.lower(), "SELECT p.city, p.member FROM people AS p WHERE p.age < 50"):
        again = con.synthetic(words, epsilon=1, rounds=1)
        assert again.cells == first.cells
    assert words_drawn(con) == drawn
    assert spent(con) == 1


def test_naive_table_reveals_the_number_of_rows(rows: list[Row]) -> None:
    """A generator that makes as many rows as it has read tells one unit from the number; here that number is noisy."""
    lone = person(77, city="Kiel", member=False)

    def sizes(people: list[Row]) -> set[int]:
        con, found = world(*people), set()
        for _ in range(6):
            made = con.synthetic("SELECT city FROM people", epsilon=1, workload=["city"], replay=False)
            found.add(len(made))
        return found

    assert len([*rows, lone]) != len(rows)  # the careless number
    assert sizes(rows) & sizes([*rows, lone])
    assert len(sizes(rows)) > 2


def test_stream_reads_its_rows_once(rows: list[Row]) -> None:
    """No answer uses rows that come after the stream was opened: the guarantee is about one database."""
    con = world(*rows)
    stream = con.stream("SELECT city FROM people", epsilon=30, updates=3, queries=10)
    hold(con, [person(who) for who in range(500)])
    for _ in range(5):
        assert stream.count(city="Bonn").value < 100


def test_failure_of_a_stream_reveals_nothing(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle of an answer has constant text and no frames, ends the stream, and is recorded as a failure."""
    from dpsql.privacy.synthesis.stream import RunningStream

    con = world(*rows)
    stream = con.stream("SELECT city FROM people", epsilon=1, updates=3, queries=10)

    def broken(self: RunningStream, _: Any) -> int:
        raise ValueError(f"exactly {self._exact.sum()} rows")

    monkeypatch.setattr(RunningStream, "_estimate_count", broken)
    with pytest.raises(dpsql.InternalError) as caught:
        stream.count(city="Bonn")
    assert "exactly" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or "exactly" not in str(caught.value.__context__)
    monkeypatch.undo()
    with pytest.raises(dpsql.OperationalError) as ended:
        stream.count(city="Bonn")
    assert ended.value.code == "stream_ended"
    assert [entry.kind for entry in con.engine.ledger.list_entries()] == ["charge", "failure"]
