"""Rewrite percentiles that are computed by numbering all rows as quantiles.

`SELECT MIN(CASE WHEN r >= 0.25 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t)`
is `SELECT QUANTILE_DISC(x, 0.25) FROM (SELECT x FROM t)`. A number of every row cannot be computed over private rows; a quantile
can be released.

Claim: over values that are not NULL the rewritten query returns what the original returns, at any number of rows from 1 on.
Why: the k-th smallest value does not depend on how equal values are numbered. A condition on positions is
read as the first and the last position that it selects among n rows. Both are built from n by +, -, *, /, FLOOR and CEIL with
constants, so that they are a multiple of n and a part that repeats with a known period. Two such functions that are equal over two
periods are equal everywhere. QUANTILE_DISC(x, q) is the value at position CEIL(q * n), MEDIAN(x) the mean of the values at
FLOOR((n + 1) / 2) and CEIL((n + 1) / 2). Nothing is released that the rewritten query does not release.
Source: Hyndman, Fan 1996, "Sample quantiles in statistical packages", definitions 1 and 7; Beck, Robins 2007, "Computing the
continuous discretely", Theorem 3.23 (quasi-polynomials).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates.quantiles import RANKED
from dpsql.sql.lower.grouping import format_output_name
from dpsql.sql.lower.row_positions import (
    PositionReader,
    UnknownPositionError,
    WorkLimit,
    find_share,
    is_modelled,
    list_sizes,
    read_number,
    strip_real,
)

_INNER = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "with_"})
_OUTER = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "with_"})
_ENDS: Mapping[type[exp.Expr], int] = MappingProxyType({exp.Min: 0, exp.Max: 1})
_OPPOSITES: Mapping[type[exp.Expr], type[exp.Expr]] = MappingProxyType(
    {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
)
_MOST_NODES = 5_000
"""The most nodes of a statement that is searched: copies of its parts are compared."""


def rewrite_ranked_quantiles(tree: exp.Expr) -> exp.Expr | None:
    """Return a copy of a statement's tree in which ranked rows are quantiles; None if it has none that are recognized."""
    if sum(1 for _ in tree.walk()) > _MOST_NODES:
        return None
    copied, work = tree.copy(), WorkLimit()
    found = False
    for select in reversed(list(copied.find_all(exp.Select))):
        ranked = _find_ranked_rows(select)
        if ranked is not None and (built := _RankedQuery(select.copy(), ranked, work).rewrite()) is not None:
            found = True
            for name in {*select.args, *built.args}:
                select.set(name, built.args.get(name))
    return copied if found else None


# Recognize the derived table that numbers and counts its rows.


@dataclass(frozen=True, slots=True)
class _RankedRows:
    """A derived table with numbered rows.

    `columns` holds the kinds of the columns of positions by name, `value` the expression by which rows are numbered, `partition` the
    columns within which they are, both with folded names. `items` are the other columns. `sources` are the names by which the outer
    query may call the tables.
    """

    select: exp.Select
    columns: Mapping[str, str]
    items: Mapping[str, exp.Expr]
    value: exp.Expr
    partition: frozenset[exp.Expr]
    sources: frozenset[str]
    counts_nulls: bool

    def find_kind(self, node: exp.Expr | None) -> str | None:
        """Return the kind of a column of positions: "rank", "count", "share" or "cumulative"; None for other nodes."""
        node = strip_real(node)
        if type(node) is not exp.Column or (node.table and normalize_name(node.table) not in self.sources):
            return None
        return self.columns.get(normalize_name(node.name))

    def find_item(self, node: exp.Expr) -> exp.Expr | None:
        """Return the expression behind a column of the derived table, for columns other than positions."""
        if type(node) is not exp.Column or (node.table and normalize_name(node.table) not in self.sources):
            return None
        name = normalize_name(node.name)
        if (
            name in self.items
            or not self.select.is_star
            or not all(map(_is_plain_star, self.select.expressions))
        ):
            return self.items.get(name)
        return exp.Column(this=node.this.copy())

    def is_value(self, node: exp.Expr | None) -> bool:
        """Return whether a node of the outer query is the value by which rows are numbered."""
        behind = None if node is None else self.find_item(node)
        return behind is not None and _fold(behind) == self.value


@dataclass(slots=True)
class _Positions:
    """The columns of positions of a derived table, as they are collected.

    `orders` are the values that number the rows, `counted` the values that are counted, None for rows.
    """

    inner: exp.Select
    columns: dict[str, str] = field(default_factory=dict)
    orders: list[exp.Expr] = field(default_factory=list)
    partitions: list[list[exp.Expr]] = field(default_factory=list)
    counted: list[exp.Expr | None] = field(default_factory=list)
    nulls_first: bool = False

    def add_item(self, item: exp.Expr) -> bool:
        """Add a SELECT item; return whether it is a position that is recognized, or none."""
        node = item.unalias()
        if node.find(exp.Window) is not None:
            kind = self._classify(node)
        elif type(node) is exp.Subquery:
            kind = self.classify_count(node.this)
        else:
            return True
        if (
            kind is None
            or not item.alias_or_name
            or not is_modelled(item, deep=kind != "count" or type(node) is exp.Window)
        ):
            return False
        self.columns[normalize_name(item.alias_or_name)] = kind
        return True

    def classify_count(self, query: exp.Expr | None) -> str | None:
        """Return "count" for a query that counts the rows of the derived table."""
        if type(query) is not exp.Select or len(query.expressions) != 1 or self.inner.args.get("group"):
            return None
        if not {name for name, value in query.args.items() if value} <= {
            "expressions",
            "from_",
            "joins",
            "where",
        }:
            return None
        call = query.expressions[0].unalias()
        if not is_modelled(query.expressions[0]):
            return None
        if type(call) is not exp.Count or any(
            not _is_same_clause(query.args.get(name), self.inner.args.get(name))
            for name in ("from_", "joins", "where")
        ):
            return None
        self.counted.append(None if type(call.this) is exp.Star else call.this)
        self.partitions.append([])
        return "count"

    def build(self, sources: frozenset[str]) -> _RankedRows | None:
        """Build the ranked rows; None if they are numbered by several values, or counted by others."""
        orders, partitions = (
            set(map(_fold, self.orders)),
            {frozenset(map(_fold, each)) for each in self.partitions},
        )
        counted = {None if each is None else _fold(each) for each in self.counted}
        if len(orders) != 1 or len(partitions) != 1 or not counted <= {None, *orders}:
            return None
        items: dict[str, exp.Expr] = {}
        for item in self.inner.expressions:
            items.setdefault(normalize_name(item.alias_or_name), item.unalias())
        if len(items) < len(self.inner.expressions):
            return None
        (value,), (partition,) = orders, partitions
        counts_nulls = counted != {value} or self.nulls_first
        return _RankedRows(self.inner, self.columns, items, value, partition, sources, counts_nulls)

    def _classify(self, node: exp.Expr) -> str | None:
        """Return the kind of a column that is made of windows alone."""
        node = strip_real(node) or node
        if type(node) is exp.Div:
            kinds = [self._classify(part) for part in (node.this, node.expression)]
            return "share" if kinds == ["rank", "count"] else None
        if type(node) is not exp.Window or node.args.get("spec") or node.args.get("alias"):
            return None
        order, partition = node.args.get("order"), node.args.get("partition_by") or []
        self.partitions.append(partition)
        if type(node.this) is exp.Count and order is None:
            self.counted.append(None if type(node.this.this) is exp.Star else node.this.this)
            return "count"
        kind = {exp.RowNumber: "rank", exp.CumeDist: "cumulative"}.get(type(node.this))
        if kind is None or order is None:
            return None
        first = order.expressions[0]
        if type(first) is not exp.Ordered or first.args.get("desc"):
            return None
        self.nulls_first |= bool(first.args.get("nulls_first"))
        if kind == "cumulative" and len(order.expressions) > 1:
            return None
        self.orders.append(first.this)
        return kind


def _is_plain_star(item: exp.Expr) -> bool:
    """Return whether an item leaves the names of columns to their values, unlike `* REPLACE` and `* RENAME`."""
    star = item.this if type(item) is exp.Column else item
    return type(star) is not exp.Star or not (star.args.get("replace") or star.args.get("rename"))


def _find_ranked_rows(select: exp.Select) -> _RankedRows | None:
    """Return the ranked rows in FROM of a SELECT, alone or with a count of the same rows next to them."""
    from_ = select.args.get("from_")
    inner, alias = _resolve_table(select, None if from_ is None else from_.this)
    if (
        inner is None
        or from_ is None
        or not is_modelled(from_, deep=False)
        or not {name for name, value in inner.args.items() if value} <= _INNER
    ):
        return None
    group = inner.args.get("group")
    if group is not None and any(read_number(key) is not None for key in group.expressions):
        return None  # the numbers of items change
    found = _Positions(inner)
    if not all(map(found.add_item, inner.expressions)):
        return None
    sources, joins = {alias}, select.args.get("joins") or []
    if len(joins) > 1:
        return None
    for join in joins:
        if inner.args.get("with_"):
            return None  # names of tables have another meaning there
        if {name for name, value in join.args.items() if value} - {"this", "kind"} or join.args.get(
            "kind"
        ) not in ("CROSS", None, ""):
            return None
        counting, other = _resolve_table(select, join.this)
        if counting is None or found.classify_count(counting) is None or not counting.expressions[0].alias:
            return None
        found.columns[normalize_name(counting.expressions[0].alias)] = "count"
        sources.add(other)
    return found.build(frozenset(sources))


def _resolve_table(select: exp.Select, table: exp.Expr | None) -> tuple[exp.Select | None, str]:
    """Return the SELECT that a derived table or common table expression stands for, and the name of the table.

    A common table expression is only found where the names of its tables mean the same at the SELECT.
    """
    if table is None or not is_modelled(table, deep=False):
        return None, ""
    if type(table) is exp.Subquery:
        alias = table.args.get("alias")
        plain = not (alias is not None and alias.args.get("columns")) and not table.args.get("with_")
        return (table.this if plain and type(table.this) is exp.Select else None), normalize_name(table.alias)
    if type(table) is not exp.Table or table.args.get("db") or table.args.get("joins"):
        return None, ""
    alias = table.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None, ""
    around: exp.Expr | None = select
    hidden = set[str]()
    while around is not None:
        with_ = around.args.get("with_")
        commons = with_.expressions if with_ is not None and not with_.args.get("recursive") else []
        names = [normalize_name(common.alias) for common in commons]
        for place, common in enumerate(commons):
            if names[place] == normalize_name(table.name):
                if _names_any_table(common, hidden | {*names[place:]}):
                    return None, ""  # a name would mean another table here
                alone = {key for key, value in common.args.items() if value} <= {"this", "alias"}
                plain = (
                    alone and not common.args["alias"].args.get("columns") and type(common.this) is exp.Select
                )
                return (common.this if plain else None), normalize_name(table.alias_or_name)
        hidden |= {*names}
        around = around.parent
    return None, ""


def _names_any_table(query: exp.Expr, names: set[str]) -> bool:
    return any(normalize_name(table.name) in names for table in query.find_all(exp.Table))


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Return whether two nodes differ in the case of names alone."""
    return _fold(one) == _fold(other)


def _is_same_clause(one: object, other: object) -> bool:
    if isinstance(one, exp.Expr) and isinstance(other, exp.Expr):
        return _is_same(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same_clause, one, other))
    return not one and not other


def _fold(node: exp.Expr) -> exp.Expr:
    found = node.copy()
    for name in found.find_all(exp.Identifier):
        name.set("this", normalize_name(name.name))
    return found


# Rewrite the query over ranked rows.


@dataclass(slots=True)
class _RankedQuery:
    """The SELECT over ranked rows, and the same with quantiles."""

    select: exp.Select
    ranked: _RankedRows
    work: WorkLimit
    where: exp.Expr | None = None

    def rewrite(self) -> exp.Select | None:
        """Return the query with quantiles; None if it reads positions in any other way."""
        if (
            not {name for name, value in self.select.args.items() if value} <= _OUTER
            or not self._groups_by_partition()
            or not self._take_where()
        ):
            return None
        items = []
        for item in self.select.expressions:
            if item.is_star or item.find(exp.Query) is not None:
                return None
            name = item.args.get("alias") or exp.to_identifier(format_output_name(item), quoted=True)
            built = self._replace(item.copy())
            keeps = type(item) in (exp.Alias, exp.Column) or built == item
            items.append(built if keeps else exp.Alias(this=built, alias=name))
        self.select.set("expressions", items)
        for clause in ("having", "order"):
            if self.select.args.get(clause):
                self.select.set(clause, self._replace(self.select.args[clause]))
        if self.where is not None and not self._has_only_quantiles():
            return None  # positions are those of all rows, and only some of them are read
        inner = self.ranked.select.copy()
        remaining = [
            item
            for item in inner.expressions
            if normalize_name(item.alias_or_name) not in self.ranked.columns
        ]
        if not remaining:
            return None
        inner.set("expressions", remaining)
        inner.set("order", None)
        table = self.select.args["from_"].this
        alias = table.args.get("alias")
        if alias is None and type(table) is exp.Table:
            alias = exp.TableAlias(this=table.this)
        self.select.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias and alias.copy())))
        self.select.set("joins", None)
        return None if self._reads_positions() else self.select

    def _take_where(self) -> bool:
        """Take WHERE out of the SELECT; return whether its meaning is known so far."""
        where = self.select.args.get("where")
        self.select.set("where", None)
        self.where = None if where is None else where.this
        return where is None or is_modelled(where, deep=False)

    def _has_only_quantiles(self) -> bool:
        """Return whether all aggregates are quantiles that were rewritten, which leave no row out by the former WHERE."""
        clauses = [self.select.args.get(name) for name in ("having", "order")]
        calls = [
            part
            for clause in [*self.select.expressions, *clauses]
            if clause is not None
            for part in clause.find_all(exp.AggFunc)
        ]
        return bool(calls) and all(RANKED in call.meta for call in calls)

    def _groups_by_partition(self) -> bool:
        """Return whether the groups are those within which rows are numbered."""
        group, items = self.select.args.get("group"), self.select.expressions
        if group is None:
            return not self.ranked.partition
        if {name for name, value in group.args.items() if value} - {"expressions", "all"}:
            return False
        keys = (
            [item.unalias() for item in items if item.find(exp.AggFunc) is None]
            if group.args.get("all")
            else group.expressions
        )
        behind = [self.ranked.find_item(self._resolve_ordinal(key)) for key in keys]
        if None in behind:
            return False
        return frozenset(_fold(each) for each in behind if each is not None) == self.ranked.partition

    def _resolve_ordinal(self, key: exp.Expr) -> exp.Expr:
        """Return the SELECT item that a group key names by its number, else the key itself."""
        place, items = read_number(key), self.select.expressions
        if place is None:
            return key
        return items[int(place) - 1].unalias() if 1 <= place <= len(items) else exp.Null()

    def _replace(self, node: exp.Expr) -> exp.Expr:
        """Replace the aggregates of ranked rows in a node by quantiles, except those of a part of the rows."""

        def change(part: exp.Expr) -> exp.Expr:
            if type(part.parent) in (exp.Filter, exp.Window):
                return part
            try:
                return self._build_quantile(part) or part
            except UnknownPositionError:
                return part

        return node.transform(change, copy=False)

    def _build_quantile(self, node: exp.Expr) -> exp.Expr | None:
        """Return the quantile that an aggregate is; None for other nodes."""
        call, condition, value, otherwise = _split_conditional(node)
        if not is_modelled(node) or (self.where is not None and not is_modelled(self.where)):
            return None
        if type(call) not in (exp.Min, exp.Max, exp.Avg) or (condition is None) == (self.where is None):
            return None
        if condition is None:
            condition = self.where
        if self.ranked.is_value(otherwise) and not self.ranked.is_value(value):
            condition, value, otherwise = _negate(condition), otherwise, value
        if call is None or value is None or condition is None or not self.ranked.is_value(value):
            return None
        quantile = (self._find_cumulative(call, condition) or self._find_quantile(call, condition))(value)
        quantile.meta[RANKED] = self.ranked.counts_nulls
        return self._add_default(call, quantile, otherwise)

    def _find_cumulative(self, call: exp.Expr, condition: exp.Expr) -> Callable[[exp.Expr], exp.Expr] | None:
        """Return the quantile of MIN where CUME_DIST() is at least q."""
        if (
            type(call) is not exp.Min
            or type(condition) is not exp.GTE
            or self.ranked.find_kind(condition.this) != "cumulative"
        ):
            return None
        share = read_number(condition.expression)
        if share is None or not 0 <= share <= 1:
            return None
        return lambda value: exp.PercentileDisc(this=value, expression=exp.Literal.number(str(float(share))))

    def _find_quantile(self, call: exp.Expr, condition: exp.Expr) -> Callable[[exp.Expr], exp.Expr]:
        """Return the quantile that the least, the greatest or the mean value of the selected positions is."""
        reader = PositionReader(self.ranked.find_kind)
        select, sizes = reader.read_condition(condition), list_sizes(reader.period)
        self.work.spend(len(sizes))
        spans = [select(n) for n in sizes]
        if any(first > last for first, last in spans):
            raise UnknownPositionError
        if type(call) is exp.Avg and spans == [((n + 1) // 2, n // 2 + 1) for n in sizes]:
            return lambda value: exp.Median(this=value)
        if type(call) is exp.Avg and any(first < last for first, last in spans):
            raise UnknownPositionError
        share = find_share([span[_ENDS.get(type(call), 0)] for span in spans], sizes, reader.period)
        return lambda value: exp.PercentileDisc(this=value, expression=exp.Literal.number(str(float(share))))

    def _add_default(self, call: exp.Expr, quantile: exp.Expr, otherwise: exp.Expr | None) -> exp.Expr:
        """Return the quantile next to a number that stands for the other positions, which is beyond all values."""
        if otherwise is None or type(otherwise) is exp.Null:
            return quantile
        number = otherwise.this if type(otherwise) is exp.Neg else otherwise
        if read_number(number) is None or type(call) not in _ENDS:
            raise UnknownPositionError
        name = "LEAST" if type(call) is exp.Min else "GREATEST"
        return exp.Anonymous(this=name, expressions=[quantile, otherwise.copy()])

    def _reads_positions(self) -> bool:
        """Return whether the rewritten query still names a position."""
        clauses = [self.select.args.get(name) for name in ("where", "group", "having", "order")]
        return any(
            self.ranked.find_kind(column) is not None
            for part in [*self.select.expressions, *clauses]
            if part is not None
            for column in part.find_all(exp.Column)
        )


def _split_conditional(
    node: exp.Expr,
) -> tuple[exp.Expr | None, exp.Expr | None, exp.Expr | None, exp.Expr | None]:
    """Return the parts of an aggregate of a value under a condition: the call, the condition, the value, and the value elsewhere."""
    if type(node) is exp.Filter and type(node.expression) is exp.Where:
        return node.this, node.expression.this, node.this.this, None
    value = node.this if isinstance(node, exp.AggFunc) else None
    if type(value) is exp.Case and value.this is None and len(value.args["ifs"]) == 1:
        branch = value.args["ifs"][0]
        return node, branch.this, branch.args.get("true"), value.args.get("default")
    return (None if value is None else node), None, value, None


def _negate(condition: exp.Expr | None) -> exp.Expr:
    """Return the opposite of a comparison. Raises UnknownPositionError for other conditions."""
    negated = None if condition is None else _OPPOSITES.get(type(condition))
    if negated is None or condition is None:
        raise UnknownPositionError
    return negated(this=condition.this, expression=condition.expression)
