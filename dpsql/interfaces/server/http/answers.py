"""Keep the latest answers of each user, to compute intervals at other confidences at no charge.

Answers are kept in memory, for the user who received them. After an answer is dropped, the same query can be run again at no
charge.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from dpsql.errors import ProgrammingError
from dpsql.results.json_format import IntervalMatrix
from dpsql.results.result import Result

MOST_ANSWERS = 16
"""The largest number of answers kept for one user."""
MOST_CELLS = 100_000
"""The largest number of cells of one kept answer, and of all answers kept for one user."""
MOST_CONFIDENCES = 16
"""The largest number of confidences for one answer, each of which is remembered."""


@dataclass(slots=True)
class _CachedAnswer:
    result: Result
    lock: threading.Lock = field(default_factory=threading.Lock)
    confidences: set[float] = field(default_factory=set)


class AnswerCache:
    """A cache of answers by user and id; an id is 128 random bits."""

    def __init__(self) -> None:
        self._entries = dict[str, OrderedDict[str, _CachedAnswer]]()
        self._lock = threading.Lock()

    def keep_answer(self, user: str, result: Result) -> str | None:
        """Keep an answer and return its id, or None if it is too large."""
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
        """Return the intervals of an answer. Raises ProgrammingError (`not_found`) if it is not kept or is another user's."""
        with self._lock:
            found = self._entries.get(user, OrderedDict()).get(number)
        if found is None:
            raise ProgrammingError(
                "the server no longer has this answer",
                code="not_found",
                hint="run the query again with these confidences; the stored answer is free",
            )
        with found.lock:
            if len(found.confidences | {confidence}) > MOST_CONFIDENCES:
                raise ProgrammingError(
                    f"intervals of one answer are available at {MOST_CONFIDENCES} confidences at most",
                    code="argument",
                )
            found.confidences.add(confidence)
            return found.result.intervals(confidence)


def _count_cells(result: Result) -> int:
    return len(result) * len(result.columns)
