"""The tables: a line for each setting, and in total, or for each statement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.accuracy.table import aligned
from benchmarks.coverage.asking import Asked, Setting
from benchmarks.coverage.cells import Cell, Tally

_NUMBERS = (
    "cells",
    "held",
    "far off",
    "missing",
    "no interval",
    "error",
    "error shown",
    "half-width",
    "refused",
)
ALL = "all"


def lines(asked: Sequence[Asked]) -> Iterator[str]:
    """A line for each setting, then for each data set and ε, and for all together."""
    rows = [
        *_rows(asked, lambda of: (of.data, of.epsilon, of.accountant, of.keys)),
        *_rows(asked, lambda of: (of.data, of.epsilon, ALL, ALL)),
        *_rows(asked, lambda of: (of.data, ALL, ALL, ALL)),
        *_rows(asked, lambda of: (ALL, of.epsilon, of.accountant, ALL)),
        *_rows(asked, lambda _: (ALL, ALL, ALL, ALL)),
    ]
    yield from aligned(["data", "ε", "accountant", "keys", *_NUMBERS], rows)


def statements(asked: Sequence[Asked]) -> Iterator[str]:
    """A line for each statement in each setting."""
    rows = [
        [one.title, *_setting(one.setting), *_numbers([one])]
        for one in sorted(asked, key=lambda one: (one.setting.data, one.title))
    ]
    yield from aligned(["statement", "data", "ε", "accountant", "keys", *_NUMBERS], rows)


def kinds(asked: Sequence[Asked]) -> Iterator[str]:
    """Yield a line for each kind of number at each ε under each accountant."""
    cells = [(cell, one.setting) for one in asked for cell in one.cells]
    rows = []
    for kind, epsilon, accountant in sorted({(cell.kind, of.epsilon, of.accountant) for cell, of in cells}):
        found = [c for c, of in cells if (c.kind, of.epsilon, of.accountant) == (kind, epsilon, accountant)]
        rows.append([kind, epsilon, accountant, *_tallied(found)])
    yield from aligned(["kind", "ε", "accountant", *_NUMBERS[:-1]], rows)


def refusals(asked: Sequence[Asked]) -> Iterator[str]:
    """Which statements are refused, and why."""
    reasons = dict.fromkeys((one.setting.data, one.title, one.refused) for one in asked if one.refused)
    if reasons:
        yield ""
        yield from aligned(["data", "statement", "why"], [[*reason] for reason in reasons])


def data(asked: Iterable[Asked]) -> Iterator[dict[str, Any]]:
    """The same by statement, for machines; what is not a number is None."""
    for one in asked:
        tally = Tally.of(one.cells)
        numbers = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
        setting = {name: getattr(one.setting, name) for name in Setting.__dataclass_fields__}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        yield {**setting, "statement": one.title, "refused": one.refused or None, **known}


def _rows(asked: Sequence[Asked], name: Callable[[Setting], tuple[str, ...]]) -> Iterator[list[str]]:
    for names in dict.fromkeys(name(one.setting) for one in asked):
        yield [*names, *_numbers([one for one in asked if name(one.setting) == names])]


def _setting(setting: Setting) -> list[str]:
    return [setting.data, setting.epsilon, setting.accountant, setting.keys]


def _numbers(asked: Sequence[Asked]) -> list[str]:
    found = _tallied([cell for one in asked for cell in one.cells])
    return [*found, str(sum(bool(one.refused) for one in asked))]


def _tallied(cells: Sequence[Cell]) -> list[str]:
    tally = Tally.of(cells)
    return [
        f"{tally.cells:,}",
        percent(tally.held_share),
        percent(tally.far_share),
        percent(tally.missing / tally.cells if tally.cells else math.nan),
        f"{tally.bare:,}",
        percent(tally.error),
        percent(tally.shown_error),
        percent(tally.width),
    ]


def percent(share: float) -> str:
    """A share for people, a dash for none.

    >>> percent(0.9512), percent(0.00456), percent(12.3), percent(math.nan), percent(math.inf)
    ('95.1%', '0.46%', '1,230%', '–', '∞')
    """
    if math.isnan(share):
        return "–"
    if math.isinf(share):
        return "∞"
    share *= 100
    return f"{share:.2f}%" if 0 < share < 1 else f"{share:.1f}%" if share < 100 else f"{share:,.0f}%"
