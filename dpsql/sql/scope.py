"""FROM and JOIN: which tables a query reads, what their columns are called, and how they join."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.catalog import Catalog, CatalogTable
from dpsql.functions import call
from dpsql.plan.expr import Call, Column, Expr, columns
from dpsql.plan.nodes import Filter, Join, JoinKind, Relation, Scan, Unit, UnitKind
from dpsql.plan.types import Value
from dpsql.policy import fold
from dpsql.sql.refuse import Source
from dpsql.sql.scalars import Scalars

MAX_TABLES = 16


@dataclass(slots=True)
class Scope:
    """The tables of one FROM clause; resolves column names as DuckDB does, without regard to case."""

    source: Source
    catalog: Catalog
    parameters: Sequence[Value]
    tables: dict[str, tuple[str, CatalogTable]] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    merged: dict[str, str] = field(default_factory=dict)
    """Columns of USING: the unqualified name means the column of this alias."""

    @property
    def scalars(self) -> Scalars:
        """Lowers expressions over the rows of this scope."""
        return Scalars(self.source, self.parameters, self.column)

    def add(self, node: exp.Expr) -> str:
        """Brings the table of a FROM or JOIN item into scope; returns its alias, folded."""
        if isinstance(node, exp.Subquery):
            self.source.refuse(node, "subquery", "derived tables are not supported yet")
        if type(node) is not exp.Table or type(node.this) is not exp.Identifier:
            self.source.refuse(node, "table", "FROM takes the name of a declared table")
        if node.args.get("db") or node.args.get("catalog"):
            self.source.refuse(
                node,
                "table",
                "table names take no schema or catalog",
                "use the name that the policy declares",
            )
        identifier, alias = self.source.take(node, "this", "alias")
        name = str(self.source.take(identifier, "this", quoted=(True,))[0])
        table = self.catalog.find(name)
        if table is None:
            known = sorted(item.name for item in self.catalog.tables.values())
            close = difflib.get_close_matches(name, known, 1)
            self.source.refuse(
                node,
                "table",
                f"there is no table {name}",
                f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}",
            )
        known_as = table.name if alias is None else self._alias(alias)
        folded = fold(known_as)
        if folded in self.tables:
            self.source.refuse(node, "ambiguous", f"two tables are called {known_as}", "give one an alias")
        if len(self.tables) == MAX_TABLES:
            self.source.refuse(node, "too_long", f"at most {MAX_TABLES} tables in one query")
        self.tables[folded] = (known_as, table)
        return folded

    def _alias(self, node: exp.Expr) -> str:
        (identifier,) = self.source.take(node, "this")
        return str(self.source.take(identifier, "this", quoted=(True,))[0])

    def column(self, node: exp.Column) -> Column:
        """The column that a name means."""
        identifier, qualifier = self.source.take(node, "this", "table")
        if type(identifier) is not exp.Identifier:
            self.source.refuse(node, "column", "a column name is expected here")
        name = str(self.source.take(identifier, "this", quoted=(True,))[0])
        owner = None
        if qualifier is not None:
            owner = str(self.source.take(qualifier, "this", quoted=(True,))[0])
            if fold(owner) not in self.tables:
                self.source.refuse(
                    node,
                    "table",
                    f"there is no table {owner} in FROM",
                    f"there are: {', '.join(self._names())}",
                )
        holders = self._holders(name, owner)
        if not holders:
            self._no_column(node, name, owner)
        if len(holders) > 1:
            self.source.refuse(
                node,
                "ambiguous",
                f"the column {name} is in {' and '.join(self.tables[alias][0] for alias in holders)}",
                f"write {self.tables[holders[0]][0]}.{name}",
            )
        return self.find(holders[0], name)

    def find(self, alias: str, name: str) -> Column:
        """The column `name` of the table in scope as `alias`."""
        known_as, table = self.tables[alias]
        spelt, facts = table.columns[fold(name)]
        return Column(known_as, spelt, replace(facts, nullable=True) if alias in self.nullable else facts)

    def _holders(self, name: str, owner: str | None) -> list[str]:
        folded = fold(name)
        if owner is None and folded in self.merged:
            return [self.merged[folded]]
        among = self.tables if owner is None else [fold(owner)]
        return [alias for alias in among if folded in self.tables[alias][1].columns]

    def _names(self) -> list[str]:
        return [known_as for known_as, _ in self.tables.values()]

    def _no_column(self, node: exp.Column, name: str, owner: str | None) -> None:
        tables = [self.tables[fold(owner)]] if owner else list(self.tables.values())
        known = [spelt for _, table in tables for spelt, _ in table.columns.values()]
        close = difflib.get_close_matches(name, known, 1)
        self.source.refuse(
            node,
            "column",
            f"there is no column {name}",
            f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}",
        )


@dataclass(frozen=True, slots=True)
class _Attached:
    """A joined table with its conditions, before they are sorted out."""

    alias: str
    kind: JoinKind
    conditions: tuple[Expr, ...]
    node: exp.Expr


def relation(scope: Scope, select: exp.Select) -> Relation:
    """The relation of a SELECT's FROM and JOIN clauses.

    Inner joins may be written in any order: the private table is put first, for its rows are the ones
    that are followed.
    """
    origin = select.args.get("from_")
    if origin is None:
        scope.source.refuse(
            select, "public_only", "the query reads no private table", "run it on the database itself"
        )
    (node,) = scope.source.take(origin, "this")
    first = scope.add(node)
    attached = [_attach(scope, join) for join in select.args.get("joins") or ()]
    private = [alias for alias, (_, table) in scope.tables.items() if table.private]
    if len(private) != 1:
        scope.source.refuse(
            node,
            "private_join" if private else "public_only",
            "a query reads one private table for now" if private else "the query reads no private table",
            "join it to public tables" if private else "run it on the database itself",
        )
    start = private[0]
    if scope.tables[start][1].indirect:
        scope.source.refuse(
            node, "indirect", "this table's unit is found through another table, which is not supported yet"
        )
    pending = list(attached)
    if start != first:
        if any(item.kind is JoinKind.LEFT for item in attached):
            scope.source.refuse(
                node, "join", "a LEFT JOIN must start from the private table", "put it first in FROM"
            )
        # The conditions follow the tables wherever these are attached.
        pending = [
            _Attached(item.alias, item.kind, (), item.node) for item in attached if item.alias != start
        ]
        pending.insert(0, _Attached(first, JoinKind.INNER, (), node))
        loose = [condition for item in attached for condition in item.conditions]
        return _assemble(scope, start, pending, loose)
    return _assemble(scope, start, pending, [])


def _attach(scope: Scope, join: exp.Join) -> _Attached:
    side, kind, method = (join.args.get(name) for name in ("side", "kind", "method"))
    if method or side not in (None, "", "LEFT") or kind not in (None, "", "INNER", "OUTER"):
        scope.source.refuse(join, "join", "only INNER and LEFT joins are supported", "write JOIN … ON a = b")
    table, on, using, *_ = scope.source.take(join, "this", "on", "using", "side", "kind")
    before = list(scope.tables)
    alias = scope.add(table)
    left = side == "LEFT"
    if left:
        scope.nullable.add(alias)
    conditions: list[Expr] = []
    if using:
        conditions = [_using(scope, join, before, alias, identifier) for identifier in using]
    elif on is not None:
        conditions = list(_conjuncts(scope.scalars.lower(on)))
    if not conditions:
        scope.source.refuse(table, "join", "a join needs ON or USING", "write JOIN … ON a = b")
    return _Attached(alias, JoinKind.LEFT if left else JoinKind.INNER, tuple(conditions), table)


def _using(scope: Scope, join: exp.Join, before: list[str], alias: str, identifier: exp.Expr) -> Expr:
    name = str(scope.source.take(identifier, "this", quoted=(True,))[0])
    folded = fold(name)
    holders = [item for item in before if folded in scope.tables[item][1].columns]
    holders = [scope.merged[folded]] if folded in scope.merged else holders
    if len(holders) != 1 or folded not in scope.tables[alias][1].columns:
        scope.source.refuse(identifier, "column", f"USING ({name}) needs that column on both sides")
    scope.merged[folded] = holders[0]
    return scope.scalars.call(join, "eq", scope.find(holders[0], name), scope.find(alias, name))


def _conjuncts(predicate: Expr) -> Iterator[Expr]:
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for argument in predicate.arguments:
            yield from _conjuncts(argument)
    else:
        yield predicate


def _assemble(scope: Scope, start: str, pending: list[_Attached], loose: list[Expr]) -> Relation:
    """Joins the pending tables to the private one, each as soon as an equality reaches it.

    Conditions of inner joins that are no such equality filter the joined rows instead.
    """
    built: Relation = scan(*scope.tables[start])
    reached = {scope.tables[start][0]}
    while pending:
        for item in pending:
            known_as = scope.tables[item.alias][0]
            candidates = [*item.conditions, *(loose if item.kind is JoinKind.INNER else ())]
            pairs = [(condition, _pair(condition, known_as, reached)) for condition in candidates]
            on = [pair for _, pair in pairs if pair is not None]
            if on and (item.kind is JoinKind.INNER or len(on) == len(candidates)):
                break
        else:
            scope.source.refuse(
                pending[0].node,
                "join",
                "a public table is joined on equality of its columns with columns before it",
                "write ON private.x = public.y; move other conditions to WHERE",
            )
        rest = [condition for condition, pair in pairs if pair is None]
        loose = rest if item.kind is JoinKind.INNER else loose
        right = scan(*scope.tables[item.alias])
        built = Join(built, right, item.kind, tuple(on))
        reached.add(known_as)
        pending = [other for other in pending if other is not item]
        ready = [condition for condition in loose if _sources(condition) <= reached]
        loose = [condition for condition in loose if not _sources(condition) <= reached]
        built = filtered(built, ready)
    return filtered(built, loose)


def _pair(condition: Expr, alias: str, reached: set[str]) -> tuple[Expr, Column] | None:
    """`reached expression = column of alias`, however it is written."""
    if not isinstance(condition, Call) or condition.function.name != "eq":
        return None
    for ours, theirs in (condition.arguments, condition.arguments[::-1]):
        if (
            isinstance(theirs, Column)
            and theirs.source == alias
            and _sources(ours) <= reached
            and _sources(ours)
        ):
            return ours, theirs
    return None


def _sources(expr: Expr) -> set[str]:
    return {column.source for column in columns(expr)}


def filtered(relation: Relation, predicates: Sequence[Expr]) -> Relation:
    """The rows of a relation for which all predicates are true."""
    if not predicates:
        return relation
    predicate = predicates[0] if len(predicates) == 1 else call("and", *predicates)
    if predicate is None:
        raise TypeError("a filter takes booleans")
    return Filter(relation, predicate)


def scan(alias: str, table: CatalogTable) -> Scan:
    """The scan of a catalogue's table."""
    unit = Unit(table.unit)
    if table.unit is UnitKind.COLUMN and table.unit_column is not None:
        spelt, facts = table.columns[fold(table.unit_column)]
        unit = Unit(table.unit, Column(alias, spelt, facts))
    return Scan(table.name, alias, unit, table.contribution)
