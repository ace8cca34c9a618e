"""95% intervals hold the true answers of real data, noise and learnt clamps together."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from statistical.chance import largest_share, least_share

import dpsql
from benchmarks.coverage.cells import Tally, cells_of, truth_of
from benchmarks.coverage.studies import STUDIES, Study

HELD, FAR = 0.92, 0.01
"""The least share of cells that is held, and the largest that is off by more than three half-widths."""
ANSWERS = 8
"""So many answers to each question: their cells share the choice of a clamp, so that only answers are independent."""
ASKED = ("flights by carrier", "flights by origin", "flights by month", "flights by destination")


@pytest.fixture(scope="module")
def flights() -> Iterator[tuple[Study, duckdb.DuckDBPyConnection]]:
    """A year of departures, with bounds that cut nothing off."""
    (study,) = (one for one in STUDIES if one.name == "flights")
    with duckdb.connect() as database:
        study.load(database, "")
        yield study, database


@pytest.mark.parametrize("keys", ["known", "secret"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_intervals_hold_the_numbers_of_flights(
    flights: tuple[Study, duckdb.DuckDBPyConnection], accountant: str, keys: str
) -> None:
    """They hold at a small loss for aircraft with up to 575 flights where 800 are allowed."""
    study, database = flights
    covered, far = [], []
    for statement in (one for one in study.statements if one.title in ASKED):
        policy = study.policy(accountant, statement, secret=keys == "secret")
        with dpsql.connect(database, policy=policy, ledger=":memory:", replay=False) as connection:
            truth = truth_of(database.execute(statement.sql).fetchall(), statement.keys)
            for _ in range(ANSWERS):
                found = connection.query(statement.sql, epsilon="0.2", delta="1e-6")
                tally = Tally.of(cells_of(truth, found.rows, found.intervals()))
                if tally.bounded:
                    covered.append(tally.held_share)
                    far.append(tally.far_share)
    if covered or (accountant, keys) != ("pure", "secret"):  # where it may show no group
        assert sum(covered) >= least_share(len(covered), HELD) * len(covered)
        assert sum(far) <= largest_share(len(far), FAR) * len(far)
        assert len(covered) > 3 * ANSWERS or (accountant, keys) == ("pure", "secret")
