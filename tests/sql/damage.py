"""Queries that differ from a fixture in characters and words: what a hand, a wire or a malice makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random

from hypothesis import strategies as st

from tests.sql.fixture_files import fixtures

_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+(?:\.\d+)?|<>|<=|>=|!=|::|\s+|.", re.DOTALL)
ODD = [
    *"'\"`\\/*-$?:@#~^&|%!{}[]();,.=<>+_0", "/*", "*/", "--", "\n", "\r", "\t", "\x0b", "\x1c", "\x85", "\u2028",
    "\0", "\x7f", "\ud800", "\udfff", "\u200b", "\ufeff", "\u202e", "é", "ß", "ı", "İ", "ſ", "𝒳", "٣", "²", "½", "“", "’",
    "$$", "$1", "$a$", "E'\\n'", "X'00'", "U&'\\0041'", "0x1F", "0b1", "1_0", "1.", ".5", "1e5", "1e999", "1e-999",
    "9" * 19, "9" * 400, "0." + "1" * 400, "1e" + "9" * 9, "NaN", "Infinity", "a" * 10_000, "'" + "x" * 10_000 + "'",
]  # fmt: skip
"""Characters and words that readers of SQL stumble over."""


def damaged() -> st.SearchStrategy[str]:
    """Fixtures, accepted and refused ones, with a few changes each."""
    return st.integers(0, 2**64).map(damage)


def damage(seed: int, queries: Sequence[str] = ()) -> str:
    """The damaged query of a seed: one of these, or of the fixtures'."""
    random = Random(seed)
    pieces = _PIECE.findall(random.choice(queries)) if queries else list(random.choice(_texts()))
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        _change(random, pieces)
    return "".join(pieces)


def _change(random: Random, pieces: list[str]) -> None:
    pieces = pieces or [""]
    place, other = random.randrange(len(pieces)), random.randrange(len(pieces))
    match random.randrange(10):
        case 0:
            del pieces[place]
        case 1:
            pieces.insert(place, f"{random.choice(_vocabulary())} ")
        case 2:
            pieces[place] = random.choice(_vocabulary())
        case 3:
            pieces[place], pieces[other] = pieces[other], pieces[place]
        case 4:
            source = random.choice(_texts())
            start = random.randrange(len(source))
            pieces[place:place] = source[start : start + random.randint(1, 8)]
        case 5 | 6:
            pieces.insert(place, random.choice(ODD))
        case 7:
            pieces[place] = _flipped(random, pieces[place])
        case 8:
            del pieces[place + 1 :]
        case _:
            end = place + random.randint(1, 6)
            pieces[place:end] = pieces[place:end] * random.choice((2, 3, 30))


def _flipped(random: Random, piece: str) -> str:
    """A piece with one bit of its UTF-8 changed; what is no text any more becomes halves of surrogate pairs."""
    octets = bytearray(piece.encode("utf-8", "surrogatepass"))
    if octets:
        octets[random.randrange(len(octets))] ^= 1 << random.randrange(8)
    return octets.decode("utf-8", "surrogateescape")


@cache
def _texts() -> list[list[str]]:
    return [_PIECE.findall(fixture.query) for fixture in fixtures()]


@cache
def _vocabulary() -> list[str]:
    return sorted({piece for text in _texts() for piece in text if not piece.isspace()})
