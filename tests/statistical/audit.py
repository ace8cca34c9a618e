"""A black-box audit: thousands of runs on neighbouring databases, and a test that no sound engine fails.

Claim: `refuted` is true of samples of an (ε, δ)-DP mechanism with probability at most 4 · `FALSE_ALARM`,
whatever the mechanism and the event.
Why: the event is chosen on other runs than it is tested on, and a bound of Clopper and Pearson is wrong
with probability at most `FALSE_ALARM`; there is one for each of two probabilities, in two directions.
Source: Clopper, Pearson 1934; Ding, Wang, Wang, Zhang, Kifer 2018, "Detecting violations of differential
privacy".

A world is a set of groups that no other world's units are in. One query over `WORLDS` worlds is as many
independent runs of what it does to one of them: even worlds hold the database D, odd ones its neighbour D′.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr

import dpsql
from dpsql.api.connection import Connection
from dpsql.results.result import Result

FALSE_ALARM = 1e-8
TRAINING = 1_500
"""Runs on each side that an event is chosen on; all others test it."""
WORLDS = 14_000
Floats = NDArray[np.float64]
Rows = Sequence[tuple[int, float | None]]
"""A unit's rows within a world: each its group, 0 or 1, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query, the rows of one privacy unit on D and on D′, and what the exact answers are on both.

    `others` are rows of as many other units in every world. `exact` holds, for each number that the
    world's groups release in order, its exact value on D and on D′; without it a run's outcome is how
    many groups were shown. `keys` says whether the world's group keys are declared, or secret.
    `steps` is the least distance of two exact values in units of the noise's lattice (None: as good as
    infinitely many), for those cases whose noise is Gaussian; `level` is the ε that they are tested at.
    """

    name: str
    select: str
    here: Rows
    gone: Rows = ()
    others: Rows = ((0, 2.0), (0, 3.0))
    exact: tuple[tuple[float, float], ...] = ()
    table: dict[str, Any]
    epsilon: float = 2
    delta: float | None = None
    accountant: str = "pure"
    neighbors: str = "add_remove"
    keys: str = "declared"
    bounds: tuple[float, float] = (0, 10)
    steps: int | None = None
    level: float = 1
    worlds: int = WORLDS

    def __str__(self) -> str:
        return f"{self.accountant}: {self.name}"

    @property
    def groups(self) -> int:
        """How many groups a world has."""
        return 1 + max(group for group, _ in (*self.others, *self.here, *self.gone))


def opened(case: Case) -> Connection:
    """A connection to all worlds of a case, with noise from the operating system."""
    rows = [
        *((index + 1, group, value, None) for index, (group, value) in enumerate(case.others)),
        *((0, group, value, True) for group, value in case.here),
        *((0, group, value, False) for group, value in case.gone),
    ]
    database = duckdb.connect()
    database.execute("CREATE TABLE parts (unit BIGINT, place INTEGER, x DOUBLE, here BOOLEAN)")
    database.executemany("INSERT INTO parts VALUES (?, ?, ?, ?)", rows)
    database.execute(
        "CREATE TABLE t AS SELECT w * 1000 + unit AS unit, w // 200 AS a, w % 200 AS b, place, w * 2 + place AS secret, x "
        f"FROM parts, range({case.worlds}) AS worlds(w) WHERE here IS NULL OR here = (w % 2 = 0)"
    )
    columns = {
        "a": {"type": "integer", "bounds": [0, case.worlds // 200 - 1], "nullable": False},
        "b": {"type": "integer", "bounds": [0, 199], "nullable": False},
        "place": {"type": "integer", "bounds": [0, case.groups - 1], "nullable": False},
        "secret": {"type": "integer"},
        "x": {"type": "double", "bounds": list(case.bounds)},
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": case.neighbors,
        "budget": {"epsilon": 1000, "delta": 0.5, "accountant": case.accountant},
        "tables": {"t": {**case.table, "columns": columns}},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:", replay=False)


def ask(connection: Connection, case: Case) -> Result:
    """One answer of `con.query` over all worlds."""
    keys = "secret" if case.keys == "secret" else "a, b, place"
    return connection.query(
        f"SELECT {keys}, {case.select} FROM t GROUP BY {keys}", epsilon=case.epsilon, delta=case.delta
    )


def outcomes(case: Case, result: Result) -> tuple[Floats, Floats]:
    """What became of each run, on D and on D′, as one number: the likelier on D, the larger."""
    released = np.array(result.rows, dtype=np.float64)
    secret = case.keys == "secret"
    if secret:
        world, place = np.divmod(released[:, 0].astype(np.int64), 2)
    else:
        world, place = (released[:, :2] @ [200, 1]).astype(np.int64), released[:, 2].astype(np.int64)
    numbers = released[:, 1 if secret else 3 :]
    answers = np.full((case.worlds, case.groups, numbers.shape[1]), np.nan)
    answers[world, place] = numbers
    if not case.exact:
        scores = np.isfinite(answers).any(axis=2).sum(axis=1).astype(np.float64)
    else:
        scores = _scores(case, answers.reshape(case.worlds, -1))
    return scores[0::2], scores[1::2]


def _scores(case: Case, answers: Floats) -> Floats:
    """The log-likelihood ratio, but for a factor: each number counts as far as it is on the way from D′ to D."""
    on, off = np.array(case.exact).T
    moved = on != off
    ways = (answers[:, moved] - off[moved]) / (on - off)[moved]
    if case.accountant == "pure":
        ways = np.clip(ways, 0, 1)
    scores: Floats = np.where(np.isnan(ways), -1, ways).sum(axis=1)
    return scores


def charged(result: Result) -> tuple[Fraction, Fraction]:
    """The loss, in the accountant's unit, and the δ that the ledger holds for an answer."""
    entries = result.receipt.entries
    loss, delta = (sum(Fraction(entry[part]) for entry in entries) for part in ("loss", "delta"))
    return Fraction(loss), Fraction(delta)


def promise(case: Case, result: Result) -> tuple[float, float]:
    """An (ε, δ) that holds for each world if the noise is worth what was charged for it.

    A charge of ρ is tested as the exact profile of Gaussian noise with that ρ, which is less than any
    conversion of ρ allows.
    """
    loss, delta = charged(result)
    if case.accountant == "pure":
        return float(loss), float(delta)
    assert all("gaussian" in mechanism["noise"] for mechanism in result.receipt.mechanisms)
    changed = sum(on != off for on, off in case.exact) or 1
    return case.level, profile(float(loss), case.level, case.steps, changed) + float(delta)


def profile(rho: float, epsilon: float, steps: int | None, terms: int) -> float:
    """The least δ at ε of Gaussian noise of ρ-zCDP that hides a move by `steps` in each of `terms` numbers.

    The sum of the numbers is sufficient. Source: Balle, Wang 2018, Theorem 8, for the limit of many steps.
    """
    if steps is None:
        mu = math.sqrt(2 * rho)
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
    law = gaussian(terms * steps**2 / (2 * rho), terms)
    moved = np.roll(law, steps * terms)
    return float(np.maximum(moved - math.exp(epsilon) * law, 0).sum())


def gaussian(variance: float, terms: int) -> Floats:
    """The law of a sum of discrete Gaussians, far enough out that what is left adds nothing."""
    reach = 60 + int(40 * math.sqrt(variance))
    single = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    law = single = single / single.sum()
    for _ in range(terms - 1):
        law = np.convolve(law, single)
    return law


def refuted(here: Floats, gone: Floats, epsilon: float, delta: float) -> bool:
    """Whether the samples show that no (ε, δ)-DP mechanism made them; see the module's claim."""
    return any(_surplus(*sides, epsilon, delta) > 0 for sides in ((here, gone), (gone, here)))


def _surplus(of: Floats, against: Floats, epsilon: float, delta: float) -> float:
    """A lower bound on Pr[S] − e^ε·Pr′[S] − δ for the event S that looks worst in training."""
    sign, least = _worst_event(of[:TRAINING], against[:TRAINING], epsilon)
    hits, misses = (int((sign * side[TRAINING:] >= least).sum()) for side in (of, against))
    return surplus(hits, misses, len(of) - TRAINING, epsilon, delta)


def surplus(hits: int, misses: int, runs: int, epsilon: float, delta: float) -> float:
    """The lower bound on Pr[S] − e^ε·Pr′[S] − δ from how often S was seen in as many runs on each side."""
    return float(below(np.array(hits), runs) - math.exp(epsilon) * above(np.array(misses), runs) - delta)


def _worst_event(of: Floats, against: Floats, epsilon: float) -> tuple[int, float]:
    """The sign and bound of the event {sign · outcome >= bound} with the largest surplus."""
    best = (-math.inf, 1, math.inf)
    for sign in (1, -1):
        bounds = np.unique(
            np.quantile(sign * np.concatenate([of, against]), np.linspace(0, 1, 401), method="higher")
        )
        counts = [len(side) - np.searchsorted(np.sort(sign * side), bounds) for side in (of, against)]
        gains = below(counts[0], len(of)) - math.exp(epsilon) * above(counts[1], len(against))
        place = int(gains.argmax())
        best = max(best, (float(gains[place]), sign, float(bounds[place])))
    return best[1], best[2]


def below(hits: NDArray[np.int64], runs: int) -> Floats:
    """Clopper and Pearson's lower bound on a probability."""
    bound: Floats = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, FALSE_ALARM), 0.0)
    return bound


def above(hits: NDArray[np.int64], runs: int) -> Floats:
    """Clopper and Pearson's upper bound on a probability."""
    return 1 - below(runs - hits, runs)
