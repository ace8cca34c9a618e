"""A released table as text: read back it is the same, and what dpsql did not write is refused."""

from __future__ import annotations

import datetime as dt
import json
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.engine.release.exact_release import draw_table, open_exact_release
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.replay.stored_release import StoredRelease
from dpsql.errors import IntegrityError
from dpsql.policy.request.query import Query

QUERIES = [
    "SELECT COUNT(*), AVG(cost), SUM(days) FROM visits",
    "SELECT plan, COUNT(*) FROM visits GROUP BY plan",
    "SELECT ward, COUNT(*), MEDIAN(cost), MAX(day) FROM visits GROUP BY ward",
    "SELECT day, COUNT(*) FROM visits GROUP BY day",
    (
        "SELECT CAST(day AS TIMESTAMP) AS t, cost / 7 AS c, days = 2 AS b, NULLIF(days, 2) AS d, COUNT(*)"
        " FROM visits GROUP BY ALL"
    ),
    "SELECT days FROM visits GROUP BY days ORDER BY SUM(cost) DESC LIMIT 2",
    "SELECT ward FROM visits GROUP BY ward",
    "SELECT CORR(cost, days), VAR_POP(cost) FROM visits",
]
BUDGETS = [{"epsilon": 30, "delta": 1e-6}, {"epsilon": 30, "delta": 1e-6, "accountant": "pure"}]


@pytest.mark.parametrize("rows", [4, 50])
@pytest.mark.parametrize("budget", BUDGETS, ids=["zcdp", "pure"])
@pytest.mark.parametrize("sql", QUERIES)
def test_stored_release_is_read_back_unchanged(sql: str, budget: dict[str, Any], rows: int) -> None:
    """Rows, noisy cells, columns and noise, with the clamps that were chosen; of every kind of plan."""
    visits = POLICY["tables"]["visits"] | {"rows_per_unit": rows}
    policy = POLICY | {"budget": budget, "tables": POLICY["tables"] | {"visits": visits}}
    with dpsql.connect(database(), policy=policy, ledger=":memory:") as connection:
        part = plan_and_match(connection.engine, Query(sql, epsilon=Fraction(2))).single_release
        with open_exact_release(connection.engine.backend, connection.engine.entropy, part) as measured:
            table = draw_table(measured, connection.engine.entropy)
    assert part.plan.event is not None
    text = StoredRelease.from_table(table, part.plan.event, "source").to_text()
    read = StoredRelease.parse(text).to_table(part.plan)
    assert read == table
    assert [list(map(type, row)) for row in read.rows] == [list(map(type, row)) for row in table.rows]
    assert read.plan == table.plan
    assert StoredRelease.parse(text).to_text() == text


def test_stored_keys_keep_their_types() -> None:
    """Booleans, numbers, dates and times of a key come back as what they were, to the last bit."""
    keys = (
        (True, 1, 1.0, -0.0, 5e-324, None, "1", dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 1, 2, 3, 4)),
    )
    from dpsql.privacy.accounting.events import Pure

    written = StoredRelease(keys, ((),), (), (), Pure(Fraction(1)), "")
    (read,) = StoredRelease.parse(written.to_text()).keys
    assert list(map(repr, read)) == list(map(repr, keys[0]))


@pytest.mark.parametrize(
    "change",
    [
        {"cells": [[[1.5]]]},
        {"cells": [[["1"]]]},
        {"cells": [[[True]]]},
        {"keys": [[{"secret": "1"}]]},
        {"keys": 3},
        {"noise": [["geometric"]]},
        {"noise": [["laplace", "1"]]},
        {"noise": [["geometric", "1/0"]]},
        {"noise": [["staircase", "1", 3]]},
        {"noise": [["staircase", "1", 3, "2"]]},
        {"noise": [["staircase", "1", 3, True]]},
        {"chosen": [["x"]]},
        {"event": "{}"},
        {"v": None},
    ],
    ids=str,
)
def test_malformed_stored_release_is_refused(change: dict[str, Any]) -> None:
    """What dpsql did not write is no release, and no error of another library's."""
    from dpsql.privacy.accounting.events import Pure

    good = json.loads(StoredRelease((), (), (), (), Pure(Fraction(1)), "").to_text())
    with pytest.raises(IntegrityError):
        StoredRelease.parse(json.dumps(good | change))
    for text in ("", "[]", "null", "{}", "[" * 100_000):
        with pytest.raises(IntegrityError, match="that dpsql did not write"):
            StoredRelease.parse(text)
