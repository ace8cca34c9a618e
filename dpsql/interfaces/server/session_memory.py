"""The memory that each user's sessions hold between statements: texts, parameters, answers that are not fetched yet.

Claim: the sessions of one user hold at most `limit` bytes together, however many connections there are.
Why: everything that a session keeps is entered here first, under the user's name, and refused if it would be too much.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

_VALUE = 64
"""The number of bytes of a value without its characters."""


class UserMemory:
    """The bytes that sessions hold, by user; `limit` is the limit of each user."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = Counter[str]()
        self._lock = threading.Lock()

    def open_session(self, person: str) -> SessionMemory:
        """Return the memory of one more session of a user."""
        return SessionMemory(self, person)

    def get_held_bytes(self, person: str) -> int:
        """Return the bytes that a user's sessions hold."""
        return self._held[person]

    def change_held_bytes(self, person: str, size: int) -> bool:
        """Enter `size` bytes more and return True, or enter nothing and return False if there is no room."""
        with self._lock:
            total = self._held[person] + size
            if size > 0 and total > self._limit:
                return False
            self._held[person] = total
            if not total:
                del self._held[person]
            return True


class SessionMemory:
    """The bytes that one session holds, by item."""

    def __init__(self, memory: UserMemory, person: str) -> None:
        self._memory, self.person = memory, person
        self._sizes = dict[Hashable, int]()
        self._closed = False

    def try_hold_bytes(self, what: Hashable, size: int) -> bool:
        """Enter the size of an item, in place of its former size, and return whether there was room."""
        if not self._memory.change_held_bytes(self.person, size - self._sizes.get(what, 0)):
            return False
        self._sizes[what] = size
        if self._closed:  # the answer arrived after its client left
            self.close()
        return True

    def drop_items(self, *what: Hashable) -> None:
        """Enter that these items are no longer held."""
        for each in what:
            self._memory.change_held_bytes(self.person, -self._sizes.pop(each, 0))

    def close(self) -> None:
        """Enter that the session holds nothing."""
        self._closed = True
        self.drop_items(*self._sizes)


def compute_size(rows: Iterable[tuple[Any, ...]]) -> int:
    """Return the approximate number of bytes of rows.

    >>> compute_size([(1, "abc"), (None, "")])
    259
    """
    return sum(
        _VALUE + (len(value) if isinstance(value, str | bytes) else 0) for row in rows for value in row
    )
