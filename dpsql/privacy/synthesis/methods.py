"""The methods to make synthetic tables, by name."""

from __future__ import annotations

from typing import TypeAlias

from dpsql.privacy.synthesis.mechanism import Mwem, SmallDatabase
from dpsql.privacy.synthesis.mst import Mst

SyntheticMethod: TypeAlias = Mwem | SmallDatabase | Mst

METHODS: dict[str, type[SyntheticMethod]] = {
    Mwem.method: Mwem,
    SmallDatabase.method: SmallDatabase,
    Mst.method: Mst,
}
