"""Bounds, lists of values and NOT NULL that a schema's CHECK constraints state for single columns.

Claim: each row that satisfies the constraints has a value of each column that is in the bounds and the list found here,
or NULL, unless NULL is said not to occur. No text makes the reading fail.
Why: a constraint is read as a conjunction; a part that is not one of the forms below is ignored, which says less. A
comparison with NULL is not false, so a row satisfies it; therefore a list that holds NULL says nothing.
Source: DuckDB's documentation, "Constraints" (a row for which the condition is false is refused).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from pydantic_core import PydanticCustomError

from dpsql.policy.domain import Bound, ColumnType, Value, parse_bounds, parse_number, parse_values
from dpsql.policy.names import normalize_name

LONGEST = 10_000
"""The most characters of a constraint that is read; longer ones are ignored."""
DEEPEST = 30
"""The most nested parentheses of a constraint that is read; deeper ones are ignored."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*") | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\b)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*) | (?P<sign><=|>=|<>|!=|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset({"and", "or", "not", "is", "null", "in", "between", "cast", "as"})
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}

Constant = Fraction | str
Token = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ColumnConstraint:
    """The constraints of a column. A bound is a constant, and whether the bound itself is excluded."""

    low: tuple[Constant, bool] | None = None
    high: tuple[Constant, bool] | None = None
    values: tuple[Constant, ...] | None = None
    not_null: bool = False

    def to_bounds(self, kind: ColumnType) -> tuple[Bound, Bound] | None:
        """Return the bounds as a policy may state them; None if an end is missing or does not fit the type.

        >>> parse_constraints(["((n > 0) AND (n <= 9.5))"])["n"].to_bounds("integer")
        (Fraction(1, 1), Fraction(9, 1))
        """
        if self.low is None or self.high is None:
            return None
        (low, above), (high, below) = self.low, self.high
        numbers = isinstance(low, Fraction), isinstance(high, Fraction)
        if numbers != (kind in ("integer", "double"),) * 2:
            return None
        if kind == "integer" and isinstance(low, Fraction) and isinstance(high, Fraction):
            low = Fraction(math.floor(low) + 1 if above else math.ceil(low))
            high = Fraction(math.ceil(high) - 1 if below else math.floor(high))
        try:
            return parse_bounds([low, high], kind)
        except PydanticCustomError:
            return None

    def to_values(self, kind: ColumnType) -> tuple[Value, ...] | None:
        """Return the values as a policy may list them; None if there is no list, or if it does not fit the type.

        Not of real numbers: a constant is compared with them after it is rounded to their type.
        """
        texts = kind in ("varchar", "date", "timestamp")
        given = self.values or ()
        if kind in ("double", "boolean") or not all(isinstance(value, str) is texts for value in given):
            return None
        try:
            return parse_values(list(given), kind)
        except PydanticCustomError:
            return None


class _FormError(Exception):
    """A form that is not read."""


def parse_constraints(constraints: Iterable[str]) -> Mapping[str, ColumnConstraint]:
    """Return what CHECK constraints say of columns, by their folded names; ignore unknown forms.

    >>> parse_constraints(["(sex IN ('f', 'm'))", "((age >= 0) AND (age IS NOT NULL))", "(length(sex) < 3)"])["sex"].values
    ('f', 'm')
    """
    found: dict[str, ColumnConstraint] = {}
    for text in constraints:
        if len(text) > LONGEST:
            continue
        try:
            parts = list(_iterate_conjuncts(_split_tokens(text), 0))
        except _FormError:
            continue
        for part in parts:
            said = _parse_conjunct(part)
            if said is not None:
                name, one = said
                found[name] = _merge_constraints(found.get(name, ColumnConstraint()), one)
    return found


def _split_tokens(text: str) -> list[Token]:
    """Return the tokens of a constraint: their kind, and their text."""
    tokens = []
    for match in _TOKEN.finditer(text.rstrip()):
        kind = str(match.lastgroup)
        token = match[kind]
        if kind == "word" and token.lower() in _WORDS:
            kind, token = "sign", token.lower()
        tokens.append((kind, token))
    return tokens


def _iterate_conjuncts(tokens: list[Token], depth: int) -> Iterator[list[Token]]:
    """Yield the parts of a conjunction, none within parentheses. AND binds tighter than OR, and looser than NOT."""
    tokens = _strip_parentheses(tokens)
    if depth > DEEPEST:
        raise _FormError
    parts = _split_at_word(tokens, "and")
    if len(parts) == 1 or len(_split_at_word(tokens, "or")) > 1:
        yield tokens
        return
    for part in parts:
        yield from _iterate_conjuncts(part, depth + 1)


def _strip_parentheses(tokens: list[Token]) -> list[Token]:
    """Return the tokens within the parentheses around them all."""
    while (
        len(tokens) > 1
        and tokens[0] == ("sign", "(")
        and _locate_closing_parenthesis(tokens, 0) == len(tokens) - 1
    ):
        tokens = tokens[1:-1]
    return tokens


def _locate_closing_parenthesis(tokens: list[Token], start: int) -> int:
    """Return the place of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(tokens)):
        depth += (tokens[place] == ("sign", "(")) - (tokens[place] == ("sign", ")"))
        if depth == 0:
            return place
    raise _FormError


def _split_at_word(tokens: list[Token], word: str) -> list[list[Token]]:
    """Split at a word outside of parentheses, except at the AND of a BETWEEN."""
    parts: list[list[Token]] = [[]]
    depth, ranges = 0, 0
    for token in tokens:
        depth += (token == ("sign", "(")) - (token == ("sign", ")"))
        if depth == 0 and token == ("sign", "between"):
            ranges += 1
        if depth == 0 and token == ("sign", word) and not (word == "and" and ranges):
            parts.append([])
            continue
        if depth == 0 and token == ("sign", "and"):
            ranges = max(0, ranges - 1)
        parts[-1].append(token)
    return parts


def _parse_conjunct(tokens: list[Token]) -> tuple[str, ColumnConstraint] | None:
    """Return the column of a condition and its constraint; None for an unknown form."""
    try:
        if len(_split_at_word(tokens, "or")) > 1:
            return _parse_alternatives(_split_at_word(tokens, "or"))
        return _parse_condition(tokens)
    except _FormError:
        return None


def _parse_alternatives(parts: list[list[Token]]) -> tuple[str, ColumnConstraint]:
    """Return a list of values that is written with OR; NULL among them is ignored."""
    found = [
        _parse_condition(_strip_parentheses(part)) for part in parts if not _is_null(_strip_parentheses(part))
    ]
    names = {name for name, _ in found} | {
        _parse_column(_strip_parentheses(part)[:-2]) for part in parts if _is_null(_strip_parentheses(part))
    }
    values: list[Constant] = []
    for _, one in found:
        if one.values is None:
            raise _FormError
        values += one.values
    if len(names) != 1 or not found:
        raise _FormError
    return names.pop(), ColumnConstraint(values=tuple(dict.fromkeys(values)))


def _is_null(tokens: list[Token]) -> bool:
    return [token for _, token in tokens[-2:]] == ["is", "null"]


def _parse_condition(tokens: list[Token]) -> tuple[str, ColumnConstraint]:
    """Return a condition on one column."""
    signs = [token if kind == "sign" else "" for kind, token in tokens]
    if signs[:1] == ["not"]:
        inner = _strip_parentheses(tokens[1:])
        if not _is_null(inner):
            raise _FormError
        return _parse_column(inner[:-2]), ColumnConstraint(not_null=True)
    if signs[-3:] == ["is", "not", "null"]:
        return _parse_column(tokens[:-3]), ColumnConstraint(not_null=True)
    if "between" in signs:
        at = signs.index("between")
        low, high = _require_pair(_split_at_word(tokens[at + 1 :], "and"))
        return _parse_column(tokens[:at]), ColumnConstraint(
            (_parse_constant(low), False), (_parse_constant(high), False)
        )
    if "in" in signs:
        at = signs.index("in")
        items = _split_list(tokens[at + 1 :])
        return _parse_column(tokens[:at]), ColumnConstraint(
            values=tuple(dict.fromkeys(map(_parse_constant, items)))
        )
    return _parse_comparison(tokens, signs)


def _parse_comparison(tokens: list[Token], signs: list[str]) -> tuple[str, ColumnConstraint]:
    """Return a comparison of a column with a constant, on either side."""
    place = next((place for place, sign in enumerate(signs) if sign in _REVERSED), None)
    if place is None:
        raise _FormError
    left, right, sign = tokens[:place], tokens[place + 1 :], signs[place]
    try:
        name, value = _parse_column(left), _parse_constant(right)
    except _FormError:
        name, value, sign = _parse_column(right), _parse_constant(left), _REVERSED[sign]
    if sign == "=":
        return name, ColumnConstraint(values=(value,))
    if sign.startswith(">"):
        return name, ColumnConstraint(low=(value, sign == ">"))
    return name, ColumnConstraint(high=(value, sign == "<"))


def _require_pair(parts: list[list[Token]]) -> tuple[list[Token], list[Token]]:
    if len(parts) != 2:
        raise _FormError
    return parts[0], parts[1]


def _split_list(tokens: list[Token]) -> list[list[Token]]:
    if tokens[:1] != [("sign", "(")] or _locate_closing_parenthesis(tokens, 0) != len(tokens) - 1:
        raise _FormError
    return _split_at_word(tokens[1:-1], ",")


def _parse_column(tokens: list[Token]) -> str:
    """Return the folded name of a column, which the name of its table may precede."""
    tokens = _strip_parentheses(tokens)
    kinds = [kind for kind, _ in tokens]
    if len(tokens) == 3 and tokens[1] == ("sign", "."):
        tokens, kinds = tokens[2:], kinds[2:]
    if kinds == ["quoted"]:
        return normalize_name(tokens[0][1][1:-1].replace('""', '"'))
    if kinds != ["word"]:
        raise _FormError
    return normalize_name(tokens[0][1])


def _parse_constant(tokens: list[Token]) -> Constant:
    """Return a number, or a text, which may be cast to a date or a timestamp."""
    tokens = _strip_parentheses(tokens)
    words = [token.lower() for _, token in tokens]
    if words[:2] == ["cast", "("] and words[-3:-2] == ["as"] and words[-2] in ("date", "timestamp"):
        tokens = tokens[2:-3]
    negative = tokens[:1] == [("sign", "-")]
    if [kind for kind, _ in tokens[negative:]] == ["number"]:
        number = _parse_number(tokens[negative][1])
        return -number if negative else number
    if [kind for kind, _ in tokens] == ["text"]:
        return tokens[0][1][1:-1].replace("''", "'")
    raise _FormError


def _parse_number(text: str) -> Fraction:
    try:
        return parse_number(text)
    except PydanticCustomError:
        raise _FormError from None


def _merge_constraints(one: ColumnConstraint, other: ColumnConstraint) -> ColumnConstraint:
    """Return the conjunction of two constraints."""
    values = one.values if other.values is None else other.values
    if one.values is not None and other.values is not None:
        values = tuple(value for value in one.values if value in other.values)
    return ColumnConstraint(
        _tighten_bound(one.low, other.low, up=True),
        _tighten_bound(one.high, other.high, up=False),
        values,
        one.not_null or other.not_null,
    )


def _tighten_bound(
    one: tuple[Constant, bool] | None, other: tuple[Constant, bool] | None, *, up: bool
) -> tuple[Constant, bool] | None:
    """Return the tighter of two bounds; of texts, which may be days in several spellings, the first."""
    if one is None or other is None:
        return other if one is None else one
    (ours, excluded), (theirs, also_excluded) = one, other
    if not isinstance(ours, Fraction) or not isinstance(theirs, Fraction):
        return one
    if ours == theirs:
        return ours, excluded or also_excluded
    return one if (ours > theirs) is up else other
