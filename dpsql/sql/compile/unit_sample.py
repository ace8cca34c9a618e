"""The condition that the unit of a row is in the Poisson sample of its release.

Claim: each unit is in the sample with probability at most `rate`, independently of all others, and the same in every query of
one release; who does not know the secret cannot tell who is.
Why: a unit is in the sample if SHA-256 of a fresh secret of 128 bits and the unit's id is below floor(rate * 2^256). The
secret is of one length, so that no two ids are hashed alike. With a secret key, SHA-256 is taken for a pseudo-random function:
its values at distinct ids are like independent uniform numbers to whoever cannot search through 2^128 secrets. The secret is
drawn for one release from the operating system, stands in the SQL of that release alone, and is then forgotten.
Source: Goldreich, Goldwasser, Micali 1986, "How to construct random functions"; FIPS 180-4, section 6.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction

from dpsql.sql.compile.dialect import get_dialect

PLACEHOLDER = "a secret of this release"
"""The placeholder of the secret in SQL that is shown, bound or fingerprinted; no drawn release uses it."""

_SECRET: ContextVar[str] = ContextVar("secret", default=PLACEHOLDER)


@contextmanager
def use_sampling_secret(secret: str) -> Iterator[None]:
    """Sample units by this secret within the context, in this thread alone."""
    token = _SECRET.set(secret)
    try:
        yield
    finally:
        _SECRET.reset(token)


def compute_sampling_threshold(rate: Fraction) -> int:
    """Return how many of the 2^256 digests are of units in the sample: the rate, rounded down.

    >>> compute_sampling_threshold(Fraction(1, 4)) == 2**254, compute_sampling_threshold(Fraction(1, 3)) * 3 < 2**256
    (True, True)
    """
    return int(rate * 2**256)


def emit_sample_condition(unit: str, rate: Fraction) -> str:
    """Return the condition that a unit is in the sample."""
    return get_dialect().emit_sample_condition(unit, _SECRET.get(), compute_sampling_threshold(rate))
