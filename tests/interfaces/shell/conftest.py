"""A session over the small study."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from small_study import write_study

import dpsql
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Database and policy, written once."""
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def session(study: tuple[Path, Path]) -> Iterator[Session]:
    """A session with a fresh ledger, plain text, ε 1 a query."""
    database, policy = study
    with dpsql.connect(str(database), policy=policy, ledger=":memory:") as connection:
        yield Session(SessionState(connection, epsilon=Fraction(1)))
