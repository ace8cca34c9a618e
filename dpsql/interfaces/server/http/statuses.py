"""Map errors to HTTP statuses; the body is the JSON of `dpsql.results.json.failures`."""

from __future__ import annotations

from dpsql import errors
from dpsql.errors import Error, OperationalError, ProgrammingError

_BY_CODE = {
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "not_acceptable": 406,
    "slow_body": 408,
    "large_body": 413,
    "media_type": 415,
    "too_many_statements": 429,
    "cancelled": 504,
    "stopped": 504,
    "not_begun": 504,
    "table_locked": 423,
    "stopping": 503,
    "reload": 503,
    "data_version": 409,
    "busy": 503,
    "provider": 503,
    "audit": 503,
}
_BY_CLASS: tuple[tuple[type[Error], int], ...] = (
    (errors.BudgetExhausted, 402),
    (errors.BackendError, 500),
    (errors.OperationalError, 503),
    (errors.IntegrityError, 500),
    (errors.InternalError, 500),
    (errors.PolicyError, 500),
    (errors.NotSupportedError, 422),
    (errors.DataError, 400),
    (errors.ProgrammingError, 400),
)


def get_status(error: Error) -> int:
    """Return the HTTP status of an error."""
    found = _BY_CODE.get(error.code)
    return found or next((number for kind, number in _BY_CLASS if isinstance(error, kind)), 500)


def make_unauthenticated_error() -> Error:
    """Return the one error for all failures of authentication."""
    return OperationalError(
        "no valid token or password given",
        code="unauthenticated",
        hint="send Authorization: Bearer TOKEN; create a token with dpsql users token NAME",
    )


def make_body_error(reason: str, hint: str | None = None) -> ProgrammingError:
    """Return the error for an invalid body."""
    return ProgrammingError(f"the body of the request {reason}", code="body", hint=hint)
