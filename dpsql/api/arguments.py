"""The arguments of `connect`: those of a database in this process, and the address of a server."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpsql.errors import ProgrammingError
from dpsql.policy.request.loss import Amount


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """The arguments of `connect` for a database in this process; on a server its owner decides them."""

    policy: Any = None
    ledger: Any = None
    analyst: str | None = None
    anchor: Any = None
    ledger_key: bytes | str | Path | None = None
    reserve: Amount | None = None
    temp_directory: str | Path | None = None
    temp_limit: str | None = None


# Addresses of servers: without secrets, and encrypted unless they are on this machine.


PORT = 8439
_SCHEME = re.compile(r"https?://", re.IGNORECASE)


def is_address(database: Any) -> bool:
    """Return whether a database argument is the address of a server.

    >>> is_address("https://dp.example.org"), is_address("hospital.duckdb")
    (True, False)
    """
    return isinstance(database, str) and _SCHEME.match(database) is not None


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, and whether the connection is encrypted."""

    host: str
    port: int
    encrypted: bool

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse a URL. Raises ProgrammingError (`address`) if it has further parts, or would send a token unencrypted.

        >>> Address.parse("https://dp.example.org")
        Address(host='dp.example.org', port=8439, encrypted=True)
        """
        host, port, parts = None, None, None
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:  # whose words may quote the URL
            parts = None
        if parts is None or not host or port == 0 or not text.isascii() or not text.isprintable():
            raise _make_error("this is not the address of a server")
        if parts.username is not None or parts.password is not None:
            raise _make_error(
                "a server address may not contain a user, password or token",
                "pass connect(url, token=…), or set DPSQL_TOKEN",
            )
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _make_error("a server address may have only a host and a port")
        encrypted = parts.scheme.lower() == "https"
        if not encrypted and not _is_local(host):
            raise _make_error(
                f"{host} is another machine, so the token and the answers would cross the network unencrypted",
                f"use https://{host}, or a tunnel to http://localhost",
            )
        return cls(host, PORT if port is None else port, encrypted)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.encrypted}://{host}:{self.port}"


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _make_error(message: str, hint: str | None = None) -> ProgrammingError:
    return ProgrammingError(message, code="address", hint=hint or f"write https://host:{PORT}")
