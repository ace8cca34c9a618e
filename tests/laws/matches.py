"""Rows matched with those of a subquery, as plans."""

from __future__ import annotations

from collections.abc import Sequence

from laws.expressions import build

from dpsql.plan.expr import Call, Column, Expr, Literal
from dpsql.plan.nodes import Matching, Project, Relation, sources
from dpsql.plan.types import Type
from dpsql.sql.derived import facts_of


def matching(relation: Relation, rows: Relation, alias: str, on: Sequence[Expr], *, anti: bool) -> Matching:
    """The rows for which a subquery has a row that fulfils all conditions, or has none."""
    here = {source.alias for source in sources(rows)}
    exported: dict[Expr, Column] = {}

    def outside(expr: Expr) -> Expr:
        if isinstance(expr, Column) and expr.source in here:
            named = Column(alias, f"c{len(exported)}", facts_of(expr, rows))
            return exported.setdefault(expr, named)
        if isinstance(expr, Call):
            return Call(expr.function, tuple(map(outside, expr.arguments)), expr.type)
        return expr

    parts = [outside(part) for part in on]
    if not exported:
        one = Literal(1, Type.INTEGER)
        exported[one] = Column(alias, "c0", facts_of(one, rows))
    condition = parts[0] if len(parts) == 1 else build("and", *parts) if parts else None
    right = Project(rows, alias, tuple(exported), tuple(exported.values()))
    return Matching(relation, right, condition or Literal(True, Type.BOOLEAN), anti)
