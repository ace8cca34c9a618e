"""What a peer is told, and how its answers come back. Only the standard library is used here."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

Rows = Sequence[Sequence[Any]]
"""An answer: keys, then outputs."""
Ask = Callable[[], Rows]
"""Asks once more: each call is a new answer, with noise of its own."""


class Refused(Exception):  # noqa: N818
    """The peer does not answer this, for the reason given."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question over one flat table; the fields are those of `benchmarks.accuracy.data.Asked.for_peers`."""

    name: str
    table: str
    rows: int
    whole: Sequence[str]
    keys: Sequence[tuple[str, Sequence[str] | None]]
    outputs: Sequence[tuple[str, str, str | None]]
    bounds: Mapping[str, tuple[float, float]]
    row_is_unit: bool
    rows_per_unit: int
    groups_per_unit: int

    @property
    def key_names(self) -> list[str]:
        """The key columns."""
        return [name for name, _ in self.keys]

    @property
    def public_keys(self) -> list[tuple[str, ...]] | None:
        """Every group, or None where nobody knows them."""
        if any(values is None for _, values in self.keys):
            return None
        return list(product(*(values or () for _, values in self.keys)))

    @property
    def public_size(self) -> int:
        """A public bound on the rows of the table: the next power of ten."""
        return 10 ** len(str(self.rows))

    def sql(self, functions: Mapping[str, str] | None = None) -> str:
        """The question in SQL, with a peer's own names of functions."""
        named = functions or {}
        outputs = [
            f"{named.get(function, function)}({column or '*'}) AS {name}"
            for name, function, column in self.outputs
        ]
        grouped = f" GROUP BY {', '.join(self.key_names)}" if self.keys else ""
        return f"SELECT {', '.join([*self.key_names, *outputs])} FROM t{grouped}"


def serve(prepare: Callable[[Question, float, float], Ask]) -> None:
    """Answers the job that the program's first argument names, line by line into the file that the second names.

    `prepare(question, epsilon, delta)` does once what may be done once; what it returns is then called for
    each answer. What the file answers already is not asked again.
    """
    job, written = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    known = {(line["question"], line["epsilon"]) for line in lines_of(written)}
    for told in job["questions"]:
        question = Question(**told)
        for epsilon in job["epsilons"]:
            if (question.name, epsilon) not in known:
                start = time.monotonic()
                line = _answered(prepare, question, epsilon, job)
                append(written, {**line, "question": question.name, "epsilon": epsilon})
                print(f"{question.name}, ε = {epsilon}: {time.monotonic() - start:.1f} s", file=sys.stderr)


def lines_of(written: Path) -> list[dict[str, Any]]:
    """What a system has said so far; nothing if the file is not there."""
    text = written.read_text(encoding="utf-8") if written.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def append(written: Path, line: Mapping[str, Any]) -> None:
    """Adds a line to what a system has said."""
    with written.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line, default=str) + "\n")


def _answered(
    prepare: Callable[[Question, float, float], Ask], question: Question, epsilon: float, job: dict[str, Any]
) -> dict[str, Any]:
    try:
        ask = prepare(question, epsilon, job["delta"])
        return {"answers": [[list(row) for row in ask()] for _ in range(job["runs"])]}
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # noqa: BLE001  (a panic of Rust is no Exception; a refusal is a result)
        words = str(failed).strip().splitlines() or [""]
        return {"refused": f"{type(failed).__name__}: {words[0]}"[:300]}
