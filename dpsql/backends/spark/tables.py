"""What Spark's catalogue says of a table, by DESCRIBE TABLE EXTENDED. No row is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

READ = frozenset({"parquet", "delta", "iceberg"})
"""The providers of tables that are read: their files have types.

ORC is not among them: its reader ends a query at a moment whose microseconds are more than 64 bits hold, and at the first row of
a column with a collation. CSV and JSON are not, whatever columns the catalogue declares: an option of the table (FAILFAST), or a
line that is cut off, makes one row end a query.
"""
_DETAILS = "# Detailed Table Information"
_MOMENT = "timestamp"
_COLLATION = re.compile(r"string collate (\w+)", re.IGNORECASE)
_KINDS = MappingProxyType({"VIEW": "a view", "TEMPORARY": "a temporary view"})


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table: its columns with the names of their types, its provider, its kind, and where it lies.

    `mark` is equal only where the catalogue's entry is the same: a table that was dropped and made anew has another.
    """

    columns: tuple[tuple[str, str], ...]
    provider: str
    kind: str
    location: str
    mark: tuple[tuple[str, str], ...]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, str]]) -> TableDescription:
        """The table of which DESCRIBE TABLE EXTENDED gives these names and types."""
        columns: list[tuple[str, str]] = []
        details: dict[str, str] = {}
        section: str | None = None
        for name, kind in rows:
            if not name or name.startswith("#"):
                section = name or ""
            elif section is None:
                columns.append((name, kind))
            elif section == _DETAILS:
                details.setdefault(name, kind)
        names = ("Created Time", "Type", "Provider", "Location", "View Text", "Owner")
        mark = tuple((name, details.get(name, "")) for name in names)
        return cls(
            tuple(columns),
            details.get("Provider", "").lower(),
            details.get("Type", "").upper(),
            details.get("Location", ""),
            mark,
        )

    @property
    def collated_columns(self) -> frozenset[str]:
        """The columns of texts, and of structs of such, whose collation does not compare bytes."""
        return frozenset(
            name
            for name, kind in self.columns
            if set(map(str.upper, _COLLATION.findall(kind))) - {"UTF8_BINARY"}
        )

    @property
    def has_timestamps(self) -> bool:
        """Whether Parquet files hold moments, whose unit the catalogue does not say."""
        return self.provider == "parquet" and any(kind.startswith(_MOMENT) for _, kind in self.columns)

    def with_masked_timestamps(self, other: frozenset[str] | None) -> TableDescription:
        """The table in which moments of `other` columns, or of all where None are known, have types that are not read.

        Nor have arrays then: what unnests one names all columns, and Spark has to leave such moments out by itself.
        """
        unknown = {
            name
            for name, kind in self.columns
            if kind.startswith(_MOMENT) and (other is None or name.lower() in map(str.lower, other))
        }
        columns = tuple(
            (name, f"{kind} that is not in microseconds")
            if name in unknown
            else (name, f"{kind} beside moments that are not in microseconds")
            if unknown and "array<" in kind
            else (name, kind)
            for name, kind in self.columns
        )
        return replace(self, columns=columns)

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """What else than a table with typed files it is."""
        if self.kind not in ("MANAGED", "EXTERNAL"):
            return (_KINDS.get(self.kind, "what is no table of the catalogue"),)
        return (
            () if self.provider in READ else (f"a table in the format {self.provider or 'of its catalogue'}",)
        )
