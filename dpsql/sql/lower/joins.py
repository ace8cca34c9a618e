"""Orders joins: each source of FROM is joined as soon as an equality connects it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.stability import MAX_ROWS, most_rows
from dpsql.functions import call
from dpsql.plan.cardinality import is_unique
from dpsql.plan.dependencies import needs
from dpsql.plan.expr import Call, Column, Expr, columns
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Relation,
    Release,
    Source,
    is_answered,
    is_private,
    private_scans,
    sources,
)
from dpsql.plan.tables import Scan, Unit, UnitKind
from dpsql.plan.types import Type, common
from dpsql.policy import fold
from dpsql.sql.lower.declared_links import alternatives, declaration, linked
from dpsql.sql.lower.scalars import is_unnest
from dpsql.sql.lower.scope import Scope


@dataclass(frozen=True, slots=True)
class Attached:
    """A source of the FROM clause, by its folded alias, with the conditions of its join."""

    alias: str
    kind: JoinKind
    conditions: tuple[Expr, ...]
    node: exp.Expr


def condition(scope: Scope, node: exp.Expr) -> Expr:
    """The condition that a node means."""
    expr = scope.scalars.lower(node)
    if expr.type not in (Type.BOOLEAN, Type.NULL):
        scope.source.refuse(node, "type", f"a condition is true or false, not {expr.type}")
    return expr


def conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Conditions that together are true exactly where a predicate is: those it joins by AND.

    What all alternatives of an OR require is required of each row: (a AND b) OR (a AND c) is a AND
    (b OR c), whether or not anything is unknown.
    """
    name = predicate.function.name if isinstance(predicate, Call) else ""
    if isinstance(predicate, Call) and name == "and":
        for argument in predicate.arguments:
            yield from conjuncts(argument)
    elif isinstance(predicate, Call) and name == "or":
        yield from _factored(predicate)
    else:
        yield predicate


def _factored(predicate: Call) -> Iterator[Expr]:
    branches = [tuple(dict.fromkeys(conjuncts(branch))) for branch in predicate.arguments]
    shared = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    yield from shared
    rests = [all_of([part for part in branch if part not in shared]) for branch in branches]
    if all(rest is not None for rest in rests):
        together = call("or", *(rest for rest in rests if rest is not None))
        yield predicate if together is None or not shared else together


def conditions(scope: Scope, select: exp.Select) -> list[exp.Expr]:
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


def named_items(select: exp.Select) -> dict[str, exp.Expr]:
    """The items of SELECT that WHERE may name by their aliases, folded: those of one row."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        several = item.find(exp.AggFunc, exp.Window, exp.Star) or any(map(is_unnest, item.walk()))
        if type(item) is exp.Alias and not several:
            found.setdefault(fold(item.alias), item.this)
    return found


def assemble(scope: Scope, items: Sequence[Attached], where: Sequence[Expr]) -> Relation:
    """The relation of a FROM clause and the conditions of WHERE.

    Inner joins may be written in any order: a private source is put first, for its rows are the ones
    that are followed, and then whatever repeats them least.
    """
    first_left = next((index for index, item in enumerate(items) if item.kind is JoinKind.LEFT), len(items))
    inner, rest = list(items[:first_left]), list(items[first_left:])
    start = min(inner, key=lambda item: _rank(scope, item))
    assembly = _Assembly.of(scope, scope.tables[start.alias].relation, [*where])
    assembly.loose += [condition for item in inner for condition in item.conditions]
    pending = [item for item in inner if item is not start]
    while pending:
        item = min(pending, key=assembly.turn)
        assembly.join(item)
        pending.remove(item)
    for item in rest:
        assembly.join(item)
    built = filtered(assembly.built, assembly.loose)
    check_applied(scope, items, where, built)
    if is_private(assembly.built) and most_rows(assembly.built, scope.context.facts) > MAX_ROWS:
        scope.source.refuse(
            items[-1].node,
            "fanout",
            f"one privacy unit could have over {MAX_ROWS:,} rows after the joins",
            "join on a key that is unique in the public table, or lower rows_per_unit",
        )
    return built


def check_applied(scope: Scope, items: Sequence[Attached], where: Sequence[Expr], built: Relation) -> None:
    """Refuses a relation in which a condition of FROM or WHERE is not applied, or another is.

    The conditions of a LEFT JOIN stand in that join. All others are required of each row, so it is the same
    at which INNER JOIN or filter they stand. Raises QueryRejected.
    """
    outer = {scope.tables[item.alias].alias: item for item in items if item.kind is JoinKind.LEFT}
    required = {_unordered(part) for part in where}
    required |= {
        _unordered(part) for item in items if item.kind is JoinKind.INNER for part in item.conditions
    }
    applied: set[object] = set()
    rest = built
    while isinstance(rest, (Join, Filter)):
        if isinstance(rest, Filter):
            applied |= set(map(_unordered, _and_parts(rest.predicate)))
            rest = rest.input
            continue
        item = outer.pop(rest.right.alias, None) if rest.kind is JoinKind.LEFT else None
        if item is None:
            applied |= _at_join(rest)
        else:
            _check_own(scope, rest, item)
        rest = rest.left
    if outer or applied != required:
        _refuse_unapplied(scope, items[-1].node)


def _check_own(scope: Scope, join: Relation, item: Attached) -> None:
    """Refuses a LEFT JOIN on other conditions than its own."""
    own = set(map(_unordered, item.conditions))
    if not isinstance(join, Join) or _at_join(join) != own:
        _refuse_unapplied(scope, item.node)


def _at_join(join: Join) -> set[object]:
    also = () if join.also is None else _and_parts(join.also)
    return {frozenset(pair) for pair in join.on} | set(map(_unordered, also))


def _refuse_unapplied(scope: Scope, node: exp.Expr) -> NoReturn:
    scope.source.refuse(
        node, "join", "a condition of this FROM clause could not be applied", "write it in WHERE"
    )


def _and_parts(predicate: Expr) -> tuple[Expr, ...]:
    """The arguments of an AND, or the predicate itself."""
    joined = isinstance(predicate, Call) and predicate.function.name == "and"
    return predicate.arguments if isinstance(predicate, Call) and joined else (predicate,)


def _unordered(condition: Expr) -> object:
    """A condition, but for which side of an equality is written first."""
    equal = isinstance(condition, Call) and condition.function.name == "eq"
    return frozenset(condition.arguments) if isinstance(condition, Call) and equal else condition


def merging(scope: Scope, before: Sequence[str], alias: str, identifier: exp.Expr) -> tuple[str, str]:
    """The name of a column that USING makes one, and the alias before it whose column it is."""
    name = str(scope.source.take(identifier, "this", quoted=(True,))[0])
    folded = fold(name)
    holders = [item for item in before if folded in scope.tables[item].columns]
    holders = [scope.merged[folded]] if folded in scope.merged else holders
    if len(holders) != 1 or folded not in scope.tables[alias].columns:
        scope.source.refuse(identifier, "column", f"USING ({name}) needs that column on both sides")
    return name, holders[0]


def left_joined(scope: Scope, left: Relation, item: Attached) -> Relation:
    """The rows of `left`, each with those of the item that its conditions find, or with none."""
    assembly = _Assembly.of(scope, left, [])
    assembly.join(item)
    _check_own(scope, assembly.built, item)
    return assembly.built


def _rank(scope: Scope, item: Attached) -> int:
    """Private sources first, and among them those that know the unit themselves."""
    relation = scope.tables[item.alias].relation
    if not is_private(relation):
        return 2
    return int(isinstance(relation, Scan) and relation.unit.link is not None)


@dataclass(slots=True)
class _Assembly:
    """The relation so far, and the conditions that still wait for a source."""

    scope: Scope
    built: Relation
    loose: list[Expr]
    reached: set[str]
    """The sources of the relation so far, by alias."""

    @classmethod
    def of(cls, scope: Scope, built: Relation, loose: list[Expr]) -> _Assembly:
        """The assembly that begins with a relation."""
        return cls(scope, built, loose, {source.alias for source in sources(built)})

    def _known_as(self, item: Attached) -> str:
        return self.scope.tables[item.alias].alias

    def turn(self, item: Attached) -> tuple[bool, int, int]:
        """The lower, the sooner an item of the inner joins is joined: first those that an equality joins to what there is."""
        pairs = [pair for part in self.loose if (pair := self._pair(part, item)) is not None]
        return not pairs, self._rank(item, pairs), self._repeats(item, pairs)

    def _rank(self, item: Attached, pairs: Sequence[tuple[Expr, Column]]) -> int:
        """As `_rank`, but a private source last of all which nothing yet shows to be of the same unit."""
        right = self.scope.tables[item.alias].relation
        alike = linked(pairs) or any(same_identity(*pair) for pair in pairs)
        return _rank(self.scope, item) if alike or not is_private(right) else 3

    def _repeats(self, item: Attached, pairs: Sequence[tuple[Expr, Column]]) -> int:
        """How often a public table would repeat rows of people now; later it may be joined on more."""
        right = self.scope.tables[item.alias].relation
        if not pairs or is_private(right) or needs(right) or not is_private(self.built):
            return 0
        join = Join(self.built, right, JoinKind.INNER, tuple(pairs))
        return self.scope.context.facts.multiplicity(join)

    def join(self, item: Attached) -> None:
        """Joins one more source, on its own conditions if rows without a partner are kept, else on all there are."""
        left = item.kind is JoinKind.LEFT
        if not left:
            self.loose += [condition for condition in item.conditions if condition not in self.loose]
        pairs = {part: self._pair(part, item) for part in (item.conditions if left else self.loose)}
        on = tuple(pair for pair in pairs.values() if pair is not None)
        others = [condition for condition, pair in pairs.items() if pair is None]
        right, proven = self.scope.tables[item.alias].relation, False
        if is_private(right):
            right, proven = self._private(item, right, on)
        elif is_private(self.built) and not is_unique(right, _unconverted(on)):
            self._check_known(item, right)
        self.reached.add(right.alias)
        if left and any(not _names(condition) <= self.reached for condition in others):
            self.scope.source.refuse(item.node, "join", "ON may only name tables before it")
        also = all_of(others) if left else None
        self.built = Join(self.built, right, item.kind, on, also, proven)
        if left:
            others = self.loose
        self.built = filtered(self.built, [part for part in others if _names(part) <= self.reached])
        self.loose = [part for part in others if not _names(part) <= self.reached]

    def _private(
        self, item: Attached, right: Source, on: Sequence[tuple[Expr, Column]]
    ) -> tuple[Source, bool]:
        """The private source to join, and whether a pair proves that its rows are of the same unit."""
        if not is_private(self.built):
            self.scope.source.refuse(
                item.node,
                "join",
                "a private table is joined to private tables",
                "put a private table first in FROM",
            )
        units = [scan.unit.kind for source in (self.built, right) for scan in private_scans(source)]
        same = [(ours, theirs) for ours, theirs in on if same_identity(ours, theirs)]
        if not (same or linked(on)) or UnitKind.ROW in units:
            self.scope.source.refuse(
                item.node,
                "private_join",
                "private tables are joined on the privacy unit, or on all columns of a declared link",
                alternatives(self._unit_hint(right), declaration(on, self.built, right)),
            )
        for ours, theirs in same:
            if isinstance(ours, Column) and ours.facts.verbatim and theirs.facts.verbatim:
                if ours.facts.is_unit:
                    return right, True
                if isinstance(right, Scan) and _leads(theirs, right, ours, self.built):
                    return replace(right, unit=Unit(UnitKind.COLUMN)), True
        return right, False

    def _check_known(self, item: Attached, right: Source) -> None:
        """Refuses a public source of which nothing says, before its rows are released, how many join one row."""
        depends = any(isinstance(step, Release) for step in needs(right))
        if is_answered(right) and not depends:
            self.scope.source.refuse(
                item.node,
                "join",
                "private rows are joined to public ones that a window, LIMIT or GROUP BY makes on all their group keys alone",
                "join the public table itself, or keep these rows as a public table",
            )
        if is_answered(right):
            self.scope.source.refuse(
                item.node,
                "join",
                "private rows are joined to released ones on all group keys of these, and nothing else",
                "write ON private.key = released.key, or (SELECT …) for a single value",
            )
        if depends:
            self.scope.source.refuse(
                item.node,
                "join",
                "how many rows of it one private row is joined to would depend on what is released",
                "compare with the released value in WHERE, after the join",
            )

    def _unit_hint(self, right: Relation) -> str | None:
        for theirs in self._identities(right):
            for ours in self._identities(self.built):
                if same_identity(ours, theirs):
                    return f"add ON {ours.source}.{ours.name} = {theirs.source}.{theirs.name}"
        return None

    def _identities(self, relation: Relation) -> Iterator[Column]:
        for source in sources(relation):
            known = self.scope.tables.get(fold(source.alias))
            yield from (
                column
                for column in (known.columns.values() if known else ())
                if column.facts.identity is not None
            )

    def _pair(self, condition: Expr, item: Attached) -> tuple[Expr, Column] | None:
        """`reached expression = column of the item`, however it is written."""
        if not isinstance(condition, Call) or condition.function.name != "eq":
            return None
        alias = self._known_as(item)
        for ours, theirs in (condition.arguments, condition.arguments[::-1]):
            if isinstance(theirs, Column) and theirs.source == alias:
                names = _names(ours)
                if names and names <= self.reached:
                    return ours, theirs
        return None


def same_identity(ours: Expr, theirs: Column) -> bool:
    """Whether rows with equal values of both have one unit: of other types, different ids could be equal."""
    return (
        isinstance(ours, Column)
        and ours.facts.identity is not None
        and ours.facts.identity == theirs.facts.identity
        and ours.type is theirs.type
    )


def _unconverted(on: Sequence[tuple[Expr, Column]]) -> list[Column]:
    """The columns that are compared as they are: converted, two of their values could be equal."""
    return [theirs for ours, theirs in on if common((ours.type, theirs.type)) is theirs.type]


def _leads(theirs: Column, right: Scan, ours: Column, left: Relation) -> bool:
    """Whether `right` is a linked table, joined by its link to the very table that has its unit."""
    link = right.unit.link
    if link is None:
        return False
    owner = next((source for source in sources(left) if source.alias == ours.source), None)
    return (
        isinstance(owner, Scan)
        and owner.table == link.owner.table
        and not link.rest
        and (theirs.name, ours.name) == (link.column.name, link.key.name)
    )


def _names(expr: Expr) -> set[str]:
    return {column.source for column in columns(expr)}


def all_of(predicates: Sequence[Expr]) -> Expr | None:
    """The condition that all of some are true, None of none."""
    if len(predicates) < 2:
        return predicates[0] if predicates else None
    return call("and", *predicates)


def filtered(relation: Relation, predicates: Sequence[Expr]) -> Relation:
    """The rows of a relation for which all predicates are true."""
    predicate = all_of(predicates)
    if predicate is None:
        return relation
    if predicate.type not in (Type.BOOLEAN, Type.NULL):
        raise TypeError("a filter takes booleans")
    return Filter(relation, predicate)
