"""The type objects of PEP 249, which compare equal to the engine types of `Cursor.description`."""

from __future__ import annotations


class TypeObject:
    """A PEP 249 type object: equal to each engine type of its kind."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other in self.names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.names)


STRING = TypeObject("VARCHAR")
BINARY = TypeObject("BLOB")
NUMBER = TypeObject("BIGINT", "DOUBLE", "HUGEINT", "INTEGER")
DATETIME = TypeObject("DATE", "TIMESTAMP")
ROWID = TypeObject()
