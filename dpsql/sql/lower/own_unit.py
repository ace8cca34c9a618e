"""A privacy unit that the query names itself, which is not trusted: rows are grouped by its identifier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.domains import domain, listed
from dpsql.analysis.intervals import conditions
from dpsql.analysis.unit_identity import identity, separated_identity
from dpsql.plan.expr import Expr
from dpsql.plan.nodes import Relation
from dpsql.plan.render import phrase
from dpsql.sql.lower.scope import Scope
from dpsql.sql.read.rejection import Source


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


def check_groups(source: Source, node: exp.Expr, keys: Iterable[Expr], relation: Relation) -> None:
    """Refuses groups of a derived table that are one unit's each, but for those where a key is NULL or not its id.

    They would be groups across units, of which hardly one is released.
    """
    for key in keys:
        secret = domain(key, conditions(relation), listed(relation)) is None
        if secret and separated_identity(key, relation) is not None:
            refuse_units(source, node, key, relation)


def refuse_units(source: Source, node: exp.Expr, key: Expr, relation: Relation) -> NoReturn:
    """Refuses a group key of which each value is one privacy unit's."""
    name = phrase(key)
    source.refuse(
        node,
        "group_by_unit",
        f"each group of {name} would hold one privacy unit, and never be released",
        f"count them: COUNT(DISTINCT {name}); or group by it in a subquery, "
        "and aggregate its rows: SELECT n, COUNT(*) FROM (SELECT …) GROUP BY n"
        if identity(key, relation) is not None
        else "group by the id itself, without NULL: WHERE id IS NOT NULL, or declare nullable: false; "
        "over an outer join by what USING (id) makes one, or by COALESCE(a.id, b.id)",
    )
