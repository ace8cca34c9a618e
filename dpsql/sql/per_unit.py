"""SELECT below the release boundary: rows of units to rows of the same units."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.aggregates.within import WITHIN
from dpsql.analysis.analyse import MAX_MAGNITUDE
from dpsql.analysis.bounds import conditions, interval
from dpsql.analysis.stability import most_rows
from dpsql.plan.expr import Column, Expr, Facts
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import Grouped, Project, Relation, Source, Within, is_private
from dpsql.plan.types import Type
from dpsql.sql.derived import check_identified, facts_of, project
from dpsql.sql.grouping import Grouping, aggregates
from dpsql.sql.joins import assemble, condition, conjuncts, filtered, from_clause
from dpsql.sql.matching import is_matching, matching
from dpsql.sql.scope import Context, Scope

_NAMED = {exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}


def rows_of(scope: Scope, select: exp.Select) -> Relation:
    """The rows of FROM and WHERE."""
    items = from_clause(scope, select)
    where: list[Expr] = []
    matched: list[exp.Expr] = []
    for node in _conditions(scope, select):
        if is_matching(node):
            matched.append(node)
            continue
        where += conjuncts(condition(scope, node))
    relation = assemble(scope, items, where)
    for node in matched:
        relation = matching(scope, relation, node)
    return relation


def _conditions(scope: Scope, select: exp.Select) -> list[exp.Expr]:
    """The conditions that WHERE joins by AND, in order."""
    where = select.args.get("where")
    if where is None:
        return []
    found: list[exp.Expr] = []
    stack = list(scope.source.take(where, "this"))
    while stack:
        node = stack.pop()
        if type(node) is exp.And:
            left, right = scope.source.take(node, "this", "expression")
            stack += [right, left]
        elif type(node) is exp.Paren and type(node.this) in (exp.And, exp.Paren, exp.Exists, exp.In, exp.Not):
            stack += scope.source.take(node, "this")
        else:
            found.append(node)
    return found


def select(context: Context, node: exp.Select, alias: str) -> Source:
    """The derived table that a SELECT means."""
    scope = Scope(context)
    relation = rows_of(scope, node)
    distinct = node.args.get("distinct")
    if distinct is not None:
        (on,) = context.source.take(distinct, "on")
        if on is not None:
            context.source.refuse(node, "distinct", "DISTINCT ON would show chosen rows", "use GROUP BY")
    if node.args.get("group") or node.args.get("having") or any(map(aggregates, node.expressions)):
        return _grouped(context, scope, node, relation, alias, distinct=distinct is not None)
    items = [pair for item in node.expressions for pair in _columns(scope, item)]
    derived = project(relation, alias, items, distinct=distinct is not None)
    _check(context, node, derived)
    return derived


def _check(context: Context, node: exp.Expr, derived: Project) -> None:
    if derived.distinct and is_private(derived):
        check_identified(context, node, derived.columns)


def _columns(scope: Scope, node: exp.Expr) -> list[tuple[str, Expr]]:
    """The columns that a SELECT item means."""
    if type(node) is exp.Star:
        scope.source.take(node)
        return [(column.name, column) for column in scope.every(node)]
    if type(node) is exp.Column and type(node.this) is exp.Star:
        star, table = scope.source.take(node, "this", "table")
        scope.source.take(star)
        owner = str(scope.source.take(table, "this", quoted=(True,))[0])
        return [(column.name, column) for column in scope.every(node, owner)]
    name = None
    if type(node) is exp.Alias:
        node, identifier = scope.source.take(node, "this", "alias")
        name = str(scope.source.take(identifier, "this", quoted=(True,))[0])
    expr = scope.scalars.lower(node)
    if name is None:
        name = expr.name if isinstance(expr, Column) else node.sql(dialect="duckdb", comments=False)[:200]
    return [(name, expr)]


def _grouped(
    context: Context, scope: Scope, node: exp.Select, relation: Relation, alias: str, *, distinct: bool
) -> Source:
    within = _Within(scope, node, relation, alias=context.fresh(node))
    items = within.items()
    within.group(items)
    outputs = within.outputs(items)
    having = within.having()
    if is_private(relation) and not any(_identifies(key) for key in within.keys):
        context.source.refuse(
            node,
            "nested_release",
            "this subquery aggregates over privacy units, which only the outermost SELECT may do for now",
            "add the unit's column to its GROUP BY, or ask for it alone",
        )
    groups: Relation = within.grouped()
    if having is not None:
        groups = filtered(groups, [having])
    derived = project(groups, alias, outputs, distinct=distinct)
    _check(context, node, derived)
    return derived


def _identifies(key: Expr) -> bool:
    return isinstance(key, Column) and key.facts.identity is not None


@dataclass(slots=True)
class _Within(Grouping):
    """Groups of the rows of one unit."""

    alias: str = ""
    aggregated: list[Within] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)

    def grouped(self) -> Grouped:
        """The groups with what was asked of them."""
        columns = [self.key(index) for index in range(len(self.keys))]
        columns += [self._column(index) for index in range(len(self.aggregated))]
        return Grouped(self.input, self.alias, tuple(self.keys), tuple(self.aggregated), tuple(columns))

    def key(self, index: int) -> Column:
        """A key of the groups."""
        return Column(self.alias, f"k{index}", facts_of(self.keys[index], self.input))

    def _column(self, index: int) -> Column:
        return Column(self.alias, f"a{index}", self.facts[index])

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Any expression over a unit's rows groups them."""

    def aggregate(self, node: exp.AggFunc) -> Column:
        """An aggregate of the groups."""
        function, argument = self._parts(node)
        entry = WITHIN[function]
        result = entry.result(None if argument is None else argument.type)
        if result is None:
            self.source.refuse(
                node, "type", f"{entry.signature} does not take {argument.type if argument else ''}"
            )
        item = Within(function, argument)
        if item not in self.aggregated:
            around = interval(argument, conditions(self.input)) if argument is not None else None
            unbounded = around is not None and not around.within(MAX_MAGNITUDE)
            if entry.adds and unbounded and argument is not None and argument.type is Type.DOUBLE:
                self.source.refuse(
                    node,
                    "unbounded",
                    f"{argument} has no bounds ({around}), so it cannot be added up exactly",
                    "clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
                )
            rows = most_rows(self.input, self.scope.context.facts)
            ends = entry.interval(ANYWHERE if around is None else around, rows)
            self.aggregated.append(item)
            self.facts.append(Facts(result, "", ends))
        return self._column(self.aggregated.index(item))

    def _parts(self, node: exp.AggFunc) -> tuple[str, Expr | None]:
        if type(node) is exp.Count:
            (argument,) = self.source.take(node, "this", big_int=(True,))
            if type(argument) is exp.Distinct:
                (items,) = self.source.take(argument, "expressions")
                if len(items) != 1:
                    self.source.refuse(node, "distinct", "COUNT(DISTINCT …) takes one column")
                return "count_distinct", self.argument(items[0])
            return self.counted(argument)
        named = _NAMED.get(type(node))
        if named is None:
            known = ", ".join(entry.signature for entry in WITHIN.values())
            self.source.refuse(
                node, "aggregate", f"{node.sql_name()} is not supported yet", f"there are: {known}"
            )
        (argument,) = self.source.take(node, "this")
        if type(argument) is exp.Distinct:
            self.source.refuse(node, "distinct", f"{node.sql_name()}(DISTINCT …) is not supported")
        return named, self.argument(argument)
