"""What a notebook does with answers, pictures and errors: no frames of dpsql, no missing widget, and typed cells."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from small_study import write_study
from traitlets.config import Config

import dpsql
from dpsql.api.base_connection import BaseConnection
from dpsql.errors import InternalError
from dpsql.results.json_format import PICKLED
from dpsql.results.result import Result

GROUPS = "SELECT plan, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY plan ORDER BY plan"


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseConnection]:
    """A connection to the small study."""
    database, policy = write_study(tmp_path_factory.mktemp("study"))
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def result(con: BaseConnection) -> Result:
    """A count and a mean of each plan."""
    return con.query(GROUPS, epsilon=5)


def test_pickled_answer_is_the_answer(result: Result) -> None:
    """Its rows, receipt, notices, text, and the intervals at the confidences that are kept; no other."""
    for found in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert found == result
        assert str(found) == str(result)
        assert found.notices == result.notices
        assert all(found.intervals(each) == result.intervals(each) for each in PICKLED)
        assert found.df(intervals=True).equals(result.df(intervals=True))
        with pytest.raises(dpsql.DataError, match=r"no intervals at 0\.97"):
            found.intervals(0.97)
        assert pickle.loads(pickle.dumps(found)) == found


def test_answer_is_its_table_in_a_terminal(result: Result) -> None:
    """A prompt of Python and of IPython show what print shows."""
    assert repr(result) == str(result)
    assert repr(result).splitlines()[0].split() == ["plan", "n", "±95%", "cost", "±95%"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell as notebooks have; it replaces the main module, which processes that are started later need."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))


def test_plot_is_a_picture_without_a_backend(shell: InteractiveShell, result: Result) -> None:
    """A notebook without %matplotlib inline asks a figure for its PNG."""
    data, _ = shell.display_formatter.format(result.plot())
    assert data["image/png"].startswith(b"\x89PNG")


@pytest.mark.parametrize("magic", [False, True])
def test_refusal_has_no_frames_of_dpsql(
    shell: InteractiveShell, con: BaseConnection, capsys: pytest.CaptureFixture[str], magic: bool
) -> None:
    """A cell shows the line that asked, the message with its caret, and the hint: as in the shell."""
    shell.push({"con": con})
    shell.run_cell("%load_ext dpsql\n%dpsql con")
    asked = "%%dpsql\nSELECT nope FROM visits" if magic else 'x = 1\ncon.query("SELECT nope FROM visits")'
    assert not shell.run_cell(asked).success
    shown = capsys.readouterr().out
    assert "QueryRejected: there is no column nope" in shown
    assert "hint: " in shown
    assert len(shown.splitlines()) < 8
    assert "dpsql/" not in shown
    assert magic or 'line 2: con.query("SELECT nope FROM visits")' in shown


def test_bug_keeps_its_frames() -> None:
    """An error of dpsql itself shows where it happened, for a report."""
    with pytest.raises(InternalError) as caught:
        raise InternalError("two derivations differ")
    assert any("test_bug_keeps_its_frames" in line for line in caught.value._render_traceback_())


def test_notebook_without_widgets_connects(tmp_path: Path) -> None:
    """DuckDB refuses any change of its progress bar in a notebook that lacks ipywidgets, where it shows none."""
    database, policy = write_study(tmp_path)
    program = f"""
        import sys
        sys.modules["ipywidgets"] = None
        import IPython
        IPython.get_ipython = lambda: type("Shell", (), {{"config": {{"IPKernelApp": {{}}}}}})()
        import duckdb
        try:
            duckdb.connect({str(tmp_path / "other.duckdb")!r}).execute("PRAGMA disable_progress_bar")
        except duckdb.Error as error:
            assert "ipywidgets" in str(error)
        else:
            print("DuckDB no longer takes this program for a notebook")
        import dpsql
        con = dpsql.connect({str(database)!r}, policy={str(policy)!r}, ledger=":memory:", epsilon=1)
        print(len(con.query("SELECT COUNT(*) FROM visits").rows))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_small_program_passes_strict_types(tmp_path: Path) -> None:
    """Cells can be computed with: their types depend on the query, which a type checker does not read."""
    program = """
        import dpsql

        def main(con: dpsql.Connection) -> None:
            result = con.query("SELECT plan, AVG(cost) AS cost FROM visits GROUP BY plan")
            for plan, cost in result:
                print(f"{plan}: {cost:.1f}")
            print(max(row[1] for row in result.rows) + 1)
            row = con.cursor().execute("SELECT COUNT(*) FROM visits").fetchone()
            assert row is not None
            print(row[0] * 2, con.budget()["visits"].remaining_epsilon)
            ends = result.intervals()[0][1]
            assert ends is not None
            print(ends[1] - ends[0], result.df().cost.mean())
    """
    (tmp_path / "small.py").write_text(textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "small.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(dpsql.__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Success" in done.stdout, done.stdout + done.stderr
