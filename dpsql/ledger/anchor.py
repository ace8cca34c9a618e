"""What ties a ledger to its place: the anchor file with its newest head, and the identity of the queried database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dpsql.errors import IntegrityError, OperationalError, PolicyError
from dpsql.ledger.protocol import START, LedgerHead

# Atomic, durable replacement of files.


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of the file at `path`, at once or not at all; only its owner may read it."""
    fresh = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, on systems that support it."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_MOST_BYTES = 200


class AnchorFile:
    """The file at `path` that holds the `LedgerHead` of a ledger, in one line of text.

    It belongs where nothing that puts back an older ledger puts back the anchor too: on another disk or machine.
    """

    def __init__(self, path: str | Path) -> None:
        with _translate_errors(path):
            # Absolute and without links, so that neither a chdir nor the replacement reaches another file.
            self.path = Path(os.path.realpath(path))

    def read_head(self) -> LedgerHead | None:
        """Return the head in the file, None if there is no file; IntegrityError for any other content."""
        with _translate_errors(self.path):
            try:
                with self.path.open("rb") as file:
                    text = file.read(_MOST_BYTES).decode("ascii")
            except FileNotFoundError:
                return None
            except UnicodeDecodeError:
                text = ""
        try:
            return LedgerHead.parse(text.removesuffix("\n"))
        except IntegrityError:
            raise IntegrityError(
                f"the file {self.path} is not an anchor file of a ledger",
                code="anchor_text",
                hint="check the path of the anchor file",
            ) from None

    def replace_head(self, head: LedgerHead) -> None:
        """Replace the head in the file, atomically; durable when it returns."""
        with _translate_errors(self.path):
            replace_file(self.path, f"{head}\n".encode("ascii"))


@contextmanager
def _translate_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        raise OperationalError(
            f"the anchor file {path} cannot be read or written",
            code="anchor_unavailable",
            hint="check that its directory exists, and that this user may write to it",
        ) from None


def read_anchored_head(anchor: AnchorFile | None) -> LedgerHead:
    """Return the head that an anchor holds; START without one."""
    return (None if anchor is None else anchor.read_head()) or START


# The identity of the database that a ledger belongs to, as its entries hold it.


NAMED: Final = "named:"
FILE: Final = "file:"
MEMORY: Final = "memory:"
POSTGRES: Final = "postgresql:"
SPARK: Final = "spark:"
CLICKHOUSE: Final = "clickhouse:"


def can_follow(before: str | None, after: str | None) -> bool:
    """Return whether a ledger of one database goes on as that of another: of the same, or once an owner has named it.

    >>> can_follow(None, "file:/a"), can_follow("file:/a", "named:a"), can_follow("named:a", "file:/a")
    (True, True, False)
    """
    if before is None or before == after:
        return True
    return after is not None and after.startswith(NAMED) and not before.startswith(NAMED)


def require_same_database(where: str, before: str | None, own: str | None) -> None:
    """Raise PolicyError (`another_database`) where a ledger is of another database than `own`; None is unknown.

    A text says which database: "named:" and the owner's name, "file:" and a path, "postgresql:" and the numbers of a server and of a database
    in it, "spark:" and the place of a schema in a catalog, "clickhouse:" and a folder with the name of a database in it, or "memory:" for
    frames and databases in memory, which nothing tells apart but an owner's name.
    """
    if own is None or can_follow(before, own):
        return
    raise PolicyError(
        f"the ledger {where} belongs to the database {_describe_database(before)}, but this database is {_describe_database(own)}",
        code="another_database",
        hint="nothing was charged; use a separate ledger for each database; if this is the same database in another"
        " place, give it a permanent name in the policy: `database: NAME`",
    )


def _describe_database(identity: str | None) -> str:
    text = identity or ""
    if text.startswith(NAMED):
        return repr(text.removeprefix(NAMED))
    return "an unnamed one in memory" if text == MEMORY else text.removeprefix(FILE)
