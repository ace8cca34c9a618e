"""The small clinic that the SQL tests ask about: private visits and staff, public regions and plans.

Every declared key has rows, every group has several patients, and no patient exceeds a bound, so that
without noise an answer is what DuckDB answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from fractions import Fraction

import duckdb

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.types import Value
from dpsql.policy.request.query import Query
from dpsql.verification.clinic import POLICY, make_clinic

__all__ = ["NOON", "NO_NOISE", "POLICY", "clinic", "prepare", "study"]

NO_NOISE = 10**15
"""A loss at which no noise is left: what is answered is the exact statistic."""

NOON = dt.datetime(2026, 4, 1, 12)
"""When the queries are asked."""


def clinic() -> duckdb.DuckDBPyConnection:
    """The clinic's database."""
    return make_clinic()


def study(dialect: str = "duckdb") -> Connection:
    """A connection to the clinic, which answers without noise."""
    return dpsql.connect(clinic(), policy=POLICY, ledger=":memory:", epsilon=NO_NOISE, dialect=dialect)


def prepare(connection: Connection, query: str, parameters: Sequence[Value] = ()) -> QueryRun:
    """Everything that is decided about a query before it is charged."""
    user_query = Query(query, tuple(parameters), None, default=Fraction(NO_NOISE), time=NOON)
    return plan_and_match(connection.engine, user_query)
