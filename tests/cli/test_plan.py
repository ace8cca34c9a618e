"""`dpsql simulate` and `dpsql plan`: invented rows, and how accurate answers would be at a size that is stated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import Run

QUERIES = (
    "SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan;\nSELECT nothing FROM visits;"
)


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    """A query that is answered, and one that is not."""
    file = tmp_path / "monthly.sql"
    file.write_text(QUERIES, encoding="utf-8")
    return file


def test_simulated_rows_are_asked_like_others(run: Run, study: Path, tmp_path: Path) -> None:
    """The database that is written answers under the policy; it is written once."""
    policy, fake = study.with_suffix(".yaml"), tmp_path / "fake.duckdb"
    made = run("simulate", policy, "--output", fake, "--units", 40)
    assert (made.code, "visits" in made.out) == (0, True)
    asked = run(
        "query", fake, "SELECT COUNT(*) FROM visits", "-e", 1, "-p", policy, "-l", tmp_path / "fake.ledger"
    )
    assert asked.code == 0
    again = run("simulate", policy, "--output", fake)
    assert (again.code, "error[file_exists]" in again.err) == (1, True)


def test_a_plan_says_how_accurate_queries_are(run: Run, study: Path, queries: Path, tmp_path: Path) -> None:
    """Errors fall with ε and what is refused is told with its place; no ledger is made, the database is not opened."""
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
