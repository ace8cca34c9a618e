"""The settings of a connection to PostgreSQL that decide over values, errors or rows.

Claim: an emitted statement means the same whatever the server, the database or the role sets.
Why: each of these settings is set again at the start of each transaction, in which nothing else sets them. The others of
PostgreSQL 15 to 17 were reviewed: they decide over speed, memory, logs, replication, or statements that are never sent.
Source: PostgreSQL manual, chapter 20 (server configuration), and section 20.11 (client connection defaults).
"""

from __future__ import annotations

from types import MappingProxyType

PINNED = MappingProxyType(
    {
        "search_path": "pg_catalog, pg_temp",  # nobody's functions and operators; tables are named with their schemas
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "extra_float_digits": "1",  # the shortest text that no other DOUBLE has
        "standard_conforming_strings": "on",
        "backslash_quote": "safe_encoding",
        "transform_null_equals": "off",
        "array_nulls": "on",
        "row_security": "off",  # an error, while the statement is planned, in place of some of the rows
        "jit": "off",
        "lock_timeout": "30s",  # a lock is waited for when a statement is bound, which is before it is charged
        "idle_in_transaction_session_timeout": "0",
        "client_min_messages": "error",
    }
)
"""What each setting has to be."""


def build_settings_statements(timeout: int) -> str:
    """The statements that set them for a transaction, with the most seconds that a statement may take; 0 for no limit."""
    settings = {**PINNED, "statement_timeout": f"{timeout}s"}
    return "; ".join(f"SET LOCAL {name} = {_quote_value(name, value)}" for name, value in settings.items())


def _quote_value(name: str, value: str) -> str:
    return value if name in ("search_path", "DateStyle") else f"'{value}'"
