"""A cache of results that depend on exact values, cleared after each release."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
_MOST = 1 << 16
_CLEAR: list[Callable[[], None]] = []


def cache_for_release(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results by their arguments until `clear_cache`."""
    remembered = lru_cache(maxsize=_MOST)(function)
    _CLEAR.append(remembered.cache_clear)
    return cast(Callable[P, R], remembered)


def clear_cache() -> None:
    """Clear all caches."""
    for clear in _CLEAR:
        clear()
