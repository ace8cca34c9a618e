"""Airflow's SQL operator and its hook against a server, where Airflow is installed: in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from .conftest import PASSWORD, Served

ASK = """
import json
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.providers.postgres.hooks.postgres import PostgresHook
counted = PostgresHook(postgres_conn_id="hie").get_records(
    "SELECT plan, COUNT(*) AS n FROM visits WHERE cost > %s GROUP BY plan", parameters=(100,))
task = SQLExecuteQueryOperator(task_id="ask", conn_id="hie", sql="SELECT plan, AVG(cost) AS c FROM visits GROUP BY plan")
print(json.dumps([sorted(map(list, counted)), sorted(map(list, task.execute({})))]))
"""


@pytest.mark.deep
def test_an_airflow_hook_and_an_operator_run_queries(served: Served, tmp_path: Path) -> None:
    """Each question is charged once: the default of the driver, to open a transaction, changes nothing."""
    python = os.environ.get("DPSQL_AIRFLOW")
    if python is None:
        pytest.skip("DPSQL_AIRFLOW names the Python of an environment with apache-airflow-providers-postgres")
    url = f"postgres://ana:{quote(PASSWORD)}@127.0.0.1:{served.port}/clinic?options={quote('-c dpsql.epsilon=0.25')}"
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW_CONN_HIE": url}
    del environment["DPSQL_AIRFLOW"]
    done = subprocess.run(
        [python, "-c", ASK], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    counted, averaged = json.loads(done.stdout.splitlines()[-1])
    assert [row[0] for row in counted] == [row[0] for row in averaged] == ["A", "B"]
    assert len([event for event in served.audit if event.name == "answered" and event.facts["charged"]]) == 2
