"""The magics of notebooks, the notebooks of examples/, and charts of Altair."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from small_study import write_study
from traitlets.config import Config

import dpsql
from dpsql.results.result import Result

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def interactive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """A shell as notebooks have, which writes no history."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # which a shell replaces
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
        yield shell


def ran(shell: InteractiveShell, code: str) -> Any:
    """What a cell gives. Its error is raised."""
    found = shell.run_cell(code)
    found.raise_error()
    return found.result


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, interactive: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All cells, from top to bottom, in an empty folder; no output is stored."""
    monkeypatch.chdir(tmp_path)
    cells = [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    shown = [ran(interactive, "".join(cell["source"])) for cell in cells]
    assert any(isinstance(value, Result) for value in shown)


def test_magics_query_and_refuse(
    interactive: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line, a cell with options and a variable; what is no option, and no connection, is refused."""
    monkeypatch.chdir(tmp_path)
    database, _ = write_study(tmp_path)
    ran(interactive, "%load_ext dpsql\n%reload_ext dpsql")
    with pytest.raises(dpsql.ProgrammingError, match="no database is open"):
        ran(interactive, "%dpsql SELECT COUNT(*) FROM visits")
    ran(interactive, f'%dpsql connect "{database}" --policy study.yaml --ledger :memory: -e 5')
    line = ran(interactive, "%dpsql SELECT COUNT(*) AS n FROM visits;")
    assert abs(line.rows[0][0] - 1500) < 100
    assert (
        ran(
            interactive,
            "%%dpsql --epsilon 8 --into res\nSELECT plan, COUNT(*) AS n\nFROM visits GROUP BY plan",
        )
        is None
    )
    result = interactive.user_ns["res"]
    assert len(result) == 3
    assert "visits" in ran(interactive, "%dpsql budget")
    with dpsql.connect(database, policy="study.yaml", ledger=":memory:", epsilon=1) as con:
        interactive.push({"other": con})
        ran(interactive, "%dpsql other")
        ran(interactive, "%dpsql SELECT COUNT(*) FROM visits")
        assert con.budget()["visits"].queries == 1
    for wrong in ("%%dpsql --speed 3\nSELECT 1", "%dpsql", "%dpsql connect study.duckdb --colour red"):
        with pytest.raises(dpsql.ProgrammingError):
            ran(interactive, wrong)


def test_a_chart_has_each_value_with_its_interval(tmp_path: Path) -> None:
    """Labels or an axis, a pane a column, in a valid specification of released values alone."""
    database, policy = write_study(tmp_path)
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=2) as con:
        plans = con.query("SELECT plan, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY plan")
        days = con.query(
            "SELECT date_trunc('month', day) AS month, COUNT(*) AS n FROM visits WHERE day >= DATE '2024-01-01' GROUP BY 1 ORDER BY 1"
        )
    both = plans.chart(title="plans").to_dict()
    assert both["title"] == "plans"
    assert len(both["hconcat"]) == 2
    one = plans.chart(y="n").to_dict()
    rows = next(iter(one["datasets"].values())) if "datasets" in one else one["data"]["values"]
    assert [(row["key"], row["value"]) for row in rows] == [(plan, n) for plan, n, _ in plans.rows]
    assert [(row["low"], row["high"]) for row in rows] == [
        tuple(map(float, ends[1] or ())) for ends in plans.intervals()
    ]
    bars, _ = days.chart().to_dict()["layer"]
    assert bars["encoding"]["x"]["type"] == "temporal"
    with pytest.raises(dpsql.DataError):
        plans.chart(y="plan")


def test_charts_without_altair_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Altair."""
    database, policy = write_study(tmp_path)
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=2) as con:
        plans = con.query("SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan")
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(dpsql.ProgrammingError) as refused:
        plans.chart()
    assert refused.value.code == "plot_unavailable"
