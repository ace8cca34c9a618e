"""Errors for clients: a message with its SQLSTATE, position, hint and detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql import errors
from dpsql.errors import Error

# Errors for clients: a message with its SQLSTATE, and the position in the text.


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


# Errors of dpsql as PostgreSQL's clients know them: SQLSTATE, position, hint and detail.


_BY_CODE = {
    "syntax": "42601",
    "one_statement": "42601",
    "parameter": "42P02",
    "table": "42P01",
    "column": "42703",
    "function": "42883",
    "ambiguous": "42702",
    "type": "42804",
    "group_by": "42803",
    "too_long": "54000",
    "too_deep": "54001",
    "not_a_select": "25006",
    "epsilon_missing": "22023",
    "epsilon_cap": "22023",
    "epsilon_floor": "22023",
    "cancelled": "57014",
    "stopped": "57014",
    "table_locked": "55006",
    "audit": "58030",
    "too_many_statements": "53400",
}
_BY_CLASS: tuple[tuple[type[Error], str], ...] = (
    (errors.BudgetExhausted, "53400"),
    (errors.BackendError, "58000"),
    (errors.IntegrityError, "XX001"),
    (errors.InternalError, "XX000"),
    (errors.QueryRejected, "0A000"),
    (errors.NotSupportedError, "0A000"),
    (errors.LossError, "22023"),
    (errors.PolicyError, "F0000"),
    (errors.DataError, "22023"),
    (errors.OperationalError, "58000"),
    (errors.ProgrammingError, "42000"),
)
_HINTS = {"epsilon_missing": "set one: SET dpsql.epsilon = 0.1, or SET dpsql.target_error = 50"}


def to_failure(error: Error, engine_text: str, places: Sequence[int] = ()) -> Failure:
    """Return the failure that reports an error of a statement.

    `engine_text` is the text that the engine got; `places` are the positions in it of letters that the client did not write.

    An error's text depends only on the query, the policy and public metadata (see `dpsql.errors`), and so does a failure's.
    """
    state = _BY_CODE.get(error.code) or next(
        (state for kind, state in _BY_CLASS if isinstance(error, kind)), "XX000"
    )
    position = internal = None
    query = None
    at = _find_offset(error)
    if at is not None:
        if error.text == engine_text:
            position = at - sum(place < at for place in places) + 1
        else:
            query, internal = error.text, at + 1
    return Failure(
        state,
        error.message,
        _HINTS.get(error.code, _translate_hint(error.hint)),
        f"dpsql error code: {error.code}",
        position,
        query,
        internal,
        charged=error.charged,
    )


def _translate_hint(hint: str | None) -> str | None:
    """Return a hint with a session's setting in place of a Python argument."""
    return None if hint is None else hint.replace("leave out dialect", "SET dpsql.dialect = duckdb")


def _find_offset(error: Error) -> int | None:
    """Return the position of an error in its text, from 0."""
    if error.position is None or error.text is None:
        return None
    rows = error.text.splitlines(keepends=True)
    if not 1 <= error.position.line <= len(rows):
        return None
    return sum(map(len, rows[: error.position.line - 1])) + error.position.column - 1


def make_unforeseen_failure() -> Failure:
    """Return the failure for an unforeseen error, without its words, which could quote private values."""
    return Failure(
        "XX000",
        "unexpected failure in dpsql; any charge stands",
        "ask the owner; the server's log has the place",
        "dpsql error code: internal",
    )
