"""Responses of the API: JSON, Arrow, and the status of each error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from starlette.responses import Response

from dpsql import errors
from dpsql.errors import Error

if TYPE_CHECKING:
    from dpsql.results.result import Result


JSON = "application/json"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def write_json(data: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return data as JSON in ASCII."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")


def to_json_response(data: Mapping[str, Any] | BaseModel, number: int = 200) -> Response:
    """Return a JSON response."""
    body = data.model_dump() if isinstance(data, BaseModel) else data
    return Response(write_json(body), number, headers=HEADERS, media_type=JSON)


def to_arrow_bytes(result: Result, metadata: Mapping[str, Any]) -> bytes:
    """Return the rows in Arrow's IPC stream format, with everything else as JSON in the schema's metadata, under `dpsql`."""
    import io

    import pyarrow

    table = result.to_arrow_table().replace_schema_metadata({"dpsql": write_json(metadata)})
    out = io.BytesIO()
    with pyarrow.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


# Map errors to HTTP statuses; the body is the JSON of `dpsql.results.json_format`.


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
