"""SELECT trees to plans: the whitelist, and the only validator.

Every node is taken apart argument by argument, and an argument that is not named here is refused. The
user's text stops here: what is sent to the engine is written anew from the plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from dpsql.aggregates import AGGREGATES
from dpsql.aggregates.base import Aggregate
from dpsql.analysis.decimals import MOST_DIGITS, decimal_digits
from dpsql.analysis.floats import is_float
from dpsql.analysis.stability import PublicFacts
from dpsql.analysis.unit_identity import separated_identity
from dpsql.backends.catalog import Catalog
from dpsql.plan.expr import UNIT_IDENTITY, Expr, Order, Released, columns, windowed
from dpsql.plan.nodes import (
    Aggregation,
    Key,
    OuterQuery,
    Output,
    Relation,
    Release,
    SetKind,
    SetOperation,
    Source,
    is_private,
)
from dpsql.plan.size import MAX_CONDITIONS, MAX_STATEMENT, most_conditions, statement_size
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import fold
from dpsql.request.parameters import BoundParameters, Parameter
from dpsql.sql.lower.aggregates import across_units
from dpsql.sql.lower.aggregates.base import has_counted_rows, where_counted
from dpsql.sql.lower.correlated import correlated
from dpsql.sql.lower.derived import answer, common_tables, project, put_together, set_operation, values
from dpsql.sql.lower.determined import Determined
from dpsql.sql.lower.distinct_rows import all_rows, check_counted, compared, counted, once, refuse_values
from dpsql.sql.lower.group_conditions import over_derived
from dpsql.sql.lower.grouping import Grouping, aggregates
from dpsql.sql.lower.grouping_sets import Sets, grouping_sets
from dpsql.sql.lower.interval_ends import asked_of, end_of, end_of_rank
from dpsql.sql.lower.joins import filtered
from dpsql.sql.lower.marks import mark
from dpsql.sql.lower.no_rows import no_rows, without_rows
from dpsql.sql.lower.node_kinds import is_table_function
from dpsql.sql.lower.own_unit import check_hidden, check_unit, refuse_units
from dpsql.sql.lower.per_unit import (
    Groups,
    Plain,
    Selected,
    are_of_one_unit,
    derived,
    distinct_of,
    rows_of,
    selected,
)
from dpsql.sql.lower.public_groups import Lowered
from dpsql.sql.lower.public_left_joins import check_rows, of_public_rows
from dpsql.sql.lower.scope import Context, Scope, named
from dpsql.sql.lower.set_windows import Parts, over_all
from dpsql.sql.lower.statement_time import StatementTime
from dpsql.sql.lower.table_functions import table_function
from dpsql.sql.read.interval_calls import asks_for_ends, which_end
from dpsql.sql.read.parse import Statement
from dpsql.sql.read.rejection import Source as Text

_SELECT = (
    "with_",
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "windows",
    "distinct",
    "order",
    "limit",
    "offset",
)
_OVER_SETS = (
    "a window over several grouping sets would span all of them",
    "put them into a subquery: SELECT …, RANK() OVER (…) FROM (SELECT … GROUP BY ROLLUP(…))",
)
_SET = ("with_", "this", "expression", "distinct", "order", "limit", "offset")


def lower(
    statement: Statement,
    catalog: Catalog,
    facts: PublicFacts,
    parameters: BoundParameters | Sequence[Parameter] = (),
    max_groups: int | None = None,
    *,
    at: dt.datetime,
) -> Lowered:
    """The statement as a plan, and what it needs to know of its releases.

    `facts` looks public tables up, `max_groups` is the query's own contribution bound, `at` when the statement was
    asked, in UTC. Raises
    QueryRejected, with the place in the text, for anything that is not known to be safe.
    """
    given = parameters if isinstance(parameters, BoundParameters) else BoundParameters(tuple(parameters))
    values_ = given.of(statement.parameters, statement.names)
    time = StatementTime(at)
    context = Context(
        statement.source, catalog, values_, time, facts, _derive, _correlate, mark, max_groups=max_groups
    )
    node = statement.query
    if isinstance(node, exp.SetOperation):
        outer = _set_query(common_tables(context, node), node)
    else:
        scope, chosen = _select(context, node, outermost=True)
        check_unit(scope, statement.options.unit)
        outer = chosen if isinstance(chosen, OuterQuery) else chosen.outer_query()
    check_counted(context, outer)
    if outer.limit == 0:
        outer = without_rows(context, node, outer.outputs) or outer
    _check_size(context.source, node, outer)
    at_sample = context.source.position(context.samples[0]) if context.samples else None
    return Lowered(outer, tuple(context.needs), dict(sorted(time.read.items())), at_sample)


def _check_size(source: Text, node: exp.Expr, outer: OuterQuery) -> None:
    """Refuses a statement whose planning, here or in an engine, would take long."""
    if statement_size(outer) > MAX_STATEMENT:
        source.refuse(
            node,
            "too_long",
            f"written out with its derived tables, the statement has over {MAX_STATEMENT:,} operations",
            "split the query; or release a part of it first, and work on the released rows",
        )
    if most_conditions(outer) > MAX_CONDITIONS:
        source.refuse(
            node,
            "too_long",
            f"rows pass more than {MAX_CONDITIONS} conditions joined by AND, with those of derived tables",
            "write one list, as x NOT IN (1, 2), for x <> 1 AND x <> 2",
        )


def _derive(context: Context, node: exp.Expr, alias: str, names: Sequence[str]) -> Source:
    """The source that the query of a derived table or common table expression means."""
    while type(node) is exp.Subquery or type(node) is exp.Paren:
        (node,) = context.source.take(node, "this")
    if isinstance(node, exp.SetOperation):
        inner = common_tables(context, node)
        _check_clauses(context.source, node, _SET)
        if any(node.args.get(name) for name in ("order", "limit", "offset")):
            return context.renamed(node, _paged_source(inner, node, alias), names)
        return context.renamed(node, set_operation(inner, node, alias), names)
    if type(node) is exp.Values:
        return context.renamed(node, values(context, node, alias), names)
    if is_table_function(node):
        return context.renamed(node, table_function(context, node, alias), names)
    if type(node) is not exp.Select:
        context.source.refuse(node, "subquery", "a derived table is a SELECT, or several put together")
    scope, chosen = _select(context, node)
    context.check_outputs(node, chosen.outputs)
    if isinstance(chosen, OuterQuery):
        check_hidden(context, node, chosen)
    source = answer(chosen, alias) if isinstance(chosen, OuterQuery) else derived(scope, node, chosen, alias)
    return context.renamed(node, source, names)


def _select(
    context: Context, node: exp.Select, *, outermost: bool = False
) -> tuple[Scope, Selected | OuterQuery]:
    _check_clauses(context.source, node, _SELECT)
    node = over_derived(context.source, node)
    scope = Scope(common_tables(context, node), bounded=asks_for_ends(node))
    relation = rows_of(scope, node, released=outermost)

    sets = grouping_sets(scope.source, node.args.get("group"))

    def release() -> OuterQuery:
        if sets is not None:
            return _sets_query(scope, node, relation, sets)
        return _Releasing(scope, node, relation).plan()

    if sets is not None:
        within = None if outermost or not is_private(relation) else _sets_within(scope, node, relation, sets)
        return scope, within or release()
    # Whatever its groups are, the outermost SELECT is over all units.
    released = outermost and is_private(relation)
    if released and (empty := no_rows(scope, node, relation)) is not None:
        return scope, empty
    return scope, release() if released else selected(scope, node, relation, release)


def _sets_within(scope: Scope, node: exp.Select, relation: Relation, sets: Sets) -> Selected | None:
    """The groups of each grouping set, below each other, where those of every set are of one unit each; else None."""
    every = [key for keys in sets for key in keys]
    for keys in sets:
        trial = Groups(scope, node, relation, alias=scope.context.fresh(node))
        trial.group_all(keys, trial.items())
        if not are_of_one_unit(trial.keys, relation):
            return None
    together: Source | None = None
    for keys in sets:
        groups = Groups(scope, node, relation, alias=scope.context.fresh(node))
        items = groups.items()
        groups.group_all(keys, items)
        groups.leave_out(every, items)
        outputs, having = groups.outputs(items), groups.having()
        if groups.qualify() is not None or any(windowed(expr) for _, expr in outputs):
            scope.source.refuse(node, "private_window", *_OVER_SETS)
        rows: Relation = groups.grouped()
        rows = rows if having is None else filtered(rows, [having])
        source: Source = project(rows, scope.context.fresh(node), outputs)
        together = (
            source
            if together is None
            else put_together(
                scope.context, node, SetKind.UNION_ALL, together, source, alias=scope.context.fresh(node)
            )
        )
    if together is None or isinstance(together, Scan):
        raise TypeError("there is a grouping set, whose groups are no table")
    every_column = tuple(Output(column.name, column) for column in together.columns)
    page = groups.count("limit"), groups.count("offset") or 0
    return Selected(together, every_column, (), *page, distinct_of(scope, node), None)


def _sets_query(scope: Scope, node: exp.Select, relation: Relation, sets: Sets) -> OuterQuery:
    """One release for each grouping set, below each other; what orders or limits them does so to all."""
    context, every = scope.context, [key for keys in sets for key in keys]
    together: Source | None = None
    names: list[str] = []
    first: Parts | None = None
    besides: tuple[Order, ...] = ()
    asks = False
    for keys in sets:
        outer = _over(scope, node, relation).of_set(keys, every)
        names = [output.name for output in outer.outputs]
        context.check_outputs(node, outer.outputs)
        besides, asks = outer.order, outer.qualify is not None
        parts = Parts.of(outer)
        first = parts if first is None else first
        if parts.shapes != first.shapes:
            context.source.refuse(node, "private_window", *_OVER_SETS)
        source = answer(parts.outer_query(outer), context.fresh(node))
        together = (
            source
            if together is None
            else put_together(context, node, SetKind.UNION_ALL, together, source, alias=context.fresh(node))
        )
    if together is None or first is None or isinstance(together, Scan):
        raise TypeError("there is a grouping set, and its groups are released")
    exprs = over_all(first.shapes, together.columns)
    outputs = tuple(Output(name, expr) for name, expr in zip(names, exprs, strict=False))
    qualify = exprs[-1] if asks else None
    paging = Plain(Scope(context, tables={fold(together.alias): named(together)}), node, together)
    paging.aliases |= {fold(output.name): output.expr for output in outputs}
    limit, offset = paging.count("limit"), paging.count("offset") or 0
    distinct = distinct_of(scope, node)
    hidden = iter(replace(item, expr=expr) for item, expr in zip(besides, exprs[len(names) :], strict=False))
    order = tuple(
        paging.ordered(outputs, item) if paging.is_output(outputs, item) else next(hidden)
        for item in paging.order_items(len(outputs))
    )
    return OuterQuery(together, outputs, None, order, limit, offset, distinct, qualify)


def _over(scope: Scope, node: exp.Select, relation: Relation) -> Grouping:
    """Groups of private rows, which are released, or of public ones."""
    if is_private(relation):
        return _Releasing(scope, node, relation)
    return Groups(scope, node, relation, alias=scope.context.fresh(node))


def _correlate(scope: Scope, node: exp.Select) -> Expr | None:
    def release(inner: Scope, query: exp.Select, relation: Relation, keys: Sequence[Expr]) -> OuterQuery:
        return _Releasing(inner, query, relation, keys=list(keys), correlated=True).plan()

    return correlated(scope, node, release)


def _set_query(context: Context, node: exp.SetOperation) -> OuterQuery:
    """What a set operation of released or public rows means."""
    _check_clauses(context.source, node, _SET)
    operation = set_operation(context, node, context.fresh(node))
    if is_private(operation):
        paging, outputs = _paging(context, node, operation)
        empty = without_rows(context, node, outputs) if paging.count("limit") == 0 else None
        return empty or _refuse_rows(context, node)
    return _paged(context, node, operation)


def _paged_source(context: Context, node: exp.SetOperation, alias: str) -> Source:
    """A set operation with ORDER BY or LIMIT as a derived table; nothing follows from an order of private rows."""
    operation = set_operation(context, node, context.fresh(node))
    if not is_private(operation):
        return answer(_paged(context, node, operation), alias)
    paging, outputs = _paging(context, node, operation)
    if paging.count("limit") is not None or paging.count("offset"):
        _refuse_rows(context, node)
    paging.order(outputs)
    return replace(
        operation, alias=alias, columns=tuple(replace(column, source=alias) for column in operation.columns)
    )


def _refuse_rows(context: Context, node: exp.SetOperation) -> NoReturn:
    context.source.refuse(
        node,
        "no_aggregate",
        "the query would release single rows, which belong to privacy units",
        "aggregate them: SELECT COUNT(*), AVG(…) … FROM (…)",
    )


def _paged(context: Context, node: exp.SetOperation, operation: SetOperation) -> OuterQuery:
    """The rows of a set operation, in the order and number that it says."""
    paging, outputs = _paging(context, node, operation)
    limit, offset = paging.count("limit"), paging.count("offset") or 0
    return OuterQuery(operation, outputs, None, paging.order(outputs), limit, offset)


def _paging(
    context: Context, node: exp.SetOperation, operation: SetOperation
) -> tuple[Plain, tuple[Output, ...]]:
    scope = Scope(context, tables={fold(operation.alias): named(operation)})
    outputs = tuple(Output(column.name, column) for column in operation.columns)
    paging = Plain(scope, node, operation)
    paging.aliases |= {fold(output.name): output.expr for output in outputs}
    return paging, outputs


def _digits(entry: Aggregate, argument: Expr | None) -> tuple[int, int] | None:
    """The digits of an aggregate of DECIMAL values that is a DECIMAL in the engine."""
    held = None if argument is None or not entry.keeps_scale else decimal_digits(argument)
    return held if held is None or entry.within_argument else (MOST_DIGITS, held[1])


def _check_clauses(text: Text, node: exp.Expr, allowed: Iterable[str]) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            title = name.strip("_").replace("_", " ").upper()
            text.refuse(
                value if isinstance(value, exp.Expr) else node,
                "clause",
                f"{node.key.upper()} with {title} is not supported",
            )


@dataclass(slots=True)
class _Releasing(Grouping):
    """The outermost SELECT, on its way over the release boundary."""

    aggregations: list[Aggregation] = field(default_factory=list)
    separate: list[Expr] = field(default_factory=list)
    found: Determined | None = None
    correlated: bool = False

    def plan(self) -> OuterQuery:
        """The release with what is done with it."""
        if self.scope.waiting is None:  # else there are sources of keys that are known already
            self.scope.waiting = []
        items = self.items()
        distinct = distinct_of(self.scope, self.select)
        self.group(items)
        if distinct and not self.select.args.get("group") and not any(aggregates(node) for _, node in items):
            # Distinct rows are groups without aggregates.
            distinct = False
            # Beside other columns, one value for all rows makes no other rows.
            varying = [node for _, node in items if not self.is_constant(node)]
            for node in varying or (node for _, node in items):
                self.group_by(node, node)
        outputs = [Output(name, expr) for name, expr in self.outputs(items)]
        having, qualify = self.having(), self.qualify()
        if self.is_one_group:
            having = self._with_rows_alone(having)
        order = self.order(outputs)
        limit, offset = self.count("limit"), self.count("offset") or 0
        source: Release | Relation
        if self.separate and not self.aggregations and not self.keys:
            source = self.scope.tables[self.scope.nothing(self.select)].relation
        else:
            source = self._release()
        return self._with_rows(
            OuterQuery(source, tuple(outputs), having, order, limit, offset, distinct, qualify)
        )

    def _with_rows_alone(self, having: Expr | None) -> Expr:
        """Return the condition on the one group of all rows, which DuckDB does not have where there are none."""
        there = has_counted_rows(self, self.select)
        if there is None:
            self.source.refuse(
                self.select.args["group"],
                "constant",
                "a constant can be the only group key beside COUNT(*) alone",
                "add COUNT(*), or leave out GROUP BY",
            )
        return there if having is None else self.scope.scalars.call(self.select, "and", there, having)

    @property
    def shows(self) -> bool:
        """What it gives is released."""
        return True

    def _release(self) -> Release:
        if not self.aggregations and not self.keys:
            self.source.refuse(
                self.select,
                "no_aggregate",
                "the query would release single rows, which belong to privacy units",
                "aggregate them: SELECT COUNT(*), AVG(…) … GROUP BY …",
            )
        keys = tuple(Key(f"k{index}", expr) for index, expr in enumerate(self.keys))
        rows = self.rows()
        if self.aggregations and once(rows) is not None:
            rows = all_rows(self.scope.context, self.select, rows)
        release = Release(rows, keys, tuple(self.aggregations), self.scope.context.max_groups)
        return of_public_rows(self.scope, self.select, release)

    def outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """The release with these outputs."""
        return self._with_rows(OuterQuery(self._release(), outputs, having))

    def _with_rows(self, outer: OuterQuery) -> OuterQuery:
        """The query, with the public rows that it reads of each group beside the release."""
        return outer if self.found is None else self.found.outer_query(outer)

    def determined(self, argument: exp.Expr) -> Expr | None:
        """What an expression is in all rows of a group, if the keys determine it; None also for what is no expression."""
        if (
            not self.keys
            or self.correlated
            or argument.find(exp.Query, exp.AggFunc, exp.Distinct, exp.Window)
        ):
            return None
        expr = self.scope.scalars.lower(argument)
        if not any(columns(expr)):
            return None
        if self.found is None:
            known: dict[Expr, Expr] = {key: self.key(index) for index, key in enumerate(self.keys)}
            self.found = Determined.of(self.scope.context, self.select, self.input, known)
        return self.found.value(expr)

    def value_of_key(self, node: exp.Expr, key: Expr) -> Expr:
        """Return what MIN and the like of a group key are: the key, but NULL where a COUNT(*) beside it says that nobody is there."""
        return where_counted(self, node, key)

    def key(self, index: int) -> Released:
        """A key of the released table."""
        key = self.keys[index]
        return Released(f"k{index}", key.type, decimal=decimal_digits(key), float32=is_float(key))

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Refuses the unit's id, of which every group would be too small to show, and what is always NULL."""
        if expr.type is Type.NULL:
            self.source.refuse(node, "constant", "NULL cannot be a group key", "leave it out of GROUP BY")
        if separated_identity(expr, self.input) == UNIT_IDENTITY:
            refuse_units(self.source, node, expr, self.input)

    def aggregate(self, node: exp.AggFunc) -> Expr:
        """An aggregate of the released table, or what is computed of several."""
        expr, separate = across_units(self, node)
        if separate:
            self.separate.append(expr)
        return expr

    def released(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> Released:
        """A column of the released table that holds a statistic."""
        source = once(self.input)
        if source is not None and (function != "count_distinct" or compared(source)):
            refuse_values(self.source, node, source)
        return self._statistic(node, function, argument, rank)

    def _statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> Released:
        if function == "count_rows":
            check_rows(self.scope, node)
        entry = AGGREGATES[function]
        result = entry.result_type(None if argument is None else argument.type)
        if result is None:
            self.source.refuse(
                node,
                "type",
                f"{entry.signature} does not take {argument.type if argument else 'nothing'}",
                "of a time of day: AVG(HOUR(x) * 60 + MINUTE(x))"
                if argument is not None and argument.type is Type.TIME
                else "convert with CAST(… AS DOUBLE)",
            )
        for known in self.aggregations:
            if (known.function, known.argument, known.rank, known.interval_end) == (
                function,
                argument,
                rank,
                0,
            ):
                return Released(known.name, known.type, decimal=_digits(entry, argument))
        name = f"a{len(self.aggregations)}"
        self.aggregations.append(Aggregation(name, function, argument, result, rank))
        return Released(name, result, decimal=_digits(entry, argument))

    def counted(self, node: exp.AggFunc, function: str, argument: Expr | None) -> Expr:
        """COUNT(*) or COUNT(x): of distinct rows across units, by counting values."""
        source = once(self.input)
        if source is None:
            return self.released(node, function, argument)
        return counted(self.scope, node, source, argument, lambda value: self._of_values(node, value))

    def _of_values(self, node: exp.AggFunc, value: Expr) -> Expr:
        return self._statistic(node, "count_distinct", value)

    def end(self, node: exp.Expr) -> Expr | None:
        """The end of the interval of an aggregate of the released table, a factor and a shift aside."""
        asked, known = asked_of(self.source, node), len(self.aggregations)
        name = self.lone_name(asked)
        # An alias comes before a column here: of a private column there is no interval.
        expr = self.aliases.get(name) if name is not None else None
        if isinstance(asked, exp.AggFunc):
            expr = self.aggregate(asked)
        elif expr is None and (type(asked) is exp.Filter or aggregates(asked)):
            expr = self.outer.lower(asked)
        if expr is None:
            return None
        which = which_end(node) or ""
        return end_of_rank(expr, which, self.aggregations, known) or end_of(expr, which, self.aggregations)
