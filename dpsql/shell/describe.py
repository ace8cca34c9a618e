"""What exists for an analyst, from the policy and the schema alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.backends.catalog import Catalog, CatalogTable
from dpsql.errors import ProgrammingError
from dpsql.plan.expr import Facts
from dpsql.policy import Column, Policy, fold
from dpsql.shell.statements import without_comments

_MOST_VALUES = 12
_CATALOGUE = re.compile(
    r"(?:SHOW\s+(?:ALL\s+)?TABLES|(?:DESCRIBE|DESC)(?:\s+(?P<table>\S+))?)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Description:
    """Rows of a catalogue under their heads, `numbers` the columns to align right, and the rules of a table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numbers: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()


def asked(statement: str) -> str | None:
    """The table that a statement asks to be described, "" for the list of tables, None for other statements.

    >>> asked("SHOW TABLES;"), asked("describe visits"), asked("SELECT 1")
    ('', 'visits', None)
    """
    bare = without_comments(statement).strip().rstrip(";").rstrip()
    found = _CATALOGUE.fullmatch(bare)
    return None if found is None else found["table"] or ""


def described(name: str, catalog: Catalog, policy: Policy) -> Description:
    """The columns of a table with its rules, or, for "", all tables. ProgrammingError (`table`) for one that is not there."""
    return columns(name, catalog, policy) if name else tables(catalog, policy)


def tables(catalog: Catalog, policy: Policy) -> Description:
    """Every declared table with whom its rows belong to."""
    rows = (
        (found.name, "private" if found.private else "public", unit(found, policy), len(found.columns))
        for found in catalog.tables.values()
    )
    return Description(("table", "kind", "privacy unit", "columns"), tuple(rows), numbers=(3,))


def unit(found: CatalogTable, policy: Policy) -> str:
    """Whom the rows of a table belong to, in the policy's words."""
    if not found.private:
        return ""
    if found.unit_column is None:
        return f"{policy.privacy_unit}: each row"
    return f"{policy.privacy_unit}: {found.unit_column}"


def columns(name: str, catalog: Catalog, policy: Policy) -> Description:
    """The columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = catalog.find(name.strip().strip('"'))
    if found is None:
        known = ", ".join(sorted(each.name for each in catalog.tables.values()))
        raise ProgrammingError(f"there is no table {name}", code="table", hint=f"there are: {known}")
    declared = policy.tables[found.name].columns
    rows = (
        (spelt, facts.type.name.lower(), span(declared.get(spelt)), ", ".join(_notes(spelt, facts, found)))
        for spelt, facts in found.columns.values()
    )
    heads = ("column", "type", "bounds or values", "notes")
    return Description(heads, tuple(rows), rules=tuple(_rules(found, policy)))


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
