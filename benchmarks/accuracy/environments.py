"""A virtual environment for each peer, made once and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Peer:
    """A system to compare with: its name, the module of `benchmarks.accuracy.peers` that asks it, what is installed."""

    name: str
    module: str
    requirements: tuple[str, ...]

    def folder(self, environments: Path) -> Path:
        """Where its environment is: another one for other requirements or another Python."""
        made_of = "\n".join((sys.version, *self.requirements))
        return environments / f"{self.module}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


PEERS = (
    Peer("smartnoise-sql", "smartnoise", ("smartnoise-sql==1.0.10", "duckdb>=1.4")),
    Peer("opendp[polars]", "opendp", ("opendp[polars]==0.16.0",)),
    Peer("pipeline-dp", "pipelinedp", ("pipeline-dp==0.3.1", "duckdb>=1.4")),
    Peer("pyqrlew", "qrlew", ("pyqrlew==0.9.27", "duckdb>=1.4")),
)


class NotInstalledError(Exception):
    """A peer could not be installed; says why."""


def kept() -> Path:
    """Where environments are kept unless somebody says otherwise: under the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "dpsql" / "benchmarks"


def python(peer: Peer, environments: Path) -> Path:
    """The interpreter of the peer's environment, which is made if it is not there.

    Raises NotInstalledError with what pip said last.
    """
    folder = peer.folder(environments)
    found = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"making {folder} for {peer.name}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(found), "-m", "pip", "install", "--quiet", *peer.requirements]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise NotInstalledError((run.stderr.strip().splitlines() or ["pip failed"])[-1])
        ready.touch()
    return found
