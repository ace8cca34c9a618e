"""The anchor: a small file that holds the newest head, so that an older copy of the ledger is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.errors import IntegrityError, OperationalError
from dpsql.ledger.atomic_file import replace_file
from dpsql.ledger.protocol import Head
from dpsql.ledger.rows import START

_MOST_BYTES = 200


class Anchor:
    """The file at `path` that holds the `Head` of a ledger, in one line of text.

    It belongs where nothing that puts back an older ledger puts back the anchor too: on another disk or machine.
    """

    def __init__(self, path: str | Path) -> None:
        with _explained(path):
            # Absolute and without links, so that neither a chdir nor the replacing leads to another file.
            self.path = Path(os.path.realpath(path))

    def head(self) -> Head | None:
        """The head in the file, None if there is no file; IntegrityError for any other content."""
        with _explained(self.path):
            try:
                with self.path.open("rb") as file:
                    text = file.read(_MOST_BYTES).decode("ascii")
            except FileNotFoundError:
                return None
            except UnicodeDecodeError:
                text = ""
        try:
            return Head.parse(text.removesuffix("\n"))
        except IntegrityError:
            raise IntegrityError(
                f"{self.path} is not the anchor of a ledger",
                code="anchor_text",
                hint="give the anchor's own path",
            ) from None

    def replace(self, head: Head) -> None:
        """Replaces the head in the file, atomically; durable when it returns."""
        with _explained(self.path):
            replace_file(self.path, f"{head}\n".encode("ascii"))


@contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        raise OperationalError(
            f"the anchor {path} cannot be read or written",
            code="anchor_unavailable",
            hint="check that its directory is there, and that this user may write it",
        ) from None


def anchored_head(anchor: Anchor | None) -> Head:
    """The head that an anchor holds; START without one."""
    return (None if anchor is None else anchor.head()) or START
