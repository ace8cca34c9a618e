"""Open a connection whose engine runs in this process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dpsql.api.arguments import OwnerOptions
from dpsql.api.base_connection import QueryDefaults
from dpsql.api.connection import Connection
from dpsql.api.opening import SharedLedger, open_database, open_engine, open_tables
from dpsql.errors import Error
from dpsql.policy.request.dialects import require_dialect_name


def connect_in_process(database: Any, defaults: QueryDefaults, owner: OwnerOptions) -> Connection:
    """Return a connection to a database, with the owner's reservation if one is wanted.

    A dict has data frames and files by the names of tables, and None leaves all tables to the policy; any other database has all
    tables.
    """
    opens_tables = database is None or isinstance(database, Mapping)
    require_dialect_name(defaults.dialect)
    engine = open_engine(partial(open_tables if opens_tables else open_database, database), owner)
    epsilon = engine.policy.default_epsilon if defaults.epsilon is None else defaults.epsilon
    shares = isinstance(owner.ledger, SharedLedger)
    con = Connection(engine, epsilon, defaults.dialect, replay=defaults.replay, shares_ledger=shares)
    if owner.reserve is not None:
        try:
            con.reserve(epsilon=owner.reserve)
        except Error:
            con.close()
            raise
    return con
