"""Optional libraries: the errors that say what to install, in the whole package and in dpsql-client."""

from __future__ import annotations

from importlib.util import find_spec


def name_requirement(extra: str) -> str:
    """Return what pip installs for an extra: that of the distribution which is installed.

    >>> name_requirement("pandas")
    'dpsql[pandas]'
    """
    whole = find_spec("dpsql.api.in_process") is not None
    return f"{'dpsql' if whole else 'dpsql-client'}[{extra}]"


def make_missing_library_error(method: str, library: str, extra: str | None = None) -> ImportError:
    """Return the error of a method that needs a library which is not installed; an `extra` installs it."""
    requirement = library if extra is None else f"'{name_requirement(extra)}'"
    return ImportError(
        f"{method} needs {library}, which is not installed: pip install {requirement}", name=library
    )


def require_library(method: str, library: str) -> None:
    """Raise ImportError if a library is not installed: for a method that would need it only after a charge."""
    if find_spec(library) is None:
        raise make_missing_library_error(method, library)
