"""The client's messages: each is parsed as it was sent, and other bytes are a protocol error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.interfaces.server.protocol.errors import ProtocolError
from dpsql.interfaces.server.protocol.messages import (
    MOST,
    Bind,
    CancelRequest,
    Close,
    Describe,
    Execute,
    Flush,
    GSSRequest,
    MessageBuffer,
    Parse,
    Password,
    Query,
    SSLRequest,
    Startup,
    Sync,
    Terminate,
)


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(body: bytes) -> bytes:
    return struct.pack("!i", len(body) + 4) + body


MESSAGES = {
    message(b"Q", b"SELECT 1\0"): Query("SELECT 1"),
    message(b"P", b"s\0SELECT $1\0" + struct.pack("!hi", 1, 20)): Parse("s", "SELECT $1", (20,)),
    message(b"B", b"p\0s\0" + struct.pack("!hhhi", 1, 1, 2, -1) + struct.pack("!i", 2) + b"ab" + struct.pack("!hh", 1, 1)): Bind(
        "p", "s", (1,), (None, b"ab"), (1,)
    ),
    message(b"D", b"Ss\0"): Describe("S", "s"),
    message(b"E", b"p\0" + struct.pack("!i", 7)): Execute("p", 7),
    message(b"C", b"Pp\0"): Close("P", "p"),
    message(b"H"): Flush(),
    message(b"S"): Sync(),
    message(b"X"): Terminate(),
    message(b"p", b"data"): Password(b"data"),
}  # fmt: skip
FIRST = {
    startup(struct.pack("!i", 80877103)): SSLRequest(),
    startup(struct.pack("!i", 80877104)): GSSRequest(),
    startup(struct.pack("!ii", 80877102, 9) + b"keys"): CancelRequest(9, b"keys"),
    startup(struct.pack("!i", 196608) + b"user\0ana\0database\0x\0\0"): Startup(
        {"user": "ana", "database": "x"}, 0
    ),
}


@pytest.mark.parametrize(("data", "expected"), MESSAGES.items(), ids=lambda each: type(each).__name__)
def test_a_message_is_parsed_from_any_pieces(data: bytes, expected: object) -> None:
    buffer = MessageBuffer()
    for byte in data[:-1]:
        buffer.feed_bytes(bytes([byte]))
        assert buffer.take_message(MOST) is None
    buffer.feed_bytes(data[-1:] + data)
    assert buffer.take_message(MOST) == expected
    assert buffer.take_message(MOST) == expected
    assert buffer.take_message(MOST) is None
    assert not len(buffer)


@pytest.mark.parametrize(("data", "expected"), FIRST.items(), ids=lambda each: type(each).__name__)
def test_first_messages_are_parsed(data: bytes, expected: object) -> None:
    buffer = MessageBuffer()
    buffer.feed_bytes(data[:-1])
    assert buffer.take_first_message() is None
    buffer.feed_bytes(data[-1:])
    assert buffer.take_first_message() == expected


REFUSED = [
    message(b"z"),
    message(b"Q", b"no end"),
    message(b"Q", b"a\0b\0"),
    message(b"Q", b"\xff\0"),
    message(b"D", b"Xs\0"),
    message(b"S", b"more"),
    message(b"E", b"p\0\0"),
    message(b"B", b"\0\0" + struct.pack("!hh", 1, 2)),
    message(b"B", b"\0\0" + struct.pack("!hhi", 0, 1, -2)),
    message(b"B", b"\0\0" + struct.pack("!hhi", 0, 1, 100)),
    message(b"P", b"\0\0" + struct.pack("!H", 65535)),
    b"Q" + struct.pack("!i", MOST + 1),
    b"Q" + struct.pack("!i", 3),
    b"Q" + struct.pack("!i", -1),
]


@pytest.mark.parametrize("data", REFUSED)
def test_a_malformed_message_is_refused_at_its_header(data: bytes) -> None:
    buffer = MessageBuffer()
    buffer.feed_bytes(data)
    with pytest.raises(ProtocolError):
        buffer.take_message(MOST)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!i", 7) + b"abcd",
        struct.pack("!i", 10_001),
        struct.pack("!i", -1),
        startup(struct.pack("!i", 131072) + b"user\0ana\0\0"),
        startup(struct.pack("!i", 196608) + b"user\0ana\0"),
        startup(struct.pack("!i", 196608) + b"user\0ana\0\0x"),
        startup(struct.pack("!i", 196608) + b"user\0ana\0user\0bob\0\0"),
        startup(struct.pack("!i", 80877103) + b"x"),
        startup(struct.pack("!ii", 80877102, 9)),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_malformed_start_is_refused(data: bytes) -> None:
    buffer = MessageBuffer()
    buffer.feed_bytes(data)
    with pytest.raises(ProtocolError):
        buffer.take_first_message()


@settings(max_examples=examples(2_000))
@given(st.binary(max_size=80), st.sampled_from([None, *MESSAGES]), st.integers(0, 60), st.booleans())
def test_only_protocol_errors_are_raised(data: bytes, whole: bytes | None, cut: int, first: bool) -> None:
    """Of random bytes, and of messages in which some are replaced."""
    buffer = MessageBuffer()
    buffer.feed_bytes(data if whole is None else whole[:cut] + data + whole[cut + len(data) :])
    try:
        while (buffer.take_first_message() if first else buffer.take_message(MOST)) is not None:
            pass
    except ProtocolError as error:
        assert error.failure.severity == "FATAL"  # noqa: PT017  (nothing need be raised)
