"""The privacy unit that a query names for itself: compared with the policy's, and never trusted."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.scope import Scope


def check_unit(scope: Scope, node: exp.Column | None) -> None:
    """Refuses a privacy unit that is not the one which the policy protects."""
    if node is None:
        return
    column = scope.column(node)
    if not column.facts.is_unit:
        units = {
            item.name
            for table in scope.tables.values()
            for item in table.columns.values()
            if item.facts.is_unit
        }
        scope.source.refuse(
            node,
            "column",
            f"{column.name} is not the privacy unit, which the policy declares",
            f"it is {' or '.join(sorted(units))}" if units else "leave privacy_unit_column out",
        )
