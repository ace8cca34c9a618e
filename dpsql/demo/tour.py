"""The tour: question by question, the private answer, the true one, and what is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill, indent

import dpsql
from dpsql.demo import exact
from dpsql.demo.beside import build_comparison_table
from dpsql.demo.questions import QUESTIONS
from dpsql.request.loss import parse_amount
from dpsql.shell.costs import format_remarks
from dpsql.shell.view import View, make_bold, make_dim

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
_OUTRO = "Run it again: other noise, the same story. docs/tutorial.md has the next steps."
_GO_ON = "To ask your own questions of this data: dpsql demo --save hie"


def run_tour(view: View, write: Callable[[str], object], keep: Path | None = None) -> None:
    """Asks the five questions of a fresh copy of the data, with a fresh ledger.

    `keep` is a directory in which the database, its policy and the ledger stay; by default they are
    thrown away. Raises OperationalError if there are such files already.
    """
    with _open_directory(keep) as directory:
        database, policy = exact.write_demo_files(directory)
        write(f"{fill(_INTRO, view.columns)}\n\n{fill(_READING, view.columns)}")
        with dpsql.connect(str(database), policy=policy, analyst="demo") as connection:
            for number, question in enumerate(QUESTIONS, 1):
                write("\n" + view.render_parts(make_bold(f"{number}. {question.title}")) + "\n")
                write(indent(question.sql, "    ") + "\n")
                result = connection.query(question.sql, epsilon=question.epsilon)
                answer = build_comparison_table(
                    result, exact.compute_true_rows(question.select), question.keys
                )
                cost = format_remarks(result, parse_amount(question.epsilon), connection.budget().values())
                write(view.render_parts(answer, "", fill(question.remark, view.columns), make_dim(cost)))
    write("\n" + fill(_OUTRO, view.columns))
    write(_GO_ON if keep is None else f"To go on with this data: dpsql shell {database} --epsilon 0.2")


@contextmanager
def _open_directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="dpsql-demo-") as name:
        yield Path(name)
