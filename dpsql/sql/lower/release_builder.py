"""Lower a SELECT over rows of all units to a release and its post-processing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.analysis.number_types import MOST_DIGITS, find_decimal_digits, is_float
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.base import Aggregate
from dpsql.plan.expressions import (
    UNIT_IDENTITY,
    Call,
    Column,
    Expr,
    Literal,
    ReleasedColumn,
    iterate_columns,
    replace_order_parts,
    replace_parts,
    walk,
)
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    JoinKind,
    Key,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Relation,
    Release,
    SemiJoin,
    Source,
    has_public_subquery,
    is_private,
    iterate_sources,
    list_optional_aliases,
)
from dpsql.plan.steps import list_required_steps
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates import lower_aggregate_across
from dpsql.sql.lower.aggregates.base import guard_by_count, has_counted_rows
from dpsql.sql.lower.derived_tables import to_public_subquery
from dpsql.sql.lower.distinct_rows import (
    build_all_rows,
    count_distinct_rows,
    find_distinct_rows,
    has_side_comparison,
    refuse_values,
)
from dpsql.sql.lower.from_clause import check_row_count, find_optional_source, with_all_public_rows
from dpsql.sql.lower.from_sources import add_single_row
from dpsql.sql.lower.group_keys import find_unqualified_name
from dpsql.sql.lower.grouping import (
    Grouping,
    lower_having,
    lower_limit_or_offset,
    lower_order_by,
    lower_outputs,
    lower_qualify,
)
from dpsql.sql.lower.interval_ends import (
    build_interval_end,
    build_quantile_interval_end,
    get_interval_argument,
)
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.per_unit_selects import (
    has_distinct,
)
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.statement_context import StatementContext
from dpsql.sql.lower.unit_checks import refuse_units
from dpsql.sql.lower.unknown_syntax import suggest_statistic
from dpsql.sql.parse.own_calls import find_interval_end


@dataclass(slots=True)
class ReleaseBuilder(Grouping):
    """A SELECT over rows of all units, whose groups are released: its keys, statistics and post-processing.

    `separate_values` are the values of its aggregates that are releases of their own. `dependent_columns` looks up what the keys
    of a group determine. A subquery that `is_correlated` has the columns of the rows around it among its keys.
    """

    aggregations: list[Aggregation] = field(default_factory=list)
    separate_values: list[Expr] = field(default_factory=list)
    dependent_columns: KeyDependentColumns | None = None
    is_correlated: bool = False
    dependent_keys: dict[int, Expr] = field(default_factory=dict)

    def lower_query(self) -> OuterQuery:
        """Lower the release and its post-processing."""
        if self.scope.pending_joins is None:  # else there are sources of keys that are known already
            self.scope.pending_joins = []
        items = list_select_items(self.scope, self.select)
        distinct = has_distinct(self.scope, self.select)
        self.group_by.resolve(items)
        self._settle_dependent_keys()
        if (
            distinct
            and not self.select.args.get("group")
            and not any(has_aggregate(node) for _, node in items)
        ):
            # Distinct rows are groups without aggregates.
            distinct = False
            # Next to other columns, a constant makes no further distinct rows.
            varying = [node for _, node in items if not self.group_by.is_constant(node)]
            for node in varying or (node for _, node in items):
                self.group_by.add(node, node)
        outputs = [Output(name, expr) for name, expr in lower_outputs(self, items)]
        having, qualify = lower_having(self), lower_qualify(self)
        if self.group_by.is_one_group:
            having = self._with_rows_alone(having)
        order = lower_order_by(self, outputs)
        limit, offset = lower_limit_or_offset(self, "limit"), lower_limit_or_offset(self, "offset") or 0
        source: Release | Relation
        if self.separate_values and not self.aggregations and not self.keys:
            source = self.scope.tables[add_single_row(self.scope, self.select)].relation
        else:
            source = self._build_release()
        return self._join_public_rows(
            OuterQuery(source, tuple(outputs), having, order, limit, offset, distinct, qualify)
        )

    def _with_rows_alone(self, having: Expr | None) -> Expr:
        """Return the condition that the one group of all rows is not empty: DuckDB has no such group without rows."""
        there = has_counted_rows(self, self.select)
        if there is None:
            self.source.refuse(
                self.select.args["group"],
                "constant",
                "a constant can be the only group key beside COUNT(*) alone",
                "add COUNT(*), or leave out GROUP BY",
            )
        return there if having is None else self.scope.scalars.build_call(self.select, "and", there, having)

    @property
    def is_public_output(self) -> bool:
        """Return whether its output is released, which it is."""
        return True

    def _build_release(self) -> Release:
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release single rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        keys = tuple(
            Key(f"k{index}", expr) for index, expr in enumerate(self.keys) if index not in self.dependent_keys
        )
        rows = self.apply_pending_joins()
        if self.aggregations and find_distinct_rows(rows) is not None:
            rows = build_all_rows(self.scope.context, self.select, rows)
        release = Release(rows, keys, tuple(self.aggregations), self.scope.context.max_groups)
        return with_all_public_rows(self.scope, self.select, release)

    def build_outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """Build the release with these outputs."""
        return self._join_public_rows(OuterQuery(self._build_release(), outputs, having))

    def _join_public_rows(self, outer: OuterQuery) -> OuterQuery:
        """Return the query with the public rows that it reads for each group joined to the release."""
        return outer if self.dependent_columns is None else self.dependent_columns.join_lookups(outer)

    def find_determined_value(self, argument: exp.Expr) -> Expr | None:
        """Return the value of an expression in all rows of a group, if the keys determine it; None also for a node that is no expression."""
        if (
            not self.keys
            or self.is_correlated
            or argument.find(exp.Query, exp.AggFunc, exp.Distinct, exp.Window)
        ):
            return None
        expr = self.scope.scalars.lower(argument)
        if not any(iterate_columns(expr)):
            return None
        if self.dependent_columns is None:
            known: dict[Expr, Expr] = {key: self.get_key_column(index) for index, key in enumerate(self.keys)}
            self.dependent_columns = KeyDependentColumns.from_keys(
                self.scope.context, self.select, self.input, known
            )
        return self.dependent_columns.find_value(expr)

    def lower_aggregate_of_key(self, node: exp.Expr, key: Expr) -> Expr:
        """Return MIN and the like of a group key, which is the key, but NULL if a COUNT(*) of the same SELECT shows an empty group."""
        return guard_by_count(self, node, key)

    def _settle_dependent_keys(self) -> None:
        """Find the keys that other keys determine, where public rows without private ones have groups, too.

        Claim: the groups are the same without them.
        Why: in all rows of a group of the other keys, the key has one value, which is looked up in the public table.
        Source: ISO/IEC 9075-2, section 4.19 (functional dependencies).
        """
        if (
            len(self.keys) < MOST_SETTLED[0]
            or len(self.keys) > MOST_SETTLED[1]
            or find_optional_source(self.scope) is None
        ):
            return
        for index in reversed(range(len(self.keys))):
            rest: dict[Expr, Expr] = {
                key: self._make_key_column(place)
                for place, key in enumerate(self.keys)
                if place != index and place not in self.dependent_keys
            }
            known = KeyDependentColumns.from_keys(self.scope.context, self.select, self.input, rest)
            if rest and known.find_value(self.keys[index]) is not None:
                self.dependent_keys[index] = self.keys[index]
        rest = {
            key: self._make_key_column(place)
            for place, key in enumerate(self.keys)
            if place not in self.dependent_keys
        }
        if self.dependent_keys:
            self.dependent_columns = KeyDependentColumns.from_keys(
                self.scope.context, self.select, self.input, rest
            )
            for index in self.dependent_keys:
                value = self.dependent_columns.find_value(self.keys[index])
                if value is None:
                    raise TypeError("a key that others determine has a value")
                self.dependent_keys[index] = value

    def get_key_column(self, index: int) -> Expr:
        """Return a key of the released table, or the value that other keys determine."""
        return self.dependent_keys.get(index) or self._make_key_column(index)

    def _make_key_column(self, index: int) -> ReleasedColumn:
        key = self.keys[index]
        return ReleasedColumn(f"k{index}", key.type, decimal=find_decimal_digits(key), float32=is_float(key))

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Refuse the unit's id, whose groups would all be too small to release, and expressions that are always NULL."""
        if expr.type is Type.NULL:
            self.source.refuse(node, "constant", "NULL cannot be a group key", "leave it out of GROUP BY")
        if find_injective_identity(expr, self.input) == UNIT_IDENTITY:
            refuse_units(self.source, node, expr, self.input)

    def lower_aggregate(self, node: exp.AggFunc) -> Expr:
        """Lower an aggregate to a column of the released table, or to an expression over several."""
        expr, separate = lower_aggregate_across(self, node)
        if separate:
            self.separate_values.append(expr)
        return expr

    def add_statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> ReleasedColumn:
        """Return a column of the released table that holds a statistic."""
        source = find_distinct_rows(self.input)
        if source is not None and (function != "count_distinct" or has_side_comparison(source)):
            refuse_values(self.source, node, source)
        return self._add_statistic(node, function, argument, rank)

    def _add_statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> ReleasedColumn:
        if function == "count_rows":
            check_row_count(self.scope, node)
        entry = AGGREGATES[function]
        result = entry.result_type(None if argument is None else argument.type)
        if result is None:
            self.source.refuse(
                node,
                "type",
                f"{entry.signature} does not take {argument.type if argument else 'nothing'}",
                None if argument is None else suggest_statistic(node, entry.signature, argument.type),
            )
        for known in self.aggregations:
            if (known.function, known.argument, known.rank, known.interval_end) == (
                function,
                argument,
                rank,
                0,
            ):
                return ReleasedColumn(known.name, known.type, decimal=_find_statistic_digits(entry, argument))
        name = f"a{len(self.aggregations)}"
        self.aggregations.append(Aggregation(name, function, argument, result, rank))
        return ReleasedColumn(name, result, decimal=_find_statistic_digits(entry, argument))

    def add_count(self, node: exp.AggFunc, function: str, argument: Expr | None) -> Expr:
        """Return COUNT(*) or COUNT(x); distinct rows across units are counted by their values."""
        source = find_distinct_rows(self.input)
        if source is None:
            return self.add_statistic(node, function, argument)
        return count_distinct_rows(
            self.scope, node, source, argument, lambda value: self._add_distinct_count(node, value)
        )

    def _add_distinct_count(self, node: exp.AggFunc, value: Expr) -> Expr:
        return self._add_statistic(node, "count_distinct", value)

    def lower_interval_end(self, node: exp.Expr) -> Expr | None:
        """Return the end of the interval of an aggregate of the released table, a factor and a shift aside."""
        asked, known = get_interval_argument(self.source, node), len(self.aggregations)
        name = find_unqualified_name(self.source, asked)
        # An alias takes precedence over a column here: a private column has no interval.
        expr = self.aliases.get(name) if name is not None else None
        if isinstance(asked, exp.AggFunc):
            expr = self.lower_aggregate(asked)
        elif expr is None and (type(asked) is exp.Filter or has_aggregate(asked)):
            expr = self.group_scalars.lower(asked)
        if expr is None:
            return None
        which = find_interval_end(node) or ""
        return build_quantile_interval_end(expr, which, self.aggregations, known) or build_interval_end(
            expr, which, self.aggregations
        )


def _find_statistic_digits(entry: Aggregate, argument: Expr | None) -> tuple[int, int] | None:
    """Find the digits of an aggregate of DECIMAL values that is a DECIMAL in the engine."""
    held = None if argument is None or not entry.keeps_scale else find_decimal_digits(argument)
    return held if held is None or entry.within_argument else (MOST_DIGITS, held[1])


# Values that the keys of a released group determine: the keys, and columns of public rows that keys identify.


MOST_SETTLED = 2, 12
"""The number of group keys among which those are sought that others determine."""
QualifiedName = tuple[str, str]
"""The source and the name of a column, whose facts can differ on the optional side of a join."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The row of a public source that has these values in its key columns; `read_columns` are the columns read from it."""

    source: Source
    alias: str
    on: tuple[tuple[Expr, Column], ...]
    read_columns: dict[str, Column] = field(default_factory=dict)

    def add_column(self, column: Column) -> Column:
        """Return a column of the row, or NULL if it has none."""
        self.read_columns.setdefault(column.name, column)
        return self._make_column(f"v {column.name}", column)

    def build_join(self, groups: Relation, moved: Mapping[Expr, Expr]) -> Join:
        """Build the groups, each with its row. `moved` are the released columns in terms of the groups."""
        keys, values = tuple(column for _, column in self.on), tuple(self.read_columns.values())
        found = tuple(self._make_column(f"k {key.name}", key) for key in keys)
        rows = PerUnitGroupBy(
            self.source,
            self.alias,
            keys,
            tuple(PerUnitAggregate("max", value) for value in values),
            (*found, *map(self.add_column, values)),
        )
        on = ((replace_parts(ours, moved), theirs) for (ours, _), theirs in zip(self.on, found, strict=True))
        return Join(groups, rows, JoinKind.LEFT, tuple(on))

    def _make_column(self, name: str, column: Column) -> Column:
        return Column(self.alias, name, replace(column.facts, engine_type="", nullable=True, identity=None))


@dataclass(frozen=True, slots=True)
class KeyDependentColumns:
    """The columns of a relation that the released keys of groups determine.

    `columns` are the columns that the keys determine directly, `rows` the rows of public sources by the sources' names.
    `lookups` are the lookups of all levels of derived tables, each after the lookups that it depends on.

    Claim: `KeyDependentColumns.find_value` returns an expression over released keys and public rows. In a group with rows, it has
    the value of the given expression in each of them. It is free, and does not depend on whether the group has rows.
    Why: all rows of a group have its keys. An inner join is on equal values, so a column that equals a determined one is
    determined. If determined columns are a unique key of a public source, all rows of the group are joined to one row of it, or to
    none. That row is found again by equality with these columns, which NULL never satisfies, so that without such a row each column
    is NULL, as in a LEFT JOIN. Where rows of the source have NULL in such a column, nothing is determined, unless the rows are
    joined on the column.
    Source: ISO/IEC 9075-2, section 4.19 (functional dependencies); Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """

    context: StatementContext
    node: exp.Expr
    lookups: list[Lookup]
    exprs: dict[Expr, Expr]
    columns: dict[QualifiedName, Expr] = field(default_factory=dict)
    rows: dict[str, Lookup] = field(default_factory=dict)

    @classmethod
    def from_keys(
        cls, context: StatementContext, node: exp.Expr, relation: Relation, keys: Mapping[Expr, Expr]
    ) -> KeyDependentColumns:
        """Return the columns that keys determine, given how each key is known; `node` is the place in the query."""
        found = cls(context, node, [], dict(keys))
        found._follow_relation(relation)
        return found

    def find_value(self, expr: Expr) -> Expr | None:
        """Return an expression in terms of released keys and looked-up rows; None where keys do not determine it."""
        if expr in self.exprs:
            return self.exprs[expr]
        match expr:
            case Literal():
                return expr
            case Column():
                if _get_qualified_name(expr) in self.columns:
                    return self.columns[_get_qualified_name(expr)]
                found = self.rows.get(expr.source)
                return None if found is None else found.add_column(expr)
            case Call():
                parts = [self.find_value(argument) for argument in expr.arguments]
                settled = tuple(part for part in parts if part is not None)
                return replace(expr, arguments=settled) if len(settled) == len(parts) else None
            case _:
                return None

    def join_lookups(self, outer: OuterQuery) -> OuterQuery:
        """Return the query of a release, which is joined to the looked-up rows that the query reads."""
        read = [part for expr in _iterate_expressions(outer) for part in walk(expr)]
        wanted = self._list_needed_lookups({part.source for part in read if isinstance(part, Column)})
        if not wanted:
            return outer
        read += [part for lookup in wanted for ours, _ in lookup.on for part in walk(ours)]
        released = dict.fromkeys(part for part in read if isinstance(part, ReleasedColumn))
        groups = to_public_subquery(
            OuterQuery(outer.source, tuple(Output(part.name, part) for part in released)),
            self.context.allocate_alias(self.node),
        )
        moved: dict[Expr, Expr] = dict(zip(released, groups.columns, strict=True))
        relation: Relation = groups
        for lookup in wanted:
            relation = lookup.build_join(relation, moved)
        return replace(
            outer,
            source=relation,
            outputs=tuple(
                replace(output, expr=replace_parts(output.expr, moved)) for output in outer.outputs
            ),
            having=None if outer.having is None else replace_parts(outer.having, moved),
            order=replace_order_parts(outer.order, moved),
            qualify=None if outer.qualify is None else replace_parts(outer.qualify, moved),
        )

    def _list_needed_lookups(self, read: set[str]) -> list[Lookup]:
        """List the look-ups of these names, and those that their rows are found by."""
        wanted: list[Lookup] = []
        for lookup in reversed(self.lookups):
            if lookup.alias in read:
                wanted.insert(0, lookup)
                read |= {column.source for ours, _ in lookup.on for column in iterate_columns(ours)}
        return wanted

    def _follow_relation(self, relation: Relation) -> None:
        """Add determined columns until no more follow."""
        for expr, value in self.exprs.items():
            if isinstance(expr, Column):
                self.columns.setdefault(_get_qualified_name(expr), value)
        optional, joins = list_optional_aliases(relation), list(_iterate_joins(relation))
        before = -1
        while (size := len(self.columns) + len(self.rows)) > before:
            before = size
            for join in joins:
                if join.kind is JoinKind.INNER:
                    for pair in join.on:
                        self._record_equality(*pair)
            for source in iterate_sources(relation):
                if not is_private(source):
                    self._look_up_source(source, next((join for join in joins if join.right == source), None))
                elif isinstance(source, Project) and source.alias not in optional:
                    # A NULL column of an optional source implies nothing about its inner rows.
                    self._follow_projection(source)

    def _record_equality(self, ours: Expr, theirs: Column) -> None:
        """Record that of two equal values of one type, the determined one determines the other."""
        if ours.type is not theirs.type:
            return
        value = self.find_value(ours) if any(iterate_columns(ours)) else None
        if value is not None:
            self.columns.setdefault(_get_qualified_name(theirs), value)
        elif isinstance(ours, Column) and _get_qualified_name(theirs) in self.columns:
            self.columns[_get_qualified_name(ours)] = self.columns[_get_qualified_name(theirs)]

    def _follow_projection(self, source: Project) -> None:
        """Follow determined columns into a derived table, and back out of it."""
        pairs = list(zip(source.columns, source.items, strict=True))
        known = {
            item: self.columns[_get_qualified_name(column)]
            for column, item in pairs
            if _get_qualified_name(column) in self.columns
        }
        inner = KeyDependentColumns(self.context, self.node, self.lookups, known)
        inner._follow_relation(source.input)
        for column, item in pairs:
            value = inner.find_value(item) if known and any(iterate_columns(item)) else None
            if value is not None:
                self.columns.setdefault(_get_qualified_name(column), value)

    def _look_up_source(self, source: Source, join: Join | None) -> None:
        """Look up the row of a public source, if determined columns are a unique key of it."""
        if source.alias in self.rows or has_public_subquery(source) or list_required_steps(source):
            return
        named = {
            _get_qualified_name(column): column for column in self._iterate_candidate_columns(source, join)
        }
        on = [(self.columns[place], column) for place, column in named.items() if place in self.columns]
        if not on and join is not None and join.kind is JoinKind.LEFT and join.condition is None:
            values = [self.find_value(ours) if ours.type is theirs.type else None for ours, theirs in join.on]
            pairs = zip(values, (theirs for _, theirs in join.on), strict=True)
            on = [(value, theirs) for value, theirs in pairs if value is not None]
            if len(on) < len(join.on):
                return
        joined = set() if join is None else {_get_qualified_name(theirs) for _, theirs in join.on}
        facts = self.context.facts
        theirs = tuple((column, column) for _, column in on)
        if not on or facts.look_up_multiplicity(Join(source, source, JoinKind.INNER, theirs)) > 1:
            return
        if any(
            _get_qualified_name(column) not in joined and self._has_null(source, column) for _, column in on
        ):
            return
        found = Lookup(source, self.context.allocate_alias(self.node), tuple(on))
        self.rows[source.alias] = found
        self.lookups.append(found)

    def _iterate_candidate_columns(self, source: Source, join: Join | None) -> Iterator[Column]:
        """Yield the columns of a source that may be determined: group keys, and join columns."""
        for expr in self.exprs:
            yield from (column for column in iterate_columns(expr) if column.source == source.alias)
        for ours, theirs in () if join is None else join.on:
            yield from (
                column for column in (*iterate_columns(ours), theirs) if column.source == source.alias
            )

    def _has_null(self, source: Source, column: Column) -> bool:
        missing = build_function_call("is_null", column)
        if missing is None:
            return True
        query = OuterQuery(Filter(source, missing), (Output("k", column),), limit=1)
        return bool(self.context.facts.read_rows(query))


def _get_qualified_name(column: Column) -> QualifiedName:
    return column.source, column.name


def _iterate_joins(relation: Relation) -> Iterator[Join]:
    match relation:
        case Filter() | SemiJoin():
            yield from _iterate_joins(relation.input)
        case Join():
            yield from _iterate_joins(relation.left)
            yield relation
        case _:
            return


def _iterate_expressions(outer: OuterQuery) -> Iterator[Expr]:
    """Yield the expressions of a query."""
    yield from (output.expr for output in outer.outputs)
    yield from (item.expr for item in outer.order)
    yield from (part for part in (outer.having, outer.qualify) if part is not None)
