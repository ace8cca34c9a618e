"""Connections to the clinic."""

from __future__ import annotations

from collections.abc import Iterator

import clinic
import pytest

import dpsql


@pytest.fixture
def con() -> Iterator[dpsql.Connection]:
    """A connection to the clinic with a fresh budget in memory."""
    with dpsql.connect(
        clinic.database(), policy=clinic.POLICY, ledger=":memory:", analyst="ana"
    ) as connection:
        yield connection
