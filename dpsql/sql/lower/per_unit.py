"""SELECT within a side of the release boundary: rows of units to rows of the same units, or public rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.aggregates.per_unit import WITHIN
from dpsql.analysis.decimals import MOST_DIGITS, decimal_digits, scale
from dpsql.analysis.floats import is_float
from dpsql.analysis.integer_bits import WIDE, bits
from dpsql.analysis.intervals import MAX_MAGNITUDE, conditions, interval
from dpsql.analysis.listed_keys import is_listed
from dpsql.analysis.stability import most_rows
from dpsql.analysis.unit_identity import finer_keys, identity
from dpsql.plan.expr import Column, Expr, Facts, Order, windowed
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import (
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Relation,
    Source,
    is_private,
)
from dpsql.plan.render import phrase
from dpsql.plan.types import Type
from dpsql.policy import fold
from dpsql.sql.lower.aggregates import of_exact_groups
from dpsql.sql.lower.calls import is_widened
from dpsql.sql.lower.derived import answer, facts_of, is_identified, output_columns, project
from dpsql.sql.lower.grouping import MAX_OUTPUTS, Grouping, aggregates
from dpsql.sql.lower.joins import filtered, named_items
from dpsql.sql.lower.own_unit import check_groups
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.semi_joins import split_where
from dpsql.sql.lower.unit_windows import with_windows


def rows_of(scope: Scope, select: exp.Select, *, released: bool = False) -> Relation:
    """The rows of FROM and WHERE, as far as it matters where they are released."""
    relation, _ = split_where(scope, select, released=released)
    return relation


@dataclass(frozen=True, slots=True)
class Selected:
    """What a SELECT over rows, or over groups of a unit's or of public rows, means."""

    rows: Relation
    outputs: tuple[Output, ...]
    order: tuple[Order, ...]
    limit: int | None
    offset: int
    distinct: bool
    qualify: Expr | None

    @property
    def limited(self) -> bool:
        """Whether it has the first rows of an order alone."""
        return self.limit is not None or bool(self.offset)

    @property
    def paged(self) -> bool:
        """Whether an order of rows matters, or what windows say of them."""
        return bool(
            self.order
            or self.limited
            or self.qualify is not None
            or any(windowed(output.expr) for output in self.outputs)
        )

    def source(self, alias: str) -> Project:
        """The derived table."""
        items = [(output.name, output.expr) for output in self.outputs]
        return project(self.rows, alias, items, distinct=self.distinct)

    def outer_query(self) -> OuterQuery:
        """The query of public rows."""
        page = self.order, self.limit, self.offset
        return OuterQuery(self.rows, self.outputs, None, *page, self.distinct, self.qualify)


def selected(
    scope: Scope, node: exp.Select, relation: Relation, release: Callable[[], OuterQuery]
) -> Selected | OuterQuery:
    """What a SELECT means: rows and groups of units or of public rows, or, by `release`, what is released of them.

    Groups of private rows are released where their keys do not hold the unit, nor what is declared to be one unit's.
    """
    grouping: Grouping
    scope.waiting = []
    parts = [*node.expressions, *filter(None, [node.args.get("order")])]
    if node.args.get("group") or node.args.get("having") or any(map(aggregates, parts)):
        grouping = Groups(scope, node, relation, alias=scope.context.fresh(node))
        items = grouping.items()
        grouping.group(items)
        if is_private(relation) and not are_of_one_unit(grouping.keys, relation):
            check_groups(scope.source, node.args.get("group") or node, grouping.keys, relation)
            return release()
        outputs = [Output(*pair) for pair in grouping.outputs(items)]
        having, qualify = grouping.having(), grouping.qualify()
        order = grouping.order(outputs)
        grouping.rows()
        rows: Relation = grouping.grouped()
        rows = rows if having is None else filtered(rows, [having])
    else:
        grouping = Plain(scope, node, relation)
        outputs = [Output(*pair) for pair in grouping.columns()]
        qualify = grouping.qualify()
        order = grouping.order(outputs)
        rows = grouping.rows()
    page = grouping.count("limit"), grouping.count("offset") or 0
    return Selected(rows, tuple(outputs), order, *page, distinct_of(scope, node), qualify)


def without_windows(scope: Scope, node: exp.Select, chosen: Selected) -> Selected:
    """The same rows of units, with what windows say of them as columns."""
    asked = [output.expr for output in chosen.outputs]
    asked += [] if chosen.qualify is None else [chosen.qualify]
    if not any(map(windowed, asked)):
        return chosen
    rows, found = with_windows(scope.context, node, chosen.rows, asked)
    outputs = tuple(Output(output.name, expr) for output, expr in zip(chosen.outputs, found, strict=False))
    filtered_rows: Relation = rows if chosen.qualify is None else filtered(rows, [found[-1]])
    return replace(chosen, rows=filtered_rows, outputs=outputs, qualify=None)


def distinct_of(scope: Scope, node: exp.Expr) -> bool:
    """Whether a SELECT is DISTINCT."""
    distinct = node.args.get("distinct")
    if distinct is None:
        return False
    (on,) = scope.source.take(distinct, "on")
    if on is not None:
        scope.source.refuse(node, "distinct", "DISTINCT ON would release single rows", "use GROUP BY")
    return True


def derived(scope: Scope, node: exp.Select, chosen: Selected, alias: str) -> Source:
    """The derived table of a SELECT that releases nothing."""
    private = is_private(chosen.rows)
    if private:
        chosen = without_windows(scope, node, chosen)
        # Nothing follows from an order of rows without LIMIT.
        chosen = replace(chosen, order=chosen.order if chosen.limited else ())
    if private and chosen.paged:
        scope.source.refuse(
            node,
            "private_order",
            "the order of private rows cannot be released, nor which come first",
            "order and limit what is released, in the outermost SELECT",
        )
    if chosen.paged:
        return answer(chosen.outer_query(), alias)
    table = chosen.source(alias)
    if private and table.distinct and not is_identified(scope.context, node, table):
        return replace(table, distinct=False, once=True)
    return table


@dataclass(slots=True)
class Plain(Grouping):
    """Rows as they are: nothing is grouped."""

    @property
    def outer(self) -> Scalars:
        """Lowers expressions over the rows."""
        return self.scope.scalars

    def outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """The rows, where they are public."""
        return OuterQuery(self.input, outputs, having)

    def key(self, index: int) -> Expr:
        """There are no keys."""
        raise LookupError(index)

    def aggregate(self, node: exp.AggFunc) -> Expr:
        """There are no aggregates."""
        raise LookupError(node.key)

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """There are no keys."""

    def columns(self) -> list[tuple[str, Expr]]:
        """The columns that the SELECT items mean."""
        pairs, known = (
            list[tuple[str, Expr]](),
            named_items(self.select) if isinstance(self.select, exp.Select) else {},
        )
        for item in self.select.expressions:
            pairs += output_columns(self.scope, item, self.over_groups)
            if fold(item.alias) in known:
                self.scope.aliases[fold(item.alias)] = known[fold(item.alias)]
        self.scope.aliases = {}
        if not pairs:
            self.source.refuse(self.select, "star", "* stands for no column here")
        if len(pairs) > MAX_OUTPUTS:
            self.source.refuse(self.select, "too_long", f"SELECT names at most {MAX_OUTPUTS} columns")
        self.aliases |= {fold(name): expr for name, expr in pairs}
        return pairs


def identifies(key: Expr, relation: Relation) -> bool:
    """Whether rows of `relation` with equal keys have one unit."""
    return identity(key, relation) is not None


def are_of_one_unit(keys: Sequence[Expr], relation: Relation) -> bool:
    """Whether rows with equal keys have one unit, by what they identify or by what the policy declares of links.

    Of a key whose values the policy lists, the groups are known, and are released.

    Claim: groups by such keys are groups of rows of one unit each, whatever the data are.
    Why: the emitted SQL groups by the unit besides the keys. Where a declaration is false, a value that several units have
    is a group of each of them, and so is NULL.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
    """
    finer = finer_keys(keys, relation)
    return any(identifies(key, relation) for key in keys) or not all(
        is_listed(key, relation, {}) for key in finer
    )


@dataclass(slots=True)
class Groups(Grouping):
    """Groups of the rows of one unit, or of public rows."""

    alias: str = ""
    aggregated: list[PerUnitAggregate] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)

    def grouped(self) -> PerUnitGroupBy:
        """The groups with what was asked of them."""
        columns = [self.key(index) for index in range(len(self.keys))]
        columns += [self._column(index) for index in range(len(self.aggregated))]
        return PerUnitGroupBy(
            self.input, self.alias, tuple(self.keys), tuple(self.aggregated), tuple(columns)
        )

    @property
    def rows_so_far(self) -> Relation:
        """The groups that windows are laid on."""
        return self.grouped()

    def outer_query(self, outputs: tuple[Output, ...], having: Expr | None) -> OuterQuery:
        """The groups, where their rows are public."""
        return OuterQuery(self.grouped(), outputs, having)

    def key(self, index: int) -> Column:
        """A key of the groups."""
        return Column(self.alias, f"k{index}", facts_of(self.keys[index], self.input))

    def _column(self, index: int) -> Column:
        return Column(self.alias, f"a{index}", self.facts[index])

    def check_key(self, node: exp.Expr, expr: Expr) -> None:
        """Any expression over a unit's rows groups them."""

    def aggregate(self, node: exp.AggFunc) -> Expr:
        """An aggregate of the groups."""
        return of_exact_groups(self, node)

    def exact(
        self,
        node: exp.AggFunc,
        function: str,
        argument: Expr | None,
        by: Expr | None = None,
        rank: Fraction | None = None,
    ) -> Column:
        """A column of the groups that holds an exact aggregate."""
        entry = WITHIN[function]
        result = entry.result(None if argument is None else argument.type)
        item = PerUnitAggregate(function, argument, by, rank)
        if result is None or (by is not None and by.type is Type.NULL):
            given = ", ".join(str(expr.type) for expr in item.arguments)
            self.source.refuse(node, "type", f"{entry.signature} does not take {given}")
        if item not in self.aggregated:
            around = interval(argument, conditions(self.input)) if argument is not None else None
            unbounded = around is not None and not around.within(MAX_MAGNITUDE)
            private = is_private(self.input)
            if private and entry.adds and unbounded and argument and argument.type is Type.DOUBLE:
                self.source.refuse(
                    node,
                    "unbounded",
                    f"{phrase(argument)} has no bounds: it may be anything in {around}, so it cannot be added up exactly",
                    "clamp it, as in SUM(LEAST(GREATEST(x, 0), 100)), or declare bounds in the policy",
                )
            ends = ANYWHERE
            if private:
                rows = most_rows(self.input, self.scope.context.facts)
                ends = entry.interval(ANYWHERE if around is None else around, rows)
            self.aggregated.append(item)
            held = argument if entry.keeps_scale else None
            digits = None if held is None else scale(held)
            decimal = None if held is None else decimal_digits(held)
            if decimal is not None and entry.adds:
                decimal = MOST_DIGITS, decimal[1]
            single = held is not None and not entry.adds and is_float(held)
            self.facts.append(
                Facts(
                    result,
                    "",
                    ends,
                    nullable=entry.nullable,
                    scale=digits,
                    decimal=decimal,
                    float32=single,
                    bits=WIDE if held is None or entry.adds else bits(held),
                    widened=held is not None and is_widened(held),
                )
            )
        return self._column(self.aggregated.index(item))
