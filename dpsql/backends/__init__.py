"""Backends: run emitted statements on an engine and return their rows as `Exact`.

This package alone imports a database engine.
"""

from dpsql.backends.base import Backend, DatabaseIdentity, Exact, TableOrigin, TemporaryTables

__all__ = ["Backend", "DatabaseIdentity", "Exact", "TableOrigin", "TemporaryTables"]
