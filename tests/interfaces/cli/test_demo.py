"""`dpsql demo`, and that what it says of its data is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from interfaces.cli.conftest import Run

from dpsql.interfaces import demo as tour
from dpsql.interfaces.demo import QUESTIONS, Question
from dpsql.policy import load

PLAN, VISITS = 0, 2


def test_demo_runs_five_queries(run: Run) -> None:
    """For each: the query, the private answer with interval, the true one, the budget left."""
    ran = run("demo")
    assert (ran.code, ran.err) == (0, "")
    assert len(QUESTIONS) == 5
    for number, question in enumerate(QUESTIONS, 1):
        assert f"\n{number}. {question.title}\n" in ran.out
        assert "\n".join(f"    {line}" for line in question.sql.splitlines()) in ran.out
    assert ran.out.count("±95%  ") >= 5
    assert len(re.findall(r"(?m)^charged to rand_hie: ε 0.2 .*% left", ran.out)) == 5
    assert "20,190" in ran.out
    assert "\x1b" not in ran.out


def test_the_saved_demo_can_be_queried(run: Run, tmp_path: Path) -> None:
    """`--save` keeps database, policy and ledger, and never touches those of an earlier run."""
    directory = tmp_path / "new" / "hie"
    saved = run("demo", "--save", directory)
    assert f"dpsql shell {directory / 'rand_hie.duckdb'}" in saved.out
    assert run("check", directory / "rand_hie.yaml", directory / "rand_hie.duckdb").code == 0
    shown = run("budget", "-p", directory / "rand_hie.yaml").out
    assert shown.splitlines()[2].split()[3] == "5"
    again = run("demo", "--save", directory)
    assert (again.code, "error[file_exists]" in again.err) == (1, True)
    assert run("budget", "-p", directory / "rand_hie.yaml").out == shown


def test_the_data_is_the_study() -> None:
    """20,190 rows with the codebook's columns, none of them NULL."""
    assert tour.compute_true_rows("SELECT COUNT(*) FROM rand_hie") == [(20_190,)]
    names = [row[0] for row in tour.compute_true_rows("SELECT column_name FROM (DESCRIBE rand_hie)")]
    assert names == list(load(_policy()).tables["rand_hie"].columns)
    ((missing,),) = tour.compute_true_rows(
        f"SELECT SUM(({' OR '.join(f'{name} IS NULL' for name in names)})::INT) FROM rand_hie"
    )
    assert missing == 0


def _policy() -> str:
    return (Path(tour.__file__).parent / "rand_hie.yaml").read_text(encoding="utf-8")


def test_bounds_are_no_copies_of_the_data() -> None:
    """No bound of a measured column is its smallest or largest value, but for the natural 0 and 1."""
    for name, column in load(_policy()).tables["rand_hie"].columns.items():
        if column.numeric_bounds is None:
            continue
        ((low, high),) = tour.compute_true_rows(f"SELECT MIN({name}), MAX({name}) FROM rand_hie")
        assert column.numeric_bounds[0] == 0 <= low
        assert float(column.numeric_bounds[1]) == 1 or float(column.numeric_bounds[1]) != high


def question(words: str) -> Question:
    (found,) = (each for each in QUESTIONS if words in each.title)
    return found


def test_the_remarks_are_true() -> None:
    """What the demo says of its data can be read off the data."""
    ((whole, clamped),) = tour.compute_true_rows("SELECT AVG(mdvis), AVG(LEAST(mdvis, 52)) FROM rand_hie")
    assert 0 < whole - clamped < 0.01
    visits = {row[PLAN]: row[VISITS] for row in tour.compute_true_rows(question("paying part").select)}
    assert 1.6 < visits["free care"] / visits["pays 95%"] < 1.75
    sizes = [row[1] for row in tour.compute_true_rows(question("incentive").select)]
    assert min(sizes) == 1 < max(sizes)


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.title)
def test_the_true_answers_cover_every_group(asked: Question) -> None:
    """Exact answers are found by the keys, which name each row once."""
    rows = tour.compute_true_rows(asked.select)
    assert len({row[: asked.keys] for row in rows}) == len(rows)
