"""`python -m tests.mutants`: plants faults, and fails unless each is noticed by its test.

It plants all of them, unless --core, --changed or --only select some; together these add up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .fault import Fault
from .faults import FAULTS
from .selection import UnknownChangesError, changed_files, selected
from .trial import Trial, Verdict, Workshop, shares

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit status is 0 if every fault was caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="plant this fault; may be repeated")
    parser.add_argument("--core", action="store_true", help="plant the most dangerous faults")
    parser.add_argument(
        "--changed",
        metavar="REF",
        help="plant the faults of modules that differ from this git ref; the core where git does not say which",
    )
    parser.add_argument("--list", action="store_true", help="say what the faults are, and plant none")
    parser.add_argument(
        "--tests-pass",
        action="store_true",
        help="the whole suite has just passed on these files: do not see to it again",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="copies of the project that are tried at once",
    )
    asked = parser.parse_args(arguments)
    names = asked.only or ()
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    core, changed = asked.core, None
    if asked.changed is not None:
        try:
            changed = changed_files(ROOT, asked.changed)
        except UnknownChangesError as error:
            core = True
            console.print(f"the core alone, since changes are unknown: {error}", markup=False)
    faults = selected(FAULTS, names=names, core=core, changed=changed)
    if asked.list:
        console.print(listed(faults))
        return 0
    if not faults:
        console.print("no module with a fault has changed")
        return 0
    begun = time.monotonic()
    with workshops(ROOT, min(asked.processes, len(faults))) as copies:
        unsound = [] if asked.tests_pass else checked(copies, faults)
        if unsound:
            console.print("the tests must pass before faults are planted:", *unsound, sep="\n", markup=False)
            return 1
        trials = tried(copies, faults)
    console.print(told(trials))
    bad = [trial for trial in trials if trial.verdict is not Verdict.CAUGHT]
    for trial in bad:  # again, where the end of a long output is all that is kept
        console.print(f"{trial.fault.name} {trial.verdict.value}: {trial.said}", markup=False)
    console.print(f"{len(trials)} faults, {len(bad)} not caught, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


@contextmanager
def workshops(project: Path, number: int) -> Iterator[list[Workshop]]:
    """Copies of the project, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as stack:
        roots = [Path(folder) / str(index) for index in range(number)]
        yield [stack.enter_context(Workshop.copied(project, root)) for root in roots]


def checked(copies: Sequence[Workshop], faults: Sequence[Fault]) -> list[str]:
    """What pytest says where the tests that must notice do not all pass without a fault."""
    parts = shares([fault.test for fault in faults], len(copies))
    with ThreadPoolExecutor(len(copies)) as pool:
        runs = pool.map(lambda pair: pair[0].run(pair[1]), zip(copies, filter(None, parts), strict=False))
        return [run.text for run in runs if run.code != 0]


def tried(copies: Sequence[Workshop], faults: Sequence[Fault]) -> list[Trial]:
    """The fate of each fault, in the order of the faults; each copy holds one at a time."""
    free: SimpleQueue[Workshop] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def trial(fault: Fault) -> Trial:
        copy = free.get()
        try:
            return copy.tried(fault)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(trial, faults))


def listed(faults: Sequence[Fault]) -> Table:
    """The faults: where they are, what they break and who must notice."""
    table = Table("fault", "where", "breaks", "must be noticed by", box=None)
    for fault in faults:
        table.add_row(*map(Text, (fault.name, fault.where, fault.breaks, fault.test)))
    return table


def told(trials: Sequence[Trial]) -> Table:
    """The fate of each fault, those that were not caught with the reason."""
    table = Table("fault", "verdict", "by", "seconds", box=None)
    table.columns[-1].justify = "right"
    for trial in trials:
        caught = trial.verdict is Verdict.CAUGHT
        style = "" if caught else "bold red"
        cells = (
            trial.fault.name,
            trial.verdict.value,
            trial.fault.test if caught else f"{trial.fault.test}: {trial.said}",
        )
        table.add_row(*(Text(cell, style) for cell in cells), f"{trial.seconds:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
