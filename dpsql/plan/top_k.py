"""Which groups of a release are shown, where the best ones alone are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Top:
    """The keys alone are released, of the `count` groups whose one aggregate is greatest, or least; best first."""

    tag: ClassVar[str] = "Top"

    count: int
    descending: bool
