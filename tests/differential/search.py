"""The search: statements by number, each compared in every way, and what is found made small."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from differential.extremes import LEAST_LOSS, failure
from differential.grammar import Statement, partition, statement
from differential.oracle import Find, Refusal, differs, inlined, partitioned, priced
from differential.shrink import smaller
from differential.world import World

_SHOWN = "COUNT(*) > 0"


def search(
    world: World,
    numbers: Iterable[int],
    *,
    most: int | None = None,
    draw: Callable[[random.Random], Statement] = statement,
) -> tuple[list[Find], Counter[str]]:
    """What is wrong with the statements of these numbers, made small; and how many were compared or refused, and why.

    It ends when so many as `most` were compared.
    """
    counts: Counter[str] = Counter()
    for number in numbers:
        try:
            found = tried(world, number, draw)
        except Refusal as refusal:
            counts[str(refusal)] += 1
            continue
        counts["compared"] += 1
        if found is not None:
            return small(world, found), counts
        if counts["compared"] == most:
            break
    return None, counts


def tried(world: World, number: int, draw: Callable[[random.Random], Statement] = statement) -> Find | None:
    """What is wrong with the statement of a number: beside DuckDB, and for some beside itself. Refusal where it has no answer."""
    drawn = draw(random.Random(number))
    found = differs(world, drawn.sql, ordered=drawn.ordered)
    for also in (
        (lambda: inlined(world, drawn)) if drawn.ctes else None,
        (lambda: priced(world, drawn.sql)) if number % 10 == 0 else None,
        (lambda: partitioned(world, *partition(random.Random(number)))) if number % 10 == 5 else None,
    ):
        if found is None and also is not None:
            try:
                found = also()
            except Refusal:
                continue
    return found


def small(world: World, found: Find) -> Find:
    """A find with a small statement; those that need several statements stay as they are."""
    if found.kind in ("partition", "inlined", "price"):
        return found

    def again(sql: str, *, mild: bool) -> Find | None:
        if (_SHOWN in found.sql) > (_SHOWN in sql):
            return None  # groups of nobody would be a difference of another kind
        try:
            seen = differs(world, sql, mild=mild)
        except Refusal:
            return None
        return seen if seen is not None and seen.kind == found.kind else None

    mild = again(found.sql, mild=True) is not None
    return again(smaller(found.sql, lambda sql: again(sql, mild=mild) is not None), mild=mild) or found


def small_failure(worlds: tuple[World, ...], found: Find, epsilon: Fraction | None) -> Find:
    """A failure with a small statement."""

    def again(sql: str) -> Find | None:
        seen = failure(worlds, sql, epsilon)
        return seen if seen is not None and seen.kind == found.kind else None

    return again(smaller(found.sql, lambda sql: again(sql) is not None)) or found


def loss_of(place: int) -> Fraction | None:
    """The ε of the extreme statement at a place: the connection's own, or the least, at which noise is enormous."""
    return LEAST_LOSS if place % 2 else None
