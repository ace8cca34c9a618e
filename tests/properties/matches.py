"""Rows matched with those of a subquery, as plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from properties.answers import answered, named
from properties.expressions import HALF, OFTEN, SELDOM, build
from properties.scopes import equal, identities, known
from sqlglot import exp

from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.nodes import Project, Relation, SemiJoin, iterate_sources
from dpsql.plan.types import Type
from dpsql.sql.lower.derived_tables import derive_column_info
from dpsql.sql.lower.joins import build_from_relation, iterate_factored_conjuncts
from dpsql.sql.lower.scope import Scope

if TYPE_CHECKING:
    from properties.relations import Relations


def matched(relations: Relations, scope: Scope, relation: Relation, depth: int, *, private: bool) -> Relation:
    """The rows that have a match among the rows of a subquery, or have none."""
    draw = relations.draw
    inner_private = private and not relations.rules.by_row and draw(OFTEN)
    alias = relations.context.allocate_alias(exp.null())
    inner = Scope(relations.context, outer=scope)
    released = private and not inner_private and not draw(OFTEN)
    source = named(answered(relations)) if released else relations.source(depth, private=inner_private)
    item = relations.brought(inner, source)
    here, outer = known(inner), known(scope)
    across: list[Expr] = []
    if inner_private:
        pairs = identities(outer, here)
        if not pairs:
            return relation
        across.append(equal(*relations.one(pairs)))
    own = [*iterate_factored_conjuncts(relations.condition(inner))] if draw(SELDOM) else []
    if draw(HALF):
        across += iterate_factored_conjuncts(relations.expressions([*here, *outer]).expression(Type.BOOLEAN))
    own += [part for part in across if _names(part) <= {source.alias}]
    rows = build_from_relation(inner, [item], own)
    return matching(relation, rows, alias, [part for part in across if part not in own], anti=draw(HALF))


def matching(relation: Relation, rows: Relation, alias: str, on: Sequence[Expr], *, anti: bool) -> SemiJoin:
    """The rows for which a subquery has a row that fulfils all conditions, or has none."""
    here = {source.alias for source in iterate_sources(rows)}
    exported: dict[Expr, Column] = {}

    def outside(expr: Expr) -> Expr:
        if isinstance(expr, Column) and expr.source in here:
            found = Column(alias, f"c{len(exported)}", derive_column_info(expr, rows))
            return exported.setdefault(expr, found)
        if isinstance(expr, Call):
            return Call(expr.function, tuple(map(outside, expr.arguments)), expr.type)
        return expr

    parts = [outside(part) for part in on]
    if not exported:
        one = Literal(1, Type.INTEGER)
        exported[one] = Column(alias, "c0", derive_column_info(one, rows))
    condition = parts[0] if len(parts) == 1 else build("and", *parts) if parts else None
    right = Project(rows, alias, tuple(exported), tuple(exported.values()))
    return SemiJoin(relation, right, condition or Literal(True, Type.BOOLEAN), anti)


def _names(expr: Expr) -> set[str]:
    return {column.source for column in iterate_columns(expr)}
