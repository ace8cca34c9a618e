"""`python -m tests.wheels`: the wheel works where it is installed, on the oldest Python it is for and on the newest one found.

The wheel is built, and installed with its dependencies from the package index in new environments, far from the checkout:
by `pip`, as `pipx install dpsql` and as `uvx dpsql`. In each it says its version, runs the demo, answers a question about a CSV
file and serves analysts. The wheel of dpsql-client is installed by `pip` in an environment of its own, and asks that server. What cannot be had here is said, and is a failure in CI where it is the oldest Python.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 300
_VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
_POLICY = """
version: 1
privacy_unit: patient
budget: {epsilon: 1}
tables:
  visits:
    unit: patient
    rows_per_unit: 5
    columns:
      patient: {type: integer}
      city: {type: varchar, values: [Bonn, Cork], nullable: false}
"""
_QUESTION = "SELECT city, COUNT(*) AS n FROM visits GROUP BY city"


class NotWorkingError(Exception):
    """A command of the installed package that failed, with what it said."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that makes environments, and its version."""

    path: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return "Python {}.{}".format(*self.version)


def oldest_supported() -> tuple[int, int]:
    """The version that the project's `requires-python` begins with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor = re.fullmatch(r">=(\d+)\.(\d+)", project["requires-python"]).groups()
    return int(major), int(minor)


def candidates() -> Iterator[str]:
    """Interpreters that may be there: this one, those of PATH, those of pyenv."""
    yield sys.executable
    for folder in os.get_exec_path():
        yield from sorted(map(str, Path(folder).glob("python3.[0-9]*")))
    root = os.environ.get("PYENV_ROOT")
    if root is None and shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
    if root:
        yield from sorted(map(str, Path(root).glob("versions/*/bin/python3.[0-9]*")))


def pythons(paths: Iterator[str]) -> dict[tuple[int, int], Python]:
    """The first interpreter of each version that is supported and works."""
    found: dict[tuple[int, int], Python] = {}
    for path in paths:
        if not re.fullmatch(r"python[0-9.]*(\.exe)?", Path(path).name):
            continue
        said = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            major, minor = map(int, said.stdout.split())
            if (major, minor) >= oldest_supported():
                found.setdefault((major, minor), Python(path, (major, minor)))
    return found


def run(*command: str | Path, folder: Path) -> str:
    """What a command says. Raises NotWorkingError where it fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=_environment(folder), capture_output=True, text=True,
        check=False, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise NotWorkingError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    """A stranger's environment: nothing of this checkout, settings and tools below the folder."""
    ours = ("PYTHON", "DPSQL", "VIRTUAL_ENV", "PIPX", "XDG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "pipx-bin"),
        "PIPX_MAN_DIR": str(folder / "pipx-man"),
        "UV_PYTHON_DOWNLOADS": "never",
    }


def build(folder: Path) -> Path:
    """The wheel, built from the checkout into the folder."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT)
    (wheel,) = folder.glob("dpsql-*.whl")
    return wheel


def build_client(folder: Path) -> Path:
    """The wheel of dpsql-client, likewise."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT / "client")
    (wheel,) = folder.glob("dpsql_client-*.whl")
    return wheel


def tried(dpsql: Path, python: Python, folder: Path) -> None:
    """Asks an installed `dpsql` what a newcomer does. Raises NotWorkingError where an answer is wrong."""
    _says(run(dpsql, "--version", folder=folder), "Python {}.{}.".format(*python.version))
    _says(run(dpsql, "demo", folder=folder), "5. ")
    write_study(folder)
    answer = run(dpsql, "query", "visits.csv", _QUESTION, "--epsilon", "0.5", "-f", "csv", folder=folder)
    if [line.split(",")[0] for line in answer.split()] != ["city", "Bonn", "Cork"]:
        raise NotWorkingError(f"{_QUESTION}\n{answer}")
    add_analyst(dpsql, folder)
    with serve(dpsql, folder):
        pass


def try_client(wheel: Path, python: Python, folder: Path) -> None:
    """Asks the server of an installed `dpsql[server]` from another environment, which has the client and nothing else."""
    dpsql = folder / "venv/bin/dpsql"
    run(folder / "venv/bin/python", "-m", "pip", "install", "-q", "starlette", "uvicorn", folder=folder)
    run(python.path, "-m", "venv", folder / "client", folder=folder)
    client = folder / "client/bin/python"
    run(client, "-m", "pip", "install", "-q", "--no-index", wheel, folder=folder)
    token = add_token(dpsql, folder)
    (folder / "visits.ledger").unlink()  # the tour has a budget of its own
    with serve(dpsql, folder) as address:
        said = run(client, ROOT / "tests/client_tour.py", address, token, folder=folder)
    _says(said, "the client works")


def write_study(folder: Path) -> None:
    """Writes a CSV file of visits and its policy."""
    rows = (f"{number % 500},{('Bonn', 'Cork')[number % 2]}" for number in range(1_000))
    (folder / "visits.csv").write_text("\n".join(["patient,city", *rows, ""]), encoding="utf-8")
    (folder / "visits.yaml").write_text(_POLICY, encoding="utf-8")


def add_analyst(dpsql: Path, folder: Path) -> None:
    """Adds an analyst to the server's users."""
    run(dpsql, "users", "add", "ana", "--role", "analyst", "--generate", folder=folder)


def add_token(dpsql: Path, folder: Path) -> str:
    """Adds a token of the analyst; its text."""
    said = run(dpsql, "users", "token", "ana", folder=folder)
    return re.search(r"^token: (\S+)$", said, re.MULTILINE)[1]


@contextmanager
def serve(dpsql: Path, folder: Path) -> Iterator[str]:
    """The address of a server's HTTP port, empty without `dpsql[server]`, once it listens; in the end it stops at SIGTERM."""
    command = [str(dpsql), "serve", "visits.yaml", "-d", "visits.csv", "--port", "0", "--http-port", "0"]
    log = folder / "serve.log"
    with log.open("w", encoding="utf-8") as written:
        server = subprocess.Popen(
            command, cwd=folder, env=_environment(folder), stdout=written, stderr=written
        )
        try:
            until = time.monotonic() + SECONDS
            while "Ctrl-C stops" not in (said := log.read_text("utf-8")):
                if server.poll() is not None or time.monotonic() > until:
                    raise NotWorkingError(f"{' '.join(command)}\n{said}")
                time.sleep(0.1)
            found = re.search(r"^HTTP: listening on (\S+)$", said, re.MULTILINE)
            yield f"http://{found[1]}" if found else ""
            server.send_signal(signal.SIGTERM)
            if server.wait(SECONDS):
                raise NotWorkingError(f"{' '.join(command)} ended with {server.returncode}\n{said}")
        finally:
            server.kill()


def _says(said: str, words: str) -> None:
    if words not in said:
        raise NotWorkingError(f"nothing says {words!r}:\n{said}")


def by_pip(wheel: Path, python: Python, folder: Path) -> Path:
    """The command in a virtual environment."""
    run(python.path, "-m", "venv", folder / "venv", folder=folder)
    run(folder / "venv/bin/python", "-m", "pip", "install", "-q", "--no-compile", wheel, folder=folder)
    return folder / "venv/bin/dpsql"


def by_pipx(wheel: Path, python: Python, folder: Path) -> Path:
    """The command of `pipx install`, whose manual page is there, too."""
    run("pipx", "install", "-q", "--python", python.path, wheel, folder=folder)
    if not (folder / "pipx-man/man1/dpsql.1").is_file():
        raise NotWorkingError("pipx installs no manual page")
    return folder / "pipx-bin/dpsql"


def by_uv(wheel: Path, python: Python, folder: Path) -> Path:
    """A command that runs `uvx dpsql`."""
    command = folder / "uvx-dpsql"
    command.write_text(
        f'#!/bin/sh\nexec uvx --python "{python.path}" --from "{wheel}" dpsql "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    return command


_WAYS: dict[str, Callable[[Path, Python, Path], Path]] = {
    "pip install": by_pip,
    "pipx install": by_pipx,
    "uvx": by_uv,
}


def plan(found: dict[tuple[int, int], Python]) -> Iterator[tuple[str, Python]]:
    """How the wheel is installed on which Python: by pip on the oldest, by each other tool on the newest."""
    oldest = found.get(oldest_supported())
    yield from (("pip install", oldest),) if oldest is not None else ()
    yield from ((way, found[max(found)]) for way in _WAYS if way != "pip install")


def main() -> int:
    """Tries all ways; the exit status is 0 if each that can be had works."""
    found = pythons(candidates())
    failed = False
    with tempfile.TemporaryDirectory() as place:
        wheel, client = build(Path(place)), build_client(Path(place))
        if oldest_supported() not in found:
            print("not seen: there is no Python {}.{} here".format(*oldest_supported()))
            failed = bool(os.environ.get("CI"))
        if max(found) == oldest_supported():
            print("not seen: there is no newer Python here")
        for number, (way, python) in enumerate(plan(found)):
            tool = way.split()[0]
            if tool != "pip" and shutil.which(tool) is None:
                print(f"not seen: there is no {tool} here")
                continue
            folder = Path(place, str(number))
            folder.mkdir()
            begun = time.monotonic()
            try:
                tried(_WAYS[way](wheel, python, folder), python, folder)
                if way == "pip install":
                    newest = found[max(found)]
                    try_client(client, newest, folder)
                    print(f"pip install dpsql-client on {newest}: queries that server")
            except (NotWorkingError, subprocess.TimeoutExpired) as error:
                print(f"FAILED {way} on {python}: {error}")
                failed = True
            else:
                print(f"{way} on {python}: version, demo, answer, server ({time.monotonic() - begun:.0f} s)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
