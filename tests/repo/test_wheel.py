"""The wheel that is built holds the whole package, and its command runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_is_whole_and_its_command_runs(tmp_path: Path) -> None:
    """Built from the checkout, unpacked elsewhere: every module, the type marker, the demo's data, and `dpsql --version`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "dpsql").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert any(name.endswith("share/man/man1/dpsql.1") for name in names)
    assert not {name for name in names if name.startswith(("tests", "docs", "examples", "benchmarks"))}
    ran = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import dpsql, dpsql.cli; print(dpsql.__file__); dpsql.cli.main(['--version'])",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=False,
        capture_output=True,
        text=True,
    )
    where, said = ran.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert said.startswith("dpsql 0.")
    assert ran.returncode == 0
