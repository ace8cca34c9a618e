"""A16, a crash within an answer: whatever was read or seen is charged, at whatever step the process dies.

The ledger alone is tried in test_a16_crash.py; here the whole of `Connection.query`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = r"""
import json, os, signal, sys
from pathlib import Path
from worlds import connected, engine_of, person, world
import dpsql.engine
from dpsql.engine import Engine
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.scratch import Scratch
from dpsql.accounting.sqlite_ledger import SqliteLedger

POLICY = {
    "budget": {"epsilon": 9},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}
OWNERS = {
    "prepare": Engine, "charge": SqliteLedger, "run": DuckDBBackend, "release": dpsql.engine, "fill": Scratch,
    "_result": Engine,
}
DEATHS = [
    ("prepare", "after"), ("charge", "before"), ("charge", "after"), ("run", "before"), ("run", "after"),
    ("release", "before"), ("release", "after"), ("fill", "after"), ("_result", "after"),
]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def wrap(owner, name, when):
    inner = getattr(owner, name)
    def wrapped(*args, **kwargs):
        if when == "before":
            die()
        value = inner(*args, **kwargs)
        if when == "after":
            die()
        return value
    setattr(owner, name, wrapped)

def child(path, step, when, tell):
    database = world(person(1), person(2))
    run = DuckDBBackend.run
    def told(self, sql):
        os.write(tell, b"read ")
        return run(self, sql)
    DuckDBBackend.run = told
    if step is not None:
        wrap(OWNERS[step], step, when)
    connection = connected(engine_of(database), POLICY, ledger=path)
    os.write(tell, b"asked ")
    result = connection.query("SELECT COUNT(*), AVG(age) FROM people")
    os.write(tell, b"seen " + str(len(result)).encode())
    os._exit(0)

folder = Path(sys.argv[1])
report = []
for step, when in [(None, "never"), *DEATHS]:
    path = folder / f"{step}-{when}.ledger"
    reader, writer = os.pipe()
    if (process := os.fork()) == 0:
        try:
            child(path, step, when, writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        heard = pipe.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    report.append({"step": step, "when": when, "heard": heard, "code": code, "path": str(path)})
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was heard of each process before it died, and how many charges its ledger holds after."""
    from fractions import Fraction

    from dpsql.accounting import Budget, open_ledger

    folder = tmp_path_factory.mktemp("deaths")
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    report: list[dict[str, Any]] = json.loads(done.stdout)
    for death in report:
        if "asked" not in death["heard"]:
            raise AssertionError(f"{death['step']} was not reached: {done.stderr}")
        ledger = open_ledger(death["path"], {"people": Budget("pure", Fraction(9), Fraction(0))})
        death["entries"] = len(ledger.entries())
        ledger.close()
    return report


def test_what_was_read_or_seen_is_charged(deaths: list[dict[str, Any]]) -> None:
    """A process that began to read private rows, or told an answer, left a durable entry: exactly one."""
    for death in deaths:
        touched = "read" in death["heard"] or "seen" in death["heard"]
        assert death["entries"] == 1 if touched else death["entries"] <= 1, death


def test_the_processes_died_where_they_were_to_die(deaths: list[dict[str, Any]]) -> None:
    """The test can fail: each process but the first was killed, before and after the charge and the read."""
    codes = [death["code"] for death in deaths]
    assert codes == [0, *[-9] * (len(deaths) - 1)]
    assert deaths[0]["heard"].startswith("asked read seen")
    kinds = {("read" in death["heard"], death["entries"]) for death in deaths[1:]}
    assert kinds == {(False, 0), (False, 1), (True, 1)}


def test_a_death_before_the_charge_costs_nothing(deaths: list[dict[str, Any]]) -> None:
    """Killed while preparing or before the ledger's commit: no entry, and the file opens as ever."""
    free = [
        death
        for death in deaths
        if (death["step"], death["when"]) in {("prepare", "after"), ("charge", "before")}
    ]
    assert [death["entries"] for death in free] == [0, 0]
