"""No entry fails on what the engine estimates of it before it computes.

Of a column the engine knows the least and the largest value. It works out what a function gives there, and fails where
its own rounding turns the two around; that would tell of private values.
"""

from __future__ import annotations

import duckdb
import pytest
from plan.functions.pools import build, column, signatures

from dpsql.plan.expressions import Function
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

OF_A_NUMBER = [function for function in FUNCTIONS.values() if (Type.DOUBLE,) in signatures(function)]


@pytest.mark.parametrize("function", OF_A_NUMBER, ids=lambda entry: entry.name)
def test_no_entry_fails_on_close_extremes(function: Function) -> None:
    """Differences are tried that the engine knows up to their last digits."""
    call = build(function, [column(0, Type.DOUBLE)])
    assert call is not None
    row = "SELECT CAST(n AS DOUBLE) - CAST(m AS DOUBLE) AS c FROM t"
    with duckdb.connect(config={"threads": 1}) as engine:
        for number in range(-30, 31):
            engine.execute(f"CREATE OR REPLACE TABLE t AS SELECT {number}::BIGINT AS n, 0::BIGINT AS m")
            assert (
                len(
                    engine.execute(
                        f"SELECT {DUCKDB_COMPILER.emit_expression(call)} FROM ({row}) AS t0"
                    ).fetchall()
                )
                == 1
            )
