"""The documented differences from DuckDB that the comparison forgives, each where a notice of the answer tells of it.

Their names are those of the list in docs/reference/differences.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What the notice of a difference says, as a pattern, and a statement over the tables of `world` that has it."""

    notice: str
    example: str


EMPTY_GROUPS = "Groups that nobody is in"
LISTED_KEYS = "Keys alone"
SUMS_OF_NOBODY = "Sums of nobody"
QUANTILES_OF_NOBODY = "Quantiles of nobody"
COUNT_IF_OF_NOBODY = "COUNT_IF of nobody"
EQUAL_VALUES = "Equal values in one part"
WIDENED = "Whole numbers without bounds"
DIFFERENCES: Mapping[str, Difference] = {
    EMPTY_GROUPS: Difference(
        r"groups.* may have no rows, by their noisy values",
        "SELECT kind AS k0, COUNT(*) AS n0 FROM visits WHERE cost > 1000 GROUP BY kind",
    ),
    LISTED_KEYS: Difference(
        r"nothing was measured, and some may have no rows",
        "SELECT DISTINCT lvl AS k0, kind AS k1 FROM visits WHERE kind = 'a' AND lvl < 9",
    ),
    SUMS_OF_NOBODY: Difference(
        r"may be over no values.*, where SQL returns NULL",
        "SELECT SUM(lvl) AS s FROM visits WHERE cost > 1000",
    ),
    COUNT_IF_OF_NOBODY: Difference(
        r"COUNT_IF over no rows is 0",
        "SELECT COUNT_IF(lvl > 1) AS s FROM visits WHERE cost > 1000",
    ),
    QUANTILES_OF_NOBODY: Difference(
        r"has no count of its values in this query: over no values it is a random value",
        "SELECT MIN(lvl) AS r FROM visits WHERE cost > 1000",
    ),
    EQUAL_VALUES: Difference(
        r"rows with equal values are (in one part|on one side)",
        "SELECT q AS k0, COUNT(*) AS n0 FROM (SELECT NTILE(3) OVER (ORDER BY lvl) AS q FROM visits) GROUP BY q",
    ),
    WIDENED: Difference(
        r"is a floating-point number, 2\.0 for 2",
        "SELECT ward * 1 AS k0, COUNT(*) AS n0 FROM people GROUP BY 1 HAVING COUNT(*) > 0",
    ),
}
"""The differences by name."""
EVERY = frozenset(DIFFERENCES) - {EQUAL_VALUES}


def told(notices: Iterable[str]) -> frozenset[str]:
    """Return the names of the differences that some notices tell of."""
    given = tuple(notices)
    return frozenset(
        name
        for name, difference in DIFFERENCES.items()
        if any(re.search(difference.notice, each) for each in given)
    )
