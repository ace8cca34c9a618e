"""What exists for an analyst, from the policy and the schema alone."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.backends.catalog import Catalog, CatalogTable
from dpsql.errors import ProgrammingError
from dpsql.plan.expr import Facts
from dpsql.policy import Column, Policy, fold
from dpsql.shell.view import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MOST_VALUES = 12


def tables(catalog: Catalog, policy: Policy) -> Table:
    """Every declared table with whom its rows belong to."""
    rows = [
        (found.name, "private" if found.private else "public", unit(found, policy), str(len(found.columns)))
        for found in catalog.tables.values()
    ]
    return table(("table", "kind", "privacy unit", "columns"), rows, right=(3,))


def unit(found: CatalogTable, policy: Policy) -> str:
    """Whom the rows of a table belong to, in the policy's words."""
    if not found.private:
        return ""
    if found.unit_column is None:
        return f"{policy.privacy_unit}: each row"
    return f"{policy.privacy_unit}: {found.unit_column}"


def columns(name: str, catalog: Catalog, policy: Policy) -> list[RenderableType]:
    """The columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = catalog.find(name.strip().strip('"'))
    if found is None:
        known = ", ".join(sorted(each.name for each in catalog.tables.values()))
        raise ProgrammingError(f"there is no table {name}", code="table", hint=f"there are: {known}")
    declared = policy.tables[found.name].columns
    rows = [
        (spelt, facts.type.name.lower(), span(declared.get(spelt)), ", ".join(_notes(spelt, facts, found)))
        for spelt, facts in found.columns.values()
    ]
    return [table(("column", "type", "bounds or values", "notes"), rows), *_rules(found, policy)]


def span(column: Column | None) -> str:
    """The bounds or the public values of a column.

    >>> span(Column(type="integer", bounds=[0, 110]))
    '[0, 110]'
    """
    if column is None:
        return ""
    if column.bounds is not None:
        return f"[{', '.join(map(_end, column.bounds))}]"
    if column.values is None:
        return ""
    some = [str(value) for value in column.values[:_MOST_VALUES]]
    more = [f"… {len(column.values):,} values"] if len(column.values) > _MOST_VALUES else []
    return ", ".join(some + more)


def _end(bound: object) -> str:
    if isinstance(bound, Fraction):
        return str(bound.numerator) if bound.denominator == 1 else f"{float(bound):.6g}"
    return str(bound)


def _notes(name: str, facts: Facts, found: CatalogTable) -> Iterator[str]:
    if facts.is_unit:
        yield "privacy unit"
    if found.contribution is not None and fold(name) in found.contribution.constant:
        yield "one value a unit"
    if found.private and not facts.nullable:
        yield "never NULL"


def _rules(found: CatalogTable, policy: Policy) -> Iterator[str]:
    """The table's bounds on what one unit contributes, and its budget."""
    if not found.private or found.contribution is None:
        return
    declared, budget = policy.tables[found.name], policy.budget_of(found.name)
    if found.unit_column is not None:
        yield f"at most {declared.rows_per_unit:,} rows of one {policy.privacy_unit} count"
    if declared.max_groups is not None:
        yield f"in at most {declared.max_groups:,} groups of a query"
    if declared.min_frequency > 1:
        yield f"a group is shown only if at least {declared.min_frequency:,} units are in it"
    yield (
        f"budget: ε {float(budget.epsilon):g}, δ {float(budget.delta):g}, accountant {budget.accountant}; "
        f"neighbours: {policy.neighbors}"
    )
