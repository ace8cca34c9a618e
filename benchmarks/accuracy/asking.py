"""Asks every system and brings the answers together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy import ours
from benchmarks.accuracy.data import DELTA, Asked, answer, asked, database
from benchmarks.accuracy.environments import ROOT, NotInstalledError, Peer, python
from benchmarks.accuracy.errors import Answer
from benchmarks.accuracy.peers.job import append, lines_of
from benchmarks.accuracy.questions import Question

OURS = "dpsql"
Told = Sequence[Answer] | str
"""Answers, or why there is none."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked, how often, where the peers are kept, and where what they say, if it is kept."""

    questions: Sequence[Question]
    epsilons: Sequence[float]
    runs: int
    scale: str
    peers: Sequence[Peer]
    environments: Path
    answers: Path | None = None

    @property
    def every(self) -> list[tuple[str, float]]:
        """Each question at each ε."""
        return [(question.name, epsilon) for question in self.questions for epsilon in self.epsilons]


@dataclass(frozen=True, slots=True)
class Said:
    """What a system said to a question at an ε."""

    system: str
    question: str
    epsilon: float
    told: Told


def ask(asking: Asking) -> tuple[list[Asked], list[Said]]:
    """The questions with their exact answers, and what each system said.

    Where answers are kept, what is there already is not asked again: an interrupted run goes on. Raises
    ValueError if they are answers to something else.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = asking.answers or folder
        _same(asking, answers)
        with database(folder, asking.scale, {question.data for question in asking.questions}) as path:
            questions = asked(path, folder, asking.questions)
            _ours(path, asking, answers / f"{OURS}.jsonl")
            found = _said(OURS, asking, answers / f"{OURS}.jsonl", "was not asked")
            for peer in asking.peers:
                found += _peer(peer, asking, questions, folder, answers / f"{peer.module}.jsonl")
    return questions, found


def _same(asking: Asking, answers: Path) -> None:
    """Notes down whose answers these are, or compares with what was noted."""
    answers.mkdir(parents=True, exist_ok=True)
    note, words = (
        answers / "asked.json",
        json.dumps({"scale": asking.scale, "runs": asking.runs, "delta": DELTA}),
    )
    if note.exists() and note.read_text(encoding="utf-8") != words:
        raise ValueError(f"{answers} holds answers at another scale, or another number of them")
    note.write_text(words, encoding="utf-8")


def _ours(path: Path, asking: Asking, written: Path) -> None:
    known = {(line["question"], line["epsilon"]) for line in lines_of(written)}
    for question in asking.questions:
        for epsilon in asking.epsilons:
            if (question.name, epsilon) not in known:
                start = time.monotonic()
                told = ours.answers(path, question, epsilon, asking.runs)
                line = {"refused": told} if isinstance(told, str) else {"answers": told}
                append(written, {**line, "question": question.name, "epsilon": epsilon})
                _say(f"{question.name}, ε = {epsilon}: {time.monotonic() - start:.1f} s")


def _peer(peer: Peer, asking: Asking, questions: Sequence[Asked], folder: Path, written: Path) -> list[Said]:
    _say(peer.name)
    try:
        interpreter = python(peer, asking.environments)
    except NotInstalledError as failed:
        return _said(peer.name, asking, written, f"not installed: {failed}")
    job = folder / "job.json"
    told = {
        "epsilons": asking.epsilons,
        "delta": DELTA,
        "runs": asking.runs,
        "questions": [question.for_peers() for question in questions],
    }
    job.write_text(json.dumps(told), encoding="utf-8")
    command = [str(interpreter), "-m", f"benchmarks.accuracy.peers.{peer.module}", str(job), str(written)]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    return _said(peer.name, asking, written, "its process ended without an answer")


def _said(system: str, asking: Asking, written: Path, otherwise: str) -> list[Said]:
    found = read(lines_of(written), asking.questions)
    return [Said(system, *asked, found.get(asked, otherwise)) for asked in asking.every]


def read(lines: Sequence[Mapping[str, Any]], questions: Sequence[Question]) -> dict[tuple[str, float], Told]:
    """What a system said, by question and ε."""
    keys = {question.name: len(question.keys) for question in questions}
    return {
        (line["question"], line["epsilon"]): line["refused"]
        if "refused" in line
        else [answer(rows, keys[line["question"]]) for rows in line["answers"]]
        for line in lines
        if line["question"] in keys
    }


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
