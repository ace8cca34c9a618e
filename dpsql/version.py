"""The version of dpsql, which receipts and the entries of ledgers state, what pip installs, and versions of the libraries below it."""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION = "0.3.0.dev0"

DISTRIBUTION = "."
CLIENT_DISTRIBUTION = "./client"
"""What pip installs: folders of a checkout, until an index has them by name. `tests/repo/test_installation.py` holds documents to them."""

Version = tuple[int, ...]


def write_pip_command(extra: str = "", *, client: bool = False) -> str:
    """Return the command that installs dpsql, or its client, with an extra.

    >>> write_pip_command("plot")
    "pip install '.[plot]' in a checkout of dpsql"
    """
    place = CLIENT_DISTRIBUTION if client else DISTRIBUTION
    where = " in a checkout of dpsql" if place.startswith(".") else ""
    return f"pip install '{place}[{extra}]'{where}" if extra else f"pip install {place}{where}"


def parse_version(text: str) -> Version | None:
    """Return the numbers of a release, or None for a version that is not a release.

    >>> parse_version("1.4.5"), parse_version("2.1.0.dev12")
    ((1, 4, 5), None)
    """
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d{1,6}(\.\d{1,6}){1,3}", text) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """What a library has `since` a version, what dpsql does with an older one, and why that is enough."""

    since: Version
    has: str
    before: str
    why: str

    def is_in(self, installed: str) -> bool:
        """Return whether an installed version has it; a version that is not a release counts as the newest."""
        version = parse_version(installed)
        return version is None or version >= self.since
