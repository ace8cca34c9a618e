"""The context of a statement: what all its parts share, the limits on its size, and what it requires of its releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from dpsql.analysis.stability import PublicFacts
from dpsql.backends.analyst_schema import AnalystSchema
from dpsql.errors import Position
from dpsql.plan import nodes
from dpsql.plan.expressions import Expr, Scalar
from dpsql.plan.nodes import OuterQuery, Release
from dpsql.plan.steps import MAX_CONDITIONS, MAX_STATEMENT, bound_conditions, compute_statement_size
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import Parameter
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.parse.rejection import QueryText

# Requirements on the groups of a release before it is planned: that they are public, and their values.


@dataclass(frozen=True, slots=True, eq=False)
class PublicGroupsRequirement:
    """A release that must release all its groups: all of them are public, and none is hidden for being rare.

    `refuse` raises the refusal of any other release, at its place in the text.

    Lowering states what a release must fulfill; the engine decides it once the release is analyzed.
    """

    release: Release
    refuse: Callable[[], NoReturn]


@dataclass(frozen=True, slots=True, eq=False)
class CompleteGroupsRequirement(PublicGroupsRequirement):
    """A release that must release all its groups if something is computed over all of them, as in SQL."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicValuesRequirement(PublicGroupsRequirement):
    """A release with the same requirement, whose public values are written into the statement.

    `build_value` returns the expression that replaces `placeholder`, from the public values of each key. It may refuse them.
    """

    placeholder: Scalar
    build_value: Callable[[Sequence[Sequence[Value]]], Expr]


@dataclass(frozen=True, slots=True)
class LoweredStatement:
    """The plan of a statement's text, and the requirements on its releases."""

    outer: OuterQuery
    requirements: tuple[PublicGroupsRequirement, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    """The constants that the statement reads from its time, by name."""
    sample: Position | None = None
    """The position of the statement's sample of units, if it has one."""
    notices: tuple[str, ...] = ()
    """How the statement's meaning differs from that of its text."""


# Context of a statement: what all its parts share, and the limits on the size of its plan.


MAX_SOURCES = 256
"""The most tables and subqueries of a plan: planning takes about a millisecond for each."""
NEW, REPEATED = 4, 1
"""The planning cost of a source, and of one in a common table expression that is read again."""
MAX_DERIVED_DEPTH = 16


class EnclosingScope(Protocol):
    """The rows of the query around a derived table."""

    def has_visible_column(self, name: str, owner: str | None) -> bool:
        """Return whether a name is a column of these rows, or of rows around them."""
        ...


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, with the earlier ones that it may name, and the enclosing rows, which it may not."""

    query: exp.Expr
    names: Sequence[str]
    earlier_tables: Mapping[str, CommonTable]
    enclosing_scope: EnclosingScope | None = None
    recursive_name: str | None = None
    """Its own folded name, if its query reads it."""


@dataclass(frozen=True, slots=True)
class CrossingWindow:
    """A window over rows of several privacy units, with its definition where a name stands for it.

    `orders_null` says that a value by which rows are ordered may be NULL.
    """

    node: exp.Window
    partition: Sequence[exp.Expr]
    order: exp.Expr | None
    frame: exp.Expr | None
    orders_null: bool = True


@dataclass(slots=True)
class SourceCounter:
    """The number of tables and subqueries of a plan so far, each as often as it is emitted, and the work on recursive ones."""

    number: int = 0
    cost: int = 0
    recursion_work: int = 0


@dataclass(frozen=True, slots=True)
class StatementContext:
    """The context that all parts of one statement share.

    `lower_derived_query` lowers the query of a derived table, `lower_correlated_select` a subquery with a value for each
    outer row, `lower_subquery_predicate` EXISTS or IN over a subquery as a truth value of each row. `requirements` are facts
    about their releases that must hold.
    """

    source: QueryText
    catalog: AnalystSchema
    parameters: Sequence[Parameter]
    time: StatementTime
    facts: PublicFacts
    lower_derived_query: Callable[[StatementContext, exp.Expr, str, Sequence[str]], nodes.Source]
    lower_correlated_select: Callable[[Any, exp.Select], Expr | None]
    lower_subquery_predicate: Callable[[Any, exp.Expr], Expr]
    common_tables: Mapping[str, CommonTable] = field(default_factory=dict)
    depth: int = 0
    source_counter: SourceCounter = field(default_factory=SourceCounter)
    lowered_common_tables: dict[int, tuple[exp.Expr, nodes.Source, int]] = field(default_factory=dict)
    """The common table expressions that were read, by the identity of their queries, and how many sources each has.

    The queries are kept too: some are parts of copies that nothing else keeps, and another could get their identity.
    """
    max_groups: int | None = None
    requirements: list[PublicGroupsRequirement] = field(default_factory=list)
    distinct_nodes: list[exp.Expr] = field(default_factory=list)
    """The nodes with distinct rows across units."""
    sample_nodes: list[exp.Expr] = field(default_factory=list)
    """The clauses by which units are sampled."""
    crossing_windows: list[CrossingWindow] = field(default_factory=list)
    """The window over rows of several units for which the statement is refused."""
    notices: list[str] = field(default_factory=list)
    """How the statement's meaning differs from that of its text."""
    enclosing_scope: EnclosingScope | None = None
    """The rows around a derived table, which it cannot name; a refusal says so."""

    def enter_subquery(
        self,
        node: exp.Expr,
        common_tables: Mapping[str, CommonTable],
        enclosing_scope: EnclosingScope | None = None,
    ) -> StatementContext:
        """Return the context of a query within this one."""
        if self.depth == MAX_DERIVED_DEPTH:
            self.source.refuse(
                node, "too_deep", f"derived tables are nested more than {MAX_DERIVED_DEPTH} levels deep"
            )
        return replace(
            self, depth=self.depth + 1, common_tables=common_tables, enclosing_scope=enclosing_scope
        )

    def check_name(self, node: exp.Expr, name: str) -> None:
        """Refuse the names that emitted SQL gives to its own parts, the unit of a row among them."""
        if name.startswith("#"):
            self.source.refuse(
                node,
                "reserved_name",
                f"the name {name} begins with #, which is reserved",
                "choose another name",
            )

    def check_outputs(self, node: exp.Expr, outputs: Iterable[nodes.Output]) -> None:
        """Refuse outputs that cannot be columns of a derived table: of reserved names, and lists."""
        for output in outputs:
            self.check_name(node, output.name)
            if output.expr.type is Type.LIST:
                self.source.refuse(
                    node,
                    "list",
                    "a list or map of values is only allowed in the outermost SELECT",
                    "write one column for each value, QUANTILE_CONT(x, 0.25) AS low, which together cost the "
                    "same; or one row for each bin, SELECT bin, COUNT(*) … GROUP BY bin",
                )

    def rename_columns(self, node: exp.Expr, source: nodes.Source, names: Sequence[str]) -> nodes.Source:
        """Return the derived source with its first columns known by other names."""
        if isinstance(source, Scan) or not names:
            return source
        if len(names) > len(source.columns):
            self.source.refuse(
                node, "column", f"the alias lists {len(names)} names for {len(source.columns)} columns"
            )
        given = (*names, *(column.name for column in source.columns[len(names) :]))
        for index, name in enumerate(given):
            self.check_name(node, name)
            if normalize_name(name) in map(normalize_name, given[:index]):
                self.source.refuse(node, "ambiguous", f"two columns are called {name}", "rename one of them")
        columns = (replace(column, name=name) for column, name in zip(source.columns, given, strict=True))
        return replace(source, columns=tuple(columns))

    def allocate_alias(self, node: exp.Expr) -> str:
        """Return a name that no table of the query has."""
        return f"#{self.count_sources(node, 1, NEW)}"

    def count_sources(self, node: exp.Expr, more: int, cost: int) -> int:
        """Count further sources, each with a planning cost, and return how many there were before."""
        before = self.source_counter.number
        self.source_counter.number += more
        self.source_counter.cost += more * cost
        if self.source_counter.cost > MAX_SOURCES * NEW:
            self.source.refuse(
                node,
                "too_long",
                f"the plan would have more than {MAX_SOURCES} tables and subqueries, or "
                f"{MAX_SOURCES * NEW // REPEATED:,} of common table expressions that are read repeatedly",
                "split the query",
            )
        return before


def check_statement_size(source: QueryText, node: exp.Expr, outer: nodes.OuterQuery) -> None:
    """Refuse a statement whose planning, here or in an engine, would take long."""
    if compute_statement_size(outer) > MAX_STATEMENT:
        source.refuse(
            node,
            "too_long",
            f"the statement has over {MAX_STATEMENT:,} operations, those of its derived tables included",
            "split the query; or release a part of it first, and query the released rows",
        )
    if bound_conditions(outer) > MAX_CONDITIONS:
        source.refuse(
            node,
            "too_long",
            f"WHERE has more than {MAX_CONDITIONS} conditions joined by AND, those of derived tables "
            "included",
            "write one list: x NOT IN (1, 2) for x <> 1 AND x <> 2",
        )
