"""SELECT trees to plans: the whitelist, and the only validator.

Every node is taken apart argument by argument, and an argument that is not named here is refused. The
user's text stops here: what is sent to the engine is written anew from the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.aggregates import AGGREGATES
from dpsql.analysis.stability import PublicFacts
from dpsql.catalog import Catalog
from dpsql.errors import DataError
from dpsql.plan.expr import Column, Expr, Literal, Released
from dpsql.plan.nodes import Aggregation, Key, Order, Output, Post, Release, Source, is_private
from dpsql.plan.types import Value
from dpsql.sql.derived import common_tables, renamed, set_operation
from dpsql.sql.grouping import Grouping
from dpsql.sql.parse import Statement
from dpsql.sql.per_unit import rows_of
from dpsql.sql.per_unit import select as derived_select
from dpsql.sql.refuse import Source as Text
from dpsql.sql.scalars import Scalars
from dpsql.sql.scope import Context, Scope

_ROWS = ("with_", "expressions", "from_", "joins", "where", "group", "having")
_DERIVED = (*_ROWS, "distinct")
_OUTERMOST = (*_ROWS, "order", "limit", "offset")
_HINTS = {
    "distinct": "use GROUP BY, or COUNT(DISTINCT unit) for a number of units",
    "qualify": "windows are not supported yet",
    "windows": "windows are not supported yet",
    "order": "the order of private rows is not released; order the outermost SELECT",
    "limit": "which private rows come first is not released; limit the outermost SELECT",
}


def lower(
    statement: Statement,
    catalog: Catalog,
    facts: PublicFacts,
    parameters: Sequence[Value] = (),
    max_groups: int | None = None,
) -> Post:
    """The plan of a statement.

    `facts` looks public tables up, `max_groups` is the query's own contribution bound. Raises
    QueryRejected, with the place in the text, for anything that is not known to be safe.
    """
    if len(parameters) != statement.parameters:
        raise DataError(
            f"the query has {statement.parameters} parameters, {len(parameters)} values were given",
            code="parameter",
        )
    text, select = statement.source, statement.select
    _check_clauses(text, select, _OUTERMOST)
    context = common_tables(Context(text, catalog, parameters, facts, _derive), select)
    scope = Scope(context)
    relation = rows_of(scope, select)
    if not is_private(relation):
        text.refuse(
            select, "public_only", "the query reads no private table", "run it on the database itself"
        )
    return _Releasing(scope, select, relation, max_groups=max_groups).plan()


def _derive(context: Context, node: exp.Expr, alias: str, names: Sequence[str]) -> Source:
    """The source that the query of a derived table or common table expression means."""
    while type(node) is exp.Subquery or type(node) is exp.Paren:
        (node,) = context.source.take(node, "this")
    if isinstance(node, exp.SetOperation):
        context = common_tables(context, node)
        _check_clauses(context.source, node, ("with_", "this", "expression", "distinct"))
        return set_operation(context, node, alias, names)
    if type(node) is not exp.Select:
        context.source.refuse(node, "subquery", "a derived table is a SELECT, or several put together")
    _check_clauses(context.source, node, _DERIVED)
    return renamed(derived_select(common_tables(context, node), node, alias), names)


def _check_clauses(text: Text, node: exp.Expr, allowed: Iterable[str]) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            title = name.strip("_").replace("_", " ").upper()
            text.refuse(
                value if isinstance(value, exp.Expr) else node,
                "clause",
                f"{node.key.upper()} with {title} is not supported",
                _HINTS.get(name),
            )


_NAMED: Mapping[type[exp.Expr], str] = {exp.Sum: "sum", exp.Avg: "avg"}


@dataclass(slots=True)
class _Releasing(Grouping):
    """The outermost SELECT, on its way over the release boundary."""

    max_groups: int | None = None
    aggregations: list[Aggregation] = field(default_factory=list)

    def plan(self) -> Post:
        """The release with what is done with it."""
        items = self.items()
        self.group(items)
        outputs = [Output(name, expr) for name, expr in self.outputs(items)]
        having = self.having()
        order = tuple(self._ordered(self.outer, outputs, node) for node in self._order_items())
        order = tuple(item for item in order if not isinstance(item.expr, Literal))
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        keys = tuple(Key(f"k{index}", expr) for index, expr in enumerate(self.keys))
        release = Release(self.input, keys, tuple(self.aggregations), self.max_groups)
        return Post(release, tuple(outputs), having, order, self._count("limit"), self._count("offset") or 0)

    def key(self, index: int) -> Released:
        """A key of the released table."""
        return Released(f"k{index}", self.keys[index].type)

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Refuses the unit's id, of which every group would be too small to show."""
        if isinstance(expr, Column) and expr.facts.is_unit:
            self.source.refuse(
                node,
                "group_by_unit",
                f"each group of {expr.name} would hold one privacy unit, and never be released",
                f"count them: COUNT(DISTINCT {expr.name})",
            )

    def aggregate(self, node: exp.AggFunc) -> Released:
        """An aggregate of the released table."""
        function, argument = self._parts(node)
        entry = AGGREGATES[function]
        result = entry.result_type(None if argument is None else argument.type)
        if result is None:
            self.source.refuse(
                node,
                "type",
                f"{entry.signature} does not take {argument.type if argument else 'nothing'}",
                "convert with CAST(… AS DOUBLE)",
            )
        for known in self.aggregations:
            if (known.function, known.argument) == (function, argument):
                return Released(known.name, known.type)
        name = f"a{len(self.aggregations)}"
        self.aggregations.append(Aggregation(name, function, argument, result))
        return Released(name, result)

    def _parts(self, node: exp.AggFunc) -> tuple[str, Expr | None]:
        """The registry entry that an aggregate call means, and its argument."""
        if type(node) is exp.Count:
            (argument,) = self.source.take(node, "this", big_int=(True,))
            return self._distinct(argument) if type(argument) is exp.Distinct else self.counted(argument)
        named = _NAMED.get(type(node))
        if named is None:
            known = ", ".join(entry.signature for entry in AGGREGATES.values())
            self.source.refuse(
                node, "aggregate", f"{node.sql_name()} is not supported yet", f"there are: {known}"
            )
        (argument,) = self.source.take(node, "this")
        if type(argument) is exp.Distinct:
            self.source.refuse(node, "distinct", f"{node.sql_name()}(DISTINCT …) is not supported")
        return named, self.argument(argument)

    def _distinct(self, node: exp.Distinct) -> tuple[str, None]:
        (items,) = self.source.take(node, "expressions")
        expr = self.argument(items[0]) if len(items) == 1 else None
        if isinstance(expr, Column) and expr.facts.is_unit:
            return "count_units", None
        self.source.refuse(
            node, "distinct", "COUNT(DISTINCT …) counts privacy units alone for now", self._unit_hint()
        )

    def _unit_hint(self) -> str:
        for named in self.scope.tables.values():
            for column in named.columns.values():
                if column.facts.is_unit:
                    return f"did you mean COUNT(DISTINCT {column.name})?"
        return "every row is a privacy unit here: write COUNT(*)"

    def _order_items(self) -> Iterable[exp.Expr]:
        order = self.select.args.get("order")
        if order is None:
            return ()
        (nodes,) = self.source.take(order, "expressions")
        return tuple(nodes)

    def _ordered(self, outer: Scalars, outputs: Sequence[Output], node: exp.Expr) -> Order:
        inner, descending, nulls_first = self.source.take(node, "this", "desc", "nulls_first")
        bare = self.bare(inner)
        ordinal = self.ordinal(bare)
        name = self.lone_name(bare)
        if name in self.aliases:
            # A lone name means the output first, and the column only if there is none of that name.
            expr = self.aliases[name]
        elif ordinal is None:
            expr = outer.lower(inner)
            if isinstance(expr, Literal):
                self.source.refuse(node, "constant", "a constant orders nothing", "leave it out of ORDER BY")
        elif 1 <= ordinal <= len(outputs):
            expr = outputs[ordinal - 1].expr
        else:
            self.source.refuse(node, "ordinal", f"ORDER BY {ordinal}: SELECT has {len(outputs)} columns")
        return Order(expr, bool(descending), bool(nulls_first))

    def _count(self, name: str) -> int | None:
        clause = self.select.args.get(name)
        if clause is None:
            return None
        (node,) = self.source.take(clause, "expression")
        value = Scalars(self.source, self.scope.context.parameters, self._ungrouped).lower(node)
        if not isinstance(value, Literal) or type(value.value) is not int or value.value < 0:
            self.source.refuse(node, "constant", f"{name.upper()} takes a whole number")
        return value.value
