"""Tries dpsql on the reviewed versions of DuckDB and sqlglot, each pair in a virtual environment of its own.

`python -m tests.versions` runs `dpsql engines verify` and a part of the test suite on the ends and the middle of each range, and
writes what it saw to docs/reference/engine_versions.json, of which the page on engines is made; `--laws` leaves the tests out, and
`--duckdb` chooses pairs. `--core` runs `dpsql engines
verify` alone on two pairs, and writes nothing: CI does that. The environments see the packages of the current one, but for DuckDB
and sqlglot.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "reference" / "engine_versions.json"
PAIRS = (
    ("1.4.0", "30.8.0"),
    ("1.4.2", "30.19.0"),
    ("1.4.5", "30.30.0"),
    ("1.5.3", "30.30.0"),
    ("1.5.6", "30.8.0"),
    ("2.0.1", "30.8.0"),
    ("2.0.1", "30.30.0"),
)
"""The ends and the middle of each range, each with an end or the middle of the other's."""
CORE = (("1.4.5", "30.8.0"), ("1.5.6", "30.30.0"))
"""The pairs that CI tries; the newest ones run the whole test suite there."""
TESTS = (
    "tests/backends/test_settings.py",
    "tests/backends/test_lockdown.py",
    "tests/backends/test_duckdb.py",
    "tests/backends/test_scratch_database.py",
    "tests/sql/test_grouping_sets.py",
    "tests/sql/test_schemas.py",
    "tests/sql/test_dialects.py",
    "tests/attacks/test_a29_broken_text_of_owners.py",
)
"""The part of the test suite that is about engines and parsers, beside the laws and the corpus."""


def make_environment(folder: Path, duckdb: str, sqlglot: str) -> Path:
    """The Python of a new environment with these versions."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = [f"duckdb=={duckdb}", f"sqlglot=={sqlglot}"]
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        *wanted,
    ]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    own = Path(paths["purelib"])
    (own / "base.pth").write_text(f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    return python


def try_pair(duckdb: str, sqlglot: str, *, core: bool) -> dict[str, Any]:
    """What was seen on a pair of versions."""
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(Path(folder) / "venv", duckdb, sqlglot)
        certificate = Path(folder) / "engines.json"
        begun = time.monotonic()
        verified = run(python, ["-m", "dpsql", "engines", "verify", "--certificate", str(certificate)])
        seconds = round(time.monotonic() - begun)
        found: dict[str, Any] = {
            "duckdb": duckdb,
            "sqlglot": sqlglot,
            "laws": len(re.findall(r"  holds  ", verified.stdout)),
            "broken": re.findall(r"^(.+?)  +BROKEN", verified.stdout, re.MULTILINE),
            "certified": verified.returncode == 0 and certificate.is_file(),
            "seconds": seconds,
        }
        if not found["certified"]:
            print(verified.stdout, verified.stderr)
        if not core:
            tested = run(
                python, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--speed", "fast", "-rf", *TESTS]
            )
            counts = {
                word: int(number)
                for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", tested.stdout)
            }
            found |= {"passed": counts.get("passed", 0), "skipped": counts.get("skipped", 0)}
            found["failed"] = counts.get("failed", 0) + counts.get("error", 0) if counts else None
            if tested.returncode:
                print("\n".join(tested.stdout.splitlines()[-40:]))
        return found


def run(python: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a module of an environment on this repository."""
    known = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTEST_ADDOPTS": "-o console_output_style=count --no-header -v",
    }
    if "pytest" not in arguments:
        known.pop("PYTEST_ADDOPTS")
    return subprocess.run(
        [python, *arguments], cwd=ROOT, env=known, capture_output=True, text=True, check=False
    )


def record(found: dict[str, Any]) -> None:
    """Puts what was seen on a pair in the place of what was seen before."""
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    known = {(each["duckdb"], each["sqlglot"]): each for each in [*before, found]}
    RESULTS.write_text(
        json.dumps([known[pair] for pair in PAIRS if pair in known], indent=1) + "\n", encoding="utf-8"
    )


def main() -> None:
    """Tries all pairs, or those of CI."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--core", action="store_true", help="the laws on the pairs of CI alone; nothing is written"
    )
    parser.add_argument("--laws", action="store_true", help="the laws alone, and no tests")
    parser.add_argument("--duckdb", help="the pairs with this version of DuckDB")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    pairs = [pair for pair in (CORE if given.core else PAIRS) if given.duckdb in (None, pair[0])]
    found = []
    with ThreadPoolExecutor(given.processes) as pool:
        tried = [pool.submit(try_pair, *pair, core=given.core or given.laws) for pair in pairs]
        for each in map(Future.result, as_completed(tried)):
            print(json.dumps(each), flush=True)
            found.append(each)
            if not given.core:
                record(each)
    failed = [each for each in found if not each["certified"] or each.get("failed", 0) != 0]
    sys.exit(f"{len(failed)} of {len(found)} pairs failed" if failed else 0)


if __name__ == "__main__":
    main()
