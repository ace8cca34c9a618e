"""Scopes: the tables of one FROM clause and the names of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from dpsql.analysis.stability import PublicFacts
from dpsql.backends.catalog import Catalog, CatalogTable
from dpsql.plan import nodes
from dpsql.plan.cardinality import is_single
from dpsql.plan.dependencies import needs
from dpsql.plan.expr import Column, Expr, Facts, Scalar
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type
from dpsql.policy import fold, table_parts
from dpsql.policy.problem import did_you_mean
from dpsql.request.parameters import Parameter
from dpsql.sql.lower.interval_ends import asked_of, end_column, refuse, with_ends
from dpsql.sql.lower.node_kinds import is_matching, is_quantified, is_table_function
from dpsql.sql.lower.public_groups import PublicGroups
from dpsql.sql.lower.samples import sampled
from dpsql.sql.lower.scalars import Scalars, is_unnest
from dpsql.sql.lower.statement_time import StatementTime
from dpsql.sql.lower.struct_fields import field_of, named_field, require_field, takes_field
from dpsql.sql.lower.table_names import scan, schema_of, table_of
from dpsql.sql.read.interval_calls import which_end
from dpsql.sql.read.rejection import Source

MAX_SOURCES = 256
"""The most tables and subqueries of a plan: planning takes about a millisecond for each."""
NEW, REPEATED = 4, 1
"""What planning costs for a source, and for one of a common table expression that is read again."""
MAX_JOINED = 64
"""The most tables of one FROM: putting n joins in order takes n² steps."""
MAX_DERIVED_DEPTH = 16


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, with those that it may refer to itself, and the rows around it, which it cannot."""

    query: exp.Expr
    names: Sequence[str]
    before: Mapping[str, CommonTable]
    around: Scope | None = None


@dataclass(slots=True)
class Sources:
    """How many tables and subqueries a plan has so far, each as often as it is written out."""

    number: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """What all parts of one statement share.

    `derive` lowers the query of a derived table, `correlate` a subquery with a value for each outer row, `mark` EXISTS or
    IN over a subquery as a truth value of each row. `needs` is what
    they need to know of their releases.
    """

    source: Source
    catalog: Catalog
    parameters: Sequence[Parameter]
    time: StatementTime
    facts: PublicFacts
    derive: Callable[[Context, exp.Expr, str, Sequence[str]], nodes.Source]
    correlate: Callable[[Scope, exp.Select], Expr | None]
    mark: Callable[[Scope, exp.Expr], Expr]
    common: Mapping[str, CommonTable] = field(default_factory=dict)
    depth: int = 0
    sources: Sources = field(default_factory=Sources)
    lowered: dict[int, tuple[exp.Expr, nodes.Source, int]] = field(default_factory=dict)
    """The common table expressions that were read, by the identity of their queries, and how many sources each has.

    The queries are kept too: some are parts of copies that nothing else keeps, and another could get their identity.
    """
    max_groups: int | None = None
    needs: list[PublicGroups] = field(default_factory=list)
    once: list[exp.Expr] = field(default_factory=list)
    """Where distinct rows across units stand."""
    samples: list[exp.Expr] = field(default_factory=list)
    """The clauses by which units are sampled."""
    around: Scope | None = None
    """The rows that stand around a derived table, which cannot name them; a refusal says so."""

    def deeper(
        self, node: exp.Expr, common: Mapping[str, CommonTable], around: Scope | None = None
    ) -> Context:
        """The context of a query within this one."""
        if self.depth == MAX_DERIVED_DEPTH:
            self.source.refuse(
                node, "too_deep", f"derived tables are nested over {MAX_DERIVED_DEPTH} levels deep"
            )
        return replace(self, depth=self.depth + 1, common=common, around=around)

    def check_name(self, node: exp.Expr, name: str) -> None:
        """Refuses the names that emitted SQL gives to its own parts, the unit of a row among them."""
        if name.startswith("#"):
            self.source.refuse(
                node, "reserved_name", f"the name {name} begins with #, which is reserved", "use another"
            )

    def check_outputs(self, node: exp.Expr, outputs: Iterable[nodes.Output]) -> None:
        """Refuses outputs that cannot be columns of a derived table: of reserved names, and lists."""
        for output in outputs:
            self.check_name(node, output.name)
            if output.expr.type is Type.LIST:
                self.source.refuse(
                    node,
                    "list",
                    "a list or map of values is only allowed in the outermost SELECT",
                    "ask for each value by itself, QUANTILE_CONT(x, 0.25) AS low, which together cost the same; "
                    "or for each bin as a row, SELECT bin, COUNT(*) … GROUP BY bin",
                )

    def renamed(self, node: exp.Expr, source: nodes.Source, names: Sequence[str]) -> nodes.Source:
        """The derived source with its first columns known by other names."""
        if isinstance(source, Scan) or not names:
            return source
        if len(names) > len(source.columns):
            self.source.refuse(
                node, "column", f"{len(names)} names are given to {len(source.columns)} columns"
            )
        given = (*names, *(column.name for column in source.columns[len(names) :]))
        for index, name in enumerate(given):
            self.check_name(node, name)
            if fold(name) in map(fold, given[:index]):
                self.source.refuse(node, "ambiguous", f"two columns are called {name}", "rename one of them")
        columns = (replace(column, name=name) for column, name in zip(source.columns, given, strict=True))
        return replace(source, columns=tuple(columns))

    def fresh(self, node: exp.Expr) -> str:
        """A name that no table of the query has."""
        return f"#{self.count(node, 1, NEW)}"

    def count(self, node: exp.Expr, more: int, cost: int) -> int:
        """Counts further sources, each of a cost that planning has; returns how many there were before."""
        before = self.sources.number
        self.sources.number += more
        self.sources.cost += more * cost
        if self.sources.cost > MAX_SOURCES * NEW:
            self.source.refuse(
                node,
                "too_long",
                f"the plan would have over {MAX_SOURCES} tables and subqueries, or {MAX_SOURCES * NEW // REPEATED:,} of common "
                "table expressions that are read again",
                "split the query",
            )
        return before


@dataclass(frozen=True, slots=True)
class Named:
    """A source with the columns that a query may name, by folded name."""

    relation: nodes.Source
    columns: Mapping[str, Column]

    @property
    def alias(self) -> str:
        """The name of the source in the query."""
        return self.relation.alias

    @property
    def written(self) -> str | None:
        """The name that the query has for the source; None where it gives none."""
        return None if self.alias.startswith("#") else self.alias


@dataclass(frozen=True, slots=True)
class Matched:
    """A source that rows are matched with, on conditions: those that have a partner stay, or those that have none."""

    source: Named
    conditions: tuple[Expr, ...]
    anti: bool
    node: exp.Expr


@dataclass(slots=True)
class Scope:
    """The sources of one FROM clause; resolves column names as DuckDB does, without regard to case.

    `outer` is the scope around a subquery that may refer to it.
    """

    context: Context
    outer: Scope | None = None
    tables: dict[str, Named] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    merged: dict[str, str] = field(default_factory=dict)
    """Columns of USING: the unqualified name means the column of this alias."""
    sides: dict[str, list[str]] = field(default_factory=dict)
    """The aliases whose column of that name USING has merged, in the order in which they were joined."""
    waiting: list[Any] | None = None
    """Sources that correlated subqueries bring in, to be joined; None where none can be."""
    values: dict[exp.Expr, Expr] = field(default_factory=dict)
    """What these subqueries are, so that each is joined once; of UNNEST in SELECT the element."""
    matched: list[Matched] = field(default_factory=list)
    """The sources of SEMI JOIN and ANTI JOIN."""
    marks: dict[object, Expr] = field(
        default_factory=dict
    )  # the counts behind EXISTS and IN as values, likewise
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    """What the names of SELECT items, folded, stand for, where they may be used: in WHERE and later items."""
    aliased: dict[int, tuple[exp.Expr, Expr]] = field(default_factory=dict)
    """What such items mean, by the identity of their nodes, which are kept too: each is lowered once, however often it is named."""
    bounded: bool = False
    """Whether ends of intervals are asked for, so that sources keep them beside what is released."""

    @property
    def source(self) -> Source:
        """The text of the query."""
        return self.context.source

    @property
    def scalars(self) -> Scalars:
        """Lowers expressions over the rows of this scope."""
        return Scalars(self.source, self.context.parameters, self.context.time, self.column, self._scalar)

    def _scalar(self, node: exp.Expr) -> Expr | None:
        if self.aliases and type(node) is exp.Column:
            return self._aliased(node)
        if which_end(node) is not None:
            return self._end(node)
        if type(node) is exp.Subquery:
            return self.scalar(node)
        if is_unnest(node):
            return self.values.get(node)
        if takes_field(node):
            return field_of(self, node)
        return self.context.mark(self, node) if is_matching(node) or is_quantified(node) else None

    def _aliased(self, node: exp.Column) -> Expr | None:
        """What the name of a SELECT item stands for; None for a column, which comes before it."""
        name = fold(node.name) if type(node.this) is exp.Identifier and not node.table else ""
        if name not in self.aliases or self.holders_of(name, None):
            return None
        known, item = self.aliases, self.aliases[name]
        if id(item) not in self.aliased:
            self.aliases = known.copy()
            del self.aliases[name]
            try:
                self.aliased[id(item)] = item, self.scalars.lower(item)
            finally:
                self.aliases = known
        return self.aliased[id(item)][1]

    def _end(self, node: exp.Expr) -> Column:
        """The end of the interval of a released aggregate that a column of FROM is."""
        asked = asked_of(self.source, node)
        if type(asked) is not exp.Column:
            refuse(self.source, node)
        column = self.column(asked)
        alias, end = fold(column.source), end_column(column, which_end(node) or "")
        relation = self.tables[alias].relation if alias in self.tables else None
        if not isinstance(relation, nodes.PublicSubquery) or end not in relation.columns:
            refuse(self.source, node)
        return self._optional(alias, end)

    def scalar(self, node: exp.Expr) -> Expr:
        """The one value of a subquery over released or public values."""
        (query,) = self.source.take(node, "this")
        if type(query) is exp.Select:
            value = self.values.get(query) or self.context.correlate(self, query)
            if value is not None:
                self.values[query] = value
                return value
        return self.uncorrelated(node, query)

    def uncorrelated(self, node: exp.Expr, query: exp.Expr) -> Scalar:
        """The one value of a subquery that does not depend on the rows of this scope."""
        inner = self.context.deeper(node, self.context.common, around=self)
        source = self.context.derive(inner, query, self.context.fresh(node), ())
        if nodes.is_private(source) or isinstance(source, Scan):
            self.source.refuse(
                node,
                "subquery",
                "a subquery with one value must aggregate over privacy units",
                "as in WHERE cost > (SELECT AVG(cost) FROM visits)",
            )
        if len(source.columns) != 1:
            self.source.refuse(node, "subquery", "a subquery used as a value has one column")
        outer = _only(source) if is_single(source) else self._looked_up(node, source)
        return Scalar(outer, source.columns[0].type)

    def _looked_up(self, node: exp.Expr, source: nodes.Source) -> nodes.OuterQuery:
        """The query of a source of public rows that, looked up, has one row or none.

        Claim: its value costs nothing, and it is the same on neighboring databases.
        Why: it follows from public tables alone. The statement keeps the first row only, so that it could not fail.
        Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
        """
        if isinstance(source, Scan) or needs(source):
            self.source.refuse(
                node,
                "subquery",
                "over released values, a subquery used as a value has one row",
                "add LIMIT 1",
            )
        outputs = tuple(nodes.Output(column.name, column) for column in source.columns)
        if len(self.context.facts.rows(nodes.OuterQuery(source, outputs, limit=2))) > 1:
            self.source.refuse(
                node,
                "subquery",
                "a subquery used as a value has at most one row, and this one has more",
                "add ORDER BY x LIMIT 1, or aggregate: SELECT MIN(x)",
            )
        return nodes.OuterQuery(source, outputs, limit=1)

    def add(self, node: exp.Expr) -> str:
        """Brings the item of a FROM or JOIN clause into scope; returns its alias, folded."""
        derived = type(node) in (exp.Subquery, exp.Values) or is_table_function(node)
        added = self._derived(node) if derived else self._table(node)
        if self.bounded:
            added = replace(added, relation=with_ends(added.relation))
        folded = fold(added.alias)
        if folded in self.tables:
            self.source.refuse(node, "ambiguous", f"two tables are called {added.alias}", "give one an alias")
        if len(self.tables) == MAX_JOINED:
            self.source.refuse(
                node,
                "too_long",
                f"at most {MAX_JOINED} tables in one FROM",
                "join some of them in a subquery",
            )
        self.tables[folded] = added
        return folded

    def nothing(self, node: exp.Expr) -> str:
        """Brings what a SELECT without FROM reads into scope: one row, of which nothing can be named."""
        alias = self.context.fresh(node)
        column = Column(alias, "#", Facts(Type.INTEGER, ""))
        self.tables[fold(alias)] = Named(nodes.Values(((1,),), alias, (column,)), {})
        return fold(alias)

    def _table(self, node: exp.Expr) -> Named:
        if type(node) is not exp.Table or type(node.this) is not exp.Identifier:
            self.source.refuse(node, "table", "FROM takes the name of a declared table")
        identifier, alias, *qualifiers = self.source.take(
            node, "this", "alias", "db", "catalog", sample=(node.args.get("sample"),)
        )
        name = str(self.source.take(identifier, "this", quoted=(True,))[0])
        schema = schema_of(self.source, self.context.catalog, node, qualifiers)
        common = self.context.common.get(fold(name)) if schema is None else None
        sample = node.args.get("sample")
        if common is not None:
            if sample is not None:
                self.source.refuse(
                    sample,
                    "sample",
                    "only a private table can be sampled, not the rows of a query",
                    "write the sample in the query, behind its table",
                )
            known_as, names = self.alias(alias, name)
            return named(self.context.renamed(node, self.common(node, common, known_as), names))
        table = table_of(self.source, self.context.catalog, node, name, schema)
        known_as, names = self.alias(alias, table_parts(table.name)[1])
        if names:
            self.source.refuse(node, "clause", "a table's columns keep their names", "rename them in SELECT")
        columns = {folded: Column(known_as, *column) for folded, column in table.columns.items()}
        self.context.fresh(node)  # counted, as every source is
        found = scan(self.context.catalog, known_as, table)
        if sample is not None:
            found = sampled(self.source, sample, found)
            self.context.samples.append(sample)
        return Named(found, columns)

    def common(self, node: exp.Expr, common: CommonTable, known_as: str) -> nodes.Source:
        """The rows of a common table expression, which is lowered once; its tables count wherever it is read."""
        lowered = self.context.lowered
        if id(common.query) not in lowered:
            inner = self.context.deeper(node, common.before, common.around)
            before = self.context.sources.number
            source = self.context.derive(inner, common.query, known_as, common.names)
            lowered[id(common.query)] = common.query, source, self.context.sources.number - before
            return source
        _, source, size = lowered[id(common.query)]
        self.context.count(node, size, REPEATED)
        if isinstance(source, Scan):
            return source
        columns = tuple(replace(column, source=known_as) for column in source.columns)
        return replace(source, alias=known_as, columns=columns)

    def _derived(self, node: exp.Expr) -> Named:
        alias = node.args.get("alias")
        query = self.source.take(node, "this", "alias")[0] if type(node) is exp.Subquery else node
        # An alias that begins with # is no user's: two subqueries without one do not clash.
        known_as, names = self.alias(alias, self.context.fresh(node))
        if is_table_function(node) and alias is not None and not names and alias.args.get("this") is not None:
            names = [str(alias.this.this)]  # the one column is called as the table is
        inner = self.context.deeper(node, self.context.common, around=self)
        return named(self.context.derive(inner, query, known_as, names))

    def alias(self, node: exp.Expr | None, otherwise: str) -> tuple[str, list[str]]:
        """The alias of a source and the names that it gives to columns."""
        if node is None:
            return otherwise, []
        identifier, columns = self.source.take(node, "this", "columns")
        names = [str(self.source.take(column, "this", quoted=(True,))[0]) for column in columns or ()]
        if identifier is None:
            return otherwise, names
        name = str(self.source.take(identifier, "this", quoted=(True,))[0])
        self.context.check_name(node, name)
        # Letter case makes no other name, so it must not make another plan either.
        return fold(name), names

    def column(self, node: exp.Column) -> Column:
        """The column that a name means."""
        identifier, qualifier, *schema = self.source.take(node, "this", "table", "db", "catalog")
        parts = [part for part in (*reversed(schema), qualifier, identifier) if part is not None]
        field_ = named_field(self, parts)
        if field_ is not None:
            return field_
        if type(identifier) is not exp.Identifier:
            self.source.refuse(node, "column", "a column name is expected here")
        name = str(self.source.take(identifier, "this", quoted=(True,))[0])
        owner = None
        if qualifier is not None:
            owner = str(self.source.take(qualifier, "this", quoted=(True,))[0])
        scope = self._holding(name, owner)
        holders = scope.holders_of(name, owner)
        if not holders:
            self._check_around(node, name, owner)
            if owner is not None and fold(owner) not in scope.tables:
                require_field(self, node, parts)
        in_schema = schema_of(self.source, self.context.catalog, node, schema)
        if owner is not None and not scope.holds(fold(owner), in_schema):
            self._check_around(node, name, owner)
            known = ", ".join(filter(None, (named.written for named in self.tables.values())))
            self.source.refuse(
                node,
                "table",
                f"there is no table {owner} in FROM",
                f"there are: {known}" if known else "give the subquery a name: FROM (SELECT …) AS q",
            )
        if not holders:
            self._no_column(node, name, owner)
        if len(holders) > 1:
            written = [scope.tables[alias].written for alias in holders]
            named = next(filter(None, written), None)
            self.source.refuse(
                node,
                "ambiguous",
                f"the column {name} is in {' and '.join(one or 'a subquery without a name' for one in written)}",
                f"write {named}.{name}" if named else "give the subqueries names: FROM (SELECT …) AS q",
            )
        if any(holders[0] in hiding.tables for hiding in self._inside(scope)):
            self.source.refuse(
                node,
                "ambiguous",
                f"the subquery has a table {scope.tables[holders[0]].alias} of its own, which has no {name}",
                "give one of the two an alias",
            )
        return scope.find(holders[0], name)

    def _check_around(self, node: exp.Column, name: str, owner: str | None) -> None:
        """Refuses a name that is one of the rows around a derived table, where it cannot be read."""
        around = self.context.around
        if around is not None and around.knows(name, owner):
            self.source.refuse(
                node,
                "subquery",
                f"{owner + '.' if owner else ''}{name} is of the query around: what stands in FROM, and a subquery with GROUP "
                "BY, HAVING, LIMIT, UNION or WITH, reads its own tables alone",
                "name it in the WHERE of a subquery that has none of these: EXISTS (SELECT … WHERE inner.a = outer.a); in FROM, "
                "join: JOIN (SELECT unit, SUM(x) AS s FROM … GROUP BY unit) AS q ON q.unit = t.unit",
            )

    def knows(self, name: str, owner: str | None) -> bool:
        """Whether a name is a column of these rows, or of rows around them."""
        around = self.context.around
        held = self._holding(name, owner).holders_of(name, owner)
        return bool(held) or (around is not None and around.knows(name, owner))

    def holds(self, owner: str, schema: str | None) -> bool:
        """Whether there is such a source, which is a table of that schema where one is said."""
        relation = self.tables[owner].relation if owner in self.tables else None
        if schema is None or relation is None:
            return relation is not None
        return isinstance(relation, Scan) and fold(table_parts(relation.table)[0]) == schema

    def called(self, column: Column) -> str:
        """The name of a column for people; of an element of a list what UNNEST calls it."""
        if not column.name.startswith("#"):
            return column.name
        held = (pair for known in self.tables.values() for pair in known.columns.items())
        return next((name for name, found in held if found == column), column.name)

    def _inside(self, scope: Scope) -> Iterator[Scope]:
        """The scopes from this one out to `scope`, without that."""
        inner: Scope | None = self
        while inner is not None and inner is not scope:
            yield inner
            inner = inner.outer

    def _holding(self, name: str, owner: str | None) -> Scope:
        """The innermost scope that knows the name; this one, if none does."""
        scope: Scope | None = self
        while scope is not None:
            if scope.holders_of(name, owner):
                return scope
            scope = scope.outer
        return self

    def find(self, alias: str, name: str) -> Column:
        """The column `name` of the table in scope as `alias`."""
        return self._optional(alias, self.tables[alias].columns[fold(name)])

    def _optional(self, alias: str, column: Column) -> Column:
        """The column of a source, NULL where a join has found none of its rows."""
        if alias not in self.nullable:
            return column
        return replace(column, facts=replace(column.facts, nullable=True))

    def every(self, node: exp.Expr, owner: str | None = None) -> list[Column]:
        """All columns, of the table `owner` or of each in turn, as * means them."""
        if owner is not None and fold(owner) not in self.tables:
            self.source.refuse(node, "table", f"there is no table {owner} in FROM")
        if owner is not None:
            return [self.find(fold(owner), name) for name in self.tables[fold(owner)].columns]
        # A column of USING is there once, where its first side is.
        return [
            self.find(self.merged[name] if alias in self.sides.get(name, ()) else alias, name)
            for alias in self.tables
            for name in self.tables[alias].columns
            if alias not in self.sides.get(name, ())[1:]
        ]

    def names_of(self, owner: str | None) -> list[str]:
        """The names of the columns of the table `owner`, or of all tables; none if there is no such table."""
        among = [self.tables[fold(owner)]] if owner and fold(owner) in self.tables else []
        tables = self.tables.values() if owner is None else among
        return [self.called(column) for named in tables for column in named.columns.values()]

    def holders_of(self, name: str, owner: str | None) -> list[str]:
        """The tables of this scope that have a column of a name: all of them, or only the one of the name `owner`."""
        folded = fold(name)
        if owner is None and folded in self.merged:
            return [self.merged[folded]]
        among = self.tables if owner is None else [fold(owner)] if fold(owner) in self.tables else []
        return [alias for alias in among if folded in self.tables[alias].columns]

    def _catalogued(self) -> Iterator[CatalogTable]:
        """The tables of the catalogue that are in scope."""
        for named in self.tables.values():
            table = (
                self.context.catalog.find(named.relation.table) if isinstance(named.relation, Scan) else None
            )
            yield from [] if table is None else [table]

    def _no_column(self, node: exp.Column, name: str, owner: str | None) -> None:
        if any(fold(name) in known.lists for known in self._catalogued()):
            self.source.refuse(
                node,
                "column",
                f"{name} is a list, whose elements are read as rows",
                f"FROM t, UNNEST(t.{name}) AS u(x), or SELECT UNNEST({name}) AS x",
            )
        known = self.names_of(owner)
        inner = [column for column in known if fold(column).startswith(f"{fold(name)}.")]
        if inner:
            self.source.refuse(
                node,
                "column",
                f"{name} is a STRUCT, of which the fields are read that the policy declares",
                f"name a field, as {inner[0]}, which is NULL where {name} is",
            )
        hint = did_you_mean(name, known) or f"there are: {', '.join(known)}"
        self.source.refuse(node, "column", f"there is no column {name}", hint)


def _only(source: nodes.Source) -> nodes.OuterQuery:
    """The query of a source's only column."""
    if isinstance(source, nodes.PublicSubquery):
        return source.outer
    if isinstance(source, Scan):
        raise TypeError("a table is no single value")
    (column,) = source.columns
    return nodes.OuterQuery(source, (nodes.Output(column.name, column),))


def named(relation: nodes.Source) -> Named:
    """A derived source with its columns."""
    if isinstance(relation, Scan):
        raise TypeError("a table's columns are the catalogue's")
    return Named(relation, {fold(column.name): column for column in relation.columns})
