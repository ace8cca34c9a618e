"""Where ledgers are kept in tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import postgres as installed
import pytest

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[installed.Server]:
    """A PostgreSQL server of this process; skips where none is installed, and for no other reason."""
    with installed.running() as started:
        yield started


@pytest.fixture
def postgres_url(server: installed.Server) -> str:
    """A ledger's URL that leads to an empty schema of its own."""
    import psycopg

    name = f"ledger{next(_NUMBERS)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url}&options=-csearch_path%3D{name}"
