"""A16, a crash within an answer: whatever was read or seen is charged, at whatever step the process dies.

The ledger alone is tried in test_a16_crash.py; here the whole of `Connection.query`. Run as a program, this
file is the one that forks and kills: a fresh interpreter, without threads of a database engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dying import Listener, changed_something, dying_at, heard_from, listening
from speeds import examples
from worlds import close_all, connected, prepared

from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine import stages
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun
from dpsql.engine.release.exact_release import open_exact_release
from dpsql.ledger import Budget, open_ledger

POLICY = {
    "budget": {"epsilon": 900},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
BUDGETS = {"people": Budget("pure", Fraction(900), Fraction(0))}
QUERY = "SELECT COUNT(*), AVG(age) + 1 FROM people"
DATAFLOW = {
    *(
        "Connection.query",
        "plan_and_match",
        "parse_cached",
        "lower_statement",
        "analyze_release",
        "choose_plan",
        "verify_plan",
        "emit_release",
    ),
    *(
        "answer_query",
        "charge_query",
        "SqlLedger.charge",
        "SqliteStore.open_transaction",
        "DuckDBBackend.run_statement",
    ),
    *(
        "ScratchDatabase.run_query",
        "Exact.reveal",
        "draw_release",
        "Geometric.draw",
        "ScratchDatabase.fill_table",
        "build_result",
    ),
}
EVENLY, INSTANTS, NAIVE = examples(examples(160)), examples(20), examples(20, least=10)
KILLS = EVENLY + 40
READ, SEEN = b"read;", b"seen;"

Asking = Callable[[Connection, int], None]


def world(ledger: Path) -> Connection:
    """A few thousand people, and the ledger at this path."""
    database = duckdb.connect(config={"threads": 1})
    database.execute("CREATE TABLE people AS SELECT CAST(i % 100 AS INTEGER) AS age FROM range(5000) AS r(i)")
    return connected(database, POLICY, ledger=ledger)


def ask(connection: Connection, tell: int) -> None:
    """Asks the query and tells its answer."""
    rows = connection.query(QUERY, replay=False).rows
    os.write(tell, SEEN + repr(rows).encode())


def ask_before_paying(connection: Connection, tell: int) -> None:
    """A naive engine: it charges for an answer once that is given, and runs what is not charged."""
    charge, late = stages.charge_query, []

    def put_off(engine: Engine, plan: QueryRun) -> QueryRun:
        late.append((engine, plan))
        return plan

    stages.charge_query = put_off
    stages.run = lambda engine, _, part: open_exact_release(engine.backend, engine.entropy, part)
    ask(connection, tell)
    charge(*late[0])


def process(path: Path, asking: Asking, tell: int, steps: Listener | None) -> None:
    """A process that asks, and tells when it begins to read private rows and when it has an answer."""
    run = DuckDBBackend.run_statement

    def run_and_report(backend: DuckDBBackend, sql: str) -> Any:
        os.write(tell, READ)
        return run(backend, sql)

    DuckDBBackend.run_statement = run_and_report  # type: ignore[method-assign]
    connection = world(path)
    os.write(tell, b"asked;")
    with nullcontext() if steps is None else listening(steps):
        asking(connection, tell)


def steps_of(path: Path, asking: Asking) -> list[str]:
    """The names of all steps of a query that nobody kills."""

    def recorded(tell: int) -> None:
        names: list[str] = []
        process(path, asking, os.open(os.devnull, os.O_WRONLY), names.append)
        os.write(tell, json.dumps(names).encode())

    names: list[str] = json.loads(heard_from(recorded)[1])
    return names


def seconds_of(path: Path) -> float:
    """How long a query takes when nobody listens."""

    def timed(tell: int) -> None:
        connection, begun = world(path), time.monotonic()
        ask(connection, os.open(os.devnull, os.O_WRONLY))
        os.write(tell, str(time.monotonic() - begun).encode())

    return float(heard_from(timed)[1])


def chosen(names: list[str], evenly: int) -> list[tuple[str, int]]:
    """The steps to die at, as the n-th of a name: all of the dataflow and of SQLite, and others evenly between."""
    seen: Counter[str] = Counter()
    steps = []
    for index, name in enumerate(names):
        seen[name] += 1
        if name.split(" ")[1] in DATAFLOW or changed_something(name) or index % (len(names) // evenly) == 0:
            steps.append((name, seen[name]))
    return steps


def left_by(path: Path, dying: Callable[[int], None], patience: float | None = None) -> dict[str, Any]:
    """What a process told and what it added to the ledger, which is checked entry by entry."""
    killed, reported = heard_from(dying, patience)
    with closing(open_ledger(path, BUDGETS)) as ledger:
        entries, state = ledger.list_entries(), ledger.get_state("people")
    assert state.spent.loss == sum(entry.spend.loss for entry in entries)
    return {"killed": killed, "read": READ in reported, "seen": SEEN in reported, "entries": len(entries)}


def killed_at(step: tuple[str, int], path: Path, asking: Asking) -> dict[str, Any]:
    """A process killed at that step of its query."""
    name, count = step
    listener = dying_at(count, lambda taken: taken == name)
    return {"step": name, **left_by(path, lambda tell: process(path, asking, tell, listener))}


def killed_after(patience: float, path: Path) -> dict[str, Any]:
    """A process killed so many seconds after it was connected."""
    return {"step": "", **left_by(path, lambda tell: process(path, ask, tell, None), patience)}


def main(folder: Path, evenly: int, instants: int, naive: int) -> None:
    """Prints what the killed processes told and left, one after the other, on one ledger.

    They die at so many steps `evenly` between the others, and at so many `instants`; or the last so many of a `naive`
    engine.
    """
    path, asking = folder / "a.ledger", ask_before_paying if naive else ask
    # What is imported and compiled once is ready before the forks, and the engine's threads have ended.
    prepared(world(path), QUERY)
    close_all()
    steps = chosen(steps_of(path, asking), evenly)
    found = [killed_at(step, path, asking) for step in (steps[-naive:] if naive else steps)]
    if not naive:
        whole = seconds_of(path)
        found += [killed_after(whole * instant / instants, path) for instant in range(instants)]
    print(json.dumps(found))


def run(folder: Path, naive: int = 0) -> list[dict[str, Any]]:
    """What `main` prints, and how many charges each process left."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, __file__, str(folder), *map(str, (EVENLY, INSTANTS, naive))],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for before, death in pairwise([{"entries": 1}, *found]):  # one of the process that names the steps
        death["charged"] = death["entries"] - before["entries"]
    return found


def unpaid(death: dict[str, Any]) -> bool:
    """Whether private rows were read, or an answer was seen, without a durable charge."""
    return bool((death["read"] or death["seen"]) and death["charged"] != 1)


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was heard of each process before it died, and what it left in the ledger."""
    return run(tmp_path_factory.mktemp("deaths"))


def test_read_or_reported_answer_is_charged(deaths: list[dict[str, Any]]) -> None:
    """A process that began to read private rows, or reported an answer, left exactly one durable entry."""
    assert not [death for death in deaths if unpaid(death)]
    assert {death["charged"] for death in deaths} == {0, 1}


def test_processes_died_in_every_stage(deaths: list[dict[str, Any]]) -> None:
    """The test can fail: 200 were killed, or 50 in a shorter search, in each part of the dataflow, and on both sides of its effects."""
    killed = [death for death in deaths if death["killed"]]
    assert len(killed) >= KILLS
    assert {death["step"].partition(" ")[2] for death in killed} >= DATAFLOW
    assert {(death["read"], death["seen"], death["charged"]) for death in killed} == {
        (False, False, 0),
        (False, False, 1),
        (True, False, 1),
        (True, True, 1),
    }


def test_death_before_the_charge_costs_nothing(deaths: list[dict[str, Any]]) -> None:
    """Killed while preparing or before the ledger's commit: no entry; after the commit: one."""
    by_step = {death["step"]: death["charged"] for death in reversed(deaths)}  # the first time of each
    for step in (
        "call parse_cached",
        "return lower_statement",
        "return plan_and_match",
        "c_return Cursor.execute",
    ):
        assert by_step[step] == 0
    for step in ("c_return Connection.commit", "return SqlLedger.charge", "call DuckDBBackend.run_statement"):
        assert by_step[step] == 1


def test_charging_after_the_answer_is_observable(tmp_path: Path) -> None:
    """The attack works on a naive engine: killed in time, it has reported an answer that nobody pays for."""
    free = [death for death in run(tmp_path, NAIVE) if unpaid(death)]
    assert any(death["seen"] and death["killed"] for death in free)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
