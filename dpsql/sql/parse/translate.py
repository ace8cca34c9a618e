"""Translate a tree of another dialect into DuckDB's SQL, with the names that PostgreSQL gives to unnamed columns."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError

from dpsql.sql.parse.rejection import QueryText, format_sql
from dpsql.sql.parse.translate_nodes import Translator
from dpsql.sql.parse.typed_calls import is_typed_call

# The names that PostgreSQL gives to unnamed columns of a query, which programs rely on.


_NAMELESS = "?column?"
_TYPES = {
    exp.DType.INT: "int4", exp.DType.BIGINT: "int8", exp.DType.SMALLINT: "int2", exp.DType.DOUBLE: "float8",
    exp.DType.FLOAT: "float4", exp.DType.DECIMAL: "numeric", exp.DType.TEXT: "text", exp.DType.VARCHAR: "varchar",
    exp.DType.DATE: "date", exp.DType.TIMESTAMP: "timestamp", exp.DType.BOOLEAN: "bool", exp.DType.INTERVAL: "interval",
}  # fmt: skip
_CALLED = {
    exp.Extract: "extract",
    exp.Trim: "btrim",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Array: "array",
    exp.GroupConcat: "string_agg",
}
"""Nodes with their own syntax, whose names the parser does not keep."""
_WITHIN = (exp.Paren, exp.Window, exp.Filter, exp.WithinGroup)


def name_outputs(source: QueryText, tree: exp.Expr) -> None:
    """Give the items of SELECT lists that have no name the ones that PostgreSQL gives them, in place.

    Claim: a name that is added changes no other part of the query.
    Why: wherever a name could also be a column of FROM, the column takes precedence (`Scope`, `Grouping`), and a lone name in ORDER
    BY means an output in PostgreSQL, too. In a derived table no name is added that another column has, since it could be read
    there.
    Source: PostgreSQL 17, src/backend/parser/parse_target.c, FigureColname.
    """
    for select in list(tree.find_all(exp.Select)):
        is_shown = _is_shown(select)
        if is_shown is not None:
            _name_items(source, select, is_shown=is_shown)


def _is_shown(select: exp.Select) -> bool | None:
    """Return whether the columns are those of the result (True) or of a derived table (False); None if they stay hidden."""
    node: exp.Expr = select
    while isinstance(node.parent, (exp.SetOperation, exp.Subquery, exp.Paren)):
        node = node.parent
    if node.parent is None:
        return True
    return False if isinstance(node.parent, (exp.CTE, exp.From, exp.Join)) else None


def _name_items(source: QueryText, select: exp.Select, *, is_shown: bool) -> None:
    names = [
        item.output_name if isinstance(item, (exp.Alias, exp.Column)) else _infer_output_name(source, item)[0]
        for item in select.expressions
    ]
    taken = Counter(names)
    for item, name in zip(select.expressions, names, strict=True):
        if isinstance(item, (exp.Alias, exp.Column, exp.Star)):
            continue
        if is_shown or (taken[name] == 1 and name != _NAMELESS):
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            item.replace(alias)
            alias.set("this", item)


def _infer_output_name(source: QueryText, node: exp.Expr) -> tuple[str, bool]:
    """Return the name of an item, and whether it is more than a guess by its type."""
    while isinstance(node, _WITHIN):
        node = node.this
    found = _NAMELESS, False
    match node:
        case exp.Column():
            found = node.name, True
        case exp.Cast():
            found = _infer_output_name(source, node.this)
            kind = node.to.this  # a text for PostgreSQL's names of relations and types, such as REGCLASS
            known = _TYPES.get(kind, kind.name if isinstance(kind, exp.DType) else str(kind))
            found = found if found[1] else (known.lower(), False)
        case exp.Case():
            found = _infer_output_name(source, node.args.get("default") or exp.Null())
            found = found if found[1] else ("case", False)
        case exp.Alias():
            found = node.output_name, True
        case exp.Subquery() | exp.Select():
            inner = node.find(exp.Select)
            found = (
                found
                if inner is None or not inner.expressions
                else _infer_output_name(source, inner.expressions[0])
            )
        case exp.Exists():
            found = "exists", True
        case exp.Interval():
            found = "interval", False
        case exp.Func() if "start" in node.meta or not isinstance(node, (exp.Binary, exp.Unary)):
            is_written = "start" in node.meta
            found = (
                (
                    source.get_function_name(node) if is_written else _CALLED.get(type(node), node.sql_name())
                ).lower(),
                True,
            )
    return found


def _describe_items(tree: exp.Expr, dialect: str) -> list[tuple[exp.Select, list[str]]]:
    """Return each SELECT with its items as their dialect writes them."""
    return [
        (select, [format_sql(item, dialect) for item in select.expressions])
        for select in tree.find_all(exp.Select)
    ]


def _name_typed_items(described: list[tuple[exp.Select, list[str]]]) -> None:
    """Name the unnamed items by their own text where the translation has calls that only it can write."""
    for select, texts in described:
        for item, text in zip(list(select.expressions), texts, strict=False):
            if not isinstance(item, exp.Alias) and any(map(is_typed_call, item.walk())):
                alias = exp.Alias(alias=exp.to_identifier(text, quoted=True))
                item.replace(alias)
                alias.set("this", item)


# Translate a tree of another dialect to text in DuckDB's SQL, which is then processed like every query.


def translate_tree(source: QueryText, tree: exp.Expr, dialect: str) -> str | None:
    """Return the text that a tree of another dialect means; None where it has none.

    The translation is not trusted: its text is parsed, lowered and refused like a user's.

    Raises QueryRejected, with the place in the user's text, for syntax that is not known to mean the same in DuckDB, and
    RecursionError where the tree that it becomes is too deep for the parser's library.
    """
    try:
        if dialect == "postgres":
            name_outputs(source, tree)
        texts = _describe_items(tree, dialect)
        Translator(source, dialect).translate_in_place(tree)
        _name_typed_items(texts)
        return DuckDB().generate(
            tree, identify=True, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE
        )
    except (SqlglotError, TypeError, ValueError, AttributeError, LookupError):
        return None  # the parser's library lets arguments be missing
