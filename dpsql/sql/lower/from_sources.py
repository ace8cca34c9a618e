"""Bring the items of FROM into scope: tables and their samples, derived tables, UNNEST, and functions that return rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from dpsql.backends import scratch_database
from dpsql.errors import BackendError
from dpsql.plan import nodes
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import Values
from dpsql.plan.tables import Scan, Unit, UnitKind, UnnestedList
from dpsql.plan.types import Type, Value, find_common_type
from dpsql.policy import normalize_name, split_table_name
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.dotted_names import build_scan, resolve_schema, resolve_table
from dpsql.sql.lower.interval_ends import with_interval_columns
from dpsql.sql.lower.node_kinds import is_table_function, is_unnest
from dpsql.sql.lower.recursive_tables import lower_recursive_table
from dpsql.sql.lower.scope import NamedSource, Scope, to_named_source
from dpsql.sql.lower.statement_context import REPEATED, CommonTable, StatementContext
from dpsql.sql.parse.rejection import UNITS_SAMPLED, QueryText

# Lower `TABLESAMPLE UNITS (10%)`: the probability with which a unit is in the sample.


LEAST_RATE = Fraction(1, 10**6)
"""The least probability of a sample: a smaller one would leave almost no noise."""
_PERCENT = re.compile(r"(\d{1,3}(\.\d{0,12})?|\.\d{1,12})")
_IDS = (Type.INTEGER, Type.VARCHAR, Type.UUID)
"""The types whose ids each have one text."""
_WRITTEN = "write FROM t TABLESAMPLE UNITS (10%), or (10 PERCENT)"


def lower_sample(source: QueryText, node: exp.Expr, scan: Scan) -> Scan:
    """Return the scan of a table with the sample of a clause; a sample of all units leaves it unchanged.

    Raises QueryRejected with code "clause" for a sample of rows, with code "sample" for a sample of units that is not known
    to be private.
    """
    method, percent = source.take_arguments(node, "method", "percent", size=(node.args.get("size"),))
    if type(method) is not exp.Var or str(source.take_arguments(method, "this")[0]).upper() != "UNITS":
        source.refuse(percent or node, "clause", "rows cannot be sampled, only privacy units", UNITS_SAMPLED)
    if node.args.get("size") is not None:
        _refuse_sample(source, node, "a sample of units must be given as a percentage", _WRITTEN)
    rate = _parse_rate(source, node, percent)
    if scan.unit.kind is UnitKind.PUBLIC:
        _refuse_sample(
            source,
            node,
            f"{scan.table} is public, so it has no privacy units to sample",
            "leave out the sample",
        )
    if rate == 1:
        return scan
    if scan.unit.kind is UnitKind.ROW:
        _refuse_sample(
            source,
            node,
            f"the rows of {scan.table} have no ids by which units could be sampled",
            "leave out the sample; or let the policy name the column with the unit's id",
        )
    if _find_id_type(scan) not in _IDS:
        _refuse_sample(
            source,
            node,
            f"privacy units with ids of type {_find_id_type(scan)} cannot be sampled",
            "leave out the sample",
        )
    return replace(scan, sample=rate)


def _parse_rate(source: QueryText, node: exp.Expr, percent: exp.Expr | None) -> Fraction:
    text, is_string = (
        source.take_arguments(percent, "this", "is_string") if type(percent) is exp.Literal else ("", True)
    )
    if is_string or not _PERCENT.fullmatch(text):
        _refuse_sample(source, node, "the percentage of sampled units must be a constant", _WRITTEN)
    rate = Fraction(text) / 100
    if not LEAST_RATE <= rate <= 1:
        _refuse_sample(source, node, "a sample must have from 0.0001% to 100% of the units", _WRITTEN)
    return rate


def _find_id_type(scan: Scan) -> Type | None:
    """Find the type of the ids of a table's units."""
    while scan.unit.link is not None:
        scan = scan.unit.link.owner
    return None if scan.unit.column is None else scan.unit.column.type


def _refuse_sample(source: QueryText, node: exp.Expr, rule: str, hint: str) -> NoReturn:
    source.refuse(node, "sample", rule, hint)


# Lower `range`, `generate_series` and UNNEST of constants to public rows.


MOST_ROWS = 10_000
"""The most rows of a table that a statement lists or generates."""


def lower_table_function(context: StatementContext, node: exp.Expr, alias: str) -> Values:
    """Return the rows of such a call, with their one column. Raises QueryRejected.

    Claim: their rows are public, and the same on neighboring databases.
    Why: their arguments are constants of the statement; an engine without data computes them during planning, and the emitted SQL
    holds the values.
    Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
    """
    if type(node) is exp.Unnest:
        (items, _) = context.source.take_arguments(node, "expressions", "alias")
        return lower_unnested_constants(context, node, items, alias)
    called, _ = context.source.take_arguments(node, "this", "alias")
    name, arguments = context.source.take_arguments(called, "this", "expressions")
    kind, found = _compute_series(context, node, normalize_name(str(name)), arguments or ())
    return _build_values(alias, normalize_name(str(name)), kind, found)


def lower_unnested_constants(
    context: StatementContext, node: exp.Expr, items: Sequence[exp.Expr], alias: str
) -> Values:
    """Return the values of a constant list as rows."""
    if len(items) != 1 or type(items[0]) is not exp.Array:
        context.source.refuse(
            node, "constant", "UNNEST takes a list of constants here", "write FROM UNNEST([1, 2]) AS t(x)"
        )
    (parts,) = context.source.take_arguments(items[0], "expressions", value_constructor=(False,))
    scalars = Scope(context).scalars
    values = [fold_constant(context.source, part, scalars.lower(part)) for part in parts]
    if not values or not all(isinstance(value, Literal) for value in values):
        context.source.refuse(
            node, "constant", "UNNEST takes a list of constants here", "write UNNEST([1, 2])"
        )
    kind = find_common_type(tuple(value.type for value in values))
    if kind is None:
        context.source.refuse(node, "type", "all values of a list must have one type")
    return _build_values(
        alias, "unnest", kind, [value.value for value in values if isinstance(value, Literal)]
    )


def _compute_series(
    context: StatementContext, node: exp.Expr, name: str, items: Sequence[exp.Expr]
) -> tuple[Type, list[Value]]:
    """Compute the values of `range` or `generate_series`: whole numbers, or timestamps at a distance."""
    scalars = Scope(context).scalars
    step = scalars.find_span(items[2]) if len(items) > len(("start", "stop")) else None
    plain = items if step is None else items[:2]
    ends = [fold_constant(context.source, item, scalars.lower(item)) for item in plain]
    if not 1 <= len(items) <= len(("start", "stop", "step")) or not all(
        isinstance(end, Literal) and end.value is not None for end in ends
    ):
        _refuse_series(context, node, name)
    if step is None and all(end.type is Type.INTEGER for end in ends):
        written = [DUCKDB_COMPILER.emit_expression(end) for end in ends]
    elif step is not None and all(end.type.temporal for end in ends):
        count, unit = step
        many = fold_constant(context.source, node, count)
        if not isinstance(many, Literal) or type(many.value) is not int:
            _refuse_series(context, node, name)
        moments: list[Expr] = [build_function_call("cast_timestamp", end) or end for end in ends]
        written = [
            *map(DUCKDB_COMPILER.emit_expression, moments),
            f"INTERVAL ({DUCKDB_COMPILER.emit_constant(many.value)}) {unit.upper()}",
        ]
    else:
        _refuse_series(context, node, name)
    try:
        found = [
            row[0]
            for row in scratch_database.query_constant_rows(
                f"SELECT * FROM {name}({', '.join(written)}) LIMIT {MOST_ROWS + 1}"
            )
        ]
    except BackendError:
        _refuse_series(context, node, name)
    if len(found) > MOST_ROWS:
        context.source.refuse(node, "too_long", f"{name.upper()} makes at most {MOST_ROWS:,} rows")
    return Type.INTEGER if step is None else Type.TIMESTAMP, found


def _build_values(alias: str, name: str, kind: Type, values: Sequence[Value]) -> Values:
    facts = ColumnInfo(kind, "", nullable=None in values)
    return Values(tuple((value,) for value in values), alias, (Column(alias, name, facts),))


def _refuse_series(context: StatementContext, node: exp.Expr, name: str) -> NoReturn:
    context.source.refuse(
        node,
        "constant",
        f"{name} takes constants",
        f"write {name}(0, 10), or {name}(DATE '2026-01-01', DATE '2026-02-01', INTERVAL 1 DAY)",
    )


# Bring the items of FROM into scope: declared tables, common table expressions, derived tables, a single row without FROM.


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
        source = (
            context.lower_derived_query(inner, common.query, known_as, common.names)
            if common.recursive_name is None
            else lower_recursive_table(inner, common, common.recursive_name, known_as)
        )
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


# Lower UNNEST of a table's list: the table's scan reads a row for each element.


def add_unnested_elements(scope: Scope, node: exp.Expr, *, outer: bool = False) -> bool:
    """Bring the elements of a list of a table in scope into it; False where UNNEST is of something else.

    Rows without elements are left out, except in an `outer` join, LEFT JOIN UNNEST.

    Claim: each row of a unit becomes at most `max_elements` rows of that unit.
    Why: the scan itself repeats its rows, so that each has the unit of its table; the bound of rows is multiplied.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 5.
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
