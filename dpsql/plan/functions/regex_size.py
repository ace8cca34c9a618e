r"""Bound the work of a regular expression of RE2 from its text.

Claim: a search takes at most `work` steps for each byte of the text; where `is_never_empty`, no match is empty; where `is_linear`, the
search for the next match reads no further than a bounded number of letters beyond the end of the match that it finds.
Why: RE2 runs the expression as an automaton, and visits at most all of its states for each byte; an expression of s
steps that is repeated n times has n * s states. An alternative in which only the last letter may be repeated without end
has matched at each letter that it repeats, so that all letters that were read belong to the match; without such letters a match
has a bounded length. Syntax that this module does not parse counts as the worst case.
Source: Russ Cox 2010, "Regular expression matching in the wild" (RE2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

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
        """The states of the automaton with counts expanded, and how many of them take several letters."""
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
        """The steps for each byte of a text."""
        size, several = self.states
        return _STEPS if size <= _FEW and several <= _AMBIGUOUS else _SLOWLY * size

    @cached_property
    def _alternatives(self) -> list[str]:
        """The alternatives of an expression without groups, except for one group around all of it."""
        text = self.text[1:-1] if _GROUP.fullmatch(self.text) else self.text
        return [] if "(" in text else re.split(r"(?<!\\)\|", text)

    @property
    def is_never_empty(self) -> bool:
        """Whether every match has a letter, as far as is known."""
        return bool(self._alternatives) and all(
            _CONSUMING.fullmatch(part) or _ENDING.fullmatch(part) for part in self._alternatives
        )

    @property
    def is_linear(self) -> bool:
        """Whether all matches are found in one pass over the text, as far as is known."""
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
