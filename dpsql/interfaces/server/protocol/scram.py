"""Passwords: their stored verifiers, and the proof of a password by SCRAM-SHA-256.

A verifier proves nothing to another server, and the password can only be guessed from it, at the cost of `ITERATIONS` hashes a
guess. A password is printable ASCII, which SASLprep leaves unchanged.

Source: RFC 5802, section 5 (messages), section 3 (keys); RFC 7677 (SHA-256).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from dpsql.errors import DataError

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 100_000
LEAST_CHARACTERS = 12
MOST_CHARACTERS = 256

_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=[^,]*)?,)(?P<bare>n=[^,]*,r=(?P<nonce>[!-+\--~]{8,256})(?:,.*)?)", re.DOTALL
)
_FINAL = re.compile(
    r"(?P<without>c=(?P<bound>[^,]*),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[^,]*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The stored verifier of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        """Return the verifier as PostgreSQL stores it."""
        salt, stored, server = map(_encode_base64, (self.salt, self.stored_key, self.server_key))
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"

    def __repr__(self) -> str:
        return "Verifier(hidden)"

    @classmethod
    def from_text(cls, text: str) -> Verifier:
        """Return the verifier of a text that `str` made. Raises DataError for another text."""
        parts = re.fullmatch(rf"{MECHANISM}\$(\d{{4,9}}):([^$]+)\$([^:]{{44}}):([^:]{{44}})", text)
        if parts is None:
            raise DataError("the user store has an invalid password verifier", code="users")
        return cls(int(parts[1]), *(base64.b64decode(part) for part in parts.groups()[1:]))

    @classmethod
    def from_password(cls, password: str) -> Verifier:
        """Return the verifier of a new password. Raises DataError if it is short or not printable ASCII."""
        if not LEAST_CHARACTERS <= len(password) <= MOST_CHARACTERS:
            raise DataError(
                f"a password must have {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters",
                code="password",
                hint="generate one with --generate",
            )
        if not (password.isascii() and password.isprintable()):
            raise DataError(
                "a password may have only printable ASCII characters, which all clients encode alike",
                code="password",
                hint="generate one with --generate",
            )
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
        return cls(
            ITERATIONS,
            salt,
            _compute_sha256(_compute_hmac(salted, b"Client Key")),
            _compute_hmac(salted, b"Server Key"),
        )

    def matches_password(self, password: str) -> bool:
        """Return whether this is the password's verifier, compared in constant time; the check costs as many hashes as a guess."""
        salted = hashlib.pbkdf2_hmac("sha256", password.encode("utf-8"), self.salt, self.iterations)
        return hmac.compare_digest(_compute_sha256(_compute_hmac(salted, b"Client Key")), self.stored_key)

    @classmethod
    def make_mock(cls, user: str, secret: bytes) -> Verifier:
        """Return a verifier of no password: always the same for a name, so that it looks like a user's.

        Source: PostgreSQL 16, src/backend/libpq/auth-scram.c, mock_scram_secret.
        """
        salt, stored, server = (
            _compute_hmac(secret, f"{what} {user}".encode("utf-8", "replace"))
            for what in ("salt", "stored", "server")
        )
        return cls(ITERATIONS, salt[:16], stored, server)


class ScramExchange:
    """One exchange by which a client proves that it knows the password of a verifier.

    `known` says whether there is such a user: without one every step is the same, and the last fails.
    """

    def __init__(self, verifier: Verifier, *, known: bool) -> None:
        self._verifier, self._known = verifier, known
        self._header = self._nonce = self._auth_message = ""

    def answer_first_message(self, message: str) -> str | None:
        """Return the server's first message, or None if the client's is invalid or asks for a channel binding."""
        match = _FIRST.fullmatch(message)
        if match is None:
            return None
        self._header = match["header"]
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        challenge = f"r={self._nonce},s={_encode_base64(self._verifier.salt)},i={self._verifier.iterations}"
        self._auth_message = f"{match['bare']},{challenge}"
        return challenge

    def answer_final_message(self, message: str) -> str | None:
        """Return the server's last message, or None if the client's proof is wrong or there is no such user."""
        match = _FINAL.fullmatch(message)
        if (
            match is None
            or match["bound"] != _encode_base64(self._header.encode())
            or match["nonce"] != self._nonce
        ):
            return None
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except ValueError:
            return None
        if len(proof) != 32:
            return None
        said = f"{self._auth_message},{match['without']}".encode()
        signature = _compute_hmac(self._verifier.stored_key, said)
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        proved = hmac.compare_digest(_compute_sha256(client_key), self._verifier.stored_key)
        ours = f"v={_encode_base64(_compute_hmac(self._verifier.server_key, said))}"
        return ours if proved and self._known else None


def _compute_hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _compute_sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
