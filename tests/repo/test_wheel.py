"""The wheel that is built holds the whole package, and its command runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests import wheels

ROOT = Path(__file__).parents[2]


def test_wheel_is_complete_and_its_command_runs(tmp_path: Path) -> None:
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
            "import dpsql, dpsql.interfaces.cli; print(dpsql.__file__); dpsql.interfaces.cli.main(['--version'])",
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


def test_other_pythons_are_found_by_their_version(tmp_path: Path) -> None:
    """The first interpreter of each supported version counts; older ones, and those that cannot make environments, do not."""
    said = {
        "a/python3.11": "echo 3 11",
        "a/python3.9": "echo 3 9",
        "a/python3.12": "exit 127",
        "b/python3.12": "echo 3 12",
    }
    for name, command in (said | {"b/python3.11": "echo 3 11", "b/python3.11-config": "echo 3 13"}).items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        place.chmod(0o755)
    found = wheels.pythons(iter(sorted(map(str, tmp_path.glob("*/python*")))))
    assert {version: str(Path(python.path).relative_to(tmp_path)) for version, python in found.items()} == {
        (3, 11): "a/python3.11",
        (3, 12): "b/python3.12",
    }
    assert [(way, python.version) for way, python in wheels.plan(found)] == [
        ("pip install", (3, 11)),
        ("pipx install", (3, 12)),
        ("uvx", (3, 12)),
    ]
