"""What is worked out of exact values does not outlive the release that it was worked out for."""

from __future__ import annotations

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.engine.release import exact_release
from dpsql.privacy.mechanisms import geometric, sampler, selection

REMEMBERED = {
    "coin": sampler._compute_threshold,
    "selection": selection._bound_weight,
    "partition selection": selection._compute_threshold,
    "coupling": geometric._compute_chance_thresholds,
}
QUERIES = {
    "selection": ["SELECT plan, MEDIAN(days) FROM visits GROUP BY plan"],
    "coin": ["SELECT plan FROM visits GROUP BY plan ORDER BY SUM(days) DESC LIMIT 1"],
    "partition selection": ["SELECT ward FROM visits GROUP BY ward"],
    "coupling": ["SELECT plan, COUNT(*) FROM visits GROUP BY plan"] * 2,
}


@pytest.mark.parametrize("what", QUERIES)
def test_caches_are_empty_after_a_release(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is used for a release, and empty when the answer is there."""
    remembered = REMEMBERED[what]
    seen: list[int] = []
    clear = exact_release.clear_cache

    def watched() -> None:
        seen.append(remembered.cache_info().misses)  # type: ignore[attr-defined]
        clear()

    monkeypatch.setattr(exact_release, "clear_cache", watched)
    rules = POLICY | {"budget": {"epsilon": 30, "delta": 1e-6, "accountant": "basic"}, "data_version": "1"}
    with dpsql.connect(database(), policy=rules, ledger=":memory:") as con:
        for epsilon, sql in enumerate(QUERIES[what], 1):
            con.query(sql, epsilon=epsilon)
    assert seen[-1] > 0
    assert remembered.cache_info().currsize == 0  # type: ignore[attr-defined]
