"""Read requests, within limits of size, depth and time, and write responses as JSON or Arrow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dpsql import errors
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.http.bodies import RequestBody, make_body_error, parse_body

if TYPE_CHECKING:
    from dpsql.results.result import Result


# Responses of the API: JSON, Arrow, and the status of each error.


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


# Read requests: the body within limits of size, depth and time, and the parameters of the path and the query.


_Model = TypeVar("_Model", bound=RequestBody)
MOST_BYTES = 2_000_000
"""The largest number of bytes of a body."""
MOST_READ_HERE = 16_384
"""The largest number of bytes of a body that is parsed in the event loop, where all connections wait."""
ARROW = "application/vnd.apache.arrow.stream"
MOST_HISTORY = 1_000
"""The largest number of entries of one history."""
MOST_DEPTH = 8


async def read_body(request: Request, model: type[_Model], seconds: float) -> _Model:
    """Read the JSON body of a request. Raises ProgrammingError if it is invalid, OperationalError if it does not arrive."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProgrammingError(
            "the body of a request must be JSON", code="media_type", hint="Content-Type: application/json"
        )
    text = await read_body_bytes(request, seconds)
    if len(text) <= MOST_READ_HERE:
        return parse_body(model, parse_json(text))
    return await asyncio.get_running_loop().run_in_executor(None, lambda: parse_body(model, parse_json(text)))


async def read_body_bytes(request: Request, seconds: float) -> bytes:
    """Read the bytes of a body. Raises ProgrammingError if there are too many, OperationalError if they do not arrive in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await _read_bytes(request)
    raise OperationalError(f"the body was not received within {seconds:g} seconds", code="slow_body")


async def _read_bytes(request: Request) -> bytes:
    large = ProgrammingError(
        f"the body of a request may have at most {MOST_BYTES:,} bytes", code="large_body"
    )
    stated = request.headers.get("content-length", "0")
    if not (stated.isascii() and stated.isdigit()) or len(stated) > 12 or int(stated) > MOST_BYTES:
        raise large
    parts, length = list[bytes](), 0
    try:
        async for part in request.stream():
            length += len(part)
            if length > MOST_BYTES:
                raise large
            parts.append(part)
    except ClientDisconnect:
        raise make_body_error("is incomplete") from None
    return b"".join(parts)


def parse_json(text: bytes) -> Any:
    """Parse a JSON text; repeated names and NaN or infinity are invalid. Raises ProgrammingError.

    >>> parse_json(b'{"sql": "SELECT 1"}')
    {'sql': 'SELECT 1'}
    """
    found: Any = None
    reason = ""
    try:
        found = json.loads(
            text.decode("utf-8"), object_pairs_hook=_require_unique_names, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        reason = "is not JSON in UTF-8, repeats a name, or has an invalid number"
    if not reason and _is_deeper(found, MOST_DEPTH):
        reason = f"is nested more than {MOST_DEPTH} levels deep"
    if reason:
        raise make_body_error(reason, '{"sql": "SELECT COUNT(*) FROM visits", "epsilon": 0.1}')
    return found


def _require_unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse_constant(_: str) -> Any:
    raise ValueError


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def get_peer(request: Request) -> str:
    """Return the client address of a request."""
    return request.client.host if request.client else ""


def negotiate_media_type(request: Request) -> str:
    """Return the media type that the Accept header prefers. Raises ProgrammingError before anything is charged."""
    accepted = [
        each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "*/*").split(",")
    ]
    for each in accepted:
        if each == ARROW:
            if find_spec("pyarrow") is None:
                raise ProgrammingError(
                    "this server cannot write Arrow",
                    code="not_acceptable",
                    hint="the owner installs it with pip install pyarrow",
                )
            return ARROW
        if each in (JSON, "application/*", "*/*", ""):
            return JSON
    raise ProgrammingError(
        f"the Accept header allows neither {JSON} nor {ARROW}",
        code="not_acceptable",
        hint=f"send Accept: {JSON}",
    )


def parse_limit(request: Request) -> int:
    """Parse the requested number of entries. Raises ProgrammingError for an invalid number."""
    number = request.query_params.get("limit", "100")
    digits = number.isascii() and number.isdigit() and len(number) < 9
    if not digits or not 1 <= int(number) <= MOST_HISTORY:
        raise ProgrammingError(f"limit must be a number from 1 to {MOST_HISTORY:,}", code="argument")
    return int(number)


def parse_number(text: str) -> float | None:
    """Parse a number, or return None for another text."""
    try:
        return float(text)
    except ValueError:
        return None


def parse_path_number(request: Request, name: str) -> int | None:
    """Parse a number from a part of the path, or return None for another text."""
    text = str(request.path_params[name])
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


async def wait_for_disconnect(request: Request) -> None:
    """Wait until the client has disconnected or received its answer."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
