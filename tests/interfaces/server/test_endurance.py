"""Long use, and many idle connections. The soak takes ten minutes with `DPSQL_SOAK_SECONDS=600`, and is short otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("resource")
if not Path("/proc/self/status").is_file():
    pytest.skip("the memory of a process is read from Linux's /proc", allow_module_level=True)

from benchmarks.endurance import files_allowed, idle, soak
from benchmarks.server import Served, serving

_SECONDS = float(os.environ.get("DPSQL_SOAK_SECONDS", "30"))
_GROWTH = 16 * 2**20
"""Bytes that the memory may grow between the second quarter and the second half: what an allocator moves by."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("endurance")) as found:
        yield found


@pytest.mark.deep
@pytest.mark.timeout(120 + 2 * _SECONDS)
def test_memory_threads_and_files_stay_constant(served: Served) -> None:
    found = soak(served, _SECONDS)
    assert found.readings[-1].answered > 20
    assert set(found.errors) == {"42803", "group_by"}
    assert found.growth() < _GROWTH
    half = len(found.readings) // 2
    for name in ("threads", "files"):
        numbers = [getattr(each, name) for each in found.readings]
        assert max(numbers[half:]) <= max(numbers[half // 2 : half]) + 8, name


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("speaking", [False, True])
@pytest.mark.parametrize("door", ["PostgreSQL", "HTTP"])
def test_ten_thousand_idle_connections_are_held_or_refused_with_an_error(
    served: Served, door: str, speaking: bool
) -> None:
    """From one address; a client of another one is answered meanwhile (or `idle` raises)."""
    wanted = 10_000 if files_allowed(10_000) > 10_500 else 800
    found = idle(served, door, wanted, speaking=speaking)
    worded = sum(count for text, count in found.outcomes.items() if text.startswith("refused: "))
    assert worded >= wanted - 200
    assert sum(found.outcomes.values()) == wanted
