"""dbt, by its postgres adapter: `parse`, `run` and `show` against a server, as the page on Python's tools writes a project."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import PASSWORD, Served

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "python.md"


def blocks() -> dict[str, str]:
    """The files of a project that the page shows, by name."""
    return dict(
        re.findall(r'^```\w+ title="dbt: ([\w./]+)"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    )


def test_the_page_shows_a_whole_project() -> None:
    assert set(blocks()) == {
        "dbt_project.yml",
        "profiles.yml",
        "macros/answer.sql",
        "models/schema.yml",
        "models/cost_by_plan.sql",
    }


@pytest.mark.deep
def test_dbt_parses_runs_and_shows(served: Served, tmp_path: Path) -> None:
    """Where dbt is installed, in an environment of its own: it pins much of what others need newer."""
    dbt = os.environ.get("DPSQL_DBT") or shutil.which("dbt")
    if dbt is None:
        pytest.skip("there is no dbt here: DPSQL_DBT names it")
    for name, text in blocks().items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    profile = yaml.safe_load(blocks()["profiles.yml"])
    profile["hie"]["outputs"]["server"] |= {
        "port": served.port,
        "password": PASSWORD,
        "dbname": "clinic",
        "host": "127.0.0.1",
    }
    (tmp_path / "profiles.yml").write_text(yaml.safe_dump(profile))
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "0"}
    for command in (["parse"], ["run"], ["run"], ["compile"]):
        done = subprocess.run(
            [dbt, *command, "--profiles-dir", "."],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    with (tmp_path / "target" / "cost_by_plan.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["plan"] for row in rows] == ["A", "B"]
    assert len([event for event in served.audit if event.name == "answered" and event.facts["charged"]]) == 1
