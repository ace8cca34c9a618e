"""Types of a statement's numbered parameters, inferred from their context for clients that ask before they send values.

A wrong guess makes a client refuse a value, or the engine refuse the query; nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from dpsql.plan.types import Type
from dpsql.policy.names import normalize_name
from dpsql.sql.parse.parse import call_without_logging
from dpsql.sql.pg_catalog.rewrite import MOST_CHARACTERS
from dpsql.sql.pg_catalog.tokens import POSTGRES, normalize_tokens

_CAST = {
    "INT": Type.INTEGER, "BIGINT": Type.INTEGER, "SMALLINT": Type.INTEGER, "DOUBLE": Type.DOUBLE, "FLOAT": Type.DOUBLE,
    "DECIMAL": Type.DOUBLE, "TEXT": Type.VARCHAR, "VARCHAR": Type.VARCHAR, "DATE": Type.DATE, "BOOLEAN": Type.BOOLEAN,
    "TIMESTAMP": Type.TIMESTAMP,
}  # fmt: skip
_LISTED = {"ALL", "SOME"}
_BESIDE = (
    exp.Predicate, exp.Binary, exp.In, exp.Between, exp.Paren, exp.Neg, exp.Tuple, exp.Case, exp.If, exp.Coalesce, exp.Nullif,
    exp.Greatest, exp.Least, exp.Abs,
)  # fmt: skip
"""Nodes whose parts all have one type, except for the conditions of a CASE."""
_RESULTS: Mapping[type[exp.Expr], Type] = {
    **dict.fromkeys((exp.Count, exp.Length, exp.Extract, exp.StrPosition), Type.INTEGER),
    **dict.fromkeys((exp.Avg, exp.Round, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.Sqrt, exp.Ln, exp.Exp), Type.DOUBLE),
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Replace, exp.DPipe), Type.VARCHAR),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc), Type.TIMESTAMP),
    exp.CurrentDate: Type.DATE,
}  # fmt: skip
_TAKING: Sequence[tuple[tuple[type[exp.Expr], ...], Type]] = (
    ((exp.Limit, exp.Offset), Type.INTEGER),
    ((exp.Like, exp.ILike, exp.RegexpLike, exp.DPipe), Type.VARCHAR),
    ((exp.Where, exp.Having, exp.Connector, exp.Not), Type.BOOLEAN),
)
"""Nodes that take values of one type."""
_PLACES: Mapping[tuple[type[exp.Expr], str | None], Type] = {
    (exp.Round, "decimals"): Type.INTEGER,
    (exp.Left, "expression"): Type.INTEGER,
    (exp.Right, "expression"): Type.INTEGER,
    (exp.Substring, "start"): Type.INTEGER,
    (exp.Substring, "length"): Type.INTEGER,
}
"""Arguments of functions that have a type of their own."""


@dataclass(frozen=True, slots=True)
class ListType:
    """The type of a list of values, as of `$1` in `x = ANY($1)`; a list of oids, which the engine has no type for, has no item."""

    item: Type | None


def infer_parameter_types(text: str, columns: Mapping[str, Type]) -> dict[int, Type | ListType]:
    """Return the type of each parameter that is compared with a column of these folded names or a literal, or is in a cast or LIMIT."""
    if len(text) > MOST_CHARACTERS:
        return {}
    try:
        parser = POSTGRES.parser(error_level=ErrorLevel.IMMEDIATE)
        tokens = normalize_tokens(POSTGRES.tokenize(text))
        trees = call_without_logging(lambda: parser.parse(tokens, text))
        if len(trees) != 1 or trees[0] is None:
            return {}
        found = dict[int, Type | ListType]()
        for node in trees[0].find_all(exp.Parameter):
            name, kind = node.this.name, _infer_parameter_type(node, columns)
            if kind is not None and name.isdigit():
                found.setdefault(int(name), kind)
    except (ParseError, TokenError, RecursionError, TypeError, ValueError, AttributeError, LookupError):
        return {}
    return found


def _infer_parameter_type(node: exp.Expr, columns: Mapping[str, Type]) -> Type | ListType | None:
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    if isinstance(around, exp.Cast) and around.to.this is exp.DataType.Type.ARRAY and around.to.expressions:
        name = around.to.expressions[0].this.name
        return ListType(_CAST.get(name)) if name in (*_CAST, "SERIAL") else None
    if isinstance(around, exp.Any) or (isinstance(around, exp.Anonymous) and around.name.upper() in _LISTED):
        item = _infer_context_type(around, columns)
        return ListType(Type.VARCHAR if item is None else item)
    return _infer_context_type(node, columns)


def _infer_context_type(node: exp.Expr, columns: Mapping[str, Type]) -> Type | None:
    """Return the type that a node's context implies: the other side of a comparison or operation, or its place."""
    while node.parent is not None:
        around = node.parent
        if isinstance(around, exp.Cast):
            return _CAST.get(_get_type_name(around))
        placed = _find_place_type(node, around)
        if placed is not None or not isinstance(around, _BESIDE):
            return placed
        if isinstance(around, exp.If) and node.arg_key == "this" and around.parent is not None:
            return _infer_expression_type(around.parent.this, columns)
        others = (
            _infer_expression_type(each, columns)
            for each in _iterate_alternatives(around)
            if each is not node
        )
        kind = next((each for each in others if each is not None), None)
        if kind is not None or isinstance(around, exp.Predicate):
            return kind
        node = around
    return None


def _find_place_type(node: exp.Expr, around: exp.Expr) -> Type | None:
    """Return the type that a place takes, whatever its neighbors are."""
    if isinstance(around, exp.If) and node.arg_key == "this":
        is_condition = around.parent is None or around.parent.args.get("this") is None
        return Type.BOOLEAN if is_condition else None
    found = next((kind for nodes, kind in _TAKING if isinstance(around, nodes)), None)
    return found or _PLACES.get((type(around), node.arg_key))


def _iterate_alternatives(node: exp.Expr) -> Iterable[exp.Expr]:
    """Yield the parts of a node that share one type: all, except for the conditions of a CASE."""
    is_choice = isinstance(node, (exp.Case, exp.If))
    return (each for each in node.iter_expressions() if not is_choice or each.arg_key != "this")


def _infer_expression_type(node: exp.Expr, columns: Mapping[str, Type]) -> Type | None:
    """Return the type of an expression, as far as it follows from columns, constants, casts and the functions of `_RESULTS`."""
    found: Type | None = None
    match node:
        case exp.Column():
            found = columns.get(normalize_name(node.name))
        case exp.Cast():
            found = _CAST.get(_get_type_name(node))
        case exp.Literal() if not node.is_string:
            found = Type.INTEGER if node.name.isdigit() else Type.DOUBLE
        case exp.Predicate() | exp.Connector() | exp.Not() | exp.Boolean():
            found = Type.BOOLEAN
        case _ if type(node) in _RESULTS:
            found = _RESULTS[type(node)]
        case _ if isinstance(node, (*_BESIDE, exp.Min, exp.Max, exp.Sum, exp.Abs)):
            kinds = (_infer_expression_type(each, columns) for each in _iterate_alternatives(node))
            found = next((kind for kind in kinds if kind is not None), None)
    return found


def _get_type_name(cast: exp.Cast) -> str:
    """Return the name of the type of a cast; the parser keeps PostgreSQL's own types, such as REGCLASS, as texts."""
    kind = cast.to.this
    return kind.name if isinstance(kind, exp.DType) else str(kind)
