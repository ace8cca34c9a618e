"""What a client is told of an error: a message with its SQLSTATE, and where in the text it is."""

from __future__ import annotations

from dataclasses import dataclass

NO_CODE = "XX000"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as ErrorResponse carries it.

    `position` counts characters of the client's text from 1. Where the place is in another text, as a translation,
    `internal_query` is that text and `internal_position` the place in it. `charged` says whether the statement was charged,
    None where that is not known; no field of the message has it.
    """

    sqlstate: str
    message: str
    hint: str | None = None
    detail: str | None = None
    position: int | None = None
    internal_query: str | None = None
    internal_position: int | None = None
    severity: str = "ERROR"
    charged: bool | None = None


class ProtocolError(Exception):
    """A message that no client of the protocol sends; the connection is closed after it is said."""

    def __init__(self, message: str, sqlstate: str = "08P01") -> None:
        super().__init__(message)
        self.failure = Failure(sqlstate, message, severity="FATAL")


class StatementError(Exception):
    """A statement that cannot be answered."""

    def __init__(self, sqlstate: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(sqlstate, message, hint)
