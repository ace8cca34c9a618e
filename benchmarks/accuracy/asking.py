"""Asks every system and brings the answers together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy import ours
from benchmarks.accuracy.data import DELTA, Asked, answer, asked, database
from benchmarks.accuracy.environments import ROOT, NotInstalledError, Peer, python
from benchmarks.accuracy.errors import Answer
from benchmarks.accuracy.questions import Question

OURS = "dpsql"
Told = Sequence[Answer] | str
"""Answers, or why there is none."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked, how often, and where the peers are kept."""

    questions: Sequence[Question]
    epsilons: Sequence[float]
    runs: int
    scale: str
    peers: Sequence[Peer]
    environments: Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a system said to a question at an ε."""

    system: str
    question: str
    epsilon: float
    told: Told


def ask(asking: Asking) -> tuple[list[Asked], list[Said]]:
    """The questions with their exact answers, and what each system said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database(folder, asking.scale, {question.data for question in asking.questions}) as path:
            questions = asked(path, folder, asking.questions)
            found = list(_ours(path, asking))
            for peer in asking.peers:
                found += _peer(peer, asking, questions, folder)
    return questions, found


def _ours(path: Path, asking: Asking) -> Iterable[Said]:
    for question in asking.questions:
        for epsilon in asking.epsilons:
            start = time.monotonic()
            told = ours.answers(path, question, epsilon, asking.runs)
            _say(f"{question.name}, ε = {epsilon}: {time.monotonic() - start:.1f} s")
            yield Said(OURS, question.name, epsilon, told)


def _peer(peer: Peer, asking: Asking, questions: Sequence[Asked], folder: Path) -> list[Said]:
    every = [(question, epsilon) for question in asking.questions for epsilon in asking.epsilons]
    _say(peer.name)
    try:
        interpreter = python(peer, asking.environments)
    except NotInstalledError as failed:
        return [
            Said(peer.name, question.name, epsilon, f"not installed: {failed}") for question, epsilon in every
        ]
    job, written = folder / "job.json", folder / f"{peer.module}.jsonl"
    told = {
        "epsilons": asking.epsilons,
        "delta": DELTA,
        "runs": asking.runs,
        "questions": [question.for_peers() for question in questions],
    }
    job.write_text(json.dumps(told), encoding="utf-8")
    command = [str(interpreter), "-m", f"benchmarks.accuracy.peers.{peer.module}", str(job), str(written)]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    found = read(written.read_text(encoding="utf-8") if written.exists() else "", asking.questions)
    ended = "its process ended without an answer"
    return [
        Said(peer.name, question.name, epsilon, found.get((question.name, epsilon), ended))
        for question, epsilon in every
    ]


def read(text: str, questions: Sequence[Question]) -> dict[tuple[str, float], Told]:
    """What a peer wrote, by question and ε."""
    keys = {question.name: len(question.keys) for question in questions}
    lines = [json.loads(line) for line in text.splitlines()]
    return {
        (line["question"], line["epsilon"]): line["refused"]
        if "refused" in line
        else [answer(rows, keys[line["question"]]) for rows in line["answers"]]
        for line in lines
    }


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
