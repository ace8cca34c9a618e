"""The owner's secret key for the digests of a ledger (HMAC)."""

from __future__ import annotations

from pathlib import Path

from dpsql.errors import OperationalError, ProgrammingError

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
