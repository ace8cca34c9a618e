"""Four speeds of the tests: `unit` without an engine, `fast` on every save, `full` before a change lands, `deep` without limit.

`deep` runs every test. `full` leaves out those marked `deep`, and of each test runs as many cases as fit into `EACH`
seconds of the processor, one at least; what a case takes is measured, in `costs.txt`. Where a marker `sampled(n)` says
so, one case in n runs instead. `fast` leaves out those marked `slow` too, those whose case takes `QUICK` seconds or
longer and the folders `LONG`, and runs one case of each test. Of a test marked `whole` all cases run at each speed. A
case is drawn by its name, so each run tries the same ones. `unit` is `fast` in the rooms `UNIT` alone, without the files
`ENGINES`; other tests are not even imported, and a test that opens an engine fails. Searches whose length is given by `examples` are an eighth
as long in `full`, and shorter still in `fast` and `unit`.
Whatever is named by its node id is run, and searches as long as in `deep`.

`pytest --speed full --measure` writes `costs.txt` anew for the tests that it runs.
"""

from __future__ import annotations

import os
import resource
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

T = TypeVar("T")

SPEEDS = ("unit", "fast", "full", "deep")
UNIT = (
    "dpsql/privacy/accounting",
    "dpsql/analysis",
    "dpsql/plan/functions",
    "dpsql/privacy/experts.py",
    "dpsql/ledger",
    "dpsql/privacy/local.py",
    "dpsql/privacy/mechanisms",
    "dpsql/plan",
    "dpsql/planning",
    "dpsql/policy",
    "dpsql/results/rendering.py",
    "dpsql/policy/request",
    "dpsql/privacy/synthesis",
    "dpsql/engine/intervals",
    "dpsql/results/json_format.py",
    "tests/privacy/accounting",
    "tests/privacy/test_experts.py",
    "tests/ledger",
    "tests/privacy/test_local.py",
    "tests/privacy/mechanisms",
    "tests/planning/test_quantiles.py",
    "tests/policy",
    "tests/privacy/synthesis",
)
"""Rooms of the package and of its tests that need no engine, which `unit` runs."""
ENGINES = (
    "tests/privacy/mechanisms/test_toy.py",
    "tests/policy/test_check_constraints.py",
    "tests/policy/test_engine_types.py",
)
"""Files in these rooms that open an engine all the same, which `unit` leaves out."""
SERVER = "postgres"
"""Cases with this word in their names start a server, which `unit` leaves out, too."""
LONG = ("benchmarks", "differential", "statistical", "tpch")
"""Folders of tests that compare with other engines, simulate or time, which `fast` leaves out."""
EACH = 0.25
"""For how many seconds of the processor the cases of one test run in `full`, unless one alone takes longer."""
QUICK = 0.2
"""Tests whose case takes as many seconds or more are left out of `fast`."""
CHEAP = 0.02
"""What a case takes at most that `costs.txt` does not list."""
PATIENCE = 7200
"""How many seconds one test may take at the speed `deep`."""
SHORTER = {"unit": 20, "fast": 20, "full": 8, "deep": 1}
"""By how much `examples` divides the length of a search."""
_TESTS = Path(__file__).parent
_ROOT = _TESTS.parent
_COSTS = _TESTS / "costs.txt"
_speed = "deep"


def options(parser: pytest.Parser) -> None:
    """Adds `--speed` and `--measure`."""
    parser.addoption(
        "--speed", choices=SPEEDS, default="full", help="which tests: unit, fast, full (the default) or deep"
    )
    parser.addoption(
        "--shard",
        type=_parse_shard,
        metavar="K/N",
        help="the K-th of N parts of the cases, so that `deep` can be run in parts",
    )
    parser.addoption("--measure", action="store_true", help="write down what the tests take of the processor")


def configured(config: pytest.Config) -> None:
    """Notes the speed, before any test is imported."""
    global _speed  # noqa: PLW0603  (decorators of tests read it as they are imported)
    named = any("::" in str(argument) for argument in config.args)
    _speed = "deep" if named else str(config.getoption("--speed"))
    if _speed == "unit":
        config.pluginmanager.register(WithoutEngine())


def is_deep() -> bool:
    """Whether every test runs, and searches draw new examples."""
    return _speed == "deep"


def examples(number: int, least: int = 5) -> int:
    """The length of a search at the present speed, which in `deep` is `number`."""
    return max(least, number // SHORTER[_speed])


def thinned(cases: Sequence[T], number: int) -> Sequence[T]:
    """The cases that one test tries in turn at the present speed: all in `deep`, else one in `number`."""
    return cases if _speed == "deep" else cases[::number]


def selected(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests of the speed that is asked for."""
    speed = config.getoption("--speed")
    if speed == "deep":  # a long search on a busy machine does not hang
        for item in items:
            item.add_marker(pytest.mark.timeout(PATIENCE))
    if any("::" in str(argument) for argument in config.args):
        return
    kept = set(select_shard(chosen(items, speed, costs()), config.getoption("--shard")))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def chosen(items: Iterable[pytest.Item], speed: str, seconds: Mapping[str, float]) -> Iterator[pytest.Item]:
    """The tests of a speed, where a case takes `seconds`."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)  # cases that share a fixture stand apart
    for item in items:
        tests[_test(item.nodeid)].append(item)
    for test, cases in tests.items():
        yield from _cases(cases, speed, seconds.get(test, CHEAP))


def select_shard(items: Iterable[pytest.Item], shard: tuple[int, int] | None) -> Iterator[pytest.Item]:
    """Yield the cases of one part of several, drawn by their names; all where `shard` is None."""
    return (item for item in items if shard is None or _lot(item) % shard[1] == shard[0] - 1)


def _parse_shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not 1 <= int(part) <= int(parts):
        raise ValueError(text)
    return int(part), int(parts)


def costs() -> dict[str, float]:
    """The seconds of the processor that a case of each listed test takes."""
    lines = (line.split(maxsplit=1) for line in _COSTS.read_text(encoding="utf-8").splitlines())
    return {test: float(seconds) for seconds, test in lines}


def _cases(cases: list[pytest.Item], speed: str, seconds: float) -> list[pytest.Item]:
    if speed == "deep":
        return cases
    least = speed in ("unit", "fast")
    left = [case for case in cases if case.get_closest_marker("deep") is None]
    if speed == "unit":
        left = [case for case in left if SERVER not in case.nodeid]
    if least and (seconds >= QUICK or any(map(_is_slow, left))):
        return []
    if any(case.get_closest_marker("whole") for case in left):
        return left
    return sorted(left, key=_lot)[: 1 if least else _number(left, seconds)]


def _number(cases: list[pytest.Item], seconds: float) -> int:
    """How many cases `full` runs."""
    markers = [case.get_closest_marker("sampled") for case in cases[:1]]
    if markers and markers[0] is not None:
        return -(-len(cases) // int(markers[0].args[0]))
    return max(1, int(EACH / seconds))


def _is_slow(case: pytest.Item) -> bool:
    return case.get_closest_marker("slow") is not None or _folder_of(case.path) in LONG


def _lot(case: pytest.Item) -> int:
    return zlib.crc32(case.nodeid.encode())


def _test(nodeid: str) -> str:
    return nodeid.partition("[")[0]


@cache
def _folder_of(path: Path) -> str:
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""


def needs_no_engine(path: Path) -> bool:
    """Whether a file is run at the speed `unit`, or a folder may have such files."""
    if not path.is_relative_to(_ROOT):
        return False
    name = path.relative_to(_ROOT).as_posix()
    above = any(f"{room}/".startswith(f"{name}/") for room in UNIT)
    return (
        path == _ROOT
        or above
        or (name not in ENGINES and any(f"{name}/".startswith(f"{room}/") for room in UNIT))
    )


class WithoutEngine:
    """Imports no test but those of `UNIT`, and lets none of them open an engine."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out what the speed does not run; other rules decide over the rest."""
        return None if needs_no_engine(collection_path) else True

    def pytest_sessionstart(self) -> None:
        """Refuse to open DuckDB, with which every engine's connection begins."""
        import duckdb

        self._connect = duckdb.connect
        duckdb.connect = refuse_engine

    def pytest_sessionfinish(self) -> None:
        """Open it again."""
        import duckdb

        duckdb.connect = self._connect


def refuse_engine(*_: object, **__: object) -> NoReturn:
    """Fail the test, with an exception that no `except Exception` of the package catches."""
    pytest.fail("this test opens an engine: list its file in ENGINES of tests/speeds.py", pytrace=True)


class Meter:
    """Measures what tests take of the processor, their child processes included, and writes it to `costs.txt`."""

    def __init__(self) -> None:
        self._begun = 0.0
        self._found: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begins with the fixtures."""
        self._begun = _processor()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Sends what was measured along with the report, which reaches the process that writes."""
        item.user_properties.append(("processor", _processor() - self._begun))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the reports of all processes."""
        if report.when == "teardown":
            self._found[_test(report.nodeid)] += [
                float(value) for name, value in report.user_properties if name == "processor"
            ]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the means, where they are no less than `CHEAP`."""
        if hasattr(session.config, "workerinput"):
            return
        known = costs() | {test: sum(each) / len(each) for test, each in self._found.items() if each}
        lines = [f"{seconds:.2g} {test}" for test, seconds in sorted(known.items()) if seconds >= CHEAP]
        _COSTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + sum(map(_begun_by, _children(os.getpid())))


def _begun_by(process: int) -> float:
    """What a process that runs yet, as the Java of Spark, and those that it began have taken; 0 where Linux is not there to say."""
    try:
        words = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    own = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")  # itself, and those that it has waited for
    return own + sum(map(_begun_by, _children(process)))


def _children(process: int) -> list[int]:
    """The processes that one began, by any of its threads, and which run yet."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return [
            int(child)
            for thread in threads
            for child in (thread / "children").read_text(encoding="ascii").split()
        ]
    except OSError:
        return []
