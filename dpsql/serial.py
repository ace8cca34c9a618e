"""Methods of a connection that one thread after the other runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from dpsql.connection import Connection

_P = ParamSpec("_P")
_T = TypeVar("_T")


def alone(
    method: Callable[Concatenate[Connection, _P], _T],
) -> Callable[Concatenate[Connection, _P], _T]:
    """The method, of which one thread after the other runs the whole, of all on the same database's connection."""

    @wraps(method)
    def one_at_a_time(self: Connection, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._engine.backend.alone():
            return method(self, *args, **kwargs)

    return one_at_a_time
