"""Logins that fail: each is answered later than the one before, and checks of passwords are limited in number."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_SLOWEST = 8.0
"""Seconds after which a login that failed often is answered."""
_MOST_NAMES = 10_000


class FailedLogins:
    """How often logins have failed of late, by the name that was given; of the names that failed last."""

    def __init__(self) -> None:
        self._counts = OrderedDict[str, int]()

    def note_failure(self, name: str) -> float:
        """Notes a failure, and returns the seconds after which it is answered: twice as many each time, whoever is meant.

        >>> failed = FailedLogins()
        >>> [failed.note_failure("ana") for _ in range(6)], failed.note_failure("bob")
        ([0.5, 1.0, 2.0, 4.0, 8.0, 8.0], 0.5)
        >>> failed.reset_failures("ana")
        >>> failed.note_failure("ana")
        0.5
        """
        count = self._counts.pop(name, 0) + 1
        self._counts[name] = count
        while len(self._counts) > _MOST_NAMES:
            self._counts.popitem(last=False)
        return float(min(_SLOWEST, 0.25 * 2 ** min(count, 10)))

    def reset_failures(self, name: str) -> None:
        """After a login that succeeds the next failure is answered soon."""
        self._counts.pop(name, None)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many checks there may be: `burst` at once, and one more every `seconds` after that."""

    burst: int
    seconds: float


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: what may be done now, at a rate."""

    rate: Rate
    tokens: float
    filled_at: float

    def fill(self, now: float) -> None:
        """Adds what has come in since it was filled last."""
        self.tokens = min(self.rate.burst, self.tokens + (now - self.filled_at) / self.rate.seconds)
        self.filled_at = now


NETWORK_RATE = Rate(20, 15.0)
"""Checks of passwords that come from one network."""
TOTAL_RATE = Rate(60, 1.0)
"""Checks of passwords from everywhere."""
_MOST_NETWORKS = 10_000


class PasswordCheckLimiter:
    """Which passwords are checked: a check takes the processor for some hundredths of a second, whoever is meant.

    Claim: from any time on, t seconds of failing checks are at most `OF_ALL.burst + t / OF_ALL.seconds`, and those of one
    network at most `OF_ONE.burst + t / OF_ONE.seconds`, as long as fewer than 10,000 networks try.
    Why: a token bucket of each network and one of all; a check takes one token of both, and is refused without work where
    one of them is empty. A password that is right gives its tokens back, so that who knows it is not limited.
    Source: Partridge 1994, "Gigabit Networking" (token buckets); NIST SP 800-63B, section 5.2.2 (limits on guessing).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = TokenBucket(TOTAL_RATE, TOTAL_RATE.burst, clock())
        self._networks = OrderedDict[str, TokenBucket]()

    def allow_check(self, network: str) -> bool:
        """Whether one more password from a network may be checked now, which is counted.

        >>> checks = PasswordCheckLimiter(clock=lambda: 0.0)
        >>> [checks.allow_check("192.0.2.1") for _ in range(21)].count(True), checks.allow_check("192.0.2.2")
        (20, True)
        >>> checks.return_check("192.0.2.1")
        >>> checks.allow_check("192.0.2.1"), checks.allow_check("192.0.2.1")
        (True, False)
        """
        now = self._clock()
        own = self._networks.pop(network, None) or TokenBucket(NETWORK_RATE, NETWORK_RATE.burst, now)
        self._networks[network] = own
        while len(self._networks) > _MOST_NETWORKS:
            self._networks.popitem(last=False)
        own.fill(now)
        self._all.fill(now)
        if own.tokens < 1 or self._all.tokens < 1:
            return False
        own.tokens -= 1
        self._all.tokens -= 1
        return True

    def return_check(self, network: str) -> None:
        """The password that was checked is right."""
        for each in (self._all, self._networks.get(network)):
            if each is not None:
                each.tokens = min(each.rate.burst, each.tokens + 1)
