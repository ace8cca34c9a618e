"""Queries that differ from a fixture in a few words."""

from __future__ import annotations

import re
from functools import cache
from random import Random

from tests.sql.fixture_files import accepted, fixtures

_WORD = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+(?:\.\d+)?|<>|<=|>=|!=|==|::|~~\*?|\S")


def mutant(seed: int) -> str:
    """An accepted fixture with one or two words left out, put in, swapped or replaced."""
    random = Random(seed)
    words = list(random.choice(_texts()))
    for _ in range(random.choice((1, 1, 1, 2))):
        _change(random, words)
    return " ".join(words)


def _change(random: Random, words: list[str]) -> None:
    place, other = random.randrange(len(words)), random.randrange(len(words))
    match random.randrange(6):
        case 0:
            words[place : place + 1] = []
        case 1:
            words.insert(place, random.choice(_vocabulary()))
        case 2:
            words[place] = random.choice(_vocabulary())
        case 3:
            words[place], words[other] = words[other], words[place]
        case 4:
            source = random.choice(_texts())
            start = random.randrange(len(source))
            words[place:place] = source[start : start + random.randint(1, 5)]
        case _:
            words.insert(place, words[place])
    if not words:
        words.append(";")


@cache
def _texts() -> list[list[str]]:
    return [_WORD.findall(re.sub(r"--[^\n]*|/\*.*?\*/", " ", fixture.query)) for fixture in accepted()]


@cache
def _vocabulary() -> list[str]:
    """Every word of every fixture, the refused ones' too."""
    return sorted({word for fixture in fixtures() for word in _WORD.findall(fixture.query)})
