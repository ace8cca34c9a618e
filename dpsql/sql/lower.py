"""SELECT trees to plans: the whitelist, and the only validator.

Every node is taken apart argument by argument, and an argument that is not named here is refused. The
user's text stops here: what is sent to the engine is written anew from the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.aggregates import AGGREGATES
from dpsql.catalog import Catalog
from dpsql.errors import DataError, QueryRejected
from dpsql.plan.expr import Column, Expr, Literal, Released, columns
from dpsql.plan.nodes import Aggregation, Key, Order, Output, Post, Relation, Release
from dpsql.plan.types import Type, Value
from dpsql.policy import fold
from dpsql.sql.parse import Statement
from dpsql.sql.refuse import Source
from dpsql.sql.scalars import Scalars
from dpsql.sql.scope import Scope, filtered, relation

MAX_KEYS = 8
MAX_OUTPUTS = 100
_CLAUSES = ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset")
_HINTS = {
    "with_": "common table expressions are not supported yet: write the SELECT out",
    "distinct": "use GROUP BY, or COUNT(DISTINCT unit) for a number of units",
    "qualify": "windows are not supported yet",
    "windows": "windows are not supported yet",
}


def lower(
    statement: Statement,
    catalog: Catalog,
    parameters: Sequence[Value] = (),
    max_groups: int | None = None,
) -> Post:
    """The plan of a statement.

    `max_groups` is the query's own contribution bound. Raises QueryRejected, with the place in the
    text, for anything that is not known to be safe.
    """
    if len(parameters) != statement.parameters:
        raise DataError(
            f"the query has {statement.parameters} parameters, {len(parameters)} values were given",
            code="parameter",
        )
    source, select = statement.source, statement.select
    for name, value in select.args.items():
        if value and name not in _CLAUSES:
            title = name.strip("_").replace("_", " ").upper()
            hint = _HINTS.get(name)
            source.refuse(
                value if isinstance(value, exp.Expr) else select,
                "clause",
                f"SELECT with {title} is not supported",
                hint,
            )
    scope = Scope(source, catalog, parameters)
    input_ = relation(scope, select)
    where = select.args.get("where")
    if where is not None:
        (predicate,) = source.take(where, "this")
        input_ = filtered(input_, [_boolean(source, predicate, scope.scalars.lower(predicate))])
    return _Select(source, select, scope, input_, max_groups).plan()


def _boolean(source: Source, node: exp.Expr, expr: Expr) -> Expr:
    if expr.type not in (Type.BOOLEAN, Type.NULL):
        source.refuse(node, "type", f"a condition is true or false, not {expr.type}")
    return expr


@dataclass(slots=True)
class _Select:
    """One SELECT on its way over the release boundary."""

    source: Source
    select: exp.Select
    scope: Scope
    input: Relation
    max_groups: int | None
    keys: list[Key] = field(default_factory=list)
    aggregations: list[Aggregation] = field(default_factory=list)
    aliases: dict[str, Expr] = field(default_factory=dict)

    def plan(self) -> Post:
        items = [self._item(node) for node in self.select.expressions]
        if not items or len(items) > MAX_OUTPUTS:
            self.source.refuse(self.select, "clause", f"SELECT names between 1 and {MAX_OUTPUTS} columns")
        self._group(items)
        outer = Scalars(self.source, self.scope.parameters, self._ungrouped, self._over_release)
        outputs = []
        for alias, node in items:
            expr = outer.lower(node)
            outputs.append(Output(_name(node) if alias is None else alias, expr))
            if alias is not None:
                # A later alias hides an earlier one, as in DuckDB.
                self.aliases[fold(alias)] = expr
        having = self._having(outer)
        order = tuple(self._ordered(outer, outputs, node) for node in self._order_items())
        order = tuple(item for item in order if not isinstance(item.expr, Literal))
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        release = Release(self.input, tuple(self.keys), tuple(self.aggregations), self.max_groups)
        return Post(release, tuple(outputs), having, order, self._count("limit"), self._count("offset") or 0)

    def _item(self, node: exp.Expr) -> tuple[str | None, exp.Expr]:
        """The alias, if there is one, and the expression of a SELECT item."""
        if type(node) is not exp.Alias:
            return None, node
        inner, identifier = self.source.take(node, "this", "alias")
        return str(self.source.take(identifier, "this", quoted=(True,))[0]), inner

    def _group(self, items: Sequence[tuple[str | None, exp.Expr]]) -> None:
        group = self.select.args.get("group")
        if group is None:
            return
        nodes, every = self.source.take(group, "expressions", "all")
        if every:
            nodes = [node for _, node in items if not _aggregates(node)]
        for node in nodes or ():
            target = self._group_target(node, items)
            if _aggregates(target):
                self.source.refuse(
                    node, "group_by", "an aggregate is no group key", "leave it out of GROUP BY"
                )
            expr = self.scope.scalars.lower(target)
            if not any(columns(expr)):
                self.source.refuse(node, "constant", "a constant is no group key", "leave it out of GROUP BY")
            if isinstance(expr, Column) and expr.facts.is_unit:
                self.source.refuse(
                    node,
                    "group_by_unit",
                    f"each group of {expr.name} would hold one privacy unit, and never be released",
                    f"count them: COUNT(DISTINCT {expr.name})",
                )
            if all(key.expr != expr for key in self.keys):
                self.keys.append(Key(f"k{len(self.keys)}", expr))
        if len(self.keys) > MAX_KEYS:
            self.source.refuse(group, "too_long", f"at most {MAX_KEYS} group keys")

    def _group_target(self, node: exp.Expr, items: Sequence[tuple[str | None, exp.Expr]]) -> exp.Expr:
        """The expression that a GROUP BY item means: itself, a SELECT item's ordinal or its alias."""
        node = self._bare(node)
        ordinal = self._ordinal(node)
        if ordinal is not None:
            if not 1 <= ordinal <= len(items):
                self.source.refuse(node, "ordinal", f"GROUP BY {ordinal}: SELECT has {len(items)} columns")
            return items[ordinal - 1][1]
        name = self._lone_name(node)
        if name is not None and not self._is_column(name):
            for alias, target in reversed(items):
                if alias is not None and fold(alias) == name:
                    return target
        return node

    def _lone_name(self, node: exp.Expr) -> str | None:
        """The folded name of a column without a table, which may be an alias."""
        if type(node) is not exp.Column or type(node.this) is not exp.Identifier or node.args.get("table"):
            return None
        (identifier,) = self.source.take(node, "this")
        return fold(str(self.source.take(identifier, "this", quoted=(True,))[0]))

    def _ordinal(self, node: exp.Expr) -> int | None:
        """The number of an output that a node is."""
        if type(node) is not exp.Literal or node.is_string or not str(node.this).isdigit():
            return None
        text, _ = self.source.take(node, "this", "is_string")
        return int(text)

    def _is_column(self, name: str) -> bool:
        return any(name in table.columns for _, table in self.scope.tables.values())

    def _bare(self, node: exp.Expr) -> exp.Expr:
        while type(node) is exp.Paren:
            (node,) = self.source.take(node, "this")
        return node

    def _ungrouped(self, node: exp.Column) -> Expr:
        column = self.scope.column(node)
        self.source.refuse(
            node,
            "group_by",
            f"{column.name} is neither in GROUP BY nor in an aggregate",
            f"add it to GROUP BY, or aggregate it: AVG({column.name})",
        )

    def _over_release(self, node: exp.Expr) -> Expr | None:
        """The released column that a whole node means: an aggregate, a key or an alias."""
        aggregate = self._aggregate(node)
        if aggregate is not None:
            return aggregate
        name = self._lone_name(node)
        if name in self.aliases and not self._is_column(name):
            return self.aliases[name]
        return self._key(node)

    def _key(self, node: exp.Expr) -> Released | None:
        if isinstance(node, (exp.Literal, exp.Null, exp.Boolean)) or _aggregates(node):
            return None
        try:
            expr = self.scope.scalars.lower(node)
        except QueryRejected:
            return None
        for key in self.keys:
            if key.expr == expr:
                return Released(key.name, expr.type)
        return None

    def _aggregate(self, node: exp.Expr) -> Released | None:
        if not isinstance(node, exp.AggFunc):
            return None
        function, argument = self._aggregate_parts(node)
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

    def _aggregate_parts(self, node: exp.AggFunc) -> tuple[str, Expr | None]:
        """The registry entry that an aggregate call means, and its argument."""
        if type(node) is exp.Count:
            (argument,) = self.source.take(node, "this", big_int=(True,))
            if argument is None or type(argument) is exp.Star:
                if argument is not None:
                    self.source.take(argument)
                return "count_rows", None
            if type(argument) is exp.Distinct:
                return self._count_distinct(argument)
            expr = self._argument(argument)
            if isinstance(expr, Literal) and expr.value is not None:
                return "count_rows", None
            return "count", expr
        named = {exp.Sum: "sum", exp.Avg: "avg"}.get(type(node))
        if named is None:
            known = ", ".join(entry.signature for entry in AGGREGATES.values())
            self.source.refuse(
                node, "aggregate", f"{node.sql_name()} is not supported yet", f"there are: {known}"
            )
        (argument,) = self.source.take(node, "this")
        if type(argument) is exp.Distinct:
            self.source.refuse(node, "distinct", f"{node.sql_name()}(DISTINCT …) is not supported")
        return named, self._argument(argument)

    def _argument(self, node: exp.Expr) -> Expr:
        if _aggregates(node):
            self.source.refuse(node, "nested_aggregate", "an aggregate within an aggregate needs a subquery")
        return self.scope.scalars.lower(node)

    def _count_distinct(self, node: exp.Distinct) -> tuple[str, None]:
        (items,) = self.source.take(node, "expressions")
        expr = self._argument(items[0]) if len(items) == 1 else None
        if isinstance(expr, Column) and expr.facts.is_unit:
            return "count_units", None
        self.source.refuse(
            node,
            "distinct",
            "COUNT(DISTINCT …) counts privacy units alone for now",
            self._unit_hint(),
        )

    def _unit_hint(self) -> str:
        for _, table in self.scope.tables.values():
            if table.unit_column is not None:
                return f"did you mean COUNT(DISTINCT {table.unit_column})?"
        return "every row is a privacy unit here: write COUNT(*)"

    def _having(self, outer: Scalars) -> Expr | None:
        having = self.select.args.get("having")
        if having is None:
            return None
        (predicate,) = self.source.take(having, "this")
        return _boolean(self.source, predicate, outer.lower(predicate))

    def _order_items(self) -> Iterable[exp.Expr]:
        order = self.select.args.get("order")
        if order is None:
            return ()
        (nodes,) = self.source.take(order, "expressions")
        return tuple(nodes)

    def _ordered(self, outer: Scalars, outputs: Sequence[Output], node: exp.Expr) -> Order:
        inner, descending, nulls_first = self.source.take(node, "this", "desc", "nulls_first")
        bare = self._bare(inner)
        ordinal = self._ordinal(bare)
        name = self._lone_name(bare)
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
        value = Scalars(self.source, self.scope.parameters, self._ungrouped).lower(node)
        if not isinstance(value, Literal) or type(value.value) is not int or value.value < 0:
            self.source.refuse(node, "constant", f"{name.upper()} takes a whole number")
        return value.value


def _name(node: exp.Expr) -> str:
    """What an output without an alias is called; only for nodes that have been lowered."""
    if type(node) is exp.Column and type(node.this) is exp.Identifier:
        return str(node.this.this)
    if type(node) is exp.Count and type(node.this) is exp.Star:
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower", comments=False)[:200]


def _aggregates(node: exp.Expr) -> bool:
    """Whether an aggregate stands anywhere in a node; only steers, nothing is accepted by it."""
    return any(isinstance(part, exp.AggFunc) for part in node.walk())
