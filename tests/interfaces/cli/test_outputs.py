"""Answers in files, queries in files, and the exit codes that a script tells apart."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from interfaces.cli.conftest import Run

SQL = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY plan"


@pytest.mark.parametrize("ending", ["csv", "json", "md", "parquet", "txt"])
def test_an_answer_goes_into_a_file(ending: str, run: Run, study: Path, tmp_path: Path) -> None:
    """In the format of its ending, or as a table; what it cost stands on standard error."""
    target = tmp_path / f"answer.{ending}"
    ran = run("query", study, SQL, "-e", 1, "--output", target)
    assert (ran.code, ran.out) == (0, "")
    assert "charged to visits" in ran.err
    if ending == "parquet":
        found = pyarrow.parquet.read_table(target)
        assert found.column_names == ["plan", "n", "n_low", "n_high"]
        assert found["plan"].to_pylist() == ["A", "B", "C"]
        return
    text = target.read_text(encoding="utf-8")
    beginning = {"csv": "plan,n,n_low,n_high", "json": "{", "md": "| plan |", "txt": "plan"}[ending]
    assert text.startswith(beginning)


def test_columns_of_one_name_are_numbered_in_parquet(run: Run, study: Path, tmp_path: Path) -> None:
    """As in CSV, so that nothing is charged and then not written."""
    target = tmp_path / "answer.parquet"
    sql = "SELECT COUNT(*) AS n, COUNT(*) AS n, 1 AS n_low, HISTOGRAM(plan) AS h FROM visits"
    assert run("query", study, sql, "-e", 1, "-o", target).code == 0
    names = ["n", "n_low", "n_high", "n_2", "n_low_2", "n_high_2", "n_low_3", "h"]
    assert pyarrow.parquet.read_table(target).column_names == names
    assert run("query", study, sql, "-e", 1, "-f", "csv").out.splitlines()[0] == ",".join(names)


def test_the_format_goes_before_the_ending(run: Run, study: Path, tmp_path: Path) -> None:
    """JSON in a file of any name."""
    target = tmp_path / "answer.txt"
    assert run("query", study, SQL, "-e", 1, "-f", "json", "-o", target).code == 0
    assert [row["plan"] for row in json.loads(target.read_text(encoding="utf-8"))["rows"]] == ["A", "B", "C"]


def test_a_file_that_cannot_be_written_loses_nothing(run: Run, study: Path, tmp_path: Path) -> None:
    """The same question is free; Parquet without a file is refused before the charge."""
    ran = run("query", study, SQL, "-e", 1, "-o", tmp_path / "gone" / "answer.csv")
    assert (ran.code, "error[not_written]" in ran.err) == (1, True)
    assert "nothing was charged" in run("query", study, SQL, "-e", 1).out
    ran = run("query", study, "SELECT COUNT(*) FROM visits", "-e", 1, "-f", "parquet")
    assert (ran.code, "error[argument]" in ran.err) == (1, True)
    assert "1 charge" not in run("budget", "--policy", study.with_suffix(".yaml")).out


@pytest.mark.parametrize(
    ("sql", "epsilon", "code"),
    [("SELECT nothing FROM visits", 1, 3), (SQL, 900, 4), (SQL, "x", 2), (SQL, 1, 0)],
)
def test_exit_codes_distinguish_errors(sql: str, epsilon: object, code: int, run: Run, study: Path) -> None:
    """A refused query, an insufficient budget and invalid options have codes of their own."""
    assert run("query", study, sql, "-e", epsilon).code == code


@pytest.fixture
def queries(study: Path, tmp_path: Path) -> list[Path]:
    """Two files beside the study, of which one has two queries."""
    assert study == tmp_path / "study.duckdb"
    files = [tmp_path / "monthly.sql", tmp_path / "people.sql"]
    files[0].write_text(f"{SQL};\nSELECT AVG(cost) AS mean FROM visits", encoding="utf-8")
    files[1].write_text("SELECT COUNT(DISTINCT patient_id) AS people FROM visits;", encoding="utf-8")
    return files


def test_run_answers_all_queries_of_files(run: Run, study: Path, queries: list[Path], tmp_path: Path) -> None:
    """Named after the files; --check charges nothing; the second time is free."""
    folder = tmp_path / "out"
    checked = run("run", *queries, "--database", study, "-e", 0.5, "--check")
    assert (checked.code, "fits" in checked.out, folder.exists()) == (0, True, False)
    for said in ("monthly.csv: 3 rows\n", "monthly.csv: 3 rows, nothing was charged"):
        ran = run("run", *queries, "--database", study, "-e", 0.5, "-o", folder)
        assert (ran.code, said in ran.out) == (0, True)
    assert {path.name for path in folder.glob("*.csv")} == {"monthly.csv", "monthly_2.csv", "people.csv"}


@pytest.mark.parametrize(
    ("query", "epsilon", "ended"),
    [
        ("SELECT nothing FROM visits", 1, (3, "people:")),
        ("SELECT COUNT(*) FROM visits", 40, (4, "error[budget_exhausted]")),
        ("", 1, (0, "")),
    ],
)
def test_all_or_nothing(
    query: str, epsilon: float, ended: tuple[int, str], run: Run, queries: list[Path]
) -> None:
    """A query that is refused, or a budget that does not suffice for all, and nothing is charged."""
    queries[1].write_text(query, encoding="utf-8")
    folder, (code, words) = queries[0].with_name("out"), ended
    ran = run(
        "run", *queries, "--database", queries[0].with_name("study.duckdb"), "-e", epsilon, "-o", folder
    )
    assert (ran.code, words in ran.err) == (code, True)
    assert folder.exists() == (not code)


def test_run_refuses_queries_without_a_file_name(run: Run, study: Path, tmp_path: Path) -> None:
    """Before the database is opened."""
    strange, empty = tmp_path / "a b.sql", tmp_path / "empty.sql"
    strange.write_text(SQL, encoding="utf-8")
    empty.write_text("-- nothing", encoding="utf-8")
    for file in (strange, empty):
        ran = run("run", file, "--database", study, "-e", 1, "--check")
        assert (ran.code, "error[query_file]" in ran.err) == (1, True)
