"""Three speeds of the tests: `fast` on every save, `full` before a change lands, `deep` without limit.

`deep` runs every test. `full` leaves out those marked `deep`, and runs one case in n of each test: n is `ONE_IN` of its
folder, or says its marker `sampled(n)`. `fast` leaves out those marked `slow` too, those listed in `slow.txt` and the
folders `LONG`, and runs one case of each test. Of a test marked `whole` all cases run at each speed. A case is drawn by
its name, so each run tries the same ones, and one at least of each test. Searches whose length is given by `examples` are
a quarter as long in `full`, and shorter still in `fast`.
Whatever is named by its node id is run, and searches as long as in `deep`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

SPEEDS = ("fast", "full", "deep")
LONG = ("benchmarks", "differential", "statistical", "tpch")
"""Folders of tests that compare with other engines, simulate or time, which `fast` leaves out."""
SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").split())
"""Tests that take half a second of the processor or longer, as `slow.txt` lists them; `fast` leaves them out."""
ONE_IN = {
    "properties": 20,
    "attacks": 5,
    "functions": 12,
    "engines": 16,
    "statistical": 9,
    "sql": 5,
    "accounting": 3,
    "planning": 3,
    "retail": 2,
    "tpch": 3,
    "api": 4,
    "benchmarks": 3,
    "mechanisms": 2,
}
"""Of folders whose tests have many cases of one law, how many stand for one that `full` runs."""
SHORTER = {"fast": 20, "full": 4, "deep": 1}
"""By how much `examples` divides the length of a search."""
_TESTS = Path(__file__).parent
_speed = "deep"


def options(parser: pytest.Parser) -> None:
    """Adds `--speed`."""
    parser.addoption(
        "--speed", choices=SPEEDS, default="full", help="which tests: fast, full (the default) or deep"
    )


def configured(config: pytest.Config) -> None:
    """Notes the speed, before any test is imported."""
    global _speed  # noqa: PLW0603  (decorators of tests read it as they are imported)
    named = any("::" in str(argument) for argument in config.args)
    _speed = "deep" if named else str(config.getoption("--speed"))


def examples(number: int, least: int = 5) -> int:
    """The length of a search at the present speed, which in `deep` is `number`."""
    return max(least, number // SHORTER[_speed])


def thinned(cases: Sequence[T], number: int) -> Sequence[T]:
    """The cases that one test tries in turn at the present speed: all in `deep`, else one in `number`."""
    return cases if _speed == "deep" else cases[::number]


def selected(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests of the speed that is asked for."""
    speed = config.getoption("--speed")
    if any("::" in str(argument) for argument in config.args):
        return
    kept = set(chosen(items, speed))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def chosen(items: Iterable[pytest.Item], speed: str) -> Iterator[pytest.Item]:
    """The tests of a speed, in their order."""
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        yield from _cases(list(cases), speed)


def _cases(cases: list[pytest.Item], speed: str) -> list[pytest.Item]:
    if speed == "deep":
        return cases
    left = [case for case in cases if case.get_closest_marker("deep") is None]
    if speed == "fast":
        left = [case for case in left if not _is_slow(case)]
        whole = [case for case in left if case.get_closest_marker("whole") is not None]
        return whole or sorted(left, key=_lot)[:1]
    return list(_sampled(left))


def _sampled(cases: list[pytest.Item]) -> Iterator[pytest.Item]:
    """One case in n of those marked so, and at least one."""
    for number, group in groupby(cases, key=_one_in):
        drawn = sorted(group, key=_lot)
        yield from drawn[: -(-len(drawn) // number)]


def _is_slow(case: pytest.Item) -> bool:
    marked = case.get_closest_marker("slow") is not None
    return marked or _folder(case) in LONG or case.nodeid.partition("[")[0] in SLOW


def _one_in(case: pytest.Item) -> int:
    if case.get_closest_marker("whole") is not None:
        return 1
    marker = case.get_closest_marker("sampled")
    return ONE_IN.get(_folder(case), 1) if marker is None else int(marker.args[0])


def _lot(case: pytest.Item) -> int:
    return zlib.crc32(case.nodeid.encode())


def _folder(case: pytest.Item) -> str:
    return _folder_of(case.path)


@cache
def _folder_of(path: Path) -> str:
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""
