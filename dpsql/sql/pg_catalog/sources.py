"""What stands in FROM of a catalog query in PostgreSQL's SQL alone: functions as tables, and columns that every table has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from sqlglot import exp

from dpsql.policy.names import normalize_name
from dpsql.sql.pg_catalog.functions import (
    BUILT_IN,
    MACROS,
    SESSION_FUNCTIONS,
    TABLE_FUNCTIONS,
    get_function_name,
)

_TRANSACTIONS = {"xmin": 1, "xmax": 0, "cmin": 0, "cmax": 0}
"""The columns with the transactions of a row: the catalog is made at once, and never changes."""
_SERIES = (exp.GenerateSeries, exp.ExplodingGenerateSeries)
_SYSTEM_COLUMNS = {*_TRANSACTIONS, "tableoid", "ctid"}


def names_common_table(table: exp.Table) -> bool:
    """Return whether a table is a common table expression, as one of its name is in scope.

    In scope are those of the queries around it; in a common table expression, those before it, and with RECURSIVE all beside it.
    """
    name, node = normalize_name(table.name), cast("exp.Expr", table)
    while not table.db and node.parent is not None:
        around = node.parent
        held = around if isinstance(around, exp.With) else around.args.get("with_")
        if held is not None and held is not node:
            listed = held.expressions
            if held is around and not held.args.get("recursive"):
                listed = listed[: node.index]
            if any(normalize_name(cte.alias) == name for cte in listed):
                return True
        node = around
    return False


def prepare_sources(tree: exp.Expr) -> None:
    """Replace functions in FROM by tables or subqueries, and system columns by their values, in place."""
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Func):
            _replace_function(table, table.this)
    for unnest in tree.find_all(exp.Unnest):
        alias = unnest.args.get("alias")
        if alias is not None and alias.this and not alias.args.get("columns"):
            alias.set("columns", [alias.this.copy()])
    # In the order of the text, so that the columns of an inner query are found before it changes.
    for column in list(tree.find_all(exp.Column)):
        if normalize_name(column.name) in _SYSTEM_COLUMNS:
            _replace_system_column(column)


def _replace_function(table: exp.Table, call: exp.Func) -> None:
    name = get_function_name(call)
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    if name in TABLE_FUNCTIONS:
        found = exp.Table(
            this=exp.to_identifier(TABLE_FUNCTIONS[name]), db=exp.to_identifier("pg_catalog"), alias=alias
        )
        table.replace(found)
    elif isinstance(call, _SERIES):
        if not alias.args.get("columns"):
            alias.set("columns", [alias.this.copy()])
        table.set("alias", alias)
    elif name in SESSION_FUNCTIONS - {"set_config"} or name in BUILT_IN or name in MACROS:
        value = exp.Alias(this=call.copy(), alias=alias.this.copy())
        table.replace(exp.Subquery(this=exp.Select(expressions=[value]), alias=alias))


def _replace_system_column(column: exp.Column) -> None:
    table = _find_table(column)
    if table is None:
        return
    name = normalize_name(column.name)
    value: exp.Expr
    if name == "tableoid":
        value = exp.Cast(
            this=exp.Literal.string(table.name), to=exp.DataType.build("REGCLASS", dialect="postgres")
        )
        value = exp.Cast(this=value, to=exp.DataType.build("OID", dialect="postgres", udt=True))
    elif name == "ctid":
        value = exp.Literal.string("(0,1)")
    else:
        kind = exp.DataType.build("UINTEGER", dialect="duckdb")
        value = exp.Cast(this=exp.Literal.number(_TRANSACTIONS[name]), to=kind)
    is_item = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
    column.replace(exp.Alias(this=value, alias=exp.to_identifier(name)) if is_item else value)


def _find_table(column: exp.Column) -> exp.Table | None:
    """Return the catalog table that a column belongs to, or None if it is another source's."""
    select = column.find_ancestor(exp.Select)
    while isinstance(select, exp.Select):
        sources = [
            table
            for table in _iterate_sources(select)
            if not column.table or normalize_name(table.alias_or_name) == normalize_name(column.table)
        ]
        if sources:
            table = next((each for each in sources if _is_stored(each)), None)
            return table if isinstance(table, exp.Table) else None
        select = select.find_ancestor(exp.Select)
    return None


def _iterate_sources(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the tables and subqueries of a SELECT's own FROM clause, those of a group of joins among them."""
    for kind in (exp.Table, exp.Subquery):
        for source in select.find_all(kind):
            node: exp.Expr | None = source
            while node is not None and not isinstance(node, (exp.Select, exp.From, exp.Join)):
                node = node.parent
            if isinstance(node, (exp.From, exp.Join)) and source.find_ancestor(exp.Select) is select:
                yield source


def _is_stored(source: exp.Expr) -> bool:
    return (
        isinstance(source, exp.Table)
        and isinstance(source.this, exp.Identifier)
        and not names_common_table(source)
    )
