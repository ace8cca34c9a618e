"""Lower comparisons with ALL and ANY of a column to comparisons with its least or greatest value.

Claim: `x > ALL (SELECT y …)` is TRUE if there is no y; FALSE if x > MAX(y) is FALSE; unknown if x > MAX(y) is unknown or some
y is NULL; else TRUE. Likewise for >= with MAX, and for < and <= with MIN; = is the conjunction of >= and <=. ANY is the
negation of ALL with the negated comparison. The rows are public, released, or belong to the unit of the compared row, so that
nothing more is released.
Why: ALL is the AND of the comparisons with each y, which the greatest y decides, as the order is total: NaN is the greatest.
Source: ISO/IEC 9075-2, <quantified comparison predicate>; Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeGuard

from sqlglot import exp

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.nodes import is_private
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.derived_tables import is_plain_select
from dpsql.sql.lower.from_sources import lower_common_table
from dpsql.sql.lower.scope import Scope, lower_uncorrelated_subquery
from dpsql.sql.lower.statement_context import CommonTable

_NAMES: dict[type[exp.Expr], str] = {
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.EQ: "eq",
    exp.NEQ: "ne",
}
_AGGREGATES: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "rows": lambda _: exp.Count(this=exp.Star(), big_int=True),
    "count": lambda column: exp.Count(this=column, big_int=True),
    "max": lambda column: exp.Max(this=column),
    "min": lambda column: exp.Min(this=column),
}
ValueLowering = Callable[[exp.Expr], Expr]
CorrelatedLowering = Callable[[exp.Select], Expr | None]
AggregateLowering = Callable[[Callable[[exp.Expr], exp.Expr]], Expr]
"""Returns the value of an aggregate of a column over the rows of a subquery."""
_OPPOSITE = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt", "eq": "ne", "ne": "eq"}
_TRUE, _FALSE = Literal(True, Type.BOOLEAN), Literal(False, Type.BOOLEAN)
_UNKNOWN, _ZERO = Literal(None, Type.BOOLEAN), Literal(0, Type.INTEGER)


def lower_quantified_comparison(
    scope: Scope,
    node: exp.Expr,
    value: ValueLowering | None = None,
    correlate: CorrelatedLowering | None = None,
) -> Expr:
    """Return whether a value compares so with all, or any, values of a subquery.

    `value` lowers the compared expression; by default the scope does. `correlate` lowers a subquery that has a value for each
    row around it, where that is allowed, and returns None for a subquery with one value for all rows.
    Raises QueryRejected.
    """
    operand, side = scope.source.take_arguments(node, "this", "expression")
    (query,) = scope.source.take_arguments(side, "this")
    while type(query) in (exp.Paren, exp.Subquery):
        (query,) = scope.source.take_arguments(query, "this")
    if type(query) is exp.Array and query.expressions:
        (items,) = scope.source.take_arguments(query, "expressions", value_constructor=(False,))
        _check_constants(scope, items)
        query = exp.Values(expressions=[exp.Tuple(expressions=[item.copy()]) for item in items])
    elif not isinstance(query, (exp.Query, exp.Values)):
        scope.source.refuse(
            side,
            "subquery",
            "ANY and ALL take a subquery or a list of constants",
            "write x > (SELECT MAX(y) FROM …)",
        )
    compared = partial(scope.scalars.lower if value is None else value, operand)
    try:
        values = _build_shared_comparison(scope, node, side, query, compared)
    except QueryRejected as refusal:
        if (
            refusal.code not in ("table", "column", "subquery")
            or correlate is None
            or not _is_single_column_select(query)
        ):
            raise
        # It may read a column of the outer rows.
        values = _QuantifiedComparison(
            scope, node, compared(), _make_correlated_aggregate(scope, query, correlate, refusal)
        )
    if type(side) is exp.All:
        return values.compare_with_all(_NAMES[type(node)])
    return scope.scalars.build_call(node, "not", values.compare_with_all(_OPPOSITE[_NAMES[type(node)]]))


def _check_constants(scope: Scope, items: Iterable[exp.Expr]) -> None:
    for item in items:
        for part in item.walk(prune=lambda node: isinstance(node, exp.Query)):
            if type(part) is exp.Column:
                scope.source.refuse(
                    part,
                    "column",
                    "a list of ANY or ALL may only hold constants",
                    "for ANY write x > a OR x > b",
                )


def _is_single_column_select(query: exp.Query) -> TypeGuard[exp.Select]:
    return type(query) is exp.Select and len(query.expressions) == 1 and is_plain_select(query)


def _make_correlated_aggregate(
    scope: Scope, query: exp.Select, correlate: CorrelatedLowering, refusal: QueryRejected
) -> AggregateLowering:
    """Aggregate of a subquery that has other rows for each row around it."""
    (item,) = query.expressions
    item = item.this if type(item) is exp.Alias else item

    def lower_aggregate(aggregate: Callable[[exp.Expr], exp.Expr]) -> Expr:
        asked = query.copy()
        asked.set("expressions", [aggregate(item.copy())])
        key = ("quantified", asked)
        if key not in scope.predicate_values:
            found = correlate(asked)
            if found is None:
                raise refusal
            scope.predicate_values[key] = found
        return scope.predicate_values[key]

    return lower_aggregate


def _build_shared_comparison(
    scope: Scope, node: exp.Expr, side: exp.Expr, query: exp.Query, compared: Callable[[], Expr]
) -> _QuantifiedComparison:
    """Build a subquery that has the same public or released rows for each row around it."""
    name = scope.context.allocate_alias(node)
    table = CommonTable(query, ("c0",), scope.context.common_tables, scope)
    inner = replace(
        scope,
        context=replace(
            scope.context, common_tables={**scope.context.common_tables, normalize_name(name): table}
        ),
    )
    source = lower_common_table(inner.context, node, table, name)
    if isinstance(source, Scan) or is_private(source):
        scope.source.refuse(
            side,
            "subquery",
            "ALL and ANY cannot compare with private rows, since one row would decide",
            "compare with one released value: x > (SELECT MAX(y) FROM …)",
        )
    if len(source.columns) != 1:
        scope.source.refuse(side, "subquery", "a subquery of ALL or ANY must have one column")

    def lower_aggregate(aggregate: Callable[[exp.Expr], exp.Expr]) -> Expr:
        from_ = exp.From(this=exp.Table(this=exp.to_identifier(name, quoted=True)))
        return lower_uncorrelated_subquery(
            inner.context, inner, node, exp.Select(expressions=[aggregate(exp.column("c0"))], from_=from_)
        )

    return _QuantifiedComparison(inner, node, compared(), lower_aggregate)


@dataclass(slots=True)
class _QuantifiedComparison:
    """A value, and the aggregates of the column that it is compared with."""

    scope: Scope
    node: exp.Expr
    value: Expr
    lower_aggregate: AggregateLowering
    known: dict[str, Expr] = field(default_factory=dict)

    def compare_with_all(self, name: str) -> Expr:
        """Return whether the comparison with each value of the column holds."""
        call, node = self.scope.scalars.build_call, self.node
        if name == "eq":
            return call(node, "and", self.compare_with_all("ge"), self.compare_with_all("le"))
        compared = call(node, name, self.value, self._get_aggregate("max" if name in ("gt", "ge") else "min"))
        return call(
            node,
            "case",
            call(node, "eq", self._get_aggregate("rows"), _ZERO),
            _TRUE,
            call(node, "not", compared),
            _FALSE,
            call(node, "gt", self._get_aggregate("rows"), self._get_aggregate("count")),
            _UNKNOWN,
            compared,
        )

    def _get_aggregate(self, aggregate: str) -> Expr:
        """Build (SELECT aggregate FROM …), once."""
        if aggregate not in self.known:
            self.known[aggregate] = self.lower_aggregate(_AGGREGATES[aggregate])
        return self.known[aggregate]
