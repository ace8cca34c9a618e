"""The versions that were reviewed, and certificates of versions that proved the laws on this machine.

Claim: no query is planned with a version of DuckDB or sqlglot that was neither reviewed nor certified here.
Why: every engine is opened by `open_engine`, which calls `require_verified`; a certificate states the versions, the platform and the
digest of the laws, and one that states anything else does not count. It is written after all laws held, and by the command of an
operator alone: no statement, route or option of a server leads to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

from dpsql.errors import OperationalError
from dpsql.version import VERSION, Version, parse_version

REVIEWED: Final[Mapping[str, tuple[tuple[Version, Version], ...]]] = {
    "duckdb": (((1, 4, 0), (1, 4, 5)), ((1, 5, 3), (1, 5, 6)), ((2, 0, 1), (2, 0, 1))),
    "sqlglot": (((30, 8, 0), (30, 30, 0)),),
}
"""The first and the last version of each range that was reviewed: `tests.versions` tried its ends and its middle."""
VARIABLE: Final = "DPSQL_CERTIFICATE"
COMMAND: Final = "dpsql engines verify"
_NAMES: Final = {"duckdb": "DuckDB", "sqlglot": "sqlglot"}
_MOST_BYTES = 10_000
_LAWS = ("verification", "plan", "sql", "backends")
"""The rooms whose files decide what is tried and what an engine is asked."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a verification states: versions, platform, the digest of the laws that were tried, and that all held."""

    dpsql: str
    duckdb: str
    sqlglot: str
    platform: str
    laws: str
    result: str = "passed"

    def compute_checksum(self) -> str:
        """Return the checksum that is stored beside the statements, by which a damaged file is recognized."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def get_versions() -> dict[str, str]:
    """Return the versions of the libraries that are imported."""
    import duckdb
    import sqlglot

    return {"duckdb": str(duckdb.__version__), "sqlglot": str(sqlglot.__version__)}  # type: ignore[attr-defined]


def is_reviewed(library: str, version: str) -> bool:
    """Return whether a version was reviewed. Only releases are.

    >>> is_reviewed("duckdb", "1.4.5"), is_reviewed("duckdb", "1.4.99"), is_reviewed("sqlglot", "30.8.0.dev1")
    (True, False, False)
    """
    found = parse_version(version)
    return found is not None and any(low <= found <= high for low, high in REVIEWED[library])


def find_unreviewed(versions: Mapping[str, str]) -> dict[str, str]:
    """Return those of the versions that were not reviewed."""
    return {name: version for name, version in versions.items() if not is_reviewed(name, version)}


def build_certificate() -> Certificate:
    """Build the certificate that a verification of the imported versions would state."""
    machine = f"{sys.platform} {platform.machine()} {platform.python_implementation()}"
    return Certificate(VERSION, **get_versions(), platform=machine, laws=compute_laws_digest())


@cache
def compute_laws_digest() -> str:
    """Return the digest of the laws: of every file that says what is tried, and what an engine is asked."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for folder in _LAWS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".jsonl", ".txt"}:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def get_config_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's configuration: $XDG_CONFIG_HOME/dpsql, by default ~/.config/dpsql."""
    known = os.environ if environment is None else environment
    config = Path(known.get("XDG_CONFIG_HOME", ""))
    base = config if config.is_absolute() else Path.home() / ".config"
    return base / "dpsql"


def get_certificate_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the certificate: the file that DPSQL_CERTIFICATE names, or engines.json in the user's configuration."""
    known = os.environ if environment is None else environment
    named = known.get(VARIABLE)
    return Path(named) if named else get_config_folder(known) / "engines.json"


def write_certificate(path: Path) -> None:
    """Write the certificate of the imported versions in one step. Raises OperationalError (`not_written`) if that fails."""
    found = build_certificate()
    text = json.dumps({**asdict(found), "checksum": found.compute_checksum()}, indent=1) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".engines")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as written:
                written.write(text)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        reason = type(error).__name__
    else:
        return
    raise OperationalError(f"cannot write the certificate {path} ({reason})", code="not_written")


def remove_certificate(path: Path) -> None:
    """Remove a certificate, if there is one. Raises OperationalError (`not_written`) if that fails."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = type(error).__name__
    else:
        return
    raise OperationalError(f"cannot remove the certificate {path} ({reason})", code="not_written")


def read_certificate(path: Path) -> Certificate | None:
    """Read a certificate; None if there is none.

    Raises OperationalError (`certificate`) for one that is damaged, or that another user could have written.
    """
    try:
        # What is looked at is what is read, whatever stands at the path meanwhile; a pipe that nobody writes to is no reason to wait.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as opened:
            state = os.fstat(handle)
            content = opened.read(_MOST_BYTES + 1) if stat.S_ISREG(state.st_mode) else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse_certificate(path, f"cannot be read ({type(error).__name__})")
    if os.name == "posix" and (state.st_mode & 0o022 or state.st_uid not in (os.geteuid(), 0)):
        _refuse_certificate(path, "can be written by other users")
    found = _parse_certificate(content) if len(content) <= _MOST_BYTES else None
    if found is None:
        _refuse_certificate(path, "is damaged")
    return found


def _parse_certificate(content: bytes) -> Certificate | None:
    try:
        stated = json.loads(content)
        checksum = stated.pop("checksum")
        if not all(isinstance(value, str) for value in stated.values()):
            return None
        found = Certificate(**stated)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return found if checksum == found.compute_checksum() else None


def _refuse_certificate(path: Path, reason: str) -> NoReturn:
    raise OperationalError(
        f"the certificate {path} {reason}", code="certificate", hint=f"remove it, and run {COMMAND}"
    )


def require_verified(environment: Mapping[str, str] | None = None) -> None:
    """Raise OperationalError (`engine_version`) for a version that was neither reviewed nor certified on this machine."""
    unreviewed = find_unreviewed(get_versions())
    if not unreviewed:
        return
    found = read_certificate(get_certificate_path(environment))
    if found == build_certificate():
        return
    listed = " and ".join(f"{_NAMES[name]} {version}" for name, version in unreviewed.items())
    what = "is for other versions, another platform or other laws" if found else "does not exist"
    raise OperationalError(
        f"{listed} {'was' if len(unreviewed) == 1 else 'were'} not reviewed, and a certificate of this machine {what}",
        code="engine_version",
        hint=f"run {COMMAND}, which takes a minute or two; or install {format_reviewed(*unreviewed)}",
    )


def format_reviewed(*libraries: str) -> str:
    """Return the reviewed versions of libraries in words.

    >>> format_reviewed("sqlglot")
    'sqlglot 30.8.0 to 30.30.0'
    """
    return "; ".join(
        f"{_NAMES[name]} " + ", ".join(_format_range(*ends) for ends in REVIEWED[name]) for name in libraries
    )


def _format_range(low: Version, high: Version) -> str:
    return " to ".join(dict.fromkeys(".".join(map(str, end)) for end in (low, high)))
