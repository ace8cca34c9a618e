"""A client of the PostgreSQL protocol that sends whatever messages a test wants, as no driver here does."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Self

from .scram_client import ScramClient
from .test_messages import message, startup


class RawClient:
    """A connection that is logged in; `ask` sends messages and returns what the server says up to ReadyForQuery."""

    def __init__(self, port: int, user: str, password: str, **settings: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._left = b""
        self.parsed = set[str]()
        """Names of statements that were parsed, for tests that keep them."""
        told = {"user": user, "database": "x", **settings}
        body = "".join(f"{name}\0{value}\0" for name, value in told.items()).encode() + b"\0"
        self._socket.sendall(startup(struct.pack("!i", 196608) + body))
        self._next()
        client = ScramClient(password)
        first = client.first().encode()
        self._socket.sendall(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
        challenge = self._next()[1][4:].decode()
        self._socket.sendall(message(b"p", client.final(challenge).encode()))
        self.hello = self._until_ready()
        """What the server says to the login."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def ask(self, *messages: bytes) -> list[tuple[str, bytes]]:
        """What the server says to messages, of which the last is answered by ReadyForQuery."""
        self._socket.sendall(b"".join(messages))
        return self._until_ready()

    def query(self, text: str) -> list[tuple[str, bytes]]:
        """What the server says to a simple query."""
        return self.ask(message(b"Q", text.encode() + b"\0"))

    def send(self, data: bytes) -> None:
        """Sends bytes, whatever they are."""
        self._socket.sendall(data)

    def said(self) -> tuple[str, bytes]:
        """The next message of the server's, whatever it is; ("", b"") at the end of the connection."""
        return self._next()

    def _until_ready(self) -> list[tuple[str, bytes]]:
        found = list[tuple[str, bytes]]()
        while not found or (found[-1][0] not in ("Z", "") and len(found) < 100_000):
            found.append(self._next())
        return found

    def _next(self) -> tuple[str, bytes]:
        while len(self._left) < 5 or len(self._left) < 1 + struct.unpack_from("!i", self._left, 1)[0]:
            part = self._socket.recv(65_536)
            if not part:
                return "", b""
            self._left += part
        length = 1 + struct.unpack_from("!i", self._left, 1)[0]
        one, self._left = self._left[:length], self._left[length:]
        return chr(one[0]), one[5:]


def parse(text: str, name: str = "") -> bytes:
    """Parse, without types of parameters."""
    return message(b"P", f"{name}\0{text}\0".encode() + struct.pack("!h", 0))


def bind(portal: str = "", name: str = "", *values: str) -> bytes:
    """Bind, with values as text."""
    body = b"".join(struct.pack("!i", len(each.encode())) + each.encode() for each in values)
    count = struct.pack("!hh", 0, len(values))
    return message(b"B", f"{portal}\0{name}\0".encode() + count + body + struct.pack("!h", 0))


def execute(portal: str = "", rows: int = 0) -> bytes:
    """Execute, of so many rows."""
    return message(b"E", f"{portal}\0".encode() + struct.pack("!i", rows))


DESCRIBE_PORTAL, SYNC = message(b"D", b"P\0"), message(b"S")


def state_of(told: list[tuple[str, bytes]]) -> str | None:
    """The SQLSTATE of the first error in what a server says."""
    for kind, body in told:
        if kind == "E":
            fields: dict[str, Any] = {chr(part[0]): part[1:].decode() for part in body.split(b"\0") if part}
            return str(fields["C"])
    return None


def rows_of(told: list[tuple[str, bytes]]) -> list[list[str | None]]:
    """The rows in what a server says, as texts."""
    return [_row(body) for kind, body in told if kind == "D"]


def _row(body: bytes) -> list[str | None]:
    (count,) = struct.unpack_from("!h", body)
    at, found = 2, list[str | None]()
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        found.append(None if length < 0 else body[at : at + length].decode())
        at += max(length, 0)
    return found
