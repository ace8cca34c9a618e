"""The decisions of an owner, or of another tool's metadata, for a policy that is still to be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that refer to those of another table, in order."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.columns)} refers to {self.table}.{', '.join(self.references)}"


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The keys that a schema declares for a table."""

    primary: tuple[str, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnDecision:
    """The decisions for a column: bounds or values as in YAML, whether NULL may occur (None: undecided), whether it is `omitted`."""

    bounds: tuple[Any, Any] | None = None
    values: tuple[Any, ...] | None = None
    nullable: bool | None = None
    omitted: bool = False


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The decisions for a table: its unit and its rows per unit (None: undecided), and its columns by their folded names."""

    unit: str | None = None
    link: ForeignKey | None = None
    public: bool = False
    omitted: bool = False
    rows_per_unit: int | None = None
    columns: Mapping[str, ColumnDecision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions for a policy: the privacy unit in words, the budget, and the tables by their folded names."""

    privacy_unit: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    tables: Mapping[str, TableDecision] = field(default_factory=dict)
