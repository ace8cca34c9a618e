"""Limits on guessing: each failed login is answered later than the last, and the number of password checks is limited."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_SLOWEST = 8.0
"""The largest number of seconds before a failed login is answered."""
_MOST_NAMES = 10_000


class FailedLogins:
    """The numbers of recent failed logins, by the given name; only the names that failed last are kept."""

    def __init__(self) -> None:
        self._counts = OrderedDict[str, int]()

    def note_failure(self, name: str) -> float:
        """Record a failure, and return the seconds before it is answered: they double each time, whether or not the user exists.

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
        """Forget the failures of a name after a login that succeeded."""
        self._counts.pop(name, None)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of checks: `burst` at once, and one more every `seconds`."""

    burst: int
    seconds: float


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: the number of checks that a rate allows now."""

    rate: Rate
    tokens: float
    filled_at: float

    def fill(self, now: float) -> None:
        """Add the tokens of the time since the bucket was last filled."""
        self.tokens = min(self.rate.burst, self.tokens + (now - self.filled_at) / self.rate.seconds)
        self.filled_at = now


NETWORK_RATE = Rate(20, 15.0)
"""The rate of password checks from one network."""
TOTAL_RATE = Rate(60, 1.0)
"""The rate of all password checks."""
_MOST_NETWORKS = 10_000


class PasswordCheckLimiter:
    """A limit on password checks: each takes the processor for some hundredths of a second, whether or not the user exists.

    Claim: in any t seconds there are at most `TOTAL_RATE.burst + t / TOTAL_RATE.seconds` failing checks, and at most
    `NETWORK_RATE.burst + t / NETWORK_RATE.seconds` of one network, as long as fewer than 10,000 networks try.
    Why: each network has a token bucket, and there is one for all; a check takes a token from both, and is refused without work if
    either is empty. A correct password returns its tokens, so that its user is not limited.
    Source: Partridge 1994, "Gigabit Networking" (token buckets); NIST SP 800-63B, section 5.2.2 (limits on guessing).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = TokenBucket(TOTAL_RATE, TOTAL_RATE.burst, clock())
        self._networks = OrderedDict[str, TokenBucket]()

    def allow_check(self, network: str) -> bool:
        """Count one more check of a password from a network, and return whether it is allowed now.

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
        """Return the tokens of a check whose password was correct."""
        for each in (self._all, self._networks.get(network)):
            if each is not None:
                each.tokens = min(each.rate.burst, each.tokens + 1)
