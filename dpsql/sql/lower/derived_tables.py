"""Lower derived tables, common table expressions and set operations to named sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.analysis.domains import derive_domain, derive_listed_values, is_nullable
from dpsql.analysis.intervals import derive_interval, derive_known_intervals, derive_released_interval
from dpsql.analysis.number_types import (
    MOST_DIGITS,
    are_floats,
    derive_bits,
    find_decimal_digits,
    find_scale,
    is_float,
    is_inexact,
)
from dpsql.analysis.unit_identity import find_compared_identity, find_identity
from dpsql.plan.expressions import Column, ColumnInfo, Expr, LinkKey, Literal, compute_expression_size
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import (
    OuterQuery,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetKind,
    SetOperation,
    Source,
    Values,
    get_unit_type,
    has_public_subquery,
    is_private,
    iterate_sources,
    list_private_scans,
)
from dpsql.plan.tables import Scan, UnitKind
from dpsql.plan.types import Type, Value, find_common_type
from dpsql.policy import normalize_name
from dpsql.sql.lower.constants import fold_constant
from dpsql.sql.lower.function_calls import are_widened, is_widened
from dpsql.sql.lower.node_kinds import is_unnest
from dpsql.sql.lower.number_types import round_to_decimal
from dpsql.sql.lower.recursive_tables import names_table
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.star_expansion import apply_star_modifiers
from dpsql.sql.lower.statement_context import NEW, CommonTable, StatementContext
from dpsql.sql.parse.own_calls import find_interval_end

_SETS: dict[type[exp.Expr], tuple[SetKind, SetKind | None]] = {
    exp.Union: (SetKind.UNION, SetKind.UNION_ALL),
    exp.Intersect: (SetKind.INTERSECT, None),
    exp.Except: (SetKind.EXCEPT, None),
}
_COUNTED_SETS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Intersect: (
        "INTERSECT ALL is not supported: it repeats a row as often as both sides have it, where INTERSECT has it once",
        (
            "compare the counts: SELECT k, LEAST(a.n, b.n) AS n FROM (SELECT k, COUNT(*) AS n FROM … GROUP BY k) AS a "
            "JOIN (SELECT k, COUNT(*) AS n FROM … GROUP BY k) AS b USING (k)"
        ),
    ),
    exp.Except: (
        (
            "EXCEPT ALL is not supported: it repeats a row as often as the left side has it more often than the right one, "
            "where EXCEPT has it once or not at all"
        ),
        (
            "subtract the counts: SELECT k, GREATEST(a.n - COALESCE(b.n, 0), 0) AS n FROM (SELECT k, COUNT(*) AS n FROM … "
            "GROUP BY k) AS a LEFT JOIN (SELECT k, COUNT(*) AS n FROM … GROUP BY k) AS b USING (k)"
        ),
    ),
}
"""Set operations that count equal rows, with what each means and what to write instead."""
MAX_CHAIN = 40
"""The most set operations in one chain that is combined from left to right: each is a level of the plan."""
MAX_UNION_ALL = 256
"""The most queries in one chain of UNION ALL alone: beyond `MAX_CHAIN` operations it is combined by halves."""
_PLAIN = frozenset({"expressions", "from_", "joins", "where"})


def is_plain_select(query: exp.Select) -> bool:
    """Return whether a SELECT has one row for each row of its FROM and WHERE."""
    clauses = {name for name, value in query.args.items() if value}
    return clauses <= _PLAIN and not any(
        isinstance(part, (exp.AggFunc, exp.Window)) or is_unnest(part)
        for item in query.expressions
        for part in item.walk()
    )


def derive_column_info(expr: Expr, relation: Relation) -> ColumnInfo:
    """Derive the facts of a column that holds `expr` for the rows of `relation`."""
    known = derive_known_intervals(relation)
    values = derive_domain(expr, known, derive_listed_values(relation))
    return ColumnInfo(
        expr.type,
        "",
        derive_interval(expr, known),
        None if values is None else tuple(value for value in values if value is not None),
        is_nullable(expr) if values is None else None in values,
        find_compared_identity(expr, relation),
        find_scale(expr),
        _derive_link_keys(expr, relation),
        decimal=find_decimal_digits(expr),
        inexact=is_inexact(expr),
        widened=is_widened(expr),
        size=0
        if has_public_subquery(relation) and not is_private(relation)
        else compute_expression_size(expr),
        float32=is_float(expr),
        bits=derive_bits(expr),
    )


def _derive_link_keys(expr: Expr, relation: Relation) -> frozenset[LinkKey]:
    """Derive the parts of declared keys that a column of a derived table is.

    With several private sources, two columns could be parts of one key in different rows; a key of one column has no parts.
    """
    alone = sum(map(is_private, iterate_sources(relation))) == 1
    held = expr.facts.link_keys if isinstance(expr, Column) else frozenset()
    return frozenset(part for part in held if alone or len(part[1]) == 1)


def lower_select_item(scope: Scope, node: exp.Expr, scalars: Scalars | None = None) -> list[tuple[str, Expr]]:
    """Return the columns that a SELECT item means; `scalars` lowers them, else the scope does."""
    lower = (scope.scalars if scalars is None else scalars).lower
    if type(node) is exp.Star or (type(node) is exp.Column and type(node.this) is exp.Star):
        star, table = (
            (node, None) if type(node) is exp.Star else scope.source.take_arguments(node, "this", "table")
        )
        owner = None if table is None else str(scope.source.take_arguments(table, "this", quoted=(True,))[0])
        every = [(scope.get_column_name(column), column) for column in scope.list_columns(node, owner)]
        return apply_star_modifiers(scope.source, star, every, lower)
    name = None
    if type(node) is exp.Alias:
        node, identifier = scope.source.take_arguments(node, "this", "alias")
        name = str(scope.source.take_arguments(identifier, "this", quoted=(True,))[0])
    expr = lower(node)
    if name is None:
        name = (
            get_declared_name(node, expr)
            if isinstance(expr, Column)
            and not (type(node) is exp.Subquery or is_unnest(node))
            and find_interval_end(node) is None
            else node.sql(dialect="duckdb", comments=False)[:200]
        )
    return [(name, expr)]


def get_declared_name(node: exp.Expr, column: Column) -> str:
    """Return a column as it was declared; of two that a FULL JOIN has under one name, as the query has it."""
    name = str(node.this.this) if type(node) is exp.Column else column.name
    return column.name if normalize_name(name) == normalize_name(column.name) else name


def with_common_tables(context: StatementContext, select: exp.Expr) -> StatementContext:
    """Return the context with the common table expressions of a WITH clause.

    Claim: a name without a schema means the last common table expression of that name which ends before it, else the declared table.
    Why: the query of each sees the earlier ones alone, so that in its own query its name still means the declared table, or the
    table of the statement around it. A name with a schema always means the declared table.
    Source: DuckDB's documentation, "WITH clause"; ISO/IEC 9075-2, <with clause>.
    """
    clause = select.args.get("with_")
    if clause is None:
        return context
    expressions, recursive = context.source.take_arguments(clause, "expressions", "recursive")
    known = dict(context.common_tables)
    here: set[str] = set()
    later = [normalize_name(node.alias) for node in expressions]
    for node in expressions:
        query, alias = context.source.take_arguments(node, "this", "alias", materialized=(True, False))
        identifier, columns = context.source.take_arguments(alias, "this", "columns")
        name = str(context.source.take_arguments(identifier, "this", quoted=(True,))[0])
        context.check_name(node, name)
        if normalize_name(name) in here:
            context.source.refuse(node, "ambiguous", f"WITH defines {name} twice", "choose another name")
        here.add(normalize_name(name))
        names = [
            str(context.source.take_arguments(column, "this", quoted=(True,))[0]) for column in columns or ()
        ]
        del later[0]
        if recursive and names_table(query, frozenset(later)):
            context.source.refuse(
                node,
                "ambiguous",
                f"{name} names a table that WITH RECURSIVE defines after it",
                "put each query before those that read it",
            )
        own = normalize_name(name)
        reads_itself = bool(recursive) and names_table(query, frozenset((own,)))
        known[own] = CommonTable(query, names, dict(known), recursive_name=own if reads_itself else None)
    return replace(context, common_tables=known)


def lower_set_operation(context: StatementContext, node: exp.Expr, alias: str) -> SetOperation:
    """Lower UNION, UNION ALL, INTERSECT and EXCEPT of two or more queries, by position.

    A chain of them, `a UNION ALL b UNION ALL c`, is processed from left to right, so that its depth is the depth of its
    deepest part.
    """
    chain = _list_chained_operations(context, node)
    inner = context.enter_subquery(node, context.common_tables, context.enclosing_scope)
    kinds = {_get_set_kind(context, operation) for operation in chain}
    if kinds == {SetKind.UNION_ALL} and len(chain) > MAX_CHAIN:
        return _lower_long_union_all(context, inner, chain[::-1], alias)
    _check_chain(context, node, len(chain), MAX_CHAIN, "UNION, INTERSECT and EXCEPT")
    below = [context.allocate_alias(operation.this) for operation in chain]
    found = inner.lower_derived_query(inner, chain[-1].this, below[-1], ())
    for place in range(len(chain) - 1, -1, -1):
        operation = chain[place]
        right = inner.lower_derived_query(
            inner, operation.expression, context.allocate_alias(operation.expression), ()
        )
        above = below[place - 1] if place else alias
        found = combine_set_operation(
            context, operation, _get_set_kind(context, operation), found, right, alias=above
        )
    if not isinstance(found, SetOperation):
        raise TypeError("a chain must have an operation")
    return found


def _lower_long_union_all(
    context: StatementContext, inner: StatementContext, chain: Sequence[exp.Expr], alias: str
) -> SetOperation:
    """Combine a chain of UNION ALL, the first operation first, by halves, so that the plan has few levels.

    Claim: the result has the same rows, units and order of queries as the chain from left to right.
    Why: UNION ALL is associative, and the halves keep the order of the queries.
    Source: none but the definition.
    """
    _check_chain(context, chain[-1], len(chain), MAX_UNION_ALL - 1, "UNION ALL")
    queries = [chain[0].this, *(operation.expression for operation in chain)]
    sources = [_lower_part(context, inner, query) for query in queries]

    def combine(first: int, end: int, name: str) -> Source:
        if end - first == 1:
            return sources[first]
        middle = (first + end + 1) // 2
        operation = chain[middle - 1]
        left = combine(first, middle, _allocate_free_alias(context, operation))
        right = combine(middle, end, _allocate_free_alias(context, operation))
        return combine_set_operation(context, operation, SetKind.UNION_ALL, left, right, alias=name)

    found = combine(0, len(sources), alias)
    if not isinstance(found, SetOperation):
        raise TypeError("a chain has an operation")
    return found


def _lower_part(context: StatementContext, inner: StatementContext, query: exp.Expr) -> Source:
    """Return one query of a long chain, which counts as its tables and subqueries; as one where it has none."""
    alias, before = _allocate_free_alias(context, query), context.source_counter.cost
    source = inner.lower_derived_query(inner, query, alias, ())
    if context.source_counter.cost == before:
        context.count_sources(query, 1, NEW)
    return source


def _allocate_free_alias(context: StatementContext, node: exp.Expr) -> str:
    """Return a name for a level that is no table or subquery of its own."""
    return f"#{context.count_sources(node, 1, 0)}"


def _check_chain(context: StatementContext, node: exp.Expr, operations: int, limit: int, words: str) -> None:
    """Refuse a chain of more set operations than the limit."""
    if operations > limit:
        context.source.refuse(
            node,
            "too_long",
            f"a chain of {words} may have at most {limit + 1} queries, and this one has {operations + 1}",
            "put each half of the chain in parentheses: (a UNION b) UNION (c UNION d)"
            if limit == MAX_CHAIN
            else "split the query",
        )


def _list_chained_operations(context: StatementContext, node: exp.Expr) -> list[exp.Expr]:
    """List a set operation, and those on its left within it, that have no clauses of their own."""
    found = [node]
    while isinstance(found[-1].this, exp.SetOperation):
        left = found[-1].this
        if any(left.args.get(name) for name in ("with_", "order", "limit", "offset")):
            break
        context.source.take_arguments(left, "this", "expression", "distinct")
        found.append(left)
    return found


def _get_set_kind(context: StatementContext, node: exp.Expr) -> SetKind:
    distinct, all_ = _SETS[type(node)]
    (is_distinct, *_) = context.source.take_arguments(
        node, "distinct", "this", "expression", "with_", "order", "limit", "offset"
    )
    kind = distinct if is_distinct else all_
    if kind is None:
        context.source.refuse(
            node,
            "clause",
            *_COUNTED_SETS[type(node)],
        )
    return kind


def combine_set_operation(
    context: StatementContext, node: exp.Expr, kind: SetKind, left: Source, right: Source, *, alias: str
) -> SetOperation:
    """Return two sources by position; `node` is where they stand."""
    if isinstance(left, Scan) or isinstance(right, Scan):
        raise TypeError("a query cannot be a table")
    if len(left.columns) != len(right.columns):
        context.source.refuse(
            node,
            "set_operation",
            f"both sides of a set operation must have the same number of columns: {len(left.columns)} "
            f"on the left, {len(right.columns)} on the right",
        )
    if is_private(left) != is_private(right):
        context.source.refuse(
            node,
            "set_operation",
            "a set operation cannot combine private rows with public rows, which belong to no privacy unit",
            "aggregate each side, as SELECT COUNT(*) FROM a UNION ALL SELECT COUNT(*) FROM b; or join the public table",
        )
    columns = []
    for index, (ours, theirs) in enumerate(zip(left.columns, right.columns, strict=True)):
        shared = find_common_type((ours.type, theirs.type))
        if shared is None:
            context.source.refuse(
                node, "type", f"column {index + 1} is {ours.type} on the left, {theirs.type} on the right"
            )
        facts = _merge_column_info(ours.facts, theirs.facts, replace(ours.facts, type=shared))
        digits = find_scale(ours), find_scale(theirs)
        facts = replace(facts, scale=None if None in digits else max(found or 0 for found in digits))
        decimals = find_decimal_digits(ours), find_decimal_digits(theirs)
        facts = replace(
            facts,
            decimal=None
            if None in digits or decimals == (None, None)
            else _combine_decimal_digits(*decimals),
        )
        # A condition on the column is put on both sides.
        facts = replace(
            facts,
            inexact=is_inexact(ours) or is_inexact(theirs),
            widened=are_widened((ours, theirs)),
            size=compute_expression_size(ours) + compute_expression_size(theirs),
            float32=are_floats((ours, theirs)),
            bits=max(derive_bits(ours), derive_bits(theirs)),
        )
        columns.append(Column(alias, ours.name, facts))
    if kind is not SetKind.UNION_ALL:
        left, right = _drop_distinct(left), _drop_distinct(right)
    _check_row_units(context, node, left, right)
    operation = SetOperation(left, right, alias, kind, tuple(columns))
    if kind is not SetKind.UNION_ALL and is_private(left):
        operation = replace(operation, once=not is_identified(context, node, operation))
    if is_private(left):
        _check_unit_types(context, node, operation)
    return operation


def _combine_decimal_digits(*digits: tuple[int, int] | None) -> tuple[int, int]:
    """Return the digits of a DECIMAL that holds these and whole numbers."""
    if None not in digits and len(set(digits)) == 1 and digits[0] is not None:
        return digits[0]
    return MOST_DIGITS, max(found[1] for found in digits if found is not None)


def _drop_distinct(source: Source) -> Source:
    """Drop DISTINCT from a side of a set operation that makes rows distinct itself."""
    if isinstance(source, Project) and source.once:
        return replace(source, once=False)
    sides = (source.left, source.right) if isinstance(source, SetOperation) else ()
    compared = any(isinstance(side, SetOperation) and side.once for side in sides)
    if isinstance(source, SetOperation) and source.once and source.kind is SetKind.UNION and not compared:
        return replace(source, once=False, kind=SetKind.UNION_ALL)
    return source


def _merge_column_info(ours: ColumnInfo, theirs: ColumnInfo, facts: ColumnInfo) -> ColumnInfo:
    if Type.NULL in (ours.type, theirs.type):
        known = theirs if ours.type is Type.NULL else ours
        return replace(
            known, type=facts.type, engine_type="", nullable=True, identity=None, link_keys=frozenset()
        )
    domain = None
    if ours.type is not theirs.type and facts.type.temporal:
        facts = replace(facts, interval=ANYWHERE)  # days and timestamps have different positions
    else:
        facts = replace(facts, interval=ours.interval.compute_hull(theirs.interval))
    if ours.domain is not None and theirs.domain is not None and ours.type is theirs.type:
        domain = tuple(dict.fromkeys((*ours.domain, *theirs.domain)))
    return replace(
        facts,
        domain=domain,
        nullable=ours.nullable or theirs.nullable,
        identity=ours.identity if ours.identity == theirs.identity else None,
        link_keys=ours.link_keys & theirs.link_keys,
    )


def is_identified(context: StatementContext, node: exp.Expr, source: Project | SetOperation) -> bool:
    """Return whether distinct private rows identify their units; otherwise they can only be counted."""
    found = any(find_identity(column, source) is not None for column in source.columns)
    context.distinct_nodes.extend([] if found else [node])
    return found


def _check_row_units(context: StatementContext, node: exp.Expr, left: Source, right: Source) -> None:
    """Refuse to read twice a table whose rows are units, and to combine it with one whose units have ids.

    Claim: each unit has its rows on one side only, and is charged to the account of its table.
    Why: a row that is a unit is in one table, and that table is read once. Both tables are charged in full, as each has units
    of its own.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (disjoint sets of units), for the rows of each table.
    """
    scans = (*list_private_scans(left), *list_private_scans(right))
    tables, kinds = {scan.table for scan in scans}, {scan.unit.kind for scan in scans}
    if UnitKind.ROW not in kinds:
        return
    if len(kinds) > 1:
        context.source.refuse(
            node,
            "set_operation",
            "a set operation cannot combine a table where each row is a privacy unit with a table "
            "whose units have ids",
            "aggregate each table: SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM a UNION ALL SELECT COUNT(*) FROM b)",
        )
    if len(tables) < len(scans):
        context.source.refuse(
            node,
            "set_operation",
            "a query may read a table only once where each row is a privacy unit",
            "aggregate each side: SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM a UNION ALL SELECT COUNT(*) FROM a WHERE x > 0)",
        )


def _check_unit_types(context: StatementContext, node: exp.Expr, operation: SetOperation) -> None:
    left, right = get_unit_type(operation.left), get_unit_type(operation.right)
    if left is not right:
        context.source.refuse(
            node,
            "set_operation",
            f"the ids of privacy units are {left} on the left and {right} on the right",
            "the data owner can give both tables ids of one type",
        )


def lower_values(context: StatementContext, node: exp.Values, alias: str) -> Values:
    """Lower VALUES (…), (…) to a public table of constants."""
    (tuples, _) = context.source.take_arguments(node, "expressions", "alias")
    lowered = Scope(context).scalars
    rows = []
    for part in tuples:
        (items,) = context.source.take_arguments(part, "expressions")
        row = [fold_constant(context.source, item, lowered.lower(item)) for item in items]
        if not all(isinstance(item, Literal) for item in row):
            context.source.refuse(part, "constant", "VALUES may only list constants")
        rows.append([item for item in row if isinstance(item, Literal)])
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        context.source.refuse(
            node, "set_operation", "all rows of VALUES must have the same number of columns"
        )
    columns = []
    for index in range(width):
        kind = find_common_type(tuple(row[index].type for row in rows))
        if kind is None:
            context.source.refuse(node, "type", f"column {index + 1} of VALUES has values of different types")
        columns.append(Column(alias, f"col{index}", ColumnInfo(kind, "")))
    return Values(tuple(tuple(item.value for item in row) for row in rows), alias, tuple(columns))


def to_public_subquery(outer: OuterQuery, alias: str) -> PublicSubquery:
    """Return the released or public rows of a query as a source."""
    names = make_unique_names([output.name for output in outer.outputs])
    columns = [
        Column(
            alias,
            name,
            ColumnInfo(
                output.expr.type,
                "",
                *_derive_public_values(output.expr, outer),
                scale=find_scale(output.expr),
                decimal=find_decimal_digits(output.expr),
                inexact=is_inexact(output.expr),
                float32=is_float(output.expr),
            ),
        )
        for name, output in zip(names, outer.outputs, strict=True)
    ]
    return PublicSubquery(outer, alias, tuple(columns))


def _derive_public_values(expr: Expr, outer: OuterQuery) -> tuple[Interval, tuple[Value, ...] | None]:
    """Derive the public facts of a released expression before its release: for columns, their domain."""
    if isinstance(expr, Column):
        return expr.facts.interval, expr.facts.domain
    if expr.type is not Type.INTEGER:
        return ANYWHERE, None
    release = outer.source if isinstance(outer.source, Release) else None
    return (derive_interval(expr) if release is None else derive_released_interval(expr, release)), None


def make_unique_names(names: Sequence[str]) -> list[str]:
    """Build unique column names: a repeated name gets a number."""
    found: dict[str, str] = {}
    for name in names:
        unique, number = name, 0
        while normalize_name(unique) in found:
            number += 1
            unique = f"{name}_{number}"
        found[normalize_name(unique)] = unique
    return list(found.values())


def build_projection(
    relation: Relation, alias: str, items: Sequence[tuple[str, Expr]], *, distinct: bool = False
) -> Project:
    """Build the derived table with these columns."""
    names = make_unique_names([name for name, _ in items])
    exprs = tuple(round_to_decimal(expr) if distinct else expr for _, expr in items)
    columns = (
        Column(alias, name, derive_column_info(expr, relation))
        for name, expr in zip(names, exprs, strict=True)
    )
    return Project(relation, alias, exprs, tuple(columns), distinct)
