"""Lower correlated scalar subqueries: grouped by their correlation keys, and joined to the outer rows.

`x > (SELECT AVG(y) FROM s WHERE s.a = t.a)` means the averages of s by a, joined on a. For public rows they are exact. For
private rows they are per-unit groups if a identifies the unit, and a release otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

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
    is_private,
    list_private_scans,
)
from dpsql.plan.render import format_expression
from dpsql.plan.tables import UnitKind
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.compile.scalars import emit_cast, emit_expression
from dpsql.sql.lower.aggregates.row_values import build_row_text
from dpsql.sql.lower.constants import to_literal
from dpsql.sql.lower.declared_links import covers_declared_link
from dpsql.sql.lower.derived_tables import build_projection, to_public_subquery
from dpsql.sql.lower.grouping import Grouping
from dpsql.sql.lower.joins import FromItem, has_same_identity
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.per_unit_selects import DerivedGroupBy, is_unit_key
from dpsql.sql.lower.scope import NamedSource, Scope
from dpsql.sql.lower.select_clauses import lower_outputs
from dpsql.sql.lower.semi_joins import split_where
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.unit_checks import suggest_unit_comparison

# Join the outer values that a correlated scalar subquery compares other than by equality as a table of its own.
#
# `EXISTS (SELECT … FROM s WHERE s.unit = t.unit AND s.day > t.day)` selects the distinct pairs of a unit and a day in t
# that are joined to a row of s with an equal unit and a later day. The pairs are grouped, and the outer rows are joined to
# their group by equality of the unit and of a text made from the other values.
#
# Claim: the table has at most as many rows of a unit as the outer table, each outer row is joined to at most one group of
# it, and that group consists of rows of the same unit and of public rows.
# Why: distinct rows are per unit; the rows are joined on all keys of the groups. Private rows are refused here if no
# equality compares the ids of units, and the emitted SQL also joins private rows on equal units.
# Source: Neumann, Kemper 2015, "Unnesting arbitrary queries", section 3.1 (the join with the distinct outer values);
# McSherry 2009, "Privacy integrated queries", section 3.2 (joins and GroupBy within a unit).


Pair = tuple[Expr, Expr]
"""An expression over the outer rows, and the equal one over the subquery's rows."""


@dataclass(slots=True)
class OuterValues:
    """The pairs of a subquery with its outer scope; other conditions read a table of outer values."""

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
    text = emit_cast(emit_expression(found), found.type)
    failure = scratch_database.find_evaluation_error(text)
    if failure is not None:
        inner.source.refuse(query, "constant", f"this has no value where there are no rows: {failure}")
    return replace(to_literal(inner.source, query, scratch_database.evaluate_constant(text)), type=found.type)


def _substitute_parts(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with some of its parts known."""
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_substitute_parts(part, known) for part in expr.arguments))
    return known.get(expr, expr)
