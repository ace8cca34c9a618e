"""Spark Connect: a session and an address answer alike, exact and by clamps, and leave the owner's session as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from engines import sparks

from dpsql.backends.spark import session as sessions
from dpsql.errors import OperationalError

_SCRIPT = """
import sys
import dpsql
from dpsql.engine.replay.replays import plan_and_match
from pyspark.sql import SparkSession

settings = {
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": sys.argv[1],
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}
builder = SparkSession.builder.remote("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
session.sql(
    "CREATE TABLE visits USING parquet AS SELECT CAST(id % 300 AS BIGINT) AS person, CAST(id % 90 AS DOUBLE) AS cost, "
    "ELT(id % 3 + 1, 'a', 'b', 'c') AS kind FROM range(3000)"
).collect()
columns = {"cost": {"type": "double", "bounds": [0, 100]}, "kind": {"type": "varchar", "values": ["a", "b", "c"]}}
policy = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {"visits": {"unit": "person", "rows_per_unit": 400, "columns": columns}},
}
sums = {row.kind: (row.c, row.s) for row in session.sql(
    "SELECT kind, COUNT(*) AS c, SUM(cost) AS s FROM visits GROUP BY kind"
).collect()}
for database in (session, "sc://localhost:15002"):
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=10**15) as con:
        sql = "SELECT kind, COUNT(*) AS c, SUM(cost) AS s FROM visits WHERE kind IS NOT NULL GROUP BY kind"
        assert {kind: (count, total) for kind, count, total in con.query(sql).rows} == sums
        query = con._queries.build_query("SELECT kind, COUNT(*) FROM visits GROUP BY kind", (), {"epsilon": 1})
        assert plan_and_match(con.engine, query).single_release.plan.clamps
        near = con.query("SELECT kind, COUNT(*) FROM visits GROUP BY kind", epsilon=10**6)
        assert all(abs(count - 1000) < 50 for kind, count in near.rows if kind is not None)
        assert con.engine.backend.find_origin("visits") is not None
assert session.sql("SELECT COUNT(*) FROM visits").collect()[0][0] == 3000
assert not [row for row in session.sql("SHOW VIEWS").collect()]
print("answered", flush=True)
session.stop()
"""


def test_unreachable_server_raises_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes soon, without the address's token; pyspark itself tries for minutes."""
    sparks.require()
    monkeypatch.setattr(sessions, "_PATIENCE", 0.1)
    with pytest.raises(OperationalError) as caught:
        sessions.open_session("sc://127.0.0.1:1/;token=secret")
    assert caught.value.code == "no_database"
    assert "secret" not in repr(caught.value)
    assert caught.value.__context__ is None


def test_session_is_closed_once() -> None:
    """Python's collector, which may run within another session's statement, does not close it again."""
    sparks.require()
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(connection="sc://127.0.0.1:1")
    with mock.patch.object(ExecutePlanResponseReattachableIterator, "shutdown") as shutdown:
        with mock.patch.object(session.client, "release_session"):
            sessions.close_session(session, owned=True)
        assert shutdown.call_count == 1
        session.__del__()
        assert shutdown.call_count == 1


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_session_and_address_have_equal_answers(tmp_path: Path) -> None:
    """Each kind runs in a process of its own, as one process has one kind of session."""
    sparks.require()
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "warehouse")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.splitlines()[-1] == "answered"
