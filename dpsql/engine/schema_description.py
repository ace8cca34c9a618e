"""The analyst's schema as data: tables, columns, bounds, public values and rules, from the policy and the schema alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.errors import ProgrammingError
from dpsql.plan.expressions import ColumnInfo
from dpsql.policy import Column, Policy, normalize_name

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

    @classmethod
    def from_catalog(cls, policy: Policy, catalog: AnalystSchema) -> Description:
        """Return the description of an analyst's schema. Nothing in it depends on private rows."""
        return cls(
            policy.privacy_unit, tuple(_describe_table(found, policy) for found in catalog.tables.values())
        )

    def get_table(self, name: str) -> TableDescription:
        """Return the table with a name, in any case; raise ProgrammingError (`table`) if it is not declared."""
        wanted = normalize_name(name.strip().strip('"'))
        for each in self.tables:
            if normalize_name(each.name) == wanted:
                return each
        known = ", ".join(sorted(each.name for each in self.tables))
        raise ProgrammingError(f"there is no table {name}", code="table", hint=f"the tables are: {known}")


def format_bounds(column: Column | None) -> tuple[str, ...]:
    """Return the ends of a column's bounds, as texts."""
    return () if column is None or column.bounds is None else tuple(map(_format_bound, column.bounds))


def format_values(column: Column | None) -> tuple[str, ...]:
    """Return the public values of a column, as texts."""
    known = () if column is None or column.bounds is not None or column.values is None else column.values
    return tuple(map(str, known))


def _describe_table(found: AnalystTable, policy: Policy) -> TableDescription:
    declared = policy.tables[found.name].columns
    columns = tuple(
        ColumnDescription(
            spelt,
            facts.type.name.lower(),
            format_bounds(declared.get(spelt)),
            format_values(declared.get(spelt)),
            tuple(_describe_column(spelt, facts, found)),
        )
        for spelt, facts in found.columns.values()
    )
    return TableDescription(
        found.name,
        found.is_private,
        _describe_unit(found, policy),
        columns,
        tuple(_describe_rules(found, policy)),
    )


def _describe_unit(found: AnalystTable, policy: Policy) -> str:
    """Return the privacy unit of a table's rows, in the policy's words."""
    if not found.is_private:
        return ""
    return f"{policy.privacy_unit}: {policy.describe_unit(found.name)}"


def _format_bound(bound: object) -> str:
    if isinstance(bound, Fraction):
        return str(bound.numerator) if bound.denominator == 1 else f"{float(bound):.6g}"
    return str(bound)


def _describe_column(name: str, facts: ColumnInfo, found: AnalystTable) -> Iterator[str]:
    if facts.is_unit:
        yield "privacy unit"
    if found.contribution is not None and normalize_name(name) in found.contribution.constant:
        yield "one value per unit"
    if found.is_private and not facts.nullable:
        yield "never NULL"


def _describe_rules(found: AnalystTable, policy: Policy) -> Iterator[str]:
    """Return the rules of a table: its bounds on the contribution of one unit, and its budget."""
    if not found.is_private or found.contribution is None:
        return
    declared, budget = policy.tables[found.name], policy.get_budget(found.name)
    if found.unit_column is not None:
        yield f"at most {declared.rows_per_unit:,} rows per {policy.privacy_unit} are counted"
        if all(
            facts.nullable
            for name, facts in found.columns.values()
            if normalize_name(name) == normalize_name(found.unit_column)
        ):
            yield f"rows whose {found.unit_column} is NULL belong to no privacy unit and are not read"
    if declared.max_groups is not None:
        yield f"in at most {declared.max_groups:,} groups per query"
    if declared.min_frequency > 1:
        yield f"a group or a value is shown only if at least {declared.min_frequency:,} units are behind it, by noisy counts"
    yield (
        f"budget: ε {float(budget.epsilon):g}, δ {float(budget.delta):g}, accountant {budget.accountant}; "
        f"neighbors: {policy.neighbors}"
    )
