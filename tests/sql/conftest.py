"""The study's database, private and plain, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.api.connection import Connection
from tests.sql.study import clinic, study


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with study() as opened:
        yield opened


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with clinic() as opened:
        yield opened
