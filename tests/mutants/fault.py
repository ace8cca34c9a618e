"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass


class StaleError(Exception):
    """The source has changed under a fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A patch of one place: `old`, which dpsql/`file` holds exactly once, becomes `new`.

    `breaks` says what is wrong then, `test` is the node id of a test that must fail.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    test: str

    @property
    def package(self) -> str:
        """The package or module of dpsql that the fault is in."""
        return self.file.partition("/")[0].removesuffix(".py")

    def planted(self, text: str) -> str:
        """The file's text with the fault in it. Raises StaleError unless `old` is there exactly once."""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise StaleError(f"dpsql/{self.file} holds the old text {found} times")
        return text.replace(self.old, self.new)
