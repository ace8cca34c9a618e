"""A newcomer: the README's commands lead from an empty environment to a private answer on a file of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.newcomer import commands as newcomer
from benchmarks.newcomer.judge import try_file
from benchmarks.newcomer.writers import WRITERS, Written


def test_newcomer_needs_three_commands() -> None:
    """One installs, one serves the owner, one queries the data."""
    assert [each.split()[0] for each in newcomer.commands()] == ["pip", "dpsql", "dpsql"]


@pytest.mark.deep
def test_three_commands_lead_to_an_answer(tmp_path: Path) -> None:
    """The answer has its ± and its price; prompts are answered as a newcomer would."""
    installed, begun, answered = newcomer.typed(tmp_path)
    assert installed.command == "pip install ."
    assert "wrote visits.yaml" in begun.said
    assert "±95%" in answered.said
    assert "charged to visits: ε 0.1" in answered.said
    policy = (tmp_path / "visits.yaml").read_text(encoding="utf-8")
    assert all(word in policy for word in ("bounds: [0, 110]", "bounds: [0, 1000]", "rows_per_unit: 10"))


@pytest.mark.parametrize("written", WRITERS, ids=lambda each: each.program)
def test_files_of_other_programs_are_read_in_two_tries(tmp_path: Path, written: Written) -> None:
    """With the true answer; or refused first, with the line and the remedy."""
    found = try_file(written, tmp_path)
    if found.verdict == "not tried":
        pytest.skip(found.said)
    assert found.verdict == ("refused, then read" if written.broken else "read"), found.said
    assert found.tries <= (2 if written.broken else 1)
