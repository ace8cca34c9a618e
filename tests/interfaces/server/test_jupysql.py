"""JupySQL in a notebook's shell: against a server, and on a file by dpsql's own dialect."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import clinic
import pytest
import yaml

from .conftest import PASSWORD, Served, prepared

GROUPED = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY plan"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell as a notebook has it, with JupySQL loaded."""
    if find_spec("jupysql_plugin") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no JupySQL here")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # which a shell replaces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from IPython.core.interactiveshell import InteractiveShell

        made = InteractiveShell.instance()
        try:
            made.run_line_magic("load_ext", "sql")
            yield made
        finally:
            made.run_line_magic("reset", "-f")
            InteractiveShell.clear_instance()


@pytest.mark.slow
def test_jupysql_queries_a_server(shell: Any, shared: Served) -> None:
    address = f"127.0.0.1:{shared.port}/clinic?options={quote('-c dpsql.epsilon=0.25')}"
    shell.run_line_magic("sql", f"postgresql+psycopg://ana:{quote(PASSWORD)}@{address}")
    shell.run_cell_magic("sql", "res <<", GROUPED)
    assert list(shell.user_ns["res"].DataFrame()["plan"]) == ["A", "B"]
    assert "visits" in str(shell.run_line_magic("sqlcmd", "tables"))
    _says_columns(shell)


@pytest.mark.slow
def test_jupysql_queries_a_file(shell: Any, tmp_path: Path) -> None:
    file, store = prepared(tmp_path)
    store.close()
    policy = tmp_path / "clinic.yaml"
    policy.write_text(yaml.safe_dump(clinic.POLICY))
    shell.run_line_magic("sql", f"dpsql:///{file}?policy={policy}&ledger={tmp_path}/a.ledger&epsilon=0.25")
    shell.run_cell_magic("sql", "res <<", GROUPED)
    assert list(shell.user_ns["res"].DataFrame()["plan"]) == ["A", "B"]
    _says_columns(shell)


def _says_columns(shell: Any) -> None:
    """`%sqlcmd columns` asks for no row first, `WHERE 1=0`, and for the columns then."""
    said = str(shell.run_line_magic("sqlcmd", "columns --table visits"))
    assert "plan" in said
    assert "cost" in said
