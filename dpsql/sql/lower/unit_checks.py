"""Group rows by the identifier of a privacy unit that the query names itself, which is not trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.domains import derive_domain, derive_listed_values
from dpsql.analysis.intervals import derive_known_intervals
from dpsql.analysis.stability import bound_rows
from dpsql.analysis.unit_identity import find_identity, find_injective_identity, is_fine_grained
from dpsql.plan.expressions import UNIT_IDENTITY, Expr
from dpsql.plan.nodes import OuterQuery, PublicSubquery, Relation, Release, SetOperation, list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.plan.text import format_expression
from dpsql.policy import normalize_name
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.statement_context import CompleteGroupsRequirement, StatementContext
from dpsql.sql.parse.rejection import QueryText

_COMPARE = "correlate it: EXISTS (SELECT … WHERE inner.unit = outer.unit)"


def check_unit(scope: Scope, node: exp.Column | None) -> None:
    """Refuse a privacy unit that is not the one which the policy protects."""
    if node is None:
        return
    column = scope.resolve_column(node)
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
            f"{column.name} is not the privacy unit that the policy declares",
            f"it is {' or '.join(sorted(units))}" if units else "leave out privacy_unit_column",
        )


def check_groups(source: QueryText, node: exp.Expr, keys: Iterable[Expr], relation: Relation) -> None:
    """Refuse groups of a derived table that hold one unit each, unless a key is NULL or not the unit's id.

    They would be groups across units, and hardly any of them would be released.
    """
    for key in keys:
        secret = derive_domain(key, derive_known_intervals(relation), derive_listed_values(relation)) is None
        if secret and find_injective_identity(key, relation) is not None:
            refuse_units(source, node, key, relation)


def check_hidden_groups(context: StatementContext, node: exp.Expr, outer: OuterQuery) -> None:
    """Note the groups of a derived table by keys whose values may each be one unit's: nothing is computed of them all.

    Groups of a single unit are not released, so that a computation over the remaining groups would mean something else in
    SQL. The query is accepted if it counts the units of each group, or if each unit has one row, since both say that several
    units share a group.
    """
    for release in _iterate_releases(outer):
        _check_hidden_release(context, node, release)


def _iterate_releases(part: OuterQuery | Relation) -> Iterator[Release]:
    """Yield the releases whose groups are the rows of a derived table: several are those of grouping sets, one below the other."""
    match part:
        case OuterQuery():
            if isinstance(part.source, Release):
                yield part.source
            elif isinstance(part.source, SetOperation):
                yield from _iterate_releases(part.source)
        case SetOperation():
            yield from _iterate_releases(part.left)
            yield from _iterate_releases(part.right)
        case PublicSubquery():
            yield from _iterate_releases(part.outer)
        case _:
            return


def _check_hidden_release(context: StatementContext, node: exp.Expr, release: Release) -> None:
    if any(item.function == "count_units" for item in release.aggregations):
        return
    if bound_rows(release.input, context.facts) == 1:
        return
    known, stated = derive_known_intervals(release.input), derive_listed_values(release.input)
    secret = [
        key.expr
        for key in release.keys
        if is_fine_grained(key.expr) and derive_domain(key.expr, known, stated) is None
    ]
    if not secret:
        return
    name = format_expression(secret[0])

    def refuse() -> NoReturn:
        context.source.refuse(
            node.args.get("group") or node,
            "hidden_groups",
            f"this cannot be computed over all groups of {name}: those with few privacy units are not released",
            f"counts, sums and means of all groups are answered, where no condition reads an aggregate; if each {name} belongs to one privacy unit, add the unit's id to GROUP BY, in each "
            "grouping set, or let the data owner declare that by `unique` or `links`; if several "
            "units share it, keep groups of several units, HAVING COUNT(DISTINCT unit) > 1, group by "
            "the column of a joined public table, or let the owner list its `values`",
        )

    context.requirements.append(CompleteGroupsRequirement(release, refuse))


def refuse_units(source: QueryText, node: exp.Expr, key: Expr, relation: Relation) -> NoReturn:
    """Refuse a group key whose values identify privacy units."""
    name = format_expression(key)
    source.refuse(
        node,
        "group_by_unit",
        f"each group of {name} would hold one privacy unit, so no group could be released",
        f"count them: COUNT(DISTINCT {name}); or group by it in a subquery, "
        "and aggregate its rows: SELECT n, COUNT(*) FROM (SELECT …) GROUP BY n"
        if find_identity(key, relation) is not None
        else (
            "group by an id that is never NULL: add WHERE id IS NOT NULL, or let the owner declare "
            "nullable: false; over an outer join use the column of USING (id), or COALESCE(a.id, "
            "b.id)"
        ),
    )


def suggest_unit_comparison(scope: Scope, node: exp.Expr) -> str:
    """Return the comparison of units that a subquery lacks, with the names of the query where both sides have a table with ids."""
    table = node.this if isinstance(node, exp.Join) else _find_from_table(node)
    known = scope.context.catalog.find_table(table.name) if isinstance(table, exp.Table) else None
    rows_of = [scan.table for named in scope.tables.values() for scan in list_private_scans(named.relation)]
    without = [
        name for name in (*rows_of, *([] if known is None else [known.name])) if _has_row_units(scope, name)
    ]
    if without:
        return f"each row of {without[0]} is a privacy unit without an id to compare: aggregate each table by itself"
    if table is None or known is None or known.unit_column is None or known.link is not None:
        return _COMPARE
    clause = "ON" if isinstance(node, exp.Join) else "its WHERE"
    inner = normalize_name(table.alias_or_name)
    for named in scope.tables.values():
        for column in named.columns.values():
            if column.facts.identity != UNIT_IDENTITY or named.written_alias is None:
                continue
            ours = f"{named.written_alias}.{column.name}"
            if normalize_name(named.written_alias) != inner:
                return f"correlate it, in {clause}: {table.alias_or_name}.{known.unit_column} = {ours}"
            return (
                f"give the table of the subquery another name, as in FROM {table.name} AS w, and correlate it in "
                f"{clause}: w.{known.unit_column} = {ours}"
            )
    return _COMPARE


def _has_row_units(scope: Scope, name: str) -> bool:
    """Return whether each row of a declared table is a privacy unit."""
    table = scope.context.catalog.find_table(name)
    return table is not None and table.unit is UnitKind.ROW


def _find_from_table(node: exp.Expr) -> exp.Expr | None:
    """Return the first source of the FROM clause of a subquery."""
    query = node if isinstance(node, exp.Select) else node.find(exp.Select)
    clause = None if query is None else query.args.get("from_")
    return clause.this if isinstance(clause, exp.Expr) else None
