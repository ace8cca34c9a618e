"""A PostgreSQL server and a local Spark for the tests of engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import postgres
import pytest
from engines import sparks


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of this process; skips where none is installed, and for no other reason."""
    with postgres.running() as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of a local Spark of this process; skips where pyspark or Java is missing, but not in CI."""
    sparks.require()
    with sparks.running() as session:
        yield session
