"""Lower scalar SQL to typed expressions: the whitelist of nodes and functions.

`SHAPES` lists the tree nodes that are plain functions of their arguments, the names of the registry are the calls that are
functions too, and `_SPECIAL` lists the nodes with a rule of their own. Any other node is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import DataError
from dpsql.plan.expressions import Column, Expr, Literal
from dpsql.plan.functions import CALLS, SYNONYMS
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import Parameter
from dpsql.sql.lower.constants import (
    READ_FROM_TEXT,
    TIME_CALLS,
    TIME_NODES,
    StatementTime,
    fold_constant,
    fold_decimals,
    parse_constant,
    parse_number,
    to_literal,
)
from dpsql.sql.lower.dotted_names import is_field_access
from dpsql.sql.lower.function_calls import (
    CASTS,
    SHAPES,
    SPAN_UNITS,
    SPANS,
    is_span,
    resolve_call,
    resolve_time_unit,
    take_unit_word,
)
from dpsql.sql.lower.node_kinds import COMPARISONS, COUNTED, list_members, rewrite_as_in
from dpsql.sql.lower.number_types import find_id_constants, is_number, unify_float_width
from dpsql.sql.lower.time_zones import lower_time_zone
from dpsql.sql.lower.typed_calls import lower_typed_call
from dpsql.sql.lower.typed_texts import lower_padding
from dpsql.sql.lower.unknown_syntax import refuse_unknown_function, refuse_unknown_node
from dpsql.sql.parse.pivots import NAME_OF
from dpsql.sql.parse.rejection import QueryText, format_sql, is_valid_text
from dpsql.sql.parse.typed_calls import is_typed_call

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_LONE_SPAN = (
    "an INTERVAL is only allowed where it is added to a date or timestamp, or subtracted from one",
    "write day + INTERVAL 1 DAY",
)
_DECIMAL = (18, 3)
"""The default precision and scale of a DECIMAL."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """Lowers scalar nodes; `resolve_column` resolves names, `intercept` may answer for a whole node."""

    source: QueryText
    parameters: Sequence[Parameter]
    time: StatementTime
    resolve_column: Callable[[exp.Column], Expr]
    intercept: Callable[[exp.Expr], Expr | None] = field(default=lambda _: None)

    def lower(self, node: exp.Expr) -> Expr:
        """Return the expression that `node` means. Raises QueryRejected."""
        taken = self.intercept(node)
        if taken is not None:
            return taken
        special = _SPECIAL.get(type(node))
        if special is not None:
            return special(self, node)
        shape = SHAPES.get(type(node))
        if shape is not None:
            name, names, fixed = shape
            return self.build_call(
                node,
                name,
                *map(self.lower, _flatten_arguments(self.source.take_arguments(node, *names, **fixed))),
            )
        self._refuse_unknown_node(node)

    def find_span(self, node: exp.Expr) -> tuple[Expr, str] | None:
        """Return the count and unit of an INTERVAL; None for other nodes."""
        return _lower_span(self, node) if is_span(node) else None

    def build_call(self, node: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """Build the typed call of a function, or a refusal that shows its signature."""
        return fold_decimals(node, arguments) or resolve_call(self.source, node, name, arguments)

    def _refuse_unknown_node(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, (exp.Subquery, exp.Query, exp.Exists)):
            self.source.refuse(
                node, "subquery", "subqueries are not supported yet", "send each SELECT as its own query"
            )
        if isinstance(node, exp.Window):
            self.source.refuse(
                node,
                "window",
                "a window is only allowed in SELECT, QUALIFY and ORDER BY",
                "compute it in a subquery",
            )
        if isinstance(node, exp.Star):
            self.source.refuse(
                node, "star", "* would release whole rows", "name aggregates, such as COUNT(*)"
            )
        if isinstance(node, (exp.AggFunc, exp.IgnoreNulls, exp.RespectNulls)):
            self.source.refuse(
                node,
                "aggregate",
                f"{self.source.get_function_name(node)} is not allowed here: it aggregates many rows",
                "take the ends of a range from constants: range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL 1 MONTH)"
                if type(node.parent) is exp.Anonymous and normalize_name(str(node.parent.this)) in COUNTED
                else "aggregate in a subquery, or in HAVING",
            )
        if isinstance(node, (exp.Any, exp.All)) and isinstance(node.parent, COMPARISONS):
            self.source.refuse(
                node,
                "subquery",
                "ANY and ALL cannot compare aggregates",
                "compare with one value: x > (SELECT MAX(y) FROM …)",
            )
        if isinstance(node, exp.Tuple):
            self.source.refuse(
                node,
                "type",
                "a row of values is only allowed on a side of =, <> or IN",
                "write (a, b) IN ((1, 2), (3, 4))",
            )
        if isinstance(node, exp.Interval):
            self.source.refuse(node, "type", *_LONE_SPAN)
        self._check_field_access(node)
        refuse_unknown_node(self.source, node)

    def refuse_unknown_call(self, node: exp.Expr, name: str) -> NoReturn:
        """Refuse a function that is not in the registry, or a field of a value without fields."""
        self._check_field_access(node)
        refuse_unknown_function(self.source, node, name)

    def _check_field_access(self, node: exp.Expr) -> None:
        if is_field_access(node):
            self.source.refuse(
                node,
                "column",
                "a computed value has no fields or elements that can be read",
                "name the field of a STRUCT: (s).field",
            )


def _flatten_arguments(values: Sequence[object]) -> Iterator[exp.Expr]:
    for value in values:
        if isinstance(value, list):
            yield from value
        elif value is not None:
            yield value  # type: ignore[misc]


def _lower_paren(self: Scalars, node: exp.Expr) -> Expr:
    (inner,) = self.source.take_arguments(node, "this")
    return self.lower(inner)


def _lower_column(self: Scalars, node: exp.Expr) -> Expr:
    return self.resolve_column(node)  # type: ignore[arg-type]


def _lower_literal(self: Scalars, node: exp.Expr) -> Expr:
    text, is_string = self.source.take_arguments(node, "this", "is_string")
    named = node.meta.get(NAME_OF)
    if named is not None:
        column = self.resolve_column(named)
        text = (
            column.name
            if isinstance(column, Column) and normalize_name(column.name) == normalize_name(text)
            else text
        )
    return Literal(text, Type.VARCHAR) if is_string else parse_number(self.source, node, text)


def _lower_boolean(self: Scalars, node: exp.Expr) -> Expr:
    (value,) = self.source.take_arguments(node, "this")
    return Literal(bool(value), Type.BOOLEAN)


def _lower_null(self: Scalars, node: exp.Expr) -> Expr:
    self.source.take_arguments(node)
    return Literal(None, Type.NULL)


def _get_parameter(self: Scalars, node: exp.Expr) -> Parameter:
    """Return the value of a parameter."""
    (index,) = self.source.take_arguments(node, "this")
    if not str(index).isdecimal():
        self.source.refuse(node, "parameter", "parameters are written as ? or :name")
    return self.parameters[int(str(index)) - 1]


def _lower_parameter(self: Scalars, node: exp.Expr) -> Expr:
    value = _get_parameter(self, node)
    if isinstance(value, tuple):
        self.source.refuse(
            node, "parameter", "a list of values is only allowed after IN", "write WHERE x IN ?"
        )
    return _build_parameter_literal(self, node, value)


def _build_parameter_literal(self: Scalars, node: exp.Expr, value: Value) -> Literal:
    if isinstance(value, str) and not is_valid_text(value):
        raise DataError("a parameter holds a NUL character or half a surrogate pair", code="parameter")
    return to_literal(self.source, node, value)


def _lower_time(self: Scalars, node: exp.Expr) -> Expr:
    self.source.take_arguments(node)
    return self.time.build_constant(TIME_NODES[type(node)])


def _lower_negation(self: Scalars, node: exp.Expr) -> Expr:
    (inner,) = self.source.take_arguments(node, "this")
    return _build_negation(self, node, self.lower(inner))


def _build_negation(self: Scalars, node: exp.Expr, operand: Expr) -> Expr:
    if isinstance(operand, Literal) and operand.type.numeric:
        return replace(operand, value=-operand.value)  # type: ignore[operator]
    return self.build_call(node, "negate", operand)


def _lower_complement(self: Scalars, node: exp.Expr) -> Expr:
    if type(node.parent) in _TIGHTER:
        self.source.refuse(
            node,
            "syntax",
            "~ is applied after arithmetic, which is easily misread",
            "put it in parentheses: (~x) + 1",
        )
    (inner,) = self.source.take_arguments(node, "this")
    return self.build_call(node, "~", self.lower(inner))


def _make_chain_lowering(name: str) -> Callable[[Scalars, exp.Expr], Expr]:
    def lower_chain(self: Scalars, node: exp.Expr) -> Expr:
        operands: list[Expr] = []
        stack = [node]
        while stack:
            top = stack.pop()
            if type(top) is type(node):
                left, right = self.source.take_arguments(top, "this", "expression")
                stack += [right, left]
            else:
                operands.append(self.lower(top))
        return self.build_call(node, name, *operands)

    return lower_chain


def _lower_is(self: Scalars, node: exp.Expr) -> Expr:
    operand, other = self.source.take_arguments(node, "this", "expression")
    if type(other) is exp.Boolean:
        (truth,) = self.source.take_arguments(other, "this")
        return self.build_call(node, "is_true" if truth else "is_false", self.lower(operand))
    if type(other) is not exp.Null:
        self.source.refuse(
            other, "function", "IS takes NULL, TRUE or FALSE", "write the comparison itself: x = y"
        )
    self.source.take_arguments(other)
    return self.build_call(node, "is_null", self.lower(operand))


def _lower_in(self: Scalars, node: exp.Expr) -> Expr:
    if node.args.get("query") is not None:
        self.source.refuse(
            node,
            "subquery",
            "IN with a subquery cannot be applied to groups",
            "write SELECT … FROM (SELECT k, COUNT(*) AS n FROM … GROUP BY k) WHERE n IN (SELECT …)",
        )
    operand, items, column = self.source.take_arguments(node, "this", "expressions", "field")
    members = [*list_members(self.source, items or ()), *([] if column is None else [column])]
    if not members:
        self.source.refuse(node, "type", "IN needs at least one value", "x IN (1, 2)")
    if type(operand) is exp.Tuple:
        rows = [_lower_row_equality(self, node, operand, item) for item in members]
        return rows[0] if len(rows) == 1 else self.build_call(node, "or", *rows)
    value = self.lower(operand)
    others: list[Expr] = []
    for item in members:
        written_id = find_id_constants(self.source, item, value, partial(_get_parameter, self))
        if written_id is not None:
            others += written_id
            continue
        given = _get_parameter(self, item) if type(item) is exp.Placeholder else None
        if isinstance(given, tuple):
            others += [_build_parameter_literal(self, item, each) for each in given]
        else:
            others.append(fold_constant(self.source, item, self.lower(item)))
    value, *others = unify_float_width(value, *others)
    constants = [other for other in others if isinstance(other, Literal)]
    parts = [self.build_call(node, "in", value, *constants)] if constants else []
    parts += [self.build_call(node, "eq", value, other) for other in others if not isinstance(other, Literal)]
    return parts[0] if len(parts) == 1 else self.build_call(node, "or", *parts)


def _lower_row_equality(self: Scalars, node: exp.Expr, left: exp.Expr | None, right: exp.Expr | None) -> Expr:
    """Return whether two rows of values are the same: NULL is as good as NULL in them, as in DuckDB."""
    sides = [
        self.source.take_arguments(side, "expressions")[0] if type(side) is exp.Tuple else None
        for side in (left, right)
    ]
    if None in sides or len(sides[0] or ()) != len(sides[1] or ()):
        self.source.refuse(
            node,
            "type",
            "a row of values can only be compared with rows of the same number of values",
            "write (a, b) IN ((1, 2), (3, 4))",
        )
    pairs = zip(sides[0] or (), sides[1] or (), strict=True)
    equal = [
        self.build_call(node, "is_not_distinct", self.lower(ours), self.lower(theirs))
        for ours, theirs in pairs
    ]
    return equal[0] if len(equal) == 1 else self.build_call(node, "and", *equal)


def _lower_equality(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take_arguments(node, "this", "expression")
    if type(right) is (exp.Any if type(node) is exp.EQ else exp.All):
        return self.lower(
            rewrite_as_in(self.source, node, left, right, lambda item: _get_parameter(self, item))
        )
    name = "eq" if type(node) is exp.EQ else "ne"
    if exp.Tuple not in (type(left), type(right)):
        return self.build_call(node, name, *_lower_compared_sides(self, left, right))
    same = _lower_row_equality(self, node, left, right)
    return same if name == "eq" else self.build_call(node, "not", same)


def _lower_compared_sides(self: Scalars, left: exp.Expr, right: exp.Expr) -> tuple[Expr, Expr]:
    """Lower both sides of a comparison; a number next to a numeric id that is read as text becomes such a text."""
    sides = [None if is_number(side) else self.lower(side) for side in (left, right)]
    first, second = sides
    for node, place, other in ((left, 0, second), (right, 1, first)):
        found = (
            None
            if other is None
            else find_id_constants(self.source, node, other, partial(_get_parameter, self))
        )
        if found is not None and len(found) == 1:
            sides[place] = found[0]
    ours, theirs = (
        self.lower(node) if side is None else side for side, node in zip(sides, (left, right), strict=True)
    )
    return ours, theirs


def _lower_like(self: Scalars, node: exp.Expr) -> Expr:
    return _lower_pattern_match(self, node, None)


def _lower_escape(self: Scalars, node: exp.Expr) -> Expr:
    matched, escape = self.source.take_arguments(node, "this", "expression")
    if type(matched) not in (exp.Like, exp.ILike):
        self.source.refuse(node, "function", "ESCAPE is only allowed after LIKE and ILIKE")
    return _lower_pattern_match(self, matched, self.lower(escape))


def _lower_pattern_match(self: Scalars, node: exp.Expr, escape: Expr | None) -> Expr:
    text, pattern, negated = self.source.take_arguments(node, "this", "expression", "negate")
    name = "like" if type(node) is exp.Like else "ilike"
    operands = (self.lower(text), self.lower(pattern))
    built = (
        self.build_call(node, name, *operands)
        if escape is None
        else self.build_call(node, f"{name}_escape", *operands, escape)
    )
    return self.build_call(node, "not", built) if negated else built


def _lower_between(self: Scalars, node: exp.Expr) -> Expr:
    operand, low, high = self.source.take_arguments(node, "this", "low", "high")
    value, least, most = unify_float_width(self.lower(operand), self.lower(low), self.lower(high))
    return self.build_call(
        node, "and", self.build_call(node, "ge", value, least), self.build_call(node, "le", value, most)
    )


def _lower_cast(self: Scalars, node: exp.Expr) -> Expr:
    operand, target = self.source.take_arguments(node, "this", "to", safe=(True, False))
    kind, digits = self.source.take_arguments(target, "this", "expressions", nested=(False,))
    name = CASTS.get(kind)
    if name is None or (digits and name != "decimal"):
        self.source.refuse(
            target,
            "type",
            f"CAST to {format_sql(target)} is not supported",
            "use BIGINT, INTEGER, DOUBLE, DECIMAL, VARCHAR, DATE, TIMESTAMP, TIME, UUID, BLOB or BOOLEAN",
        )
    value = self.lower(operand)
    if name == "timestamptz":
        return _lower_timestamptz_cast(self, node, value)
    kind = Type[name.upper()] if name.upper() in Type.__members__ else Type.NULL
    if kind in READ_FROM_TEXT and isinstance(value, Literal) and isinstance(value.value, str):
        return parse_constant(self.source, node, kind, value.value)
    return self.build_call(
        node, f"cast_{name}", value, *(_lower_decimal_digits(self, digits) if name == "decimal" else ())
    )


def _lower_timestamptz_cast(self: Scalars, node: exp.Expr, value: Expr) -> Expr:
    """Return a moment with a time zone, which is one in UTC here."""
    if isinstance(value, Literal) and isinstance(value.value, str):
        return parse_constant(self.source, node, Type.TIMESTAMP, value.value, zoned=True)
    if value.type is Type.VARCHAR:
        self.source.refuse(
            node,
            "type",
            "a text without a time zone would be read in the session's zone",
            "write CAST(x AS TIMESTAMP), which reads it in UTC",
        )
    return self.build_call(node, "cast_timestamp", value)


def _lower_at_time_zone(self: Scalars, node: exp.Expr) -> Expr:
    """Return a moment, which is in UTC here, at a time zone."""
    operand, zone = self.source.take_arguments(node, "this", "zone")
    return lower_time_zone(
        self.source, node, operand, self.lower(operand), self.lower(zone), build_call=self.build_call
    )


def _lower_decimal_digits(self: Scalars, nodes: Sequence[exp.Expr] | None) -> tuple[Expr, ...]:
    """Return the precision and scale of a DECIMAL; the scale is 0 if only the precision is given."""
    said = [self.lower(self.source.take_arguments(node, "this")[0]) for node in nodes or ()]
    defaults = [Literal(value, Type.INTEGER) for value in (_DECIMAL if not said else (_DECIMAL[0], 0))]
    return (*said, *defaults[len(said) :])


def _lower_trim(self: Scalars, node: exp.Expr) -> Expr:
    text, characters, side = self.source.take_arguments(node, "this", "expression", "position")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(side), "trim")
    return self.build_call(node, name, *map(self.lower, _flatten_arguments([text, characters])))


def _lower_function(self: Scalars, node: exp.Expr) -> Expr:
    if is_typed_call(node):
        return lower_typed_call(self, node)
    name, items = self.source.take_arguments(node, "this", "expressions")
    called = normalize_name(name) if isinstance(name, str) else ""
    if called in TIME_CALLS and not items:
        return self.time.build_constant(called)
    called = SYNONYMS.get(called, called)
    items = list(items or ())
    if called in SYNONYMS.values() and items:
        entry = resolve_time_unit(self.source, node, called, take_unit_word(self.source, items[0]))
        return self.build_call(node, entry, *map(self.lower, items[1:]))
    if called == "time_bucket":
        if len(items) != 2 or not is_span(items[0]):
            self.source.refuse(node, "type", "TIME_BUCKET takes an INTERVAL and a date")
        count, unit = _lower_span(self, items[0])
        return self.build_call(
            node, resolve_time_unit(self.source, node, called, unit), count, self.lower(items[1])
        )
    if called == "timezone" and len(items) == 2:
        zone, moment = map(self.lower, items)
        return lower_time_zone(self.source, node, items[1], moment, zone, build_call=self.build_call)
    if called in SPANS:
        self.source.refuse(node, "type", *_LONE_SPAN)
    if called == "date_add" and len(items) == 2 and is_span(items[1]):
        return _shift_moment(self, node, items[0], items[1])
    if called not in CALLS:
        self.refuse_unknown_call(node, called or str(name))
    arguments = list(map(self.lower, items))
    return lower_padding(self, node, called, arguments) or self.build_call(node, called, *arguments)


def _lower_extract(self: Scalars, node: exp.Expr) -> Expr:
    part, operand = self.source.take_arguments(node, "this", "expression")
    return self.build_call(
        node,
        resolve_time_unit(self.source, part, "date_part", take_unit_word(self.source, part)),
        self.lower(operand),
    )


def _lower_addition(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take_arguments(node, "this", "expression")
    if is_span(right):
        return _shift_moment(self, node, left, right)
    if is_span(left):
        return _shift_moment(self, node, right, left)
    return self.build_call(node, "+", self.lower(left), self.lower(right))


def _lower_subtraction(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take_arguments(node, "this", "expression")
    if is_span(right):
        return _shift_moment(self, node, left, right, back=True)
    return self.build_call(node, "-", self.lower(left), self.lower(right))


def _shift_moment(
    self: Scalars, node: exp.Expr, moment_: exp.Expr, span: exp.Expr, *, back: bool = False
) -> Expr:
    """Return a moment some units later, or back."""
    count, unit = _lower_span(self, span)
    units = _build_negation(self, span, count) if back else count
    return self.build_call(
        node, resolve_time_unit(self.source, span, "interval", unit), self.lower(moment_), units
    )


def _lower_span(self: Scalars, node: exp.Expr) -> tuple[Expr, str]:
    """Return the count and unit of an INTERVAL, or of TO_DAYS(n) and the like."""
    while type(node) is exp.Paren:
        (node,) = self.source.take_arguments(node, "this")
    if type(node) is exp.Anonymous:
        name, items = self.source.take_arguments(node, "this", "expressions")
        if len(items or ()) != 1:
            self.source.refuse(node, "type", f"{name} takes exactly one number")
        return self.lower(items[0]), SPANS[normalize_name(str(name))]
    count, named = self.source.take_arguments(node, "this", "unit")
    unit = None if named is None else SPAN_UNITS.get(normalize_name(take_unit_word(self.source, named)))
    if unit is None:
        self.source.refuse(
            node, "constant", "an INTERVAL must be a whole number of one unit", "write INTERVAL 1 DAY"
        )
    if type(count) is not exp.Literal:
        return self.lower(count), unit
    text, _ = self.source.take_arguments(count, "this", "is_string")
    if not _WHOLE.fullmatch(str(text)):
        self.source.refuse(
            node, "constant", "an INTERVAL must be a whole number of one unit", "write INTERVAL 1 DAY"
        )
    return Literal(int(text), Type.INTEGER), unit


def _lower_case(self: Scalars, node: exp.Expr) -> Expr:
    operand, branches, default = self.source.take_arguments(node, "this", "ifs", "default")
    subject = None if operand is None else self.lower(operand)
    arguments: list[Expr] = []
    for branch in branches:
        condition, value = self.source.take_arguments(branch, "this", "true")
        when = self.lower(condition)
        arguments.append(when if subject is None else self.build_call(branch, "eq", subject, when))
        arguments.append(self.lower(value))
    arguments.append(Literal(None, Type.NULL) if default is None else self.lower(default))
    return self.build_call(node, "case", *arguments)


def _lower_if(self: Scalars, node: exp.Expr) -> Expr:
    condition, value, otherwise = self.source.take_arguments(node, "this", "true", "false")
    last = Literal(None, Type.NULL) if otherwise is None else self.lower(otherwise)
    return self.build_call(node, "case", self.lower(condition), self.lower(value), last)


_TIGHTER = frozenset({exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Neg})
"""Operators that DuckDB applies before ~, and the parser after it."""

_SPECIAL: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Expr]] = {
    exp.Paren: _lower_paren,
    exp.Column: _lower_column,
    exp.Literal: _lower_literal,
    exp.Boolean: _lower_boolean,
    exp.Null: _lower_null,
    exp.Placeholder: _lower_parameter,
    exp.Neg: _lower_negation,
    exp.BitwiseNot: _lower_complement,
    exp.Add: _lower_addition,
    exp.Sub: _lower_subtraction,
    exp.And: _make_chain_lowering("and"),
    exp.Or: _make_chain_lowering("or"),
    exp.Is: _lower_is,
    exp.In: _lower_in,
    exp.EQ: _lower_equality,
    exp.NEQ: _lower_equality,
    exp.Between: _lower_between,
    exp.Like: _lower_like,
    exp.ILike: _lower_like,
    exp.Escape: _lower_escape,
    exp.Cast: _lower_cast,
    exp.TryCast: _lower_cast,
    exp.AtTimeZone: _lower_at_time_zone,
    exp.Extract: _lower_extract,
    exp.Trim: _lower_trim,
    exp.Anonymous: _lower_function,
    exp.Case: _lower_case,
    exp.If: _lower_if,
    **dict.fromkeys(TIME_NODES, _lower_time),
}
