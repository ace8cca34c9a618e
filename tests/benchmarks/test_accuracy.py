"""The accuracy benchmark runs without any peer, and its questions mean the same to dpsql and to peers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.accuracy import data, ours
from benchmarks.accuracy.errors import errors
from benchmarks.accuracy.questions import QUESTIONS, Question

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, data.Asked]]:
    """A small database and each question over it; the exact answers of both forms are compared here."""
    folder = tmp_path_factory.mktemp("accuracy")
    with data.database(folder, "0.001", {question.data for question in QUESTIONS}) as path:
        found = data.asked(path, folder, QUESTIONS)
    return path, {one.question.name: one for one in found}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_answer_is_exact_with_little_noise(
    asked: tuple[Path, dict[str, data.Asked]], question: Question
) -> None:
    """Bounds and public keys hold for the data, and dpsql answers the same queries as its peers."""
    path, known = asked
    told = ours.answers(
        path, question, 1e8, 1
    )  # at 1e6 the noise of a small group is as large as the tolerance
    assert not isinstance(told, str)
    truth, found = known[question.name].truth, data.answer(told[0], len(question.keys))
    assert truth.keys() <= found.keys() or question.seeks_keys
    for group in truth.keys() & found.keys():
        # A released median is one of the points between the two values in the middle.
        near = 1e-2 if "MEDIAN" in question.sql else 1e-4
        assert found[group] == pytest.approx(truth[group], rel=near)


def test_two_answers_differ(asked: tuple[Path, dict[str, data.Asked]]) -> None:
    """The scan is remembered, the noise is not."""
    path, known = asked
    (question,) = (one for one in QUESTIONS if one.name == "TPC-H sum")
    told = ours.answers(path, question, 1.0, 5)
    assert not isinstance(told, str)
    answers = [data.answer(rows, 0) for rows in told]
    assert len({answer[()] for answer in answers}) == 5
    assert errors(known[question.name].truth, answers, 0).rmse > 0


def test_ambiguous_query_is_found(tmp_path: Path) -> None:
    """A flat table that is not what the query reads is no comparison."""
    wrong = Question(
        "wrong", "hie", "SELECT COUNT(*) FROM rand_hie", "SELECT 1 AS unit", QUESTIONS[0].outputs
    )
    with (
        data.database(tmp_path, "0.001", {"hie"}) as path,
        pytest.raises(ValueError, match="different exact answers"),
    ):
        data.asked(path, tmp_path, [wrong])


def test_program_prints_a_line_for_each_number() -> None:
    """The lines have the errors of dpsql at each ε, and the reason of each refusal."""
    command = [sys.executable, "-m", "benchmarks.accuracy", "--peers", "--scale", "0.001", "--runs", "2"]
    run = subprocess.run(
        [*command, "--epsilons", "1", "3", "--questions", "HIE count"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    asked = [question for question in QUESTIONS if "HIE count" in question.name]
    for question in asked:
        for output in question.outputs:
            assert run.stdout.count(f"| {question.name}: {output.name} ") == 4
    assert "TPC-H count" not in run.stdout
