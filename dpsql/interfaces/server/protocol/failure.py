"""Errors for clients: a message with its SQLSTATE, and the position in the text."""

from __future__ import annotations

from dataclasses import dataclass

NO_CODE = "XX000"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as ErrorResponse carries it.

    `position` counts characters of the client's text from 1. For a position in another text, as a translation, `internal_query`
    is that text and `internal_position` the position in it. `charged` says whether the statement was charged, None if that is
    unknown; it is not sent.
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
    """A violation of the protocol; the connection is closed after it is reported."""

    def __init__(self, message: str, sqlstate: str = "08P01") -> None:
        super().__init__(message)
        self.failure = Failure(sqlstate, message, severity="FATAL")


class StatementError(Exception):
    """An error of a statement."""

    def __init__(self, sqlstate: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(sqlstate, message, hint)

    @classmethod
    def from_failure(cls, failure: Failure) -> StatementError:
        """Return the error that reports a failure."""
        error = cls(failure.sqlstate, failure.message)
        error.failure = failure
        return error
