"""Digests of a ledger's rows, with or without a key."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from dpsql.errors import OperationalError, ProgrammingError

Row: TypeAlias = Mapping[str, Any]

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_canonical_json(value: Row) -> str:
    """Return the value as JSON text, the same for equal values; ProgrammingError if JSON cannot hold it."""
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError, RecursionError):
        raise ProgrammingError(
            "the details of an entry must be values that JSON can hold", code="ledger_details"
        ) from None


def compute_text_digest(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes, in hex; ProgrammingError if it has none."""
    return hashlib.sha256(_encode_text(text)).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyedDigest:
    """Makes and checks digests: SHA-256, or HMAC-SHA256 under a key.

    Claim: equal digests mean equal rows (else SHA-256 has a collision), and without the key nobody makes a row
    that passes.
    Why: the text that is digested is the canonical JSON of all of the row's columns except `digest`.
    Source: Bellare, Canetti, Krawczyk 1996, "Keying hash functions for message authentication".

    >>> KeyedDigest().compute_digest({"id": 1, "digest": ""}) == KeyedDigest().compute_digest({"id": 1})
    True
    >>> KeyedDigest(b"a key of some length").compute_digest({"id": 1}) == KeyedDigest().compute_digest({"id": 1})
    False
    """

    key: bytes | None = field(default=None, repr=False)

    def compute_digest(self, row: Row) -> str:
        """Return the digest that the row is to have, in hex. Raises ProgrammingError for values that JSON cannot hold."""
        text = to_canonical_json({name: value for name, value in row.items() if name != "digest"})
        if self.key is None:
            return compute_text_digest(text)
        return hmac.digest(self.key, _encode_text(text), "sha256").hex()

    def is_intact(self, row: Row) -> bool:
        """Return whether the row has its digest."""
        try:
            return hmac.compare_digest(self.compute_digest(row), row["digest"])
        except (ProgrammingError, TypeError):
            return False


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ProgrammingError(
            "the text holds a lone surrogate, so it is not valid Unicode", code="text"
        ) from None


# The owner's secret key for the digests of a ledger (HMAC).


_LEAST = 16  # bytes: 128 bits, if they are random
_MOST = 1024


def read_ledger_key(source: bytes | str | Path | None) -> bytes | None:
    r"""Return the key that bytes are, or that the file at a path holds, without a line's end; None without one.

    A text is always a path, so that no key stands in a command line or a program. Raises OperationalError where the
    file cannot be read, ProgrammingError for a key of less than 16 or more than 1024 bytes.

    >>> read_ledger_key(b"0123456789abcdef\n")
    b'0123456789abcdef'
    """
    if source is None:
        return None
    key = (source if isinstance(source, bytes) else _read_key_file(source)).rstrip(b"\r\n")
    if not _LEAST <= len(key) <= _MOST:
        raise ProgrammingError(
            f"the key of a ledger must have {_LEAST} to {_MOST} bytes",
            code="ledger_key",
            hint="create one and keep it: openssl rand -hex 32 > ledger.key",
        )
    return key


def _read_key_file(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST + 3)
    except (OSError, ValueError):
        raise OperationalError(
            f"the key file {path} of the ledger cannot be read",
            code="ledger_key",
            hint="check the path, and that this user may read the file",
        ) from None
