"""The tour of the demo: for each question the private answer, the true one, and the remaining budget."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill, indent

import dpsql
from dpsql.interfaces.demo import true_answers
from dpsql.interfaces.demo.comparison import build_comparison_table
from dpsql.interfaces.demo.questions import QUESTIONS
from dpsql.interfaces.shell.costs import format_remarks
from dpsql.interfaces.shell.view import View, make_bold, make_dim
from dpsql.policy.request.loss import parse_amount

_INTRO = (
    "The RAND Health Insurance Experiment assigned health insurance plans to American families by lot and followed "
    "them for years: 20,190 person-years, in the public domain. Each question below is ordinary SQL. Its "
    "answer has just enough noise to hide whether any one person-year is in the data; the file has no person "
    "id, so it cannot hide all years of a person."
)
_READING = (
    "An interval (±95%) covers the noise: in 95 of 100 answers it contains the value without noise. The column "
    "`true` is computed from the public file without dpsql. Private data must not be shown this way: the exact "
    "answers with and without a person differ by that person. dpsql itself cannot return an exact answer."
)
_OUTRO = "Run it again: the noise changes, the findings stay. docs/tutorial.md has the next steps."
_GO_ON = "To run your own queries on this data: dpsql demo --save hie"


def run_tour(view: View, write: Callable[[str], object], keep: Path | None = None) -> None:
    """Run the five queries on a fresh copy of the data, with a fresh ledger.

    `keep` is a directory for the database, its policy and the ledger; by default they are deleted. Raises OperationalError if the
    files already exist.
    """
    with _open_directory(keep) as directory:
        database, policy = true_answers.write_demo_files(directory)
        write(f"{fill(_INTRO, view.columns)}\n\n{fill(_READING, view.columns)}")
        with dpsql.connect(str(database), policy=policy, analyst="demo") as connection:
            for number, question in enumerate(QUESTIONS, 1):
                write("\n" + view.render_parts(make_bold(f"{number}. {question.title}")) + "\n")
                write(indent(question.sql, "    ") + "\n")
                result = connection.query(question.sql, epsilon=question.epsilon)
                answer = build_comparison_table(
                    result, true_answers.compute_true_rows(question.select), question.keys
                )
                cost = format_remarks(result, parse_amount(question.epsilon), connection.budget().values())
                write(view.render_parts(answer, "", fill(question.remark, view.columns), make_dim(cost)))
    write("\n" + fill(_OUTRO, view.columns))
    write(_GO_ON if keep is None else f"To continue with this data: dpsql shell {database} --epsilon 0.2")


@contextmanager
def _open_directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="dpsql-demo-") as name:
        yield Path(name)
