"""DuckDB: the connection, its settings, files and frames, and the dialect in which statements are emitted for it."""

from dpsql.backends.duckdb.connection import LOCKED, UNSOUND, DuckDBBackend, lock_down

__all__ = ["LOCKED", "UNSOUND", "DuckDBBackend", "lock_down"]
