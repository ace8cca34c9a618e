"""Lower UNNEST of a table's list: the table's scan reads a row for each element.

Claim: each row of a unit becomes at most `max_elements` rows of that unit.
Why: the scan itself repeats its rows, so that each has the unit of its table; the bound of rows is multiplied.
Source: McSherry 2009, "Privacy integrated queries", Theorem 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from dpsql.plan import nodes
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.tables import Scan, Unit, UnitKind, UnnestedList
from dpsql.policy import normalize_name
from dpsql.sql.lower.from_sources import add_source, take_alias
from dpsql.sql.lower.node_kinds import is_table_function
from dpsql.sql.lower.scalars import is_unnest
from dpsql.sql.lower.scope import NamedSource, Scope


def add_unnested_elements(scope: Scope, node: exp.Expr, *, outer: bool = False) -> bool:
    """Bring the elements of a list of a table in scope into it; False where UNNEST is of something else.

    Rows without elements are left out, except in an `outer` join, LEFT JOIN UNNEST.

    Claim: each row of a unit becomes at most `max_elements` rows of that unit.
    Why: the scan itself repeats its rows, so that each has the unit of its table; the bound of rows is multiplied.
    Source: McSherry 2009, Theorem 5.
    """
    lateral = type(node) is exp.Lateral
    inner = (
        scope.source.take_arguments(node, "this", "alias", view=(False, None), outer=(False, None))[0]
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
    alias, names = take_alias(scope.context, node.args.get("alias"), scope.context.allocate_alias(node))
    if not lateral:
        scope.source.take_arguments(node, "expressions", "alias", offset=(False, None))
    if normalize_name(alias) in scope.tables:
        scope.source.refuse(node, "ambiguous", f"two tables are called {alias}", "give one an alias")
    whole, column = _repeat_scan(scope, node, listed, outer=outer)
    called = names[0] if names else (alias if not alias.startswith("#") else "unnest")
    scope.context.check_name(node, called)
    if len(names) > 1:
        scope.source.refuse(node, "column", f"the alias lists {len(names)} names for 1 column")
    scope.tables[normalize_name(alias)] = NamedSource(whole, {normalize_name(called): column})
    return True


def _repeat_scan(scope: Scope, node: exp.Expr, listed: exp.Column, *, outer: bool) -> tuple[Scan, Column]:
    """Return the scan of a table that reads a row for each element of a list, and the column that holds the element."""
    scope.source.take_arguments(listed, "this", "table", "db", "catalog")
    parts = [str(scope.source.take_arguments(part, "this", quoted=(True,))[0]) for part in listed.parts]
    found = list(iterate_matching_lists(scope, parts))
    if len(found) != 1:
        _refuse_unknown_list(scope, listed, parts)
    ((holder, (spelt, path, facts, most)),) = found
    scanned = scope.tables[holder].relation
    column = Column(scope.tables[holder].alias, f"#{spelt}", replace(facts, nullable=facts.nullable or outer))
    _check_unnested(scope, node, holder, scanned, column)
    if not isinstance(scanned, Scan) or scanned.contribution is None:
        raise TypeError("a list must belong to a table with contribution bounds")
    rows = scanned.contribution.rows * most
    # Keys of the table are not unique in its repeated rows.
    bound = replace(scanned.contribution, rows=rows, keys=frozenset(), unique=frozenset())
    whole = replace(
        scanned, contribution=bound, unnested=(*scanned.unnested, UnnestedList(path, column, most, outer))
    )
    for name, known in scope.tables.items():
        if known.relation is scanned:
            scope.tables[name] = replace(known, relation=whole)
    return whole, column


def _refuse_unknown_list(scope: Scope, listed: exp.Column, parts: Sequence[str]) -> NoReturn:
    """Refuse UNNEST of a column that is no list of a table in scope: of a derived table's list, and of other columns."""
    name = ".".join(parts)
    for known in scope.tables.values():
        alias = known.written_alias or "a subquery"
        of_another = len(parts) > 1 and normalize_name(parts[0]) != normalize_name(known.alias)
        if isinstance(known.relation, Scan) or of_another:
            continue
        for scan in nodes.list_private_scans(known.relation):
            table = scope.context.catalog.find_table(scan.table)
            if table is not None and normalize_name(parts[-1]) in table.lists:
                scope.source.refuse(
                    listed,
                    "column",
                    f"the list {parts[-1]} cannot be unnested outside of {alias}, which reads it from {scan.table}",
                    f"unnest it there: SELECT …, x FROM {scan.table}, UNNEST({scan.table}.{parts[-1]}) AS u(x)",
                )
    columns = {column for known in scope.tables.values() for column in known.columns}
    if normalize_name(parts[-1]) in columns:
        scope.source.refuse(
            listed,
            "column",
            f"{name} is not a list that the policy declares",
            "the policy declares a list with max_elements; then FROM t, UNNEST(t.list) AS u(x) reads its elements as rows",
        )
    scope.source.refuse(
        listed,
        "column",
        f"the tables before UNNEST have no list {name}",
        "write its table before it, FROM t, UNNEST(t.list) AS u(x); the policy declares the list with max_elements",
    )


def add_selected_elements(scope: Scope, select: exp.Select) -> str | None:
    """Bring the elements of UNNEST among the items of SELECT into scope, as FROM t, UNNEST(t.list) does.

    Returns the alias of a source to be joined, where constants are unnested.

    Claim: rows, units and bounds are the same as with UNNEST in FROM.
    Why: an item is computed for each row that FROM and WHERE keep, and gives one row for each element of its list, and none
    for an empty list or NULL. WHERE does not read elements, so the order of the two does not matter. Windows are refused,
    since they are computed over the rows before UNNEST; so is a second list, since its elements are paired with those of the
    first one.
    Source: McSherry 2009, Theorem 5.
    """
    items = [*select.expressions, *(getattr(select.args.get("group"), "expressions", None) or ())]
    found = [node for item in items for node in _iterate_unnests(item)]
    if not found:
        return None
    _check_selected(scope, select, found)
    _, (inner, *others) = scope.source.take_arguments(found[0], "this", "expressions")
    if others:
        scope.source.refuse(found[0], "unnest", "UNNEST takes exactly one list", "write UNNEST(t.list)")
    if type(inner) is exp.Column:
        _, column = _repeat_scan(scope, found[0], inner, outer=False)
        scope.subquery_values.update(dict.fromkeys(found, column))
        return None
    alias = add_source(scope, _build_constant_source(inner))
    source = scope.tables[alias]
    scope.subquery_values.update(dict.fromkeys(found, next(iter(source.columns.values()))))
    scope.tables[alias] = replace(source, columns={})  # * does not mean it
    return alias


def _build_constant_source(listed: exp.Expr) -> exp.Expr:
    """Build a list of constants, or RANGE or GENERATE_SERIES, as an item of FROM."""
    table = exp.Table(this=listed)
    return table if is_table_function(table) else exp.Unnest(expressions=[listed])


def _iterate_unnests(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the UNNEST calls of an expression, without those in its subqueries."""
    for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if is_unnest(part):
            yield part


def _check_selected(scope: Scope, select: exp.Select, found: Sequence[exp.Expr]) -> None:
    """Refuse uses of UNNEST in SELECT that differ from UNNEST in FROM."""
    different = [node for node in found if node != found[0]]
    if different:
        scope.source.refuse(
            different[0],
            "unnest",
            "several UNNEST in one SELECT are not supported: they would pair the lists element by element",
            "to get each pair of elements: FROM t, UNNEST(t.a) AS u(x), UNNEST(t.b) AS w(y)",
        )
    for node in (part for part in found if part.find_ancestor(exp.AggFunc, exp.Select) is not select):
        if isinstance(node.find_ancestor(exp.AggFunc, exp.Select), exp.AggFunc):
            scope.source.refuse(
                node,
                "unnest",
                "UNNEST is not allowed in an aggregate",
                "write SELECT SUM(x) FROM t, UNNEST(t.list) AS u(x)",
            )
    where = select.args.get("where")
    for node in () if where is None else _iterate_unnests(where):
        scope.source.refuse(
            node,
            "unnest",
            "WHERE cannot read the elements of UNNEST in SELECT: it is applied before",
            "write FROM t, UNNEST(t.list) AS u(x) WHERE x > 0",
        )
    windows = [item.find(exp.Window) for item in select.expressions]
    for window in (*filter(None, windows), select.args.get("qualify")):
        if window is not None:
            scope.source.refuse(
                window,
                "unnest",
                "a window function next to UNNEST in SELECT reads the rows before UNNEST",
                "to read elements: FROM t, UNNEST(t.list) AS u(x); otherwise compute the window in a "
                "derived table",
            )


def iterate_matching_lists(
    scope: Scope, parts: Sequence[str]
) -> Iterator[tuple[str, tuple[str, tuple[str, ...], ColumnInfo, int]]]:
    """Yield the lists that a name may mean, each with the alias of its table."""
    for holder, known in scope.tables.items():
        table = (
            scope.context.catalog.find_table(known.relation.table)
            if isinstance(known.relation, Scan)
            else None
        )
        if table is None or normalize_name(known.alias) != holder:
            continue
        for rest in {".".join(parts), ".".join(parts[1:]) if normalize_name(parts[0]) == holder else ""}:
            if normalize_name(rest) in table.lists:
                yield holder, table.lists[normalize_name(rest)]


def _check_unnested(scope: Scope, node: exp.Expr, holder: str, scanned: nodes.Source, column: Column) -> None:
    unit = scanned.unit if isinstance(scanned, Scan) else Unit(UnitKind.PUBLIC)
    if unit.kind is not UnitKind.COLUMN:
        scope.source.refuse(
            node,
            "join",
            "a list can only be unnested where rows have the id of a privacy unit"
            if unit.private
            else "the lists of a public table cannot be unnested",
            "unnest the list in a view"
            if not unit.private
            else "declare the column of the unit, or unnest the list in a view that has it",
        )
    if holder in scope.nullable:
        scope.source.refuse(
            node,
            "join",
            "the list belongs to the right side of a LEFT JOIN, where rows may be missing",
            "unnest it in a subquery: LEFT JOIN (SELECT t.unit, x FROM t LEFT JOIN UNNEST(t.list) AS u(x) ON true) AS q ON …; "
            "after a comma only rows with elements stay, so write JOIN for LEFT JOIN",
        )
    if isinstance(scanned, Scan) and any(item.column.name == column.name for item in scanned.unnested):
        scope.source.refuse(
            node,
            "join",
            "a list can be unnested only once in a query",
            "unnest it in two derived tables, and join these on the unit",
        )
