"""Resolve names to the columns of the tables of one FROM clause, and lower subqueries that are used as a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from dpsql.backends.analyst_schema import AnalystTable
from dpsql.plan import nodes
from dpsql.plan.expressions import Column, Expr, Scalar
from dpsql.plan.steps import is_single_row, list_required_steps
from dpsql.plan.tables import Scan
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.problem import suggest_choice
from dpsql.sql.lower.dotted_names import (
    check_field,
    find_field,
    is_field_access,
    resolve_field,
    resolve_schema,
)
from dpsql.sql.lower.interval_ends import (
    get_interval_argument,
    make_interval_column,
    refuse_interval,
)
from dpsql.sql.lower.node_kinds import is_matching, is_quantified, is_unnest
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.statement_context import EnclosingScope, StatementContext
from dpsql.sql.lower.unknown_syntax import refuse_columns_call
from dpsql.sql.parse.own_calls import find_interval_end
from dpsql.sql.parse.rejection import QueryText

# Lower a subquery that is used as a value and does not depend on the rows around it.


def lower_uncorrelated_subquery(
    context: StatementContext, enclosing_scope: EnclosingScope, node: exp.Expr, query: exp.Expr
) -> Scalar:
    """Return the one value of a subquery that does not depend on the rows of the query around it."""
    inner = context.enter_subquery(node, context.common_tables, enclosing_scope)
    source = context.lower_derived_query(inner, query, context.allocate_alias(node), ())
    if nodes.is_private(source) or isinstance(source, Scan):
        context.source.refuse(
            node,
            "subquery",
            "a scalar subquery over private rows must aggregate over privacy units",
            "write WHERE cost > (SELECT AVG(cost) FROM visits)",
        )
    if len(source.columns) != 1:
        context.source.refuse(node, "subquery", "a subquery used as a value must have one column")
    outer = (
        _build_single_value_query(source)
        if is_single_row(source)
        else _look_up_single_row(context, node, source)
    )
    return Scalar(outer, source.columns[0].type)


def _look_up_single_row(context: StatementContext, node: exp.Expr, source: nodes.Source) -> nodes.OuterQuery:
    """Return the query of a source of public rows that has at most one row when it is looked up.

    Claim: its value costs nothing, and it is the same on neighboring databases.
    Why: it follows from public tables alone. The statement keeps the first row only, so that it could not fail.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if isinstance(source, Scan) or list_required_steps(source):
        context.source.refuse(
            node,
            "subquery",
            "a subquery over released values must have one row to be used as a value",
            "add LIMIT 1",
        )
    outputs = tuple(nodes.Output(column.name, column) for column in source.columns)
    if len(context.facts.read_rows(nodes.OuterQuery(source, outputs, limit=2))) > 1:
        context.source.refuse(
            node,
            "subquery",
            "a subquery used as a value must have at most one row, and this one has more",
            "add ORDER BY x LIMIT 1, or aggregate: SELECT MIN(x)",
        )
    return nodes.OuterQuery(source, outputs, limit=1)


def _build_single_value_query(source: nodes.Source) -> nodes.OuterQuery:
    """Build the query of a source's only column."""
    if isinstance(source, nodes.PublicSubquery):
        return source.outer
    if isinstance(source, Scan):
        raise TypeError("a table is not a scalar value")
    (column,) = source.columns
    return nodes.OuterQuery(source, (nodes.Output(column.name, column),))


# Resolve names to the columns of the tables of one FROM clause.


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source with the columns that a query may name, by folded name."""

    relation: nodes.Source
    columns: Mapping[str, Column]

    @property
    def alias(self) -> str:
        """Return the name of the source in the query."""
        return self.relation.alias

    @property
    def written_alias(self) -> str | None:
        """Return the alias that the query gives the source; None if it gives none."""
        return None if self.alias.startswith("#") else self.alias


@dataclass(frozen=True, slots=True)
class SemiJoinSource:
    """A source of a SEMI or ANTI JOIN, whose conditions keep the rows with a partner, or those without."""

    source: NamedSource
    conditions: tuple[Expr, ...]
    anti: bool
    node: exp.Expr


@dataclass(slots=True)
class Scope:
    """The sources of one FROM clause; resolves column names as DuckDB does, without regard to case.

    `outer` is the scope around a subquery that may refer to it.
    """

    context: StatementContext
    outer: Scope | None = None
    tables: dict[str, NamedSource] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    using_owners: dict[str, str] = field(default_factory=dict)
    """Columns of USING: the unqualified name means the column of this alias."""
    using_sides: dict[str, list[str]] = field(default_factory=dict)
    """The aliases whose column of that name USING has merged, in the order in which they were joined."""
    pending_joins: list[Any] | None = None
    """Sources of correlated subqueries that are still to be joined; None if none may be."""
    subquery_values: dict[exp.Expr, Expr] = field(default_factory=dict)
    """The values of subqueries, so that each is joined once; for UNNEST in SELECT the element."""
    semi_join_sources: list[SemiJoinSource] = field(default_factory=list)
    """The sources of SEMI JOIN and ANTI JOIN."""
    predicate_values: dict[object, Expr] = field(
        default_factory=dict
    )  # likewise the counts behind EXISTS and IN as values
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    """The SELECT items behind folded aliases, while these may be used: in WHERE and later items."""
    lowered_aliases: dict[int, tuple[exp.Expr, Expr]] = field(default_factory=dict)
    """The lowered items by the identity of their nodes, which are kept too: each is lowered once."""
    keeps_interval_columns: bool = False
    """Whether the query asks for interval ends, so that sources keep them next to released columns."""

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""
        return self.context.source

    @property
    def scalars(self) -> Scalars:
        """Lower expressions over the rows of this scope."""
        return Scalars(
            self.source,
            self.context.parameters,
            self.context.time,
            self.resolve_column,
            self._lower_special_node,
        )

    def _lower_special_node(self, node: exp.Expr) -> Expr | None:
        if self.aliases and type(node) is exp.Column:
            return self._find_alias_value(node)
        if find_interval_end(node) is not None:
            return self._get_interval_column(node)
        if type(node) is exp.Subquery:
            return self.lower_scalar_subquery(node)
        if is_unnest(node):
            return self.subquery_values.get(node)
        if is_field_access(node):
            return resolve_field(self, node)
        if type(node) is exp.Anonymous and normalize_name(node.name) == "columns":
            names = [column.name for known in self.tables.values() for column in known.columns.values()]
            refuse_columns_call(self.source, node, names)
        return (
            self.context.lower_subquery_predicate(self, node)
            if is_matching(node) or is_quantified(node)
            else None
        )

    def _find_alias_value(self, node: exp.Column) -> Expr | None:
        """Return the expression of a SELECT item's alias; None for a column, which takes precedence."""
        name = normalize_name(node.name) if type(node.this) is exp.Identifier and not node.table else ""
        if name not in self.aliases or self.list_column_owners(name, None):
            return None
        known, item = self.aliases, self.aliases[name]
        if id(item) not in self.lowered_aliases:
            self.aliases = known.copy()
            del self.aliases[name]
            try:
                self.lowered_aliases[id(item)] = item, self.scalars.lower(item)
            finally:
                self.aliases = known
        return self.lowered_aliases[id(item)][1]

    def _get_interval_column(self, node: exp.Expr) -> Column:
        """Return the end of the interval of a released aggregate that a column of FROM is."""
        asked = get_interval_argument(self.source, node)
        if type(asked) is not exp.Column:
            refuse_interval(self.source, node)
        column = self.resolve_column(asked)
        alias, end = (
            normalize_name(column.source),
            make_interval_column(column, find_interval_end(node) or ""),
        )
        relation = self.tables[alias].relation if alias in self.tables else None
        if not isinstance(relation, nodes.PublicSubquery) or end not in relation.columns:
            refuse_interval(self.source, node)
        return self._apply_nullability(alias, end)

    def lower_scalar_subquery(self, node: exp.Expr) -> Expr:
        """Return the one value of a subquery over released or public values."""
        (query,) = self.source.take_arguments(node, "this")
        if type(query) is exp.Select:
            value = self.subquery_values.get(query) or self.context.lower_correlated_select(self, query)
            if value is not None:
                self.subquery_values[query] = value
                return value
        return lower_uncorrelated_subquery(self.context, self, node, query)

    def resolve_column(self, node: exp.Column) -> Column:
        """Return the column that a name means."""
        identifier, qualifier, *schema = self.source.take_arguments(node, "this", "table", "db", "catalog")
        parts = [part for part in (*reversed(schema), qualifier, identifier) if part is not None]
        field_ = find_field(self, parts)
        if field_ is not None:
            return field_
        if type(identifier) is not exp.Identifier:
            self.source.refuse(node, "column", "a column name is expected here")
        name = str(self.source.take_arguments(identifier, "this", quoted=(True,))[0])
        owner = None
        if qualifier is not None:
            owner = str(self.source.take_arguments(qualifier, "this", quoted=(True,))[0])
        scope = self._find_owning_scope(name, owner)
        holders = scope.list_column_owners(name, owner)
        if not holders:
            self._check_enclosing_columns(node, name, owner)
            if owner is not None and normalize_name(owner) not in scope.tables:
                check_field(self, node, parts)
        in_schema = resolve_schema(self.source, self.context.catalog, node, schema)
        if owner is not None and not scope.has_source(normalize_name(owner), in_schema):
            self._check_enclosing_columns(node, name, owner)
            known = ", ".join(filter(None, (named.written_alias for named in self.tables.values())))
            self.source.refuse(
                node,
                "table",
                f"there is no table {owner} in FROM",
                f"FROM has {known}" if known else "name the subquery: FROM (SELECT …) AS q",
            )
        if not holders:
            self._refuse_unknown_column(node, name, owner)
        if len(holders) > 1:
            written = [scope.tables[alias].written_alias for alias in holders]
            named = next(filter(None, written), None)
            self.source.refuse(
                node,
                "ambiguous",
                f"the column {name} is in {' and '.join(one or 'a subquery without a name' for one in written)}",
                f"write {named}.{name}" if named else "name the subqueries: FROM (SELECT …) AS q",
            )
        if any(holders[0] in hiding.tables for hiding in self._iterate_inner_scopes(scope)):
            self.source.refuse(
                node,
                "ambiguous",
                f"the subquery has its own table {scope.tables[holders[0]].alias}, which has no column "
                f"{name}",
                "give one of the two an alias",
            )
        return scope.get_column(holders[0], name)

    def _check_enclosing_columns(self, node: exp.Column, name: str, owner: str | None) -> None:
        """Refuse a name that is one of the rows around a derived table, where it cannot be read."""
        around = self.context.enclosing_scope
        if around is not None and around.has_visible_column(name, owner):
            self.source.refuse(
                node,
                "subquery",
                f"{owner + '.' if owner else ''}{name} belongs to the outer query, which FROM and "
                "subqueries with GROUP BY, HAVING, LIMIT, UNION or WITH cannot read",
                "name it in the WHERE of a subquery without these clauses: EXISTS (SELECT … WHERE "
                "inner.a = outer.a); in FROM write a join: JOIN (SELECT unit, SUM(x) AS s FROM … GROUP "
                "BY unit) AS q ON q.unit = t.unit",
            )

    def has_visible_column(self, name: str, owner: str | None) -> bool:
        """Return whether a name is a column of these rows, or of rows around them."""
        around = self.context.enclosing_scope
        held = self._find_owning_scope(name, owner).list_column_owners(name, owner)
        return bool(held) or (around is not None and around.has_visible_column(name, owner))

    def has_source(self, owner: str, schema: str | None) -> bool:
        """Return whether a source has this name and, if a schema is given, is a table of it."""
        relation = self.tables[owner].relation if owner in self.tables else None
        if schema is None or relation is None:
            return relation is not None
        return isinstance(relation, Scan) and normalize_name(split_table_name(relation.table)[0]) == schema

    def get_column_name(self, column: Column) -> str:
        """Return the name of a column for people; for a list's element the name that UNNEST gives it."""
        if not column.name.startswith("#"):
            return column.name
        held = (pair for known in self.tables.values() for pair in known.columns.items())
        return next((name for name, found in held if found == column), column.name)

    def _iterate_inner_scopes(self, scope: Scope) -> Iterator[Scope]:
        """Yield the scopes from this one out to `scope`, without that."""
        inner: Scope | None = self
        while inner is not None and inner is not scope:
            yield inner
            inner = inner.outer

    def _find_owning_scope(self, name: str, owner: str | None) -> Scope:
        """Find the innermost scope that knows the name; this one, if none does."""
        scope: Scope | None = self
        while scope is not None:
            if scope.list_column_owners(name, owner):
                return scope
            scope = scope.outer
        return self

    def get_column(self, alias: str, name: str) -> Column:
        """Return the column `name` of the table in scope as `alias`."""
        return self._apply_nullability(alias, self.tables[alias].columns[normalize_name(name)])

    def _apply_nullability(self, alias: str, column: Column) -> Column:
        """Return the column of a source, NULL where a join has found none of its rows."""
        if alias not in self.nullable:
            return column
        return replace(column, facts=replace(column.facts, nullable=True))

    def list_columns(self, node: exp.Expr, owner: str | None = None) -> list[Column]:
        """List the columns of the table `owner`, or of all tables, as * means them."""
        if owner is not None and normalize_name(owner) not in self.tables:
            self.source.refuse(node, "table", f"there is no table {owner} in FROM")
        if owner is not None:
            return [
                self.get_column(normalize_name(owner), name)
                for name in self.tables[normalize_name(owner)].columns
            ]
        # A column of USING appears once, at its first side.
        return [
            self.get_column(
                self.using_owners[name] if alias in self.using_sides.get(name, ()) else alias, name
            )
            for alias in self.tables
            for name in self.tables[alias].columns
            if alias not in self.using_sides.get(name, ())[1:]
        ]

    def list_column_names(self, owner: str | None) -> list[str]:
        """List the names of the columns of the table `owner`, or of all tables; empty if there is no such table."""
        among = [self.tables[normalize_name(owner)]] if owner and normalize_name(owner) in self.tables else []
        tables = self.tables.values() if owner is None else among
        return [self.get_column_name(column) for named in tables for column in named.columns.values()]

    def list_column_owners(self, name: str, owner: str | None) -> list[str]:
        """List the tables of this scope that have a column of a name: all of them, or only the one of the name `owner`."""
        folded = normalize_name(name)
        if owner is None and folded in self.using_owners:
            return [self.using_owners[folded]]
        among = (
            self.tables
            if owner is None
            else [normalize_name(owner)]
            if normalize_name(owner) in self.tables
            else []
        )
        return [alias for alias in among if folded in self.tables[alias].columns]

    def _iterate_catalog_tables(self) -> Iterator[AnalystTable]:
        """Yield the tables of the catalog that are in scope."""
        for named in self.tables.values():
            table = (
                self.context.catalog.find_table(named.relation.table)
                if isinstance(named.relation, Scan)
                else None
            )
            yield from [] if table is None else [table]

    def _refuse_unknown_column(self, node: exp.Column, name: str, owner: str | None) -> None:
        if any(normalize_name(name) in known.lists for known in self._iterate_catalog_tables()):
            self.source.refuse(
                node,
                "column",
                f"{name} is a list, whose elements can only be read as rows",
                f"write FROM t, UNNEST(t.{name}) AS u(x), or SELECT UNNEST({name}) AS x",
            )
        known = self.list_column_names(owner)
        inner = [column for column in known if normalize_name(column).startswith(f"{normalize_name(name)}.")]
        if inner:
            self.source.refuse(
                node,
                "column",
                f"{name} is a STRUCT, of which only declared fields can be read",
                f"name a field, such as {inner[0]}, which is NULL where {name} is NULL",
            )
        hint = suggest_choice(name, known) or f"there are: {', '.join(known)}"
        self.source.refuse(node, "column", f"there is no column {name}", hint)


def to_named_source(relation: nodes.Source) -> NamedSource:
    """Return a derived source with its columns."""
    if isinstance(relation, Scan):
        raise TypeError("the columns of a table come from the catalog")
    return NamedSource(relation, {normalize_name(column.name): column for column in relation.columns})
