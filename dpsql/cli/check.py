"""`dpsql check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpsql.catalog import Schema
    from dpsql.policy import Policy

PolicyArgument = Annotated[Path, typer.Argument(help="The policy to check.", show_default=False)]
AgainstDatabase = Annotated[
    Path | None,
    typer.Argument(
        help="A DuckDB file to hold the policy against. No value in it is read.", show_default=False
    ),
]


def check(policy: PolicyArgument, database: AgainstDatabase = None) -> None:
    """Say what a policy allows, or what is wrong with it.

    With a database, every declared table and column must be in it, with the declared type.
    """
    from dpsql.policy import load
    from dpsql.shell.view import View

    rules = load(policy)
    schema = None if database is None else _schema(database)
    if schema is not None:
        from dpsql import catalog

        catalog.build(rules, schema)
    view = View.of(sys.stdout)
    print(f"{policy} is a valid policy")
    print(view.show(*_summary(rules)))
    if database is not None and schema is not None:
        print(f"\n{database} has every table and column that it declares")
        hidden = list(_undeclared(rules, schema))
        if hidden:
            print(f"not declared, so analysts cannot see: {', '.join(hidden)}")


def _schema(database: Path) -> Schema:
    from dpsql.backends.duckdb import DuckDBBackend

    backend = DuckDBBackend(database)
    try:
        return backend.schema()
    finally:
        backend.close()


def _summary(rules: Policy) -> Iterator[RenderableType]:
    from dpsql.shell.describe import span
    from dpsql.shell.view import table

    yield f"privacy unit: {rules.privacy_unit}; neighbours: {rules.neighbors}"
    if rules.max_epsilon is not None:
        yield f"a query may ask for ε {float(rules.max_epsilon):g} at most"
    yield ""
    rows = []
    for name, found in rules.tables.items():
        if found.public:
            rows.append((name, "public", "", "", ""))
            continue
        unit, budget = rules.unit_of(name), rules.budget_of(name)
        limit = f"ε {float(budget.epsilon):g}, δ {float(budget.delta):g}, {budget.accountant}"
        rows.append((name, "private", unit.column or "each row", f"{found.rows_per_unit:,}", limit))
    yield table(("table", "kind", "unit", "rows of a unit", "budget"), rows, right=(3,))
    yield ""
    columns = [
        (f"{name}.{column}", spec.type, span(spec), "" if spec.nullable else "never NULL")
        for name, found in rules.tables.items()
        for column, spec in found.columns.items()
    ]
    yield table(("column", "type", "bounds or values", "notes"), columns)


def _undeclared(rules: Policy, schema: Schema) -> Iterator[str]:
    """The tables and columns of the database that the policy leaves out."""
    from dpsql.policy import fold

    for name, columns in schema.items():
        declared = rules.table(name)
        if declared is None:
            yield name
        elif not declared.public:
            unit = fold(rules.unit_of(name).column or "")
            hidden = (column for column, _ in columns if column not in declared.columns)
            yield from (f"{name}.{column}" for column in hidden if fold(column) != unit)
