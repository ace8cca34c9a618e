"""Tokens: what a program sends in place of a password, `dpsql_<id>_<secret>`.

Claim: who reads the store learns no token, and who guesses one succeeds with probability 2^-256 a guess.
Why: the secret is 256 random bits, of which the store has the SHA-256 digest alone. A slow hash guards secrets that people
choose; these are none. The id is public: it finds the row, so that digests are compared in constant time, one with one.
Source: RFC 6750 (bearer tokens); NIST SP 800-63B, section 5.1.2 (look-up secrets of 112 bits and more).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime

_TEXT = re.compile(r"dpsql_([0-9a-f]{16})_([0-9a-f]{64})")
MOST_CHARACTERS = 100
"""Characters of what may be a token; more are not looked at."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its user's list has it. `label` is what its maker calls it."""

    id: str
    user: str
    label: str
    created: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The id and the secret of a token; its `repr` hides the secret."""

    id: str
    _secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> TokenSecret:
        """A token that nobody has seen."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def from_text(cls, text: str) -> TokenSecret | None:
        """What a client sends, None for what is no token.

        >>> TokenSecret.from_text("dpsql_" + "0" * 16 + "_" + "f" * 64)
        TokenSecret(id='0000000000000000')
        >>> TokenSecret.from_text("dpsql_0_f") is None
        True
        """
        match = _TEXT.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
        return None if match is None else cls(match[1], match[2])

    def to_text(self) -> str:
        """The token itself, for its user's eyes."""
        return f"dpsql_{self.id}_{self._secret}"

    def compute_digest(self) -> str:
        """The digest that the store has."""
        return hashlib.sha256(self._secret.encode("ascii")).hexdigest()

    def matches_digest(self, digest: str) -> bool:
        """Whether this is the token of a digest, compared in constant time."""
        return hmac.compare_digest(self.compute_digest(), digest)
