"""dpsql-client where it is installed: against a server, alone, and beside the whole package in any order.

The environments are fresh. The whole wheel's dependencies are lent to them from the tests' own environment, since only the files of
the two wheels matter here; `python -m tests.wheels` installs them, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dpsql
from tests import wheels

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "tests" / "client_tour.py"
_WHAT_IT_IS = """
import dpsql, sys
try:
    dpsql.connect("none.duckdb")
except dpsql.Error as error:
    print(error.code)
assert dpsql.__name__ == "dpsql" and dpsql.Error is __import__("dpsql.errors").errors.Error
assert type(dpsql.connect("http://localhost:1", token="dpsql_0_0")).__module__ == "dpsql.api.remote"
"""
_QUERY = """
import dpsql
policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"people": {"unit": "row", "columns": {}}}}
import pyarrow
with dpsql.connect({"people": pyarrow.table({"age": [30, 40]})}, policy=policy, ledger=":memory:") as con:
    print(len(con.query("SELECT COUNT(*) FROM people", epsilon=0.5)))
"""


class Environment:
    """A virtual environment, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"
        self._folder = folder

    @classmethod
    def create(cls, folder: Path, *, lends_libraries: bool) -> Environment:
        """Make an environment; it may see the libraries of the tests' environment, behind its own."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        made = cls(folder)
        if lends_libraries:
            made.site.joinpath("zz_lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        return made

    @property
    def site(self) -> Path:
        (found,) = self._folder.glob("lib/python*/site-packages")
        return found

    def run(self, *arguments: str | Path) -> str:
        """What the interpreter prints, far from the checkout; fails with its errors."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPSQL"))}
        done = subprocess.run(
            [self.python, *arguments], cwd=self._folder, env=kept, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pip(self, command: str, *arguments: str | Path) -> None:
        """Run pip, which finds nothing but the files that are named."""
        offline = ["--no-index", "--no-deps", "--no-compile"] if command == "install" else ["-y"]
        self.run("-m", "pip", command, "-q", "--disable-pip-version-check", *offline, *arguments)

    def list_files(self) -> set[str]:
        """The files of the environment that either wheel may have installed."""
        return {
            path.relative_to(self._folder).as_posix()
            for path in self._folder.rglob("*")
            if path.is_file() and "dpsql" in path.relative_to(self._folder).as_posix()
        }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels: the whole package, and the client."""
    folder = tmp_path_factory.mktemp("wheels")
    return wheels.build(folder), wheels.build_client(folder)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a server of the checkout in a process of its own, and a token of an analyst."""
    os.environ.pop("DPSQL_TOKEN", None)
    command = folder / "dpsql"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dpsql "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    wheels.write_study(folder)
    wheels.add_analyst(command, folder)
    token = wheels.add_token(command, folder)
    with wheels.serve(command, folder) as address:
        yield address, token


def test_client_asks_a_server_without_any_library(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In an environment with the client alone all of its interface works; and so do data frames, where pandas is installed."""
    _, client = built
    alone = Environment.create(tmp_path / "alone", lends_libraries=False)
    alone.pip("install", client)
    with served(tmp_path) as (address, token):
        assert alone.run(TOUR, address, token).startswith("the client works")
        lent = Environment.create(tmp_path / "lent", lends_libraries=True)
        lent.pip("install", client)
        assert lent.run(TOUR, address, token, "--frames").startswith("the client works")


def test_both_wheels_live_in_one_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Whichever is installed first, the whole package is what `import dpsql` means; whichever leaves, the other still works."""
    whole, client = built
    environment = Environment.create(tmp_path / "both", lends_libraries=True)
    before = environment.list_files()
    environment.pip("install", client)
    assert environment.run("-c", _WHAT_IT_IS) == "engine_missing"
    environment.pip("install", whole)
    assert environment.run("-c", _WHAT_IT_IS) == "policy_missing"
    assert environment.run("-c", _QUERY) == "1"

    environment.pip("uninstall", "dpsql")
    left = environment.site / "dpsql" / "__pycache__"  # as of files that somebody else had put there
    left.mkdir(parents=True, exist_ok=True)
    assert environment.run("-c", _WHAT_IT_IS) == "engine_missing"

    environment.pip("install", whole)
    environment.pip("uninstall", "dpsql-client")
    assert environment.run("-c", _QUERY) == "1"
    environment.pip("install", client)  # after the whole package, this time
    assert environment.run("-c", _QUERY) == "1"
    assert environment.run("-m", "dpsql", "--version").startswith("dpsql 0.")

    environment.pip("uninstall", "dpsql-client", "dpsql")
    assert environment.list_files() == before


def test_client_runs_where_pip_did_not_install_it(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In a folder of `sys.path`, as of `pip install --target`, it is found, too; as a command it explains itself."""
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(tmp_path)
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n{_WHAT_IT_IS}"
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("engine_missing\n", "")
    command = [sys.executable, "-S", "-m", "dpsql", "--version"]
    ran = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("dpsql-client has no commands: pip install .")


def test_wheels_share_a_version_and_no_path(built: tuple[Path, Path]) -> None:
    """Both are of the version in `dpsql/version.py`; pip would let files of one overwrite those of the other."""
    names: list[set[str]] = []
    for wheel in built:
        assert wheel.name.split("-")[1] == dpsql.__version__
        with zipfile.ZipFile(wheel) as archive:
            names.append(set(archive.namelist()))
    assert not names[0] & names[1]
    assert {name.split("/")[0] for name in names[1]} == {
        "dpsql.py",
        "dpsql_client",
        f"dpsql_client-{dpsql.__version__}.dist-info",
    }
