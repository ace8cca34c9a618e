"""Executors that are processes of their own: rows that they hold are the same whatever is tried again, or they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engines import sparks

pytestmark = pytest.mark.deep
SCRIPT = """
import os, signal, subprocess, sys

import pyspark

os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from engines import sparks
from pyspark.sql import SparkSession

import dpsql
from dpsql.backends.spark.connection import SparkBackend

builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.executor.memory", "512m")
for name, value in sparks.SETTINGS.items():
    builder = builder.config(name, value)
session = builder.config("spark.sql.warehouse.dir", sys.argv[1]).getOrCreate()
session.sql("CREATE TABLE visits USING parquet AS SELECT id % 500 AS person, id % 4 AS d, id % 7 AS x FROM range(0, 20000, 1, 6)")
context = session.sparkContext
assert context._jsc.sc().getExecutorMemoryStatus().size() == 3, "the driver and two executors"
policy = {
    "version": 1, "privacy_unit": "person", "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {"visits": {"unit": "person", "rows_per_unit": 40, "max_groups": 4, "columns": {
        "d": {"type": "integer", "values": [0, 1, 2, 3]}, "x": {"type": "integer", "bounds": [0, 6]}}}},
}
exact = [tuple(row) for row in session.sql("SELECT d, COUNT(*), SUM(x) FROM visits GROUP BY d ORDER BY d").collect()]
with dpsql.connect(session, policy=policy, ledger=":memory:", epsilon=10**15) as con:
    answer = con.query("SELECT d, COUNT(*), SUM(x) FROM visits GROUP BY d ORDER BY d").rows
assert list(answer) == exact, (answer, exact)

backend = SparkBackend(session, private=["visits"])
held = ('"#held"', "SELECT person, COUNT(*) AS n, RAND() AS chance FROM spark_catalog.default.visits GROUP BY person")
asked = 'SELECT person, n, CAST(chance * 1e9 AS BIGINT) AS c FROM "#held" ORDER BY person'
with backend.stage_tables([held]):
    first = backend.run_statement(asked).reveal()
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    executors = [
        int(line.split()[0]) for line in listed.splitlines()
        if "CoarseGrainedExecutorBackend" in line and context.applicationId in line
        and str(os.getpid()) != line.split()[0]
    ]
    assert len(executors) == 2, executors
    os.kill(executors[0], signal.SIGKILL)
    try:
        outcome = "the same" if backend.run_statement(asked).reveal() == first else "other rows"
    except dpsql.BackendError:
        outcome = "failed"
assert backend.run_statement("SELECT COUNT(*) AS n FROM spark_catalog.default.visits").reveal() == [(20000,)], "others go on"
session.stop()
print(outcome)
"""


def test_lost_executor_loses_its_rows(tmp_path: Path) -> None:
    """A retried task gives an exact answer; a query fails once an executor with its rows is killed.

    Rows that are random would show that they were computed again.
    """
    sparks.require()
    paths = os.pathsep.join(str(Path(__file__).parents[number]) for number in (1, 2))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "warehouse")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[-2] in {"failed", "the same"}
