"""Choices that are the same whatever the data is, for what is compared on neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.planning.group_selection import TopKSelection
from dpsql.planning.quantiles import QuantileSelection, RankWindow
from dpsql.privacy.mechanisms import Entropy


class Lowest(QuantileSelection):
    """Chooses alike whatever the values are."""

    def select_point(self, window: RankWindow, entropy: Entropy) -> int:  # noqa: ARG002
        return self.lattice.low


class First(TopKSelection):
    """Chooses alike whatever the scores are."""

    def select_groups(self, scores: Sequence[int], entropy: Entropy) -> list[int]:  # noqa: ARG002
        return list(range(min(self.top.count, len(scores))))
