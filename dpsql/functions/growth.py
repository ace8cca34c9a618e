"""Bound the text and the work of a call by the sizes of the texts that it reads.

A unit of work is about what DuckDB does in a nanosecond. Rules see the arguments, of which some are constants, and
bounds on their texts, which are 0 for values of other types.

Claim: on every value of the arguments' types that is within their sizes, the text of a call is within `result_size`, and the
call takes work in proportion to at most `call_work`.
Why: each function that can give a text has a rule of its own, which `tests/functions/test_text_sizes.py` tries on texts that
grow most. What takes more than linear time says so, by the product of the sizes.
Source: The Unicode Standard 15, chapter 3 and UAX #15 on how letters grow; Russ Cox 2007, "Regular expression matching can be
simple and fast", on automata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from dpsql.functions.regex_size import Pattern
from dpsql.plan.expr import Call, Expr, Literal, SizeRule, WorkRule
from dpsql.plan.text_size import NO_TEXT, TextSize, constant_size
from dpsql.plan.types import Type, Value

LETTER = 4
"""The most bytes of a letter in UTF-8."""
_WRITTEN: Mapping[Type, int] = {
    Type.NULL: 0,
    Type.BOOLEAN: 5,
    Type.INTEGER: 20,
    Type.DOUBLE: 32,
    Type.DATE: 24,
    Type.TIME: 24,
    Type.TIMESTAMP: 40,
    Type.UUID: 36,
}
"""The most bytes of values of a type as texts."""
_QUICK = 64
"""So many bytes of a pattern are compared in the time of one step, where bytes are compared one after the other."""


def constants(expr: Call) -> tuple[Value, ...]:
    """Return the values of the arguments that must be constants, in the order of their positions."""
    literals = (expr.arguments[place] for place in sorted(expr.function.literals))
    return tuple(literal.value for literal in literals if isinstance(literal, Literal))


def literal_size(value: Value) -> TextSize:
    """Return the size of a constant, which is 0 for a value of another type."""
    if isinstance(value, str):
        return constant_size(len(value.encode()))
    return constant_size(len(value)) if isinstance(value, bytes) else NO_TEXT


def result_size(call: Call, sizes: Sequence[TextSize]) -> TextSize:
    """Bound the text that a call gives, from bounds on its arguments' texts. Raises LookupError for a text without a rule."""
    if call.type not in (Type.VARCHAR, Type.BLOB):
        return NO_TEXT
    if call.function.size is None:
        raise LookupError(f"{call.function.name} does not say how long its texts are")
    return call.function.size(call.arguments, sizes)


def call_work(call: Call, sizes: Sequence[TextSize], result: TextSize, rules: Mapping[str, WorkRule]) -> int:
    """Bound the work of one call, by the `rules` of an engine where it has one: else all its texts are read or written once."""
    rule = rules.get(call.function.name) or call.function.work
    if rule is not None:
        return rule(call.arguments, sizes)
    return sum(size.most for size in sizes) + result.most


def makes_text(call: Call) -> bool:
    """Return whether a call gives a text of its own, rather than one of its arguments."""
    return call.type in (Type.VARCHAR, Type.BLOB) and call.function.work is not untouched


def longest(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound one of the arguments' texts."""
    found = NO_TEXT
    for size in sizes:
        found |= size
    return found


def together(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound all arguments' texts one after the other."""
    return sum(sizes, NO_TEXT)


def separated(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound texts with the first of them between the others."""
    separator, *parts = sizes
    return sum(parts, separator.times(len(parts)))


def as_long(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text that is no longer than the first argument's."""
    return sizes[0]


def at_most(size: int) -> SizeRule:
    """Bound a text that is short on every row."""
    return lambda _, __: constant_size(size)


def multiplied(factor: Fraction) -> SizeRule:
    """Bound a text in which each letter has become at most so many times as long."""
    return lambda _, sizes: sizes[0].times(factor)


def written(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a value as a text; each byte of a blob may be written by four."""
    kind = arguments[0].type
    if kind is Type.VARCHAR:
        return sizes[0]
    return sizes[0].times(4) if kind is Type.BLOB else constant_size(_WRITTEN[kind])


def repeated(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text that is repeated a constant number of times."""
    return sizes[0].times(max(0, _whole(arguments[1])))


def padded(arguments: Sequence[Expr], _: Sequence[TextSize]) -> TextSize:
    """Bound a text of a constant number of letters."""
    return constant_size(LETTER * max(0, _whole(arguments[1])))


def part_of(place: int) -> SizeRule:
    """Bound a text that is cut to a number of letters, the constant argument at `place`; a negative one cuts nothing here."""

    def rule(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
        count = _whole(arguments[place])
        return sizes[0].cut(LETTER * count) if count >= 0 else sizes[0]

    return rule


def replaced(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text in which each of some constant parts becomes another constant."""
    old, new = (sizes[place].most for place in (1, 2))
    if not old:
        return sizes[0].times(1 + new) + constant_size(new)
    return sizes[0].times(max(Fraction(1), Fraction(new, old)))


def translated(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text in which letters become others, by those whose bytes grow most."""
    before, after = (_text(argument) for argument in arguments[1:3])
    ratios = (Fraction(len(new.encode()), len(old.encode())) for old, new in zip(before, after, strict=False))
    return sizes[0].times(max([Fraction(1), *ratios]))


def overlaid(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text of which a part is replaced by another text."""
    return sizes[0] + sizes[1]


def formatted(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a moment that is written by a format, in which two bytes stand for a part of at most 40."""
    return constant_size(20 * sizes[1].most + 40)


def rewritten(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound what REGEXP_REPLACE gives: for each match, the constant part of the new text, and groups that are parts of it.

    Matches do not overlap, so that a group that is referred to adds no more than the whole text. Of all matches there is
    at most one for each byte, and one more if a match may be empty. A reference, which is two bytes of the new text, stands
    for what it adds to each match.
    """
    pattern, new = Pattern(_text(arguments[1])), _text(arguments[2])
    references = sum(new.count(f"\\{digit}") for digit in range(10))
    size, fixed = sizes[0], sizes[2].most
    if not _everywhere(arguments):
        return size.times(1 + references) + constant_size(fixed)
    if pattern.consumes:
        return size.times(max(1, fixed))
    return size.times(1 + references + fixed) + constant_size(fixed)


def untouched(_: Sequence[Expr], __: Sequence[TextSize]) -> int:
    """Return the work of what gives one of its arguments, or looks at none of their letters."""
    return 0


def each_byte(factor: int) -> WorkRule:
    """Return the rule of what takes so much work for each byte of its texts."""
    return lambda _, sizes: factor * sum(size.most for size in sizes)


def each_pair(factor: Fraction | int = 1, *, each: int = 1, cut: int | None = None) -> WorkRule:
    """Return the rule of what compares each byte of a text, cut to so many letters, with each byte of another.

    In addition, it takes `each` steps for each byte of the text.
    """

    def rule(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
        first = sizes[0].most if cut is None else min(sizes[0].most, LETTER * cut)
        return int(factor * first * (1 + sizes[1].most)) + each * sizes[0].most

    return rule


def each_square(each: int, share: int) -> WorkRule:
    """Return the rule of what compares the bytes of a text with each other."""
    return lambda _, sizes: each * sizes[0].most + sizes[0].most ** 2 // share


def shorter(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of a comparison, which ends where the shorter text does."""
    return min(size.most for size in sizes)


def of_each(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of a comparison with each of several texts."""
    first, *others = sizes
    return sum(min(first.most, other.most) for other in others)


def sought(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for a text in another one."""
    return sizes[0].most * (1 + min(sizes[1].most // _QUICK, 32)) + sizes[1].most


def replacing(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for a text in another one and writing what it becomes."""
    return sought(arguments, sizes[:2]) + replaced(arguments, sizes).most


def replacing_slowly(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of the same, where the text that is looked for is compared letter by letter."""
    return sizes[0].most * (1 + sizes[1].most) // 2 + 4 * replaced(arguments, sizes).most


def liked(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of LIKE: its parts between % are looked for, one letter after the other where one is free."""
    return sizes[0].most * (1 + sizes[1].most) if "_" in _text(arguments[1]) else sought(arguments, sizes)


def matched(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for one match of a regular expression."""
    return sizes[0].most * Pattern(_text(arguments[1])).work


def matched_everywhere(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for all matches, each of which reads the rest of the text unless the pattern cannot."""
    pattern = Pattern(_text(arguments[1]))
    once = sizes[0].most * pattern.work + rewritten(arguments, sizes).most
    if not _everywhere(arguments) or pattern.linear:
        return once
    return once + sizes[0].most ** 2


def _everywhere(arguments: Sequence[Expr]) -> bool:
    """Return whether the options of REGEXP_REPLACE ask for every match."""
    return len(arguments) > 3 and "g" in _text(arguments[3])


def _text(argument: Expr) -> str:
    return str(argument.value) if isinstance(argument, Literal) else ""


def _whole(argument: Expr) -> int:
    if not isinstance(argument, Literal) or not isinstance(argument.value, int):
        raise TypeError("the number is a constant")
    return argument.value


MULTIPLIES = frozenset({repeated, replaced, rewritten, translated})
"""The rules by which a text can become many times as long."""
