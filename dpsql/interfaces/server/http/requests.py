"""Parse requests: the JSON of the body, within limits of size, depth and time, and the options of a query in it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.server.http.responses import JSON, make_body_error
from dpsql.interfaces.server.statements import MOST_CHARACTERS
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results.json_format import read_parameters

_FRACTION = re.compile(r"\d{1,600}/[1-9]\d{0,599}", re.ASCII)
MOST_BYTES = 2_000_000
"""Bytes of a body."""
MOST_READ_HERE = 16_384
"""Bytes of a body that is read where all connections wait for it."""
ARROW = "application/vnd.apache.arrow.stream"
MOST_HISTORY = 1_000
"""Entries of a history that are asked for at a time."""
MOST_DEPTH = 8
MOST_CONFIDENCES = 8
MOST_QUERIES = 100
"""Queries whose price is asked for together."""
MOST_PARAMETERS = 1_000
MOST_SECONDS = 86_400
_OPTIONS = ("epsilon", "delta", "max_groups", "target_error", "confidence", "dialect", "replay")
_KINDS: dict[str, type] = {"max_groups": int, "dialect": str, "replay": bool}
"""The types of those that are no amounts."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query with its options; `default_epsilon` is the loss if neither they nor the text state one.

    `confidences` are those of the intervals in the answer; after `seconds` the query is cancelled unless it is charged.
    """

    sql: str
    parameters: Parameters
    options: QueryOptions
    default_epsilon: Any = None
    confidences: tuple[float, ...] = (0.95,)
    seconds: float | None = None


async def read_body(request: Request, seconds: float) -> Any:
    """Read the JSON body of a request. Raises ProgrammingError if it is invalid, OperationalError if it does not arrive."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProgrammingError(
            "the body of a request must be JSON", code="media_type", hint="Content-Type: application/json"
        )
    late = False
    try:
        async with asyncio.timeout(seconds):
            text = await _read_bytes(request)
    except TimeoutError:
        late = True
    if late:
        raise OperationalError(f"the body was not received within {seconds:g} seconds", code="slow_body")
    if len(text) <= MOST_READ_HERE:
        return parse_json(text)
    return await asyncio.get_running_loop().run_in_executor(None, parse_json, text)


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


def parse_query_request(data: Any) -> QueryRequest:
    """Parse a query from a body. Raises ProgrammingError for an invalid body or an unknown name."""
    known = ("sql", "parameters", "default_epsilon", "confidences", "seconds", *_OPTIONS)
    fields = _require_known_fields(data, known)
    parameters = fields.get("parameters", [])
    if not isinstance(parameters, (list, dict)) or len(parameters) > MOST_PARAMETERS:
        raise make_body_error(
            f"needs `parameters` that are a list or object of at most {MOST_PARAMETERS:,} values"
        )
    confidences = fields.get("confidences", [0.95])
    if not isinstance(confidences, list) or len(confidences) > MOST_CONFIDENCES:
        raise make_body_error(f"needs `confidences` that are a list of at most {MOST_CONFIDENCES} numbers")
    return QueryRequest(
        sql=_get_sql(fields),
        parameters=read_parameters(parameters),
        options=_parse_options(fields),
        default_epsilon=_parse_amount(fields, "default_epsilon"),
        confidences=tuple(
            parse_confidence(each) for each in dict.fromkeys(map(_replace_unhashable, confidences))
        ),
        seconds=_parse_seconds(fields),
    )


def _replace_unhashable(value: Any) -> Any:
    return None if isinstance(value, (dict, list)) else value


def parse_confidence(value: Any) -> float:
    """Parse the confidence of intervals. Raises ProgrammingError unless it is a number between 0 and 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1:
        raise ProgrammingError(
            "a confidence must be between 0 and 1", code="argument", hint="use 0.95, for example"
        )
    return float(value)


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """Queries to price, and the loss of those that state none."""

    queries: tuple[str, ...]
    epsilon: Any = None
    dialect: str | None = None


def parse_quote_request(data: Any) -> QuoteRequest:
    """Parse the queries to price from a body. Raises ProgrammingError for an invalid body."""
    fields = _require_known_fields(data, ("queries", "epsilon", "dialect"))
    queries = fields.get("queries")
    if (
        not isinstance(queries, list)
        or len(queries) > MOST_QUERIES
        or not all(isinstance(each, str) for each in queries)
        or sum(map(len, queries)) > MOST_CHARACTERS
    ):
        raise make_body_error(
            f"needs a list `queries` of at most {MOST_QUERIES} texts with at most {MOST_CHARACTERS:,} characters together"
        )
    return QuoteRequest(
        tuple(queries), _parse_amount(fields, "epsilon"), _get_typed_field(fields, "dialect", str)
    )


_DIGEST = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_CODE = 4_096


def parse_login_request(data: Any) -> str:
    """Parse the digest of a browser tab's secret, for which a login starts. Raises ProgrammingError."""
    binder = _require_known_fields(data, ("binder",)).get("binder")
    if not isinstance(binder, str) or not _DIGEST.fullmatch(binder):
        raise make_body_error("needs `binder`, a SHA-256 digest in base64url")
    return binder


def parse_code_request(data: Any) -> tuple[str, str, str]:
    """Parse the issuer's `state` and `code` and the browser tab's `secret`. Raises ProgrammingError."""
    names = ("state", "code", "secret")
    fields = _require_known_fields(data, names)
    state, code, secret = (fields.get(name) for name in names)
    for each in (state, code, secret):
        if not isinstance(each, str) or not 0 < len(each) <= _MOST_CODE:
            raise make_body_error("needs texts `state`, `code` and `secret`")
    return str(state), str(code), str(secret)


def _require_known_fields(data: Any, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise make_body_error("must be a JSON object", '{"sql": "SELECT …"}')
    for name in data:
        if name not in known:
            raise make_body_error(f"has an unknown name {name[:60]!r}", f"names are {', '.join(known)}")
    return {name: value for name, value in data.items() if value is not None}


def _get_sql(fields: Mapping[str, Any]) -> str:
    sql = fields.get("sql")
    if not isinstance(sql, str) or len(sql) > MOST_CHARACTERS:
        raise make_body_error(f"needs a text `sql` of at most {MOST_CHARACTERS:,} characters")
    return sql


def _parse_options(fields: Mapping[str, Any]) -> QueryOptions:
    options: QueryOptions = {}
    for name in _OPTIONS:
        if name in fields:
            kind = _KINDS.get(name)
            value = _parse_amount(fields, name) if kind is None else _get_typed_field(fields, name, kind)
            options[name] = value  # type: ignore[literal-required]
    return options


def _parse_amount(fields: Mapping[str, Any], name: str) -> Any:
    """Parse a number, or its text, exactly: a decimal, or a fraction such as "1/3"."""
    value = fields.get(name)
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float, str))):
        raise make_body_error(
            f"has a value of `{name}` that is not a number", f'"{name}": 0.1, or "{name}": "0.1"'
        )
    return value


def _get_typed_field(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is not None and type(value) is not kind:
        raise make_body_error(f"has a value of `{name}` of the wrong type")
    return value


def _parse_seconds(fields: Mapping[str, Any]) -> float | None:
    value = fields.get("seconds")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST_SECONDS:
        raise make_body_error(f"needs `seconds` that are a number above 0, up to {MOST_SECONDS:,}")
    return float(value)


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
