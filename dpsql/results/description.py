"""The description of an analyst's tables: columns, bounds, public values and rules, as texts."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.errors import ProgrammingError
from dpsql.policy.names import normalize_name

_MOST_VALUES = 12


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column: its type, the two ends of its bounds or its public values as texts, and notes."""

    name: str
    type: str
    bounds: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def span(self) -> str:
        """Return the bounds, or the first of the values, as text.

        >>> ColumnDescription("age", "integer", bounds=("0", "110")).span
        '[0, 110]'
        """
        if self.bounds:
            return f"[{', '.join(self.bounds)}]"
        more = [f"… {len(self.values):,} values"] if len(self.values) > _MOST_VALUES else []
        return ", ".join([*self.values[:_MOST_VALUES], *more])


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table: whether it is private, the privacy unit of its rows, its columns, and the rules on contributions and budget.

    `kind` is set for a table of the session.
    """

    name: str
    private: bool
    unit: str
    columns: tuple[ColumnDescription, ...]
    rules: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """The tables that an analyst may query, and the privacy unit that they protect."""

    privacy_unit: str
    tables: tuple[TableDescription, ...]

    def get_table(self, name: str) -> TableDescription:
        """Return the table with a name, in any case; raise ProgrammingError (`table`) if it is not declared."""
        wanted = normalize_name(name.strip().strip('"'))
        for each in self.tables:
            if normalize_name(each.name) == wanted:
                return each
        known = ", ".join(sorted(each.name for each in self.tables))
        raise ProgrammingError(f"there is no table {name}", code="table", hint=f"the tables are: {known}")
