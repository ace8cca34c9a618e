"""Rewrite LATERAL tables of one row as the expressions that their columns are, before anything else reads the tree.

Claim: the rewritten query has the rows of the original, so that everything proven about the rewritten query holds for the original.
Why: without FROM, a SELECT has one row for each row before it, and a column of it is its item, computed of that row. So it is if
each item is an aggregate and there is no GROUP BY: each column is then a scalar subquery. CROSS JOIN and LEFT JOIN ON TRUE of one
row keep each row once. A name is replaced only where it cannot mean another column: with the table's name before it; alone, in the
SELECT of the FROM itself. In a query within that SELECT, each column of the value has its table's name before it, and no table of
that query has the name, so that the value is of the same row.
Source: ISO/IEC 9075-2, <lateral derived table> and <scalar subquery>.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import QueryText

MOST_TABLES = 32
MOST_PARTS = 20_000
"""Names, constants and operators that the columns of LATERAL tables may become in one query."""
_FORMULA = frozenset({"expressions"})
_AGGREGATED = frozenset({"expressions", "from_", "joins", "where"})


@dataclass(frozen=True, slots=True)
class _LateralTable:
    """A LATERAL table of one row: its folded name, and the values of its columns by their folded names."""

    name: str
    values: Mapping[str, exp.Expr]


def rewrite_lateral_tables(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree of a statement without the LATERAL tables of one row that read columns before them. Raises QueryRejected."""
    if tree is None or tree.find(exp.Lateral) is None:
        return tree
    if sum(1 for _ in tree.find_all(exp.Lateral)) > MOST_TABLES:
        source.refuse(
            tree.find(exp.Lateral),
            "too_long",
            f"a query may have at most {MOST_TABLES} LATERAL tables",
            "use fewer",
        )
    parts = 0
    for select in list(tree.find_all(exp.Select)):
        for join in list(select.args.get("joins") or ()):
            table = _find_lateral_table(select, join)
            if table is None:
                continue
            join.pop()
            uses = _list_uses(select, table)
            _check_arguments(source, join, [place for place, _ in uses])
            _keep_names(select, [place for place, _ in uses])
            for place, value in uses:
                parts += sum(1 for _ in value.walk())
                if parts > MOST_PARTS:
                    source.refuse(place, "too_long", "LATERAL tables would make the query too long")
                _replace_use(select, place, value)
    return tree


def _check_arguments(source: QueryText, join: exp.Join, uses: Sequence[exp.Column]) -> None:
    """Refuse an unknown argument of the nodes that are dropped: all around the query, and the names of its columns."""
    lateral = join.this
    for node, names in (
        (join, ("this", "on", "side", "kind")),
        (lateral, ("this", "alias")),
        (lateral.this, ("this",)),
        (lateral.args["alias"], ("this", "columns")),
    ):
        source.take_arguments(node, *names)
    if join.args.get("on") is not None:
        source.take_arguments(join.args["on"], "this")
    query, alias = lateral.this.this, lateral.args["alias"]
    items = [item for item in query.expressions if type(item) is exp.Alias]
    names_of_items = [source.take_arguments(item, "this", "alias")[1] for item in items]
    names_of_uses = [name for use in uses for name in source.take_arguments(use, "this", "table")]
    named = [alias.this, *(alias.args.get("columns") or ()), *names_of_items, *names_of_uses]
    for name in named:
        if name is not None:
            source.take_arguments(name, "this", "quoted")


def _find_lateral_table(select: exp.Select, join: exp.Join) -> _LateralTable | None:
    """Return the LATERAL table of a join, if it has one row that is computed of the rows before; None for any other join."""
    lateral = join.this
    inner = lateral.this if type(lateral) is exp.Lateral else None
    query = inner.this if type(inner) is exp.Subquery else None
    if type(query) is not exp.Select or not _is_plain(lateral, join) or lateral.args.get("alias") is None:
        return None
    alias = lateral.args["alias"]
    if alias.this is None or not (_is_formula(query) or _is_aggregated(query)):
        return None
    if _has_star(select, normalize_name(alias.name)) or not _names_clearly(select, query):
        return None
    named = [column.name for column in alias.args.get("columns") or ()]
    names = [*named, *(item.alias_or_name for item in query.expressions[len(named) :])]
    folded = [normalize_name(name) for name in names]
    if len(set(folded)) < len(folded) or "" in folded or len(folded) != len(query.expressions):
        return None
    if not _is_alone(select, join, {normalize_name(alias.name)}, set(folded)):
        return None
    if _list_shadowed(select, set(folded)):
        return None
    values = {
        name: _build_value(query, item.unalias())
        for name, item in zip(folded, query.expressions, strict=True)
    }
    table = _LateralTable(normalize_name(alias.name), values)
    return None if _has_captured_use(select, join, table) else table


def _has_captured_use(select: exp.Select, join: exp.Join, table: _LateralTable) -> bool:
    """Return whether a value would mean another row in a query within the SELECT, after its names have got their table, if it is one."""
    known: dict[int, frozenset[str]] = {}
    inside = [
        (value, names)
        for place, value in _list_uses(select, table)
        if (names := _list_table_names(place, select, known))
    ]
    if inside and select.args["joins"][0] is join:  # one table is before it
        name = select.args["from_"].this.alias_or_name
        for value in table.values.values():
            _qualify_names(value, name)
    read = {
        id(value): {normalize_name(column.table) for column in value.find_all(exp.Column)}
        for value in table.values.values()
    }
    return any("" in read[id(value)] or read[id(value)] & names for value, names in inside)


def _list_table_names(place: exp.Expr, end: exp.Expr, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """List the folded names of the tables in the queries around a place, up to a SELECT: none if there is no query with FROM."""
    found: frozenset[str] = frozenset()
    for around in _iterate_parents(place):
        if around is end:
            break
        if not isinstance(around, exp.Select) or around.args.get("from_") is None:
            continue
        if id(around) not in known:
            tables = around.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
            known[id(around)] = frozenset(normalize_name(table.alias_or_name) for table in tables)
        found |= known[id(around)]
    return found


def _qualify_names(value: exp.Expr, name: str) -> None:
    """Write the name of the only table before the columns of a formula."""
    if name and value.find(exp.Query) is None:
        for column in value.find_all(exp.Column):
            if not column.table:
                column.set("table", exp.to_identifier(name, quoted=True))


def _is_plain(lateral: exp.Expr, join: exp.Join) -> bool:
    """Return whether a join keeps each row before it once, if the LATERAL table has one row."""
    known = {key for key, value in lateral.args.items() if value} <= {"this", "alias"}
    on, side, kind = join.args.get("on"), join.args.get("side") or "", join.args.get("kind") or ""
    always = on is None or (type(on) is exp.Boolean and on.this is True)
    bare = not any(value for key, value in join.args.items() if key not in ("this", "on", "side", "kind"))
    return known and always and bare and side in ("", "LEFT") and kind in ("", "CROSS", "INNER", "OUTER")


def _is_formula(query: exp.Select) -> bool:
    """Return whether a SELECT without FROM computes its items of columns before it."""
    if {key for key, value in query.args.items() if value} != _FORMULA or query.find(exp.Column) is None:
        return False
    rows = any(normalize_name(str(node.this)) == "unnest" for node in query.find_all(exp.Anonymous))
    return not rows and query.find(exp.AggFunc, exp.Window, exp.Subquery, exp.Exists, exp.Star) is None


def _is_aggregated(query: exp.Select) -> bool:
    """Return whether a SELECT without groups has aggregates alone, of rows that it chooses by columns before it."""
    clauses = {key for key, value in query.args.items() if value}
    if not clauses <= _AGGREGATED or query.args.get("from_") is None:
        return False
    own = {
        normalize_name(node.alias_or_name)
        for node in query.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
    }
    outside = any(node.table and normalize_name(node.table) not in own for node in query.find_all(exp.Column))
    return outside and all(_has_aggregate(item) for item in query.expressions)


def _has_aggregate(item: exp.Expr) -> bool:
    """Return whether an item holds an aggregate, and no column beside it, which would need a group."""
    parts = list(item.walk(prune=lambda part: isinstance(part, (exp.Query, exp.AggFunc))))
    alone = not any(isinstance(part, (exp.Column, exp.Window, exp.Query)) for part in parts)
    return alone and any(isinstance(part, exp.AggFunc) for part in parts)


def _has_star(select: exp.Select, name: str) -> bool:
    """Return whether the SELECT has a * that means the columns of the LATERAL table, too."""
    return any(
        type(item) is exp.Star
        or (type(item) is exp.Column and type(item.this) is exp.Star and normalize_name(item.table) == name)
        for item in select.expressions
    )


def _is_alone(select: exp.Select, join: exp.Join, alias: set[str], columns: set[str]) -> bool:
    """Return whether no other part of the SELECT changes what the names of the LATERAL table mean, or pads its row with NULL."""
    others = [each for each in select.args["joins"] if each is not join]
    tables = [select.args["from_"].this, *(each.this for each in others)]
    used = {normalize_name(name.name) for each in others for name in each.args.get("using") or ()}
    padded = any(each.args.get("side") in ("RIGHT", "FULL") or each.args.get("method") for each in others)
    return (
        not padded
        and not used & columns
        and not any(normalize_name(table.alias_or_name) in alias for table in tables)
    )


def _list_shadowed(select: exp.Select, columns: set[str]) -> list[exp.Column]:
    """List the names alone that may mean an alias of the SELECT instead of a column of the LATERAL table."""
    aliased = {normalize_name(item.alias) for item in select.expressions if type(item) is exp.Alias}
    return [
        node
        for node, inside in _iterate_columns(select, "")
        if not inside and not node.table and normalize_name(node.name) in aliased & columns
    ]


def _names_clearly(select: exp.Select, query: exp.Select) -> bool:
    """Return whether no name alone in the LATERAL table could mean an alias of the SELECT, where it comes to stand."""
    aliases = {normalize_name(item.alias) for item in select.expressions if type(item) is exp.Alias}
    return not any(
        not node.table and normalize_name(node.name) in aliases for node in query.find_all(exp.Column)
    )


def _build_value(query: exp.Select, item: exp.Expr) -> exp.Expr:
    """Build the value of a column of the LATERAL table."""
    if query.args.get("from_") is None:
        return exp.Paren(this=item.copy())
    found = query.copy()
    found.set("expressions", [item.copy()])
    return exp.Subquery(this=found)


def _list_uses(select: exp.Select, table: _LateralTable) -> list[tuple[exp.Column, exp.Expr]]:
    """List the columns of the LATERAL table that the SELECT reads, each with its value."""
    return [
        (node, table.values[normalize_name(node.name)])
        for node, inside in _iterate_columns(select, table.name)
        if normalize_name(node.name) in table.values
        and (normalize_name(node.table) == table.name if node.table else not inside)
        and not node.args.get("db")
    ]


def _iterate_columns(select: exp.Select, name: str) -> Iterator[tuple[exp.Column, bool]]:
    """Yield the columns of a SELECT, and whether they stand in a query within it; none of queries with a table of this name."""
    stack: list[tuple[exp.Expr, bool]] = [(child, False) for child in select.iter_expressions()]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, exp.Column):
            yield node, inside
        lateral = isinstance(node.parent, exp.Subquery) and type(node.parent.parent) is exp.Lateral
        if isinstance(node, exp.Select) and lateral and node.args.get("from_") is None:
            pass  # it reads the tables before it as the SELECT itself
        elif isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            if any(
                normalize_name(part.alias_or_name) == name for part in node.find_all(exp.Table, exp.Subquery)
            ):
                continue
            inside = True
        stack += [(child, inside) for child in node.iter_expressions()]


def _keep_names(select: exp.Select, uses: list[exp.Column]) -> None:
    """Name the items of SELECT that read the LATERAL table by their own text."""
    changed = {id(part) for use in uses for part in (use, *_iterate_parents(use))}
    for item in list(select.expressions):
        if id(item) in changed and not isinstance(item, (exp.Alias, exp.Column)):
            text = item.sql(dialect="duckdb", comments=False, normalize_functions="lower")[:200]
            named = exp.Alias(alias=exp.to_identifier(text, quoted=True))
            item.replace(named)
            named.set("this", item)


def _iterate_parents(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes around a node."""
    while node.parent is not None:
        node = node.parent
        yield node


def _replace_use(select: exp.Select, node: exp.Column, value: exp.Expr) -> None:
    """Replace a column of the LATERAL table by its value; an item of SELECT keeps its name."""
    made = value.copy()
    if node.parent is select and node.arg_key == "expressions":
        made = exp.Alias(this=made, alias=exp.to_identifier(node.name, quoted=True))
    node.replace(made)
