"""Asks every statement again and again, in as many processes as are wanted."""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import dpsql
from benchmarks.coverage.cells import Cell, Truth, cells_of, truth_of
from benchmarks.coverage.studies import STUDIES, Statement, Study

DELTA = "1e-6"
"""What an answer may spend of δ to find secret keys."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Under what an answer is asked for."""

    data: str
    epsilon: str
    accountant: str
    keys: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers to one statement in one setting: all their cells, or why there is none; seconds in all."""

    setting: Setting
    title: str
    cells: tuple[Cell, ...] = ()
    refused: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Grid:
    """All settings that are asked for, and how many answers in each; `words` are parts of titles, or none for all.

    `scale` is the scale factor of TPC-H.
    """

    studies: Sequence[Study]
    epsilons: Sequence[str]
    accountants: Sequence[str]
    keys: Sequence[str]
    runs: int
    words: Sequence[str] = field(default=())
    scale: str = "0.1"

    def statements(self, study: Study, *, secret: bool) -> list[Statement]:
        """What is asked of a study."""
        words = self.words or [""]
        return [one for one in study.asked(secret=secret) if any(word in one.title for word in words)]


def ask(grid: Grid, processes: int, progress: Callable[[str], None]) -> list[Asked]:
    """Every answer of the grid."""
    with tempfile.TemporaryDirectory() as folder:
        jobs: list[tuple[Path, Setting, Statement, Truth, int]] = []
        for study in grid.studies:
            path = Path(folder, f"{study.name}.duckdb")
            truths = _load(study, path, grid.scale)
            jobs += [
                (path, setting, statement, truths[statement.title], grid.runs)
                for setting in _settings(grid, study)
                for statement in grid.statements(study, secret=setting.keys == "secret")
            ]
            progress(f"{study.name}: {path.stat().st_size / 1e6:,.0f} MB")
        return list(_done(jobs, processes, progress))


def _settings(grid: Grid, study: Study) -> Iterator[Setting]:
    for accountant, keys, epsilon in itertools.product(grid.accountants, grid.keys, grid.epsilons):
        yield Setting(study.name, epsilon, accountant, keys)


def _load(study: Study, path: Path, scale: str) -> dict[str, Truth]:
    """The exact answers to all statements, after the database is made."""
    with duckdb.connect(str(path)) as database:
        study.load(database, scale)
        return {
            one.title: truth_of(database.execute(one.sql).fetchall(), one.keys) for one in study.statements
        }


def _done(
    jobs: Sequence[tuple[Path, Setting, Statement, Truth, int]],
    processes: int,
    progress: Callable[[str], None],
) -> Iterator[Asked]:
    if processes == 1:
        for job in jobs:
            yield _said(answers(*job), progress)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(answers, *job) for job in jobs]):
            yield _said(done.result(), progress)


def _said(asked: Asked, progress: Callable[[str], None]) -> Asked:
    setting = asked.setting
    progress(
        f"{setting.data} ε = {setting.epsilon} {setting.accountant} {setting.keys}: {asked.title}"
        f" ({asked.seconds:.1f} s{': ' + asked.refused if asked.refused else ''})"
    )
    return asked


def answers(path: Path, setting: Setting, statement: Statement, truth: Truth, runs: int) -> Asked:
    """So many answers to one statement in one setting, each with noise of its own."""
    (study,) = (one for one in STUDIES if one.name == setting.data)
    policy = study.policy(setting.accountant, statement, secret=setting.keys == "secret")
    cells: list[Cell] = []
    begun = time.perf_counter()
    try:
        with dpsql.connect(path, policy=policy, ledger=":memory:", replay=False) as connection:
            for _ in range(runs):
                found = connection.query(statement.sql, epsilon=setting.epsilon, delta=DELTA)
                cells += cells_of(truth, found.rows, found.intervals(), statement.kinds)
    except dpsql.Error as refused:
        return Asked(setting, statement.title, refused=str(refused).splitlines()[0])
    return Asked(setting, statement.title, tuple(cells), seconds=time.perf_counter() - begun)
