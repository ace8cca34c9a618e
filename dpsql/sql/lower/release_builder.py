"""Lower a SELECT over rows of all units to a release and its post-processing."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from dpsql.analysis.number_types import MOST_DIGITS, find_decimal_digits, is_float
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.base import Aggregate
from dpsql.plan.expressions import UNIT_IDENTITY, Expr, ReleasedColumn, iterate_columns
from dpsql.plan.nodes import (
    Aggregation,
    Key,
    OuterQuery,
    Output,
    Relation,
    Release,
)
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates import lower_aggregate_across
from dpsql.sql.lower.aggregates.base import guard_by_count, has_counted_rows
from dpsql.sql.lower.distinct_rows import (
    build_all_rows,
    count_distinct_rows,
    find_distinct_rows,
    has_side_comparison,
    refuse_values,
)
from dpsql.sql.lower.from_sources import add_single_row
from dpsql.sql.lower.grouping import Grouping
from dpsql.sql.lower.interval_ends import (
    build_interval_end,
    build_quantile_interval_end,
    get_interval_argument,
)
from dpsql.sql.lower.key_dependent_columns import KeyDependentColumns
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.per_unit_selects import (
    has_distinct,
)
from dpsql.sql.lower.public_left_joins import check_row_count, with_all_public_rows
from dpsql.sql.lower.references import find_unqualified_name
from dpsql.sql.lower.select_clauses import (
    lower_having,
    lower_limit_or_offset,
    lower_order_by,
    lower_outputs,
    lower_qualify,
)
from dpsql.sql.lower.star_expansion import list_select_items
from dpsql.sql.lower.unit_checks import refuse_units
from dpsql.sql.lower.unknown_syntax import suggest_statistic
from dpsql.sql.parse.interval_calls import find_interval_end


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

    def lower_query(self) -> OuterQuery:
        """Lower the release and its post-processing."""
        if self.scope.pending_joins is None:  # else there are sources of keys that are known already
            self.scope.pending_joins = []
        items = list_select_items(self.scope, self.select)
        distinct = has_distinct(self.scope, self.select)
        self.group_by.resolve(items)
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
        """Whether its output is released, which it is."""
        return True

    def _build_release(self) -> Release:
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release single rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        keys = tuple(Key(f"k{index}", expr) for index, expr in enumerate(self.keys))
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

    def get_key_column(self, index: int) -> ReleasedColumn:
        """Return a key of the released table."""
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
