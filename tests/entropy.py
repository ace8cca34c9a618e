"""Stand-ins for the operating system's entropy: for tests only, and outside dpsql on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.mechanisms.entropy import Entropy


class SeededEntropy:
    """A reproducible stream of words."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the stream."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


@dataclass
class RecordingEntropy:
    """Passes the requests on to `source` and keeps their sizes, in order."""

    source: Entropy
    requests: list[int] = field(default_factory=list)

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """What `source` gives."""
        self.requests.append(count)
        return self.source.draw_words(count)

    @property
    def total(self) -> int:
        """How many words were asked for so far."""
        return sum(self.requests)


class ScriptedEntropy:
    """Hands out the given words and no others; asking for more fails the test."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = list(words)

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the script."""
        assert count <= len(self._words), f"{count} words asked for, {len(self._words)} left"
        head, self._words = self._words[:count], self._words[count:]
        return np.array(head, dtype=np.uint64)

    @property
    def left(self) -> int:
        """How many words of the script were not asked for."""
        return len(self._words)


def packed(halves: Sequence[int]) -> list[int]:
    """16-bit values laid out in 64-bit words, as a sampler that views words as uint16 reads them."""
    padded = [*halves, *([0] * (-len(halves) % 4))]
    return [int(word) for word in np.array(padded, dtype=np.uint16).view(np.uint64)]
