"""Write errors as JSON and read them back: class, message, code, hint, position, and whether the query was charged.

An error's text depends only on the query, the policy and public metadata (see `dpsql.errors`), and so does its JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql import errors
from dpsql.errors import Error, OperationalError, Position


def _iterate_error_classes(kind: type[Error]) -> Iterator[type[Error]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _iterate_error_classes(each)


_CLASSES = {
    kind.__name__: kind for kind in _iterate_error_classes(Error) if kind.__module__ == errors.__name__
}


def write_error(error: Error, sql: str | None = None) -> dict[str, Any]:
    """Return an error about a query `sql` as JSON; `text` is added if the position refers to another text, as a translation."""
    place = error.position
    data: dict[str, Any] = {
        "error": next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _CLASSES),
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": None if place is None else place.line,
        "column": None if place is None else place.column,
        "charged": error.charged,
    }
    if error.text is not None and error.text != sql:
        data["text"] = error.text
    return data


def read_error(data: Mapping[str, Any], sql: str | None = None) -> Error:
    """Return the error of its JSON; an unknown class becomes OperationalError."""
    kind = _CLASSES.get(str(data.get("error")), OperationalError)
    line, column = data.get("line"), data.get("column")
    placed = isinstance(line, int) and isinstance(column, int)
    found = kind.__new__(kind)
    Error.__init__(
        found,
        str(data.get("message")),
        code=str(data.get("code") or kind.code),
        hint=None if data.get("hint") is None else str(data["hint"]),
        position=Position(line, column) if placed else None,  # type: ignore[arg-type]
        text=str(data["text"]) if "text" in data else sql if placed else None,
    )
    charged = data.get("charged")
    found.charged = charged if isinstance(charged, bool) else None
    return found


def make_unforeseen_error(charged: bool | None) -> Error:
    """Return the error for an unexpected failure, whose own message could quote private values."""
    found = errors.InternalError(
        "unexpected failure in dpsql; any charge stands",
        hint="ask the owner; the server's log has the place",
    )
    found.charged = charged
    return found
