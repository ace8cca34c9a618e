"""Queries over the tiny table, and the neighbouring databases that matter to each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from properties.worlds import DEFAULT, KEYS, D, Database, I, Row, S, X, databases


@dataclass(frozen=True)
class Case:
    """A query with the columns whose values matter to it."""

    sql: str
    columns: tuple[str, ...] = ()
    rules: dict[str, Any] = field(default_factory=dict)
    max_groups: int | None = None
    tight: bool = True

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.rules.items())
        return f"{self.sql} [{settings}]"


_VALUES = {"k": KEYS, "x": X, "i": I, "s": S, "d": D}


def rows_of(case: Case, unit: int | None = 1) -> list[Row]:
    """Every row of a unit that differs from the default in the columns that matter."""
    values = [_VALUES[name] for name in case.columns]
    return [
        DEFAULT._replace(u=unit, **dict(zip(case.columns, combination, strict=True)))
        for combination in itertools.product(*values)
    ]


def shares_of(case: Case, most: int) -> list[Database]:
    """What one unit may hold, up to a row more than counts: every set of rows, or about `most` of them.

    Where not all are tried, those that repeat one row come first: there bounds are attained.
    """
    size = 1 if case.rules.get("unit") == "row" else case.rules.get("rows", 2) + 1
    every = [share for share in databases(rows_of(case), size) if share]
    random.Random(str(case)).shuffle(every)
    uniform = sum(len(set(share)) == 1 for share in every)
    return sorted(every, key=lambda share: len(set(share)))[: max(most, uniform)]


def pairs_of(case: Case, most: int) -> Iterator[tuple[Database, Database]]:
    """Neighbours in the sense of the case's policy: one unit's share beside nobody's and others' rows."""
    shares = shares_of(case, most)
    other, nobody = DEFAULT._replace(u=2), DEFAULT._replace(u=None)
    elsewhere = other._replace(k="B")
    bases: list[Database] = [(), (other,), (other, elsewhere), (nobody,)]
    # Of others with more rows than count, too, and groups in which none of them does.
    bases += [(other, other, elsewhere), (other, elsewhere, elsewhere._replace(s="B"))]
    if case.rules.get("neighbors") == "replace":
        for base in bases[:2]:
            for before, after in itertools.combinations(shares[:most], 2):
                yield (*base, *before), (*base, *after)
    else:
        for index, share in enumerate(shares):
            base = bases[index % len(bases)]
            # First, so that its removal moves every other row up.
            yield (*share, *base), base
