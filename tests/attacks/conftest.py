"""What the attacks share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks.edits import six_entries
from worlds import Refused, Row, close_all, person, spent, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.types import Value


@pytest.fixture(scope="module", autouse=True)
def _worlds_end() -> Iterator[None]:
    """The worlds of a file are closed with it."""
    yield
    close_all()


@pytest.fixture(scope="module")
def town() -> Connection:
    """Three people, for attacks that are refused before anything is read."""
    return world(person(1), person(2, city="Kiel", age=41), person(3, age=77, cost=99.5))


@pytest.fixture
def rows() -> list[Row]:
    """Ten ordinary people, to add one to."""
    return [person(who, age=20 + who, cost=who * 2.5, city=("Bonn", "Kiel")[who % 2]) for who in range(10)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a ledger of six entries."""
    return six_entries(tmp_path_factory.mktemp("written") / "a.ledger")


@pytest.fixture
def path(written: bytes, tmp_path: Path) -> Path:
    """A copy of that ledger, closed, to be edited."""
    where = tmp_path / "a.ledger"
    where.write_bytes(written)
    return where


@pytest.fixture
def refused(town: Connection) -> Refused:
    """Asserts that a query is refused with its place, before any charge; returns the code."""

    def refuse(sql: str, *parameters: Value) -> str:
        before = spent(town)
        with pytest.raises(dpsql.QueryRejected) as caught:
            town.query(sql, list(parameters))
        assert spent(town) == before
        assert caught.value.__cause__ is None
        return caught.value.code

    return refuse
