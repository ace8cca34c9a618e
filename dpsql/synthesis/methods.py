"""The ways to make synthetic tables, by the names that they are asked for."""

from __future__ import annotations

from typing import TypeAlias

from dpsql.synthesis.mechanism import Mwem, SmallDatabase
from dpsql.synthesis.mst import Mst

SyntheticMethod: TypeAlias = Mwem | SmallDatabase | Mst

METHODS: dict[str, type[SyntheticMethod]] = {
    Mwem.method: Mwem,
    SmallDatabase.method: SmallDatabase,
    Mst.method: Mst,
}
