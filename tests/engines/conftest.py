"""A PostgreSQL server for the tests of engines."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of this process; skips where none is installed, and for no other reason."""
    with postgres.running() as started:
        yield started
