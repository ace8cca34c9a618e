"""Error against loss, for each way to answer the same questions: `python -m benchmarks.mechanisms`.

The table is like a census: people with sex, age, education, work, income and region, which depend on each other as they do in
life. The questions are

- all cells of all tables of two columns, answered in the **local** model (each person answers every table by randomised
  response, at an equal share of the loss), by a **noisy count** in each cell, and from a **synthetic table**;
- counts of people with several values in each of three columns, by a noisy count each and by a **stream**. The last column is how
  many noisy counts of the same error the same loss buys, and how many times as many the stream answered.

Errors are root mean squares in rows, over all cells or questions. `--picture FILE` draws the first table.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.errors import OperationalError
from dpsql.privacy.accounting import get_accountant
from dpsql.privacy.mechanisms import RandomizedResponse

COLUMNS = ("sex", "age", "education", "work", "income", "region")
SIZES = (2, 7, 5, 4, 3, 6)
Counts = np.ndarray


def census(people: int, seed: int = 1) -> np.ndarray:
    """The people, a row each, with whole numbers for values: all but sex and region depend on those before."""
    draw = np.random.default_rng(seed)
    sex = draw.integers(0, 2, people)
    age = draw.choice(7, people, p=[0.17, 0.16, 0.15, 0.16, 0.15, 0.12, 0.09])
    education = np.clip(draw.normal(2.4 - 0.25 * np.maximum(age - 3, 0) - 1.4 * (age == 0), 1).round(), 0, 4)
    retired, studies = age >= 5, (age == 0) & (draw.random(people) < 0.7)
    at_home = draw.random(people) < 0.08 + 0.15 * (sex == 1)
    work = np.select([retired, studies, at_home], [3, 2, 1], 0)
    income = np.clip(draw.normal(0.3 + 0.3 * education + 0.6 * (work == 0) - 0.2 * sex, 0.6).round(), 0, 2)
    region = draw.choice(6, people, p=[0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
    return np.stack([sex, age, education, work, income, region], axis=1).astype(np.int64)


def connected(rows: np.ndarray, accountant: str) -> dpsql.Connection:
    """A connection to the census with a large budget."""
    database = duckdb.connect()
    listed = ", ".join(f"unnest(?) AS {name}" for name in COLUMNS)
    database.execute(
        f"CREATE TABLE people AS SELECT {listed}", [rows[:, place].tolist() for place in range(6)]
    )
    columns = {
        name: {"type": "integer", "bounds": [0, size - 1], "nullable": False}
        for name, size in zip(COLUMNS, SIZES, strict=True)
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 500, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant},
        "tables": {"people": {"unit": "row", "columns": columns}},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:")


def table_of(rows: np.ndarray, places: Sequence[int]) -> Counts:
    """The exact table of some columns."""
    found = np.zeros([SIZES[place] for place in places], np.int64)
    np.add.at(found, tuple(rows[:, place] for place in places), 1)
    return found


@dataclass(frozen=True)
class Error:
    """The error of each way to answer, in rows, at a loss."""

    epsilon: float
    local: float
    counts: float
    synthetic: float


PAIRS = tuple(itertools.combinations(range(6), 2))


def pairs(con: dpsql.Connection, rows: np.ndarray, epsilon: float, rho: float | None) -> Error:
    """The errors of all tables of two columns at a loss; `rho` is that of Gaussian noise, None without."""
    made = con.synthetic(f"SELECT {', '.join(COLUMNS)} FROM people", epsilon=epsilon)
    invented = np.array(made.rows, np.int64).reshape(-1, 6)
    squares, cells, local = 0.0, 0, 0.0
    for part in PAIRS:
        exact, found = table_of(rows, part), table_of(invented, part)
        squares += float(((exact - found) ** 2).sum())
        cells += exact.size
        answer = RandomizedResponse(epsilon=Fraction(epsilon) / len(PAIRS), choices=exact.size)
        local += exact.size * answer.variance * len(rows)
    noise = 2 * (len(PAIRS) / epsilon) ** 2 if rho is None else len(PAIRS) / (2 * rho)
    return Error(epsilon, math.sqrt(local / cells), math.sqrt(noise), math.sqrt(squares / cells))


@dataclass(frozen=True)
class Streamed:
    """What a stream answered, its error, and how many noisy counts of that error its loss buys."""

    epsilon: float
    answered: int
    paid: int
    error: float
    bought: float

    @property
    def times(self) -> float:
        """How many times as many questions the stream answered."""
        return self.answered / self.bought


def questions(number: int, seed: int = 5) -> list[dict[str, list[int]]]:
    """Counts of people with about half of the values of each of three columns."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(number):
        asked = {}
        for place in draw.choice(6, 3, replace=False):
            kept = np.flatnonzero(draw.random(SIZES[place]) < 0.5)
            asked[COLUMNS[place]] = (kept if len(kept) else np.array([0])).tolist()
        found.append(asked)
    return found


def streamed(
    con: dpsql.Connection, rows: np.ndarray, epsilon: float, rho: float | None, number: int
) -> Streamed:
    """The answers of one stream to that many questions, or until it ends."""
    stream = con.stream(
        f"SELECT {', '.join(COLUMNS)} FROM people", epsilon=epsilon, updates=20, queries=number
    )
    squares, answered, paid = 0.0, 0, 0
    for asked in questions(number):
        try:
            found = stream.count(None, **asked)  # type: ignore[arg-type]
        except OperationalError:
            break
        chosen = np.ones(len(rows), bool)
        for name, values in asked.items():
            chosen &= np.isin(rows[:, COLUMNS.index(name)], values)
        squares += (found.value - int(chosen.sum())) ** 2
        answered, paid = answered + 1, paid + found.counted
    error = math.sqrt(squares / max(1, answered))
    bought = error * epsilon / math.sqrt(2) if rho is None else 2 * rho * error * error
    return Streamed(epsilon, answered, paid, error, bought)


def rho_of(accountant: str, epsilon: float) -> float | None:
    """The ρ of Gaussian noise that is charged as much as that loss."""
    found = get_accountant(accountant).find_gaussian_rho(Fraction(epsilon))
    return None if found is None else float(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the two tables for two accountants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=50_000)
    parser.add_argument("--questions", type=int, default=5_000)
    parser.add_argument("--picture", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    rows, console, drawn = census(asked.people), Console(), {}
    for accountant in ("pure", "zcdp"):
        with connected(rows, accountant) as con:
            found = [
                pairs(con, rows, epsilon, rho_of(accountant, epsilon)) for epsilon in (0.1, 0.3, 1.0, 3.0)
            ]
            drawn[accountant] = found
            table = Table(
                "ε", "local", "noisy counts", "synthetic table", title=f"tables of two columns, {accountant}"
            )
            for error in found:
                table.add_row(
                    f"{error.epsilon:g}",
                    *(f"{value:,.0f}" for value in (error.local, error.counts, error.synthetic)),
                )
            console.print(table)
            table = Table(
                "ε", "answered", "counted", "error", "noisy counts", "times", title=f"a stream, {accountant}"
            )
            for epsilon in (0.3, 1.0, 3.0):
                got = streamed(con, rows, epsilon, rho_of(accountant, epsilon), asked.questions)
                table.add_row(
                    f"{epsilon:g}",
                    f"{got.answered:,}",
                    str(got.paid),
                    f"{got.error:,.0f}",
                    f"{got.bought:,.0f}",
                    f"{got.times:,.1f}",
                )
            console.print(table)
    if asked.picture is not None:
        _draw(drawn, asked.picture)


def _draw(found: dict[str, list[Error]], path: Path) -> None:
    from dpsql.results.charts import make_figure, save_figure

    figure, axes = make_figure(len(found))
    ways: dict[str, Callable[[Error], float]] = {
        "local": lambda error: error.local,
        "noisy counts": lambda error: error.counts,
        "synthetic table": lambda error: error.synthetic,
    }
    pane: Any
    for pane, (accountant, errors) in zip(axes, found.items(), strict=True):
        for name, of in ways.items():
            pane.loglog(
                [error.epsilon for error in errors], [of(error) for error in errors], marker="o", label=name
            )
        pane.set(xlabel="ε", ylabel="error of a cell, in rows", title=accountant)
        pane.legend()
    save_figure(figure, path)


if __name__ == "__main__":
    main()
