"""Failed logins: each is answered later than the one before, at whichever door it was tried."""

from __future__ import annotations

from collections import OrderedDict

_SLOWEST = 8.0
"""Seconds after which a login that failed often is answered."""
_MOST_NAMES = 10_000


class FailedLogins:
    """How often logins have failed of late, by the name that was given; of the names that failed last."""

    def __init__(self) -> None:
        self._counts = OrderedDict[str, int]()

    def delay(self, name: str) -> float:
        """Notes a failure, and returns the seconds after which it is answered: twice as many each time, whoever is meant.

        >>> failed = FailedLogins()
        >>> [failed.delay("ana") for _ in range(6)], failed.delay("bob")
        ([0.5, 1.0, 2.0, 4.0, 8.0, 8.0], 0.5)
        >>> failed.forgive("ana")
        >>> failed.delay("ana")
        0.5
        """
        count = self._counts.pop(name, 0) + 1
        self._counts[name] = count
        while len(self._counts) > _MOST_NAMES:
            self._counts.popitem(last=False)
        return float(min(_SLOWEST, 0.25 * 2 ** min(count, 10)))

    def forgive(self, name: str) -> None:
        """After a login that succeeds the next failure is answered soon."""
        self._counts.pop(name, None)
