"""The server's messages: values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from dpsql.interfaces.server.protocol.failure import Failure
from dpsql.interfaces.server.protocol.values import Column, encode_value

SERVER_VERSION = "15.0"
"""The version of PostgreSQL whose catalog and protocol are emulated; clients choose their queries by it."""


def _encode_message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def _encode_text(text: str) -> bytes:
    # A NUL would end the field, and the client would read the rest as another field.
    return text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0"


def authentication_sasl(mechanisms: Iterable[str]) -> bytes:
    """Return the message that asks for one of these SASL mechanisms."""
    return _encode_message(b"R", struct.pack("!i", 10), *map(_encode_text, mechanisms), b"\0")


def authentication_sasl_continue(data: str) -> bytes:
    """Return the server's first SASL message."""
    return _encode_message(b"R", struct.pack("!i", 11), data.encode())


def authentication_sasl_final(data: str) -> bytes:
    """Return the server's last SASL message."""
    return _encode_message(b"R", struct.pack("!i", 12), data.encode())


def authentication_ok() -> bytes:
    """Return the message that the client is authenticated."""
    return _encode_message(b"R", struct.pack("!i", 0))


def negotiate_protocol_version(unknown: Sequence[str]) -> bytes:
    """Return the message with the newest supported minor version and the protocol options that are not supported."""
    return _encode_message(b"v", struct.pack("!ii", 0, len(unknown)), *map(_encode_text, unknown))


def parameter_status(name: str, value: str) -> bytes:
    """Return the message with the value of a reported setting."""
    return _encode_message(b"S", _encode_text(name), _encode_text(value))


def backend_key_data(process: int, key: bytes) -> bytes:
    """Return the message with the number and key that cancel this connection's statements."""
    return _encode_message(b"K", struct.pack("!i", process), key)


def ready_for_query(status: str) -> bytes:
    """Return the message that the next statement may come; `status` is I outside a transaction, T within one, E within a failed one."""
    return _encode_message(b"Z", status.encode())


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """Return the message with the names and types of the columns."""
    fields = (
        _encode_text(column.name) + struct.pack("!ihihih", 0, 0, column.oid, column.size, -1, code)
        for column, code in zip(columns, formats, strict=True)
    )
    return _encode_message(b"T", struct.pack("!h", len(columns)), *fields)


def no_data() -> bytes:
    """Return the message that a statement has no rows."""
    return _encode_message(b"n")


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the message with the types of a statement's parameters."""
    return _encode_message(b"t", struct.pack("!H", len(oids)), *(struct.pack("!I", oid) for oid in oids))


def data_row(values: Sequence[bytes | None]) -> bytes:
    """Return the message with one row."""
    fields = (
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )
    return _encode_message(b"D", struct.pack("!h", len(values)), *fields)


def command_complete(tag: str) -> bytes:
    """Return the message that a statement is complete."""
    return _encode_message(b"C", _encode_text(tag))


def empty_query_response() -> bytes:
    """Return the message that a text has no statement."""
    return _encode_message(b"I")


def portal_suspended() -> bytes:
    """Return the message that a portal has more rows."""
    return _encode_message(b"s")


def parse_complete() -> bytes:
    """Return the message that a statement is prepared."""
    return _encode_message(b"1")


def bind_complete() -> bytes:
    """Return the message that a portal is bound."""
    return _encode_message(b"2")


def close_complete() -> bytes:
    """Return the message that a statement or portal is closed."""
    return _encode_message(b"3")


def error_response(failure: Failure) -> bytes:
    """Return the message that a statement or the connection failed."""
    return _encode_message(b"E", *_encode_failure_fields(failure))


def notice_response(failure: Failure) -> bytes:
    """Return the message of a notice beside an answer."""
    return _encode_message(b"N", *_encode_failure_fields(failure))


def _encode_failure_fields(failure: Failure) -> Iterable[bytes]:
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
    yield from (
        name.encode() + _encode_text(str(value)) for name, value in fields.items() if value is not None
    )
    yield b"\0"


def format_row_tag(tag: str, sent: int) -> str:
    """Return the tag of a portal's last rows, with their number."""
    word, space, _ = tag.rpartition(" ")
    return f"{word} {sent}" if space and word == "SELECT" else tag


def encode_row(columns: tuple[Column, ...], codes: tuple[int, ...], values: tuple[Any, ...]) -> bytes:
    """Return the message of a row, with each value in its format. Raises StatementError if a format cannot hold a value."""
    written = [
        encode_value(value, column.oid, code)
        for value, column, code in zip(values, columns, codes, strict=True)
    ]
    return data_row(written)
