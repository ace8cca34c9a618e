"""Each speed runs what it says: `deep` all, `full` without what is deep and in samples, `fast` least."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
import speeds

TESTS = Path(speeds.__file__).parent


@dataclass(frozen=True)
class Test:
    """As much of a test as the choice reads."""

    __test__ = False

    nodeid: str
    marks: dict[str, pytest.Mark] = field(default_factory=dict, compare=False)

    @property
    def path(self) -> Path:
        """Its file."""
        return TESTS.parent / self.nodeid.partition("::")[0]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """As of a pytest item."""
        return self.marks.get(name)


def cases(file: str, number: int, *marks: pytest.MarkDecorator) -> list[Test]:
    """The cases of one test."""
    return [
        Test(f"tests/{file}::test_it[{case}]", {mark.name: mark.mark for mark in marks})
        for case in range(number)
    ]


CHEAP = cases("plan/test_x.py", 40)
DEEP = cases("plan/test_deep.py", 3, pytest.mark.deep)
SLOW = cases("plan/test_slow.py", 3, pytest.mark.slow)
SAMPLED = cases("plan/test_sampled.py", 10, pytest.mark.sampled(4))
COSTLY = cases("properties/test_y.py", 6)
LONGER = cases("properties/test_z.py", 6)
WHOLE = cases("sql/test_whole.py", 4, pytest.mark.whole)
LONG = cases("statistical/test_long.py", 4)
ALL = [CHEAP, DEEP, SLOW, SAMPLED, COSTLY, LONGER, WHOLE, LONG]
SECONDS = {
    "tests/properties/test_y.py::test_it": speeds.EACH / 2.5,
    "tests/properties/test_z.py::test_it": 2 * speeds.EACH,
    "tests/sql/test_whole.py::test_it": speeds.QUICK / 2,
}
MOST = int(speeds.EACH / speeds.CHEAP)


@pytest.mark.parametrize(
    ("speed", "numbers"),
    [
        ("deep", (40, 3, 3, 10, 6, 6, 4, 4)),
        ("full", (MOST, 0, 3, 3, 2, 1, 4, 4)),
        ("unit", (1, 0, 0, 1, int(SECONDS["tests/properties/test_y.py::test_it"] < speeds.QUICK), 0, 4, 0)),
        ("fast", (1, 0, 0, 1, int(SECONDS["tests/properties/test_y.py::test_it"] < speeds.QUICK), 0, 4, 0)),
    ],
)
def test_speed_runs_its_cases(speed: str, numbers: Sequence[int]) -> None:
    """One case at least is left in `full`, and the same ones in each run, also where cases of tests take turns."""
    turns = [case for cases in zip_longest(*ALL) for case in cases if case is not None]
    for order in (list(chain(*ALL)), turns):
        kept = set(speeds.chosen(order, speed, SECONDS))  # type: ignore[arg-type]
        assert tuple(len(kept.intersection(part)) for part in ALL) == numbers
        assert kept == set(speeds.chosen(order, speed, SECONDS))  # type: ignore[arg-type]


def test_shards_partition_the_cases() -> None:
    """Each case runs in exactly one part, and no part is empty."""
    cases = list(chain(*ALL))
    parts = [list(speeds.select_shard(cases, (part, 4))) for part in range(1, 5)]  # type: ignore[arg-type]
    assert all(parts)
    assert sorted(chain(*parts), key=cases.index) == cases


@pytest.mark.parametrize(
    ("speed", "argument", "length"),
    [
        ("deep", "tests", 100),
        ("full", "tests", 12),
        ("unit", "tests", 5),
        ("fast", "tests", 5),
        ("fast", "tests/x.py::test_it", 100),
    ],
)
def test_search_is_as_long_as_its_speed_allows(
    monkeypatch: pytest.MonkeyPatch, speed: str, argument: str, length: int
) -> None:
    """A test that is named searches as long as in `deep`, so that a planted fault is found by it."""
    plugins = SimpleNamespace(register=lambda _: None)
    config = SimpleNamespace(args=[argument], getoption=lambda _: speed, pluginmanager=plugins)
    monkeypatch.setattr(speeds, "_speed", "deep")
    speeds.configured(config)  # type: ignore[arg-type]
    assert speeds.examples(100) == length
    assert speeds.examples(3) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what another process has taken")
def test_running_processes_count_as_cost() -> None:
    """The work of Spark's Java counts for the test that waits for it, though it has not ended."""
    works = "import os\nwhile os.times().user < 0.1: pass\nprint(flush=True)\ninput()"
    before = speeds._processor()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", works], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while_it_runs = speeds._processor() - before
        process.communicate(b"\n")
    assert while_it_runs >= 0.09


def test_each_folder_with_searches_exists() -> None:
    """A folder that is renamed would be run whole each time."""
    assert all((TESTS / folder).is_dir() for folder in speeds.LONG)


def test_each_room_without_an_engine_exists() -> None:
    """A room that is renamed would not be run, a file that is renamed would open its engine."""
    assert all((TESTS.parent / room).exists() for room in speeds.UNIT)
    assert all((TESTS.parent / file).is_file() for file in speeds.ENGINES)
    assert all(file.startswith(tuple(f"{room}/" for room in speeds.UNIT)) for file in speeds.ENGINES)


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        ("", True),
        ("tests", True),
        ("tests/ledger", True),
        ("tests/ledger/test_key.py", True),
        ("dpsql/privacy/local.py", True),
        ("tests/planning", True),
        ("tests/planning/test_quantiles.py", True),
        ("tests/planning/test_choose.py", False),
        ("tests/privacy/mechanisms/test_toy.py", False),
        ("tests/sql", False),
        ("dpsql/results/local_table.py", False),
        ("examples", False),
        ("..", False),
    ],
)
def test_unit_imports_rooms_without_an_engine(path: str, runs: bool) -> None:
    """A room is imported with the rooms above and below it only."""
    assert speeds.needs_no_engine((TESTS.parent / path).resolve()) is runs


def test_unit_starts_no_server() -> None:
    """The case of a server is never drawn for a test that runs on several stores."""
    stores = [Test(f"tests/ledger/test_x.py::test_it[{store}]") for store in ("file", "postgres")]
    alone = [Test("tests/ledger/test_postgres.py::test_it")]
    assert list(speeds.chosen([*stores, *alone], "unit", {})) == stores[:1]  # type: ignore[arg-type]


def test_engine_at_unit_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails even where the package catches every `Exception`; later engines open again."""
    before = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", before)
    guard = speeds.WithoutEngine()
    guard.pytest_sessionstart()
    with pytest.raises(pytest.fail.Exception, match="opens an engine"), contextlib.suppress(Exception):
        duckdb.connect()
    guard.pytest_sessionfinish()
    assert duckdb.connect is before
    assert guard.pytest_ignore_collect(TESTS / "sql") is True
    assert guard.pytest_ignore_collect(TESTS / "ledger") is None


def test_each_test_with_a_cost_exists() -> None:
    """A test that is renamed would count as cheap."""
    files = {
        str(path.relative_to(TESTS.parent)): path.read_text(encoding="utf-8")
        for path in TESTS.parent.rglob("*.py")
    }
    names = {name for text in files.values() for name in re.findall(r"def (test_\w+)\(", text)}
    for nodeid in speeds.costs():
        path, _, name = nodeid.partition("::")
        assert path in files, nodeid
        assert name in names or not path.startswith("tests/"), nodeid
