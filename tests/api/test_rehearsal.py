"""`Connection.rehearse`: the same questions on invented rows, with a ledger of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import write_study

import dpsql


def test_a_rehearsal_spends_nothing_and_reads_no_private_rows(tmp_path: Path) -> None:
    """Terms, dialect and policy are those of the connection; the number of people is the one that is stated."""
    database, policy = write_study(tmp_path)
    with dpsql.connect(database, policy=policy, epsilon=2, dialect="postgres", analyst="ana") as connection:
        with connection.rehearse(units=70) as tried:
            found = tried.query(
                "SELECT COUNT(DISTINCT patient_id) AS n FROM visits WHERE day >= '2020-01-01'::date"
            )
            assert abs(found.rows[0][0] - 70) < 20
            assert found.receipt.analyst == "ana"
            assert sum(state.queries for state in tried.budget().values()) == 1
            with pytest.raises(dpsql.BudgetExhausted):
                tried.query("SELECT COUNT(*) FROM visits", epsilon=49)
        assert sum(state.queries for state in connection.budget().values()) == 0
        with connection.rehearse(units=70) as other, pytest.raises(dpsql.QueryRejected):
            other.query("SELECT patient_id FROM visits")


@pytest.mark.parametrize("size", [{"units": 0}, {"units": True}, {"rows": 1.5}, {"public": "gone.duckdb"}])
def test_invalid_sizes_of_a_rehearsal_are_refused(size: dict[str, int], tmp_path: Path) -> None:
    """Sizes below one and missing public tables are refused."""
    database, policy = write_study(tmp_path)
    with dpsql.connect(database, policy=policy) as connection, pytest.raises(dpsql.Error) as caught:
        connection.rehearse(**size)
    assert caught.value.code in ("argument", "database_missing")
