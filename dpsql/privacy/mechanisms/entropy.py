"""The source of randomness: the operating system, and a stand-in in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Entropy(Protocol):
    """A source of independent uniform words."""

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` fresh words, each uniform on 0..2**64-1 and independent of all others."""
        ...


def draw_secret(entropy: Entropy) -> str:
    """Return 128 fresh bits as 32 hexadecimal digits: with an id of up to 23 letters they fit one block of SHA-256."""
    return "".join(f"{word:016x}" for word in entropy.draw_words(2).tolist())


@dataclass(frozen=True, slots=True)
class SystemEntropy:
    """The operating system's generator.

    It has no seed and no state in this process, so nothing can be set, pickled or shared by a fork.
    """

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words, shape `(count,)`; raise OSError if the system has no generator."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
