"""Laws: what a version must prove, with a name, a claim and a check that raises an error where it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Part = tuple[str, Callable[[], None]]
"""One part of a law: what it tries, and the check."""


class LawBroken(Exception):  # noqa: N818  (says what happened)
    """A law does not hold; the message says for what."""


def require(condition: object, message: str) -> None:
    """Raise LawBroken with a message unless a condition holds."""
    if not condition:
        raise LawBroken(message)


@dataclass(frozen=True, slots=True)
class Law:
    """A law of a library: its `claim` in words, and its parts, which are made when it is tried."""

    library: str
    name: str
    claim: str
    list_parts: Callable[[], Iterable[Part]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a law ended: how many parts were tried, and the first failure, if there is one."""

    law: Law
    tried: int
    failure: str | None = None


def try_laws(laws: Iterable[Law], show: Callable[[Law, int, int], None]) -> Iterator[Outcome]:
    """Try each law until it ends or fails; call `show` with each part before it is tried.

    Any error counts as a failure: an engine that raises one on a law of totality raises one on a query.
    """
    for law in laws:
        tried, failure = 0, None
        try:
            parts = list(law.list_parts())
            for tried, (name, check) in enumerate(parts, 1):
                show(law, tried, len(parts))
                try:
                    check()
                except Exception as error:  # noqa: BLE001  (whatever an engine raises)
                    failure = f"{name}: {type(error).__name__}: {error}"
                    break
        except Exception as error:  # noqa: BLE001  (likewise, where parts are made)
            failure = f"{type(error).__name__}: {error}"
        if failure is None and not tried:
            failure = "nothing was tried"
        yield Outcome(law, tried, failure)
