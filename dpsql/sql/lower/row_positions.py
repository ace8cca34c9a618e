"""Read conditions on the positions of numbered rows as the first and the last position that they select.

Claim: of n rows, a condition that is read selects exactly the positions of its span.
Why: a position is built from n by +, -, *, /, FLOOR and CEIL with constants, computed here with fractions. It is a multiple of n and
a part that repeats with a known period, so that two of them that are equal over two periods are equal everywhere.
Source: Beck, Robins 2007, "Computing the continuous discretely", Theorem 3.23 (quasi-polynomials).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from sqlglot import exp

from dpsql.policy import normalize_name

_MOST_PERIOD = 1_000
_MOST_PARTS = 60
_MOST_SHIFT = 2
"""The largest constant that is added to a position: more rows than this are never left out."""
_FAR = 10**6
REALS = frozenset({exp.DType.DOUBLE, exp.DType.FLOAT})
_WHOLE = frozenset({exp.IntDiv, exp.Add, exp.Sub, exp.Mul, exp.Paren, exp.Column, exp.Identifier})
_FLIPPED: Mapping[type[exp.Expr], type[exp.Expr]] = MappingProxyType(
    {exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.LT: exp.GT, exp.EQ: exp.EQ}
)
Span = tuple[int, int]
"""The first and the last of the selected positions."""


_ARGUMENTS: Mapping[type[exp.Expr], frozenset[str]] = MappingProxyType(
    {
        exp.Window: frozenset({"this", "partition_by", "order", "over"}),
        exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
        exp.Case: frozenset({"this", "ifs", "default"}),
        exp.If: frozenset({"this", "true"}),
        exp.Div: frozenset({"this", "expression", "typed", "safe"}),
        exp.Cast: frozenset({"this", "to"}),
        exp.DataType: frozenset({"this", "nested"}),
        exp.Column: frozenset({"this", "table"}),
        exp.Identifier: frozenset({"this", "quoted"}),
        exp.Literal: frozenset({"this", "is_string"}),
        exp.Count: frozenset({"this", "big_int"}),
        exp.Between: frozenset({"this", "low", "high"}),
        exp.Table: frozenset({"this", "alias"}),
        exp.Subquery: frozenset({"this", "alias"}),
        exp.Alias: frozenset({"this", "alias"}),
    }
)
"""The arguments that nodes of an expression over positions may have, where they are not the usual ones."""
_USUAL = frozenset({"this", "expression", "expressions"})


def is_modelled(node: exp.Expr, *, deep: bool = True, read: Collection[str] = ()) -> bool:
    """Return whether a node that is dropped, and if `deep` all its parts, have no argument whose meaning would be lost.

    The caller looks at the arguments that are `read` itself.
    """
    return all(
        key in _ARGUMENTS.get(type(part), _USUAL) | {*read} and (key != "over" or value == "OVER")
        for part in (node.walk() if deep else (node,))
        for key, value in part.args.items()
        if value is not None and value is not False and value != []
    )


# Read conditions on positions as the first and the last position that they select.


class UnknownPositionError(Exception):
    """A condition cannot be read as one on positions."""


def read_number(node: exp.Expr | None) -> Fraction | None:
    """Return the value of a number without an exponent."""
    if type(node) is not exp.Literal or node.is_string or "e" in str(node.this).lower():
        return None
    return Fraction(str(node.this))


@dataclass(slots=True)
class PositionReader:
    """Reads conditions on the positions of ranked rows; `period` is a period of everything that was read."""

    find_kind: Callable[[exp.Expr | None], str | None]
    period: int = 1

    def read_condition(self, node: exp.Expr) -> Callable[[int], Span]:
        """Return the span of positions that a condition selects of `n` rows. Raises UnknownPositionError."""
        if sum(1 for _ in node.walk()) > _MOST_PARTS:
            raise UnknownPositionError
        return self._read_condition(node)

    def _read_condition(self, node: exp.Expr) -> Callable[[int], Span]:
        match node:
            case exp.Paren():
                return self._read_condition(node.this)
            case exp.And():
                one, other = self._read_condition(node.this), self._read_condition(node.expression)
                return lambda n: _intersect(one(n), other(n))
            case exp.Between() if not node.args.get("symmetric"):
                low, high = node.args["low"], node.args["high"]
                return self._read_condition(
                    exp.And(
                        this=exp.GTE(this=node.this, expression=low),
                        expression=exp.LTE(this=node.this, expression=high),
                    )
                )
            case exp.In(expressions=[_, *_]) if self.find_kind(node.this) == "rank":
                members = [self._read_position(item) for item in node.expressions]
                return lambda n: _join_members({member(n) for member in members})
            case exp.GTE() | exp.LTE() | exp.GT() | exp.LT() | exp.EQ():
                return self._read_comparison(type(node), node.this, node.expression)
            case _:
                raise UnknownPositionError

    def _read_comparison(
        self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr
    ) -> Callable[[int], Span]:
        ours, theirs = self._is_rank(left), self._is_rank(right)
        if theirs and not ours:
            return self._read_comparison(_FLIPPED[kind], right, left)
        if not ours or theirs:
            raise UnknownPositionError
        at = self._read_position(right, of_share=ours == "share")
        match kind:
            case exp.GTE:
                return lambda n: (max(1, math.ceil(at(n))), n)
            case exp.GT:
                return lambda n: (max(1, math.floor(at(n)) + 1), n)
            case exp.LTE:
                return lambda n: (1, min(n, math.floor(at(n))))
            case exp.LT:
                return lambda n: (1, min(n, math.ceil(at(n)) - 1))
            case _:
                return lambda n: _join_members({at(n)})

    def _is_rank(self, node: exp.Expr) -> str | None:
        """Return "rank" or "share" for a node that is one of the numbered row."""
        kind = self.find_kind(node)
        stripped = strip_real(node)
        if type(stripped) is exp.Div:
            kinds = self.find_kind(stripped.this), self.find_kind(stripped.expression)
            return "share" if kinds == ("rank", "count") else None
        return kind if kind in ("rank", "share") else None

    def _read_position(self, node: exp.Expr, *, of_share: bool = False) -> Callable[[int], Fraction]:
        """Return a position as a function of the number of rows. Raises UnknownPositionError."""
        value = read_number(node)
        if value is not None:
            self._widen_period(value.denominator)
            return (lambda n: value * n) if of_share else (lambda _: value)
        if of_share:
            raise UnknownPositionError
        if self.find_kind(node) == "count":
            return Fraction
        return self._read_arithmetic(node)

    def _read_arithmetic(self, node: exp.Expr) -> Callable[[int], Fraction]:
        if _is_rounded(node):
            raise UnknownPositionError
        match node:
            case exp.Paren():
                return self._read_position(node.this)
            case exp.Cast() if node.args["to"].this in REALS:
                return self._read_position(node.this)
            case exp.Mul():
                factor, other = (
                    (node.this, node.expression)
                    if read_number(node.this) is not None
                    else (node.expression, node.this)
                )
                return self._scale(other, self._read_factor(factor))
            case exp.Div() | exp.IntDiv():
                by = self._read_factor(node.expression)
                found = self._scale(node.this, 1 / by)
                return (lambda n: Fraction(math.floor(found(n)))) if type(node) is exp.IntDiv else found
            case exp.Add() | exp.Sub():
                shift = read_number(node.expression)
                if shift is None or shift > _MOST_SHIFT:
                    raise UnknownPositionError
                self._widen_period(shift.denominator)
                sign, moved = 1 if type(node) is exp.Add else -1, self._read_position(node.this)
                return lambda n: moved(n) + sign * shift
            case exp.Anonymous(expressions=[inner]):
                whole = {"floor": math.floor, "ceil": math.ceil, "ceiling": math.ceil}.get(
                    normalize_name(str(node.this))
                )
                if whole is None:
                    raise UnknownPositionError
                rounded = self._read_position(inner)
                return lambda n: Fraction(whole(rounded(n)))
            case _:
                raise UnknownPositionError

    def _scale(self, node: exp.Expr, by: Fraction) -> Callable[[int], Fraction]:
        found = self._read_position(node)
        self._widen_period(by.denominator)
        return lambda n: found(n) * by

    def _read_factor(self, node: exp.Expr) -> Fraction:
        value = read_number(strip_real(node))
        if not value or value < 0:
            raise UnknownPositionError
        return value

    def _widen_period(self, by: int) -> None:
        self.period *= by
        if self.period > _MOST_PERIOD:
            raise UnknownPositionError


def _is_rounded(node: exp.Expr) -> bool:
    """Return whether the engine computes a number with a rounding that could move it across a position.

    DECIMALs are exact, a quotient of a whole number is on the right side of each position. What is computed of a quotient or of a
    DOUBLE may be on the wrong side, as 0.55 * 100 is, and // rounds a DECIMAL to a whole number first.
    """
    sides = [node.args.get("this"), node.args.get("expression")]
    inexact = any(
        number.denominator.bit_count() > 1 for number in map(_find_number, sides) if number is not None
    )
    match node:
        case exp.Mul():
            return node.find(exp.Div) is not None or (inexact and node.find(exp.Cast) is not None)
        case exp.Div():
            return inexact
        case exp.IntDiv():
            return not _is_whole(node)
        case exp.Add() | exp.Sub():
            return inexact and node.find(exp.Div, exp.Cast) is not None
        case _:
            return False


def _find_number(node: exp.Expr | None) -> Fraction | None:
    return read_number(strip_real(node))


def _is_whole(node: exp.Expr) -> bool:
    """Return whether an expression is made of whole numbers and columns by +, -, * and //."""
    return all(
        (str(part.this).isdigit() if type(part) is exp.Literal else type(part) in _WHOLE)
        for part in node.walk()
    )


def _intersect(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _join_members(values: set[Fraction]) -> Span:
    """Return a span of some positions; (1, 0), which is empty, for positions that are not next to each other."""
    wholes = sorted(int(value) for value in values if value.denominator == 1)
    if not wholes or wholes[-1] - wholes[0] > len(wholes) - 1:
        return 1, 0
    return wholes[0], wholes[-1]


def find_share(positions: Sequence[int], sizes: Sequence[int], period: int) -> Fraction:
    """Return the q for which a position is CEIL(q * n) of n rows, at least 1. Raises UnknownPositionError if there is none."""
    share = Fraction(positions[-1], sizes[-1])
    if not 0 <= share <= 1 or period % share.denominator:
        raise UnknownPositionError
    if any(at != max(1, math.ceil(share * n)) for at, n in zip(positions, sizes, strict=True)):
        raise UnknownPositionError
    return share


def list_sizes(period: int) -> list[int]:
    """List numbers of rows: two periods from 1 on, and two of large numbers, where no end of the rows matters.

    The last one is a multiple of the period.
    """
    far = _FAR * period
    return [*range(1, 4 * period + 3), *range(far - 2 * period + 1, far + 1)]


@dataclass(slots=True)
class WorkLimit:
    """The number of positions that may still be computed for a statement."""

    left: int = 12_000

    def spend(self, number: int) -> None:
        """Count positions. Raises UnknownPositionError if there are too many."""
        self.left -= number
        if self.left < 0:
            raise UnknownPositionError


def strip_real(node: exp.Expr | None) -> exp.Expr | None:
    """Return a node without parentheses, casts to real numbers and factors of 1."""
    while node is not None:
        if type(node) is exp.Paren or (type(node) is exp.Cast and node.args["to"].this in REALS):
            node = node.this
        elif type(node) is exp.Mul and read_number(node.this) == 1:
            node = node.expression
        elif type(node) is exp.Mul and read_number(node.expression) == 1:
            node = node.this
        else:
            return node
    return None
