"""How far marginals of synthetic tables are from the true ones, by method and loss: `python -m benchmarks.marginals`.

The first table has the size and the domains of the Adult data as the papers on MST and AIM prepare them: 48,842 people, 14 columns,
some 10^17 combinations of values. Its columns depend on each other about as Adult's do, but the people are drawn here, as no
package brings the data. The second is the census of `benchmarks.mechanisms`, whose 5,040 combinations each method but BLR
holds, the third three columns of it, which BLR holds too.

The error is that of the papers: the l1 distance of a marginal, as a part of all rows, on average over all marginals of two or of
three columns. It is 2 at most. *Noisy counts* is what is expected of noise in each cell of these marginals at the same loss,
which buys no rows; *columns* is the error of the exact single columns as if these were independent. `--picture FILE` draws the
first table.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from rich.console import Console
from rich.table import Table

import dpsql
from benchmarks.mechanisms import COLUMNS, SIZES, census, rho_of
from dpsql.errors import Error

LOSSES = (0.1, 0.3, 1.0, 3.0, 10.0)
ADULT = {
    "age": 85,
    "workclass": 9,
    "fnlwgt": 100,
    "education": 16,
    "marital": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "gain": 100,
    "loss": 100,
    "hours": 99,
    "country": 42,
    "income": 2,
}
"""How many values the columns of Adult have, in the papers' preparation."""


@dataclass(frozen=True)
class People:
    """Rows of whole numbers, from 0 on, under the names of their columns."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    rows: np.ndarray

    def marginals(self, ways: int) -> list[tuple[int, ...]]:
        """All marginals of so many columns."""
        return list(itertools.combinations(range(len(self.names)), ways))

    def parts(self, rows: np.ndarray, marginal: tuple[int, ...]) -> np.ndarray:
        """The parts of all rows that each cell of a marginal has."""
        sizes = [self.sizes[place] for place in marginal]
        cells = np.ravel_multi_index([rows[:, place] for place in marginal], sizes)
        return np.bincount(cells, minlength=math.prod(sizes)) / max(1, len(rows))

    def error(self, invented: np.ndarray, ways: int) -> float:
        """The mean l1 distance over all marginals of so many columns."""
        pairs = ((self.parts(self.rows, part), self.parts(invented, part)) for part in self.marginals(ways))
        return float(np.mean([np.abs(true - made).sum() for true, made in pairs]))

    @cached_property
    def independent(self) -> dict[int, float]:
        """The error of the exact columns as if they were independent."""
        alone = [self.parts(self.rows, (place,)) for place in range(len(self.names))]
        found = {}
        for ways in (2, 3):
            off = []
            for part in self.marginals(ways):
                made = alone[part[0]]
                for place in part[1:]:
                    made = np.outer(made, alone[place]).ravel()
                off.append(float(np.abs(self.parts(self.rows, part) - made).sum()))
            found[ways] = float(np.mean(off))
        return found

    def noisy(self, accountant: str, epsilon: float, ways: int) -> float:
        """The expected error of a noisy count in each cell of all marginals of so many columns."""
        marginals, rho = self.marginals(ways), rho_of(accountant, epsilon)
        cells = sum(math.prod(self.sizes[place] for place in part) for part in marginals)
        std = math.sqrt(len(marginals) / (2 * rho)) if rho is not None else 0.0
        each = std * math.sqrt(2 / math.pi) if rho is not None else len(marginals) / epsilon
        return cells * each / len(marginals) / len(self.rows)


def adult(people: int = 48_842, seed: int = 7) -> People:
    """People with the columns of Adult: ages, work, households and income that depend on each other."""
    draw = np.random.default_rng(seed)

    def near(mean: Any, spread: float, size: int) -> np.ndarray:
        return np.clip(np.rint(draw.normal(mean, spread, people)), 0, size - 1).astype(np.int64)

    def pick(odds: Any, given: np.ndarray | None = None) -> np.ndarray:
        odds = np.asarray(odds, float)
        ends = np.cumsum(odds / odds.sum(-1, keepdims=True), -1)
        ends = ends if given is None else ends[given]
        found: np.ndarray = np.minimum((draw.random((people, 1)) >= ends).sum(-1), odds.shape[-1] - 1)
        return found

    age = np.clip(np.rint(draw.gamma(4.0, 5.5, people)), 0, 84).astype(np.int64)
    sex = pick([0.33, 0.67])
    schools = pick([0, 1, 1, 3, 2, 3, 4, 1.5, 32, 22, 4, 3, 16, 5, 1.7, 1.2])
    education = np.where(draw.random(people) < 0.6, schools, near(8 + 0.02 * age, 2.5, 16))
    marital = pick(
        [
            [75, 15, 1, 1, 5, 0.5, 1],
            [38, 46, 1, 2, 12, 0.5, 1],
            [18, 58, 0.5, 2, 20, 1, 1],
            [10, 62, 0.5, 2, 22, 3, 1],
            [6, 65, 0.3, 1, 16, 11, 1],
            [4, 58, 0.2, 1, 8, 28, 1],
        ],
        np.minimum(age // 12, 5),
    )
    homes = np.tile(np.array([1.0, 1, 8, 30, 40, 20]), (7, 2, 1))
    homes[0] = [0, 0, 35, 5, 52, 8]
    homes[1] = [[0, 90, 1, 3, 3, 3], [95, 0, 1, 2, 1, 1]]
    relationship = pick(homes.reshape(14, 6), marital * 2 + sex)
    race = pick([1, 3.1, 9.6, 0.8, 85.5])
    born = np.full((5, 42), 0.25)
    born[:, 38] = 80
    born[1, [10, 20, 30, 33, 36]] = 9
    born[3, 25] = 25
    country = pick(born, race)
    occupation = pick(draw.dirichlet(np.full(15, 0.8), 32) * 0.8 + 0.2 / 15, education * 2 + sex)
    work = draw.dirichlet(np.array([1.0, 0.05, 1, 0.4, 12, 0.5, 1.2, 0.7, 0.05]), 15)
    workclass = pick(work, occupation)
    free = near(38 - 8 * (age < 5) - 10 * (age > 48) + 4 * sex, 11, 99)
    hours = np.where(draw.random(people) < 0.47, 39, free)
    odds = -4.2 + 0.32 * (education - 8) + 1.6 * (marital == 1) + 0.03 * np.minimum(age, 40)
    income = draw.random(people) < 1 / (1 + np.exp(-odds - 0.02 * (hours - 39) - 0.3 * sex))
    gain = np.where(draw.random(people) < 0.05 + 0.14 * income, near(20 + 25 * income, 12, 100), 0)
    lost = (gain == 0) & (draw.random(people) < 0.04 + 0.05 * income)
    loss = np.where(lost, near(40 + 4 * income, 6, 100), 0)
    weight = np.clip(np.rint(draw.gamma(3.2, 4.0, people) - 0.8 * (race != 4)), 0, 99).astype(np.int64)
    columns = [age, workclass, weight, education, marital, occupation, relationship, race, sex]
    columns += [gain, loss, hours, country, income]
    return People(tuple(ADULT), tuple(ADULT.values()), np.stack(columns, axis=1).astype(np.int64))


def another(people: int = 48_842) -> dict[int, float]:
    """How far two samples of so many people are from each other, which is near enough for any use of a sample."""
    both = adult(2 * people)
    these = People(both.names, both.sizes, both.rows[:people])
    return {ways: these.error(both.rows[people:], ways) for ways in (2, 3)}


def few(people: int = 50_000, places: Sequence[int] = range(6)) -> People:
    """The census, or some of its columns."""
    rows = census(people)[:, list(places)]
    return People(tuple(COLUMNS[p] for p in places), tuple(SIZES[p] for p in places), rows)


def connected(people: People, accountant: str) -> dpsql.Connection:
    """A connection to the people with a large budget, and the papers' δ."""
    database = duckdb.connect()
    listed = ", ".join(f"unnest(?) AS {name}" for name in people.names)
    values = [people.rows[:, place].tolist() for place in range(len(people.names))]
    database.execute(f"CREATE TABLE people AS SELECT {listed}", values)
    columns = {
        name: {"type": "integer", "bounds": [0, size - 1], "nullable": False}
        for name, size in zip(people.names, people.sizes, strict=True)
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 500, "delta": 0 if accountant == "pure" else 1e-9, "accountant": accountant},
        "tables": {"people": {"unit": "row", "columns": columns}},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:")


@dataclass(frozen=True)
class Made:
    """The invented rows of a method, and how many seconds they took."""

    rows: np.ndarray
    seconds: float


def made_by(con: dpsql.Connection, people: People, method: str, epsilon: float) -> Made | None:
    """The rows of a method at a loss; None where it does not hold the columns."""
    began = time.perf_counter()
    try:
        table = con.synthetic(f"SELECT {', '.join(people.names)} FROM people", epsilon=epsilon, method=method)
    except Error:
        return None
    rows = np.array(table.rows, np.int64).reshape(-1, len(people.names))
    return Made(rows, time.perf_counter() - began)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each of the three, and rows beside the true ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    console, drawn = Console(width=120), {}
    tables = {"adult": adult(), "census": few(), "three columns": few(places=(0, 3, 4))}
    for name, people in tables.items():
        for accountant in ("zcdp", "pure"):
            with connected(people, accountant) as con:
                drawn[name, accountant] = _printed(console, con, people, f"{name}, {accountant}")
    console.print(
        "another sample of as many people:",
        ", ".join(f"{ways} columns {off:.3f}" for ways, off in another().items()),
    )
    with connected(tables["adult"], "zcdp") as con:
        _beside(console, con, tables["adult"])
    if asked.picture is not None:
        _draw(
            {accountant: found for (name, accountant), found in drawn.items() if name == "adult"},
            asked.picture,
        )


Errors = dict[str, list[float | None]]


def _printed(console: Console, con: dpsql.Connection, people: People, title: str) -> Errors:
    """The errors of two columns by method, which are also printed, with those of three columns."""
    accountant, errors = title.rsplit(", ", 1)[1], Errors()
    table = Table("ε", "ways", "mwem", "mst", "blr", "noisy counts", "columns", "seconds of mst", title=title)
    for epsilon in LOSSES:
        found = {method: made_by(con, people, method, epsilon) for method in ("mwem", "mst", "blr")}
        for ways in (2, 3):
            cells: dict[str, float | None] = {
                method: None if made is None else people.error(made.rows, ways)
                for method, made in found.items()
            }
            cells["noisy counts"] = people.noisy(accountant, epsilon, ways)
            cells["columns"] = people.independent[ways]
            took = found["mst"]
            shown = ["—" if error is None else f"{error:.3f}" for error in cells.values()]
            table.add_row(f"{epsilon:g}", str(ways), *shown, f"{took.seconds:.1f}" if took else "—")
            if ways == 2:
                for method, error in cells.items():
                    errors.setdefault(method, []).append(error)
    console.print(table)
    return errors


def _beside(console: Console, con: dpsql.Connection, people: People) -> None:
    """What a reader would look at: rows, and incomes by education, at ε = 1 beside the true ones."""
    made = made_by(con, people, "mst", 1.0)
    if made is None:
        raise LookupError("the table of the size of Adult has a tree of pairs")
    shown = Table(*people.names, title="five true rows, then five synthetic ones")
    draw = np.random.default_rng(3)
    for rows in (people.rows, made.rows):
        for place in draw.integers(0, len(rows), 5):
            shown.add_row(*map(str, rows[place]))
    console.print(shown)
    by = Table(
        "education",
        "people",
        "synthetic",
        "rich",
        "synthetic",
        title="people, and the rich among them, at ε = 1",
    )
    for level in range(16):
        each = [rows[rows[:, 3] == level] for rows in (people.rows, made.rows)]
        rich = (f"{part[:, -1].mean():.1%}" if len(part) else "—" for part in each)
        by.add_row(str(level), *(f"{len(part):,}" for part in each), *rich)
    console.print(by)


def _draw(found: dict[str, Errors], path: Path) -> None:
    from dpsql.results.charts import make_figure, save_figure

    figure, axes = make_figure(len(found))
    pane: Any
    for pane, (accountant, errors) in zip(axes, found.items(), strict=True):
        for name in ("mst", "noisy counts", "columns"):
            pane.loglog(LOSSES, errors[name], marker="o", label=name)
        pane.set(xlabel="ε", ylabel="error of a pair, in parts of all rows", title=accountant)
        pane.legend()
    save_figure(figure, path)


if __name__ == "__main__":
    main()
