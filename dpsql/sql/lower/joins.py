"""Join the sources of FROM in an order in which an equality connects each, also by links that the policy declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.stability import MAX_ROWS, bound_rows
from dpsql.plan.expressions import Call, Column, Expr, iterate_columns
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetOperation,
    Source,
    Values,
    has_public_subquery,
    is_private,
    iterate_sources,
    list_private_scans,
)
from dpsql.plan.steps import is_unique, list_required_steps
from dpsql.plan.tables import Scan, Unit, UnitKind
from dpsql.plan.types import Type, find_common_type
from dpsql.policy import normalize_name
from dpsql.sql.lower.node_kinds import is_unnest
from dpsql.sql.lower.scope import Scope

# Joins on declared links: private rows that are joined on all columns of a foreign key of the policy.


def is_link_key_pair(ours: Expr, theirs: Expr) -> bool:
    """Return whether equal columns are the same part of a declared key."""
    return (
        isinstance(ours, Column)
        and isinstance(theirs, Column)
        and bool(ours.facts.link_keys & theirs.facts.link_keys)
    )


def covers_declared_link(on: Iterable[tuple[Expr, Expr]]) -> bool:
    """Return whether pairs of equal columns cover a declared key, with one source on each side.

    Claim: each joined row depends on rows of one privacy unit, whatever the data are; and it is the row that the same SQL gives in
    the engine, if the declaration is true.
    Why: the engine only joins rows of equal units, since the equality of units is added wherever the condition does not imply it.
    If rows with equal keys have one unit, that equality removes nothing. Bounds on the number of rows use the declaration in the
    same way as `rows_per_unit`: the emitted SQL drops the rows beyond them.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2, on joins within a unit.
    """
    met: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = {}
    for ours, theirs in on:
        if isinstance(ours, Column) and isinstance(theirs, Column) and ours.type is theirs.type:
            for table, keys, key in ours.facts.link_keys & theirs.facts.link_keys:
                met.setdefault((ours.source, theirs.source, table, keys), set()).add(key)
    return any(found == set(keys) for (_, _, _, keys), found in met.items())


def suggest_link_declaration(on: Sequence[tuple[Expr, Expr]], left: Relation, right: Relation) -> str | None:
    """Return the declaration, as YAML, by which the owner could allow a join on these pairs; None if there is none."""
    pairs = [(_find_stored_column(ours, left), _find_stored_column(theirs, right)) for ours, theirs in on]
    found = {(ours, theirs): None for ours, theirs in pairs if ours is not None and theirs is not None}
    tables = {(ours[0].table, theirs[0].table) for ours, theirs in found}
    rows = any(scan.unit.kind is UnitKind.ROW for side in (left, right) for scan in list_private_scans(side))
    if len(tables) != 1 or rows:
        return None
    ((there, here),) = tables
    names = [(ours[1], theirs[1]) for ours, theirs in found]
    columns = ", ".join(_quote_yaml_name(name) for _, name in names)
    references = ", ".join(_quote_yaml_name(f"{there}.{name}") for name, _ in names)
    return (
        f"if rows of equal {' and '.join(name for _, name in names)} always belong to one privacy unit, the owner of the "
        f"data can declare so in the table {here}: `links: [{{columns: [{columns}], references: [{references}]}}]`"
    )


def combine_hints(*hints: str | None) -> str | None:
    """Return several hints as one."""
    return "; or, ".join(hint for hint in hints if hint is not None) or None


def _quote_yaml_name(name: str) -> str:
    """Return a name as YAML holds it in a list."""
    plain = name.replace("_", "a").replace(".", "a").isalnum() and name.isascii()
    return name if plain else "'" + name.replace("'", "''") + "'"


def _find_stored_column(expr: Expr, relation: Relation) -> tuple[Scan, str] | None:
    """Find the column of a private table that an expression is, as the table has it."""
    if not isinstance(expr, Column):
        return None
    source = next((source for source in iterate_sources(relation) if source.alias == expr.source), None)
    match source:
        case Scan() if source.unit.private:
            return source, expr.name
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [normalize_name(known.name) for known in source.columns].index(normalize_name(expr.name))
            items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
            return _find_stored_column(items[place], source.input) if place < len(items) else None
        case _:
            return None


# Order joins: each source of FROM is joined as soon as an equality connects it.


@dataclass(frozen=True, slots=True)
class FromItem:
    """A source of the FROM clause, by its folded alias, with the conditions of its join."""

    alias: str
    kind: JoinKind
    conditions: tuple[Expr, ...]
    node: exp.Expr


def lower_condition(scope: Scope, node: exp.Expr) -> Expr:
    """Return the condition that a node means."""
    expr = scope.scalars.lower(node)
    if expr.type not in (Type.BOOLEAN, Type.NULL):
        scope.source.refuse(node, "type", f"a condition must be a BOOLEAN, not {expr.type}")
    return expr


def iterate_factored_conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Yield the conjuncts of a predicate, with those that all alternatives of an OR have in common.

    (a AND b) OR (a AND c) is a AND (b OR c), also where some of them are unknown.
    """
    name = predicate.function.name if isinstance(predicate, Call) else ""
    if isinstance(predicate, Call) and name == "and":
        for argument in predicate.arguments:
            yield from iterate_factored_conjuncts(argument)
    elif isinstance(predicate, Call) and name == "or":
        yield from _split_disjunction(predicate)
    else:
        yield predicate


def _split_disjunction(predicate: Call) -> Iterator[Expr]:
    branches = [tuple(dict.fromkeys(iterate_factored_conjuncts(branch))) for branch in predicate.arguments]
    shared = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    yield from shared
    rests = [build_conjunction([part for part in branch if part not in shared]) for branch in branches]
    if all(rest is not None for rest in rests):
        together = build_function_call("or", *(rest for rest in rests if rest is not None))
        yield predicate if together is None or not shared else together


def list_where_conditions(scope: Scope, select: exp.Select) -> list[exp.Expr]:
    """List the conditions that WHERE joins by AND, in order."""
    where = select.args.get("where")
    if where is None:
        return []
    found: list[exp.Expr] = []
    stack = list(scope.source.take_arguments(where, "this"))
    while stack:
        node = stack.pop()
        if type(node) is exp.And:
            left, right = scope.source.take_arguments(node, "this", "expression")
            stack += [right, left]
        elif type(node) is exp.Paren and type(node.this) in (exp.And, exp.Paren, exp.Exists, exp.In, exp.Not):
            stack += scope.source.take_arguments(node, "this")
        else:
            found.append(node)
    return found


def collect_aliased_items(select: exp.Select) -> dict[str, exp.Expr]:
    """Collect the items of SELECT that WHERE may name by their aliases, folded: those of one row."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        several = item.find(exp.AggFunc, exp.Window, exp.Star) or any(map(is_unnest, item.walk()))
        if type(item) is exp.Alias and not several:
            found.setdefault(normalize_name(item.alias), item.this)
    return found


def build_from_relation(scope: Scope, items: Sequence[FromItem], where: Sequence[Expr]) -> Relation:
    """Build the relation of a FROM clause and the conditions of WHERE.

    Inner joins may be written in any order: a private source is put first, since its rows belong to the units, and then the
    sources that repeat them least.
    """
    first_left = next((index for index, item in enumerate(items) if item.kind is JoinKind.LEFT), len(items))
    inner, rest = list(items[:first_left]), list(items[first_left:])
    start = min(inner, key=lambda item: _rank_source(scope, item))
    assembly = _JoinBuilder.from_relation(scope, scope.tables[start.alias].relation, [*where])
    assembly.pending_conditions += [condition for item in inner for condition in item.conditions]
    pending = [item for item in inner if item is not start]
    while pending:
        item = min(pending, key=assembly.get_sort_key)
        assembly.join_source(item)
        pending.remove(item)
    for item in rest:
        assembly.join_source(item)
    built = build_filter(assembly.relation, assembly.pending_conditions)
    check_conditions_applied(scope, items, where, built)
    if is_private(assembly.relation) and bound_rows(assembly.relation, scope.context.facts) > MAX_ROWS:
        scope.source.refuse(
            items[-1].node,
            "fanout",
            f"one privacy unit could have over {MAX_ROWS:,} rows after the joins",
            "join on a key that is unique in the public table, or lower rows_per_unit",
        )
    return built


def check_conditions_applied(
    scope: Scope, items: Sequence[FromItem], where: Sequence[Expr], built: Relation
) -> None:
    """Refuse a relation in which a condition of FROM or WHERE is not applied, or another is.

    The conditions of a LEFT JOIN belong to that join. All others must hold for each row of the result, so they may be applied
    at any INNER JOIN or filter. Raises QueryRejected.
    """
    outer = {scope.tables[item.alias].alias: item for item in items if item.kind is JoinKind.LEFT}
    required = {_normalize_condition(part) for part in where}
    required |= {
        _normalize_condition(part)
        for item in items
        if item.kind is JoinKind.INNER
        for part in item.conditions
    }
    applied: set[object] = set()
    rest = built
    while isinstance(rest, (Join, Filter)):
        if isinstance(rest, Filter):
            applied |= set(map(_normalize_condition, _split_and(rest.predicate)))
            rest = rest.input
            continue
        item = outer.pop(rest.right.alias, None) if rest.kind is JoinKind.LEFT else None
        if item is None:
            applied |= _collect_join_conditions(rest)
        else:
            _check_left_join(scope, rest, item)
        rest = rest.left
    if outer or applied != required:
        _refuse_unapplied(scope, items[-1].node)


def _check_left_join(scope: Scope, join: Relation, item: FromItem) -> None:
    """Refuse a LEFT JOIN on other conditions than its own."""
    own = set(map(_normalize_condition, item.conditions))
    if not isinstance(join, Join) or _collect_join_conditions(join) != own:
        _refuse_unapplied(scope, item.node)


def _collect_join_conditions(join: Join) -> set[object]:
    also = () if join.condition is None else _split_and(join.condition)
    return {frozenset(pair) for pair in join.on} | set(map(_normalize_condition, also))


def _refuse_unapplied(scope: Scope, node: exp.Expr) -> NoReturn:
    scope.source.refuse(
        node,
        "join",
        "a condition of this FROM clause cannot be applied where it is written",
        "move it to WHERE",
    )


def _split_and(predicate: Expr) -> tuple[Expr, ...]:
    """Return the arguments of an AND, or the predicate itself."""
    joined = isinstance(predicate, Call) and predicate.function.name == "and"
    return predicate.arguments if isinstance(predicate, Call) and joined else (predicate,)


def _normalize_condition(condition: Expr) -> object:
    """Return a condition in a form that does not depend on the order of the sides of an equality."""
    equal = isinstance(condition, Call) and condition.function.name == "eq"
    return frozenset(condition.arguments) if isinstance(condition, Call) and equal else condition


def resolve_using_column(
    scope: Scope, before: Sequence[str], alias: str, identifier: exp.Expr
) -> tuple[str, str]:
    """Return the name of a column that USING merges, and the earlier alias whose column it is."""
    name = str(scope.source.take_arguments(identifier, "this", quoted=(True,))[0])
    folded = normalize_name(name)
    holders = [item for item in before if folded in scope.tables[item].columns]
    holders = [scope.using_owners[folded]] if folded in scope.using_owners else holders
    if len(holders) != 1 or folded not in scope.tables[alias].columns:
        scope.source.refuse(identifier, "column", f"USING ({name}) needs a column {name} on both sides")
    return name, holders[0]


def build_left_join(scope: Scope, left: Relation, item: FromItem) -> Relation:
    """Build the rows of `left`, each with those of the item that its conditions find, or with none."""
    assembly = _JoinBuilder.from_relation(scope, left, [])
    assembly.join_source(item)
    _check_left_join(scope, assembly.relation, item)
    return assembly.relation


def _rank_source(scope: Scope, item: FromItem) -> int:
    """Rank private sources first, and among them those that hold the unit themselves."""
    relation = scope.tables[item.alias].relation
    if not is_private(relation):
        return 2
    return int(isinstance(relation, Scan) and relation.unit.link is not None)


MOST_READ = 1_000
"""The most rows of a public source that are constants of a plan."""
_READ_TYPES = frozenset(
    {Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.BOOLEAN, Type.DATE, Type.TIMESTAMP, Type.NULL}
)


CALENDAR = "take the days from a public calendar: FROM range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL 1 MONTH) AS m(m)"
"""The hint where days or months are read from private rows."""


def _is_calendar(source: Source) -> bool:
    """Return whether a derived table only holds days or times."""
    return not isinstance(source, Scan) and all(column.type.temporal for column in source.columns)


@dataclass(slots=True)
class _JoinBuilder:
    """The relation so far, and the conditions that still wait for a source."""

    scope: Scope
    relation: Relation
    pending_conditions: list[Expr]
    joined_aliases: set[str]
    """The sources of the relation so far, by alias."""

    @classmethod
    def from_relation(cls, scope: Scope, built: Relation, loose: list[Expr]) -> _JoinBuilder:
        """Return the assembly that begins with a relation."""
        return cls(scope, built, loose, {source.alias for source in iterate_sources(built)})

    def _get_alias(self, item: FromItem) -> str:
        return self.scope.tables[item.alias].alias

    def get_sort_key(self, item: FromItem) -> tuple[bool, int, int]:
        """Return the sort key of an item of the inner joins: lower is joined sooner, first those with an equality to joined sources."""
        pairs = [
            pair for part in self.pending_conditions if (pair := self._match_equality(part, item)) is not None
        ]
        return not pairs, self._rank_item(item, pairs), self._bound_repeats(item, pairs)

    def _rank_item(self, item: FromItem, pairs: Sequence[tuple[Expr, Column]]) -> int:
        """Rank an item like `_rank_source`, but last if it is private and nothing yet shows that its unit is the same."""
        right = self.scope.tables[item.alias].relation
        alike = covers_declared_link(pairs) or any(has_same_identity(*pair) for pair in pairs)
        return _rank_source(self.scope, item) if alike or not is_private(right) else 3

    def _bound_repeats(self, item: FromItem, pairs: Sequence[tuple[Expr, Column]]) -> int:
        """Return how often a public table would repeat rows of people now; later it may be joined on more."""
        right = self.scope.tables[item.alias].relation
        if not pairs or is_private(right) or list_required_steps(right) or not is_private(self.relation):
            return 0
        join = Join(self.relation, right, JoinKind.INNER, tuple(pairs))
        return self.scope.context.facts.look_up_multiplicity(join)

    def join_source(self, item: FromItem) -> None:
        """Join one more source: on its own conditions for LEFT JOIN, otherwise on all available ones."""
        left = item.kind is JoinKind.LEFT
        if not left:
            self.pending_conditions += [
                condition for condition in item.conditions if condition not in self.pending_conditions
            ]
        pairs = {
            part: self._match_equality(part, item)
            for part in (item.conditions if left else self.pending_conditions)
        }
        on = tuple(pair for pair in pairs.values() if pair is not None)
        others = [condition for condition, pair in pairs.items() if pair is None]
        right, proven = self.scope.tables[item.alias].relation, False
        alike = self._match_null_safe_pairs(others, item)
        if is_private(right):
            right, proven = self._resolve_private_join(item, right, on)
        elif is_private(self.relation) and not is_unique(
            right, _list_unconverted_columns((*on, *alike.values()))
        ):
            right = self._resolve_public_source(item, right)
        self.joined_aliases.add(right.alias)
        if left and any(not _collect_source_names(condition) <= self.joined_aliases for condition in others):
            self.scope.source.refuse(item.node, "join", "ON may only name tables that come before it")
        # A condition that makes the match unique belongs to the join, whose rows are bounded by it.
        also = build_conjunction(others if left else [*alike])
        self.relation = Join(self.relation, right, item.kind, on, also, proven)
        others = self.pending_conditions if left else [part for part in others if part not in alike]
        self.relation = build_filter(
            self.relation, [part for part in others if _collect_source_names(part) <= self.joined_aliases]
        )
        self.pending_conditions = [
            part for part in others if not _collect_source_names(part) <= self.joined_aliases
        ]

    def _resolve_private_join(
        self, item: FromItem, right: Source, on: Sequence[tuple[Expr, Column]]
    ) -> tuple[Source, bool]:
        """Return the private source to join, and whether a pair proves that its rows are of the same unit."""
        if not is_private(self.relation):
            private = self._describe_source(right, "the private table")
            public = self._describe_source(next(iterate_sources(self.relation)), "the public table")
            refuse_unowned_rows(self.scope, item.node, public, private)
        units = [scan.unit.kind for source in (self.relation, right) for scan in list_private_scans(source)]
        same = [(ours, theirs) for ours, theirs in on if has_same_identity(ours, theirs)]
        if not (same or covers_declared_link(on)) or UnitKind.ROW in units:
            self.scope.source.refuse(
                item.node,
                "private_join",
                "two private tables can only be joined on the privacy unit, or on all columns of a "
                "declared link",
                combine_hints(
                    self._find_unit_hint(right),
                    suggest_link_declaration(on, self.relation, right),
                    CALENDAR if any(map(_is_calendar, (right, *iterate_sources(self.relation)))) else None,
                ),
            )
        for ours, theirs in same:
            if isinstance(ours, Column) and ours.facts.is_read_verbatim and theirs.facts.is_read_verbatim:
                if ours.facts.is_unit:
                    return right, True
                if isinstance(right, Scan) and _is_joined_to_owner(theirs, right, ours, self.relation):
                    return replace(right, unit=Unit(UnitKind.COLUMN)), True
        return right, False

    def _resolve_public_source(self, item: FromItem, right: Source) -> Source:
        """Return the public source to join, whose rows are read now if a window, LIMIT or GROUP BY makes them.

        Refuse one for which no fact limits, before its release, how many of its rows join one row.

        Claim: each private row is joined to the same rows as when the number of its partners was bounded.
        Why: the rows are constants of the plan. They follow from public tables alone, which are read before the charge; a LIMIT or
        ROW_NUMBER that could choose other rows of equal order is not computed again.
        Source: Dwork, Roth 2014, Proposition 2.1 (post-processing of nothing private).
        """
        depends = any(isinstance(step, Release) for step in list_required_steps(right))
        if has_public_subquery(right) and not depends and not isinstance(right, Scan):
            return self._read_public_source(item, right)
        if has_public_subquery(right):
            self.scope.source.refuse(
                item.node,
                "join",
                f"private rows can be joined to the released rows of {self._describe_source(right, 'the subquery')} "
                "only on all its group keys",
                "write ON private.key = released.key, or (SELECT …) for a single value",
            )
        if depends:
            self.scope.source.refuse(
                item.node,
                "join",
                "a released value would decide how many rows a private row is joined to",
                "compare with the released value in WHERE, after the join",
            )
        return right

    def _read_public_source(
        self,
        item: FromItem,
        right: Project | PerUnitGroupBy | PerUnitWindows | SetOperation | PublicSubquery | Values,
    ) -> Values:
        """Read the rows of a public source into constants."""
        name = self._describe_source(right, "the subquery")
        if not all(column.type in _READ_TYPES for column in right.columns):
            self.scope.source.refuse(
                item.node,
                "join",
                f"{name} is computed before it is joined, and has a column of a type that is not supported there",
                "select only numbers, texts, dates and truth values in it",
            )
        outputs = tuple(Output(column.name, column) for column in right.columns)
        rows = self.scope.context.facts.read_rows(OuterQuery(right, outputs, limit=MOST_READ + 1))
        if len(rows) > MOST_READ:
            self.scope.source.refuse(
                item.node,
                "join",
                f"{name} is computed before it is joined, and has more than {MOST_READ:,} rows",
                "join the public table itself, or declare a public table with these rows",
            )
        cleaned = tuple(
            tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows
        )
        return Values(cleaned, right.alias, right.columns)

    def _describe_source(self, source: Source, unnamed: str) -> str:
        """Return the name that the query has for a source, or these words where it gives none."""
        if not source.alias.startswith("#"):
            return source.alias
        return source.table if isinstance(source, Scan) else unnamed

    def _find_unit_hint(self, right: Relation) -> str | None:
        for theirs in self._iterate_identity_columns(right):
            for ours in self._iterate_identity_columns(self.relation):
                if has_same_identity(ours, theirs):
                    return f"add ON {ours.source}.{ours.name} = {theirs.source}.{theirs.name}"
        return None

    def _iterate_identity_columns(self, relation: Relation) -> Iterator[Column]:
        for source in iterate_sources(relation):
            known = self.scope.tables.get(normalize_name(source.alias))
            yield from (
                column
                for column in (known.columns.values() if known else ())
                if column.facts.identity is not None
            )

    def _match_null_safe_pairs(
        self, conditions: Sequence[Expr], item: FromItem
    ) -> dict[Expr, tuple[Expr, Column]]:
        """Return the conditions by which columns of a released source equal joined expressions, NULL among their values."""
        if not has_public_subquery(self.scope.tables[item.alias].relation):
            return {}
        pairs = {part: self._match_equality(part, item, "is_not_distinct") for part in conditions}
        return {part: pair for part, pair in pairs.items() if pair is not None}

    def _match_equality(
        self, condition: Expr, item: FromItem, function: str = "eq"
    ) -> tuple[Expr, Column] | None:
        """Return the equality between a joined expression and a column of the item, in either order."""
        if not isinstance(condition, Call) or condition.function.name != function:
            return None
        alias = self._get_alias(item)
        for ours, theirs in (condition.arguments, condition.arguments[::-1]):
            if isinstance(theirs, Column) and theirs.source == alias:
                names = _collect_source_names(ours)
                if names and names <= self.joined_aliases:
                    return ours, theirs
        return None


def refuse_unowned_rows(scope: Scope, node: exp.Expr, public: str, private: str) -> NoReturn:
    """Refuse rows of a public table without a row of a private one, which belong to no unit."""
    scope.source.refuse(
        node,
        "join",
        f"in a derived table, a row of {public} without a row of {private} would belong to no privacy unit",
        f"start with the private table: FROM {private} LEFT JOIN {public} ON …, or FROM {private} JOIN {public} ON …",
    )


def has_same_identity(ours: Expr, theirs: Column) -> bool:
    """Return whether rows with equal values of both have one unit: of other types, different ids could be equal."""
    return (
        isinstance(ours, Column)
        and ours.facts.identity is not None
        and ours.facts.identity == theirs.facts.identity
        and ours.type is theirs.type
    )


def _list_unconverted_columns(on: Sequence[tuple[Expr, Column]]) -> list[Column]:
    """List the columns that are compared as they are: converted, two of their values could be equal."""
    return [theirs for ours, theirs in on if find_common_type((ours.type, theirs.type)) is theirs.type]


def _is_joined_to_owner(theirs: Column, right: Scan, ours: Column, left: Relation) -> bool:
    """Return whether `right` is a linked table, joined by its link to the very table that has its unit."""
    link = right.unit.link
    if link is None:
        return False
    owner = next((source for source in iterate_sources(left) if source.alias == ours.source), None)
    return (
        isinstance(owner, Scan)
        and owner.table == link.owner.table
        and not link.rest
        and (theirs.name, ours.name) == (link.column.name, link.key.name)
    )


def _collect_source_names(expr: Expr) -> set[str]:
    return {column.source for column in iterate_columns(expr)}


def build_conjunction(predicates: Sequence[Expr]) -> Expr | None:
    """Build the condition that all of some are true, None of none."""
    if len(predicates) < 2:
        return predicates[0] if predicates else None
    return build_function_call("and", *predicates)


def build_filter(relation: Relation, predicates: Sequence[Expr]) -> Relation:
    """Build the rows of a relation for which all predicates are true."""
    predicate = build_conjunction(predicates)
    if predicate is None:
        return relation
    if predicate.type not in (Type.BOOLEAN, Type.NULL):
        raise TypeError("a filter must be boolean")
    return Filter(relation, predicate)
