"""A PostgreSQL server, a local Spark and a ClickHouse in this process for the tests of engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import postgres
import pytest
from engines import clicks, sparks


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


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[Any]:
    """A connection to a folder of chdb of this process; skips where chdb is missing, but not in CI."""
    clicks.require()
    with clicks.running() as connection:
        yield connection
