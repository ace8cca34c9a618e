"""Where the data lives: a `Backend` runs the one statement and returns it as `Exact`.

This package alone imports a database engine.
"""

from dpsql.backends.base import Backend, Exact, Origin, Place, Tables

__all__ = ["Backend", "Exact", "Origin", "Place", "Tables"]
