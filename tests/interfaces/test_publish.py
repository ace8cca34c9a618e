"""`dpsql publish`: all is checked before the first charge, and publishing again is free and gives the same files."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from interfaces.cli.conftest import Run, run, study

import dpsql

__all__ = ["run", "study"]
PUBLICATION = """
title: Visits of a small study
policy: study.yaml
database: study.duckdb
epsilon: 0.5
tables:
  visits_by_plan:
    title: Visits by plan
    note: Plans are those of the insurance.
    sql: |
      SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan
  people:
    epsilon: 0.25
    sql: SELECT COUNT(DISTINCT patient_id) AS people FROM visits
"""


@pytest.fixture
def publication(study: Path) -> Path:
    """A publication of two tables beside the small study."""
    file = study.with_name("release.yaml")
    assert study.name == "study.duckdb"
    file.write_text(PUBLICATION, encoding="utf-8")
    return file


def contents(folder: Path) -> Mapping[str, bytes]:
    """Each file of a folder with what it holds."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def charges(publication: Path) -> int:
    """The charges in the study's ledger."""
    policy = publication.with_name("study.yaml")
    with dpsql.connect(policy.with_suffix(".duckdb"), policy=policy) as connection:
        return sum(state.queries for state in connection.budget().values())


def test_tables_intervals_receipts_charts_and_methods_are_written(
    run: Run, study: Path, publication: Path, tmp_path: Path
) -> None:
    """One file of each kind a table, with the numbers of the ledger's releases; the note names ε, δ and the unit."""
    folder = tmp_path / "out" / "2026"
    ran = run("publish", publication, "--output", folder)
    assert (ran.code, "visits_by_plan.csv: 3 rows" in ran.out) == (0, True)
    kinds = ("csv", "parquet", "png", "receipt.json")
    assert set(contents(folder)) == {
        f"{name}.{kind}" for name in ("people", "visits_by_plan") for kind in kinds
    } | {"methods.md"}
    rows = list(csv.DictReader((folder / "visits_by_plan.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["plan"] for row in rows] == ["A", "B", "C"]
    assert all(float(row["n_low"]) < float(row["n"]) < float(row["n_high"]) for row in rows)
    with dpsql.connect(study, policy=study.with_suffix(".yaml")) as connection:
        again = connection.query(
            "SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan", epsilon="0.5"
        )
        assert not again.receipt.entries
        assert [int(row["n"]) for row in rows] == [row[1] for row in again.rows]
    receipt = json.loads((folder / "people.receipt.json").read_text(encoding="utf-8"))
    assert [entry["id"] for entry in receipt["entries"]] == [2]
    note = (folder / "methods.md").read_text(encoding="utf-8")
    for words in (
        "one patient",
        "| visits | 50 | 1e-6 | zcdp |",
        "Plans are those",
        "Entries of the ledger: 1.",
    ):
        assert words in note


def test_publishing_again_is_free_and_the_same(run: Run, publication: Path, tmp_path: Path) -> None:
    """Also where files are missing, as after an interruption: file for file, but for the receipt of what was free."""
    folder = tmp_path / "out"
    assert run("publish", publication, "-o", folder).code == 0
    before = contents(folder)
    for name in ("people.csv", "methods.md", "visits_by_plan.png"):
        (folder / name).unlink()
    ran = run("publish", publication, "-o", folder)
    assert (ran.code, "nothing was charged" in ran.out) == (0, True)
    assert contents(folder) == before
    assert charges(publication) == 2


def test_the_cost_of_all_is_known_before(run: Run, study: Path, publication: Path) -> None:
    """--check makes no ledger and no folder; its exit code says whether all fits."""
    ran = run("publish", publication, "--check")
    assert (ran.code, "fits" in ran.out) == (0, True)
    assert not study.with_suffix(".ledger").exists()
    publication.write_text(publication.read_text().replace("0.25", "49.9"), encoding="utf-8")
    assert run("publish", publication, "--check").code == 4


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("epsilon: 0.25", "epsilon: 49.9"), "budget_exhausted", "does not fit into the budget of visits"),
        (("DISTINCT patient_id", "DISTINCT nobody"), "column", "people:"),
        (("sql: SELECT", "sql: EXPLAIN SELECT"), "publication", "EXPLAIN"),
        (("epsilon: 0.5", "epsilom: 0.5"), "extra_forbidden", "line 5: epsilom"),
        (("epsilon: 0.5", "epsilon: -1"), "epsilon_range", "must be above 0"),
        (("epsilon: 0.5", "epsilon: lots"), "not_a_number", "epsilon"),
        (("  people:", "  ../people:"), "bad_name", "since files are named after it"),
        (("  people:", "  Visits_By_Plan:"), "bad_name", "differ only in case"),
        (("title: Visits of a small study", ""), "missing", "title: is missing"),
    ],
)
def test_an_invalid_publication_is_refused_before_any_charge(
    change: tuple[str, str], code: str, words: str, run: Run, publication: Path
) -> None:
    """The error names the key or the table; nothing is charged, and no folder is created."""
    text = publication.read_text(encoding="utf-8")
    assert change[0] in text
    publication.write_text(text.replace(*change), encoding="utf-8")
    folder = publication.with_name("out")
    ran = run("publish", publication, "-o", folder)
    assert ran.code == {"budget_exhausted": 4, "column": 3, "publication": 3}.get(code, 1)
    assert f"error[{code}]" in ran.err
    assert words in ran.err
    assert not folder.exists()
    assert charges(publication) == 0


def test_a_folder_that_cannot_be_written_is_named(run: Run, publication: Path, tmp_path: Path) -> None:
    """And so is a file that is missing, and the output that was not given."""
    (tmp_path / "taken").touch()
    for arguments, code in (
        ((publication, "-o", tmp_path / "taken"), "not_written"),
        ((tmp_path / "gone.yaml", "-o", tmp_path / "out"), "publication"),
        ((publication,), "argument"),
    ):
        ran = run("publish", *arguments)
        assert (ran.code, f"error[{code}]" in ran.err) == (1, True)


def test_texts_of_a_publication_are_escaped(run: Run, publication: Path, tmp_path: Path) -> None:
    """Titles stay single lines of the note, whatever they contain."""
    text = publication.read_text(encoding="utf-8")
    publication.write_text(text.replace("Visits by plan", '"a\\n# b | c"'), encoding="utf-8")
    folder = tmp_path / "out"
    assert run("publish", publication, "-o", folder).code == 0
    assert "## a # b \\| c\n" in (folder / "methods.md").read_text(encoding="utf-8")
