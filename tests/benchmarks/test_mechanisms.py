"""The comparison of ways to answer: a stream answers more than three times as many counts as noise on each, at equal error."""

from __future__ import annotations

from benchmarks.mechanisms import PAIRS, census, connected, pairs, rho_of, streamed


def test_stream_answers_three_times_as_many_counts() -> None:
    """The stream's answers about a census at ε = 1 are within a twentieth of all rows."""
    rows = census(20_000)
    with connected(rows, "pure") as con:
        found = streamed(con, rows, 1, rho_of("pure", 1), 400)
    assert found.answered == 400
    assert found.times > 3
    assert found.error < 20_000 / 20


def test_methods_keep_their_order() -> None:
    """A trusted database is far better than the local model, and a synthetic table is near noisy counts."""
    rows = census(20_000)
    with connected(rows, "zcdp") as con:
        found = pairs(con, rows, 0.3, rho_of("zcdp", 0.3))
    assert len(PAIRS) == 15
    assert found.local > 100 * found.synthetic
    assert found.synthetic < 3 * found.counts
