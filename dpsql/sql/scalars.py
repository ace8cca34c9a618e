"""Scalar SQL to typed expressions: the part of the whitelist that concerns values.

`SHAPES` lists the tree nodes that are plain functions of their arguments; `_SPECIAL` those that need
a word more. A node in neither is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.analysis.bounds import interval
from dpsql.errors import DataError
from dpsql.functions import FUNCTIONS, call
from dpsql.functions.dates import PARTS, TRUNCATIONS
from dpsql.plan.expr import Call, Expr, Literal
from dpsql.plan.types import Type, Value, common
from dpsql.sql.constants import constant, moment, number
from dpsql.sql.refuse import Source, is_text

SAFE_INTEGER = 2**62
MAX_OFFSET = 2**31 - 1
MAX_DIGITS = 15
MAX_SIZE = 4_000
"""Most calls in an expression in which aliases, BETWEEN and CASE operands are written out.

The engine's planner takes seconds for more.
"""
SHAPES: Mapping[type[exp.Expr], tuple[str, tuple[str, ...], Mapping[str, tuple[object, ...]]]] = {
    exp.Add: ("add", ("this", "expression"), {}),
    exp.Sub: ("subtract", ("this", "expression"), {}),
    exp.Mul: ("multiply", ("this", "expression"), {}),
    exp.Div: ("divide", ("this", "expression"), {"typed": (True, False), "safe": (True, False)}),
    exp.EQ: ("eq", ("this", "expression"), {}),
    exp.NEQ: ("ne", ("this", "expression"), {}),
    exp.LT: ("lt", ("this", "expression"), {}),
    exp.LTE: ("le", ("this", "expression"), {}),
    exp.GT: ("gt", ("this", "expression"), {}),
    exp.GTE: ("ge", ("this", "expression"), {}),
    exp.Not: ("not", ("this",), {}),
    exp.Abs: ("abs", ("this",), {}),
    exp.Floor: ("floor", ("this",), {}),
    exp.Ceil: ("ceil", ("this",), {}),
    exp.Round: ("round", ("this", "decimals"), {}),
    exp.Least: ("least", ("this", "expressions"), {"ignore_nulls": (True,)}),
    exp.Greatest: ("greatest", ("this", "expressions"), {"ignore_nulls": (True,)}),
    exp.Coalesce: ("coalesce", ("this", "expressions"), {}),
    exp.Nullif: ("nullif", ("this", "expression"), {}),
    exp.Lower: ("lower", ("this",), {}),
    exp.Upper: ("upper", ("this",), {}),
    exp.Length: ("length", ("this",), {}),
    exp.Substring: ("substring", ("this", "start", "length"), {}),
    exp.Year: ("year", ("this",), {}),
    exp.Quarter: ("quarter", ("this",), {}),
    exp.Month: ("month", ("this",), {}),
    exp.Day: ("day", ("this",), {}),
    exp.Hour: ("hour", ("this",), {}),
    exp.Minute: ("minute", ("this",), {}),
    exp.Second: ("second", ("this",), {}),
}

_CASTS = {
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.DOUBLE: "double",
    exp.DType.VARCHAR: "varchar",
    exp.DType.TEXT: "varchar",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp",
}
_SHORTER = {"substring": {2: "substring_from"}, "round": {2: "round_digits"}}
_COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in", "coalesce", "nullif", "case"})


@dataclass(frozen=True, slots=True)
class Scalars:
    """Lowers scalar nodes; `column` resolves names, `intercept` may answer for a whole node."""

    source: Source
    parameters: Sequence[Value]
    column: Callable[[exp.Column], Expr]
    intercept: Callable[[exp.Expr], Expr | None] = field(default=lambda _: None)

    def lower(self, node: exp.Expr) -> Expr:
        """The expression that `node` means. Raises QueryRejected."""
        taken = self.intercept(node)
        if taken is not None:
            return taken
        special = _SPECIAL.get(type(node))
        if special is not None:
            return special(self, node)
        shape = SHAPES.get(type(node))
        if shape is not None:
            name, names, fixed = shape
            return self.call(node, name, *map(self.lower, _flat(self.source.take(node, *names, **fixed))))
        return self._unknown(node)

    def call(self, node: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """The typed call of a registry entry, or a refusal that shows its signature."""
        name = _SHORTER.get(name, {}).get(len(arguments), name)
        function = FUNCTIONS[name]
        if name in _COMPARES:
            arguments = tuple(self._dated(node, arguments))
        if name in ("floor", "ceil", "round") and arguments and arguments[0].type is Type.INTEGER:
            return arguments[0]
        built = self._widened(call(name, *arguments))
        if built is None:
            given = ", ".join(str(argument.type) for argument in arguments)
            self.source.refuse(
                node, "type", f"{function.signature} does not take ({given})", "convert with CAST(… AS …)"
            )
        if built.size > MAX_SIZE:
            self.source.refuse(
                node, "too_long", f"written out, the expression has over {MAX_SIZE:,} operations"
            )
        for index in function.literals:
            self._constant(node, function.signature, arguments[index])
        return built

    def _widened(self, built: Call | None) -> Call | None:
        """Integer arithmetic that might leave 64 bits is done in DOUBLE instead."""
        if built is None or not built.function.overflows or built.type is not Type.INTEGER:
            return built
        if interval(built).within(SAFE_INTEGER):
            return built
        return call(built.function.name, *(call("cast_double", part) or part for part in built.arguments))

    def _constant(self, node: exp.Expr, signature: str, argument: Expr) -> None:
        value = argument.value if isinstance(argument, Literal) else None
        if value is None:
            self.source.refuse(node, "constant", f"{signature} takes a constant there")
        limit = MAX_DIGITS if "digits" in signature else MAX_OFFSET
        if isinstance(value, int) and abs(value) > limit:
            self.source.refuse(node, "constant", f"{signature}: at most {limit:,} in size there")

    def _dated(self, node: exp.Expr, arguments: tuple[Expr, ...]) -> Iterator[Expr]:
        """Text constants compared with dates are read as dates, as SQL does."""
        target = common(tuple(argument.type for argument in arguments if argument.type.temporal))
        for argument in arguments:
            text = argument.value if isinstance(argument, Literal) else None
            if target is not None and target.temporal and isinstance(text, str):
                yield moment(self.source, node, target, text)
            else:
                yield argument

    def _unknown(self, node: exp.Expr) -> Expr:
        if isinstance(node, (exp.Subquery, exp.Query, exp.Exists)):
            self.source.refuse(
                node, "subquery", "subqueries are not supported yet", "ask for each SELECT alone"
            )
        if isinstance(node, exp.Window):
            self.source.refuse(node, "window", "windows are not supported yet")
        if isinstance(node, exp.Star):
            self.source.refuse(node, "star", "* would release rows", "name aggregates, such as COUNT(*)")
        if isinstance(node, exp.AggFunc):
            self.source.refuse(node, "aggregate", f"{node.sql_name()} is not possible here")
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
            close = difflib.get_close_matches(name, FUNCTIONS, 1)
            self.source.refuse(
                node,
                "function",
                f"the function {name} is not known to be safe",
                f"did you mean {FUNCTIONS[close[0]].signature}?" if close else None,
            )
        name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
        self.source.refuse(node, "function", f"{name} is not known to be safe")


def _flat(values: Sequence[object]) -> Iterator[exp.Expr]:
    for value in values:
        if isinstance(value, list):
            yield from value
        elif value is not None:
            yield value  # type: ignore[misc]


def _paren(self: Scalars, node: exp.Expr) -> Expr:
    (inner,) = self.source.take(node, "this")
    return self.lower(inner)


def _column(self: Scalars, node: exp.Expr) -> Expr:
    return self.column(node)  # type: ignore[arg-type]


def _literal(self: Scalars, node: exp.Expr) -> Expr:
    text, is_string = self.source.take(node, "this", "is_string")
    return Literal(text, Type.VARCHAR) if is_string else number(self.source, node, text)


def _boolean(self: Scalars, node: exp.Expr) -> Expr:
    (value,) = self.source.take(node, "this")
    return Literal(bool(value), Type.BOOLEAN)


def _null(self: Scalars, node: exp.Expr) -> Expr:
    self.source.take(node)
    return Literal(None, Type.NULL)


def _parameter(self: Scalars, node: exp.Expr) -> Expr:
    (index,) = self.source.take(node, "this")
    if not str(index).isdecimal():
        self.source.refuse(node, "parameter", "parameters are written as ?")
    value = self.parameters[int(str(index)) - 1]
    if isinstance(value, str) and not is_text(value):
        raise DataError("a parameter holds a NUL character or half a surrogate pair", code="parameter")
    return constant(self.source, node, value)


def _negate(self: Scalars, node: exp.Expr) -> Expr:
    (inner,) = self.source.take(node, "this")
    operand = self.lower(inner)
    if isinstance(operand, Literal) and operand.type.numeric:
        return Literal(-operand.value, operand.type)  # type: ignore[operator]
    return self.call(node, "negate", operand)


def _chain(name: str) -> Callable[[Scalars, exp.Expr], Expr]:
    def lower(self: Scalars, node: exp.Expr) -> Expr:
        operands: list[Expr] = []
        stack = [node]
        while stack:
            top = stack.pop()
            if type(top) is type(node):
                left, right = self.source.take(top, "this", "expression")
                stack += [right, left]
            else:
                operands.append(self.lower(top))
        return self.call(node, name, *operands)

    return lower


def _is(self: Scalars, node: exp.Expr) -> Expr:
    operand, other = self.source.take(node, "this", "expression")
    if type(other) is not exp.Null:
        self.source.refuse(other, "function", "IS takes NULL alone", "write the comparison out: x = TRUE")
    self.source.take(other)
    return self.call(node, "is_null", self.lower(operand))


def _in(self: Scalars, node: exp.Expr) -> Expr:
    if node.args.get("query") is not None:
        self.source.refuse(
            node, "subquery", "subqueries are not supported yet", "list the values: x IN (1, 2)"
        )
    operand, items = self.source.take(node, "this", "expressions")
    values = [self.lower(item) for item in items or ()]
    if not all(isinstance(value, Literal) for value in values):
        self.source.refuse(node, "constant", "IN takes a list of constants", "write x = a OR x = b")
    return self.call(node, "in", self.lower(operand), *values)


def _like(self: Scalars, node: exp.Expr) -> Expr:
    text, pattern, negated = self.source.take(node, "this", "expression", "negate")
    built = self.call(
        node, "like" if type(node) is exp.Like else "ilike", self.lower(text), self.lower(pattern)
    )
    return self.call(node, "not", built) if negated else built


def _between(self: Scalars, node: exp.Expr) -> Expr:
    operand, low, high = self.source.take(node, "this", "low", "high")
    value = self.lower(operand)
    return self.call(
        node,
        "and",
        self.call(node, "ge", value, self.lower(low)),
        self.call(node, "le", value, self.lower(high)),
    )


def _cast(self: Scalars, node: exp.Expr) -> Expr:
    operand, target = self.source.take(node, "this", "to", safe=(True, False))
    (kind,) = self.source.take(target, "this", nested=(False,))
    name = _CASTS.get(kind)
    if name is None:
        self.source.refuse(
            target,
            "type",
            "CAST to this type is not supported",
            "use BIGINT, INTEGER, DOUBLE, VARCHAR, DATE, TIMESTAMP or BOOLEAN",
        )
    value = self.lower(operand)
    if name in ("date", "timestamp") and isinstance(value, Literal) and isinstance(value.value, str):
        return moment(self.source, node, Type[name.upper()], value.value)
    return self.call(node, f"cast_{name}", value)


def _extract(self: Scalars, node: exp.Expr) -> Expr:
    part, operand = self.source.take(node, "this", "expression")
    name = _word(self, part).lower()
    if name not in PARTS:
        self.source.refuse(node, "function", f"EXTRACT knows no {name}", f"it knows {', '.join(PARTS)}")
    return self.call(node, name, self.lower(operand))


def _truncate(self: Scalars, node: exp.Expr) -> Expr:
    operand, unit = self.source.take(node, "this", "unit")
    name = _word(self, unit).lower()
    if name not in TRUNCATIONS:
        self.source.refuse(
            node, "function", f"DATE_TRUNC knows no {name}", f"it knows {', '.join(TRUNCATIONS)}"
        )
    return self.call(node, f"date_trunc_{name}", self.lower(operand))


def _word(self: Scalars, node: exp.Expr) -> str:
    if type(node) is exp.Literal:
        text, _ = self.source.take(node, "this", "is_string")
        return str(text)
    if type(node) is exp.Var:
        (text,) = self.source.take(node, "this")
        return str(text)
    self.source.refuse(node, "constant", "a unit of time must be a constant")


def _case(self: Scalars, node: exp.Expr) -> Expr:
    operand, branches, default = self.source.take(node, "this", "ifs", "default")
    subject = None if operand is None else self.lower(operand)
    arguments: list[Expr] = []
    for branch in branches:
        condition, value = self.source.take(branch, "this", "true")
        when = self.lower(condition)
        arguments.append(when if subject is None else self.call(branch, "eq", subject, when))
        arguments.append(self.lower(value))
    arguments.append(Literal(None, Type.NULL) if default is None else self.lower(default))
    return self.call(node, "case", *arguments)


def _if(self: Scalars, node: exp.Expr) -> Expr:
    condition, value, otherwise = self.source.take(node, "this", "true", "false")
    last = Literal(None, Type.NULL) if otherwise is None else self.lower(otherwise)
    return self.call(node, "case", self.lower(condition), self.lower(value), last)


_SPECIAL: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Expr]] = {
    exp.Paren: _paren,
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Placeholder: _parameter,
    exp.Neg: _negate,
    exp.And: _chain("and"),
    exp.Or: _chain("or"),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncate,
    exp.DateTrunc: _truncate,
    exp.Case: _case,
    exp.If: _if,
}
