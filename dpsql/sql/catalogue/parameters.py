"""The types of a statement's numbered parameters, by what they stand beside: for clients that ask before they send values.

A guess that is wrong makes a client refuse a value, or the engine the query; nothing else rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from dpsql.plan.types import Type
from dpsql.policy.names import fold
from dpsql.sql.catalogue.rewrite import MOST_CHARACTERS, POSTGRES
from dpsql.sql.read.parse import quietly

_CAST = {
    "INT": Type.INTEGER, "BIGINT": Type.INTEGER, "SMALLINT": Type.INTEGER, "DOUBLE": Type.DOUBLE, "FLOAT": Type.DOUBLE,
    "DECIMAL": Type.DOUBLE, "TEXT": Type.VARCHAR, "VARCHAR": Type.VARCHAR, "DATE": Type.DATE, "BOOLEAN": Type.BOOLEAN,
    "TIMESTAMP": Type.TIMESTAMP,
}  # fmt: skip
_LISTED = {"ALL", "SOME"}
_BESIDE = (exp.Predicate, exp.Binary, exp.In, exp.Between, exp.Paren, exp.Neg, exp.Tuple)


@dataclass(frozen=True, slots=True)
class ListType:
    """The type of a list of values, as of `$1` in `x = ANY($1)`."""

    item: Type


def parameter_types(text: str, columns: Mapping[str, Type]) -> dict[int, Type | ListType]:
    """The type of each parameter that stands beside a column of these folded names, a literal, or in a cast or LIMIT."""
    if len(text) > MOST_CHARACTERS:
        return {}
    try:
        parser = POSTGRES.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = quietly(lambda: parser.parse(POSTGRES.tokenize(text), text))
        if len(trees) != 1 or trees[0] is None:
            return {}
        found = dict[int, Type | ListType]()
        for node in trees[0].find_all(exp.Parameter):
            name, kind = node.this.name, _type(node, columns)
            if kind is not None and name.isdigit():
                found.setdefault(int(name), kind)
    except (ParseError, TokenError, RecursionError, TypeError, ValueError, AttributeError, LookupError):
        return {}
    return found


def _type(node: exp.Expr, columns: Mapping[str, Type]) -> Type | ListType | None:
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    if isinstance(around, exp.Cast) and around.to.this is exp.DataType.Type.ARRAY and around.to.expressions:
        item = _CAST.get(around.to.expressions[0].this.name)
        return None if item is None else ListType(item)
    if isinstance(around, exp.Any) or (isinstance(around, exp.Anonymous) and around.name.upper() in _LISTED):
        item = _beside(around, columns)
        return ListType(Type.VARCHAR if item is None else item)
    return _beside(node, columns)


def _beside(node: exp.Expr, columns: Mapping[str, Type]) -> Type | None:
    around = node.parent
    while around is not None:
        match around:
            case exp.Cast():
                return _CAST.get(around.to.this.name)
            case exp.Limit() | exp.Offset():
                return Type.INTEGER
            case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.DPipe():
                return Type.VARCHAR
        if not isinstance(around, _BESIDE):
            return None
        for beside in around.find_all(exp.Column, exp.Literal, exp.Cast):
            kind = _own(beside, columns)
            if kind is not None:
                return kind
        around = around.parent
    return None


def _own(node: exp.Expr, columns: Mapping[str, Type]) -> Type | None:
    match node:
        case exp.Column():
            return columns.get(fold(node.name))
        case exp.Cast():
            return _CAST.get(node.to.this.name)
        case exp.Literal() if not node.is_string:
            return Type.INTEGER if node.name.isdigit() else Type.DOUBLE
    return None
