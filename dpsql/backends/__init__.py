"""Where the data lives: a `Backend` runs the one statement and returns it as `Exact`.

This package alone imports a database engine.
"""

from dpsql.backends.base import Backend, DatabaseIdentity, Exact, TableOrigin, TemporaryTables

__all__ = ["Backend", "DatabaseIdentity", "Exact", "TableOrigin", "TemporaryTables"]
