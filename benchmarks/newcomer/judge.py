"""Try files as other programs write them: a draft of `dpsql init`, its TODOs filled in, `dpsql check`, and an answer.

What an error or `dpsql check` says to write is written, once. A file is then read, with the true answer, or refused with the line and the
remedy; else it is wrong.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import io
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import dpsql
from benchmarks.newcomer.writers import WRITERS, Written, list_visits
from dpsql.interfaces.cli import main

TRIES = 2
_EPSILON = 1e9
_REMEDY = re.compile(r"`(file: \{[^`]*\})`")
_COLUMN = re.compile(r'^visits\.(.+?): .*; write (\w+: "[^"]*")', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a file: read, refused with the remedy, not tried, or wrong; after how many tries, and what was last said."""

    program: str
    verdict: str
    tries: int
    said: str = ""


def try_file(written: Written, folder: Path) -> Tried:
    """Write a file and try it. Each run of a command that needs a change of the policy is one try."""
    missing = [name for name in ("openpyxl", "python_calamine") if importlib.util.find_spec(name) is None]
    if written.file.endswith(".xlsx") and missing:
        return Tried(written.program, "not tried", 0, f"{missing[0]} is not installed")
    file, policy = folder / written.file, folder / "visits.yaml"
    written.write(file, list_visits())
    drafted = _run("init", file, "-o", policy)
    if not policy.is_file():
        return Tried(written.program, "wrong", 1, drafted)
    policy.write_text(_fill(policy.read_text(encoding="utf-8"), written), encoding="utf-8")
    refused = False
    for number in range(1, TRIES + 1):
        said = _run("check", policy, file)
        answer = _ask(file, policy, written)
        if answer == _compute_truth():
            return Tried(written.program, "refused, then read" if refused else "read", number)
        if not _mend(policy, said):
            return Tried(written.program, "wrong", number, f"{said}\n{answer}")
        refused = "error[source]" in said and re.search(r"at line \d+: ", said) is not None
    return Tried(written.program, "wrong", TRIES, said)


def _run(*arguments: object) -> str:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), suppress(SystemExit):
        main([str(each) for each in arguments])
    return said.getvalue()


def _fill(draft: str, written: Written) -> str:
    """Return the policy with what an owner knows of the subject."""
    patient, day, cost = map(re.escape, written.columns)
    for pattern, text in (
        (r"^privacy_unit: TODO", "privacy_unit: patient"),
        (r"epsilon: TODO", f"epsilon: {_EPSILON:.0f}"),
        (r"delta: TODO", "delta: 1e-7"),
        (r"^    unit: TODO.*", f"    unit: {written.columns[0]}"),
        (r"^    rows_per_unit: TODO.*", "    rows_per_unit: 20"),
        (rf"^(      {day}: {{type: \w+)(.*)}}", r"\1\2, bounds: [2025-01-01, 2025-12-31]}"),
        (rf"^(      {cost}: {{type: \w+)(.*)}}", r"\1\2, bounds: [-100, 3000]}"),
        (rf"^(      {patient}: {{type: \w+)(.*)}}", r"\1\2}"),
    ):
        draft = re.sub(pattern, text, draft, flags=re.MULTILINE)
    return draft


def _mend(policy: Path, said: str) -> bool:
    """Write into the policy what an error or `dpsql check` says; return whether it says anything."""
    text = policy.read_text(encoding="utf-8")
    mended = text
    if remedy := _REMEDY.search(said):
        line = next((each for each in text.splitlines() if each.startswith("    file: ")), None)
        mended = (
            text.replace("\n  visits:\n", f"\n  visits:\n    {remedy[1]}\n")
            if line is None
            else text.replace(line, re.sub(r"\}.*", f", {remedy[1].removeprefix('file: {')}", line))
        )
    for column, key in _COLUMN.findall(said):
        mended = re.sub(
            rf"^(      {re.escape(column)}: {{type: \w+)", rf"\1, {key}", mended, flags=re.MULTILINE
        )
    policy.write_text(mended, encoding="utf-8")
    return mended != text


def _ask(file: Path, policy: Path, written: Written) -> object:
    """Return the answer, rounded as noise of this ε leaves it; or the error."""
    _, day, cost = written.columns
    sql = f'SELECT COUNT(*), COUNT("{cost}"), COUNT(*) FILTER (WHERE "{day}" < DATE \'2025-07-01\'), SUM("{cost}") FROM visits'
    try:
        with dpsql.connect(file, policy=policy, ledger=":memory:", epsilon=_EPSILON / 100) as opened:
            ((rows, costs, early, total),) = opened.query(sql).rows
    except dpsql.Error as error:
        return f"error[{error.code}]: {error}"
    return rows, costs, early, round(total)


def _compute_truth() -> object:
    """Return the true answer."""
    visits = list_visits()
    costs = [each.cost for each in visits if each.cost is not None]
    early = sum(each.day < dt.date(2025, 7, 1) for each in visits)
    return len(visits), len(costs), early, round(sum(costs))


def print_files() -> None:
    """Print what becomes of each file."""
    table = Table(title=f"files as other programs write them, in at most {TRIES} tries")
    for name in ("written by", "verdict", "tries"):
        table.add_column(name)
    wrong = list[Tried]()
    for written in WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            found = try_file(written, Path(folder))
        table.add_row(found.program, found.verdict, str(found.tries))
        wrong += [found] if found.verdict == "wrong" else []
    Console(width=100).print(table)
    for found in wrong:
        print(f"{found.program}:\n{found.said}")
