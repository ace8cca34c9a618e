"""Each speed runs what it says: `deep` all, `full` without what is deep and in samples, `fast` least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

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


PLAIN = cases("plan/test_x.py", 5)
DEEP = cases("plan/test_deep.py", 3, pytest.mark.deep)
SLOW = cases("plan/test_slow.py", 3, pytest.mark.slow)
SAMPLED = cases("plan/test_sampled.py", 10, pytest.mark.sampled(4))
SEARCHING = cases("properties/test_y.py", 6)
WHOLE = cases("sql/test_whole.py", 4, pytest.mark.whole)
LONG = cases("statistical/test_long.py", 4)
ALL = [*PLAIN, *DEEP, *SLOW, *SAMPLED, *SEARCHING, *WHOLE, *LONG]


@pytest.mark.parametrize(
    ("speed", "numbers"),
    [
        ("deep", (5, 3, 3, 10, 6, 4, 4)),
        ("full", (5, 0, 3, 3, 1, 4, 1)),
        ("fast", (1, 0, 0, 1, 1, 4, 0)),
    ],
)
def test_a_speed_runs_what_it_says(speed: str, numbers: Sequence[int]) -> None:
    """One case at least is left of what is sampled or searches, and the same one in each run."""
    kept = set(speeds.chosen(ALL, speed))  # type: ignore[arg-type]
    assert (
        tuple(len(kept.intersection(part)) for part in (PLAIN, DEEP, SLOW, SAMPLED, SEARCHING, WHOLE, LONG))
        == numbers
    )
    assert kept == set(speeds.chosen(ALL, speed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speed", "argument", "length"),
    [
        ("deep", "tests", 100),
        ("full", "tests", 25),
        ("fast", "tests", 5),
        ("fast", "tests/x.py::test_it", 100),
    ],
)
def test_a_search_is_as_long_as_its_speed_allows(
    monkeypatch: pytest.MonkeyPatch, speed: str, argument: str, length: int
) -> None:
    """A test that is named searches as long as in `deep`, so that a planted fault is found by it."""
    config = SimpleNamespace(args=[argument], getoption=lambda _: speed)
    monkeypatch.setattr(speeds, "_speed", "deep")
    speeds.configured(config)  # type: ignore[arg-type]
    assert speeds.examples(100) == length
    assert speeds.examples(3) == 5


def test_each_folder_that_searches_is_there() -> None:
    """A folder that is renamed would be run whole each time."""
    assert all((TESTS / folder).is_dir() for folder in {*speeds.LONG, *speeds.ONE_IN})


def test_each_test_that_is_slow_is_there() -> None:
    """A test that is renamed would be run at each speed."""
    for nodeid in speeds.SLOW:
        path, _, name = nodeid.partition("::")
        assert f"def {name}(" in (TESTS.parent / path).read_text(encoding="utf-8"), nodeid
