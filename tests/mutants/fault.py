"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass

from .syntax_places import Code, definitions, places, same, spliced


class StaleError(Exception):
    """The source has changed under a fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A patch of one place: `old`, which the definition `where` holds exactly once, becomes `new`.

    `where` is a module and a qualified name, such as dpsql.sql.compile.lattice:UnitSums.moments, or a module alone for code
    outside functions and classes. `old` and `new` are Python: one expression, or one or several statements, or no
    statement in `new`. They are compared and replaced on the syntax tree, so that layout and comments do not matter.

    `breaks` says what is wrong then, `test` is the node id of a test that must fail.
    """

    name: str
    where: str
    old: str
    new: str
    breaks: str
    test: str

    @property
    def module(self) -> str:
        """The module that the fault is in."""
        return self.where.partition(":")[0]

    @property
    def definition(self) -> str:
        """The qualified name of the function or class that the fault is in; empty outside of all."""
        return self.where.partition(":")[2]

    @property
    def file(self) -> str:
        """The module's file, from the root of the project."""
        return f"{self.module.replace('.', '/')}.py"

    def planted(self, text: str) -> str:
        """The module's text with the fault in it. Raises StaleError unless `old` is there exactly once."""
        old, new = Code.read(self.old), Code.read(self.new)
        if not (old.is_expression and new.is_expression):
            old, new = old.as_statements(), new.as_statements()
        found = [
            place
            for name, definition in definitions(text)
            if name == self.definition
            for place in places(definition, text, old)
        ]
        if len(found) != 1 or same(old.nodes, new.nodes):
            raise StaleError(f"{self.where} holds the old code {len(found)} times")
        return spliced(text, found[0], new)
