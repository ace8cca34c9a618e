"""`dpsql simulate` and `dpsql plan`: invented rows, and how accurate answers would be at a size that is stated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from interfaces.cli.conftest import Run

import dpsql
from dpsql.backends.simulated_rows import SimulationSize, open_simulated_database
from dpsql.policy import load

QUERIES = (
    "SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan;\nSELECT nothing FROM visits;"
)


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    """A query that is answered, and one that is not."""
    file = tmp_path / "monthly.sql"
    file.write_text(QUERIES, encoding="utf-8")
    return file


def test_simulated_rows_are_queried_under_their_own_policy(run: Run, study: Path, tmp_path: Path) -> None:
    """The database that is written answers under the policy beside it, with a ledger of its own; it is written once."""
    policy, fake = study.with_suffix(".yaml"), tmp_path / "fake.duckdb"
    made = run("simulate", policy, "--output", fake, "--units", 40)
    assert (made.code, "visits" in made.out) == (0, True)
    asked = run("query", fake, "SELECT COUNT(*) FROM visits", "-e", 1)
    assert asked.code == 0
    assert fake.with_suffix(".ledger").exists()
    assert not study.with_suffix(".ledger").exists()
    again = run("simulate", policy, "--output", fake)
    assert (again.code, "error[file_exists]" in again.err) == (1, True)


def test_plan_shows_the_accuracy_at_each_epsilon(
    run: Run, study: Path, queries: Path, tmp_path: Path
) -> None:
    """Errors fall with ε, and refusals name their place; no ledger is created, and the database is not opened."""
    study.unlink()
    picture = tmp_path / "errors.svg"
    ran = run(
        "plan",
        queries,
        "--policy",
        study.with_suffix(".yaml"),
        "--epsilons",
        "0.5,60",
        "--units",
        200,
        "--plot",
        picture,
    )
    assert ran.code == 1
    assert "error[column]" in ran.err
    halves = [float(found.replace(",", "")) for found in re.findall(r"\bn +([\d.,]+) ", ran.out)]
    assert halves[0] > 2 * halves[1]
    assert re.search(r"\d+ of \d+ +\d", ran.out)
    assert "no" in ran.out.split()  # ε 60 is more than the budget
    assert picture.read_text(encoding="utf-8").count("monthly.sql") >= 1
    assert not study.with_suffix(".ledger").exists()


def test_losses_are_numbers(run: Run, study: Path, queries: Path) -> None:
    """Anything else is a misuse of the option."""
    assert run("plan", queries, "--policy", study.with_suffix(".yaml"), "--epsilons", "much").code == 2


SOURCES = """
version: 1
privacy_unit: person
budget: {epsilon: 2}
tables:
  t:
    unit: id
    rows_per_unit: 4
    source: nowhere/*.parquet
    budget: {epsilon: 50, delta: 0.0000001, accountant: zcdp}
    columns: {g: {type: varchar, values: [a, "b: c"], nullable: false}, x: {type: double, bounds: [0, 0.25]}}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A policy whose table lies in files that are not there, with a budget of its own."""
    policy = tmp_path / "sources.yaml"
    policy.write_text(SOURCES, encoding="utf-8")
    return policy


def test_files_of_tables_are_not_opened(run: Run, sources: Path, tmp_path: Path) -> None:
    """What is written says all that the policy says, but for where its data lie."""
    fake = tmp_path / "fake.duckdb"
    assert run("simulate", sources, "--output", fake, "--units", 40).code == 0
    ours, theirs = load(fake.with_suffix(".yaml")), load(sources)
    assert ours.tables["t"].model_copy(update={"source": theirs.tables["t"].source}) == theirs.tables["t"]
    assert (ours.budget, ours.database == theirs.database) == (theirs.budget, False)
    assert run("query", fake, "SELECT g, SUM(x) FROM t GROUP BY g", "-e", 1).code == 0


def test_planned_errors_are_those_of_the_answer(run: Run, sources: Path, queries: Path) -> None:
    """Under the accountant of the table's own budget."""
    queries.write_text("SELECT g, COUNT(*) AS n FROM t GROUP BY g", encoding="utf-8")
    ran = run("plan", queries, "--policy", sources, "--epsilons", "0.5", "--units", 200)
    rules = load(SOURCES.replace("source:", "# "))
    with (
        open_simulated_database(rules, SimulationSize(200, 600)) as data,
        dpsql.connect(data, policy=rules, ledger=":memory:") as asked,
    ):
        low, high = asked.query(queries.read_text(encoding="utf-8"), epsilon="0.5").intervals()[0][1] or (
            0,
            0,
        )
    found = re.search(r"0\.5 +n +([\d.]+) ", ran.out)
    assert found is not None
    assert float(found[1]) == pytest.approx((high - low) / 2, rel=0.3)


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT COUNT(*) FROM t",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) COUNT(*) FROM t",
    ],
)
def test_plan_refuses_a_query_with_its_own_loss(run: Run, sources: Path, queries: Path, sql: str) -> None:
    """A query with its own loss cannot be planned at several losses."""
    queries.write_text(sql, encoding="utf-8")
    ran = run("plan", queries, "--policy", sources)
    assert (ran.code, "error[not_planned]" in ran.err) == (1, True)
