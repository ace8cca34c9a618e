"""The messages of the wire protocol: the client's as frozen values, and the server's as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.interfaces.server.protocol.errors import Failure, ProtocolError
from dpsql.interfaces.server.protocol.values import Column, encode_value

# The client's messages: bytes to frozen values, within limits of size.


MOST_AT_STARTUP = 10_000
"""The largest number of bytes of a message before the login, as in PostgreSQL."""
MOST = 4_000_000
"""The largest number of bytes of a message after the login: of the longest text with its parameters."""
MOST_PARAMETERS = 1_000

VERSION_3 = 3
SSL, GSS, CANCEL = 80877103, 80877104, 80877102


@dataclass(frozen=True, slots=True)
class Startup:
    """The first message: the user and settings; `minor` is the protocol's minor version."""

    parameters: dict[str, str]
    minor: int


@dataclass(frozen=True, slots=True)
class SSLRequest:
    """A request for TLS."""


@dataclass(frozen=True, slots=True)
class GSSRequest:
    """A request for encryption by GSSAPI."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel the statement of another connection, by its number and key."""

    process: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Password:
    """A step of an authentication, whose meaning depends on the previous step."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """A simple query: a text of any number of statements."""

    text: str


@dataclass(frozen=True, slots=True)
class Parse:
    """A statement to prepare; `types` are the types of its parameters as far as the client states them."""

    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """The values of a statement's parameters, for a portal; `formats` and `results` are 0 for text, 1 for binary."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """A request for the columns of a statement (`S`) or portal (`P`)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """A request for rows of a portal, at most `rows` of them unless that is 0."""

    portal: str
    rows: int


@dataclass(frozen=True, slots=True)
class Close:
    """A statement (`S`) or portal (`P`) to close."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Flush:
    """A request to send all output."""


@dataclass(frozen=True, slots=True)
class Sync:
    """The end of a series of extended messages."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """The end of the connection."""


@dataclass(frozen=True, slots=True)
class Other:
    """A message of COPY or of function calls, which are not supported."""

    kind: str


FirstMessage = Startup | SSLRequest | GSSRequest | CancelRequest
Message = (
    Password | Query | Parse | Bind | Describe | Execute | Close | Flush | Sync | Terminate | Other
)  # fmt: skip


class MessageBuffer:
    """The received bytes that are not parsed yet.

    A malformed message raises ProtocolError, whatever its bytes are; nothing else is raised.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    def feed_bytes(self, data: bytes) -> None:
        """Add received bytes."""
        self._bytes += data

    def take_first_message(self) -> FirstMessage | None:
        """Return the next message before the startup packet, or None until it is complete."""
        if len(self._bytes) < 4:
            return None
        (length,) = struct.unpack_from("!i", self._bytes)
        if not 8 <= length <= MOST_AT_STARTUP:
            raise ProtocolError("invalid length of startup packet")
        if len(self._bytes) < length:
            return None
        body = bytes(self._bytes[4:length])
        del self._bytes[:length]
        return _parse_first_message(body)

    def take_message(self, limit: int) -> Message | None:
        """Return the next message of at most `limit` bytes, or None until it is complete."""
        if len(self._bytes) < 5:
            return None
        kind, length = struct.unpack_from("!ci", self._bytes)
        if kind not in _MESSAGES:
            raise ProtocolError(f"invalid frontend message type {kind[0]}")
        if length < 4 or length > limit:
            raise ProtocolError("invalid message length")
        if len(self._bytes) <= length:
            return None
        body = bytes(self._bytes[5 : length + 1])
        del self._bytes[: length + 1]
        reader = _FieldReader(body)
        message = _MESSAGES[kind](reader)
        reader.require_end()
        return message


def _parse_first_message(body: bytes) -> FirstMessage:
    reader = _FieldReader(body)
    major, minor = reader.read_int16(), reader.read_int16()
    code = (major << 16) | (minor & 0xFFFF)
    if code in (SSL, GSS):
        reader.require_end()
        return SSLRequest() if code == SSL else GSSRequest()
    if code == CANCEL:
        process, key = reader.read_int32(), reader.read_rest()
        if not 4 <= len(key) <= 256:
            raise ProtocolError("invalid length of cancel key")
        return CancelRequest(process, key)
    if major != VERSION_3:
        raise ProtocolError(
            f"unsupported frontend protocol {major}.{minor}: the server supports 3.0", "0A000"
        )
    parameters = dict[str, str]()
    while name := reader.read_text():
        if name in parameters:
            raise ProtocolError("invalid startup packet layout: a parameter is given twice")
        parameters[name] = reader.read_text()
    reader.require_end()
    return Startup(parameters, minor)


class _FieldReader:
    """The fields of a message's body, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def read_bytes(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._body):
            raise ProtocolError("insufficient data left in message")
        taken = self._body[self._at : self._at + count]
        self._at += count
        return taken

    def read_int16(self) -> int:
        return int.from_bytes(self.read_bytes(2), signed=True)

    def read_int32(self) -> int:
        return int.from_bytes(self.read_bytes(4), signed=True)

    def read_text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("invalid string in message")
        taken = self.read_bytes(end + 1 - self._at)[:-1]
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise ProtocolError('invalid byte sequence for encoding "UTF8"', "22021") from None

    def read_kind(self) -> str:
        kind = self.read_bytes(1)
        if kind not in (b"S", b"P"):
            raise ProtocolError("invalid subtype in message")
        return kind.decode()

    def read_count(self) -> int:
        """Return a number of items; each takes at least two bytes, so that a number beyond the message is refused."""
        count = int.from_bytes(self.read_bytes(2))
        if count > MOST_PARAMETERS:
            raise ProtocolError(f"a statement has at most {MOST_PARAMETERS:,} parameters", "54023")
        return count

    def read_formats(self) -> tuple[int, ...]:
        found = tuple(self.read_int16() for _ in range(self.read_count()))
        if not set(found) <= {0, 1}:
            raise ProtocolError("unsupported format code")
        return found

    def read_value(self) -> bytes | None:
        length = self.read_int32()
        return None if length == -1 else self.read_bytes(length)

    def read_rest(self) -> bytes:
        return self.read_bytes(len(self._body) - self._at)

    def require_end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError("invalid message format")


def _read_parse(reader: _FieldReader) -> Message:
    name, text = reader.read_text(), reader.read_text()
    return Parse(name, text, tuple(reader.read_int32() & 0xFFFFFFFF for _ in range(reader.read_count())))


def _read_bind(reader: _FieldReader) -> Message:
    portal, statement, formats = reader.read_text(), reader.read_text(), reader.read_formats()
    values = tuple(reader.read_value() for _ in range(reader.read_count()))
    return Bind(portal, statement, formats, values, reader.read_formats())


def _read_execute(reader: _FieldReader) -> Message:
    return Execute(reader.read_text(), max(reader.read_int32(), 0))


def _read_other(reader: _FieldReader) -> Message:
    reader.read_rest()
    return Other("COPY or a function call")


_MESSAGES: dict[bytes, Callable[[_FieldReader], Message]] = {
    b"p": lambda reader: Password(reader.read_rest()),
    b"Q": lambda reader: Query(reader.read_text()),
    b"P": _read_parse,
    b"B": _read_bind,
    b"D": lambda reader: Describe(reader.read_kind(), reader.read_text()),
    b"E": _read_execute,
    b"C": lambda reader: Close(reader.read_kind(), reader.read_text()),
    b"H": lambda _: Flush(),
    b"S": lambda _: Sync(),
    b"X": lambda _: Terminate(),
    b"d": _read_other,
    b"c": _read_other,
    b"f": _read_other,
    b"F": _read_other,
}


def parse_initial_response(data: bytes) -> tuple[str, bytes]:
    """Return the mechanism and the first message of a SASLInitialResponse."""
    reader = _FieldReader(data)
    mechanism, length = reader.read_text(), reader.read_int32()
    first = b"" if length == -1 else reader.read_bytes(length)
    reader.require_end()
    return mechanism, first


# The server's messages: values to bytes.


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
    return f"{word} {sent}" if space and word in ("SELECT", "FETCH") else tag


def encode_row(columns: tuple[Column, ...], codes: tuple[int, ...], values: tuple[Any, ...]) -> bytes:
    """Return the message of a row, with each value in its format. Raises StatementError if a format cannot hold a value."""
    written = [
        encode_value(value, column.oid, code)
        for value, column, code in zip(values, columns, codes, strict=True)
    ]
    return data_row(written)
