"""The latest answers of each user, from which intervals at other confidences are worked out, free.

They are in memory alone, for who was answered alone; the question itself can be asked again, free, after they are gone.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from dpsql.errors import ProgrammingError
from dpsql.result import Result
from dpsql.wire.answers import IntervalMatrix

MOST_ANSWERS = 16
"""Answers of one user that are kept."""
MOST_CELLS = 100_000
"""Cells of an answer that is kept, and of all those of a user."""
MOST_CONFIDENCES = 16
"""Confidences that one answer is asked for: each is remembered within it."""


@dataclass(slots=True)
class _CachedAnswer:
    result: Result
    lock: threading.Lock = field(default_factory=threading.Lock)
    confidences: set[float] = field(default_factory=set)


class AnswerCache:
    """Answers by user and id; an id is 128 random bits."""

    def __init__(self) -> None:
        self._entries = dict[str, OrderedDict[str, _CachedAnswer]]()
        self._lock = threading.Lock()

    def keep_answer(self, user: str, result: Result) -> str | None:
        """Keeps an answer, and returns its id; None for one that is too large."""
        if _count_cells(result) > MOST_CELLS:
            return None
        number = secrets.token_hex(16)
        with self._lock:
            own = self._entries.setdefault(user, OrderedDict())
            own[number] = _CachedAnswer(result)
            while (
                len(own) > MOST_ANSWERS
                or sum(_count_cells(each.result) for each in own.values()) > MOST_CELLS
            ):
                own.popitem(last=False)
        return number

    def get_intervals(self, user: str, number: str, confidence: float) -> IntervalMatrix:
        """The intervals of an answer. Raises ProgrammingError (`not_found`) for one that is not kept, or another user's."""
        with self._lock:
            found = self._entries.get(user, OrderedDict()).get(number)
        if found is None:
            raise ProgrammingError(
                "the server no longer has this answer",
                code="not_found",
                hint="ask the query again, free, with the confidences",
            )
        with found.lock:
            if len(found.confidences | {confidence}) > MOST_CONFIDENCES:
                raise ProgrammingError(
                    f"an answer is asked for intervals at {MOST_CONFIDENCES} confidences at most",
                    code="argument",
                )
            found.confidences.add(confidence)
            return found.result.intervals(confidence)


def _count_cells(result: Result) -> int:
    return len(result) * len(result.columns)
