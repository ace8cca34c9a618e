"""Lower subqueries with a value for each row around them: one aggregate, EXISTS and IN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.nullability import is_never_null
from dpsql.backends import scratch_database
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    ReleasedColumn,
    Scalar,
    iterate_columns,
    replace_parts,
    walk,
)
from dpsql.plan.nodes import (
    JoinKind,
    OuterQuery,
    Output,
    Project,
    PublicSubquery,
    Relation,
    Release,
    is_private,
    list_private_scans,
)
from dpsql.plan.tables import UnitKind
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.aggregates.count import build_row_text
from dpsql.sql.lower.constants import to_literal
from dpsql.sql.lower.derived_tables import (
    build_projection,
    is_plain_select,
    lower_select_item,
    to_public_subquery,
)
from dpsql.sql.lower.grouping import Grouping, lower_outputs
from dpsql.sql.lower.joins import FromItem, covers_declared_link, has_same_identity
from dpsql.sql.lower.node_kinds import has_aggregate, is_quantified
from dpsql.sql.lower.per_unit_selects import DerivedGroupBy, is_unit_key
from dpsql.sql.lower.quantified_comparisons import lower_quantified_comparison
from dpsql.sql.lower.scope import NamedSource, Scope, lower_uncorrelated_subquery
from dpsql.sql.lower.semi_joins import (
    check_order,
    check_width,
    list_row_values,
    remove_irrelevant_clauses,
    split_where,
)
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.unit_checks import suggest_unit_comparison

# Lower correlated scalar subqueries: grouped by their correlation keys, and joined to the outer rows.


Pair = tuple[Expr, Expr]
"""An expression over the outer rows, and the equal one over the subquery's rows."""


@dataclass(slots=True)
class OuterValues:
    """The pairs of a subquery with its outer scope; other conditions read a table of outer values.

    `EXISTS (SELECT … FROM s WHERE s.unit = t.unit AND s.day > t.day)` selects the distinct pairs of a unit and a day in t that are
    joined to a row of s with an equal unit and a later day. The pairs are grouped, and the outer rows are joined to their group by
    equality of the unit and of a text made from the other values.

    Claim: the table has at most as many rows of a unit as the outer table, each outer row is joined to at most one group of it, and
    that group consists of rows of the same unit and of public rows.
    Why: distinct rows are per unit; the rows are joined on all keys of the groups. Private rows are refused here if no equality
    compares the ids of units, and the emitted SQL also joins private rows on equal units.
    Source: Neumann, Kemper 2015, "Unnesting arbitrary queries", section 3.1 (the join with the distinct outer values); McSherry
    2009, "Privacy integrated queries", section 3.2 (joins and GroupBy within a unit).
    """

    scope: Scope
    inner: Scope
    query: exp.Select
    pairs: list[Pair] = field(default_factory=list)

    def build_outer_table(self, across: Sequence[Expr]) -> tuple[list[FromItem], list[Expr]]:
        """Build the table of outer values as an item of FROM, and the conditions on it; nothing where all are equalities."""
        here = {named.alias for named in self.inner.tables.values()}
        found = [(part, match_equality(part, here)) for part in across]
        self.pairs = [equal for _, equal in found if equal is not None]
        others = [part for part, equal in found if equal is None]
        if not others:
            return [], []
        holder = self._require_single_table(here, others)
        read = list(
            dict.fromkeys(
                column for part in others for column in iterate_columns(part) if column.source not in here
            )
        )
        keys = self._list_join_keys(holder)
        text = build_row_text(self.scope.scalars, self.query, read)
        items = [(f"k{place}", key) for place, key in enumerate(keys)] + [("row", text)]
        items += [(f"v{place}", column) for place, column in enumerate(read)]
        alias = self.inner.context.allocate_alias(self.query)
        source = build_projection(holder.relation, alias, items, distinct=True)
        self.inner.tables[normalize_name(alias)] = NamedSource(source, {})
        named, values = source.columns[: len(keys)], source.columns[len(keys) + 1 :]
        call = self.inner.scalars.build_call
        equalities = [
            call(self.query, "eq", theirs, named[keys.index(ours)])
            for ours, theirs in self.pairs
            if ours in keys
        ]
        inside: dict[Expr, Expr] = dict(zip(read, values, strict=True))
        compared = [replace_parts(part, inside) for part in others]
        self.pairs = [pair for pair in self.pairs if pair[0] not in keys]
        self.pairs += [*zip(keys, named, strict=True), (text, source.columns[len(keys)])]
        return [FromItem(normalize_name(alias), JoinKind.INNER, (), self.query)], [*equalities, *compared]

    def _list_join_keys(self, holder: NamedSource) -> list[Expr]:
        """List the further join keys of the outer values: equal expressions of their table, and its unit."""
        keys = list(
            dict.fromkeys(ours for ours, _ in self.pairs if _collect_source_names(ours) == {holder.alias})
        )
        if is_private(holder.relation) and not covers_declared_link(self.pairs):
            units = [column for column in holder.columns.values() if column.facts.is_unit]
            keys += [column for column in units[:1] if column not in keys]
        return keys

    def _require_single_table(self, here: set[str], others: Sequence[Expr]) -> NamedSource:
        """Return the one outer table whose columns the conditions read."""
        names = {name for part in others for name in _collect_source_names(part)} - here
        holders = [named for named in self.scope.tables.values() if named.alias in names]
        if len(names) != 1 or len(holders) != 1:
            self._refuse_subquery(
                "besides equalities, a scalar subquery may compare with columns of only one table of the "
                "outer query",
                "write inner.a = outer.a; or put the compared columns into one derived table: FROM "
                "(SELECT a.x, b.y FROM a JOIN b ON …) AS t",
            )
        (holder,) = holders
        private = [is_private(named.relation) for named in self.inner.tables.values()]
        alike = covers_declared_link(self.pairs) or any(
            isinstance(theirs, Column) and has_same_identity(ours, theirs) for ours, theirs in self.pairs
        )
        if any(private) and alike and not is_private(holder.relation):
            self._refuse_subquery(
                "a scalar subquery over private rows may only compare with columns of one private table",
                "put the compared columns into one derived table: FROM (SELECT a.unit, b.x FROM a JOIN b "
                "ON …) AS t",
            )
        if any(private) and not alike:
            self._refuse_subquery(
                "a subquery over private rows must be correlated on the privacy unit, so that no other "
                "unit's rows decide",
                suggest_unit_comparison(self.scope, self.query),
                "private_join",
            )
        if is_private(holder.relation) and not (
            alike or any(c.facts.is_unit for c in holder.columns.values())
        ):
            self._refuse_subquery(
                "the subquery compares with a table without the column of the privacy unit",
                "select that column with the compared ones: FROM (SELECT unit, x FROM …) AS t",
                "private_join",
            )
        rows = any(scan.unit.kind is UnitKind.ROW for scan in list_private_scans(holder.relation))
        matched = any(isinstance(ours, Column) and ours.source == holder.alias for ours, _ in self.pairs)
        if rows or (normalize_name(holder.alias) in self.scope.nullable and not matched):
            self._refuse_subquery(
                "a scalar subquery may only use equalities where each row is a privacy unit"
                if rows
                else (
                    "a scalar subquery cannot compare with the right side of a LEFT JOIN, where rows may be "
                    "missing"
                ),
                "use EXISTS (…) as a whole condition of WHERE, where any comparison is allowed",
            )
        return holder

    def _refuse_subquery(self, message: str, hint: str, code: str = "subquery") -> NoReturn:
        self.scope.source.refuse(self.query, code, message, hint)


def match_equality(part: Expr, here: set[str]) -> Pair | None:
    """Return (outer expression, inner expression) of an equality between both; None for any other condition."""
    if isinstance(part, Call) and part.function.name == "eq":
        for ours, theirs in (part.arguments, part.arguments[::-1]):
            inside, outside = _collect_source_names(theirs), _collect_source_names(ours)
            if inside and inside <= here and outside and not outside & here:
                return ours, theirs
    return None


def _collect_source_names(expr: Expr) -> set[str]:
    return {column.source for column in iterate_columns(expr)}


ReleaseLowering = Callable[[Scope, exp.Select, Relation, Sequence[Expr]], OuterQuery]
_PLAIN = frozenset({"expressions", "from_", "joins", "where", "kind"})


def lower_correlated_subquery(
    scope: Scope, query: exp.Select, release: ReleaseLowering, compared: Sequence[tuple[Expr, exp.Expr]] = ()
) -> Expr | None:
    """Return the value of a subquery for each row of the outer scope; None if it does not depend on these.

    `release` plans the release of private rows by given keys. `compared` are further pairs of an expression over the outer
    rows and one over the subquery's rows that are equal. Raises QueryRejected for a subquery that must not depend on the
    outer rows in this way.

    `x > (SELECT AVG(y) FROM s WHERE s.a = t.a)` means the averages of s by a, joined on a. For public rows they are exact. For
    private rows they are per-unit groups if a identifies the unit, and a release otherwise.
    """
    inner = Scope(
        scope.context.enter_subquery(query, scope.context.common_tables, scope.context.enclosing_scope),
        outer=scope,
    )
    if any(query.args.get(name) for name in ("group", "having", "with_")):
        return None
    values = OuterValues(scope, inner, query)
    relation, across = split_where(inner, query, joining=values.build_outer_table)
    if not across and not compared:
        return None
    if {name for name, value in query.args.items() if value} - _PLAIN or scope.pending_joins is None:
        scope.source.refuse(
            query,
            "subquery",
            "a correlated subquery must be one aggregate with WHERE, in SELECT or WHERE",
            "move conditions from ON to WHERE, or join a derived table that has GROUP BY",
        )
    _require_aggregate_without_window(scope, query)
    pairs = [*values.pairs]
    pairs += [(ours, _lower_inner_expression(inner, theirs)) for ours, theirs in compared]
    keys = list(dict.fromkeys(key for _, key in pairs))
    alias = scope.context.allocate_alias(query)
    source, empty, alone = _build_group_source(
        inner, query, relation, keys, pairs, alias=alias, release=release
    )
    on = (scope.scalars.build_call(query, "eq", ours, source.columns[keys.index(key)]) for ours, key in pairs)
    scope.tables[alias] = NamedSource(source, {})
    scope.pending_joins.append(FromItem(alias, JoinKind.LEFT, tuple(on), query))
    value, key = source.columns[-1], _make_nullable(source.columns[0])
    if isinstance(empty, Literal) and empty.value is None:
        return _make_nullable(value)
    if alone:
        return scope.scalars.build_call(query, "coalesce", _make_nullable(value), empty)
    # An outer row has a group if and only if it is joined on a key, which is not NULL then.
    missing = scope.scalars.build_call(query, "is_null", key)
    return scope.scalars.build_call(query, "case", missing, empty, value)


def _require_aggregate_without_window(scope: Scope, query: exp.Select) -> None:
    """Refuse a correlated subquery whose value is not an aggregate, or has a window."""
    if not any(map(has_aggregate, query.expressions)):
        scope.source.refuse(
            query,
            "subquery",
            "a correlated subquery must aggregate",
            "write MIN(x), or join the table",
        )
    if any(item.find(exp.Window) for item in query.expressions):
        scope.source.refuse(
            query,
            "subquery",
            "a window function is not allowed in a correlated subquery: it would read the rows of "
            "all outer rows",
            "compute the window in a derived table, and join that table",
        )


def _lower_inner_expression(inner: Scope, node: exp.Expr) -> Expr:
    """Lower an expression over the subquery's own rows."""
    found = inner.scalars.lower(node)
    here = {named.alias for named in inner.tables.values()}
    outside = [column for column in iterate_columns(found) if column.source not in here]
    if outside:
        inner.source.refuse(
            node,
            "subquery",
            f"{format_expression(outside[0])} belongs to the outer query, and this subquery may only "
            "name its own columns",
            "move the comparison out of IN: x = y AND EXISTS (SELECT … WHERE …) for x IN (SELECT y … "
            "WHERE …)",
        )
    return found


def _make_nullable(column: Column) -> Column:
    """Build a column of a source that a LEFT JOIN may find no row of."""
    return replace(column, facts=replace(column.facts, nullable=True))


def _build_group_source(
    inner: Scope,
    query: exp.Select,
    relation: Relation,
    keys: list[Expr],
    pairs: Sequence[tuple[Expr, Expr]],
    *,
    alias: str,
    release: ReleaseLowering,
) -> tuple[Project | PublicSubquery, Expr, bool]:
    """Build the groups with their value last; the value of an empty group; and whether it is a plain aggregate."""
    outer = inner.outer.tables.values() if inner.outer is not None else ()
    of_units = any(is_private(named.relation) for named in outer) and (
        any(is_unit_key(key, relation) for key in keys) or covers_declared_link(pairs)
    )
    if is_private(relation) and not of_units:
        grouped = release(inner, query, relation, keys)
        (output,) = grouped.outputs
        inner.context.check_outputs(query, grouped.outputs)
        of_none: dict[Expr, Expr] = {
            ReleasedColumn(item.name, item.type): _get_empty_value(item.function, item.type)
            for item in grouped.release.aggregations
        }
        key_outputs = [
            Output(key.name, ReleasedColumn(key.name, key.expr.type)) for key in grouped.release.keys
        ]
        empty = _evaluate_without_rows(inner, query, output.expr, of_none)
        return (
            to_public_subquery(replace(grouped, outputs=(*key_outputs, output)), alias),
            empty,
            isinstance(output.expr, ReleasedColumn),
        )
    groups = DerivedGroupBy(inner, query, relation, keys, alias=inner.context.allocate_alias(query))
    ((_, value),) = _lower_single_output(inner, query, groups)
    named = groups.build_group_by().columns[len(keys) :]
    of_none = {
        column: _get_empty_value(item.function, column.type)
        for item, column in zip(groups.aggregations, named, strict=True)
    }
    listed = [(f"k{index}", groups.get_key_column(index)) for index in range(len(keys))]
    source = build_projection(groups.build_group_by(), alias, [*listed, ("value", value)])
    return source, _evaluate_without_rows(inner, query, value, of_none), isinstance(value, Column)


def _lower_single_output(inner: Scope, query: exp.Select, groups: Grouping) -> list[tuple[str, Expr]]:
    outputs = lower_outputs(groups, list_select_items(inner, query))
    if len(outputs) != 1:
        inner.source.refuse(query, "subquery", "a subquery used as a value must have one column")
    return outputs


def _get_empty_value(function: str, kind: Type) -> Literal:
    """Return the value of an aggregate over no rows."""
    return Literal(0 if function.startswith("count") else None, kind)


def _evaluate_without_rows(
    inner: Scope, query: exp.Select, value: Expr, of_none: Mapping[Expr, Expr]
) -> Expr:
    """Compute an expression over aggregates of no rows: a constant, except for values of queries in it.

    Raises QueryRejected where it reads a column next to its aggregates, which has no single value then.
    """
    found = _substitute_parts(value, of_none)
    if any(isinstance(part, (Column, ReleasedColumn)) for part in walk(found)):
        inner.source.refuse(
            query,
            "group_by",
            "the subquery selects a column next to an aggregate, and that column has several values",
            "aggregate it: MIN(x)",
        )
    if isinstance(found, Literal) or any(isinstance(part, Scalar) for part in walk(found)):
        return found
    text = DUCKDB_COMPILER.emit_cast(DUCKDB_COMPILER.emit_expression(found), found.type)
    failure = scratch_database.find_evaluation_error(text)
    if failure is not None:
        inner.source.refuse(query, "constant", f"this has no value where there are no rows: {failure}")
    return replace(to_literal(inner.source, query, scratch_database.evaluate_constant(text)), type=found.type)


def _substitute_parts(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with some of its parts known."""
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_substitute_parts(part, known) for part in expr.arguments))
    return known.get(expr, expr)


# Lower EXISTS and IN over a subquery as a truth value of each row, wherever one is allowed.


_ZERO = Literal(0, Type.INTEGER)
_TRUE, _FALSE = Literal(True, Type.BOOLEAN), Literal(False, Type.BOOLEAN)
_UNKNOWN = Literal(None, Type.BOOLEAN)


def lower_subquery_predicate(scope: Scope, node: exp.Expr) -> Expr:
    """Return whether the subquery of EXISTS or IN has a row for each row of the scope, or ALL and ANY hold. Raises QueryRejected.

    Claim: the truth value is a further column of the rows: it removes no row, repeats no row, and depends on rows of the same unit,
    on public rows and on released values only.
    Why: EXISTS is COUNT(*) > 0 of the subquery for the row, and IN is EXISTS of an equal value, or NULL if there is no equal value
    but a NULL. The subquery's rows are grouped by the columns that are compared with the row, and the groups are joined to the rows
    by LEFT JOIN: each row has at most one group, and for private rows that is a group of its own unit, since all others are refused
    here. Nothing is released for it.
    Source: Neumann, Leis, Kemper 2017, "The Complete Story of Joins (in HyPer)", section 3.2 (mark joins); McSherry 2009, "Privacy
    integrated queries", section 3.2 (stability of GroupBy and of joins on its key).
    """
    if is_quantified(node):
        if node not in scope.predicate_values:
            found = lower_quantified_comparison(
                scope, node, correlate=lambda query: lower_correlated_subquery(scope, query, _refuse_release)
            )
            scope.predicate_values[node.copy()] = found
        return scope.predicate_values[node]
    if type(node) is exp.Exists:
        (query,) = scope.source.take_arguments(node, "this")
        rows, order = _to_plain_select(scope, query)
        _lower_subquery_rows(scope, rows, order)
        return _lower_existence(scope, node, rows, (), None)
    operand, query = scope.source.take_arguments(node, "this", "query")
    return _lower_membership(scope, node, list_row_values(scope, operand), query)


def _lower_membership(scope: Scope, node: exp.Expr, operand: Sequence[exp.Expr], query: exp.Expr) -> Expr:
    """Return whether the values of a row are a row of the subquery; NULL where that is unknown."""
    rows, order = _to_plain_select(scope, query)
    items = [item.this if type(item) is exp.Alias else item for item in rows.expressions]
    check_width(scope, node, len(operand), len(items))
    relation, outputs = _lower_subquery_rows(scope, rows, order)
    values = [scope.scalars.lower(item) for item in operand]
    found = _lower_existence(scope, node, rows, list(zip(values, items, strict=True)), None)
    if _allows_null_as_false(node):
        return found
    if len(items) > 1:
        scope.source.refuse(
            node,
            "subquery",
            "IN with a row of values and a subquery is only allowed in WHERE, FILTER and WHEN, and "
            "not under NOT, where NULL matters",
            "write EXISTS (SELECT … WHERE inner.a = outer.a AND inner.b = outer.b)",
        )
    branches = [found, _TRUE]
    if not is_never_null(outputs[0], relation):
        unknown = exp.Is(this=exp.Paren(this=items[0].copy()), expression=exp.Null())
        branches += [_lower_existence(scope, node, rows, (), unknown), _UNKNOWN]
    if not _is_never_null(scope, values[0]):
        missing = scope.scalars.build_call(node, "is_null", values[0])
        branches += [
            scope.scalars.build_call(node, "and", missing, _lower_existence(scope, node, rows, (), None)),
            _UNKNOWN,
        ]
    if len(branches) == len((found, _TRUE)):
        return found
    return scope.scalars.build_call(node, "case", *branches, _FALSE)


def _is_never_null(scope: Scope, value: Expr) -> bool:
    """Return whether a value of the scope's rows is known not to be NULL, whatever the conditions on them."""
    if isinstance(value, Column) and value.source not in scope.nullable:
        named = scope.tables.get(value.source)
        return named is not None and is_never_null(value, named.relation)
    return isinstance(value, Literal) and value.value is not None


def _lower_subquery_rows(
    scope: Scope, rows: exp.Select, order: exp.Expr | None
) -> tuple[Relation, list[Expr]]:
    """Lower the rows of a subquery and its outputs, which EXISTS ignores. Raises QueryRejected."""
    inner = Scope(
        scope.context.enter_subquery(rows, scope.context.common_tables, scope.context.enclosing_scope),
        outer=scope,
    )
    relation, _ = split_where(inner, rows)
    check_order(inner, rows, order)
    return relation, [expr for item in rows.expressions for _, expr in lower_select_item(inner, item)]


def _allows_null_as_false(node: exp.Expr) -> bool:
    """Return whether NULL is as good as FALSE where a node stands: in a condition, under AND and OR alone."""
    child, above = node, node.parent
    while above is not None and type(above) in (exp.Paren, exp.And, exp.Or):
        child, above = above, above.parent
    if isinstance(above, exp.If):
        case = above.parent
        return child.arg_key == "this" and isinstance(case, exp.Case) and case.args.get("this") is None
    return isinstance(above, exp.Where)


def _lower_existence(
    scope: Scope,
    node: exp.Expr,
    rows: exp.Select,
    compared: Sequence[tuple[Expr, exp.Expr]],
    condition: exp.Expr | None,
) -> Expr:
    """Lower the condition that a row of the subquery equals the compared values and fulfills the condition."""
    count = rows.copy()
    count.set("expressions", [exp.Count(this=exp.Star(), big_int=True)])
    if condition is not None:
        where = count.args.get("where")
        conditions = [] if where is None else [exp.Paren(this=where.this)]
        count.set("where", exp.Where(this=exp.and_(*conditions, condition, copy=False)))
    key = (count, tuple(compared))
    value = scope.predicate_values.get(key)
    if value is None:
        value = lower_correlated_subquery(scope, count, _refuse_release, compared) or _lower_shared_count(
            scope, node, count
        )
        scope.predicate_values[key] = value
    return scope.scalars.build_call(node, "gt", value, _ZERO)


def _lower_shared_count(scope: Scope, node: exp.Expr, count: exp.Select) -> Expr:
    """Return a count of rows that are the same for each row of the scope: public, or released."""
    value = lower_uncorrelated_subquery(scope.context, scope, node, count)
    if isinstance(value.outer.source, Release):
        _refuse_private(scope, node)
    return value


def _refuse_release(inner: Scope, query: exp.Select, _: Relation, __: Sequence[Expr]) -> NoReturn:
    """Refuse a release, which such a column cannot hold."""
    _refuse_private(inner, query)


def _refuse_private(scope: Scope, node: exp.Expr) -> NoReturn:
    scope.source.refuse(
        node,
        "private_join",
        "a subquery over private rows must be correlated on the privacy unit, so that no other "
        "unit's rows decide",
        f"{suggest_unit_comparison(scope.outer or scope, node)}; to ask whether there is any row: SELECT COUNT(*) > 0 FROM …",
    )


def _to_plain_select(scope: Scope, query: exp.Expr) -> tuple[exp.Select, exp.Expr | None]:
    """Return a subquery as a SELECT that keeps each of its rows, and the ORDER BY that is dropped."""
    while type(query) in (exp.Paren, exp.Subquery):
        (query,) = scope.source.take_arguments(query, "this")
    exists = type(query.parent) is exp.Exists
    bare = remove_irrelevant_clauses(scope.source, query, exists=exists)
    if type(bare) is exp.Select:
        starred = any(item.is_star for item in bare.expressions)
        if is_plain_select(bare) and not (starred and not exists):
            return bare, query.args.get("order")
    if not isinstance(query, exp.Query):
        scope.source.refuse(query, "subquery", "IN and EXISTS take a SELECT or a set operation")
    return _wrap_query(scope, query), None


def _wrap_query(scope: Scope, query: exp.Query) -> exp.Select:
    """Build SELECT c0, c1, … FROM (query) AS (c0, c1, …)."""
    items = query.selects
    if type(query.parent) is not exp.Exists and any(item.is_star for item in items):
        scope.source.refuse(
            query, "subquery", "a subquery of IN must name its columns instead of *", "name them: SELECT x"
        )
    names = [exp.to_identifier(f"c{index}") for index in range(len(items))]
    of_rows = type(query.parent) is exp.Exists
    alias = None if of_rows else exp.TableAlias(columns=[name.copy() for name in names])
    table = exp.Subquery(this=query.copy(), alias=alias)
    outputs = [exp.Literal.number(1)] if of_rows else [exp.Column(this=name) for name in names]
    return exp.Select(expressions=outputs, from_=exp.From(this=table))
