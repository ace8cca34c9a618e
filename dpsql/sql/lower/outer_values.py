"""Join the outer values that a correlated scalar subquery compares other than by equality as a table of its own.

`EXISTS (SELECT … FROM s WHERE s.unit = t.unit AND s.day > t.day)` means: of the distinct pairs of a unit and a day that t
has, those that are joined to a row of s on equal units and a later day. The pairs are grouped, and the outer rows are
joined to their group by equality: of the unit, and of a text that the other values make.

Claim: the table has at most as many rows of a unit as the outer table, each outer row is joined to one group of it at
most, and that group is made of rows of the same unit, and of public rows.
Why: distinct rows are per unit; the groups' keys are all that is joined on; private rows are refused here where no
equality compares what identifies the unit, and joins of private rows are on equal units in the emitted SQL besides.
Source: Neumann, Kemper 2015, "Unnesting arbitrary queries", section 3.1 (the join with the distinct outer values);
McSherry 2009, "Privacy integrated queries", section 3.2 (joins and GroupBy within a unit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.expressions import Call, Column, Expr, iterate_columns, replace_parts
from dpsql.plan.nodes import JoinKind, is_private, list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates.row_values import build_row_text
from dpsql.sql.lower.declared_links import covers_declared_link
from dpsql.sql.lower.derived_tables import build_projection
from dpsql.sql.lower.joins import FromItem, has_same_identity
from dpsql.sql.lower.scope import NamedSource, Scope
from dpsql.sql.lower.unit_checks import suggest_unit_comparison

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
