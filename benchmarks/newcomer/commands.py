"""Count the commands and seconds that it takes a newcomer to a first private answer.

An empty environment, a CSV file of one's own, and the commands that the README has for that, typed in a terminal as they stand
there; `dpsql init` is told what it asks. What is counted is all that is typed, and the time until the answer is there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
HEADING = "## Your own file"
_ANSWERS: Mapping[str, str] = {
    r"privacy unit": "patient",
    r"unit of a row": "patient",
    r"rows per unit": "10",
    r"\.age ": "0, 110",
    r"\.city ": "Bonn, Cork, Lyon",
    r"\.cost ": "0, 1000",
}
"""What is told where `dpsql init` asks for it; all else is as it proposes."""
_PROMPT = r"\S: $"
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Typed:
    """A command, how long it took, and what it said."""

    command: str
    seconds: float
    said: str


def commands() -> tuple[str, ...]:
    """What the README tells a newcomer to type."""
    text = README.read_text(encoding="utf-8")
    block = re.search(rf"^{HEADING}\n.*?^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if block is None:
        raise LookupError(HEADING)
    return tuple(re.sub(r"\s+#.*", "", line) for line in block[1].splitlines())


def own_file(folder: Path) -> None:
    """A CSV file of 2,000 visits of 400 patients, by arithmetic."""
    rows = (
        f"{number % 400},{20 + number % 60},{('Bonn', 'Cork', 'Lyon')[number % 400 % 3]},{number * 37 % 1000}"
        for number in range(2_000)
    )
    (folder / "visits.csv").write_text("\n".join(["patient,age,city,cost", *rows, ""]), encoding="utf-8")


def typed(folder: Path) -> Iterator[Typed]:
    """Types the commands in a new environment below a folder, beside a file of one's own."""
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
    own_file(folder)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "DPSQL", "VIRTUAL_ENV"))
    }
    environment["PATH"] = f"{folder / 'environment' / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    for command in commands():
        begun = time.monotonic()
        place = ROOT if command.startswith("pip ") else folder
        said = _in_terminal(command, place, environment)
        yield Typed(command, time.monotonic() - begun, said)


def _in_terminal(command: str, place: Path, environment: Mapping[str, str]) -> str:
    """What a command says in a terminal, told what it asks for. Raises RuntimeError where it fails."""
    import pexpect

    said, before = "", ""
    child = pexpect.spawn(
        "/bin/sh", ["-c", command], cwd=str(place), env=dict(environment), encoding="utf-8",
        timeout=_SECONDS, dimensions=(50, 120),
    )  # fmt: skip
    while child.expect([pexpect.EOF, _PROMPT]):
        said += f"{child.before}{child.after}"
        asked = said.splitlines()[-1]
        if asked == before:
            raise RuntimeError(f"{command} asks again:\n{said}")
        before = asked
        child.sendline(next((told for word, told in _ANSWERS.items() if re.search(word, asked)), ""))
    said += str(child.before)
    child.close()
    if child.exitstatus:
        raise RuntimeError(f"{command}\n{said}")
    return said


def print_commands() -> None:
    """Type the commands; print what each took, and the answer."""
    table = Table(title="from an empty environment to a private answer")
    table.add_column("command")
    table.add_column("seconds", justify="right")
    with tempfile.TemporaryDirectory() as folder:
        found = list(typed(Path(folder)))
    for each in found:
        table.add_row(each.command, f"{each.seconds:.1f}")
    table.add_row(f"{len(found)} commands", f"{sum(each.seconds for each in found):.1f}")
    Console(width=110).print(table)
    print(found[-1].said)
