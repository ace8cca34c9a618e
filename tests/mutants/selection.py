"""Which faults a run plants: all, the core, those of changed modules, or some by name."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from .core import CORE
from .fault import Fault


class UnknownChangesError(Exception):
    """git does not say what has changed."""


def selected(
    faults: Sequence[Fault],
    *,
    names: Collection[str] = (),
    core: bool = False,
    changed: Collection[str] | None = None,
) -> list[Fault]:
    """The faults that are in any of the selections, in their order; all of them where nothing is selected.

    `changed` is the files that changed, None if nobody asked for their faults.
    """
    if not names and not core and changed is None:
        return list(faults)
    wanted = {*names, *(CORE if core else ())}
    return [fault for fault in faults if fault.name in wanted or fault.file in (changed or ())]


def changed_files(project: Path, ref: str) -> frozenset[str]:
    """The files of dpsql that differ from a git ref, from the root of the project. Raises UnknownChangesError."""
    command = [
        "git",
        "diff",
        "--name-only",
        "--no-renames",
        "--relative",
        "--end-of-options",
        ref,
        "--",
        "dpsql",
    ]
    try:
        told = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnknownChangesError(f"git cannot be run: {error.strerror}") from None
    if told.returncode != 0:
        raise UnknownChangesError(told.stderr.strip().partition("\n")[0])
    return frozenset(told.stdout.splitlines())
