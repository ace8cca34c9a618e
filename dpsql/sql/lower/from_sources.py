"""Bring the items of FROM into scope: declared tables, common table expressions, derived tables, a single row without FROM."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.plan import nodes
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import normalize_name, split_table_name
from dpsql.sql.lower.interval_ends import with_interval_columns
from dpsql.sql.lower.node_kinds import is_table_function
from dpsql.sql.lower.scope import NamedSource, Scope, to_named_source
from dpsql.sql.lower.statement_context import REPEATED, CommonTable, StatementContext
from dpsql.sql.lower.table_names import build_scan, resolve_schema, resolve_table
from dpsql.sql.lower.table_samples import lower_sample

MAX_JOINED = 64
"""The most tables of one FROM: putting n joins in order takes n² steps."""


def add_source(scope: Scope, node: exp.Expr) -> str:
    """Bring the item of a FROM or JOIN clause into scope; returns its alias, folded."""
    derived = type(node) in (exp.Subquery, exp.Values) or is_table_function(node)
    added = _lower_derived_table(scope, node) if derived else _lower_table(scope.context, node)
    if scope.keeps_interval_columns:
        added = replace(added, relation=with_interval_columns(added.relation))
    folded = normalize_name(added.alias)
    if folded in scope.tables:
        scope.source.refuse(node, "ambiguous", f"two tables are called {added.alias}", "give one an alias")
    if len(scope.tables) == MAX_JOINED:
        scope.source.refuse(
            node,
            "too_long",
            f"FROM may name at most {MAX_JOINED} tables",
            "join some of them in a subquery",
        )
    scope.tables[folded] = added
    return folded


def add_single_row(scope: Scope, node: exp.Expr) -> str:
    """Bring the single row of a SELECT without FROM into scope; none of its columns can be named."""
    alias = scope.context.allocate_alias(node)
    column = Column(alias, "#", ColumnInfo(Type.INTEGER, ""))
    scope.tables[normalize_name(alias)] = NamedSource(nodes.Values(((1,),), alias, (column,)), {})
    return normalize_name(alias)


def _lower_table(context: StatementContext, node: exp.Expr) -> NamedSource:
    if type(node) is not exp.Table or type(node.this) is not exp.Identifier:
        context.source.refuse(node, "table", "FROM takes the name of a declared table")
    identifier, alias, *qualifiers = context.source.take_arguments(
        node, "this", "alias", "db", "catalog", sample=(node.args.get("sample"),)
    )
    name = str(context.source.take_arguments(identifier, "this", quoted=(True,))[0])
    schema = resolve_schema(context.source, context.catalog, node, qualifiers)
    common = context.common_tables.get(normalize_name(name)) if schema is None else None
    sample = node.args.get("sample")
    if common is not None:
        if sample is not None:
            context.source.refuse(
                sample,
                "sample",
                "only a private table can be sampled, not the rows of a query",
                "write TABLESAMPLE inside of the query, behind its table",
            )
        known_as, names = take_alias(context, alias, name)
        return to_named_source(
            context.rename_columns(node, lower_common_table(context, node, common, known_as), names)
        )
    table = resolve_table(context.source, context.catalog, node, name, schema)
    known_as, names = take_alias(context, alias, split_table_name(table.name)[1])
    if names:
        context.source.refuse(
            node, "clause", "an alias of a table cannot rename its columns", "rename them in SELECT"
        )
    columns = {folded: Column(known_as, *column) for folded, column in table.columns.items()}
    context.allocate_alias(node)  # counted, as every source is
    found = build_scan(context.catalog, known_as, table)
    if sample is not None:
        found = lower_sample(context.source, sample, found)
        context.sample_nodes.append(sample)
    return NamedSource(found, columns)


def lower_common_table(
    context: StatementContext, node: exp.Expr, common: CommonTable, known_as: str
) -> nodes.Source:
    """Return the rows of a common table expression, which is lowered once; its tables count at each use."""
    lowered = context.lowered_common_tables
    if id(common.query) not in lowered:
        inner = context.enter_subquery(node, common.earlier_tables, common.enclosing_scope)
        before = context.source_counter.number
        source = context.lower_derived_query(inner, common.query, known_as, common.names)
        lowered[id(common.query)] = common.query, source, context.source_counter.number - before
        return source
    _, source, size = lowered[id(common.query)]
    context.count_sources(node, size, REPEATED)
    if isinstance(source, Scan):
        return source
    columns = tuple(replace(column, source=known_as) for column in source.columns)
    return replace(source, alias=known_as, columns=columns)


def _lower_derived_table(scope: Scope, node: exp.Expr) -> NamedSource:
    alias = node.args.get("alias")
    query = scope.source.take_arguments(node, "this", "alias")[0] if type(node) is exp.Subquery else node
    # No user's alias begins with #, so two subqueries without an alias do not clash.
    known_as, names = take_alias(scope.context, alias, scope.context.allocate_alias(node))
    if is_table_function(node) and alias is not None and not names and alias.args.get("this") is not None:
        names = [str(alias.this.this)]  # the only column has the name of the table
    inner = scope.context.enter_subquery(node, scope.context.common_tables, enclosing_scope=scope)
    return to_named_source(scope.context.lower_derived_query(inner, query, known_as, names))


def take_alias(context: StatementContext, node: exp.Expr | None, otherwise: str) -> tuple[str, list[str]]:
    """Return the alias of a source and the names that it gives to columns."""
    if node is None:
        return otherwise, []
    identifier, columns = context.source.take_arguments(node, "this", "columns")
    names = [
        str(context.source.take_arguments(column, "this", quoted=(True,))[0]) for column in columns or ()
    ]
    if identifier is None:
        return otherwise, names
    name = str(context.source.take_arguments(identifier, "this", quoted=(True,))[0])
    context.check_name(node, name)
    # Letter case does not change a name, so it must not change the plan.
    return normalize_name(name), names
