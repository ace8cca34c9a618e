"""The client's side of SCRAM-SHA-256, written apart from the server's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


class ScramClient:
    """One exchange with a password."""

    def __init__(self, password: str) -> None:
        self._password = password
        self._nonce = secrets.token_hex(12)

    def first(self) -> str:
        """The first message."""
        return f"n,,n=,r={self._nonce}"

    def final(self, server: str) -> str:
        """The last message, after the server's first."""
        parts = dict(part.split("=", 1) for part in server.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", self._password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
        )
        key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c={base64.b64encode(b'n,,').decode()},r={parts['r']}"
        said = f"n=,r={self._nonce},{server},{without}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
        proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}"
