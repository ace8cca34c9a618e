"""DuckDB: the connection, its settings, files and frames, and the dialect in which statements are emitted for it."""

from dpsql.backends.duckdb.connection import DuckDBBackend, connect_with, lock_down
from dpsql.backends.duckdb.settings import LOCKED, UNSOUND

__all__ = ["LOCKED", "UNSOUND", "DuckDBBackend", "connect_with", "lock_down"]
