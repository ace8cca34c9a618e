"""Lowers comparisons with ALL and ANY of a public or released column to comparisons with its least or greatest value.

Claim: `x > ALL (SELECT y …)` is TRUE where there is no y; FALSE where x > MAX(y) is; unknown where it is, or where some y is
NULL; else TRUE. Likewise for >= with MAX, and for < and <= with MIN; = is >= and <=. ANY is the opposite of ALL of the
opposite comparison. The rows are public or released, so that nothing more is released.
Why: ALL is the AND of the comparisons with each y, which the greatest y decides, as the order is total: NaN is the greatest.
Source: ISO/IEC 9075-2, <quantified comparison predicate>; Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.plan.expr import Expr, Literal
from dpsql.plan.nodes import is_private
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import fold
from dpsql.sql.lower.scope import CommonTable, Scope

_NAMES: dict[type[exp.Expr], str] = {
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.EQ: "eq",
    exp.NEQ: "ne",
}
_OPPOSITE = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt", "eq": "ne", "ne": "eq"}
_TRUE, _FALSE = Literal(True, Type.BOOLEAN), Literal(False, Type.BOOLEAN)
_UNKNOWN, _ZERO = Literal(None, Type.BOOLEAN), Literal(0, Type.INTEGER)


def quantified(scope: Scope, node: exp.Expr, lower: Callable[[exp.Expr], Expr] | None = None) -> Expr:
    """Whether a value compares so with all, or any, values of a subquery; `lower` lowers the value, else the scope does.

    Raises QueryRejected.
    """
    operand, side = scope.source.take(node, "this", "expression")
    (query,) = scope.source.take(side, "this")
    while type(query) in (exp.Paren, exp.Subquery):
        (query,) = scope.source.take(query, "this")
    if type(query) is exp.Array and query.expressions:
        (items,) = scope.source.take(query, "expressions", value_constructor=(False,))
        query = exp.Values(expressions=[exp.Tuple(expressions=[item.copy()]) for item in items])
    elif not isinstance(query, exp.Query):
        scope.source.refuse(
            side,
            "subquery",
            "ANY and ALL take a subquery or a list of constants",
            "x > (SELECT MAX(y) FROM …)",
        )
    name = scope.context.fresh(node)
    table = CommonTable(query, ("c0",), scope.context.common)
    inner = replace(scope, context=replace(scope.context, common={**scope.context.common, fold(name): table}))
    source = inner.common(node, table, name)
    if isinstance(source, Scan) or is_private(source):
        scope.source.refuse(
            side,
            "subquery",
            "ALL and ANY compare with public or released rows, since one private row would decide",
            "compare with one released value: x > (SELECT MAX(y) FROM …)",
        )
    if len(source.columns) != 1:
        scope.source.refuse(side, "subquery", "a subquery of ALL or ANY has one column")
    values = _Values(inner, node, (lower or scope.scalars.lower)(operand), name)
    if type(side) is exp.All:
        return values.all(_NAMES[type(node)])
    return scope.scalars.call(node, "not", values.all(_OPPOSITE[_NAMES[type(node)]]))


@dataclass(slots=True)
class _Values:
    """A value, and the column `c0` of a common table that it is compared with."""

    scope: Scope
    node: exp.Expr
    value: Expr
    table: str
    known: dict[str, Expr] = field(default_factory=dict)

    def all(self, name: str) -> Expr:
        """Whether the comparison with each value of the column holds."""
        call, node = self.scope.scalars.call, self.node
        if name == "eq":
            return call(node, "and", self.all("ge"), self.all("le"))
        compared = call(node, name, self.value, self._of("max" if name in ("gt", "ge") else "min"))
        return call(
            node,
            "case",
            call(node, "eq", self._of("rows"), _ZERO),
            _TRUE,
            call(node, "not", compared),
            _FALSE,
            call(node, "gt", self._of("rows"), self._of("count")),
            _UNKNOWN,
            compared,
        )

    def _of(self, aggregate: str) -> Expr:
        """(SELECT aggregate FROM table), once."""
        if aggregate not in self.known:
            column = exp.column("c0")
            outputs = {
                "rows": exp.Count(this=exp.Star(), big_int=True),
                "count": exp.Count(this=column, big_int=True),
                "max": exp.Max(this=column),
                "min": exp.Min(this=column),
            }
            table = exp.Table(this=exp.to_identifier(self.table, quoted=True))
            query = exp.Select(expressions=[outputs[aggregate]], from_=exp.From(this=table))
            self.known[aggregate] = self.scope.uncorrelated(self.node, query)
        return self.known[aggregate]
