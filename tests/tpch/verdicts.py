"""What becomes of each TPC-H query under each privacy unit, and what to ask instead of those that are refused."""

from __future__ import annotations

import re
from pathlib import Path

from .study import QUERIES, UNITS

PUBLIC = {"customer": frozenset({2, 11, 16}), "supplier": frozenset({13, 22})}
"""The queries that read nothing private."""
REFUSED = {
    "customer": {10: "group_by_unit", 18: "group_by_unit"},
    "supplier": {
        2: "group_by",
        4: "private_join",
        15: "group_by",
        20: "group_by",
        21: "private_join",
    },
}
"""The codes of what is refused."""
SPARSE = {"customer": frozenset({3, 15, 20}), "supplier": frozenset({3, 10, 11, 16, 18})}
"""The queries by orders, parts and the like, whose groups hold so few units that most or all are withheld."""
DECIDED = frozenset({17})
"""The queries in which a noisy value decides which rows count: their numbers are of other rows than DuckDB's."""
LOSSES = (1, 100)
"""The epsilons that are compared."""
DELTA = 1e-6
"""What each answer may spend on choosing groups."""
CASES = [(unit, number) for unit in UNITS for number in QUERIES]

_FILE = re.compile(r"q(\d\d)_(\w+)")
_KEYS = {
    1: 2,
    2: 8,
    4: 1,
    5: 1,
    7: 3,
    8: 1,
    9: 2,
    11: 1,
    12: 1,
    13: 1,
    15: 4,
    16: 3,
    18: 5,
    20: 2,
    21: 1,
    22: 1,
}
_SCATTERED = {3: (0, 2, 3), 10: (0, 1, 3, 4, 5, 6, 7)}


def _rewrites() -> dict[tuple[str, int], str]:
    found = {}
    for path in sorted((Path(__file__).parent / "rewrites").glob("*.sql")):
        named = _FILE.fullmatch(path.stem)
        if named is None:
            raise ValueError(f"{path.name} is not named after a query and a unit")
        found[named[2], int(named[1])] = path.read_text(encoding="utf-8")
    return found


REWRITES = _rewrites()
"""What is asked instead, by unit and number."""


def keys(number: int) -> tuple[int, ...]:
    """The places of a query's columns that name a group; the others are measures of it."""
    return _SCATTERED.get(number) or tuple(range(_KEYS.get(number, 0)))


def rewritten_keys(unit: str, number: int) -> tuple[int, ...]:
    """The same of what is asked instead of it."""
    return tuple(range(_REWRITTEN_KEYS.get((unit, number), 1)))


_REWRITTEN_KEYS = {("supplier", 20): 0}
