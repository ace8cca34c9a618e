"""A careless engine, on which each attack of this folder is shown to work.

It looks for the names of private tables in the text, runs the query as it stands, and adds noise from a float
sampler to each number of the answer; the names of groups, the number of rows and the engine's errors pass as
they are. Its generator belongs to the program, so what a test shows of it is the same in every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from worlds import engine_of

from dpsql.api.connection import Connection

Rows = list[tuple[Any, ...]]
Price = Callable[[float, Rows], float]
PRIVATE = frozenset({"people"})
_NAMED = re.compile(r"(?:FROM|JOIN)\s+([\w\"'.]+)", re.IGNORECASE)


class SpentError(Exception):
    """The careless engine's budget is spent, or so it believes."""


@dataclass
class Naive:
    """Answers queries over the rows behind a connection.

    `bound` is how far it believes that one person moves a number, `budget` the sum of the prices that it
    answers for, `price` what it charges for an epsilon and the rows found; `fresh` says whether each
    answer has noise of its own.
    """

    connection: Connection
    bound: float = 1.0
    budget: float = math.inf
    fresh: bool = True
    price: Price = lambda epsilon, _: epsilon
    spent: float = 0.0
    _generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1), repr=False)

    def query(self, sql: str, epsilon: float = 1.0) -> Rows:
        """The rows, each number with noise of scale `bound / epsilon`; public tables' as they are."""
        if self.spent + epsilon > self.budget:
            raise SpentError
        rows: Rows = engine_of(self.connection).execute(sql).fetchall()
        if not PRIVATE.intersection(_NAMED.findall(sql)):
            return rows
        self.spent += self.price(epsilon, rows)
        generator = self._generator if self.fresh else np.random.default_rng(1)
        scale = self.bound / epsilon
        return [tuple(_noisy(value, scale, generator) for value in row) for row in rows]

    def number(self, sql: str, epsilon: float = 1.0) -> float:
        """The one number of an answer."""
        ((value,),) = self.query(sql, epsilon)
        return float(value)


def _noisy(value: Any, scale: float, generator: np.random.Generator) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value + scale * generator.laplace()


def distinguishes_worlds(attack: Callable[[Naive], object], ours: Connection, theirs: Connection) -> bool:
    """Whether an attack on the careless engine ends otherwise in one world than in the other."""
    return attack(Naive(ours)) != attack(Naive(theirs))
