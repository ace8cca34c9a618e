"""The tour of `dpsql demo`: for each question on real data the private answer, the true one, and the remaining budget.

Only this package prints true answers, which it may because its data is public.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import duckdb

import dpsql
from dpsql.errors import OperationalError
from dpsql.interfaces.shell.answers import View, build_table, format_remarks, make_bold, make_dim
from dpsql.policy.request.loss import parse_amount
from dpsql.results.rendering import BESIDE, align_decimals, format_value
from dpsql.results.result import Result

if TYPE_CHECKING:
    from rich.table import Table


# The data of the demo, and true answers from it.


NAME = "rand_hie"
_DATA = files("dpsql.interfaces.demo").joinpath(f"{NAME}.parquet")
_POLICY = files("dpsql.interfaces.demo").joinpath(f"{NAME}.yaml")


def write_demo_files(directory: Path) -> tuple[Path, Path]:
    """Write the database and its policy, and return their paths. Raises OperationalError if one already exists."""
    database, policy = directory / f"{NAME}.duckdb", directory / f"{NAME}.yaml"
    for path in (database, policy, policy.with_suffix(".ledger")):
        if path.exists():
            raise OperationalError(
                f"{path} already exists", code="file_exists", hint="choose another directory"
            )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        policy.write_text(_POLICY.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise OperationalError(f"cannot write {policy}: {error.strerror}", code="not_written") from None
    with as_file(_DATA) as data, duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE TABLE {NAME} AS SELECT * FROM read_parquet(?)", [str(data)])
    return database, policy


def compute_true_rows(sql: str) -> list[tuple[Any, ...]]:
    """Return the true rows of a query on the public file.

    Write the demo's data to a database, and compute true answers from it, which no other part of dpsql may do.

    This module uses DuckDB directly, because dpsql has no way to return an exact value.
    """
    with as_file(_DATA) as data, duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {NAME} AS SELECT * FROM read_parquet(?)", [str(data)])
        return connection.execute(sql).fetchall()


# The five queries of the demo.


_HEALTH = (
    "CASE WHEN hlthp = 1 THEN 'poor' WHEN hlthf = 1 THEN 'fair'\n"
    "            WHEN hlthg = 1 THEN 'good' ELSE 'excellent' END AS health"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words and in SQL.

    `select` also runs on the exact data, for the true answers of all groups; `after` selects and orders groups of the private
    answer only. The first `keys` columns are group keys. `remark` explains the answer.
    """

    title: str
    select: str
    remark: str
    after: str = ""
    keys: int = 0
    epsilon: str = "0.2"

    @property
    def sql(self) -> str:
        """Return the query as an analyst writes it."""
        return f"{self.select}\n{self.after}" if self.after else self.select


QUESTIONS = (
    Question(
        "How large is the study, and how often does a person see a doctor?",
        """SELECT COUNT(*) AS person_years,
       AVG(mdvis) AS visits,
       AVG(CASE WHEN mdvis = 0 THEN 1 ELSE 0 END) AS share_without
FROM rand_hie""",
        "Three answers for one price: the charge is the epsilon of the query, however many aggregates it has. The policy's bounds "
        "clamp visits at one per week, which changes the average by less than 0.01.",
    ),
    Question(
        "Does paying part of the bill keep people from the doctor?",
        """SELECT CASE WHEN idp = 1 THEN 'individual deductible'
            WHEN lncoins = 0 THEN 'free care'
            WHEN lncoins < 3.5 THEN 'pays 25%'
            WHEN lncoins < 4.2 THEN 'pays 50%'
            ELSE 'pays 95%' END AS plan,
       COUNT(*) AS person_years,
       AVG(mdvis) AS visits
FROM rand_hie
GROUP BY plan""",
        "The best-known result of the experiment: plans were assigned by lot, and free care meant about two thirds more "
        "visits than paying 95%. The noisy answers show it clearly.",
        after="ORDER BY visits DESC",
        keys=1,
    ),
    Question(
        "How do people rate their own health, and are they right?",
        f"""SELECT {_HEALTH},
       COUNT(*) AS person_years,
       AVG(disea) AS chronic_diseases
FROM rand_hie
GROUP BY health""",
        "The query itself names the groups, so they are public and all are shown. The fewer rows a group has, the "
        "wider the interval of its average.",
        keys=1,
    ),
    Question(
        "Who sees the doctor most?",
        f"""SELECT CASE WHEN physlm >= 0.5 THEN 'limited' ELSE 'not limited' END AS body,
       {_HEALTH},
       SUM(mdvis) AS all_visits,
       AVG(mdvis) AS visits
FROM rand_hie
GROUP BY body, health""",
        "HAVING, ORDER BY and LIMIT read only the noisy values, so they cost nothing.",
        after="HAVING COUNT(*) > 200\nORDER BY visits DESC\nLIMIT 4",
        keys=2,
    ),
    Question(
        "Which incentive payments were made most often?",
        """SELECT lpi, COUNT(*) AS person_years
FROM rand_hie
GROUP BY lpi""",
        "lpi is the logarithm of a payment in dollars (6.9 is 1,000), and the policy does not list the payments. An "
        "unusual payment would identify its recipient, so a group is shown only if its noisy count exceeds a "
        "threshold; the delta is charged for this.",
        after="ORDER BY person_years DESC\nLIMIT 6",
        keys=1,
    ),
)


# Show a private answer with its intervals, and the true values to their right.


TRUE = "true"


def build_comparison_table(result: Result, truth: Iterable[Sequence[Any]], keys: int) -> Table:
    """Build a table of an answer. `truth` has the true rows of all groups; the first `keys` columns name a group."""
    known = {tuple(row[:keys]): row for row in truth}
    names: list[str] = []
    columns: list[list[str]] = []
    right: list[int] = []
    for index, column in enumerate(result.render_columns()):
        added = [(column.name, column.cells)]
        if column.half_widths is not None:
            added.append((BESIDE, column.half_widths))
        if index >= keys:
            added.append((TRUE, _format_true_values(result, known, keys, index)))
        if column.is_number:
            right += range(len(names), len(names) + len(added))
        names += [name for name, _ in added]
        columns += [cells for _, cells in added]
    return build_table(names, list(zip(*columns, strict=True)), right=right)


def _format_true_values(
    result: Result, known: Mapping[tuple[Any, ...], Sequence[Any]], keys: int, index: int
) -> list[str]:
    """Format the true values of a column with as many digits as the noisy ones; empty for an empty group."""
    cells = []
    for row, scales in zip(result.rows, result.scales, strict=True):
        exactly = known.get(row[:keys])
        cells.append("" if exactly is None else format_value(exactly[index], scales[index]))
    return align_decimals(cells)


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
        database, policy = write_demo_files(directory)
        write(f"{fill(_INTRO, view.columns)}\n\n{fill(_READING, view.columns)}")
        with dpsql.connect(str(database), policy=policy, analyst="demo") as connection:
            for number, question in enumerate(QUESTIONS, 1):
                write("\n" + view.render_parts(make_bold(f"{number}. {question.title}")) + "\n")
                write(indent(question.sql, "    ") + "\n")
                result = connection.query(question.sql, epsilon=question.epsilon)
                answer = build_comparison_table(result, compute_true_rows(question.select), question.keys)
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
