"""Rewrite IN, EXISTS, = ANY and <> ALL with a subquery next to groups or windows as conditions on a derived table of these.

`SELECT k, COUNT(*) FROM t GROUP BY k HAVING k IN (SELECT …)` is `SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k)
WHERE k IN (SELECT …)`: HAVING selects groups as WHERE selects the rows of the derived table. Windows are computed over the
groups that HAVING keeps, so they are outside of it; windows that QUALIFY compares with a subquery are in one more derived
table.

Claim: the statement means the same, and nothing else is released.
Why: HAVING and QUALIFY are conditions on the rows of such derived tables. They compare expressions over groups, which are
columns of the derived table.
Source: ISO/IEC 9075-2, <having clause>; Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.lower.node_kinds import has_aggregate, is_matching, is_over_window
from dpsql.sql.parse.rejection import QueryText

_INNER = ("from_", "joins", "where", "group")
_OUTER = ("with_", "distinct", "limit", "offset")
_CONDITIONS = ("having", "qualify")
_UNCHANGED = (
    exp.Query, exp.Literal, exp.Null, exp.Boolean, exp.Identifier, exp.Star, exp.DataType, exp.Var, exp.Placeholder,
    exp.Any, exp.All, exp.WindowSpec,
)  # fmt: skip
"""Nodes that mean the same in the SELECT around the derived table."""
_PARTS = (exp.If, exp.Tuple, exp.Where, exp.Order, exp.Ordered, exp.Having, exp.Qualify)
"""Nodes that are not values themselves."""
_SETS = (exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)
"""Nodes in which a number is the ordinal of an output."""


def wrap_in_derived_table(source: QueryText, select: exp.Select) -> exp.Select:
    """Return the SELECT, over a derived table where groups or windows are compared with rows of a subquery."""
    clauses = [select.args.get(name) for name in (*_CONDITIONS, "order")]
    present = [*select.expressions, *(part for part in clauses if part is not None)]
    keys = _list_key_items(select)
    if not any(_has_subquery_comparison(part) and part not in keys for part in present):
        return select
    starred = [item for item in select.expressions if item.is_star]
    if any(map(has_aggregate, starred)):
        return select  # an aggregate in REPLACE cannot become a column of the derived table, of which * would be all
    if select.args.get("group") or select.args.get("having") or any(map(has_aggregate, present)):
        of_rows = [key.unalias() for key in keys]
        return wrap_in_derived_table(
            source, _DerivedTableRewrite(source, select.copy(), "having", of_rows).build_select(select)
        )
    qualify = select.args.get("qualify")
    if qualify is not None and _has_subquery_comparison(qualify) and not starred:
        return _DerivedTableRewrite(source, select.copy(), "qualify").build_select(select)
    return select


def wrap_groups(source: QueryText, select: exp.Select) -> exp.Select:
    """Return a SELECT with groups and windows over them as one of windows over a derived table of the groups."""
    of_rows = [key.unalias() for key in _list_key_items(select)]
    return _DerivedTableRewrite(source, select.copy(), "having", of_rows).build_select(select)


def _iterate_own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield a node and its parts, without those in its subqueries; for rows, without those in its aggregates."""
    return node.walk(prune=_is_subquery_or_aggregate)


def _is_subquery_or_aggregate(node: exp.Expr) -> bool:
    of_rows = isinstance(node, (exp.AggFunc, exp.Filter)) and not is_over_window(node)
    return of_rows or isinstance(node, exp.Query)


def _list_key_items(select: exp.Select) -> list[exp.Expr]:
    """List the items of SELECT that are group keys, whose comparisons are of rows."""
    group = select.args.get("group")
    if group is None:
        return []
    keys = [
        part for key in group.args.values() if isinstance(key, list) for item in key for part in item.walk()
    ]
    names = {
        normalize_name(key.name) for key in keys if type(key) is exp.Column and not key.args.get("table")
    }
    places = {str(key.this) for key in keys if type(key) is exp.Literal}
    return [
        item
        for place, item in enumerate(select.expressions, 1)
        if (group.args.get("all") and not has_aggregate(item))
        or str(place) in places
        or item.unalias() in keys
        or (type(item) is exp.Alias and normalize_name(item.alias) in names)
    ]


def _has_subquery_comparison(node: exp.Expr) -> bool:
    """Return whether a node compares with the rows of a subquery."""
    return any(map(_is_subquery_comparison, _iterate_own_nodes(node)))


def _is_subquery_comparison(node: exp.Expr) -> bool:
    side = node.args.get("expression")
    member = (type(node), type(side)) in ((exp.EQ, exp.Any), (exp.NEQ, exp.All))
    return is_matching(node) or (member and side is not None and side.find(exp.Query) is not None)


@dataclass(slots=True)
class _DerivedTableRewrite:
    """The derived table of a SELECT, and the SELECT around it, whose WHERE is `condition`: HAVING, or QUALIFY."""

    source: QueryText
    select: exp.Select
    condition: str
    keys: list[exp.Expr] = field(default_factory=list)
    columns: dict[exp.Expr, exp.Identifier] = field(default_factory=dict)
    aliased_items: dict[str, exp.Expr] = field(default_factory=dict)

    def build_select(self, instead: exp.Select) -> exp.Select:
        """Build the SELECT around, where `instead` stands."""
        given = self.select.args
        if given.get("group"):
            self._expand_keys(given["group"])
        items = [self._rewrite_item(item) for item in self.select.expressions]
        for key in self._list_keys():
            if type(key) is exp.Column:
                self._add_column(key)  # a subquery may name it
        for clause in filter(None, map(given.get, _CONDITIONS)):
            clause.set("this", self._expand_aliases(*self.source.take_arguments(clause, "this")))
        around = {
            name: self._rewrite_node(given[name]) for name in (*_CONDITIONS, "order") if given.get(name)
        }
        windows = given.get("windows") or []
        around_it = [self._rewrite_window(item) for item in windows] if self.condition == "having" else []
        inner = exp.Select(
            expressions=[exp.Alias(this=node, alias=name.copy()) for node, name in self.columns.items()],
            **{name: given[name] for name in _INNER if given.get(name)},
        )
        if self.condition == "qualify":
            inner.set("windows", windows)
        outer = exp.Select(
            expressions=items, from_=exp.From(this=exp.Subquery(this=inner, alias=self._find_table_alias()))
        )
        if self.condition in around:
            outer.set("where", exp.Where(this=around.pop(self.condition).this))
        given_alike = ((name, given.get(name)) for name in _OUTER)
        for name, value in (*given_alike, *around.items(), ("windows", around_it)):
            if value:
                outer.set(name, value)
        outer.parent, outer.arg_key = instead.parent, instead.arg_key
        return outer

    def _expand_keys(self, group: exp.Expr) -> None:
        """Expand GROUP BY ALL and ordinals of outputs, since the derived table has other outputs."""
        items = self.select.expressions
        if group.args.get("all"):
            plain = [item.unalias() for item in items if not (has_aggregate(item) or item.find(exp.Window))]
            group.set("all", None)
            group.set("expressions", [item.copy() for item in plain])
        numbers = [
            part for part in group.walk() if type(part) is exp.Literal and isinstance(part.parent, _SETS)
        ]
        for part in numbers:
            if not part.is_string and part.this.isdigit() and 1 <= int(part.this) <= len(items):
                part.replace(items[int(part.this) - 1].unalias().copy())

    def _list_keys(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        return [] if group is None else list(group.expressions)

    def _find_table_alias(self) -> exp.TableAlias | None:
        """Find the name of the one table of FROM, which a subquery may use."""
        table = getattr(self.select.args.get("from_"), "this", None)
        if type(table) is not exp.Table or self.select.args.get("joins"):
            return None
        return exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))

    def _rewrite_item(self, item: exp.Expr) -> exp.Expr:
        if type(item) is exp.Column:
            return self._rewrite_node(item)
        if type(item) is not exp.Alias:
            text = item.sql(dialect="duckdb", comments=False)[:200]
            return exp.Alias(this=self._rewrite_node(item), alias=exp.to_identifier(text, quoted=True))
        _, name = self.source.take_arguments(item, "this", "alias")
        if normalize_name(name.name) not in self._list_taken_names() and self._is_column(item.this):
            self.columns.setdefault(_find_same_node(item.this, self.columns), name)  # later items may name it
        self.aliased_items[normalize_name(name.name)] = item.this.copy()
        return exp.Alias(this=self._rewrite_node(item.this), alias=name)

    def _expand_aliases(self, condition: exp.Expr) -> exp.Expr:
        """Expand aliases in HAVING or QUALIFY: an unqualified name means a group key, then an alias, then a column."""
        keys = {normalize_name(key.name) for key in self._list_keys() if type(key) is exp.Column}

        return _replace_nodes(condition, lambda node: self._expand_alias(node, keys))

    def _expand_alias(self, node: exp.Expr, keys: set[str]) -> exp.Expr:
        name = normalize_name(node.name) if type(node) is exp.Column and not node.args.get("table") else ""
        if name not in self.aliased_items or name in keys:
            return node
        self.source.take_arguments(*self.source.take_arguments(node, "this"), "this", quoted=(True,))
        return self.aliased_items[name].copy()

    def _is_column(self, node: exp.Expr) -> bool:
        """Return whether a node is computed in the derived table as a whole."""
        around = self.condition == "having" and any(
            isinstance(part, exp.Window) for part in _iterate_own_nodes(node)
        )
        if isinstance(node, (*_UNCHANGED, *_PARTS)):
            return False
        return _find_same_node(node, self.keys) in self.keys or not (around or _has_subquery_comparison(node))

    def _rewrite_node(self, node: exp.Expr) -> exp.Expr:
        """Rewrite a node over the derived table, whose columns are the values that it reads of groups."""
        if isinstance(node, _UNCHANGED):
            return node
        if type(node) is exp.Window and self.condition == "having":
            return self._rewrite_window(node)
        if type(node) is exp.Ordered and self._is_output(node.this):
            return node
        return self._add_column(node) if self._is_column(node) else self._rewrite_children(node)

    def _rewrite_children(self, node: exp.Expr) -> exp.Expr:
        for name, value in list(node.args.items()):
            if isinstance(value, list):
                node.set(
                    name, [self._rewrite_node(part) if isinstance(part, exp.Expr) else part for part in value]
                )
            elif isinstance(value, exp.Expr):
                node.set(name, self._rewrite_node(value))
        return node

    def _is_output(self, node: exp.Expr) -> bool:
        """Return whether ORDER BY names an output."""
        return (
            type(node) is exp.Column
            and not node.args.get("table")
            and normalize_name(node.name) in self.aliased_items
        )

    def _rewrite_window(self, node: exp.Expr) -> exp.Expr:
        """Rewrite a window over the derived table: its function, partition and order read columns of that table."""
        function = node.this
        node.set("this", None)
        self._rewrite_children(node)
        called = function
        while type(called) in (exp.IgnoreNulls, exp.RespectNulls, exp.Filter):
            if type(called) is exp.Filter:
                called.set("expression", self._rewrite_node(called.expression))
            called = called.this
        if not isinstance(called, exp.Identifier):
            self._rewrite_children(called)
        node.set("this", function)
        return node

    def _add_column(self, node: exp.Expr) -> exp.Expr:
        node = _find_same_node(node, self.columns)
        if node not in self.columns:
            taken = self._list_taken_names()
            lone = type(node) is exp.Column and normalize_name(node.name) not in taken
            self.columns[node] = (
                node.this.copy() if lone else exp.to_identifier(f"value {len(taken)}", quoted=True)
            )
        return exp.Column(this=self.columns[node].copy())

    def _list_taken_names(self) -> set[str]:
        return {normalize_name(name.name) for name in self.columns.values()}


def _find_same_node(node: exp.Expr, among: Iterable[exp.Expr]) -> exp.Expr:
    """Find the one among expressions that differs in the case of names alone, else the expression itself."""
    folded = _normalize_names(node)
    return next((each for each in among if _normalize_names(each) == folded), node)


def _normalize_names(node: exp.Expr) -> exp.Expr:
    found = node.copy()
    for name in found.find_all(exp.Identifier):
        name.set("this", normalize_name(name.name))
    return found


def _replace_nodes(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return the node with parts of it replaced, except within subqueries."""
    found = node if isinstance(node, exp.Query) else change(node)
    if found is not node or isinstance(node, exp.Query):
        return found
    for name, value in list(node.args.items()):
        if isinstance(value, list):
            parts = [_replace_nodes(part, change) if isinstance(part, exp.Expr) else part for part in value]
            node.set(name, parts)
        elif isinstance(value, exp.Expr):
            node.set(name, _replace_nodes(value, change))
    return node
