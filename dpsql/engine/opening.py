"""What `connect` is given, as what is opened: the files that a policy names, and the ledger beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsql.errors import ProgrammingError
from dpsql.policy import Policy


def with_sources(database: Any, rules: Policy, policy: Any) -> Any:
    """The database with the tables whose files the policy names."""
    named = isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy)
    sources = rules.sources(Path(policy).parent if named else Path())
    if database is None and not sources:
        raise ProgrammingError(
            "no database given, and the policy names no source of a table",
            code="no_database",
            hint='connect("name.duckdb", policy=…), or `source: name.parquet` in the policy\'s table',
        )
    if not sources:
        return database
    if not (database is None or isinstance(database, Mapping)):
        raise ProgrammingError(
            f"the policy has the sources of {', '.join(sources)}, and a database is given",
            code="ambiguous",
            hint="leave out one of them; what is not in files may be given as a dict of frames",
        )
    return {**sources, **(database or {})}


def ledger_beside(policy: Any) -> Path:
    """The file of the ledger of a policy's file. Raises ProgrammingError (`ledger_missing`) for another policy."""
    if isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy):
        return Path(policy).with_suffix(".ledger")
    raise ProgrammingError(
        "no ledger given: pass the file that records the charges",
        code="ledger_missing",
        hint='connect(…, ledger="name.ledger"), or ledger=":memory:" for one that ends with the process',
    )
