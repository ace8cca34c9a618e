"""Sentences of grammars/query.lark, drawn from the grammar itself.

The rules are Lark's own, compiled from the file. Each choice is drawn from those that can still end
within the depth that is left, more often than not from the shortest. Words are drawn from the terminals'
patterns, but names and constants from those of the clinic in `sql.study`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from lark import Lark
from lark.grammar import NonTerminal, Rule, Symbol

GRAMMAR = Path(__file__).parents[2] / "grammars" / "query.lark"
MAX_DEPTH = 90
_FREE = 5
"""Down to this depth of rules all choices are alike, so that clauses are drawn as often as not."""

_COLUMNS = ["plan", "region", "age", "cost", "day", "seen", "note", "weight", "urgent", "patient_id"]
_QUALIFIERS = ["visits", "v", "regions", "staff"]
_WORDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("table", "NAME"): ["visits", "visits", "visits", "staff", "regions", "plans", "v"],
    ("table", "WEAK_NAME"): ["week"],
    ("table", "QUOTED"): ['"Visits"', '"plans"'],
    ("using", "NAME"): ["plan", "region"],
    ("using", "WEAK_NAME"): ["day"],
    ("using", "QUOTED"): ['"PLAN"'],
    ("column", "NAME"): [*_COLUMNS, *_COLUMNS, *_COLUMNS, *_QUALIFIERS, "n"],
    ("column", "WEAK_NAME"): ["day", "week"],
    ("column", "QUOTED"): ['"Ward No"', '"AGE"'],
    ("column", "FIELD"): _COLUMNS,
    ("item", "NAME"): ["n", "total", "plan"],
    ("item", "WEAK_NAME"): ["month"],
    ("item", "QUOTED"): ['"a ""name"""'],
    ("label", "LABEL"): ["n", "age", "select_", "year"],
    ("label", "QUOTED"): ['"how many"'],
    ("label", "STRING"): ["'label'"],
    ("table", "STRING"): ["'v'"],
    ("amount", "NUMBER"): ["0", "1", "10", "1.5"],
    ("", "NUMBER"): ["0", "1", "2", "3", "30", "100", "1_000", "0.5", ".5", "2.", "1e2", "99999999999999999999"],
    ("", "STRING"): ["'A'", "'B'", "'Fever'", "''", "'it''s'", "'%e%'", "'2026-02-01'", "'2026-02-01 12:30:00'"],
    ("", "PARAMETER"): ["?"],
}


@cache
def grammar() -> Lark:
    """The parser of the accepted language."""
    return Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr")


def in_grammar(text: str) -> bool:
    """Whether a text is a sentence of the grammar."""
    from lark.exceptions import UnexpectedInput

    try:
        grammar().parse(text)
    except UnexpectedInput:
        return False
    return True


@st.composite
def sentences(draw: st.DrawFn) -> str:
    """Sentences of the grammar, as one line."""
    return " ".join(_derive(draw, NonTerminal("start"), MAX_DEPTH, ""))


def _derive(draw: st.DrawFn, symbol: Symbol, depth: int, within: str) -> Iterator[str]:
    """The words of a derivation of `symbol`; `within` is the rule that names and constants stand in."""
    if not isinstance(symbol, NonTerminal):
        yield draw(_word(symbol.name, within))
        return
    name = symbol.name.partition("{")[0]
    known = any(rule == name for rule, _ in _WORDS)
    rules = [rule for rule in _rules()[symbol.name] if _height(rule) < depth]
    shortest = [rule for rule in rules if _height(rule) == min(map(_height, rules))]
    free = MAX_DEPTH - depth < _FREE
    chosen = rules if free or draw(st.integers(0, 9)) < 3 else shortest
    rule = chosen[0] if len(chosen) == 1 else draw(st.sampled_from(chosen))
    for part in rule.expansion:
        yield from _derive(draw, part, depth - 1, name if known else within)


@cache
def _rules() -> dict[str, list[Rule]]:
    """The grammar's rules by what they derive."""
    rules: dict[str, list[Rule]] = {}
    for rule in grammar().rules:
        rules.setdefault(rule.origin.name, []).append(rule)
    return rules


@cache
def _heights() -> dict[str, int]:
    """The least depth of a derivation of each rule's name."""
    heights: dict[str, int] = {}
    while len(heights) < len(_rules()):
        for name, rules in _rules().items():
            possible = [_height_of(rule, heights) for rule in rules]
            found = [height for height in possible if height is not None]
            if found:
                heights[name] = min(found)
    return heights


def _height(rule: Rule) -> int:
    height = _height_of(rule, _heights())
    if height is None:
        raise ValueError(f"{rule} never ends")
    return height


def _height_of(rule: Rule, heights: Mapping[str, int]) -> int | None:
    parts = [heights.get(part.name) if isinstance(part, NonTerminal) else 0 for part in rule.expansion]
    known = [part for part in parts if part is not None]
    return None if len(known) < len(parts) else 1 + max(known, default=0)


@cache
def _word(terminal: str, within: str) -> st.SearchStrategy[str]:
    """What a terminal may be written as."""
    for rule in (within, ""):
        if (rule, terminal) in _WORDS:
            return st.sampled_from(_WORDS[rule, terminal])
    (pattern,) = (found.pattern for found in grammar().terminals if found.name == terminal)
    if pattern.type == "str":
        return st.just(pattern.value)
    flags = re.ASCII | (re.IGNORECASE if "i" in pattern.flags else 0) | (re.VERBOSE if "x" in pattern.flags else 0)
    # What must follow is the grammar's business here; spaces within a word are single ones.
    text = re.sub(r"\(\?=.*\)$|\\b", "", pattern.value.replace(r"\s+", "[ ]").replace(r"\s*", ""), flags=re.DOTALL)
    return st.from_regex(re.compile(text, flags), fullmatch=True)
