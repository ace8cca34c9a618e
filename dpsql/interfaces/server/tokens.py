"""Access tokens, which programs send in place of a password: `dpsql_<id>_<secret>`.

Claim: the store reveals no token, and a guess succeeds with probability 2^-256.
Why: the secret is 256 random bits, of which the store has only the SHA-256 digest. A slow hash is needed only for secrets that
people choose. The id is public: it finds the row, so that one digest is compared with one digest, in constant time.
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
"""The largest number of characters of a token; a longer text is not parsed."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed to its user; `label` is chosen by its creator."""

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
        """Return a new token."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def from_text(cls, text: str) -> TokenSecret | None:
        """Return the token of a text, or None if it is not a token.

        >>> TokenSecret.from_text("dpsql_" + "0" * 16 + "_" + "f" * 64)
        TokenSecret(id='0000000000000000')
        >>> TokenSecret.from_text("dpsql_0_f") is None
        True
        """
        match = _TEXT.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
        return None if match is None else cls(match[1], match[2])

    def to_text(self) -> str:
        """Return the token as text, which only its user may see."""
        return f"dpsql_{self.id}_{self._secret}"

    def compute_digest(self) -> str:
        """Return the digest that the store keeps."""
        return hashlib.sha256(self._secret.encode("ascii")).hexdigest()

    def matches_digest(self, digest: str) -> bool:
        """Return whether this is the token of a digest, compared in constant time."""
        return hmac.compare_digest(self.compute_digest(), digest)
