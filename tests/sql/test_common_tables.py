"""A common table expression is lowered once, and each is what its own query says."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping

import pytest
from sqlglot import exp

from dpsql.api.connection import Connection
from dpsql.sql.lower import from_sources, quantified_comparisons
from dpsql.sql.lower.statement_context import CommonTable, StatementContext


def _ages(compared: str, number: int) -> str:
    return (
        f"SELECT patient_id, CASE WHEN age {compared} (WITH c AS (SELECT price + {number} AS x FROM prices) "
        f"SELECT DISTINCT x FROM c) THEN 1 ELSE 0 END AS found FROM visits"
    )


@pytest.mark.parametrize("compared", ["IN", "NOT IN", "= ANY", "> ALL"])
def test_queries_known_by_identity_are_kept_alive(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, compared: str
) -> None:
    queries = dict[int, weakref.ref[exp.Expr]]()
    common = from_sources.lower_common_table
    gc.freeze()  # what other tests have left needs no look each time

    def watched(context: StatementContext, node: exp.Expr, table: CommonTable, known_as: str) -> object:
        gc.collect()  # another query may get the identity of one that is gone
        known: Mapping[int, object] = context.lowered_common_tables
        assert all(queries[each]() is not None for each in known if each in queries)
        queries[id(table.query)] = weakref.ref(table.query)
        return common(context, node, table, known_as)

    for module in (from_sources, quantified_comparisons):
        monkeypatch.setattr(module, "lower_common_table", watched)
    united = " UNION ALL ".join(_ages(compared, number) for number in range(4))
    try:
        connection.explain(f"SELECT SUM(found) FROM ({united}) AS u")
    finally:
        gc.unfreeze()
    assert queries
