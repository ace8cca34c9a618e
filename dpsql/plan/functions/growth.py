"""Bound the text and the work of a call by the sizes of the texts that it reads.

A unit of work is about what DuckDB does in a nanosecond. Rules see the arguments, of which some are constants, and
bounds on their texts, which are 0 for values of other types.

Claim: on every value of the arguments' types that is within their sizes, the text of a call is within `bound_result_size`, and the
call takes work in proportion to at most `bound_call_work`.
Why: each function that can give a text has a rule of its own, which `tests/plan/functions/test_text_sizes.py` tries on texts that
grow most. What takes more than linear time says so, by the product of the sizes.
Source: The Unicode Standard 15, chapter 3 and UAX #15 on how letters grow; Russ Cox 2007, "Regular expression matching can be
simple and fast", on automata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsql.plan.expressions import Call, Expr, Literal, SizeRule, WorkRule
from dpsql.plan.interval import NO_TEXT, TextSize, make_constant_size
from dpsql.plan.types import Type, Value

# Bound the work of a regular expression of RE2 from its text.


_ANY = 12
"""The states of a letter out of all, or all but some: bytes of UTF-8 in ranges."""
_CLASS = 512
"""The states of a class of Unicode."""
_FEW = 256
_AMBIGUOUS = 8
"""With up to so many states, and so many that take several letters, the second automaton, of sets of states, is small."""
_STEPS = 4
"""The work of a byte in that automaton, in several passes over the text."""
_SLOWLY = 8
"""The work of a byte and a state, if sets of states are built or searched."""
_SEVERAL = frozenset({r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"})
_TOKEN = re.compile(
    r"(?P<count>\{(\d+)(?:,(\d*))?\})|(?P<unicode>\\[pP])|\\.|(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])|.",
    re.DOTALL,
)
_ATOM = r"(?:\\[dDsSwW]|\\[^\w\s]|\[\^?(?:\\[dDsSwW]|\\[^\w\s]|[^\]\[\\])+\]|[^\\\[\](){}*+?|^$])"
_LINEAR = re.compile(rf"(?:\^)?(?:{_ATOM}(?:\{{[1-9]\}}|\?)?)*{_ATOM}[+*]?", re.DOTALL)
_CONSUMING = re.compile(rf"(?:\^)?(?:{_ATOM}(?:\{{[1-9]\}}|\?)?)*{_ATOM}\+?", re.DOTALL)
_GROUP = re.compile(r"\([^()?\\][^()\\]*\)")
_ENDLESS = re.compile(r"[*+]|,\}")
"""The quantifiers without an upper limit."""
_ENDING = re.compile(rf"(?:\^)?{_ATOM}\+?\$", re.DOTALL)


@dataclass(frozen=True)
class RegexPattern:
    r"""A regular expression.

    Claim: a search takes at most `work` steps for each byte of the text; where `is_never_empty`, no match is empty; where
    `is_linear`, the search for the next match reads no further than a bounded number of letters beyond the end of the match that it
    finds.
    Why: RE2 runs the expression as an automaton, and visits at most all of its states for each byte; an expression of s steps that
    is repeated n times has n * s states. An alternative in which only the last letter may be repeated without end has matched at
    each letter that it repeats, so that all letters that were read belong to the match; without such letters a match has a bounded
    length. Syntax that this module does not parse counts as the worst case.
    Source: Russ Cox 2010, "Regular expression matching in the wild" (RE2).

    >>> RegexPattern(r"\s+").is_linear, RegexPattern("a*b|a").is_linear, RegexPattern(r"^\s+|\s+$").is_linear
    (True, False, True)
    >>> RegexPattern("a*").is_never_empty, RegexPattern("[^a-z]").is_never_empty
    (False, True)
    >>> RegexPattern("abc").work, RegexPattern("((a.{1,15}){1,15}x){2}q").work > 5_000
    (4, True)
    """

    text: str

    @cached_property
    def states(self) -> tuple[int, int]:
        """Return the states of the automaton with counts expanded, and how many of them take several letters."""
        open_groups, last = [(0, 0)], (0, 0)
        for found in _TOKEN.finditer(self.text):
            part = found[0]
            if part == "(":
                open_groups.append((2, 0))
                continue
            if part == ")" and len(open_groups) > 1:
                last = added = open_groups.pop()
            elif found["count"]:
                times = max(int(found[2]), int(found[3] or 0), 1)
                added = last[0] * (times - 1), last[1] * (times - 1)
                last = last[0] * times, last[1] * times
            else:
                last = added = _count_states(found)
            size, several = open_groups[-1]
            open_groups[-1] = size + added[0], several + added[1]
        return sum(size for size, _ in open_groups), sum(several for _, several in open_groups)

    @property
    def work(self) -> int:
        """Return the steps for each byte of a text."""
        size, several = self.states
        return _STEPS if size <= _FEW and several <= _AMBIGUOUS else _SLOWLY * size

    @cached_property
    def _alternatives(self) -> list[str]:
        """Return the alternatives of an expression without groups, except for one group around all of it."""
        text = self.text[1:-1] if _GROUP.fullmatch(self.text) else self.text
        return [] if "(" in text else re.split(r"(?<!\\)\|", text)

    @property
    def is_never_empty(self) -> bool:
        """Return whether every match has a letter, as far as is known."""
        return bool(self._alternatives) and all(
            _CONSUMING.fullmatch(part) or _ENDING.fullmatch(part) for part in self._alternatives
        )

    @property
    def is_linear(self) -> bool:
        """Return whether all matches are found in one pass over the text, as far as is known."""
        if not _ENDLESS.search(self.text):
            return True
        ends = [part for part in self._alternatives if _ENDING.fullmatch(part)]
        others = [part for part in self._alternatives if part not in ends]
        anchored = all(part.startswith("^") for part in others)
        return (
            bool(self._alternatives)
            and all(map(_LINEAR.fullmatch, others))
            and (not ends or (len(ends) == 1 and anchored))
        )


def _count_states(found: re.Match[str]) -> tuple[int, int]:
    """Return the states of one token that is no group and no count, and whether it takes several letters."""
    if found["unicode"] or (found["class"] and re.search(r"\\[pP]|\[:\^", found["class"])):
        return _CLASS, 1
    if found[0] == "." or found[0].startswith("[^") or not found[0].isascii():
        return _ANY, 1
    return 1, int(bool(found["class"]) or found[0] == "|" or found[0] in _SEVERAL)


# The text and the work of a call.


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
"""The most bytes of a value as text, by type."""
_QUICK = 64
"""So many bytes of a pattern are compared in the time of one step, where bytes are compared one after the other."""


def list_constants(expr: Call) -> tuple[Value, ...]:
    """Return the values of the arguments that must be constants, in the order of their positions."""
    literals = (expr.arguments[place] for place in sorted(expr.function.literals))
    return tuple(literal.value for literal in literals if isinstance(literal, Literal))


def compute_literal_size(value: Value) -> TextSize:
    """Return the size of a constant, which is 0 for a value of another type."""
    if isinstance(value, str):
        return make_constant_size(len(value.encode()))
    return make_constant_size(len(value)) if isinstance(value, bytes) else NO_TEXT


def bound_result_size(call: Call, sizes: Sequence[TextSize]) -> TextSize:
    """Bound the text that a call gives, from bounds on its arguments' texts. Raises LookupError for a text without a rule."""
    if call.type not in (Type.VARCHAR, Type.BLOB):
        return NO_TEXT
    if call.function.size is None:
        raise LookupError(f"{call.function.name} does not say how long its texts are")
    return call.function.size(call.arguments, sizes)


def bound_call_work(
    call: Call, sizes: Sequence[TextSize], result: TextSize, rules: Mapping[str, WorkRule]
) -> int:
    """Bound the work of one call, by the `rules` of an engine where it has one: else all its texts are read or written once."""
    rule = rules.get(call.function.name) or call.function.work
    if rule is not None:
        return rule(call.arguments, sizes)
    return sum(size.max_bytes for size in sizes) + result.max_bytes


def makes_text(call: Call) -> bool:
    """Return whether a call gives a text of its own, rather than one of its arguments."""
    return call.type in (Type.VARCHAR, Type.BLOB) and call.function.work is not bound_untouched_work


def bound_longest_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound one of the arguments' texts."""
    found = NO_TEXT
    for size in sizes:
        found |= size
    return found


def bound_concatenated_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound all arguments' texts one after the other."""
    return sum(sizes, NO_TEXT)


def bound_separated_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound texts with the first of them between the others."""
    separator, *parts = sizes
    return sum(parts, separator.multiply_by(len(parts)))


def bound_by_first_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text that is no longer than the first argument's."""
    return sizes[0]


def make_fixed_size_rule(size: int) -> SizeRule:
    """Bound a text that is short on every row."""
    return lambda _, __: make_constant_size(size)


def make_multiplied_size_rule(factor: Fraction) -> SizeRule:
    """Bound a text in which each letter has become at most so many times as long."""
    return lambda _, sizes: sizes[0].multiply_by(factor)


def bound_cast_text(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a value as a text; each byte of a blob may be written by four."""
    kind = arguments[0].type
    if kind is Type.VARCHAR:
        return sizes[0]
    return sizes[0].multiply_by(4) if kind is Type.BLOB else make_constant_size(_WRITTEN[kind])


def bound_repeated_text(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text that is repeated a constant number of times."""
    return sizes[0].multiply_by(max(0, _get_whole_number(arguments[1])))


def bound_padded_text(arguments: Sequence[Expr], _: Sequence[TextSize]) -> TextSize:
    """Bound a text of a constant number of letters."""
    return make_constant_size(LETTER * max(0, _get_whole_number(arguments[1])))


def make_part_size_rule(place: int) -> SizeRule:
    """Bound a text that is cut to a number of letters, the constant argument at `place`; a negative one cuts nothing here."""

    def bound_part(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
        count = _get_whole_number(arguments[place])
        return sizes[0].truncate_to(LETTER * count) if count >= 0 else sizes[0]

    return bound_part


def bound_replaced_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text in which each of some constant parts becomes another constant."""
    old, new = (sizes[place].max_bytes for place in (1, 2))
    if not old:
        return sizes[0].multiply_by(1 + new) + make_constant_size(new)
    return sizes[0].multiply_by(max(Fraction(1), Fraction(new, old)))


def bound_translated_text(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text in which letters become others, by those whose bytes grow most."""
    before, after = (_get_text(argument) for argument in arguments[1:3])
    ratios = (Fraction(len(new.encode()), len(old.encode())) for old, new in zip(before, after, strict=False))
    return sizes[0].multiply_by(max([Fraction(1), *ratios]))


def bound_overlaid_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a text in which another text replaces a part."""
    return sizes[0] + sizes[1]


def bound_formatted_text(_: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound a timestamp that is written by a format, where two bytes make a part of at most 40."""
    return make_constant_size(20 * sizes[1].max_bytes + 40)


def bound_regexp_replaced_text(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> TextSize:
    """Bound the result of REGEXP_REPLACE: for each match, the constant part of the replacement and the captured groups.

    Matches do not overlap, so that a group that is referred to adds no more than the whole text. Of all matches there is
    at most one for each byte, and one more if a match may be empty. A reference, which is two bytes of the new text, stands
    for what it adds to each match.
    """
    pattern, new = RegexPattern(_get_text(arguments[1])), _get_text(arguments[2])
    references = sum(new.count(f"\\{digit}") for digit in range(10))
    size, fixed = sizes[0], sizes[2].max_bytes
    if not _has_global_option(arguments):
        return size.multiply_by(1 + references) + make_constant_size(fixed)
    if pattern.is_never_empty:
        return size.multiply_by(max(1, fixed))
    return size.multiply_by(1 + references + fixed) + make_constant_size(fixed)


def bound_untouched_work(_: Sequence[Expr], __: Sequence[TextSize]) -> int:
    """Return the work of a function that returns an argument or does not read its letters."""
    return 0


def make_byte_work_rule(factor: int) -> WorkRule:
    """Return the rule of a function that takes constant work for each byte of its texts."""
    return lambda _, sizes: factor * sum(size.max_bytes for size in sizes)


def make_pair_work_rule(factor: Fraction | int = 1, *, each: int = 1, cut: int | None = None) -> WorkRule:
    """Return the rule of a function that compares each byte of one text, cut to so many letters, with each byte of another.

    In addition, it takes `each` steps for each byte of the text.
    """

    def bound_work(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
        first = sizes[0].max_bytes if cut is None else min(sizes[0].max_bytes, LETTER * cut)
        return int(factor * first * (1 + sizes[1].max_bytes)) + each * sizes[0].max_bytes

    return bound_work


def make_square_work_rule(each: int, share: int) -> WorkRule:
    """Return the rule of a function that compares the bytes of a text with each other."""
    return lambda _, sizes: each * sizes[0].max_bytes + sizes[0].max_bytes ** 2 // share


def bound_comparison_work(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of a comparison, which ends where the shorter text does."""
    return min(size.max_bytes for size in sizes)


def bound_membership_work(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of a comparison with each of several texts."""
    first, *others = sizes
    return sum(min(first.max_bytes, other.max_bytes) for other in others)


def bound_search_work(_: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for a text in another one."""
    return sizes[0].max_bytes * (1 + min(sizes[1].max_bytes // _QUICK, 32)) + sizes[1].max_bytes


def bound_replacement_work(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of searching a text and writing its replacement."""
    return bound_search_work(arguments, sizes[:2]) + bound_replaced_text(arguments, sizes).max_bytes


def bound_slow_replacement_work(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of the same, where the text that is looked for is compared letter by letter."""
    return (
        sizes[0].max_bytes * (1 + sizes[1].max_bytes) // 2
        + 4 * bound_replaced_text(arguments, sizes).max_bytes
    )


def bound_like_work(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of LIKE: its parts between % are looked for, one letter after the other where one is free."""
    return (
        sizes[0].max_bytes * (1 + sizes[1].max_bytes)
        if "_" in _get_text(arguments[1])
        else bound_search_work(arguments, sizes)
    )


def bound_match_work(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of looking for one match of a regular expression."""
    return sizes[0].max_bytes * RegexPattern(_get_text(arguments[1])).work


def bound_regexp_replace_work(arguments: Sequence[Expr], sizes: Sequence[TextSize]) -> int:
    """Return the work of finding all matches, each of which may read the rest of the text."""
    pattern = RegexPattern(_get_text(arguments[1]))
    once = sizes[0].max_bytes * pattern.work + bound_regexp_replaced_text(arguments, sizes).max_bytes
    if not _has_global_option(arguments) or pattern.is_linear:
        return once
    return once + sizes[0].max_bytes ** 2


def _has_global_option(arguments: Sequence[Expr]) -> bool:
    """Return whether the options of REGEXP_REPLACE ask for every match."""
    return len(arguments) > 3 and "g" in _get_text(arguments[3])


def _get_text(argument: Expr) -> str:
    return str(argument.value) if isinstance(argument, Literal) else ""


def _get_whole_number(argument: Expr) -> int:
    if not isinstance(argument, Literal) or not isinstance(argument.value, int):
        raise TypeError("the number is a constant")
    return argument.value


MULTIPLIES = frozenset(
    {bound_repeated_text, bound_replaced_text, bound_regexp_replaced_text, bound_translated_text}
)
"""The rules of functions that can make a text many times as long."""
