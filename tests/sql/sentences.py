"""Sentences of grammars/query.lark, drawn from the grammar itself.

The rules are Lark's own, compiled from the file. A sentence gets a number of words to spend, and each
choice is drawn from the expansions that can be paid, more often than not from the cheapest. Words are
drawn from the terminals' patterns, but names and constants are those of the clinic in `tests.sql.study`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.grammar import NonTerminal, Rule, Symbol

GRAMMAR = Path(__file__).parents[2] / "grammars" / "query.lark"
SHORTEST, LONGEST = 12, 50
"""Words to spend on a sentence."""
_FREE = frozenset({"select", "from", "table", "released_operand", "aggregate", "literal", "operand"})
"""Rules whose expansions are all drawn alike, so that clauses and calls are there as often as not."""

_COLUMNS = ["age", "age", "cost", "region", "urgent", "plan", "day", "seen", "note", "weight", "patient_id"]
_WORDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("table", "NAME"): [*["visits"] * 8, "staff", "regions"],
    ("table", "WEAK_NAME"): ["visits"],
    ("table", "QUOTED"): ['"Visits"', '"VISITS"', '"visits"', '"plans"'],
    ("", "NAME"): ["v", "plan", "n"],
    ("", "WEAK_NAME"): ["month"],
    ("", "QUOTED"): ['"plan"', '"Ward No"'],
    ("common", "NAME"): ["recent", "v"],
    ("names", "NAME"): ["n", "plan", "patient_id"],
    ("derived", "NAME"): ["v", "t"],
    ("derived", "STRING"): ["'t'"],
    ("join", "NAME"): ["regions", "plans", "r"],
    ("join", "WEAK_NAME"): ["regions", "plans"],
    ("join", "QUOTED"): ['"regions"'],
    ("join", "STRING"): ["'r'"],
    ("on", "NAME"): ["region", "id", "age"],
    ("on", "WEAK_NAME"): ["region", "id"],
    ("on", "QUOTED"): ['"id"'],
    ("using", "NAME"): ["plan", "region"],
    ("using", "WEAK_NAME"): ["day"],
    ("using", "QUOTED"): ['"PLAN"'],
    ("column", "NAME"): [*_COLUMNS, *_COLUMNS, "n", "visits"],
    ("column", "WEAK_NAME"): ["day", "cost", "age"],
    ("column", "QUOTED"): ['"Ward No"', '"AGE"', '"plan"'],
    ("", "FIELD"): _COLUMNS,
    ("item", "NAME"): ["n", "total", "plan"],
    ("item", "WEAK_NAME"): ["month"],
    ("item", "QUOTED"): ['"a ""name"""'],
    ("label", "LABEL"): ["n", "age", "select_", "year"],
    ("label", "QUOTED"): ['"how many"'],
    ("label", "STRING"): ["'label'"],
    ("table", "STRING"): ["'v'"],
    ("amount", "NUMBER"): ["0", "1", "10", "1.5"],
    ("", "NUMBER"): ["0", "1", "2", "3", "30", "100", "1_000", "0.5", ".5", "2.", "1e2", "9" * 20],
    ("", "STRING"): ["'A'", "'Fever'", "''", "'it''s'", "'%e%'", "'2026-02-01'", "'2026-02-01 12:30:00'"],
    ("", "PARAMETER"): ["?"],
}
_FAVOURED = {"released_operand": "aggregate", "comparison": "compared"}
"""What a rule's expansion holds more often than not, so that some sentences have the right types."""
_KEEPS = frozenset({("join", "table"), ("on", "column")})
"""Rules within which another rule's names stay those of the outer one."""


@cache
def grammar() -> Lark:
    """The parser of the accepted language."""
    return Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr")


def in_grammar(text: str) -> bool:
    """Whether a text is a sentence of the grammar."""
    try:
        grammar().parse(text)
    except UnexpectedInput:
        return False
    return True


def sentences() -> st.SearchStrategy[str]:
    """Sentences of the grammar, each in one line."""
    return st.integers(0, 2**64).map(sentence)


def sentence(seed: int) -> str:
    """The sentence of a seed."""
    random = Random(seed)
    start = NonTerminal("start")
    while True:
        text = " ".join(_derived(random, start, random.randint(SHORTEST, LONGEST), ""))
        # After a star EXCEPT is no set operation, but says what the star leaves out.
        if not re.search(r"[*] EXCEPT\b", text, re.IGNORECASE):
            return text


def _derived(random: Random, symbol: Symbol, words: int, within: str) -> Iterator[str]:
    """A derivation of `symbol` with about `words` words; `within` is the rule that names stand in."""
    if not isinstance(symbol, NonTerminal):
        yield random.choice(_spellings(symbol.name, within))
        return
    name = symbol.name.partition("{")[0]
    affordable = [rule for rule in _rules()[symbol.name] if _price(rule) <= words]
    cheapest = [rule for rule in affordable if _price(rule) == _cost(symbol)]
    favoured = [rule for rule in affordable if _FAVOURED.get(name, "") in _names(rule)]
    free = name in _FREE or random.random() < 0.35
    choices = (
        favoured if favoured and random.random() < 0.7 else affordable if free and affordable else cheapest
    )
    rule = random.choice(choices)
    slack = max(0, words - _price(rule))
    known = any(rule == name for rule, _ in _WORDS) and (within, name) not in _KEEPS
    inner = name if known else within
    growing = [index for index, part in enumerate(rule.expansion) if isinstance(part, NonTerminal)]
    for index, part in enumerate(rule.expansion):
        share = 0 if index not in growing else slack if index == growing[-1] else random.randint(0, slack)
        slack -= share
        yield from _derived(random, part, _cost(part) + share, inner)


@cache
def _rules() -> dict[str, list[Rule]]:
    """The grammar's rules by what they derive."""
    rules: dict[str, list[Rule]] = {}
    for rule in grammar().rules:
        rules.setdefault(rule.origin.name, []).append(rule)
    return rules


@cache
def _costs() -> dict[str, int]:
    """The fewest words of each rule's name."""
    costs: dict[str, int] = {}
    changed = True
    while changed:
        changed = False
        for name, rules in _rules().items():
            parts = [[_known(part, costs) for part in rule.expansion] for rule in rules]
            found = [
                sum(known)
                for priced in parts
                if len(known := [c for c in priced if c is not None]) == len(priced)
            ]
            if found and min(found) < costs.get(name, 10**9):
                costs[name] = min(found)
                changed = True
    return costs


def _names(rule: Rule) -> set[str]:
    return {part.name.partition("{")[0] for part in rule.expansion}


def _known(part: Symbol, costs: Mapping[str, int]) -> int | None:
    return costs.get(part.name) if isinstance(part, NonTerminal) else 1


def _cost(symbol: Symbol) -> int:
    return _costs()[symbol.name] if isinstance(symbol, NonTerminal) else 1


def _price(rule: Rule) -> int:
    return sum(map(_cost, rule.expansion))


@cache
def _spellings(terminal: str, within: str) -> Sequence[str]:
    """Ways to write a terminal: those of the clinic, or some that its pattern allows."""
    for rule in (within, ""):
        if (rule, terminal) in _WORDS:
            return _WORDS[rule, terminal]
    (pattern,) = (found.pattern for found in grammar().terminals if found.name == terminal)
    if pattern.type == "str":
        return [pattern.value]
    parsed = re._parser.parse(pattern.value, re.VERBOSE if "x" in pattern.flags else 0)
    random = Random(terminal)
    texts = {"".join(_matching(random, parsed)) for _ in range(100)}
    return sorted({text.upper() for text in texts} | {text.title() for text in texts} | texts)


def _matching(random: Random, parsed: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """A text that a parsed pattern matches; what it looks ahead for is the grammar's business."""
    for kind, value in parsed:
        match str(kind):
            case "LITERAL":
                yield chr(value)
            case "IN":
                yield " " if "SPACE" in str(value) else random.choice("123456789")
            case "BRANCH":
                yield from _matching(random, random.choice(value[1]))
            case "SUBPATTERN":
                yield from _matching(random, value[3])
            case "MAX_REPEAT":
                least, most, part = value
                for _ in range(random.randint(least, min(most, least + 1))):
                    yield from _matching(random, part)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                pass
            case other:
                raise ValueError(f"no rule for {other} in a terminal")
