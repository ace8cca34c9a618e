"""Optional libraries: the errors that say what to install, in the whole package and in dpsql-client."""

from __future__ import annotations

from importlib.util import find_spec

from dpsql.version import write_pip_command


def write_extra_command(extra: str) -> str:
    """Return the command that installs an extra of the distribution which is installed.

    >>> write_extra_command("pandas")
    "pip install '.[pandas]' in a checkout of dpsql"
    """
    return write_pip_command(extra, client=find_spec("dpsql.api.in_process") is None)


def make_missing_library_error(method: str, library: str, extra: str | None = None) -> ImportError:
    """Return the error of a method that needs a library which is not installed; an `extra` installs it."""
    command = f"pip install {library}" if extra is None else write_extra_command(extra)
    return ImportError(f"{method} needs {library}, which is not installed: {command}", name=library)


def require_library(method: str, library: str) -> None:
    """Raise ImportError if a library is not installed: for a method that would need it only after a charge."""
    if find_spec(library) is None:
        raise make_missing_library_error(method, library)
