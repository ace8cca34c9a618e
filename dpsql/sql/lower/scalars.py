"""Lowers scalar SQL to typed expressions: the whitelist of nodes and functions.

`SHAPES` lists the tree nodes that are plain functions of their arguments, the registry's names say which
calls are, and `_SPECIAL` lists the nodes that need a word more. A node in none of them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import DataError
from dpsql.functions import BY_UNIT, CALLS, SYNONYMS
from dpsql.functions.moments import SPELLINGS
from dpsql.plan.expr import Column, Expr, Literal
from dpsql.plan.types import Type, Value
from dpsql.policy import fold
from dpsql.request.parameters import Parameter
from dpsql.sql.lower.calls import meant, unknown
from dpsql.sql.lower.constants import READ_FROM_TEXT, constant, folded, number, of_text
from dpsql.sql.lower.floats import of_one_width
from dpsql.sql.lower.folding import constant_of
from dpsql.sql.lower.id_texts import stored_form
from dpsql.sql.lower.members import listed, member_of
from dpsql.sql.lower.operators import CASTS, SHAPES, SPAN_UNITS, SPANS
from dpsql.sql.lower.statement_time import TIME_CALLS, TIME_NODES, StatementTime
from dpsql.sql.lower.struct_fields import takes_field
from dpsql.sql.read.pivots import NAME_OF
from dpsql.sql.read.rejection import Source, is_text

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_LONE_SPAN = ("a length of time is added to a date or taken from one", "write day + INTERVAL 1 DAY")
_DECIMAL = (18, 3)
"""The digits of a DECIMAL that does not say them, all of them and those after the point."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """Lowers scalar nodes; `column` resolves names, `intercept` may answer for a whole node."""

    source: Source
    parameters: Sequence[Parameter]
    time: StatementTime
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
        self._unknown(node)

    def span_of(self, node: exp.Expr) -> tuple[Expr, str] | None:
        """How many of which unit an INTERVAL is; None for what is none."""
        return _span(self, node) if _is_span(node) else None

    def call(self, node: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """The typed call of a function, or a refusal that shows its signature."""
        return folded(node, arguments) or meant(self.source, node, name, arguments)

    def _unknown(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, (exp.Subquery, exp.Query, exp.Exists)):
            self.source.refuse(
                node, "subquery", "subqueries are not supported yet", "ask for each SELECT alone"
            )
        if isinstance(node, exp.Window):
            self.source.refuse(
                node,
                "window",
                "a window is only allowed in SELECT, QUALIFY and ORDER BY",
                "name it in a subquery",
            )
        if isinstance(node, exp.Star):
            self.source.refuse(node, "star", "* would release rows", "name aggregates, such as COUNT(*)")
        if isinstance(node, (exp.AggFunc, exp.IgnoreNulls, exp.RespectNulls)):
            self.source.refuse(
                node,
                "aggregate",
                f"{self.source.called(node)} is not allowed here: it aggregates many rows",
                "aggregate in a subquery, or in HAVING",
            )
        if isinstance(node, (exp.Any, exp.All)) and isinstance(node.parent, _COMPARISONS):
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
        named = "collate" if isinstance(node, exp.Collate) else self.source.called(node).lower()
        self.unknown_call(node, named)

    def unknown_call(self, node: exp.Expr, name: str) -> NoReturn:
        """Refuses a function that is not in the registry, or a field of what has none."""
        if takes_field(node):
            self.source.refuse(
                node,
                "column",
                "a computed value has no fields or elements that can be read",
                "name the field of a STRUCT: (s).field",
            )
        unknown(self.source, node, name)


def is_unnest(node: exp.Expr) -> bool:
    """Whether a node is UNNEST in an expression."""
    return type(node) is exp.Anonymous and fold(str(node.this)) == "unnest" and bool(node.expressions)


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
    named = node.meta.get(NAME_OF)
    if named is not None:
        column = self.column(named)
        text = column.name if isinstance(column, Column) and fold(column.name) == fold(text) else text
    return Literal(text, Type.VARCHAR) if is_string else number(self.source, node, text)


def _boolean(self: Scalars, node: exp.Expr) -> Expr:
    (value,) = self.source.take(node, "this")
    return Literal(bool(value), Type.BOOLEAN)


def _null(self: Scalars, node: exp.Expr) -> Expr:
    self.source.take(node)
    return Literal(None, Type.NULL)


def _given(self: Scalars, node: exp.Expr) -> Parameter:
    """What was given for a parameter."""
    (index,) = self.source.take(node, "this")
    if not str(index).isdecimal():
        self.source.refuse(node, "parameter", "parameters are written as ? or :name")
    return self.parameters[int(str(index)) - 1]


def _parameter(self: Scalars, node: exp.Expr) -> Expr:
    value = _given(self, node)
    if isinstance(value, tuple):
        self.source.refuse(node, "parameter", "a list of values is only allowed after IN", "WHERE x IN ?")
    return _given_constant(self, node, value)


def _given_constant(self: Scalars, node: exp.Expr, value: Value) -> Literal:
    if isinstance(value, str) and not is_text(value):
        raise DataError("a parameter holds a NUL character or half a surrogate pair", code="parameter")
    return constant(self.source, node, value)


def _time(self: Scalars, node: exp.Expr) -> Expr:
    self.source.take(node)
    return self.time.constant(TIME_NODES[type(node)])


def _negate(self: Scalars, node: exp.Expr) -> Expr:
    (inner,) = self.source.take(node, "this")
    return _negative(self, node, self.lower(inner))


def _negative(self: Scalars, node: exp.Expr, operand: Expr) -> Expr:
    if isinstance(operand, Literal) and operand.type.numeric:
        return replace(operand, value=-operand.value)  # type: ignore[operator]
    return self.call(node, "negate", operand)


def _complement(self: Scalars, node: exp.Expr) -> Expr:
    if type(node.parent) in _TIGHTER:
        self.source.refuse(
            node,
            "syntax",
            "~ is applied after arithmetic, which is easily misread",
            "put it in parentheses: (~x) + 1",
        )
    (inner,) = self.source.take(node, "this")
    return self.call(node, "~", self.lower(inner))


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
    if type(other) is exp.Boolean:
        (truth,) = self.source.take(other, "this")
        return self.call(node, "is_true" if truth else "is_false", self.lower(operand))
    if type(other) is not exp.Null:
        self.source.refuse(
            other, "function", "IS takes NULL, TRUE or FALSE", "write the comparison out: x = y"
        )
    self.source.take(other)
    return self.call(node, "is_null", self.lower(operand))


def _in(self: Scalars, node: exp.Expr) -> Expr:
    if node.args.get("query") is not None:
        self.source.refuse(
            node,
            "subquery",
            "IN over a subquery compares rows, not groups",
            "SELECT … FROM (SELECT k, COUNT(*) AS n FROM … GROUP BY k) WHERE n IN (SELECT …)",
        )
    operand, items, column = self.source.take(node, "this", "expressions", "field")
    members = [*listed(self.source, items or ()), *([] if column is None else [column])]
    if type(operand) is exp.Tuple:
        rows = [_row_equal(self, node, operand, item) for item in members]
        return rows[0] if len(rows) == 1 else self.call(node, "or", *rows)
    value = self.lower(operand)
    others: list[Expr] = []
    for item in members:
        written_id = _id_constant(self, item, value)
        if written_id is not None:
            others += written_id
            continue
        given = _given(self, item) if type(item) is exp.Placeholder else None
        if isinstance(given, tuple):
            others += [_given_constant(self, item, each) for each in given]
        else:
            others.append(constant_of(self.source, item, self.lower(item)))
    value, *others = of_one_width(value, *others)
    constants = [other for other in others if isinstance(other, Literal)]
    parts = [self.call(node, "in", value, *constants)] if constants else []
    parts += [self.call(node, "eq", value, other) for other in others if not isinstance(other, Literal)]
    return parts[0] if len(parts) == 1 else self.call(node, "or", *parts)


def _row_equal(self: Scalars, node: exp.Expr, left: exp.Expr | None, right: exp.Expr | None) -> Expr:
    """Whether two rows of values are the same: NULL is as good as NULL in them, as in DuckDB."""
    sides = [
        self.source.take(side, "expressions")[0] if type(side) is exp.Tuple else None
        for side in (left, right)
    ]
    if None in sides or len(sides[0] or ()) != len(sides[1] or ()):
        self.source.refuse(
            node,
            "type",
            "a row of values is compared with rows of as many",
            "write (a, b) IN ((1, 2), (3, 4))",
        )
    pairs = zip(sides[0] or (), sides[1] or (), strict=True)
    equal = [
        self.call(node, "is_not_distinct", self.lower(ours), self.lower(theirs)) for ours, theirs in pairs
    ]
    return equal[0] if len(equal) == 1 else self.call(node, "and", *equal)


def _equal(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take(node, "this", "expression")
    if type(right) is (exp.Any if type(node) is exp.EQ else exp.All):
        return self.lower(member_of(self.source, node, left, right, lambda item: _given(self, item)))
    name = "eq" if type(node) is exp.EQ else "ne"
    if exp.Tuple not in (type(left), type(right)):
        return self.call(node, name, *_compared(self, left, right))
    same = _row_equal(self, node, left, right)
    return same if name == "eq" else self.call(node, "not", same)


def _compared(self: Scalars, left: exp.Expr, right: exp.Expr) -> tuple[Expr, Expr]:
    """Both sides of a comparison, a number beside an id that is read as text as such a text."""
    sides = [None if _is_number(side) else self.lower(side) for side in (left, right)]
    first, second = sides
    for node, place, other in ((left, 0, second), (right, 1, first)):
        found = None if other is None else _id_constant(self, node, other)
        if found is not None and len(found) == 1:
            sides[place] = found[0]
    ours, theirs = (
        self.lower(node) if side is None else side for side, node in zip(sides, (left, right), strict=True)
    )
    return ours, theirs


def _is_number(node: exp.Expr) -> bool:
    """Whether a node may be a number of any size: a literal, its negative, or a parameter."""
    inner = node.this if type(node) is exp.Neg else node
    return (type(inner) is exp.Literal and not inner.is_string) or type(node) is exp.Placeholder


def _id_constant(self: Scalars, node: exp.Expr, column: Expr) -> list[Literal] | None:
    """A number, or a list of them, beside a column of numbers that is read as text, as the texts that it has there.

    Claim: they are equal if and only if the numbers are, of whatever size.
    Why: the engine writes each number of one type in one way.
    """
    form = stored_form(column)
    if form is None or not _is_number(node):
        return None
    if type(node) is exp.Placeholder:
        given = _given(self, node)
        numbers = given if isinstance(given, tuple) else (given,)
        texts = [str(number) if type(number) is int else None for number in numbers]
    else:
        inner = self.source.take(node, "this")[0] if type(node) is exp.Neg else node
        text, _ = self.source.take(inner, "this", "is_string")
        texts = [f"-{text}" if inner is not node else str(text)]
    found = [None if text is None else form.text(text) for text in texts]
    return None if None in found else [Literal(text, Type.VARCHAR) for text in found]


def _like(self: Scalars, node: exp.Expr) -> Expr:
    return _matched(self, node, None)


def _escape(self: Scalars, node: exp.Expr) -> Expr:
    matched, escape = self.source.take(node, "this", "expression")
    if type(matched) not in (exp.Like, exp.ILike):
        self.source.refuse(node, "function", "ESCAPE belongs to LIKE and ILIKE")
    return _matched(self, matched, self.lower(escape))


def _matched(self: Scalars, node: exp.Expr, escape: Expr | None) -> Expr:
    text, pattern, negated = self.source.take(node, "this", "expression", "negate")
    name = "like" if type(node) is exp.Like else "ilike"
    operands = (self.lower(text), self.lower(pattern))
    built = (
        self.call(node, name, *operands)
        if escape is None
        else self.call(node, f"{name}_escape", *operands, escape)
    )
    return self.call(node, "not", built) if negated else built


def _between(self: Scalars, node: exp.Expr) -> Expr:
    operand, low, high = self.source.take(node, "this", "low", "high")
    value, least, most = of_one_width(self.lower(operand), self.lower(low), self.lower(high))
    return self.call(node, "and", self.call(node, "ge", value, least), self.call(node, "le", value, most))


def _cast(self: Scalars, node: exp.Expr) -> Expr:
    operand, target = self.source.take(node, "this", "to", safe=(True, False))
    kind, digits = self.source.take(target, "this", "expressions", nested=(False,))
    name = CASTS.get(kind)
    if name is None or (digits and name != "decimal"):
        self.source.refuse(
            target,
            "type",
            "CAST to this type is not supported",
            "use BIGINT, INTEGER, DOUBLE, DECIMAL, VARCHAR, DATE, TIMESTAMP, TIME, UUID, BLOB or BOOLEAN",
        )
    value = self.lower(operand)
    if name == "timestamptz":
        return _zoned(self, node, value)
    kind = Type[name.upper()] if name.upper() in Type.__members__ else Type.NULL
    if kind in READ_FROM_TEXT and isinstance(value, Literal) and isinstance(value.value, str):
        return of_text(self.source, node, kind, value.value)
    return self.call(node, f"cast_{name}", value, *(_digits(self, digits) if name == "decimal" else ()))


def _zoned(self: Scalars, node: exp.Expr, value: Expr) -> Expr:
    """A moment with a time zone, which is one in UTC here."""
    if isinstance(value, Literal) and isinstance(value.value, str):
        return of_text(self.source, node, Type.TIMESTAMP, value.value, zoned=True)
    if value.type is Type.VARCHAR:
        self.source.refuse(
            node,
            "type",
            "a text without a zone would be read in the session's",
            "CAST(x AS TIMESTAMP), which is in UTC",
        )
    return self.call(node, "cast_timestamp", value)


def _at_zone(self: Scalars, node: exp.Expr) -> Expr:
    """A moment in UTC, which all moments are in."""
    operand, zone = self.source.take(node, "this", "zone")
    value, named = self.lower(operand), self.lower(zone)
    if not isinstance(named, Literal) or str(named.value).upper() not in ("UTC", "GMT", "Z", "ETC/UTC"):
        self.source.refuse(
            node,
            "constant",
            "moments are in UTC, and rules of other zones change",
            "AT TIME ZONE 'UTC', or + INTERVAL 2 HOUR",
        )
    return self.call(node, "cast_timestamp", value)


def _digits(self: Scalars, nodes: Sequence[exp.Expr] | None) -> tuple[Expr, ...]:
    """The digits of a DECIMAL; those after the point are none, if only all of them are said."""
    said = [self.lower(self.source.take(node, "this")[0]) for node in nodes or ()]
    defaults = [Literal(value, Type.INTEGER) for value in (_DECIMAL if not said else (_DECIMAL[0], 0))]
    return (*said, *defaults[len(said) :])


def _trim(self: Scalars, node: exp.Expr) -> Expr:
    text, characters, side = self.source.take(node, "this", "expression", "position")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(side), "trim")
    return self.call(node, name, *map(self.lower, _flat([text, characters])))


def _function(self: Scalars, node: exp.Expr) -> Expr:
    name, items = self.source.take(node, "this", "expressions")
    called = fold(name) if isinstance(name, str) else ""
    if called in TIME_CALLS and not items:
        return self.time.constant(called)
    called = SYNONYMS.get(called, called)
    items = list(items or ())
    if called in SYNONYMS.values() and items:
        entry = _by_unit(self, node, called, _word(self, items[0]))
        return self.call(node, entry, *map(self.lower, items[1:]))
    if called == "time_bucket":
        if len(items) != 2 or not _is_span(items[0]):
            self.source.refuse(node, "type", "TIME_BUCKET takes an INTERVAL and a date")
        count, unit = _span(self, items[0])
        return self.call(node, _by_unit(self, node, called, unit), count, self.lower(items[1]))
    if called in SPANS:
        self.source.refuse(node, "type", *_LONE_SPAN)
    if called == "date_add" and len(items) == 2 and _is_span(items[1]):
        return _moved(self, node, items[0], items[1])
    if called not in CALLS:
        self.unknown_call(node, called or str(name))
    return self.call(node, called, *map(self.lower, items))


def _by_unit(self: Scalars, node: exp.Expr, name: str, said: str) -> str:
    """The entry that a unit of time, a constant, chooses."""
    known = BY_UNIT[name]
    unit = fold(said)
    entry = known.get(SPELLINGS.get(unit, unit))
    if entry is None:
        title = name.upper()
        self.source.refuse(node, "constant", f"{title} knows no {said}", f"it knows {', '.join(known)}")
    return entry


def _extract(self: Scalars, node: exp.Expr) -> Expr:
    part, operand = self.source.take(node, "this", "expression")
    return self.call(node, _by_unit(self, part, "date_part", _word(self, part)), self.lower(operand))


def _word(self: Scalars, node: exp.Expr) -> str:
    if type(node) is exp.Literal and node.is_string:
        text, _ = self.source.take(node, "this", "is_string")
        return str(text)
    if type(node) is exp.Var:
        (text,) = self.source.take(node, "this")
        return str(text)
    self.source.refuse(node, "constant", "a unit of time is a constant: 'month'")


def _sum(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take(node, "this", "expression")
    if _is_span(right):
        return _moved(self, node, left, right)
    if _is_span(left):
        return _moved(self, node, right, left)
    return self.call(node, "+", self.lower(left), self.lower(right))


def _difference(self: Scalars, node: exp.Expr) -> Expr:
    left, right = self.source.take(node, "this", "expression")
    if _is_span(right):
        return _moved(self, node, left, right, back=True)
    return self.call(node, "-", self.lower(left), self.lower(right))


def _moved(self: Scalars, node: exp.Expr, moment_: exp.Expr, span: exp.Expr, *, back: bool = False) -> Expr:
    """A moment some units later, or back."""
    count, unit = _span(self, span)
    units = _negative(self, span, count) if back else count
    return self.call(node, _by_unit(self, span, "interval", unit), self.lower(moment_), units)


def _is_span(node: exp.Expr | None) -> bool:
    while type(node) is exp.Paren:
        node = node.this
    called = node.this if type(node) is exp.Anonymous else None
    return type(node) is exp.Interval or (isinstance(called, str) and fold(called) in SPANS)


def _span(self: Scalars, node: exp.Expr) -> tuple[Expr, str]:
    """How many of which unit an INTERVAL, or TO_DAYS(n) and its like, is."""
    while type(node) is exp.Paren:
        (node,) = self.source.take(node, "this")
    if type(node) is exp.Anonymous:
        name, items = self.source.take(node, "this", "expressions")
        if len(items or ()) != 1:
            self.source.refuse(node, "type", f"{name} takes one number")
        return self.lower(items[0]), SPANS[fold(str(name))]
    count, named = self.source.take(node, "this", "unit")
    unit = None if named is None else SPAN_UNITS.get(fold(_word(self, named)))
    if unit is None:
        self.source.refuse(node, "constant", "an INTERVAL is a whole number of one unit", "INTERVAL 1 DAY")
    if type(count) is not exp.Literal:
        return self.lower(count), unit
    text, _ = self.source.take(count, "this", "is_string")
    if not _WHOLE.fullmatch(str(text)):
        self.source.refuse(node, "constant", "an INTERVAL is a whole number of one unit", "INTERVAL 1 DAY")
    return Literal(int(text), Type.INTEGER), unit


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


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_TIGHTER = frozenset({exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Neg})
"""Operators that DuckDB applies before ~, and the parser after it."""

_SPECIAL: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Expr]] = {
    exp.Paren: _paren,
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Placeholder: _parameter,
    exp.Neg: _negate,
    exp.BitwiseNot: _complement,
    exp.Add: _sum,
    exp.Sub: _difference,
    exp.And: _chain("and"),
    exp.Or: _chain("or"),
    exp.Is: _is,
    exp.In: _in,
    exp.EQ: _equal,
    exp.NEQ: _equal,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.AtTimeZone: _at_zone,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Anonymous: _function,
    exp.Case: _case,
    exp.If: _if,
    **dict.fromkeys(TIME_NODES, _time),
}
