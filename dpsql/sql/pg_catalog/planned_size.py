"""The size of a catalog query as it is planned, with every alias, star and repeated argument written out.

Claim: the time and memory in which a catalog query is rewritten and planned are bounded.
Why: the engine stops no planning at its limits of time and memory, so that the size of what it plans is limited here: it writes
the argument of NULLIF twice, the operand of CASE once for each WHEN, and the expression of an alias at each of its uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpsql.policy.names import normalize_name
from dpsql.sql.pg_catalog.bounded_calls import refuse_query
from dpsql.sql.pg_catalog.functions import get_function_name

_MOST_NODES = 50_000
_MOST_TABLES = 50
_WIDTH = 40
"""About the number of columns of the catalog's widest tables."""
_WRITTEN_TWICE = {
    "nullif",
    "split_part",
    "array_to_string",
    "generate_series",
    "exploding_generate_series",
    "unnest",
}
"""Functions whose arguments the engine or the rewriting repeats."""
_STAR = "*"


@dataclass(frozen=True, slots=True)
class _Size:
    """The number of nodes of an expression, and of columns of a source."""

    nodes: int
    width: int = 0


def require_plannable(tree: exp.Expr) -> None:
    """Raise QueryRejected for a query with many tables, or one that is planned as a much larger one."""
    if sum(1 for _ in tree.find_all(exp.Table)) > _MOST_TABLES:
        refuse_query(f"a catalog query may read at most {_MOST_TABLES} tables")
    if _measure(tree, {}, {}).nodes > _MOST_NODES:
        refuse_query("the catalog query is too large with its aliases, stars and arguments written out")


def _measure(node: exp.Expr, common: Mapping[str, _Size], named: Mapping[str, int]) -> _Size:
    """Return the size of a node.

    `common` has the sizes of common table expressions; `named` those of the aliases that may be used here, and that of `*`.
    """
    common = _add_common_tables(node, common)
    match node:
        case exp.Select():
            return _measure_select(node, common, named)
        case exp.Star():
            return _Size(named.get(_STAR, 1))
        case exp.Column() if not node.table and not isinstance(node.this, exp.Star):
            return _Size(named.get(normalize_name(node.name), 1))
        case exp.Values():
            rows = _measure_parts(node, common, named)
            return _Size(rows.nodes, max((len(row.expressions) for row in node.expressions), default=0))
    parts = _measure_parts(node, common, named)
    nodes, width = parts.nodes + 1, parts.width
    if isinstance(node, exp.Table):
        found = None if node.db else common.get(normalize_name(node.name))
        width += _WIDTH if found is None else found.width
    elif isinstance(node, exp.Func) and get_function_name(node) in _WRITTEN_TWICE:
        nodes *= 2
    return _Size(nodes, width)


def _measure_select(select: exp.Select, common: Mapping[str, _Size], named: Mapping[str, int]) -> _Size:
    sources = [
        select.args.get("from_"),
        *(select.args.get("joins") or ()),
        *(select.args.get("laterals") or ()),
    ]
    read = [_measure(source, common, named) for source in sources if source is not None]
    columns = max(sum(each.width for each in read), 1)
    known = {**named, _STAR: columns}
    nodes, width = sum(each.nodes for each in read), 0
    for item in select.expressions:
        size = _measure(item, common, known).nodes
        nodes, width = nodes + size, width + (columns if item.is_star else 1)
        if isinstance(item, exp.Alias):
            name = normalize_name(item.alias)
            known[name] = max(size, known.get(name, 0))
    rest = (
        part
        for part in select.iter_expressions()
        if part.arg_key not in ("with_", "from_", "joins", "laterals", "expressions")
    )
    return _Size(nodes + sum(_measure(part, common, known).nodes for part in rest), width)


def _measure_parts(node: exp.Expr, common: Mapping[str, _Size], named: Mapping[str, int]) -> _Size:
    """Return the sizes of the parts of a node, added up; the operand of CASE counts once for each WHEN."""
    nodes = width = 0
    for part in node.iter_expressions():
        if part.arg_key != "with_":
            size = _measure(part, common, named)
            is_operand = isinstance(node, exp.Case) and part.arg_key == "this"
            nodes += size.nodes * (1 + len(node.args["ifs"]) if is_operand else 1)
            width += size.width
    return _Size(nodes, width)


def _add_common_tables(node: exp.Expr, common: Mapping[str, _Size]) -> Mapping[str, _Size]:
    """Return the sizes of common table expressions, those that a node has of its own among them."""
    held = node.args.get("with_")
    if held is None:
        return common
    known = dict(common)
    for cte in held.expressions:
        known[normalize_name(cte.alias)] = _measure(cte.this, known, {})
    return known
