"""The server's messages: values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from dpsql.server.protocol.failure import Failure
from dpsql.server.protocol.values import Column, encoded


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text: str) -> bytes:
    # A NUL would end the field: what follows would be read as another one.
    return text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0"


def sasl(mechanisms: Iterable[str]) -> bytes:
    """Asks for one of these SASL mechanisms."""
    return _message(b"R", struct.pack("!i", 10), *map(_text, mechanisms), b"\0")


def sasl_continue(data: str) -> bytes:
    """The server's first SASL message."""
    return _message(b"R", struct.pack("!i", 11), data.encode())


def sasl_final(data: str) -> bytes:
    """The server's last SASL message."""
    return _message(b"R", struct.pack("!i", 12), data.encode())


def authenticated() -> bytes:
    """The client is who it says."""
    return _message(b"R", struct.pack("!i", 0))


def negotiate(unknown: Sequence[str]) -> bytes:
    """The newest minor version that is spoken here, and the options of the protocol that are not."""
    return _message(b"v", struct.pack("!ii", 0, len(unknown)), *map(_text, unknown))


def parameter_status(name: str, value: str) -> bytes:
    """A setting that clients follow."""
    return _message(b"S", _text(name), _text(value))


def key_data(process: int, key: bytes) -> bytes:
    """By what this connection's statements are cancelled."""
    return _message(b"K", struct.pack("!i", process), key)


def ready(status: str) -> bytes:
    """The next statement may come; `status` is I outside a transaction, T within one, E within a failed one."""
    return _message(b"Z", status.encode())


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """The names and types of the rows that follow."""
    fields = (
        _text(column.name) + struct.pack("!ihihih", 0, 0, column.oid, column.size, -1, code)
        for column, code in zip(columns, formats, strict=True)
    )
    return _message(b"T", struct.pack("!h", len(columns)), *fields)


def no_data() -> bytes:
    """A statement without rows."""
    return _message(b"n")


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return _message(b"t", struct.pack("!H", len(oids)), *(struct.pack("!I", oid) for oid in oids))


def data_row(values: Sequence[bytes | None]) -> bytes:
    """One row."""
    fields = (
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )
    return _message(b"D", struct.pack("!h", len(values)), *fields)


def complete(tag: str) -> bytes:
    """A statement is done."""
    return _message(b"C", _text(tag))


def empty_query() -> bytes:
    """A text without a statement."""
    return _message(b"I")


def suspended() -> bytes:
    """A portal has more rows."""
    return _message(b"s")


def parse_complete() -> bytes:
    """A statement has its name."""
    return _message(b"1")


def bind_complete() -> bytes:
    """A portal is made."""
    return _message(b"2")


def close_complete() -> bytes:
    """A statement or portal is forgotten."""
    return _message(b"3")


def error(failure: Failure) -> bytes:
    """A statement, or the connection, has failed."""
    return _message(b"E", *_fields(failure))


def notice(failure: Failure) -> bytes:
    """What a client should show beside an answer."""
    return _message(b"N", *_fields(failure))


def _fields(failure: Failure) -> Iterable[bytes]:
    fields = {
        "S": failure.severity,
        "V": failure.severity,
        "C": failure.sqlstate,
        "M": failure.message,
        "D": failure.detail,
        "H": failure.hint,
        "P": failure.position,
        "p": failure.internal_position,
        "q": failure.internal_query,
    }
    yield from (name.encode() + _text(str(value)) for name, value in fields.items() if value is not None)
    yield b"\0"


def tag_of_rows(tag: str, sent: int) -> str:
    """The tag of a portal's last rows, with how many they are."""
    word, space, _ = tag.rpartition(" ")
    return f"{word} {sent}" if space and word == "SELECT" else tag


def row(columns: tuple[Column, ...], codes: tuple[int, ...], values: tuple[Any, ...]) -> bytes:
    """A row of an answer, with the format of each value. Raises Failed for a value that its format does not hold."""
    written = [
        encoded(value, column.oid, code) for value, column, code in zip(values, columns, codes, strict=True)
    ]
    return data_row(written)
