"""Choices that are the same whatever the data is, for what is compared on neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.mechanisms import Entropy
from dpsql.planning.quantiles import Ranked, Window
from dpsql.planning.top_k import Best


class Lowest(Ranked):
    """Chooses alike whatever the values are."""

    def choose(self, window: Window, entropy: Entropy) -> int:  # noqa: ARG002
        return self.lattice.low


class First(Best):
    """Chooses alike whatever the scores are."""

    def choose(self, scores: Sequence[int], entropy: Entropy) -> list[int]:  # noqa: ARG002
        return list(range(min(self.top.count, len(scores))))
