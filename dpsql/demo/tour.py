"""The tour: question by question, the private answer, the true one, and what is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import dpsql
from dpsql.demo import exact
from dpsql.demo.questions import QUESTIONS, Question
from dpsql.loss import amount
from dpsql.result import Result, text
from dpsql.shell.answers import BESIDE, aligned, shown
from dpsql.shell.costs import charged
from dpsql.shell.view import View, dim, strong, table

if TYPE_CHECKING:
    from rich.table import Table

TRUE = "true"
_INTRO = (
    "The RAND Health Insurance Experiment gave American families a health insurance plan by lot and followed "
    "them for years: 20,190 person-years, in the public domain. Each question below is ordinary SQL. Its "
    "answer carries just enough noise to hide whether any one person-year is in the data; the file has no "
    "person id to hide more."
)
_READING = (
    "An interval (±95%) covers the noise: in 95 of 100 answers the value without noise lies within it. The "
    "column `true` comes from the public file, past dpsql. Nobody else may print it: the exact answers to one "
    "question with and without a person differ by that person. dpsql has no way to ask for one."
)
_OUTRO = "Run it again: other noise, the same story. README.md has the next steps."
_GO_ON = "To ask your own questions of this data: dpsql demo --save hie"


def run(view: View, write: Callable[[str], object], keep: Path | None = None) -> None:
    """Asks the five questions of a fresh copy of the data, with a fresh ledger.

    `keep` is a directory in which the database, its policy and the ledger stay; by default they are
    thrown away. Raises OperationalError if there are such files already.
    """
    with _directory(keep) as directory:
        database, policy = exact.lay_out(directory)
        write(f"{fill(_INTRO, view.columns)}\n\n{fill(_READING, view.columns)}")
        with dpsql.connect(str(database), policy=policy, analyst="demo") as connection:
            for number, question in enumerate(QUESTIONS, 1):
                write("\n" + view.show(strong(f"{number}. {question.title}")) + "\n")
                write(indent(question.sql, "    ") + "\n")
                result = connection.query(question.sql, epsilon=question.epsilon)
                cost = charged(result.receipt, amount(question.epsilon), connection.budget().values())
                write(view.show(beside(question, result), "", fill(question.remark, view.columns), dim(cost)))
    write("\n" + fill(_OUTRO, view.columns))
    write(_GO_ON if keep is None else f"To go on with this data: dpsql shell {database} --epsilon 0.2")


def beside(question: Question, result: Result) -> Table:
    """The private answer with its intervals, and the true value right of each."""
    truth = {row[: question.keys]: row for row in exact.answers(question.select)}
    names: list[str] = []
    columns: list[list[str]] = []
    right: list[int] = []
    for index, column in enumerate(shown(result)):
        added = [(column.name, column.cells)]
        if column.halves is not None:
            added += [(BESIDE, column.halves), (TRUE, _true(question, result, truth, index))]
        if column.number:
            right += range(len(names), len(names) + len(added))
        names += [name for name, _ in added]
        columns += [cells for _, cells in added]
    return table(names, list(zip(*columns, strict=True)), right=right)


def _true(
    question: Question, result: Result, truth: Mapping[tuple[Any, ...], Sequence[Any]], index: int
) -> list[str]:
    """The true values of a column, to as many digits as the noisy ones; empty for a group of nobody."""
    cells = []
    for row, scales in zip(result.rows, result.scales, strict=True):
        exactly = truth.get(row[: question.keys])
        cells.append("" if exactly is None else text(exactly[index], scales[index]))
    return aligned(cells)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="dpsql-demo-") as name:
        yield Path(name)
