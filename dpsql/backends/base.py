"""What an engine offers, and the type that keeps exact values in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, final

from dpsql.errors import InternalError


@final
class Exact:
    """Exact rows on their way from the engine to the noise.

    They show in no repr, string, format, pickle or comparison; `reveal` is called in one place,
    `dpsql.release`.
    """

    __slots__ = ("__rows",)

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.__rows = rows

    def reveal(self) -> Sequence[tuple[Any, ...]]:
        """The exact rows, for the mechanism that noises them."""
        return self.__rows

    def __repr__(self) -> str:
        return "Exact(hidden)"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> NoReturn:
        raise InternalError("exact values are not pickled or copied")


class Backend(Protocol):
    """An engine that holds private and public tables."""

    name: str
    version: str

    def schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types. Metadata alone: no value is read."""
        ...

    def public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ...

    def public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns."""
        ...

    def parses(self, text: str) -> bool:
        """Whether the engine's own parser reads `text` as one statement. Nothing is bound or run."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """Keeps other threads from the engine's connection, also those that came by it in another way."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Within it, all statements see the database as it was at its start."""
        ...

    def run(self, sql: str) -> Exact:
        """Runs the emitted statement. Raises BackendError, with constant text, for any failure."""
        ...

    def close(self) -> None:
        """Lets the database go."""
        ...
