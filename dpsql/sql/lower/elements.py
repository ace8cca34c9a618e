"""Lowers UNNEST of a table's list: the table's scan reads a row for each element.

Claim: each row of a unit becomes at most `max_elements` rows of that unit.
Why: the scan itself repeats its rows, so that each has the unit of its table; the bound of rows is multiplied.
Source: McSherry 2009, "Privacy integrated queries", Theorem 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.plan import nodes
from dpsql.plan.expr import Column, Facts
from dpsql.plan.tables import Elements, Scan, Unit, UnitKind
from dpsql.policy import fold
from dpsql.sql.lower.scope import Named, Scope


def elements(scope: Scope, node: exp.Expr, *, outer: bool = False) -> bool:
    """Brings the elements of a list of a table in scope into it; False where UNNEST is of something else.

    Rows without elements are left out, but of an `outer` join, LEFT JOIN UNNEST.

    Claim: each row of a unit becomes at most `max_elements` rows of that unit.
    Why: the scan itself repeats its rows, so that each has the unit of its table; the bound of rows is multiplied.
    Source: McSherry 2009, Theorem 5.
    """
    lateral = type(node) is exp.Lateral
    inner = (
        scope.source.take(node, "this", "alias", view=(False, None), outer=(False, None))[0]
        if lateral
        else node
    )
    if (
        type(inner) is not exp.Unnest
        or len(inner.expressions) != 1
        or type(inner.expressions[0]) is not exp.Column
    ):
        return False
    (listed,) = inner.expressions
    alias, names = scope.alias(node.args.get("alias"), scope.context.fresh(node))
    if not lateral:
        scope.source.take(node, "expressions", "alias", offset=(False, None))
    parts = [str(scope.source.take(part, "this", quoted=(True,))[0]) for part in listed.parts]
    found = list(lists(scope, parts))
    if len(found) != 1:
        scope.source.refuse(
            listed,
            "column",
            f"there is no list {'.'.join(parts)} in the tables before",
            "the policy declares it with max_elements, and its table stands before it in FROM",
        )
    ((holder, (spelt, path, facts, most)),) = found
    scanned = scope.tables[holder].relation
    column = Column(scope.tables[holder].alias, f"#{spelt}", replace(facts, nullable=facts.nullable or outer))
    _check_unnested(scope, node, holder, scanned, column)
    if not isinstance(scanned, Scan) or scanned.contribution is None or fold(alias) in scope.tables:
        scope.source.refuse(node, "ambiguous", f"two tables are called {alias}", "give one an alias")
    rows = scanned.contribution.rows * most
    # What was unique in the table is not in rows that are repeated.
    bound = replace(scanned.contribution, rows=rows, keys=frozenset(), unique=frozenset())
    whole = replace(
        scanned, contribution=bound, unnested=(*scanned.unnested, Elements(path, column, most, outer))
    )
    for name, known in scope.tables.items():
        if known.relation is scanned:
            scope.tables[name] = replace(known, relation=whole)
    called = names[0] if names else (alias if not alias.startswith("#") else "unnest")
    scope.context.check_name(node, called)
    if len(names) > 1:
        scope.source.refuse(node, "column", f"{len(names)} names are given to 1 column")
    scope.tables[fold(alias)] = Named(whole, {fold(called): column})
    return True


def lists(
    scope: Scope, parts: Sequence[str]
) -> Iterator[tuple[str, tuple[str, tuple[str, ...], Facts, int]]]:
    """The lists that a name may mean, each with the alias of its table."""
    for holder, known in scope.tables.items():
        table = scope.context.catalog.find(known.relation.table) if isinstance(known.relation, Scan) else None
        if table is None or fold(known.alias) != holder:
            continue
        for rest in {".".join(parts), ".".join(parts[1:]) if fold(parts[0]) == holder else ""}:
            if fold(rest) in table.lists:
                yield holder, table.lists[fold(rest)]


def _check_unnested(scope: Scope, node: exp.Expr, holder: str, scanned: nodes.Source, column: Column) -> None:
    unit = scanned.unit if isinstance(scanned, Scan) else Unit(UnitKind.PUBLIC)
    if unit.kind is not UnitKind.COLUMN:
        scope.source.refuse(
            node,
            "join",
            "the list is of rows that have no unit's id" if unit.private else "the list is of a public table",
            "unnest it in a view"
            if not unit.private
            else "declare the unit's column, or unnest it in a view that has it",
        )
    if holder in scope.nullable:
        scope.source.refuse(
            node,
            "join",
            "the list is of a table whose row a LEFT JOIN may not find",
            "put its table first",
        )
    if isinstance(scanned, Scan) and any(item.column.name == column.name for item in scanned.unnested):
        scope.source.refuse(node, "join", "the list is unnested twice", "join two derived tables on the unit")
