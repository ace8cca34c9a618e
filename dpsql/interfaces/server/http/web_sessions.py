"""Sessions of the web page: what a password is exchanged for, so that a browser need not keep it.

Claim: a session ends with its user, with the user's password, with the subject that it was begun by, eight hours after it began, half an hour after its last
request, when its user ends it, and with the server. Who reads the server's memory learns no session's secret.
Why: each request is held against the verifier and the subject that the user had when it began; the secret is 256 random bits, of which the
server has the SHA-256 digest alone. It travels in the Authorization header, never as a cookie, so that a browser sends it
for no page of another site (CSRF).
Source: NIST SP 800-63B, section 7.1 (session secrets) and 4.2.3 (reauthentication); RFC 6750.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.interfaces.server.protocol.scram import Verifier

LoginProof = tuple[Verifier, str | None]
"""What a user logs in by: the verifier of the password, and the subject of OpenID Connect, if there is one."""
PREFIX = "dpsql-session_"
LONGEST = 8 * 3_600.0
"""Seconds after which a session ends."""
IDLE = 1_800.0
"""Seconds after its last request after which a session ends."""
MOST_OF_ONE = 16
"""Sessions of one user: a further one ends the oldest."""


@dataclass(slots=True)
class _WebSession:
    user: str
    proof: LoginProof
    begun_at: float
    used_at: float


class WebSessions:
    """The sessions that are open, by the digest of their secrets; they belong to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions = OrderedDict[bytes, _WebSession]()

    def begin_session(self, user: str, proof: LoginProof) -> str:
        """The secret of a new session of a user, who logs in by this now."""
        now = self._clock()
        self._sessions = OrderedDict(
            (key, each) for key, each in self._sessions.items() if not _is_over(each, now)
        )
        own = [key for key, each in self._sessions.items() if each.user == user]
        for key in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
            del self._sessions[key]
        secret = PREFIX + secrets.token_hex(32)
        self._sessions[_compute_digest(secret)] = _WebSession(user, proof, now, now)
        return secret

    def find_session(self, secret: str) -> tuple[str, LoginProof] | None:
        """The user of a session with the proof that it began by; None for what is none, or has ended."""
        found, now = self._sessions.get(_compute_digest(secret)), self._clock()
        if found is None or _is_over(found, now):
            return None
        found.used_at = now
        return found.user, found.proof

    def end_session(self, secret: str) -> None:
        """Ends a session, if there is such a one."""
        self._sessions.pop(_compute_digest(secret), None)


def _is_over(session: _WebSession, now: float) -> bool:
    return now - session.begun_at > LONGEST or now - session.used_at > IDLE


def _compute_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
