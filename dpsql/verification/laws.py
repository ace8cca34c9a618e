"""All laws, in the order in which they are tried: the quick ones first."""

from __future__ import annotations

from dpsql.verification import data_laws, function_laws, lock_laws, parser_laws, stored_types
from dpsql.verification.law import Law

LAWS: tuple[Law, ...] = (
    *lock_laws.LAWS,
    *data_laws.LAWS,
    *stored_types.LAWS,
    *parser_laws.LAWS,
    *function_laws.LAWS,
)
"""What a version of DuckDB and of sqlglot must prove."""
